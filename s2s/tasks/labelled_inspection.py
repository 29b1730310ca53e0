"""What commonly spoils labelled examples, whatever they are: repetitions, contradictions, rare classes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from s2s.data import inspection as look

# a class with so many times fewer examples than the largest one is easily never named
_IMBALANCE = 10


@dataclass(frozen=True)
class LabelledFindings:
    """What one split holds. Rows count from 1, in the order of the split.

    Attributes:
        noun: what the task calls its examples, in the plural.
        counts: examples of each class.
        repeated: rows whose example stands in an earlier row, too.
        contradictory: those of them whose class is another one there.
    """

    noun: str
    counts: dict[str, int]
    repeated: list[int]
    contradictory: list[int]

    def advice(self, name: str) -> Iterator[str]:
        """What should be mended in the split of that name, in plain words."""
        if self.contradictory:
            some = f"{len(self.contradictory):,} {self.noun} of {name} ({look.some_rows(self.contradictory)})"
            yield f"{some} have another class than the same one before: no model can be right on both"
        if name == "train" and len(self.repeated) > look.MANY * sum(self.counts.values()):
            yield f"{len(self.repeated):,} {self.noun} of train are repeated: a model may learn them by heart"

    def rows(self) -> dict[str, int]:
        """Numbers by what they count."""
        return {
            **self.counts,
            self.noun: sum(self.counts.values()),
            f"repeated {self.noun}": len(self.repeated),
            "repeated with another class": len(self.contradictory),
        }


@dataclass(frozen=True)
class LabelledInspection:
    """What a corpus of labelled examples holds, and what is suspicious.

    By split, how many examples occur in train, too; some of train drawn at random, to look at with one's own eyes; and
    what the task itself has to advise.
    """

    noun: str
    splits: Mapping[str, LabelledFindings]
    overlap: dict[str, int]
    spots: list[str]
    own: tuple[str, ...] = ()

    def __str__(self) -> str:
        drawn = [f"train: {len(self.spots)} {self.noun} drawn at random", *self.spots]
        return look.findings([self._summary(), drawn], self.advice())

    def advice(self) -> Iterator[str]:
        """What should be mended, in plain words."""
        for name, found in self.splits.items():
            yield from found.advice(name)
        counts = self.splits["train"].counts
        most = max(counts.values())
        for name, count in counts.items():
            if count * _IMBALANCE < most:
                yield f"class {name} has {count:,} training {self.noun}, the largest one {most:,}: look at macro-F1"
        for name, count in self.overlap.items():
            if count:
                yield f"{count:,} {self.noun} of {name} also occur in train: scores will flatter"
        yield from self.own

    def _summary(self) -> list[str]:
        columns = [found.rows() for found in self.splits.values()]
        rows: dict[str, list[int | None]] = {row: [column[row] for column in columns] for row in columns[0]}
        rows[f"{self.noun} also in train"] = [self.overlap.get(name) for name in self.splits]
        return look.table(self.splits, rows)


def repeated_and_contradictory(hashed: look.Hashes, labels: Int[np.ndarray, " rows"]) -> tuple[list[int], list[int]]:
    """Rows, from 1 on, whose example stands in an earlier row, too; those of them with another class than the first."""
    again = look.repeated(hashed)
    _, first, number = np.unique(hashed, return_index=True, return_inverse=True)
    other = again[labels[again] != labels[first[number[again]]]]
    return (again + 1).tolist(), (other + 1).tolist()
