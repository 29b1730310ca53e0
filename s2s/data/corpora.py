"""Parallel corpora as Hugging Face data sets: built-in, from files, or from the hub."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import datasets
import numpy as np
from datasets.exceptions import DatasetsError

from s2s.data.caching import cache_for, cached, converted
from s2s.data.phrasebook import phrases
from s2s.data.text_files import (
    COMPRESSIONS,
    PAIR_KEYS,
    TABLES,
    Columns,
    checked_cells,
    line_pairs,
    table_kind,
    table_rows,
)
from s2s.errors import UserError, check_regular
from s2s.recipe.limits import Split
from s2s.recipe.schema import DataSettings
from s2s.recipe.wording import near_files

ALIASES = {"validation": ("validation", "valid", "val", "dev")}
_BUILT_IN_SIZES = {"train": 40_000, "validation": 500, "test": 1_000}
_BUILT_IN_SIDES = {"en": "source", "de": "target", "cases": "cases"}  # and the fields of `Phrase`


class OnTheHub(Protocol):
    """What names a data set on the Hugging Face hub: part of a recipe's `data` section."""

    @property
    def corpus(self) -> str:
        """Its name."""
        ...

    @property
    def config(self) -> str | None:
        """Its configuration."""
        ...

    @property
    def revision(self) -> str | None:
        """Its git revision."""
        ...


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs as untouched text, in the columns `source` and `target`; Arrow keeps them on disk.

    The built-in corpus also has `construction` and `distance`, see `phrasebook.Phrase`.
    """

    train: datasets.Dataset
    validation: datasets.Dataset
    test: datasets.Dataset | None


def load(settings: DataSettings) -> Corpus:
    """Loads the corpus that a recipe's `data` section describes.

    Pairs held out of the training data have different sources, none of which is left in the training data.

    Raises:
        UserError: a file, column or split is missing, a file is damaged, files have different numbers of lines, or
            nothing is in a split.
    """
    train, validation, test = (load_split(settings, name) for name in ("train", "validation", "test"))
    held_out = {
        name: size
        for name, part, size in (("validation", validation, settings.validation), ("test", test, settings.test))
        if part is None and isinstance(size, int)
    }
    if train is None or (validation is None and "validation" not in held_out):
        raise UserError("data.train and data.validation are needed", remedy="name a file or a split")
    if held_out:
        train, parts = _hold_out(train, held_out, settings.seed)
        validation, test = parts.get("validation", validation), parts.get("test", test)
    return Corpus(train, validation, test)  # type: ignore[arg-type]


def load_split(settings: DataSettings, name: str) -> datasets.Dataset | None:
    """One split; None where the recipe has none or holds it out of the training data.

    Args:
        settings: the recipe's `data` section.
        name: `train`, `validation` or `test`.

    Raises:
        UserError: see `load`.
    """
    # the progress of Arrow's conversions would disturb the run's own
    datasets.disable_progress_bars()
    split: Split | None = getattr(settings, name)
    if split is None:
        return None
    if settings.corpus == "built-in":
        return _built_in(name, split, settings)
    if isinstance(split, int):
        if name == "train":
            near = "did you mean data.corpus=built-in? " if near_files(settings.corpus, ["built-in"]) else ""
            what = f"data.train is {split}; only the built-in corpus is made to measure"
            raise UserError(what, remedy=f"{near}name a file")
        return None
    if settings.corpus == "files":
        found = _from_files(name, split, settings)
    elif isinstance(split, tuple):
        raise UserError(
            f"data.{name} is a pair of files, but data.corpus is {settings.corpus!r}", remedy="set data.corpus: files"
        )
    else:
        found = _from_root(name, split, settings) if settings.root else _from_hub(split, settings)
    if not len(found):
        raise UserError(f"data.{name} has no sentence pairs", remedy="look at the file, or name another")
    return found


def pairs(dataset: datasets.Dataset) -> Iterator[tuple[str, str]]:
    """Source and target of each row, read some thousand rows at a time."""
    for first in range(0, len(dataset), 10_000):
        rows = dataset[first : first + 10_000]
        yield from zip(rows["source"], rows["target"], strict=True)


def _built_in(name: str, split: Split, settings: DataSettings) -> datasets.Dataset:
    if not isinstance(split, int) and split != name:
        raise UserError(
            f"data.{name} is {split!r}, but the built-in corpus is made to measure",
            remedy=f"set data.{name}: {_BUILT_IN_SIZES[name]}, or data.corpus: files",
        )
    for key, side in (("source", settings.source), ("target", settings.target)):
        if side not in _BUILT_IN_SIDES:
            near = difflib.get_close_matches(side, _BUILT_IN_SIDES, n=1)
            raise UserError(
                f"data.{key} is {side!r}, but the built-in corpus has {', '.join(_BUILT_IN_SIDES)}",
                remedy=(f"did you mean {near[0]}? " if near else "") + "choose one of them, or set data.corpus",
            )
    size = split if isinstance(split, int) else _BUILT_IN_SIZES[name]
    found = phrases(name, size, settings.seed)
    fields = {"source": _BUILT_IN_SIDES[settings.source], "target": _BUILT_IN_SIDES[settings.target]}
    fields |= {"construction": "construction", "distance": "distance"}
    return datasets.Dataset.from_dict({column: [getattr(p, f) for p in found] for column, f in fields.items()})


def _from_hub(split: str, settings: DataSettings) -> datasets.Dataset:
    found = hub_split(settings, split)
    columns = Columns((settings.source, settings.target), PAIR_KEYS)

    def take(rows: Mapping[str, list[Any]], numbers: list[int]) -> dict[str, list[str]]:
        cells = [
            checked_cells(dict(zip(rows, values, strict=True)), columns, f"{settings.corpus} {split} row {number + 1}")
            for number, *values in zip(numbers, *rows.values(), strict=True)
        ]
        return {"source": [source for source, _ in cells], "target": [target for _, target in cells]}

    return converted(found, take, f"columns {columns.names}")


def hub_split(settings: OnTheHub, split: str) -> datasets.Dataset:
    """A split of a data set on the Hugging Face hub.

    Args:
        settings: which data set.
        split: the split's name.

    Raises:
        UserError: it is not there, or the hub cannot be reached.
    """
    try:
        return datasets.load_dataset(  # type: ignore[return-value]
            settings.corpus,
            settings.config,
            split=split,
            revision=settings.revision,
            cache_dir=cache_for(settings.corpus),
        )
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        near = difflib.get_close_matches(settings.corpus, ["built-in", "files"], n=1)
        raise UserError(
            f"Hugging Face data set {settings.corpus!r}, split {split!r}: {str(error).strip().split(chr(10))[0]}",
            where="data.corpus",
            remedy=(f"did you mean {near[0]}? " if near else "")
            + "check name, config, revision, split and the network; or read local files with data.root=DIR",
        ) from None


def _from_root(name: str, split: str, settings: DataSettings) -> datasets.Dataset:
    """Files of the usual names in a folder."""
    root = Path(settings.root or "")
    if not root.is_dir():
        raise UserError("there is no such folder", where=f"data.root: {root}", remedy="name the folder of the files")
    stems = ALIASES.get(split, (split,))
    if split == "test" and not _usual_files(root, split, settings):
        stems = _longer_test_names(root, settings) or stems
    found = next((files for stem in stems if (files := _usual_files(root, stem, settings))), ())
    if len(found) == 2:
        return _line_files(found[0], found[1])
    if found:
        return _table(found[0], settings)
    names = sorted(p.name for p in root.iterdir())
    raise UserError(
        f"no files for the split {split!r}: looked for {split}.{settings.source} and {split}.{settings.target}, or "
        f"{split} with {', '.join(TABLES)} (plain, .gz or .xz)"
        + (f", also as {', '.join(stems[1:])}" if stems[1:] else "")
        + f"; there: {', '.join(names[:20]) or 'nothing'}{' …' if names[20:] else ''}",
        where=f"data.root: {root}",
        remedy=f"name the split by the beginning of its files: data.{name}=BEGINNING",
    )


def _usual_files(root: Path, stem: str, settings: DataSettings) -> tuple[Path, ...]:
    """Two line files, or one table, or nothing."""

    def existing(name: str) -> Path | None:
        return next((p for ending in COMPRESSIONS if (p := root / (name + ending)).is_file()), None)

    source, target = existing(f"{stem}.{settings.source}"), existing(f"{stem}.{settings.target}")
    if source and target:
        return source, target
    return tuple(path for kind in TABLES if (path := existing(stem + kind)))[:1]


def _longer_test_names(root: Path, settings: DataSettings) -> tuple[str, ...]:
    """`test_2016_flickr` where the files of that name are the only test set."""
    endings = [e + c for e in (f".{settings.source}", *TABLES) for c in COMPRESSIONS]
    names = {p.name.removesuffix(e) for p in root.glob("test*") for e in endings if p.name.endswith(e)}
    complete = sorted(name for name in names if _usual_files(root, name, settings))
    if len(complete) > 1:
        raise UserError(
            f"several test sets: {', '.join(complete)}",
            where=f"data.root: {root}",
            remedy=f"choose: data.test={complete[0]}",
        )
    return tuple(complete)


def _from_files(name: str, split: str | tuple[str, str], settings: DataSettings) -> datasets.Dataset:
    root = Path(settings.root or "")
    if isinstance(split, tuple):
        return _line_files(root / split[0], root / split[1])
    if table_kind(Path(split)) is None:
        raise UserError(
            f"is no table ({', '.join(TABLES)}; plain, .gz or .xz)",
            where=f"data.{name}: {split}",
            remedy="name a table, or a pair of line-aligned files: [a.en, a.de]",
        )
    return _table(root / split, settings)


def _line_files(source: Path, target: Path) -> datasets.Dataset:
    check_there(source, target)
    return cached(partial(line_pairs, source, target), (source, target), "lines")


def _table(path: Path, settings: DataSettings) -> datasets.Dataset:
    check_there(path)
    columns = (settings.source, settings.target)
    return cached(partial(table_rows, path, *columns), (path,), f"columns {columns}")


def check_there(*paths: Path) -> None:
    """Refuses files that are not there.

    Raises:
        UserError: one is not; what is there under a similar name is told.
    """
    for path in paths:
        check_regular(path, "name a file; of a pipe, write the lines to one first")
        if path.is_file():
            continue
        there = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        near = near_files(path.name, there, most=3)
        what = "no such file" if path.parent.is_dir() else f"no such file, and no folder {path.parent}"
        raise UserError(what, where=str(path), remedy=f"there is {', '.join(near)}" if near else "check the path")


def _hold_out(
    train: datasets.Dataset, sizes: dict[str, int], seed: int
) -> tuple[datasets.Dataset, dict[str, datasets.Dataset]]:
    """Takes pairs of different sources out of the training data, and drops from it all others of these sources."""
    wanted, rows_of = sum(sizes.values()), {}
    order = np.random.default_rng(seed).permutation(len(train))
    # a corpus may repeat its sources: row by row, until there are enough different ones
    for row in map(int, order):
        if len(rows_of) == wanted:
            break
        pair = train[row]
        # an empty side can be neither translated nor scored; it is left for the filters to count
        if pair["source"].strip() and pair["target"].strip():
            rows_of.setdefault(pair["source"], row)
    rest = [row for row, (source, _) in enumerate(pairs(train)) if source not in rows_of]
    if len(rows_of) < wanted or not rest:
        raise UserError(
            f"{wanted:,} pairs to hold out of {len(train):,} leave nothing to train on",
            where=", ".join(f"data.{name}: {size}" for name, size in sizes.items()),
            remedy="hold out fewer",
        )
    held, parts = list(rows_of.values()), {}
    for name, size in sizes.items():
        parts[name], held = train.select(held[:size]), held[size:]
    return train.select(rest), parts
