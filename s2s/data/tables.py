"""Tables of texts, in files or on the Hugging Face hub: rows, columns, and the files of a folder."""

import difflib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from s2s.data import text_files
from s2s.data.caching import build_once, cache_rows, convert_cached, name_of_folder
from s2s.data.sources import ALIASES, Source, digest_of
from s2s.data.text_files import Columns
from s2s.errors import UserError
from s2s.files import is_disk_full
from s2s.recipe.schema import PlainTextSettings, SourceSettings, TextSettings

if TYPE_CHECKING:
    import datasets

TEXT = {"text": "string"}
_SHOWN_NAMES = 20


@dataclass(frozen=True)
class RowFormat:
    """Conversion of the rows of a table or hub data set to the columns of a task."""

    columns: Columns  # columns to read
    word: str  # name of the conversion, to distinguish results made from the same file
    kinds: Mapping[str, str]  # resulting columns and their `datasets` types
    # function of (cells, row number, place for messages) that returns the resulting row
    row: Callable[[Sequence[str], int, str], dict[str, Any]]

    @property
    def name(self) -> str:
        """Cache key of the conversion."""
        quoting = self.columns.quoting
        return f"{self.word} {self.columns.names}" + (f" quoting {quoting}" if quoting else "")


def from_table(path: Path, reading: RowFormat) -> "datasets.Dataset":
    """Read the rows of a table file, cached."""
    text_files.check_there(path)

    def rows() -> Iterator[dict[str, Any]]:
        for number, cells in text_files.table_cells(path, reading.columns):
            yield reading.row(cells, number, text_files.place(path, number))

    return cache_rows(rows, (path,), reading.name, reading.kinds)


def from_hub(
    settings: SourceSettings, split: str, reading: RowFormat
) -> tuple["datasets.Dataset", "datasets.Features"]:
    """Read the rows of a hub data set, cached; return them and the data set's own features."""
    dataset = hub_split(settings, split)

    def take(rows: Mapping[str, list[Any]], numbers: list[int]) -> dict[str, list[Any]]:
        made = []
        for number, *values in zip(numbers, *rows.values(), strict=True):
            where = f"{settings.corpus} {split} row {number + 1}"
            cells = text_files.checked_cells(dict(zip(rows, values, strict=True)), reading.columns, where)
            made.append(reading.row(cells, number + 1, where))
        return {name: [row[name] for row in made] for name in reading.kinds}

    return convert_cached(dataset, take, reading.name, reading.kinds), dataset.features


def hub_split(settings: SourceSettings, split: str, folder: Path | None = None) -> "datasets.Dataset":
    """Load a split of a hub data set, or of the files in `folder`."""
    import datasets
    from datasets import config
    from datasets.exceptions import DatasetsError

    corpus = str(folder or settings.corpus)
    name = name_of_folder(corpus, settings.config or "")

    def make(place: Path | None) -> datasets.Dataset:
        return datasets.load_dataset(  # type: ignore[return-value]
            corpus, settings.config, split=split, revision=settings.revision, cache_dir=place and str(place)
        )

    try:
        return make(None) if name is None else build_once(name, make)
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(cause, OSError) and is_disk_full(cause):
            raise OSError(cause.errno, cause.strerror, str(config.HF_DATASETS_CACHE)) from None
        near = difflib.get_close_matches(corpus, ["built-in", "homonyms", "files"], n=1)
        raise UserError(
            f"{'data set' if folder else 'Hugging Face data set'} {corpus!r}, split {split!r}: "
            f"{str(error).strip().split(chr(10))[0]}",
            where="data.root" if folder else "data.corpus",
            remedy=(f"did you mean {near[0]}? " if near else "")
            + "check name, config, revision, split and the network; or read local files with data.root=DIR",
        ) from None


def usual_file(folder: Path, stem: str, kinds: Sequence[str] = text_files.TABLES) -> Path | None:
    """Return the first file of a folder with this stem and one of several endings, compressed or not."""
    names = (stem + kind + packed for kind in kinds for packed in text_files.COMPRESSIONS)
    return next((folder / name for name in names if (folder / name).is_file()), None)


def missing_split_error(root: Path, what: str, remedy: str) -> UserError:
    """Build the error for a folder without the files of a split; it lists the files."""
    names = sorted(path.name for path in root.iterdir())
    there = f"{', '.join(names[:_SHOWN_NAMES]) or 'nothing'}{' …' if names[_SHOWN_NAMES:] else ''}"
    return UserError(f"{what}; files: {there}", where=f"data.root: {root}", remedy=remedy)


def not_a_table_error(name: str, split: str, remedy: str) -> UserError:
    """Build the error for a file that is not a table."""
    return UserError(
        f"is no table ({', '.join(text_files.TABLES)}; plain, .gz or .xz)", f"data.{name}: {split}", remedy
    )


def split_table(source: Source, name: str, split: str) -> Path | None:
    """Return the table of a split of texts; None if the split comes from the hub."""
    if source.settings.corpus != "files" and source.settings.root is None:
        return None
    path: Path | None = Path(split)
    if source.settings.corpus != "files":
        root = source.folder("tables")
        path = next((found for stem in ALIASES.get(split, (split,)) if (found := usual_file(root, stem))), None)
        if path is None:
            kinds = ", ".join(text_files.TABLES)
            held_out = ", or hold texts out of the training data: data.validation=1000" if name == "validation" else ""
            raise missing_split_error(
                root,
                f"no table for the split {split!r}: looked for {split} with {kinds} (plain, .gz or .xz)",
                f"name the split by the beginning of its file: data.{name}=BEGINNING{held_out}",
            )
    if text_files.table_kind(path) is None:
        raise not_a_table_error(name, split, "name a table, or a hub data set with data.corpus")
    text_files.check_there(path, key=f"data.{name}")
    return path


def text_columns(settings: TextSettings, local: str | tuple[str, ...] | None = None) -> tuple[str, ...]:
    """Return the columns that make up a text, in the order in which they are joined."""
    columns = local or settings.text
    return (columns,) if isinstance(columns, str) else columns


def join_texts(texts: Sequence[str]) -> str:
    """Join the texts of several columns with spaces, without empty ones.

    Example:
        >>> join_texts(["A title", "", "and a body"])
        'A title and a body'
    """
    return " ".join(text for text in texts if text)


class TextSource(Source[PlainTextSettings, "datasets.Dataset"]):
    """Plain texts in the column `text`, stored by Arrow on disk.

    Training texts that are also in a held-out split are removed.
    """

    item_name: ClassVar[str] = "texts"

    def read(self, name: str, split: str | tuple[str, str], train: "datasets.Dataset | None") -> "datasets.Dataset":
        """Read a split from a table or from a data set on the hub."""
        settings, path = self.settings, split_table(self, name, str(split))
        local = settings.local.text if path is not None and settings.corpus != "files" else None
        columns = Columns(text_columns(settings, local), "data.text", quoting=settings.quoting)
        reading = RowFormat(columns, "texts", TEXT, lambda cells, number, where: {"text": join_texts(cells)})
        found = from_hub(settings, str(split), reading)[0] if path is None else from_table(path, reading)
        if not len(found):
            raise UserError(f"data.{name} has no texts", remedy="check the file, or name another one")
        return found

    def keys(self, part: "datasets.Dataset") -> Iterable[Hashable]:
        return part["text"]

    def digest(self, part: "datasets.Dataset") -> str:
        return digest_of(part["text"])
