"""Data sets that are made once: found again by the content of what they were made of, never by its date.

Each has a folder of its own in the cache of `datasets`, with the digests of its files. One that has changed is removed
and made again, and so is one that was never finished.
"""

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s2s.errors import UserError
from s2s.files import file_lock, open_regular, sha256_of, write_atomically
from s2s.json_files import read_json

if TYPE_CHECKING:
    import datasets

_DIGESTS = "digests.json"


def cache_rows(
    read: Callable[[], Iterator[dict[str, Any]]], files: tuple[Path, ...], reading: str, columns: Mapping[str, str]
) -> "datasets.Dataset":
    """Rows of files, written to Arrow once and found again while content, reading and our version stay the same.

    Raises:
        UserError: as `read`; or there are no rows.
    """
    import datasets
    from datasets import config
    from datasets.exceptions import DatasetGenerationError

    # a file's ending says how it is read
    fingerprint = named(reading, *(f"{path.name} {content_hash(path)}" for path in files))
    failure: list[UserError] = []

    def rows() -> Iterator[dict[str, Any]]:
        """The rows, until one is at fault."""
        row = None
        try:
            for row in read():
                yield row
            if row is None:
                # the builder would say this in its own words
                raise UserError("holds no rows", where=", ".join(map(str, files)), remedy="name another file")
        except UserError as error:
            # the builder wraps what its generator raises; the user wants our words
            failure.append(error)
            raise

    def make(place: Path) -> datasets.Dataset:
        """The rows as an Arrow file in the folder."""
        return datasets.Dataset.from_generator(  # type: ignore[return-value]
            rows, features=of_kinds(columns), cache_dir=str(place), fingerprint=fingerprint
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
    """Make a data set in its folder of the cache, or open the one that is there.

    Args:
        name: identifies the data set.
        make: makes the data set in a folder, or opens the one that it has made there before.

    Returns:
        The data set. A folder whose files have changed is removed first, which is printed to standard error.
    """
    from datasets import config

    place = Path(config.HF_DATASETS_CACHE) / "s2s" / name
    place.parent.mkdir(parents=True, exist_ok=True)
    _remove_unfinished(place.parent)
    with file_lock(_lock_of(place), wait=True):
        if (place / _DIGESTS).exists() and (damaged := _damaged(place)):
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


def _remove_unfinished(folder: Path) -> None:
    """Removes what a process left that was killed while it made a data set."""
    for place in folder.iterdir():
        if place.is_dir() and not (place / _DIGESTS).exists():
            # whoever holds the lock is at it
            with suppress(OSError, UserError), file_lock(_lock_of(place)):
                if not (place / _DIGESTS).exists():
                    shutil.rmtree(place, ignore_errors=True)


def _damaged(place: Path) -> Path | None:
    """The first file of a finished data set that is not what it was."""
    try:
        digests = read_json(place / _DIGESTS, dict[str, str])
    except UserError:
        return place / _DIGESTS
    return next((place / name for name, digest in digests.items() if _digest(place / name) != digest), None)


def _digest(path: Path) -> str:
    """The digest of a file; empty where it is missing or no file."""
    try:
        return sha256_of(path)
    except (OSError, UserError):
        return ""


def of_kinds(kinds: Mapping[str, str]) -> "datasets.Features":
    """Columns as `datasets` declares them, by the names of the types of what is in them."""
    from datasets import Features, Value

    return Features({name: Value(kind) for name, kind in kinds.items()})


def content_hash(path: Path) -> str:
    """What identifies a file: dates say nothing, for it may have been restored, or copied with its date."""
    with open_regular(path, "name a file") as file:
        try:
            return hashlib.file_digest(file, "blake2b").hexdigest()
        except OSError as error:
            # what fails while it is read does not name the file
            error.filename = error.filename or str(path)
            raise


def name_of_folder(corpus: str, config: str) -> str | None:
    """A name for what is made of the files in a folder, by their content: `datasets` looks at their dates alone.

    None for a data set on the hub.
    """
    folder = Path(corpus)
    if not folder.is_dir():
        return None
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return named(config, *(f"{path.relative_to(folder)} {content_hash(path)}" for path in files))


def named(*parts: str) -> str:
    """A name for what our version makes of these."""
    return hashlib.blake2b("\n".join([version("s2s"), *parts]).encode(), digest_size=16).hexdigest()


def convert_cached(
    found: "datasets.Dataset",
    take: Callable[[Mapping[str, list[Any]], list[int]], dict[str, list[Any]]],
    reading: str,
    kinds: Mapping[str, str],
) -> "datasets.Dataset":
    """Rows of a data set as ours, made once and found again while they, the columns and our version stay the same.

    The columns of some rows and their numbers are made by `take`; another `reading` is another result.
    """
    # left alone, datasets would name the result by the code of `take`, whose callees it does not look into
    name = named(found._fingerprint, reading)
    columns, there = found.column_names, [Path(file["filename"]) for file in found.cache_files]
    kept = there[0].with_name(f"cache-{name}.arrow") if there else None
    note = kept.with_name(f"{kept.name}.sha256") if kept else None
    if kept and note and kept.exists() and not (note.exists() and note.read_bytes() == _digest(kept).encode()):
        if note.exists():
            print(f"{kept}: this cached file is damaged; reading the data again", file=sys.stderr)
        kept.unlink()
    made = found.map(
        take, batched=True, with_indices=True, remove_columns=columns, features=of_kinds(kinds), new_fingerprint=name
    )
    if kept and note and kept.exists():
        write_atomically(note, _digest(kept))
    return made
