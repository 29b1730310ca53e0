"""Parallel corpora as Hugging Face data sets: built-in, from files, or from the hub."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
from datasets.exceptions import DatasetGenerationError, DatasetsError

from s2s.data.phrasebook import phrases
from s2s.data.text_files import COMPRESSIONS, TABLES, Row, checked_cells, line_pairs, table_kind, table_rows
from s2s.errors import UserError
from s2s.recipe.schema import DataSettings, Split

_ALIASES = {"validation": ("validation", "valid", "val", "dev"), "test": ("test",), "train": ("train",)}
_BUILT_IN_SIZES = {"train": 40_000, "validation": 500, "test": 1_000}
_TEXT = datasets.Features({"source": datasets.Value("string"), "target": datasets.Value("string")})


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

    Raises:
        UserError: a file, column or split is missing, a file is damaged, files have different numbers of lines, or
            nothing is in a split.
    """
    # the progress of Arrow's conversions would disturb the run's own
    datasets.disable_progress_bars()
    found = {name: load_split(settings, name) for name in ("train", "validation", "test")}
    train, validation, test = found["train"], found["validation"], found["test"]
    if train is None:
        raise UserError("data.train cannot be held out of itself", remedy="name a file or a split")
    if settings.corpus != "built-in":
        held_out = {n: v for n in ("validation", "test") if isinstance(v := getattr(settings, n), int)}
        train, parts = _hold_out(train, held_out, settings.seed)
        validation, test = parts.get("validation", validation), parts.get("test", test)
    if validation is None:
        raise UserError("data.validation is needed", remedy="name a file or a split, or how many pairs to hold out")
    for name, part in (("train", train), ("validation", validation), ("test", test)):
        if part is not None and not len(part):
            raise UserError(f"data.{name} has no sentence pairs", remedy="look at the file, or name another")
    return Corpus(train, validation, test)


def load_split(settings: DataSettings, name: str) -> datasets.Dataset | None:
    """One of `train`, `validation` and `test`; None where the recipe has none or holds it out of the training data.

    Raises:
        UserError: see `load`.
    """
    split: Split | None = getattr(settings, name)
    if split is None:
        return None
    if settings.corpus == "built-in":
        return _built_in(name, split, settings.seed)
    if isinstance(split, int):
        if name == "train":
            raise UserError(f"data.train is {split}; only the built-in corpus is made to measure", remedy="name a file")
        return None
    if settings.corpus == "files":
        return _from_files(split, settings)
    if isinstance(split, tuple):
        raise UserError(
            f"data.{name} is a pair of files, but data.corpus is {settings.corpus!r}", remedy="set data.corpus: files"
        )
    return _from_root(Path(settings.root), split, settings) if settings.root else _from_hub(split, settings)


def _built_in(name: str, split: Split, seed: int) -> datasets.Dataset:
    if not isinstance(split, int) and split != name:
        raise UserError(
            f"data.{name} is {split!r}, but the built-in corpus is made to measure", remedy=f"set data.{name}: 1000"
        )
    size = split if isinstance(split, int) else _BUILT_IN_SIZES[name]
    found = phrases(name, size, seed)
    columns = ("source", "target", "construction", "distance")
    return datasets.Dataset.from_dict({column: [getattr(p, column) for p in found] for column in columns})


def _from_hub(split: str, settings: DataSettings) -> datasets.Dataset:
    try:
        found = datasets.load_dataset(settings.corpus, settings.config, split=split, revision=settings.revision)
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        raise UserError(
            f"Hugging Face data set {settings.corpus!r}, split {split!r}: {str(error).strip().splitlines()[0]}",
            where="data.corpus",
            remedy="check name, config, revision, split and the network; or read local files with data.root=DIR",
        ) from None
    columns = (settings.source, settings.target)

    def take(rows: dict[str, list[Any]]) -> dict[str, list[str]]:
        names = list(rows)
        cells = [
            checked_cells(dict(zip(names, values, strict=True)), columns, f"{settings.corpus} {split}")
            for values in zip(*rows.values(), strict=True)
        ]
        return {"source": [source for source, _ in cells], "target": [target for _, target in cells]}

    return found.map(take, batched=True, remove_columns=found.column_names, features=_TEXT)


def _from_root(root: Path, split: str, settings: DataSettings) -> datasets.Dataset:
    """Files of the usual names in a folder."""
    if not root.is_dir():
        raise UserError(
            "there is no such folder", where=f"data.root: {root}", remedy="name the folder that holds the files"
        )
    for stem in _stems(root, split):
        sides = [_existing(root, f"{stem}.{language}", COMPRESSIONS) for language in (settings.source, settings.target)]
        if sides[0] and sides[1]:
            return _line_files(sides[0], sides[1])
        table = next((p for kind in TABLES if (p := _existing(root, stem + kind, COMPRESSIONS))), None)
        if table:
            return _table(table, settings)
    wanted = f"{split}.{settings.source} and {split}.{settings.target}, or {split}.tsv, .csv, .jsonl, .parquet"
    there = ", ".join(sorted(p.name for p in root.iterdir())[:20]) or "nothing"
    raise UserError(
        f"no files for the split {split!r}: looked for {wanted} (plain, .gz, .xz; also as "
        f"{', '.join(_ALIASES.get(split, ()))[:60] or 'no other name'}); there: {there}",
        where=f"data.root: {root}",
        remedy="name the split by the files' beginning, e.g. data.test=test_2016_flickr",
    )


def _stems(root: Path, split: str) -> list[str]:
    stems = list(_ALIASES.get(split, (split,)))
    if split == "test" and not list(root.glob("test.*")):
        longer = sorted({p.name.split(".")[0] for p in root.glob("test*")})
        if len(longer) > 1:
            raise UserError(
                f"several test sets: {', '.join(longer)}",
                where=f"data.root: {root}",
                remedy=f"choose: data.test={longer[0]}",
            )
        stems += longer
    return stems


def _existing(root: Path, name: str, endings: tuple[str, ...]) -> Path | None:
    return next((p for ending in endings if (p := root / (name + ending)).is_file()), None)


def _from_files(split: Split, settings: DataSettings) -> datasets.Dataset:
    if isinstance(split, tuple):
        return _line_files(Path(split[0]), Path(split[1]))
    path = Path(str(split))
    if table_kind(path) is None:
        raise UserError(
            "is no table", where=str(path), remedy=f"name a {', '.join(TABLES)} file, or a pair of files: [a.en, a.de]"
        )
    return _table(path, settings)


def _line_files(source: Path, target: Path) -> datasets.Dataset:
    _check_there(source, target)
    return _cached(line_pairs, {"source": source, "target": target}, (source, target))


def _table(path: Path, settings: DataSettings) -> datasets.Dataset:
    _check_there(path)
    return _cached(table_rows, {"path": path, "source": settings.source, "target": settings.target}, (path,))


def _check_there(*paths: Path) -> None:
    for path in paths:
        if not path.is_file():
            near = ", ".join(sorted(p.name for p in path.parent.glob(f"{path.name.split('.')[0]}*"))[:5])
            raise UserError("no such file", where=str(path), remedy=f"there is {near}" if near else "check the path")


def _cached(read: Any, arguments: dict[str, Any], files: tuple[Path, ...]) -> datasets.Dataset:
    """Rows of files, written to Arrow once and found again while the files stay the same."""
    if next(read(**arguments), None) is None:
        # the builder cannot make a data set of nothing
        return datasets.Dataset.from_dict({"source": [], "target": []}, features=_TEXT)
    identity = [str(arguments)] + [f"{p.resolve()} {p.stat().st_size} {p.stat().st_mtime_ns}" for p in files]
    fingerprint = hashlib.blake2b("\n".join([read.__name__, *identity]).encode(), digest_size=16).hexdigest()
    failure: list[UserError] = []

    def rows() -> Iterator[Row]:
        try:
            yield from read(**arguments)
        except UserError as error:
            # the builder wraps what its generator raises; the user wants our words
            failure.append(error)
            raise

    try:
        return datasets.Dataset.from_generator(rows, features=_TEXT, fingerprint=fingerprint)  # type: ignore[return-value]
    except DatasetGenerationError:
        if failure:
            raise failure[0] from None
        raise


def _hold_out(
    train: datasets.Dataset, sizes: dict[str, int], seed: int
) -> tuple[datasets.Dataset, dict[str, datasets.Dataset]]:
    """Takes pairs out of the training data, and with them every other pair of the same source."""
    if not sizes:
        return train, {}
    if sum(sizes.values()) >= len(train):
        raise UserError(
            f"{sum(sizes.values()):,} pairs to hold out of {len(train):,}",
            where=", ".join(f"data.{name}" for name in sizes),
            remedy="hold out fewer",
        )
    shuffled = train.shuffle(seed=abs(seed))
    parts, first = {}, 0
    for name, size in sizes.items():
        parts[name] = shuffled.select(range(first, first + size))
        first += size
    held = {source for part in parts.values() for source in part["source"]}
    rest = shuffled.select(range(first, len(shuffled)))
    sources = rest["source"]
    return rest.select([i for i, source in enumerate(sources) if source not in held]), parts
