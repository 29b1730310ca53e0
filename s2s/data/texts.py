"""Texts as Hugging Face data sets: from tables or from the hub, without labels."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from jaxtyping import Int

from s2s.data.caching import cached, converted
from s2s.data.corpora import ALIASES, check_there, hub_split
from s2s.data.text_files import COMPRESSIONS, TABLES, Columns, checked_cells, table_cells, table_kind
from s2s.errors import UserError
from s2s.recipe.texts import PlainTextSettings, TextSettings

_KEY = "data.text"
_CHARACTERS = 10_000_000
_FEATURES = datasets.Features({"text": datasets.Value("string")})


@dataclass(frozen=True)
class TextCorpus:
    """Texts, untouched, in the column `text`; Arrow keeps them on disk.

    Attributes:
        train: what is learned from.
        validation: what decides between checkpoints.
        test: what is tested on.
    """

    train: datasets.Dataset
    validation: datasets.Dataset
    test: datasets.Dataset | None


def load_texts(settings: PlainTextSettings) -> TextCorpus:
    """Loads the texts that a recipe's `data` section describes.

    Texts held out of the training data are different ones, and none of them is left in the training data.

    Raises:
        UserError: a file, column or split is missing, a file is damaged, or nothing is in a split.
    """
    train = load_text_split(settings, "train")
    if train is None:
        raise UserError("data.train is needed", remedy="name a split or a table")
    parts = {name: load_text_split(settings, name) for name in ("validation", "test")}
    sizes = {name: size for name in parts if isinstance(size := getattr(settings, name), int)}
    if sizes:
        rest, held = held_out_rows(train["text"], sizes, settings.seed)
        parts |= {name: train.select(rows) for name, rows in held.items()}
        train = train.select(rest)
    if (validation := parts["validation"]) is None:
        raise UserError("data.validation is needed", remedy="name a split, or hold texts out: data.validation=1000")
    return TextCorpus(train, validation, parts["test"])


def load_text_split(settings: PlainTextSettings, name: str) -> datasets.Dataset | None:
    """One split; None where the recipe has none or holds it out of the training data.

    Args:
        settings: the recipe's `data` section.
        name: `train`, `validation` or `test`.

    Raises:
        UserError: see `load_texts`.
    """
    # the progress of Arrow's conversions would disturb the run's own
    datasets.disable_progress_bars()
    split = getattr(settings, name)
    if split is None or isinstance(split, int):
        return None
    path = split_table(settings, name, split)
    found = _from_hub(settings, split) if path is None else _from_table(settings, path)
    if not len(found):
        raise UserError(f"data.{name} has no texts", remedy="look at the file, or name another")
    return found


def split_table(settings: TextSettings, name: str, split: str) -> Path | None:
    """The table of a split; None where it comes from the hub.

    Args:
        settings: the recipe's `data` section.
        name: `train`, `validation` or `test`.
        split: what the recipe says of it.

    Raises:
        UserError: there is no such table.
    """
    if settings.corpus != "files" and settings.root is None:
        return None
    path = Path(split) if settings.corpus == "files" else usual_table(settings, name, split)
    if table_kind(path) is None:
        raise UserError(
            f"is no table ({', '.join(TABLES)}; plain, .gz or .xz)",
            where=f"data.{name}: {split}",
            remedy="name a table, or a hub data set with data.corpus",
        )
    check_there(path)
    return path


def usual_table(settings: TextSettings, name: str, split: str) -> Path:
    """A table of the usual name in the folder `data.root`.

    Raises:
        UserError: there is none.
    """
    root = Path(settings.root or "")
    if not root.is_dir():
        raise UserError("there is no such folder", where=f"data.root: {root}", remedy="name the folder of the tables")
    for stem in ALIASES.get(split, (split,)):
        for ending in (kind + packed for kind in TABLES for packed in COMPRESSIONS):
            if (root / (stem + ending)).is_file():
                return root / (stem + ending)
    names = sorted(path.name for path in root.iterdir())
    raise UserError(
        f"no table for the split {split!r}: looked for {split} with {', '.join(TABLES)} (plain, .gz or .xz); there: "
        f"{', '.join(names[:20]) or 'nothing'}{' …' if names[20:] else ''}",
        where=f"data.root: {root}",
        remedy=f"name the split by the beginning of its file: data.{name}=BEGINNING"
        + (", or hold texts out of the training data: data.validation=1000" if name == "validation" else ""),
    )


def several(columns: str | tuple[str, ...]) -> tuple[str, ...]:
    """One column or several, as several."""
    return (columns,) if isinstance(columns, str) else columns


def joined(texts: Sequence[str]) -> str:
    """The text of several columns: a space between them, empty ones left out."""
    return " ".join(text for text in texts if text)


def some_of(texts: Sequence[str]) -> Sequence[str]:
    """As many texts, evenly taken, as hold about ten million characters: pieces learned from more differ little."""
    characters = sum(len(text) for text in texts)
    return texts[:: max(1, round(characters / _CHARACTERS))]


def held_out_rows(
    examples: Sequence[Hashable], sizes: Mapping[str, int], seed: int, noun: str = "texts"
) -> tuple[Int[np.ndarray, " rest"], dict[str, Int[np.ndarray, " held"]]]:
    """Chooses different examples to hold out, and drops all others that are the same.

    Args:
        examples: of the training data; equal ones are equal.
        sizes: how many are wanted, by the part's name.
        seed: of the choice.
        noun: what the examples are called.

    Returns:
        The rows that stay, and those of each part.

    Raises:
        UserError: there are too few.
    """
    wanted = sum(sizes.values())
    # 64 bits each: two different ones of ten million share a hash with a probability of 3 in a million
    hashes = np.fromiter((hash(example) for example in examples), np.int64, len(examples))
    order = np.random.default_rng(seed).permutation(len(examples))
    _, first = np.unique(hashes[order], return_index=True)
    chosen = order[np.sort(first)][:wanted]
    rest = np.flatnonzero(~np.isin(hashes, hashes[chosen]))
    if len(chosen) < wanted or not len(rest):
        raise UserError(
            f"{wanted:,} {noun} to hold out of {len(examples):,} leave nothing to train on",
            where=", ".join(f"data.{name}: {size}" for name, size in sizes.items()),
            remedy="hold out fewer",
        )
    parts, start = {}, 0
    for name, size in sizes.items():
        parts[name] = np.sort(chosen[start : start + size])
        start += size
    return rest, parts


def _from_table(settings: PlainTextSettings, path: Path) -> datasets.Dataset:
    local = settings.local.text if settings.corpus != "files" else None
    columns = Columns(several(local or settings.text), _KEY)

    def rows() -> Iterator[dict[str, Any]]:
        for _, texts in table_cells(path, columns):
            yield {"text": joined(texts)}

    return cached(rows, (path,), f"texts {columns.names}", _FEATURES)


def _from_hub(settings: PlainTextSettings, split: str) -> datasets.Dataset:
    found = hub_split(settings, split)
    columns, where = Columns(several(settings.text), _KEY), f"{settings.corpus} {split} row "

    def take(rows: Mapping[str, list[Any]], numbers: list[int]) -> dict[str, list[str]]:
        cells = (
            checked_cells(dict(zip(rows, values, strict=True)), columns, f"{where}{number + 1}")
            for number, *values in zip(numbers, *rows.values(), strict=True)
        )
        return {"text": [joined(texts) for texts in cells]}

    return converted(found, take, f"texts {columns.names}", _FEATURES)
