"""What commonly spoils plain texts to learn from, found before training."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from s2s.data import inspection as look
from s2s.data.encoding import learned
from s2s.data.piece_inspection import Cutting, cutting
from s2s.data.sources import Corpus
from s2s.data.tokenizers import normalized
from s2s.recipe.schema import PieceSettings, PlainTextSettings

if TYPE_CHECKING:
    import datasets


class TextRecipe(Protocol):
    """A recipe of plain texts and how they are cut."""

    @property
    def data(self) -> PlainTextSettings:
        """The texts."""
        ...

    @property
    def tokenizer(self) -> PieceSettings:
        """How text becomes pieces."""
        ...


@dataclass(frozen=True)
class TextFindings:
    """What one split holds. Rows count from 1, in the order of the split.

    Attributes:
        texts: how many.
        bytes: of all texts; and of the shortest, the middle and the longest one.
        empty: rows without a text.
        repeated: rows whose text stands in an earlier row, too.
        altered: rows whose text the recipe's normalization changes.
        suspicious: rows with one of the `SUSPICIOUS` characters, by its name.
    """

    texts: int
    bytes: tuple[int, int, int, int]
    empty: list[int]
    repeated: list[int]
    altered: list[int]
    suspicious: dict[str, list[int]]


@dataclass(frozen=True)
class TextInspection:
    """What a corpus of texts, in the task's own word for them, holds, and what is suspicious.

    By split, how many texts occur in train, too; rows of train drawn at random, to read with one's own eyes; how texts
    are cut; and what the task itself has to advise.
    """

    noun: str
    splits: dict[str, TextFindings]
    overlap: dict[str, int]
    spots: list[tuple[int, str]]
    cut: Cutting
    own: tuple[str, ...] = ()

    def __str__(self) -> str:
        spots = [f"  {row:>9,}  {look.visible(text)}" for row, text in self.spots]
        drawn = [f"train: {len(spots)} {self.noun} drawn at random", *spots]
        return look.findings([self._summary(), drawn], self.advice())

    def advice(self) -> Iterator[str]:
        """What should be mended, in plain words."""
        for name, found in self.splits.items():
            yield from self._split_advice(name, found)
        for name, count in self.overlap.items():
            if count:
                yield f"{count:,} {self.noun} of {name} also occur in train: scores will flatter"
        yield from self.cut.advice()
        yield from self.own

    def _summary(self) -> list[str]:
        splits = list(self.splits.values())
        rows: dict[str, list[int | None]] = {self.noun: [found.texts for found in splits]}
        for place, words in enumerate(("bytes", "  of the shortest", "  of the middle one", "  of the longest")):
            rows[words] = [found.bytes[place] for found in splits]
        rows[f"empty {self.noun}"] = [len(found.empty) for found in splits]
        rows[f"repeated {self.noun}"] = [len(found.repeated) for found in splits]
        rows["changed by normalization"] = [len(found.altered) for found in splits]
        rows[f"{self.noun} also in train"] = [self.overlap.get(name) for name in self.splits]
        return look.table(self.splits, {**rows, **self.cut.rows()})

    def _split_advice(self, name: str, found: TextFindings) -> Iterator[str]:
        of = f"{self.noun} of {name}"
        if found.empty:
            yield f"{len(found.empty):,} {of} are empty ({look.some_rows(found.empty)})"
        if name == "train" and len(found.repeated) > look.MANY * found.texts:
            yield f"{len(found.repeated):,} {of} are repeated: a model may learn them by heart"
        for kind, rows in found.suspicious.items():
            yield f"{len(rows):,} {of} with a {kind} ({look.some_rows(rows)}): wanted, or a conversion gone wrong?"


def inspect_texts(corpus: Corpus["datasets.Dataset"], recipe: TextRecipe, noun: str) -> TextInspection:
    """Looks through texts, which the task calls by `noun`; some to be read are drawn by the recipe's seed."""
    rows = look.drawn(len(corpus.train), recipe.data.seed)
    spots = [(row + 1, corpus.train[row]["text"]) for row in rows]
    splits = {name: _findings(part, recipe.tokenizer) for name, part in corpus.parts().items()}
    texts = {name: part["text"][:] for name, part in corpus.parts().items()}
    cut = cutting(texts, lambda: learned(texts["train"], recipe.tokenizer), None)
    return TextInspection(noun, splits, look.overlap(corpus, lambda part: part["text"]), spots, cut)


def _findings(part: "datasets.Dataset", tokenizer: PieceSettings) -> TextFindings:
    texts, empty, altered = part["text"], [], []
    suspicious: dict[str, list[int]] = {}
    sizes = np.zeros(len(part), dtype=np.int64)
    for row, text in enumerate(texts, start=1):
        sizes[row - 1] = len(text.encode())
        if not text.strip():
            empty.append(row)
        if normalized(text, tokenizer.normalization, tokenizer.lowercase) != text:
            altered.append(row)
        look.note_suspicious(suspicious, row, text)
    again = (look.repeated(look.hashes(texts)) + 1).tolist()
    spread = (int(sizes.sum()), int(sizes.min()), int(np.median(sizes)), int(sizes.max()))
    return TextFindings(len(part), spread, empty, again, altered, suspicious)
