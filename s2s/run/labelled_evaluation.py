"""What a run that names classes scored, on texts or on images, and comparisons between such runs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from s2s.errors import UserError
from s2s.evaluation.classification import ClassificationScores
from s2s.evaluation.mcnemar import ClassifierComparison, compare_classifiers
from s2s.evaluation.pictures import confusion_picture, reliability_picture
from s2s.files import write_atomically
from s2s.run.tasks import listed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = "figures"


@dataclass(frozen=True)
class Classified:
    """A classified example.

    Attributes:
        row: in the split, from 0.
        truth: name of its class.
        predicted: name of the class it was taken for.
        probabilities: of each class.
    """

    row: int
    truth: str
    predicted: str
    probabilities: dict[str, float]

    def __str__(self) -> str:
        likely = sorted(self.probabilities.items(), key=lambda item: -item[1])[:4]
        found = " · ".join(f"{name} {share:.3f}" for name, share in likely)
        mark = "right" if self.truth == self.predicted else f"WRONG, it is {self.truth}"
        return f"  row {self.row + 1}: {found} ({mark})"


@dataclass(frozen=True)
class LabelledEvaluation:
    """What a classifier scored on a split.

    Attributes:
        noun: what the examples are called, in the plural.
        run: the run's folder.
        checkpoint: the checkpoint's name.
        split: `test` or `validation`.
        classes: their names.
        scores: all that is measured.
        digest: hash of the examples, in their order.
        truth: number of each example's class.
        predicted: number of the class it was taken for.
        probabilities: of each class, for each example.
        examples: some that were classified right and some that were not, chosen by seed.
    """

    noun: ClassVar[str] = "examples"

    run: str
    checkpoint: str
    split: str
    classes: list[str]
    scores: ClassificationScores
    digest: str
    truth: list[int]
    predicted: list[int]
    probabilities: list[list[float]]
    examples: Sequence[Classified]

    def __str__(self) -> str:
        head = f"{self.run}, checkpoint {self.checkpoint}, {self.split}: {len(self.truth):,} {self.noun}"
        return "\n".join([head + self.remarks(), str(self.scores), *map(str, self.examples)])

    def remarks(self) -> str:
        """What else is to be said of the examples; nothing, unless a task has something."""
        return ""

    def main_scores(self) -> dict[str, float]:
        """The numbers that stand for the whole, by name."""
        return self.scores.main()

    def to_json(self) -> str:
        """Everything but the examples themselves, save those that were chosen."""
        return json.dumps(asdict(self), ensure_ascii=False)

    def pictures(self) -> "Iterator[tuple[str, Figure]]":
        """Confusion matrix and reliability, by name; a task adds its own."""
        yield "confusion", confusion_picture(np.array(self.scores.confusion), self.classes)
        yield "reliability", reliability_picture(self.scores.calibration)

    def keep(self) -> None:
        """Writes it into the run's folder, as `evaluation-<split>.json` and in `figures/`."""
        folder = Path(self.run)
        write_atomically(folder / f"evaluation-{self.split}.json", self.to_json())
        save_pictures(folder, {f"{name}-{self.split}": picture for name, picture in self.pictures()})


def compare_evaluations(evaluations: Sequence[LabelledEvaluation]) -> list[ClassifierComparison]:
    """Tests each run against the first with McNemar's test.

    Raises:
        UserError: the runs did not classify the same examples.
    """
    first = evaluations[0]
    for other in evaluations[1:]:
        if other.digest == first.digest and other.classes != first.classes:
            raise UserError(
                f"{first.run} has the classes {listed(first.classes)}, {other.run} has {listed(other.classes)}",
                remedy="compare runs whose data.classes are the same, in the same order",
            )
        if (other.digest, other.truth) != (first.digest, first.truth):
            raise UserError(
                f"{first.run} and {other.run} have different {first.split} sets",
                remedy="compare runs on the same data, e.g. by data.corpus, data.root and data.test overrides",
            )
    return compare_classifiers(np.array(first.truth), {e.run: np.array(e.predicted) for e in evaluations})


def save_pictures(run: Path, pictures: "Mapping[str, Figure]") -> None:
    """Writes pictures into a run's `figures/`, by their names."""
    folder = run / FIGURES
    folder.mkdir(exist_ok=True)
    for name, picture in pictures.items():
        picture.savefig(folder / f"{name}.png", dpi=150)
