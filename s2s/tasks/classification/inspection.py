"""What commonly spoils labelled texts, found before training."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from s2s.data import inspection as look
from s2s.data.sources import Corpus
from s2s.tasks.classification.data import Labelled, LabelledSource
from s2s.tasks.classification.recipe import ClassificationRecipe
from s2s.tasks.labelled_inspection import LabelledFindings, LabelledInspection, repeated_and_contradictory


@dataclass(frozen=True)
class TextFindings(LabelledFindings):
    """What one split holds, as far as its texts go, too.

    Attributes:
        words: white-space separated words of all texts; and of the shortest, the middle and the longest one.
        empty: rows without a text.
        suspicious: rows with one of the `SUSPICIOUS` characters, by its name.
    """

    words: tuple[int, int, int, int]
    empty: list[int]
    suspicious: dict[str, list[int]]

    def advice(self, name: str) -> Iterator[str]:
        """What should be mended, in plain words."""
        if self.empty:
            yield f"{len(self.empty):,} texts of {name} are empty ({look.some_rows(self.empty)})"
        yield from super().advice(name)
        for kind, rows in self.suspicious.items():
            some = f"{len(rows):,} texts of {name} with a {kind} ({look.some_rows(rows)})"
            yield f"{some}: wanted, or a conversion gone wrong?"

    def rows(self) -> dict[str, int]:
        """Numbers by what they count."""
        places = ("words", "  of the shortest", "  of the middle one", "  of the longest")
        return super().rows() | dict(zip(places, self.words, strict=True)) | {"empty texts": len(self.empty)}


def inspected(recipe: ClassificationRecipe) -> str:
    """What a recipe's texts hold, and what is suspicious, as text."""
    return str(inspect_labelled(LabelledSource(recipe.data).load(), recipe.data.seed))


def inspect_labelled(corpus: Corpus[Labelled], seed: int) -> LabelledInspection:
    """Looks through labelled texts; some to be read are drawn by a seed."""
    texts, labels = corpus.train.texts, corpus.train.labels
    rows = look.drawn(len(labels), seed)
    spots = [
        f"  {row + 1:>9,}  {corpus.train.names[int(labels[row])]}: {look.visible(texts[row]['text'])}" for row in rows
    ]
    splits = {name: _findings(part) for name, part in corpus.parts().items()}
    return LabelledInspection("texts", splits, look.overlap(corpus, lambda part: part.texts["text"]), spots)


def _findings(part: Labelled) -> TextFindings:
    words, empty = [], []
    suspicious: dict[str, list[int]] = {}
    for row, text in enumerate(part.texts["text"], start=1):
        words.append(len(text.split()))
        if not text.strip():
            empty.append(row)
        look.note_suspicious(suspicious, row, text)
    hashed, lengths = look.hashes(part.texts["text"]), np.array(words)
    spread = (int(lengths.sum()), int(lengths.min()), int(np.median(lengths)), int(lengths.max()))
    again, other = repeated_and_contradictory(hashed, part.labels)
    other = [row for row in other if row not in {*empty}]
    return TextFindings("texts", part.counts(), again, other, spread, empty, suspicious)
