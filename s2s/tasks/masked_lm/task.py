"""Masked-language-model task: an encoder that predicts masked tokens."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from s2s.data.dataset import iterate_batches
from s2s.data.sources import digest_of_arrays
from s2s.data.tables import TextSource
from s2s.data.tokenized import PreparedTexts, RaggedArray, encode_texts, tokenize_corpus
from s2s.data.tokenizers import Tokenizer
from s2s.errors import UserError, counted
from s2s.files import write_atomically
from s2s.models.masked_lm import MaskedLM, reading_direction
from s2s.tasks.base import (
    Evaluation,
    EvaluationOptions,
    LoadedModel,
    PrintFn,
    Task,
    TrainContext,
    build_encoder,
    check_comparable,
    check_positions,
)
from s2s.tasks.figures import lengths_picture
from s2s.tasks.masked_lm.data import MaskedBatch, MaskedText
from s2s.tasks.masked_lm.recipe import MaskedRecipe
from s2s.training import figures
from s2s.training.device import DeviceContext
from s2s.training.logger import RunLog
from s2s.training.loss import cross_entropy
from s2s.training.progress import Advance, ProgressBar
from s2s.training.trainer import Loss
from s2s.training.validation import LOWER_IS_BETTER, Validation

if TYPE_CHECKING:
    import datasets

    from s2s.evaluation.signs import Diagnostics
    from s2s.inspection.inspection import Inspection, InspectionRequest

# Windows of a batch of the digest.
_AT_ONCE = 256

MaskedRun = LoadedModel[MaskedRecipe, MaskedLM]
MaskedContext = TrainContext[MaskedRecipe, PreparedTexts["datasets.Dataset"], MaskedLM]


def masked_loss(model: MaskedLM, batch: MaskedBatch) -> tuple[Tensor, Tensor]:
    """Return the summed cross-entropy of the chosen tokens of a batch in nats, to minimize and to report."""
    states = model(batch.source, batch.source_valid, batch.chosen)
    valid = torch.ones_like(batch.targets, dtype=torch.bool)
    return cross_entropy(states[None], model.output, batch.targets[None], valid[None], bias=model.output_bias)


def measure(
    model: MaskedLM, examples: MaskedText, device_context: DeviceContext, advance: Advance = lambda count: None
) -> tuple[float, float, int]:
    """Measure the prediction of masked tokens, without dropout.

    The masked tokens are the same at each call, and the model stays in evaluation mode. With several ranks, each rank
    measures a part, and all ranks return the full result.

    Returns:
        Loss in nats per masked token, accuracy in percent, and the number of masked tokens.
    """
    model.eval()
    sums, hits, count, distributed = [], [], 0, device_context.distributed
    with torch.no_grad(), device_context.mixed_precision():
        for rows, batch in iterate_batches(examples, device_context.device, distributed.rank, distributed.world_size):
            found = model.log_probabilities(batch.source, batch.source_valid, batch.chosen)
            sums.append(found.gather(1, batch.targets[:, None]).sum())
            hits.append((found.argmax(1) == batch.targets).sum())
            count += batch.count
            advance(len(rows))
    loss, right = 0.0, 0
    # Read at the end, because reading in the loop would synchronize with the GPU.
    for each, found in zip(sums, hits, strict=True):
        loss -= float(each)
        right += int(found)
    loss, right, count = distributed.all_reduce_sum(loss, right, count)
    return loss / max(1, count), 100 * right / max(1, count), int(count)


def _examples_of(recipe: MaskedRecipe, tokens: RaggedArray, size: int) -> MaskedText:
    """Return tokenized texts as masked training examples."""
    return MaskedText(tokens, size, recipe.masking, recipe.batches, recipe.training.tokens_per_update)


@dataclass(frozen=True, repr=False)
class MaskedScores(Evaluation):
    """Scores of a masked language model on a split.

    Attributes:
        masked: Number of masked tokens.
        loss: Loss in nats per masked token.
        accuracy: Share of masked tokens that are predicted correctly, in percent.
        masks: Digest of the tokenizer, of the masked tokens, and of what is read in their place.
    """

    texts: int
    masked: int
    loss: float
    accuracy: float
    digest: str
    masks: str

    def __str__(self) -> str:
        lines = [
            f"{self.run}, checkpoint {self.checkpoint}, {self.split}: {counted(self.texts, 'text')}",
            f"  loss {self.loss:.3f} nats per masked token (perplexity {math.exp(min(self.loss, 50)):.1f}), "
            f"{self.accuracy:.2f} % of {self.masked:,} predicted correctly",
        ]
        return "\n".join([*lines, *self.notes()])

    def headline_metrics(self) -> dict[str, float]:
        return {"loss": self.loss, "accuracy": self.accuracy}

    @classmethod
    def compare(cls, evaluations: Sequence[Self]) -> Sequence[object]:
        """Check that losses are comparable; there is no significance test."""
        check_comparable(evaluations, lambda each: each.digest)
        first = evaluations[0]
        for other in evaluations[1:]:
            if other.masked != first.masked:
                what = (
                    f"{first.run} and {other.run} mask different numbers of tokens: {first.masked:,}, {other.masked:,}"
                )
                raise UserError(what, remedy="compare runs with the same tokenizer and the same masking.share")
            if other.masks != first.masks:
                what = f"{first.run} and {other.run} do not predict the same masked tokens from the same replacements"
                remedy = "compare runs with the same tokenizer, section masking and batches.max_length"
                raise UserError(what, remedy=remedy)
        return ()


def _digest_of_masks(examples: MaskedText, tokenizer: Tokenizer) -> str:
    """Return a digest of the masks of an evaluation, as in `MaskedScores`."""

    def parts() -> Iterator[np.ndarray]:
        yield np.frombuffer(tokenizer.digest.encode(), np.uint8)
        for first in range(0, len(examples), _AT_ONCE):
            batch = examples.collate(np.arange(first, min(first + _AT_ONCE, len(examples))), 0)
            yield from (batch.targets.numpy(), batch.source.flatten()[batch.chosen].numpy())

    return digest_of_arrays(parts())


class MaskedLMTask(Task[MaskedRecipe, PreparedTexts["datasets.Dataset"], MaskedLM]):
    """Masked-language-model task: predict the masked tokens of a text."""

    perplexity: ClassVar[bool] = True

    def source(self, recipe: MaskedRecipe) -> TextSource:
        return TextSource(recipe.data)

    def prepare(
        self, recipe: MaskedRecipe, tokenizers: tuple[Tokenizer, ...], print_fn: PrintFn
    ) -> PreparedTexts["datasets.Dataset"]:
        corpus = TextSource(recipe.data).load()
        if corpus.note:
            print_fn(corpus.note)
        return tokenize_corpus(corpus, recipe.tokenizer, tokenizers)

    def build(self, recipe: MaskedRecipe, tokenizers: Sequence[Tokenizer]) -> MaskedLM:
        size = tokenizers[0].size
        encoder, width = build_encoder(recipe, size + 1)
        masking, epsilon = recipe.masking, getattr(recipe.model, "norm_epsilon", 1e-5)
        return MaskedLM(encoder, width, size, masking.tie, masking.output_bias, epsilon)

    def examples(self, recipe: MaskedRecipe, data: PreparedTexts["datasets.Dataset"], model: MaskedLM) -> MaskedText:
        wanted = recipe.batches.max_length
        check_positions(model.encoder.max_positions, wanted, f"set model.max_positions={wanted} or higher")
        examples = _examples_of(recipe, data.train, data.tokenizer.size)
        if not len(examples):
            raise UserError("the training texts are empty", where="data.train", remedy="look at data.text")
        # The loss over no examples is 0, which would be the best score.
        if not len(_examples_of(recipe, data.validation, data.tokenizer.size)):
            raise UserError("the validation texts are empty", where="data.validation", remedy="look at data.text")
        return examples

    def loss(self, recipe: MaskedRecipe) -> Loss[MaskedLM, MaskedBatch]:
        return masked_loss

    def examples_for_inference(self, run: MaskedRun, part: "datasets.Dataset") -> MaskedText:
        tokenizer = run.tokenizers[0]
        examples = _examples_of(run.recipe, encode_texts(part, tokenizer), tokenizer.size)
        if not len(examples):
            raise UserError(f"all of {len(part):,} texts are empty", where=str(run.path), remedy="look at data.text")
        return examples

    def diagnose(
        self, run: MaskedRun, part: "datasets.Dataset", rows: Int[np.ndarray, " texts"], progress_bar: ProgressBar
    ) -> "Diagnostics":
        from s2s.tasks.masked_lm.diagnosis import symptoms

        return symptoms(run, rows, self.examples_for_inference(run, part), progress_bar)

    def log_probs(self, model: MaskedLM, batch: MaskedBatch) -> Float[Tensor, "chosen pieces"]:
        return model.log_probabilities(batch.source, batch.source_valid, batch.chosen)

    def log_dataset_summary(self, train_context: MaskedContext, print_fn: PrintFn) -> None:
        texts, tokens = len(train_context.data.corpus.train), int(train_context.data.train.lengths.sum())
        print_fn(
            f"{texts:,} texts of {tokens:,} tokens in {len(train_context.trainer.examples):,} windows · "
            f"vocabulary: {train_context.data.tokenizer.size:,} tokens"
        )
        seen = reading_direction(train_context.model.encoder)
        if seen == "neither side":
            print_fn("this encoder has no context: it can only learn the frequencies of tokens")
        elif seen != "both sides":
            print_fn(
                f"this encoder reads only the tokens {seen} a token: it predicts masked tokens from that side alone"
            )

    def on_train_start(self, train_context: MaskedContext, folder: Path, log: RunLog) -> None:
        picture = figures.render_png(
            lengths_picture(train_context.data.train.lengths, train_context.recipe.batches.max_length)
        )
        write_atomically(folder / "lengths.png", picture)
        log.add_figure("data/lengths", picture, 0)

    def validate(self, train_context: MaskedContext, log: RunLog) -> Validation:
        examples = _examples_of(train_context.recipe, train_context.data.validation, train_context.data.tokenizer.size)
        loss, accuracy, _ = measure(train_context.model, examples, train_context.trainer.device_context)
        found = {"loss": loss, "accuracy": accuracy}
        log.log_validation(train_context.trainer.update, found)
        metric = train_context.recipe.validation.metric
        return Validation(train_context.trainer.update, found[metric], loss, lower_is_better=metric in LOWER_IS_BETTER)

    def evaluate(
        self, run: MaskedRun, part: "datasets.Dataset", scoring: EvaluationOptions, progress_bar: ProgressBar
    ) -> MaskedScores:
        examples = self.examples_for_inference(run, part)
        with progress_bar("measuring", len(examples)) as advance:
            loss, accuracy, masked = measure(run.model, examples, run.device_context, advance)
        digests = self.source(run.recipe).digest(part), _digest_of_masks(examples, run.tokenizers[0])
        found = (len(part), masked, loss, accuracy, *digests)
        return MaskedScores(str(run.path), run.checkpoint.name, scoring.split, *found)

    def inspect(self, run: MaskedRun, focus: "InspectionRequest") -> "Inspection":
        from s2s.tasks.masked_lm.diagnosis import inspect_inputs

        return inspect_inputs(run, focus)


TASK = MaskedLMTask()
