"""What commonly spoils labelled texts, found before training."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from s2s.data.inspection import MANY, SUSPICIOUS, drawn, hashes, repeated, some_rows, visible
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

    Attributes:
        splits: by name.
        overlap: for validation and test, how many of their texts also occur in train.
        spots: rows of train drawn at random: number, class and text, to read with one's own eyes.
    """

    splits: dict[str, LabelledFindings]
    overlap: dict[str, int]
    spots: list[tuple[int, str, str]]

    def __str__(self) -> str:
        advice = [f"  - {words}" for words in self.advice()]
        blocks = [
            list(self._summary()),
            [f"train: {len(self.spots)} texts drawn at random", *self._shown()],
            ["advice", *advice] if advice else ["nothing suspicious found"],
        ]
        return "\n\n".join("\n".join(block) for block in blocks)

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

    def _summary(self) -> Iterator[str]:
        splits = list(self.splits.values())
        rows: dict[str, list[str]] = {"": list(self.splits)}
        rows |= {name: [f"{found.counts[name]:,}" for found in splits] for name in splits[0].counts}
        rows["texts"] = [f"{sum(found.counts.values()):,}" for found in splits]
        for place, words in enumerate(("words", "  of the shortest", "  of the middle one", "  of the longest")):
            rows[words] = [f"{found.words[place]:,}" for found in splits]
        rows["empty texts"] = [f"{len(found.empty):,}" for found in splits]
        rows["repeated texts"] = [f"{len(found.repeated):,}" for found in splits]
        rows["repeated with another class"] = [f"{len(found.contradictory):,}" for found in splits]
        rows["texts also in train"] = [
            f"{self.overlap[name]:,}" if name in self.overlap else "–" for name in self.splits
        ]
        for label, cells in rows.items():
            yield f"{visible(label):28}" + "".join(f"{cell:>13}" for cell in cells)

    def _shown(self) -> Iterator[str]:
        for row, name, text in self.spots:
            yield f"  {row:>9,}  {name}: {visible(text)}"


def _split_advice(name: str, found: LabelledFindings) -> Iterator[str]:
    if found.empty:
        yield f"{len(found.empty):,} texts of {name} are empty ({some_rows(found.empty)})"
    if found.contradictory:
        some = f"{len(found.contradictory):,} texts of {name} ({some_rows(found.contradictory)})"
        yield f"{some} have another class than the same text before: no model can be right on both"
    if name == "train" and len(found.repeated) > MANY * sum(found.counts.values()):
        yield f"{len(found.repeated):,} texts of train are repeated: a model may learn them by heart"
    for kind, rows in found.suspicious.items():
        yield f"{len(rows):,} texts of {name} with a {kind} ({some_rows(rows)}): wanted, or a conversion gone wrong?"


def inspected(recipe: ClassificationRecipe) -> str:
    """What a recipe's texts hold, and what is suspicious, as text."""
    return str(inspect_labelled(LabelledSource(recipe.data).load(), recipe.data.seed))


def inspect_labelled(corpus: Corpus[Labelled], seed: int) -> LabelledInspection:
    """Looks through labelled texts; some to be read are drawn by a seed."""
    parts, classes = corpus.parts(), corpus.train.names
    splits = {name: _findings(part) for name, part in parts.items()}
    learned = hashes(corpus.train.texts["text"])
    overlap = {
        name: int(np.isin(hashes(part.texts["text"]), learned).sum()) for name, part in parts.items() if name != "train"
    }
    spots = [
        (row + 1, classes[int(corpus.train.labels[row])], corpus.train.texts[row]["text"])
        for row in drawn(len(corpus.train), seed)
    ]
    return LabelledInspection(splits, overlap, spots)


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
        for character, name in SUSPICIOUS.items():
            if character in text:
                suspicious.setdefault(name, []).append(row)
    again = (repeated(hashes(part.texts["text"])) + 1).tolist()
    lengths = np.array(words)
    spread = (int(lengths.sum()), int(lengths.min()), int(np.median(lengths)), int(lengths.max()))
    return LabelledFindings(part.counts(), spread, empty, again, contradictory, suspicious)
