"""A run of classification: from a recipe to a trained and tested classifier."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from s2s.data.labelled_batches import LabelledTexts
from s2s.data.tokenizers import Tokenizer
from s2s.errors import UserError
from s2s.evaluation.pictures import class_counts_picture, lengths_picture
from s2s.models.contract import Classifier
from s2s.recipe.classification import ClassificationRecipe
from s2s.run.classification_data import SIDE, PreparedTexts, length_bars, prepare_texts
from s2s.run.classification_evaluation import digest_of_labelled, evaluate_classifier
from s2s.run.classification_loading import begins, build_classifier
from s2s.run.course import Say
from s2s.run.folder import TOKENIZER
from s2s.run.held_out import held_out_hashes
from s2s.run.labelled import Labelling, Part, class_lines
from s2s.run.labelled_evaluation import LabelledEvaluation
from s2s.run.pretrained import Beginning, begin_with, open_source
from s2s.training.classification import classification_loss
from s2s.training.devices import Computer, choose
from s2s.training.logger import RunLog
from s2s.training.progress import Meter
from s2s.training.trainer import Trainer

# Training texts that are classified at each validation, to see what is known by heart.
_LOOKED_AT = 1000


def course(
    recipe: ClassificationRecipe,
    say: Say,
    folder: Path | None = None,
    overrides: Sequence[str] = (),
    prepared: PreparedTexts | None = None,
) -> "Classifying":
    """A run that has done nothing yet.

    Args:
        recipe: the resolved recipe.
        say: prints a line.
        folder: of the run that goes on; None: a new one.
        overrides: `section.key=value`, for `data` and `device`.
        prepared: the recipe's texts, where they were loaded and encoded before; None: that is done now.

    Raises:
        UserError: data, tokenizer and model do not fit together.
    """
    computer = choose(recipe.device)
    say(f"{recipe.name} on {computer}")
    source = None if folder else open_source(recipe)
    recipe = source.adapt(recipe) if source else recipe
    known = Tokenizer.load(folder / TOKENIZER, SIDE) if folder else source.tokenizer if source else None
    prepared = prepared or prepare_texts(recipe, known, say)
    # a checkpoint shall know its classes without the data
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"classes": prepared.corpus.classes})})
    model = build_classifier(recipe, prepared.tokenizer.size)
    beginning = begin_with(model, recipe, source, folder)
    model = model.to(computer.device)
    _check_length(recipe, model)
    trainer = trainer_of(recipe, prepared, model, computer, beginning.scales)
    return Classifying(recipe, trainer, prepared, beginning, overrides)


def trainer_of(
    recipe: ClassificationRecipe,
    prepared: PreparedTexts,
    model: Classifier,
    computer: Computer,
    scales: Mapping[str, float] | None = None,
) -> Trainer:
    """A trainer of a classifier that has done nothing yet.

    Args:
        recipe: its optimisation, its batches and its seeds.
        prepared: the texts that it learns from.
        model: on the computer's device.
        computer: device and precision.
        scales: factors of the learning rate, by parameter name; 1 for those that are not there.
    """
    texts = LabelledTexts(
        prepared.train,
        prepared.corpus.train.labels,
        recipe.batches,
        begins(recipe),
        recipe.training.examples_per_update,
        recipe.training.word_dropout,
    )
    loss = classification_loss(recipe.training.label_smoothing)
    return Trainer(model, texts, loss, recipe.training, recipe.seeds, computer, scales)


def _check_length(recipe: ClassificationRecipe, model: Classifier) -> None:
    longest = model.encoder.longest
    if longest is not None and longest < recipe.batches.max_length:
        raise UserError(
            f"the model knows {longest} positions, but batches.max_length is {recipe.batches.max_length}",
            where="model.max_positions",
            remedy=f"set model.max_positions={recipe.batches.max_length}, or batches.max_length={longest}",
        )


class Classifying(Labelling):
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
        corpus = prepared.corpus
        texts, validation = (
            LabelledTexts(pieces, part.labels, recipe.batches, begins(recipe))
            for pieces, part in ((prepared.train, corpus.train), (prepared.validation, corpus.validation))
        )
        chosen = np.random.default_rng(recipe.data.seed).permutation(len(texts))[:_LOOKED_AT]
        known = texts.only(np.sort(chosen))
        parts = Part(validation, validation.labels), Part(known, known.labels)
        super().__init__(recipe, trainer, *parts, beginning)
        self.prepared = prepared
        self.texts = texts
        self.overrides = overrides

    def tokenizers(self) -> dict[str, Tokenizer]:
        """The only one."""
        return {SIDE: self.prepared.tokenizer}

    def hashes(self) -> dict[str, str]:
        """Of the training texts as pieces, with their labels, of the tokenizer, and of what is held out."""
        corpus = self.prepared.corpus
        parts = {"validation": corpus.validation, "test": corpus.test}
        return self.prepared.hashes() | held_out_hashes(self.recipe.data, parts, digest_of_labelled)

    def choices(self) -> int:
        """Classes."""
        return len(self.prepared.corpus.classes)

    def counts(self) -> dict[str, int]:
        """Texts by split, and those of which only the beginning is read."""
        by_split = {name: sum(counts.values()) for name, counts in self.prepared.corpus.counts().items()}
        return by_split | {"truncated": self.texts.truncated}

    def introduce(self, say: Say) -> None:
        """Tells how many texts each class has, how long they are, and what batches hold."""
        limit, cut = self.recipe.batches.max_length, self.texts.truncated
        for line in class_lines(self.prepared.corpus.counts()):
            say(line)
        say("training texts by length in pieces")
        for line in length_bars(self.texts.whole_lengths, limit):
            say(line)
        share = 100 * cut / len(self.texts)
        say(f"{cut:,} of them ({share:.1f} %) are longer than batches.max_length ({limit}): their ends are not read")
        padding = self.texts.padding_share(self.recipe.seeds.data)
        say(f"{self.prepared.tokenizer.size:,} pieces · {100 * padding:.1f} % of a batch's positions are padding")

    def begin(self, folder: Path, log: RunLog) -> None:
        """Draws how long the training texts are and how many each class has."""
        pictures = {
            # as batches.max_length counts them, with the special pieces
            "lengths": lengths_picture(self.texts.whole_lengths, self.recipe.batches.max_length),
            "classes": class_counts_picture(self.prepared.corpus.counts()["train"]),
        }
        self.draw(folder, log, pictures, "data")

    def evaluate(self, folder: Path, meter: Meter) -> LabelledEvaluation | None:
        """Scores the test set."""
        tested = self.prepared.corpus.test is not None
        return evaluate_classifier(folder, "test", overrides=self.overrides, meter=meter) if tested else None
