"""A run of masked-language modelling: from texts to an encoder that knows them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from s2s.data.encoding import Lists, encode_texts
from s2s.data.masking import MaskedBatch
from s2s.data.texts import TextCorpus, load_texts, some_of
from s2s.data.tokenizers import Tokenizer
from s2s.data.tokenizers import train as train_tokenizer
from s2s.errors import UserError
from s2s.evaluation.pictures import lengths_picture
from s2s.models.masked_lm import MaskedLM, reading_direction
from s2s.recipe.masked_lm import MaskedRecipe
from s2s.run.course import Course, Say
from s2s.run.folder import TOKENIZER, flat
from s2s.run.held_out import held_out_hashes
from s2s.run.masked_lm_loading import SIDE, build_masked_lm, digest_of_text, evaluate_masked_lm, examples_of
from s2s.training.devices import choose
from s2s.training.logger import RunLog
from s2s.training.masked_lm import masked_loss, measure
from s2s.training.trainer import Trainer


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


def course(
    recipe: MaskedRecipe,
    say: Say,
    folder: Path | None = None,
    overrides: Sequence[str] = (),
) -> "Masking":
    """A run that has done nothing yet.

    Args:
        recipe: the resolved recipe.
        say: prints a line.
        folder: of the run that goes on; None: a new one.
        overrides: `section.key=value`, for `data` and `device`.

    Raises:
        UserError: data, tokenizer and model do not fit together.
    """
    computer = choose(recipe.device)
    say(f"{recipe.name} on {computer}")
    corpus = load_texts(recipe.data)
    if folder:
        tokenizer = Tokenizer.load(folder / TOKENIZER, SIDE)
    else:
        tokenizer = train_tokenizer(some_of(corpus.train["text"]), recipe.tokenizer, SIDE)
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
    examples = examples_of(recipe, prepared.train, tokenizer)
    if not len(examples):
        raise UserError("the training texts are empty", where="data.train", remedy="look at data.text")
    trainer = Trainer(model, examples, masked_loss, recipe.training, recipe.seeds, computer)
    return Masking(recipe, trainer, prepared, overrides)


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

    def tokenizers(self) -> dict[str, Tokenizer]:
        """The only one."""
        return {SIDE: self.prepared.tokenizer}

    def hashes(self) -> dict[str, str]:
        """Of the training texts as pieces, of the tokenizer, and of what is held out."""
        digest = hashlib.blake2b(digest_size=16)
        for array in self.prepared.train.arrays():
            digest.update(array.data)
        corpus = self.prepared.corpus
        parts = {"validation": corpus.validation, "test": corpus.test}
        own = {"training_data": digest.hexdigest(), "tokenizer": self.prepared.tokenizer.digest}
        return own | held_out_hashes(self.recipe.data, parts, digest_of_text)

    def choices(self) -> int:
        """Pieces."""
        return self.prepared.tokenizer.size

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
        examples = examples_of(self.recipe, self.prepared.validation, self.prepared.tokenizer)
        loss, accuracy, _ = measure(trainer.model, examples, trainer.computer)
        log.validation(trainer.update, {"loss": loss, "accuracy": accuracy})
        return {"loss": -loss, "accuracy": accuracy}[self.recipe.validation.metric]

    def test(self, folder: Path, log: RunLog) -> None:
        """Measures the same on the test texts, and writes it down."""
        if self.prepared.corpus.test is None:
            return
        scores = evaluate_masked_lm(folder, "test", overrides=self.overrides, meter=log.meter)
        log.settings(flat(self.recipe.model_dump(mode="json")), scores.main_scores())
        log.say(str(scores))
