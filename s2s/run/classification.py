"""A run of classification: from a recipe to a trained and tested classifier."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from rich.console import Console

from s2s.data.labelled_batches import LabelledTexts
from s2s.decoding.classes import class_probabilities
from s2s.errors import UserError
from s2s.evaluation.classification import accuracy, confusion, macro_f1, per_class
from s2s.evaluation.pictures import Curve, class_counts_picture, curves_picture, lengths_picture
from s2s.models.contract import Classifier
from s2s.recipe.classification import ClassificationRecipe
from s2s.recipe.reading import read
from s2s.run.classification_data import SIDE, PreparedTexts, class_table, length_bars, prepare_texts
from s2s.run.classification_evaluation import evaluate_classifier, save_pictures
from s2s.run.classification_loading import begins, build_classifier
from s2s.run.course import Course, Say, follow
from s2s.run.folder import RECIPE, TOKENIZER, check_free, check_resumable, create, flat, folder_of
from s2s.run.pretrained import Beginning, begin_with, open_source
from s2s.training.classification import classification_loss
from s2s.training.devices import choose
from s2s.training.logger import METRICS, RunLog
from s2s.training.trainer import Trainer

# Training texts that are classified at each validation, to see what is known by heart.
_LOOKED_AT = 1000


def train(recipe: ClassificationRecipe, console: Console, overwrite: bool = False) -> Path:
    """Trains a new run; its folder is made only when data, tokenizer and model are found good.

    Args:
        recipe: the resolved recipe.
        console: where progress is shown.
        overwrite: replace a run that is there.

    Returns:
        The run's folder.
    """
    check_free(folder_of(recipe), overwrite)
    course = _course(recipe, console)
    folder = create(course.recipe, {SIDE: course.prepared.tokenizer}, overwrite)
    follow(course, folder, console)
    return folder


def resume(folder: Path, console: Console, overrides: Sequence[str] = ()) -> Path:
    """Continues a run from its last checkpoint, as if it had never stopped.

    Args:
        folder: the run's folder.
        console: where progress is shown.
        overrides: `section.key=value`, for `data` and `device`.

    Raises:
        UserError: it is not a run, or its recipe or its training data has changed since.
    """
    check_resumable(folder, overrides)
    follow(_course(read(folder / RECIPE, overrides), console, folder, overrides), folder, console)
    return folder


def _course(
    recipe: ClassificationRecipe, console: Console, folder: Path | None = None, overrides: Sequence[str] = ()
) -> "Classifying":
    # imported here: loading knows how to find a tokenizer, and nothing of training
    from s2s.data.tokenizers import Tokenizer

    computer = choose(recipe.device)
    console.print(f"{recipe.name} on {computer}", markup=False, highlight=False, soft_wrap=True)
    source = None if folder else open_source(recipe)
    recipe = source.adapt(recipe) if source else recipe
    known = Tokenizer.load(folder / TOKENIZER, SIDE) if folder else source.tokenizer if source else None
    prepared = prepare_texts(recipe, known)
    # a checkpoint shall know its classes without the data
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"classes": prepared.corpus.classes})})
    model = build_classifier(recipe, prepared.tokenizer.size)
    beginning = begin_with(model, recipe, source, folder)
    model = model.to(computer.device)
    _check_length(recipe, model)
    texts = LabelledTexts(
        prepared.train,
        prepared.corpus.train.labels,
        recipe.batches,
        begins(recipe),
        recipe.training.examples_per_update,
    )
    loss = classification_loss(recipe.training.label_smoothing)
    trainer = Trainer(model, texts, loss, recipe.training, recipe.seeds, computer, beginning.scales)
    return Classifying(recipe, trainer, prepared, beginning, overrides)


def _check_length(recipe: ClassificationRecipe, model: Classifier) -> None:
    longest = model.encoder.longest
    if longest is not None and longest < recipe.batches.max_length:
        raise UserError(
            f"the model knows {longest} positions, but batches.max_length is {recipe.batches.max_length}",
            where="model.max_positions",
            remedy=f"set model.max_positions={recipe.batches.max_length}, or batches.max_length={longest}",
        )


class Classifying(Course):
    """What a run of classification has of its own.

    Args:
        recipe: the resolved recipe, its classes known.
        trainer: that has done nothing yet.
        prepared: the corpus.
        beginning: what the model has from another run.
        overrides: of the command line, for the test.
    """

    def __init__(
        self,
        recipe: ClassificationRecipe,
        trainer: Trainer,
        prepared: PreparedTexts,
        beginning: Beginning,
        overrides: Sequence[str],
    ) -> None:
        super().__init__(recipe, trainer, beginning)
        self.prepared = prepared
        self.overrides = overrides
        validation = prepared.corpus.validation.labels
        self.texts = LabelledTexts(prepared.train, prepared.corpus.train.labels, recipe.batches, begins(recipe))
        self.validation = LabelledTexts(prepared.validation, validation, recipe.batches, begins(recipe))
        chosen = np.random.default_rng(recipe.data.seed).permutation(len(self.texts))[:_LOOKED_AT]
        self.looked_at = self.texts.only(np.sort(chosen))

    def hashes(self) -> dict[str, str]:
        """Of the training texts as pieces, with their labels, and of the tokenizer."""
        return self.prepared.hashes()

    def counts(self) -> dict[str, int]:
        """Texts by split, and those of which only the beginning is read."""
        test = self.prepared.corpus.test
        return {
            "train": len(self.texts),
            "truncated": self.texts.truncated,
            "validation": len(self.validation),
            "test": len(test) if test is not None else 0,
        }

    def introduce(self, say: Say) -> None:
        """Tells how many texts each class has, how long they are, and what batches hold."""
        limit, cut = self.recipe.batches.max_length, self.texts.truncated
        for line in class_table(self.prepared.corpus):
            say(line)
        say("training texts by length in pieces")
        for line in length_bars(self.prepared.train.lengths, limit):
            say(line)
        share = 100 * cut / len(self.texts)
        say(f"{cut:,} of them ({share:.1f} %) are longer than batches.max_length ({limit}): their ends are not read")
        padding = self.texts.padding_share(self.recipe.seeds.data)
        say(f"{self.prepared.tokenizer.size:,} pieces · {100 * padding:.1f} % of a batch's positions are padding")

    def begin(self, folder: Path, log: RunLog) -> None:
        """Draws how long the training texts are and how many each class has."""
        train = self.prepared.corpus.train
        pictures = {
            "lengths": lengths_picture(self.prepared.train.lengths, self.recipe.batches.max_length),
            "classes": class_counts_picture(self.prepared.corpus.counts()["train"]),
        }
        save_pictures(folder, pictures)
        for name, picture in pictures.items():
            log.picture(f"data/{name}", picture, 0)
        log.say(f"{len(train):,} training texts: figures/lengths.png and figures/classes.png show them")

    def validate(self, log: RunLog) -> float:
        """Measures loss, accuracy and macro-F1, and loss and accuracy on some training texts."""
        model = self.trainer.model
        found = _measured(self.validation, class_probabilities(model, self.validation))
        known = _measured(self.looked_at, class_probabilities(model, self.looked_at))
        scores = {**found, "training_loss": known["loss"], "training_accuracy": known["accuracy"]}
        log.validation(self.trainer.update, scores)
        metric = self.recipe.validation.metric
        return -found["loss"] if metric == "loss" else found[metric]

    def test(self, folder: Path, log: RunLog) -> None:
        """Classifies the test set, scores the answers, and draws them and the curves of training."""
        curves = curves_picture(_curves(folder))
        save_pictures(folder, {"curves": curves})
        log.picture("curves", curves, self.trainer.update)
        if self.prepared.corpus.test is None:
            return
        evaluation = evaluate_classifier(folder, "test", overrides=self.overrides)
        for name, picture in evaluation.pictures():
            log.picture(f"test/{name}", picture, self.trainer.update)
        log.settings(flat(self.recipe.model_dump(mode="json")), evaluation.main_scores())
        log.say(str(evaluation))


def _measured(texts: LabelledTexts, probabilities: Float[np.ndarray, "texts classes"]) -> dict[str, float]:
    truth: Int[np.ndarray, " texts"] = texts.labels
    predicted = probabilities.argmax(axis=1)
    classes = probabilities.shape[1]
    chosen = probabilities[np.arange(len(truth)), truth]
    names = [str(number) for number in range(classes)]
    return {
        "loss": float(-np.log(np.maximum(chosen, np.finfo(np.float64).tiny)).mean()),
        "accuracy": accuracy(truth, predicted).value,
        "macro_f1": macro_f1(per_class(confusion(truth, predicted, classes), names)),
    }


def _curves(folder: Path) -> list[Curve]:
    """What `metrics.jsonl` says of all validations."""
    lines = (folder / METRICS).read_text(encoding="utf-8").splitlines()
    points = [entry for line in lines if "validation" in (entry := json.loads(line))]
    updates = [point["update"] for point in points]
    scores = [point["validation"] for point in points]
    return [
        Curve("training", updates, [s["training_loss"] for s in scores], [s["training_accuracy"] for s in scores]),
        Curve("validation", updates, [s["loss"] for s in scores], [s["accuracy"] for s in scores]),
    ]
