"""Cached data sets, found by a hash of the content that they were made from.

File dates are ignored. Each data set has a folder in the cache of `datasets`, with digests of its files. A damaged or
unfinished data set is removed and made again.
"""

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s2s.errors import UserError
from s2s.files import file_lock, open_regular, sha256_of, write_atomically
from s2s.json_files import read_json
from s2s.process import package_version

if TYPE_CHECKING:
    import datasets

_DIGESTS = "digests.json"


def cache_rows(
    read: Callable[[], Iterator[dict[str, Any]]], files: tuple[Path, ...], reading: str, columns: Mapping[str, str]
) -> "datasets.Dataset":
    """Write rows to an Arrow file, or reuse it if content and version are the same.

    Args:
        read: Function that iterates over the rows.
        files: Files that the rows are read from; their content is part of the cache key.
        reading: Name of the conversion; another name is another result.
        columns: Resulting columns and their `datasets` types.
    """
    import datasets
    from datasets import config
    from datasets.exceptions import DatasetGenerationError

    # The file name is part of the key, because its ending says how the file is read.
    fingerprint = named(reading, *(f"{path.name} {_content_hash(path)}" for path in files))
    failure: list[UserError] = []

    def rows() -> Iterator[dict[str, Any]]:
        row = None
        try:
            for row in read():
                yield row
            if row is None:
                # The message of the builder would not name the file.
                raise UserError("has no rows", where=", ".join(map(str, files)), remedy="name another file")
        except UserError as error:
            # The builder wraps exceptions of its generator; keep ours to show it to the user.
            failure.append(error)
            raise

    def make(place: Path) -> datasets.Dataset:
        return datasets.Dataset.from_generator(  # type: ignore[return-value]
            rows, features=_features(columns), cache_dir=str(place), fingerprint=fingerprint
        )

    try:
        return build_once(fingerprint, make)
    except DatasetGenerationError as error:
        if failure:
            raise failure[0] from None
        full = error.__cause__
        if isinstance(full, OSError):
            raise OSError(full.errno, full.strerror, str(config.HF_DATASETS_CACHE)) from None
        raise


def build_once(name: str, make: "Callable[[Path], datasets.Dataset]") -> "datasets.Dataset":
    """Make a data set in a folder of the cache, or open the existing one.

    A folder whose files have changed is removed first, with a message on standard error.
    """
    from datasets import config

    place = Path(config.HF_DATASETS_CACHE) / "s2s" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    for other in place.parent.iterdir():
        # Remove what a killed process has not finished; a process that holds the lock is still making its data set.
        if other.is_dir() and not (other / _DIGESTS).exists():
            with suppress(OSError, UserError), file_lock(_lock_of(other)):
                if not (other / _DIGESTS).exists():
                    shutil.rmtree(other, ignore_errors=True)
    with file_lock(_lock_of(place), wait=True):
        if (place / _DIGESTS).exists():
            try:
                digests = read_json(place / _DIGESTS, dict[str, str])
                damaged = next((place / name for name, d in digests.items() if _digest(place / name) != d), None)
            except UserError:
                damaged = place / _DIGESTS
            if damaged:
                print(f"{damaged}: this cached file is damaged; reading the data again", file=sys.stderr)
                shutil.rmtree(place)
        try:
            found = make(place)
            if not (place / _DIGESTS).exists():
                files = sorted(path for pattern in ("*.arrow", "*.json") for path in place.rglob(pattern))
                digests = {path.relative_to(place).as_posix(): sha256_of(path) for path in files}
                write_atomically(place / _DIGESTS, json.dumps(digests, indent=1) + "\n")
        except BaseException:
            if not (place / _DIGESTS).exists():
                shutil.rmtree(place, ignore_errors=True)
            raise
    return found


def _lock_of(place: Path) -> Path:
    return place.with_name(f"{place.name}.lock")


def _digest(path: Path) -> str:
    """Return the digest of a file; empty if the file is missing or not regular."""
    try:
        return sha256_of(path)
    except (OSError, UserError):
        return ""


def _features(kinds: Mapping[str, str]) -> "datasets.Features":
    from datasets import Features, Value

    return Features({name: Value(kind) for name, kind in kinds.items()})


def _content_hash(path: Path) -> str:
    """Hash the content of a file."""
    with open_regular(path, "name a file") as file:
        try:
            return hashlib.file_digest(file, "blake2b").hexdigest()
        except OSError as error:
            # An error while reading does not name the file.
            error.filename = error.filename or str(path)
            raise


def name_of_folder(corpus: str, config: str) -> str | None:
    """Return a name for a local data set from its content; None for one on the hub."""
    folder = Path(corpus)
    if not folder.is_dir():
        return None
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return named(config, *(f"{path.relative_to(folder)} {_content_hash(path)}" for path in files))


def named(*parts: str) -> str:
    """Return a cache name for these parts and the version of s2s."""
    return hashlib.blake2b("\n".join([package_version("s2s"), *parts]).encode(), digest_size=16).hexdigest()


def convert_cached(
    found: "datasets.Dataset",
    take: Callable[[Mapping[str, list[Any]], list[int]], dict[str, list[Any]]],
    reading: str,
    kinds: Mapping[str, str],
) -> "datasets.Dataset":
    """Convert the rows of a data set, or reuse the result for the same inputs.

    Args:
        found: Rows to convert.
        take: Function of a batch (lists by column) and row numbers that returns the converted columns.
        reading: Name of the conversion; another name is another result.
        kinds: Resulting columns and their `datasets` types.
    """
    return map_cached(
        found, take, named(found._fingerprint, reading), _features(kinds), remove=found.column_names, with_indices=True
    )


def map_cached(
    found: "datasets.Dataset",
    change: Callable[..., dict[str, list[Any]]],
    name: str,
    features: "datasets.Features | None" = None,
    remove: Sequence[str] = (),
    with_indices: bool = False,
    batch: int = 1000,
    description: str = "",
) -> "datasets.Dataset":
    """Apply a function to all rows, or reuse the result of the same name.

    The result lies beside the files of `found`, with its digest; a damaged one is removed and made again. Rows that are
    in memory only are not cached.

    Args:
        found: Rows to change.
        change: Function of a batch (lists by column) that returns the columns that it changes.
        name: Hash of `found`, of the function and of all that it depends on.
        features: Types of the resulting columns; None to infer them.
        remove: Columns that the result does not keep.
        with_indices: True to pass the row numbers as a second argument.
        batch: Rows in a batch.
        description: Text of the progress bar in a terminal; empty shows none.
    """
    import datasets

    there = [Path(file["filename"]) for file in found.cache_files]
    kept = there[0].with_name(f"cache-{name}.arrow") if there else None
    note = kept.with_name(f"{kept.name}.sha256") if kept else None
    if kept and note and not (kept.exists() and note.exists() and note.read_bytes() == _digest(kept).encode()):
        if kept.exists() and note.exists():
            print(f"{kept}: this cached file is damaged; reading the data again", file=sys.stderr)
        kept.unlink(missing_ok=True)
        note.unlink(missing_ok=True)
    hide = not (description and sys.stderr.isatty()) and not datasets.are_progress_bars_disabled()
    if hide:
        datasets.disable_progress_bars()
    try:
        made = found.map(
            change,
            batched=True,
            batch_size=batch,
            writer_batch_size=batch,
            with_indices=with_indices,
            remove_columns=list(remove),
            features=features,
            # Without a given name, `datasets` would hash the code of `change`, but not of the functions that it calls.
            new_fingerprint=name,
            desc=description or None,
        )
    finally:
        if hide:
            datasets.enable_progress_bars()
    if kept and note and kept.exists() and not note.exists():
        write_atomically(note, _digest(kept))
    return made
