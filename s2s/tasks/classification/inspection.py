"""What commonly spoils labelled texts, found before training."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from s2s.data import inspection as look
from s2s.data.sources import Corpus
from s2s.tasks.classification.data import Labelled, LabelledSource
from s2s.tasks.classification.recipe import ClassificationRecipe

# a class with so many times fewer texts than the largest one is easily never named
_IMBALANCE = 10


@dataclass(frozen=True)
class LabelledFindings:
    """What one split holds. Rows count from 1, in the order of the split.

    Attributes:
        counts: texts of each class.
        words: white-space separated words of all texts; and of the shortest, the middle and the longest one.
        empty: rows without a text.
        repeated: rows whose text stands in an earlier row, too.
        contradictory: those of them whose class is another one there.
        suspicious: rows with one of the `SUSPICIOUS` characters, by its name.
    """

    counts: dict[str, int]
    words: tuple[int, int, int, int]
    empty: list[int]
    repeated: list[int]
    contradictory: list[int]
    suspicious: dict[str, list[int]]


@dataclass(frozen=True)
class LabelledInspection:
    """What a corpus of labelled texts holds, and what is suspicious.

    By split, how many texts occur in train, too; and rows of train drawn at random, to read with one's own eyes.
    """

    splits: dict[str, LabelledFindings]
    overlap: dict[str, int]
    spots: list[tuple[int, str, str]]

    def __str__(self) -> str:
        spots = [f"  {row:>9,}  {name}: {look.visible(text)}" for row, name, text in self.spots]
        drawn = [f"train: {len(spots)} texts drawn at random", *spots]
        return look.findings([self._summary(), drawn], self.advice())

    def advice(self) -> Iterator[str]:
        """What should be mended, in plain words."""
        for name, found in self.splits.items():
            yield from _split_advice(name, found)
        counts = self.splits["train"].counts
        most = max(counts.values())
        for name, count in counts.items():
            if count * _IMBALANCE < most:
                yield f"class {name} has {count:,} training texts, the largest one {most:,}: look at macro-F1"
        for name, count in self.overlap.items():
            if count:
                yield f"{count:,} texts of {name} also occur in train: scores will flatter"

    def _summary(self) -> list[str]:
        splits = list(self.splits.values())
        rows = {name: [found.counts[name] for found in splits] for name in splits[0].counts}
        rows["texts"] = [sum(found.counts.values()) for found in splits]
        for place, words in enumerate(("words", "  of the shortest", "  of the middle one", "  of the longest")):
            rows[words] = [found.words[place] for found in splits]
        rows["empty texts"] = [len(found.empty) for found in splits]
        rows["repeated texts"] = [len(found.repeated) for found in splits]
        rows["repeated with another class"] = [len(found.contradictory) for found in splits]
        return look.table(
            self.splits, {**rows, "texts also in train": [self.overlap.get(name) for name in self.splits]}
        )


def _split_advice(name: str, found: LabelledFindings) -> Iterator[str]:
    if found.empty:
        yield f"{len(found.empty):,} texts of {name} are empty ({look.some_rows(found.empty)})"
    if found.contradictory:
        some = f"{len(found.contradictory):,} texts of {name} ({look.some_rows(found.contradictory)})"
        yield f"{some} have another class than the same text before: no model can be right on both"
    if name == "train" and len(found.repeated) > look.MANY * sum(found.counts.values()):
        yield f"{len(found.repeated):,} texts of train are repeated: a model may learn them by heart"
    for kind, rows in found.suspicious.items():
        some = f"{len(rows):,} texts of {name} with a {kind} ({look.some_rows(rows)})"
        yield f"{some}: wanted, or a conversion gone wrong?"


def inspected(recipe: ClassificationRecipe) -> str:
    """What a recipe's texts hold, and what is suspicious, as text."""
    return str(inspect_labelled(LabelledSource(recipe.data).load(), recipe.data.seed))


def inspect_labelled(corpus: Corpus[Labelled], seed: int) -> LabelledInspection:
    """Looks through labelled texts; some to be read are look.drawn by a seed."""
    texts, labels = corpus.train.texts, corpus.train.labels
    rows = look.drawn(len(labels), seed)
    spots = [(row + 1, corpus.train.names[int(labels[row])], texts[row]["text"]) for row in rows]
    splits = {name: _findings(part) for name, part in corpus.parts().items()}
    return LabelledInspection(splits, look.overlap(corpus, lambda part: part.texts["text"]), spots)


def _findings(part: Labelled) -> LabelledFindings:
    words, empty, contradictory = [], [], []
    suspicious: dict[str, list[int]] = {}
    first: dict[int, int] = {}
    for row, (text, label) in enumerate(zip(part.texts["text"], part.labels.tolist(), strict=True), start=1):
        words.append(len(text.split()))
        if not text.strip():
            empty.append(row)
        elif first.setdefault(hash(text), label) != label:
            contradictory.append(row)
        look.note_suspicious(suspicious, row, text)
    again = (look.repeated(look.hashes(part.texts["text"])) + 1).tolist()
    lengths = np.array(words)
    spread = (int(lengths.sum()), int(lengths.min()), int(np.median(lengths)), int(lengths.max()))
    return LabelledFindings(part.counts(), spread, empty, again, contradictory, suspicious)
