"""What all runs that name classes have in common, whether they read texts or images."""

import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from s2s.data.examples import Examples, LabelledBatch
from s2s.decoding.classes import class_probabilities
from s2s.evaluation.classification import accuracy, confusion, cross_entropy_of, macro_f1, per_class
from s2s.evaluation.pictures import Curve, curves_picture
from s2s.models.contract import Classifier
from s2s.run.course import Course
from s2s.run.folder import flat
from s2s.run.labelled_evaluation import LabelledEvaluation, save_pictures
from s2s.run.pretrained import Beginning
from s2s.training.logger import METRICS, RunLog
from s2s.training.progress import Meter
from s2s.training.trainer import Trainer

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Part:
    """Examples that are classified at each validation.

    Attributes:
        examples: as they are, nothing varied.
        labels: the number of each one's class.
    """

    examples: Examples[LabelledBatch]
    labels: Int[np.ndarray, " examples"]

    def measure(self, model: Classifier) -> dict[str, float]:
        """Loss in nats, accuracy and macro-F1 in percent."""
        probabilities = class_probabilities(model, self.examples)
        predicted, classes = probabilities.argmax(axis=1), probabilities.shape[1]
        names = [str(number) for number in range(classes)]
        return {
            "loss": cross_entropy_of(self.labels, probabilities),
            "accuracy": accuracy(self.labels, predicted).value,
            "macro_f1": macro_f1(per_class(confusion(self.labels, predicted, classes), names)),
        }


class Labelling(Course):
    """A run that learns to name classes.

    Args:
        recipe: the resolved recipe, its classes known.
        trainer: that has done nothing yet.
        validation: decides between checkpoints.
        known: some training examples, to see what is known by heart.
        beginning: what the model has from another run; None where a task cannot begin with one.
    """

    def __init__(
        self, recipe: Any, trainer: Trainer, validation: Part, known: Part, beginning: Beginning | None = None
    ) -> None:
        super().__init__(recipe, trainer, beginning)
        self.validation = validation
        self.known = known

    @abstractmethod
    def evaluate(self, folder: Path, meter: Meter) -> LabelledEvaluation | None:
        """Scores the run's final checkpoint on its test set; None where there is none.

        Args:
            folder: of the run; the result is kept in it.
            meter: shows how far it is.
        """

    def validate(self, log: RunLog) -> float:
        """Measures loss, accuracy and macro-F1, and loss and accuracy on some training examples."""
        model = self.trainer.model
        found, known = self.validation.measure(model), self.known.measure(model)
        scores = {**found, "training_loss": known["loss"], "training_accuracy": known["accuracy"]}
        log.validation(self.trainer.update, scores)
        metric = self.recipe.validation.metric
        return -found["loss"] if metric == "loss" else found[metric]

    def test(self, folder: Path, log: RunLog) -> None:
        """Draws the curves of training, scores the test set, and draws and tells what was found."""
        curves = curves_picture(curves_of(folder))
        self.draw(folder, log, {"curves": curves}, "run")
        evaluation = self.evaluate(folder, log.meter)
        if evaluation is None:
            return
        for name, picture in evaluation.pictures():
            log.picture(f"test/{name}", picture, self.trainer.update)
        log.settings(flat(self.recipe.model_dump(mode="json")), evaluation.main_scores())
        log.say(str(evaluation))

    def draw(self, folder: Path, log: RunLog, pictures: "dict[str, Figure]", group: str) -> None:
        """Puts pictures into the run's `figures/` and into TensorBoard.

        Args:
            folder: of the run.
            log: takes pictures.
            pictures: by name.
            group: under which TensorBoard has them.
        """
        save_pictures(folder, pictures)
        for name, picture in pictures.items():
            log.picture(f"{group}/{name}", picture, self.trainer.update)


def curves_of(folder: Path) -> list[Curve]:
    """What `metrics.jsonl` says of all validations.

    Args:
        folder: of the run.
    """
    lines = (folder / METRICS).read_text(encoding="utf-8").splitlines()
    points = [entry for line in lines if "validation" in (entry := json.loads(line))]
    updates = [point["update"] for point in points]
    scores = [point["validation"] for point in points]
    return [
        Curve("training", updates, [s["training_loss"] for s in scores], [s["training_accuracy"] for s in scores]),
        Curve("validation", updates, [s["loss"] for s in scores], [s["accuracy"] for s in scores]),
    ]


def class_lines(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    """How many examples each class has in each split, as lines.

    Args:
        counts: of each class, by split.
    """
    classes = list(next(iter(counts.values())))
    wide = max(map(len, (*classes, "all")))
    lines = [f"{'':{wide}}" + "".join(f"{name:>12}" for name in counts)]
    lines += [f"{name:{wide}}" + "".join(f"{part[name]:>12,}" for part in counts.values()) for name in classes]
    return [*lines, f"{'all':{wide}}" + "".join(f"{sum(part.values()):>12,}" for part in counts.values())]
