"""Classifiers of texts: whole runs that several experiments share, and trainers for those that leave nothing behind."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from s2s.data.labelled_batches import LabelledTexts
from s2s.experiments.contest import Contest
from s2s.experiments.whole_runs import pauses, seeds_of, tested, whole_run
from s2s.recipe.classification import ClassificationRecipe, LabelledSettings
from s2s.recipe.reading import read
from s2s.recipe.schema import PieceSettings, Section
from s2s.run.classification import course, trainer_of
from s2s.run.classification_data import PreparedTexts, prepare_texts
from s2s.run.classification_evaluation import evaluate_classifier, labelled_split
from s2s.run.classification_loading import begins, build_classifier
from s2s.run.course import plain, start
from s2s.run.folder import RECIPE
from s2s.run.training import resume
from s2s.training.devices import Computer
from s2s.training.trainer import Trainer


@dataclass(frozen=True)
class Point:
    """A validation of a run.

    Attributes:
        update: after which update.
        texts: learned from before it.
        tokens: pieces learned from before it, special ones counted, padding not.
        seconds: that the updates before it took; validations are not counted.
        loss: nats per text.
        accuracy: in percent.
        macro_f1: in percent.
    """

    update: int
    texts: int
    tokens: int
    seconds: float
    loss: float
    accuracy: float
    macro_f1: float


def trained(contest: Contest, model: str, seed: int) -> Path:
    """The folder of a contestant's finished run; trained only where it is not finished yet.

    Args:
        contest: gives the recipe and the folder.
        model: whose.
        seed: of initialisation, order and dropout.

    Raises:
        UserError: the training failed.
    """

    def begin(recipe: Any, console: Console) -> None:
        """A new run."""
        start(course(recipe, plain(console), prepared=prepared_texts(recipe)), console)

    return whole_run(contest, model, seed, prepared_texts, begin, resume)


def evaluation_of(folder: Path) -> dict[str, Any]:
    """A finished run's scores and answers on the test set; on the validation set where it has no test set."""
    return tested(folder, lambda: evaluate_classifier(folder, "validation").to_json())


def texts_of(folder: Path, split: str) -> list[str]:
    """The untouched texts of a run's split, in the order of the evaluation.

    Args:
        folder: of the run.
        split: `test` or `validation`.
    """
    return list(labelled_split(folder, read(folder / RECIPE), split).texts["text"])


def curve_of(folder: Path) -> list[Point]:
    """All validations of a run, in the order of time."""
    return [
        Point(
            each.update,
            each.count,
            each.tokens,
            each.seconds,
            each.scores["loss"],
            each.scores["accuracy"],
            each.scores["macro_f1"],
        )
        for each in pauses(folder)
    ]


def classifier_trainer(recipe: Any, seed: int, computer: Computer) -> Trainer:
    """A trainer of a recipe's classifier that has done nothing yet.

    Args:
        recipe: the model, its optimisation and its batches; its classes are known.
        seed: of initialisation, order and dropout.
        computer: device and precision.
    """
    data = prepared_texts(recipe)
    recipe = recipe.model_copy(update={"seeds": seeds_of(seed)})
    model = build_classifier(recipe, data.tokenizer.size).to(computer.device)
    return trainer_of(recipe, data, model, computer)


def validation_texts(recipe: Any) -> LabelledTexts:
    """A recipe's validation texts, as they are classified."""
    data = prepared_texts(recipe)
    return LabelledTexts(data.validation, data.corpus.validation.labels, recipe.batches, begins(recipe))


def prepared_texts(recipe: Any) -> PreparedTexts:
    """A recipe's texts in pieces; made once for all recipes with the same data and tokenizer."""
    return _prepared(recipe.data.model_dump_json(), recipe.tokenizer.model_dump_json())


@functools.lru_cache(maxsize=2)
def _prepared(data: str, tokenizer: str) -> PreparedTexts:
    recipe = ClassificationRecipe(
        name="data",
        task="classification",
        data=LabelledSettings.model_validate_json(data),
        tokenizer=PieceSettings.model_validate_json(tokenizer),
        model=Section(),
    )
    return prepare_texts(recipe, None, lambda line: None)
