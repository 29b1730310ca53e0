"""Checks for any kind of corpus: duplicates, train/test overlap, odd characters.

Shared by `s2s data check`, the recipe generator and the tasks.
"""

import random
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from s2s.data.missing_values import MISSING
from s2s.data.sources import Corpus, Part, Source
from s2s.data.tokenizers import normalized

SUSPICIOUS = {
    "\r": "carriage return",
    "\u2028": "line separator U+2028",
    "\u2029": "paragraph separator U+2029",
    "\u0085": "next line U+0085",
    "\0": "NUL",
    "\ufeff": "byte order mark",
    "\ufffd": "replacement character U+FFFD",
}
"""Characters that other programs read as a line end, or that hint at a wrong conversion, with their names."""

_MISSING_TEXT = "missing value as a text (nan, NA, None …)"
MANY = 0.05
"""Share from which a finding is reported."""
_SPOTS = 10
_SHOWN = 110

Hashes = Int[np.ndarray, " rows"]


def hashes(keys: Iterable[Hashable]) -> Hashes:
    """Hash keys to 64-bit integers, equal where keys are equal.

    The probability of a collision among ten million distinct keys is 3 in a million.

    Args:
        keys: Hashable keys, one for each row.

    Returns:
        Hashes, shape `(rows,)`.
    """
    return np.fromiter(map(hash, keys), np.int64)


def repeated(hashed: Hashes) -> Int[np.ndarray, " copies"]:
    """Return the rows, from 0, whose hash also occurs in an earlier row.

    Args:
        hashed: Hash of each row.

    Returns:
        Rows in ascending order.

    Example:
        >>> repeated(hashes(["a", "b", "a", "a"]))
        array([2, 3])
    """
    _, first = np.unique(hashed, return_index=True)
    return np.setdiff1d(np.arange(len(hashed)), first)


def overlap(corpus: Corpus[Part], keys: Callable[[Part], Iterable[Hashable]]) -> dict[str, int]:
    """Count the validation and test examples that also occur in the training data.

    Args:
        corpus: The splits.
        keys: Function that returns a key for each example of a split; equal keys mean duplicates.

    Returns:
        Number of examples by name of the split.
    """
    learned, parts = hashes(keys(corpus.train)), corpus.parts()
    del parts["train"]
    return {name: int(np.isin(hashes(keys(part)), learned).sum()) for name, part in parts.items()}


@dataclass(frozen=True)
class TrainOverlap:
    """Number of examples of a split that also occur in the training data.

    Attributes:
        split: `validation` or `test`.
        inputs: Plural noun for what is counted, such as `sources`.
        digest: Digest of the examples of the split.
        total: Number of examples of the split.
        seen: Number of examples whose input occurs in the training data.
        seen_with_target: Number of examples whose input occurs there with the same target; None if targets are not
            compared.
    """

    split: str
    inputs: str
    digest: str
    total: int
    seen: int
    seen_with_target: int | None

    def __str__(self) -> str:
        same = "" if self.seen_with_target is None else f" ({self.seen_with_target:,} with the same target)"
        return (
            f"{self.seen:,} of {self.total:,} {self.split} {self.inputs} occur in the training data{same}: "
            "the scores are too optimistic; remove them from the training data"
        )


def train_overlaps(source: Source[Any, Part], corpus: Corpus[Part]) -> list[TrainOverlap]:
    """Count the examples of each split that also occur in the training data.

    `s2s data check` reports the same numbers.

    Args:
        source: Data source, which defines the keys.
        corpus: The splits.

    Returns:
        Overlap of each split other than train.
    """
    parts, seen = corpus.parts(), overlap(corpus, source.keys)
    whole: dict[str, int] = {}
    if any(seen.values()) and source.keys_with_targets(corpus.train) is not None:
        whole = overlap(corpus, lambda part: source.keys_with_targets(part) or ())
    inputs = source.inputs or source.item_name
    return [
        TrainOverlap(
            name, inputs, source.digest(parts[name]), len(parts[name]), count, whole.get(name) if count else None
        )
        for name, count in seen.items()
    ]


def note_suspicious(found: dict[str, list[int]], row: int, *texts: str) -> None:
    """Note a row that has a suspicious character or a missing value as text.

    Args:
        found: Rows by name of the character (see `SUSPICIOUS`); extended in place.
        row: Number of the row.
        texts: Texts of the row.
    """
    if not MISSING.isdisjoint(texts):
        found.setdefault(_MISSING_TEXT, []).append(row)
    for character, name in SUSPICIOUS.items():
        if any(character in text for text in texts):
            found.setdefault(name, []).append(row)


def sample_rows(rows: int, seed: int) -> list[int]:
    """Draw up to ten rows at random, in ascending order, for manual inspection.

    Args:
        rows: Number of rows.
        seed: Seed of the choice.

    Returns:
        Rows, from 0.
    """
    return sorted(random.Random(seed).sample(range(rows), min(_SPOTS, rows)))


def some_rows(rows: list[int]) -> str:
    """Format the first five row numbers for a message.

    Args:
        rows: Row numbers.

    Returns:
        Words such as `row 3` or `rows 3, 1,200`; more than five rows end with `…`.

    Example:
        >>> some_rows([3, 1200])
        'rows 3, 1,200'
    """
    return f"row{'s' * (len(rows) != 1)} {', '.join(f'{row:,}' for row in rows[:5])}{' …' if rows[5:] else ''}"


def escape_invisible(text: str) -> str:
    r"""Escape invisible characters and cut a text to 110 characters, for the terminal.

    Args:
        text: Any text.

    Returns:
        One line of printable characters.

    Example:
        >>> escape_invisible("a\u2028b")
        'a\\u2028b'
    """
    visible = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return visible if len(visible) <= _SHOWN else visible[: _SHOWN - 1] + "…"


def table(columns: Iterable[str], rows: Mapping[str, Iterable[float | None]]) -> list[str]:
    """Format a table of numbers as lines.

    Args:
        columns: Column names.
        rows: Numbers of each row by its label; None is shown as `–`.

    Returns:
        Lines of equal width: the header, then a line for each row.
    """
    shown = {"": list(columns)}
    for label, numbers in rows.items():
        shown[label] = ["–" if n is None else f"{n:,}" if isinstance(n, int) else f"{n:.2f}" for n in numbers]
    return [
        f"{escape_invisible(label):28}" + "".join(f"{cell:>13}" for cell in cells) for label, cells in shown.items()
    ]


def findings(blocks: Iterable[Iterable[str]], advice: Iterable[str]) -> str:
    """Join blocks of findings and a final block of advice to plain text.

    Args:
        blocks: Lines of each block.
        advice: Sentences of advice; without any, the last line says that nothing was found.

    Returns:
        The text, blocks separated by blank lines.
    """
    mend = [f"  - {words}" for words in advice]
    return "\n\n".join("\n".join(b) for b in (*blocks, ["advice", *mend] if mend else ["nothing suspicious found"]))


def altered(texts: Iterable[str], normalization: str) -> str:
    r"""Describe the texts that a normalization changes, white space at the ends aside.

    A model generates normalized text, but references are kept unchanged. So a reference that the normalization changes
    can never be generated exactly.

    Args:
        texts: Target texts.
        normalization: `identity` or `nfkc`.

    Returns:
        The number of changed texts and an example; empty if no text is changed.

    Example:
        >>> altered(["x\u00b2 = 4", "plain"], "nfkc")
        "1 target, e.g. 'x²' to 'x2'"
    """
    count, example = 0, ""
    for text in texts:
        if normalized(text, normalization, False).strip() != text.strip():
            count += 1
            example = example or _first_change(text, normalization)
    return f"{count:,} target{'s' * (count != 1)}, e.g. {example}" if count else ""


def _first_change(text: str, normalization: str) -> str:
    changes = ((word, normalized(word, normalization, False)) for word in re.findall(r"\S+", text))
    change = next((f"{one[:30]!r} to {other[:30]!r}" for one, other in changes if one != other), "")
    return change or f"the white space of {text[:30]!r}"
