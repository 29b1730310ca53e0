"""A run of masked-language modelling: from texts to an encoder that knows them."""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

import torch
from rich.console import Console

from s2s.data.encoding import Lists, encode_texts
from s2s.data.masked_text import MaskedText
from s2s.data.masking import MaskedBatch
from s2s.data.texts import TextCorpus, load_texts
from s2s.data.tokenizers import Tokenizer
from s2s.data.tokenizers import train as train_tokenizer
from s2s.errors import UserError
from s2s.evaluation.pictures import lengths_picture
from s2s.models.masked_lm import MaskedLM, reading_direction
from s2s.recipe.installed import module_of
from s2s.recipe.masked_lm import MaskedRecipe
from s2s.recipe.reading import read
from s2s.run.course import Course, Say, follow
from s2s.run.folder import RECIPE, TOKENIZER, check_free, check_resumable, check_sections, create, flat, folder_of
from s2s.run.loading import computer_for, find_checkpoint
from s2s.run.tasks import check_task
from s2s.training.checkpoint import load_weights, write_atomically
from s2s.training.devices import Computer, choose, seed_for
from s2s.training.logger import RunLog
from s2s.training.masked_lm import masked_loss, measure
from s2s.training.trainer import Trainer

TASK = "masked-lm"
SIDE = "text"
"""The name under which the tokenizer is kept."""


def train(recipe: MaskedRecipe, console: Console, overwrite: bool = False) -> Path:
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
    folder = create(recipe, {SIDE: course.prepared.tokenizer}, overwrite)
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


@dataclass(frozen=True)
class Prepared:
    """Everything about the data that training needs.

    Attributes:
        corpus: as text.
        tokenizer: cuts it.
        train: its training texts as pieces.
        validation: its validation texts as pieces.
    """

    corpus: TextCorpus
    tokenizer: Tokenizer
    train: Lists
    validation: Lists


@dataclass(frozen=True)
class MaskedScores:
    """How well the masked pieces of a split are named.

    Attributes:
        run: the run's folder.
        checkpoint: the checkpoint's name.
        split: `test` or `validation`.
        texts: how many.
        masked: pieces that had to be named; which ones is always the same.
        loss: in nats per masked piece.
        accuracy: share of them whose most probable piece was right, in percent.
    """

    run: str
    checkpoint: str
    split: str
    texts: int
    masked: int
    loss: float
    accuracy: float

    def __str__(self) -> str:
        return (
            f"{self.run}, checkpoint {self.checkpoint}, {self.split}: {self.texts:,} texts\n"
            f"  loss {self.loss:.3f} nats per masked piece (perplexity {math.exp(min(self.loss, 50)):.1f}), "
            f"{self.accuracy:.2f} % of {self.masked:,} named right"
        )

    def main_scores(self) -> dict[str, float]:
        """The values alone, by metric."""
        return {"loss": self.loss, "accuracy": self.accuracy}


def _course(
    recipe: MaskedRecipe, console: Console, folder: Path | None = None, overrides: Sequence[str] = ()
) -> "Masking":
    computer = choose(recipe.device)
    console.print(f"{recipe.name} on {computer}", markup=False, highlight=False, soft_wrap=True)
    corpus = load_texts(recipe.data)
    tokenizer = (
        Tokenizer.load(folder / TOKENIZER, SIDE)
        if folder
        else train_tokenizer(corpus.train["text"], recipe.tokenizer, SIDE)
    )
    prepared = Prepared(
        corpus, tokenizer, encode_texts(corpus.train, tokenizer), encode_texts(corpus.validation, tokenizer)
    )
    model = build_masked_lm(recipe, tokenizer.size).to(computer.device)
    longest = model.encoder.longest
    if longest is not None and longest < recipe.batches.max_length:
        raise UserError(
            f"the model knows {longest} positions, but batches.max_length is {recipe.batches.max_length}",
            where="model.max_positions",
            remedy=f"set model.max_positions={recipe.batches.max_length} or higher",
        )
    examples = _examples(recipe, prepared.train, tokenizer)
    if not len(examples):
        raise UserError("the training texts are empty", where="data.train", remedy="look at data.text")
    trainer = Trainer(model, examples, masked_loss, recipe.training, recipe.seeds, computer)
    return Masking(recipe, trainer, prepared, overrides)


def build_masked_lm(recipe: MaskedRecipe, size: int) -> MaskedLM:
    """A model as the recipe describes it, with the initial weights that its seed gives.

    Args:
        recipe: the resolved recipe.
        size: number of pieces that the tokenizer knows.
    """
    torch.manual_seed(seed_for(recipe.seeds.initialization))
    encoder, width = module_of(recipe.model.kind).build_encoder(recipe.model, size + 1)
    return MaskedLM(encoder, width, size, recipe.masking.tie)


def _examples(recipe: MaskedRecipe, pieces: Lists, tokenizer: Tokenizer) -> MaskedText:
    return MaskedText(pieces, tokenizer.size, recipe.masking, recipe.batches, recipe.training.tokens_per_update)


class Masking(Course):
    """What a run of masked-language modelling has of its own.

    Args:
        recipe: the resolved recipe.
        trainer: that has done nothing yet.
        prepared: the corpus.
        overrides: of the command line, for the test.
    """

    perplexity: ClassVar[bool] = True

    def __init__(
        self,
        recipe: MaskedRecipe,
        trainer: Trainer[MaskedLM, MaskedBatch],
        prepared: Prepared,
        overrides: Sequence[str] = (),
    ) -> None:
        super().__init__(recipe, trainer)
        self.prepared = prepared
        self.overrides = overrides

    def hashes(self) -> dict[str, str]:
        """Of the training texts as pieces, and of the tokenizer."""
        digest = hashlib.blake2b(digest_size=16)
        for array in self.prepared.train.arrays():
            digest.update(array.data)
        return {"training_data": digest.hexdigest(), "tokenizer": self.prepared.tokenizer.digest}

    def counts(self) -> dict[str, int]:
        """Texts by split, and the windows that training texts are cut into."""
        test = self.prepared.corpus.test
        return {
            "train": len(self.prepared.train.lengths),
            "windows": len(self.trainer.examples),
            "validation": len(self.prepared.validation.lengths),
            "test": len(test) if test is not None else 0,
        }

    def introduce(self, say: Say) -> None:
        """Tells the size of corpus and vocabulary, and what the encoder can see of a text."""
        counts, pieces = self.counts(), int(self.prepared.train.lengths.sum())
        say(
            f"{counts['train']:,} texts of {pieces:,} pieces in {counts['windows']:,} windows · "
            f"{self.prepared.tokenizer.size:,} pieces known"
        )
        seen = reading_direction(self.trainer.model.encoder)
        if seen != "both sides":
            say(
                f"this encoder sees only what stands {seen} a piece: it will name masked pieces from that side alone"
                if seen != "neither side"
                else "this encoder sees only the piece itself: it can learn how frequent pieces are, no more"
            )

    def begin(self, folder: Path, log: RunLog) -> None:
        """Draws how long the training texts are."""
        figure = lengths_picture(self.prepared.train.lengths, self.recipe.batches.max_length)
        figure.savefig(folder / "lengths.png", dpi=150)
        log.picture("data/lengths", figure, 0)

    def validate(self, log: RunLog) -> float:
        """Measures loss and accuracy on the validation texts, masked the same way each time."""
        trainer = self.trainer
        examples = _examples(self.recipe, self.prepared.validation, self.prepared.tokenizer)
        loss, accuracy, _ = measure(trainer.model, examples, trainer.computer)
        log.validation(trainer.update, {"loss": loss, "accuracy": accuracy})
        return {"loss": -loss, "accuracy": accuracy}[self.recipe.validation.metric]

    def test(self, folder: Path, log: RunLog) -> None:
        """Measures the same on the test texts, and writes it down."""
        if self.prepared.corpus.test is None:
            return
        scores = _scored(load_masked_lm(folder, overrides=self.overrides), folder, "test", self.prepared.corpus)
        write_atomically(folder / "evaluation-test.json", json.dumps(asdict(scores), indent=1) + "\n")
        log.settings(flat(self.recipe.model_dump(mode="json")), scores.main_scores())
        log.say(str(scores))


@dataclass(frozen=True)
class LoadedMaskedLM:
    """A trained model with all that is needed to use it.

    Attributes:
        checkpoint: the folder its weights came from.
        recipe: what it was trained by, with the caller's overrides.
        model: in evaluation mode, on the computer's device.
        tokenizer: cuts texts into its pieces.
        computer: device and precision.
    """

    checkpoint: Path
    recipe: MaskedRecipe
    model: MaskedLM
    tokenizer: Tokenizer
    computer: Computer


def load_masked_lm(path: Path, checkpoint: str | None = None, overrides: Sequence[str] = ()) -> LoadedMaskedLM:
    """Loads a trained masked-language model.

    Args:
        path: a run's folder, or that of one checkpoint.
        checkpoint: see `s2s.run.loading.find_checkpoint`.
        overrides: `section.key=value`, for what may change after training: `data`, `device`.

    Raises:
        UserError: it is no run of this task, it has no such checkpoint, or a file is damaged.
    """
    check_task(path, TASK, {})
    check_sections(overrides, ("data", "device"), "a trained model keeps its recipe")
    folder = find_checkpoint(path, checkpoint)
    recipe = read(folder / RECIPE, overrides)
    computer = computer_for(recipe.device, overrides)
    tokenizer = Tokenizer.load(folder / TOKENIZER, SIDE)
    model = build_masked_lm(recipe, tokenizer.size)
    load_weights(model, folder / "model.safetensors")
    return LoadedMaskedLM(folder, recipe, model.to(computer.device).eval(), tokenizer, computer)


def _scored(run: LoadedMaskedLM, path: Path, split: str, corpus: TextCorpus) -> MaskedScores:
    texts = getattr(corpus, split)
    examples = _examples(run.recipe, encode_texts(texts, run.tokenizer), run.tokenizer)
    loss, accuracy, masked = measure(run.model, examples, run.computer)
    return MaskedScores(str(path), run.checkpoint.name, split, len(texts), masked, loss, accuracy)
