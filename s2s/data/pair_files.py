"""Files of a parallel corpus: two line-aligned files or one table, compressed or not; data sets on the hub."""

import itertools
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from s2s.data.caching import cache_rows
from s2s.data.sources import ALIASES, Source
from s2s.data.tables import RowFormat, from_hub, from_table, missing_split_error, not_a_table_error, usual_file
from s2s.data.text_files import COMPRESSIONS, TABLES, Columns, check_there, line_pairs, place, table_cells, table_kind
from s2s.errors import UserError
from s2s.recipe.pairs import LearnedPairs
from s2s.recipe.schema import MADE

if TYPE_CHECKING:
    import datasets

    PairsOnDisk = Source[LearnedPairs, datasets.Dataset]

_PAIRS = {"source": "string", "target": "string"}


def read_pairs(source: "PairsOnDisk", name: str, split: str | tuple[str, str]) -> "datasets.Dataset":
    """Read the columns `source` and `target` of a split from line-aligned files, a table, or the hub."""
    files = _files(source, name, split)
    if len(files) == 2:
        check_there(*files, key=f"data.{name}")
        found = cache_rows(partial(line_pairs, *files), files, "lines", _PAIRS)
    elif files:
        found = from_table(files[0], _row_format(source.settings))
    else:
        found = from_hub(source.settings, str(split), _row_format(source.settings))[0]
    if not len(found):
        raise UserError(f"data.{name} has no sentence pairs", remedy="check the file, or name another one")
    return found


def place_of_row(source: "PairsOnDisk", name: str, row: int) -> str:
    """Return the place of a row (from 0) of a split for messages, such as `train.de:17`."""
    settings, split = source.settings, getattr(source.settings, name)
    files = () if settings.corpus in MADE else _files(source, name, split)
    if not files:
        return f"{settings.corpus} {name} row {row + 1}"
    if len(files) == 2:
        return f"{files[1]}:{row + 1}"
    number, _ = next(itertools.islice(table_cells(files[0], _row_format(settings).columns), row, None))
    return place(files[0], number)


def _row_format(settings: LearnedPairs) -> RowFormat:
    columns = Columns((settings.source, settings.target), "data.source and data.target", quoting=settings.quoting)
    return RowFormat(columns, "columns", _PAIRS, lambda cells, number, where: dict(zip(_PAIRS, cells, strict=True)))


def _files(source: "PairsOnDisk", name: str, split: str | tuple[str, str]) -> tuple[Path, ...]:
    """Return two line-aligned files or one table; nothing for a data set on the hub."""
    settings = source.settings
    root = Path(settings.root or "")
    if isinstance(split, tuple):
        if settings.corpus == "files":
            return root / split[0], root / split[1]
        what = f"data.{name} is a pair of files, but data.corpus is {settings.corpus!r}"
        raise UserError(what, remedy="set data.corpus: files")
    if settings.corpus == "files":
        if table_kind(Path(split)) is None:
            raise not_a_table_error(name, split, "name a table, or a pair of line-aligned files: [a.en, a.de]")
        check_there(root / split, key=f"data.{name}")
        return (root / split,)
    return _files_in(source.folder("files"), settings, name, split) if settings.root else ()


def _files_in(root: Path, settings: LearnedPairs, name: str, split: str) -> tuple[Path, ...]:
    stems = ALIASES.get(split, (split,))
    if split == "test" and not _usual_files(root, settings, split):
        stems = _longer_test_names(root, settings) or stems
    found = next((files for stem in stems if (files := _usual_files(root, settings, stem))), ())
    if found:
        return found
    raise missing_split_error(
        root,
        f"no files for the split {split!r}: looked for {split}.{settings.source} and {split}.{settings.target}, or "
        f"{split} with {', '.join(TABLES)} (plain, .gz or .xz)"
        + (f", also as {', '.join(stems[1:])}" if stems[1:] else ""),
        f"name the split by the beginning of its files: data.{name}=BEGINNING",
    )


def _usual_files(root: Path, settings: LearnedPairs, stem: str) -> tuple[Path, ...]:
    """Return two line-aligned files, or one table, or nothing."""
    sides = [usual_file(root, stem, (f".{side}",)) for side in (settings.source, settings.target)]
    files = tuple(path for path in sides if path is not None)
    table = usual_file(root, stem)
    return files if len(files) == 2 else (table,) if table else ()


def _longer_test_names(root: Path, settings: LearnedPairs) -> tuple[str, ...]:
    """Return the longer name of a single test set, such as `test_2016_flickr`."""
    endings = [e + c for e in (f".{settings.source}", *TABLES) for c in COMPRESSIONS]
    names = {p.name.removesuffix(e) for p in root.glob("test*") for e in endings if p.name.endswith(e)}
    complete = sorted(name for name in names if _usual_files(root, settings, name))
    if len(complete) > 1:
        what = f"several test sets: {', '.join(complete)}"
        raise UserError(what, where=f"data.root: {root}", remedy=f"choose: data.test={complete[0]}")
    return tuple(complete)
