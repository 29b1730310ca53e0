"""Masked-language modelling: from texts to an encoder that knows them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from s2s.data.encoding import Lists, PreparedTexts, cut, encode_texts
from s2s.data.examples import batches_on
from s2s.data.tokenizers import Tokenizer
from s2s.errors import UserError
from s2s.evaluation.signs import Symptoms
from s2s.files import write_atomically
from s2s.interpretability.inspection import Focus, Inspection
from s2s.models.masked_lm import MaskedLM, reading_direction
from s2s.recipe.installed import module_of
from s2s.tasks.comparable import check_comparable
from s2s.tasks.contract import Course, Evaluation, Loaded, Say, Scoring, Task, check_positions
from s2s.tasks.masked_lm.data import MaskedBatch, MaskedText
from s2s.tasks.masked_lm.insides import insides
from s2s.tasks.masked_lm.recipe import MaskedRecipe
from s2s.tasks.masked_lm.symptoms import symptoms
from s2s.tasks.pictures import lengths_picture
from s2s.tasks.texts import TextSource
from s2s.training import drawing
from s2s.training.devices import Computer, seed_for
from s2s.training.logger import RunLog
from s2s.training.loss import cross_entropy
from s2s.training.progress import Advance, Meter
from s2s.training.trainer import Loss
from s2s.training.validation import Validation

if TYPE_CHECKING:
    import datasets

MaskedRun = Loaded[MaskedRecipe, MaskedLM]
MaskedCourse = Course[MaskedRecipe, PreparedTexts["datasets.Dataset"], MaskedLM]


def masked_loss(model: MaskedLM, batch: MaskedBatch) -> tuple[Tensor, Tensor]:
    """The cross-entropy of the chosen pieces of a batch, summed, in nats: to learn from and to report, the same.

    The pieces that were not chosen are read and are no part of it.
    """
    states = model(batch.source, batch.source_valid, batch.chosen)
    valid = torch.ones_like(batch.targets, dtype=torch.bool)
    return cross_entropy(states[None], model.output, batch.targets[None], valid[None], bias=model.output_bias)


def measure(
    model: MaskedLM, examples: MaskedText, computer: Computer, advance: Advance = lambda count: None
) -> tuple[float, float, int]:
    """How well a model names the chosen pieces, dropout off; which pieces are chosen is the same each time.

    Of several processes each reads a part, and all are told the whole.
    The model is put into evaluation mode, and `advance` is told how many examples were read, batch by batch.

    Returns:
        The loss in nats per chosen piece, the share of them whose most probable piece is the right one, in percent, and
        their number.
    """
    model.eval()
    sums, hits, count, ranks = [], [], 0, computer.ranks
    with torch.no_grad(), computer.mixed_precision():
        for rows, batch in batches_on(examples, computer.device, ranks.rank, ranks.size):
            found = model.log_probabilities(batch.source, batch.source_valid, batch.chosen)
            sums.append(found.gather(1, batch.targets[:, None]).sum())
            hits.append((found.argmax(1) == batch.targets).sum())
            count += batch.count
            advance(len(rows))
    loss, right = 0.0, 0
    # read at the end: to ask a GPU in between would make it stand still
    for each, found in zip(sums, hits, strict=True):
        loss -= float(each)
        right += int(found)
    loss, right, count = ranks.sums(loss, right, count)
    return loss / max(1, count), 100 * right / max(1, count), int(count)


def examples_of(recipe: MaskedRecipe, pieces: Lists, size: int) -> MaskedText:
    """Texts as a trainer takes them; `size` is the number of pieces that the tokenizer knows."""
    return MaskedText(pieces, size, recipe.masking, recipe.batches, recipe.training.tokens_per_update)


@dataclass(frozen=True)
class MaskedScores(Evaluation):
    """How well the masked pieces of a split are named: the loss in nats for each, the right ones in percent.

    Attributes:
        digest: a hash of the texts.
    """

    texts: int
    masked: int
    loss: float
    accuracy: float
    digest: str

    def __str__(self) -> str:
        lines = [
            f"{self.run}, checkpoint {self.checkpoint}, {self.split}: {self.texts:,} texts",
            f"  loss {self.loss:.3f} nats per masked piece (perplexity {math.exp(min(self.loss, 50)):.1f}), "
            f"{self.accuracy:.2f} % of {self.masked:,} named right",
        ]
        return "\n".join([*lines, *self.notes()])

    def main_scores(self) -> dict[str, float]:
        return {"loss": self.loss, "accuracy": self.accuracy}

    @classmethod
    def compare(cls, evaluations: Sequence[Self]) -> Sequence[object]:
        """Without a test; losses of other texts, or of other pieces of them, are refused."""
        check_comparable(evaluations, lambda each: each.digest)
        first = evaluations[0]
        for other in evaluations[1:]:
            if other.masked != first.masked:
                raise UserError(
                    f"{first.run} and {other.run} cut the texts into other pieces: {first.masked:,} and "
                    f"{other.masked:,} are masked",
                    remedy="compare runs with one tokenizer and one masking.share",
                )
        return ()


class MaskedModelling(Task[MaskedRecipe, PreparedTexts["datasets.Dataset"], MaskedLM]):
    """Texts with holes in, what stood there out."""

    perplexity: ClassVar[bool] = True

    def source(self, recipe: MaskedRecipe) -> TextSource:
        return TextSource(recipe.data)

    def prepare(
        self, recipe: MaskedRecipe, tokenizers: tuple[Tokenizer, ...], say: Say
    ) -> PreparedTexts["datasets.Dataset"]:
        corpus = TextSource(recipe.data).load()
        known = tokenizers[0] if tokenizers else None
        return PreparedTexts(corpus, *cut(corpus.train, corpus.validation, recipe.tokenizer, known))

    def build(self, recipe: MaskedRecipe, tokenizers: Sequence[Tokenizer]) -> MaskedLM:
        torch.default_generator.manual_seed(seed_for(recipe.seeds.initialization))
        size = tokenizers[0].size
        encoder, width = module_of(recipe.model.kind).build_encoder(recipe.model, size + 1)
        masking, epsilon = recipe.masking, getattr(recipe.model, "norm_epsilon", 1e-5)
        return MaskedLM(encoder, width, size, masking.tie, masking.output_bias, epsilon)

    def examples(self, recipe: MaskedRecipe, data: PreparedTexts["datasets.Dataset"], model: MaskedLM) -> MaskedText:
        wanted = recipe.batches.max_length
        check_positions(model.encoder.longest, wanted, f"set model.max_positions={wanted} or higher")
        examples = examples_of(recipe, data.train, data.tokenizer.size)
        if not len(examples):
            raise UserError("the training texts are empty", where="data.train", remedy="look at data.text")
        # a loss of nothing is 0, the best there is
        if not len(examples_of(recipe, data.validation, data.tokenizer.size)):
            raise UserError("the validation texts are empty", where="data.validation", remedy="look at data.text")
        return examples

    def loss(self, recipe: MaskedRecipe) -> Loss[MaskedLM, MaskedBatch]:
        return masked_loss

    def read(self, run: MaskedRun, part: "datasets.Dataset") -> MaskedText:
        tokenizer = run.tokenizers[0]
        examples = examples_of(run.recipe, encode_texts(part, tokenizer), tokenizer.size)
        if not len(examples):
            raise UserError(f"all of {len(part):,} texts are empty", where=str(run.path), remedy="look at data.text")
        return examples

    def symptoms(
        self, run: MaskedRun, part: "datasets.Dataset", rows: Int[np.ndarray, " texts"], meter: Meter
    ) -> Symptoms:
        return symptoms(run, part, self.read(run, part), meter)

    def log_probabilities(self, model: MaskedLM, batch: MaskedBatch) -> Float[Tensor, "chosen pieces"]:
        return model.log_probabilities(batch.source, batch.source_valid, batch.chosen)

    def counts(self, course: MaskedCourse) -> dict[str, int]:
        return {"test": 0, **super().counts(course), "windows": len(course.trainer.examples)}

    def introduce(self, course: MaskedCourse, say: Say) -> None:
        counts, pieces = self.counts(course), int(course.data.train.lengths.sum())
        say(
            f"{counts['train']:,} texts of {pieces:,} pieces in {counts['windows']:,} windows · "
            f"{course.data.tokenizer.size:,} pieces known"
        )
        seen = reading_direction(course.model.encoder)
        if seen != "both sides":
            say(
                f"this encoder sees only what stands {seen} a piece: it will name masked pieces from that side alone"
                if seen != "neither side"
                else "this encoder sees only the piece itself: it can learn how frequent pieces are, no more"
            )

    def begin(self, course: MaskedCourse, folder: Path, log: RunLog) -> None:
        picture = drawing.png(lengths_picture(course.data.train.lengths, course.recipe.batches.max_length))
        write_atomically(folder / "lengths.png", picture)
        log.picture("data/lengths", picture, 0)

    def validate(self, course: MaskedCourse, log: RunLog) -> Validation:
        examples = examples_of(course.recipe, course.data.validation, course.data.tokenizer.size)
        loss, accuracy, _ = measure(course.model, examples, course.trainer.computer)
        log.validation(course.trainer.update, {"loss": loss, "accuracy": accuracy})
        score = {"loss": -loss, "accuracy": accuracy}[course.recipe.validation.metric]
        return Validation(course.trainer.update, score, loss)

    def evaluate(self, run: MaskedRun, part: "datasets.Dataset", scoring: Scoring, meter: Meter) -> MaskedScores:
        examples = self.read(run, part)
        with meter("measuring", len(examples)) as advance:
            loss, accuracy, masked = measure(run.model, examples, run.computer, advance)
        found = (len(part), masked, loss, accuracy, self.source(run.recipe).digest(part))
        return MaskedScores(str(run.path), run.checkpoint.name, scoring.split, *found)

    def inspect(self, run: MaskedRun, focus: Focus) -> Inspection:
        return insides(run, focus)


TASK = MaskedModelling()
