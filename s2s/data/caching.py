"""Data sets that are made once: found again by the content of what they were made of, never by its date."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s2s.errors import UserError

if TYPE_CHECKING:
    import datasets


def cached(
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

    try:
        return datasets.Dataset.from_generator(rows, features=of_kinds(columns), fingerprint=fingerprint)  # type: ignore[return-value]
    except DatasetGenerationError as error:
        if failure:
            raise failure[0] from None
        full = error.__cause__
        if isinstance(full, OSError):
            raise OSError(full.errno, full.strerror, str(config.HF_DATASETS_CACHE)) from None
        raise


def of_kinds(kinds: Mapping[str, str]) -> "datasets.Features":
    """Columns as `datasets` declares them, by the names of the types of what is in them."""
    from datasets import Features, Value

    return Features({name: Value(kind) for name, kind in kinds.items()})


def content_hash(path: Path) -> str:
    """What identifies a file: dates say nothing, for it may have been restored, or copied with its date."""
    with path.open("rb") as file:
        try:
            return hashlib.file_digest(file, "blake2b").hexdigest()
        except OSError as error:
            # what fails while it is read does not name the file
            error.filename = error.filename or str(path)
            raise


def cache_for(corpus: str) -> str | None:
    """Where `datasets` keeps what it makes of the files in a folder, of which it looks at the dates alone.

    For a data set on the hub, None is the usual place.
    """
    from datasets import config

    folder = Path(corpus)
    if not folder.is_dir():
        return None
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    name = named(*(f"{path.relative_to(folder)} {content_hash(path)}" for path in files))
    return str(Path(config.HF_DATASETS_CACHE) / f"s2s-{name}")


def named(*parts: str) -> str:
    """A name for what our version makes of these."""
    return hashlib.blake2b("\n".join([version("s2s"), *parts]).encode(), digest_size=16).hexdigest()


def converted(
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
    columns = found.column_names
    return found.map(
        take, batched=True, with_indices=True, remove_columns=columns, features=of_kinds(kinds), new_fingerprint=name
    )
