"""What commonly spoils a corpus, whatever its examples are: repeated texts, and characters that nobody meant."""

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
"""Characters that other programs take for a line's end, or that tell of a wrong conversion."""

_MISSING_TEXT = "missing value as a text (nan, NA, None …)"
MANY = 0.05
"""A share from which on something is worth a word."""
_SPOTS = 10
_SHOWN = 110

Hashes = Int[np.ndarray, " rows"]


def hashes(keys: Iterable[Hashable]) -> Hashes:
    """Numbers that are equal where keys are; 64 bits: two different ones of ten million share one once in a million."""
    return np.fromiter(map(hash, keys), np.int64)


def repeated(hashed: Hashes) -> Int[np.ndarray, " copies"]:
    """The rows, from 0 on, whose number stands in an earlier row, too."""
    _, first = np.unique(hashed, return_index=True)
    return np.setdiff1d(np.arange(len(hashed)), first)


def overlap(corpus: Corpus[Part], keys: Callable[[Part], Iterable[Hashable]]) -> dict[str, int]:
    """How many examples of validation and of test occur in train, too: their keys are equal."""
    learned, parts = hashes(keys(corpus.train)), corpus.parts()
    del parts["train"]
    return {name: int(np.isin(hashes(keys(part)), learned).sum()) for name, part in parts.items()}


@dataclass(frozen=True)
class TrainOverlap:
    """Counts the examples of a split that also occur in the training data.

    Attributes:
        split: `validation` or `test`.
        inputs: What is counted, in the plural, such as `sources`.
        digest: Identifies the examples of the split.
        total: Examples of the split.
        seen: Those whose input occurs in the training data.
        seen_with_target: Those whose input occurs there with the same target; None where targets are not compared.
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
    """Count the examples of each split that also occur in the training data, as `s2s data check` does."""
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
    """Adds a row to those that hold one of the `SUSPICIOUS` characters, by its name, or a missing value as a text."""
    if not MISSING.isdisjoint(texts):
        found.setdefault(_MISSING_TEXT, []).append(row)
    for character, name in SUSPICIOUS.items():
        if any(character in text for text in texts):
            found.setdefault(name, []).append(row)


def sample_rows(rows: int, seed: int) -> list[int]:
    """Some rows, drawn at random and in their order, to be read with one's own eyes."""
    return sorted(random.Random(seed).sample(range(rows), min(_SPOTS, rows)))


def some_rows(rows: list[int]) -> str:
    """The first five of some rows, in words."""
    return f"row{'s' * (len(rows) != 1)} {', '.join(f'{row:,}' for row in rows[:5])}{' …' if rows[5:] else ''}"


def escape_invisible(text: str) -> str:
    """One line of a terminal, whatever characters the text holds."""
    visible = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return visible if len(visible) <= _SHOWN else visible[: _SHOWN - 1] + "…"


def table(columns: Iterable[str], rows: Mapping[str, Iterable[float | None]]) -> list[str]:
    """Numbers by row and column, as lines; `–` stands for None."""
    shown = {"": list(columns)}
    for label, numbers in rows.items():
        shown[label] = ["–" if n is None else f"{n:,}" if isinstance(n, int) else f"{n:.2f}" for n in numbers]
    return [
        f"{escape_invisible(label):28}" + "".join(f"{cell:>13}" for cell in cells) for label, cells in shown.items()
    ]


def findings(blocks: Iterable[Iterable[str]], advice: Iterable[str]) -> str:
    """What was found, and last what should be mended, as plain text for a terminal."""
    mend = [f"  - {words}" for words in advice]
    return "\n\n".join("\n".join(b) for b in (*blocks, ["advice", *mend] if mend else ["nothing suspicious found"]))


def altered(texts: Iterable[str], normalization: str) -> str:
    """How many texts a normalization changes, white space at the ends aside, and one change, in words.

    A reference that is changed can never be written: it is kept untouched, and a model learns and writes the other.
    Nothing is said where no text is changed.
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
