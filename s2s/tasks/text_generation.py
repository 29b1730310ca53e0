"""What all tasks have in common that write with an encoder and a decoder: one target at once, and piece by piece."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from s2s.data.batches import ParallelBatch, collate
from s2s.decoding.beam_search import Hypothesis
from s2s.decoding.generate import TextTranslator, describe_collapse
from s2s.evaluation.signs import Finding, plain_sign
from s2s.models.base import BatchedState, Seq2Seq
from s2s.nn.layers import Tokens, Vectors
from s2s.recipe.installed import module_of
from s2s.tasks.base import D, LoadedModel, R, RescoredHypotheses, Task, TrainContext
from s2s.tasks.seq2seq import sequence_loss
from s2s.training.trainer import Loss

State = TypeVar("State", bound=BatchedState)


class TextGenerationTask(Task[R, D, Seq2Seq]):
    """A task that writes a target for each source."""

    perplexity: ClassVar[bool] = True

    def build_on_meta(self, recipe: R) -> nn.Module:
        return module_of(recipe.model.kind).build(recipe.model, 5, 5)

    def loss(self, recipe: R) -> Loss[Seq2Seq, ParallelBatch]:
        return sequence_loss(dict(recipe)["training"].label_smoothing)

    def count_examples(self, train_context: TrainContext[R, D, Seq2Seq]) -> dict[str, int]:
        return {
            "test": 0,
            **super().count_examples(train_context),
            "too_long": train_context.trainer.examples.num_skipped,
        }

    def log_probs(self, model: Seq2Seq, batch: ParallelBatch) -> Float[Tensor, "pieces vocabulary"]:
        """Of all pieces at each real place of the targets, all fed at once."""
        logits = model.logits(batch.source, batch.source_valid, batch.target_in)
        return logits.log_softmax(-1)[batch.target_valid]

    def incremental_log_probs(self, model: Seq2Seq, batch: ParallelBatch) -> Float[Tensor, "pieces vocabulary"]:
        """The same as `log_probabilities`, fed token by token; see `by_steps`."""
        memory = model.encoder(batch.source, batch.source_valid)
        begin = _StepwiseOutput(*model.decoder.start(memory, batch.target_in.shape[1]))

        def feed(fed: _StepwiseOutput, tokens: Tokens) -> tuple[Vectors, _StepwiseOutput]:
            """One step of the decoder."""
            states, state = model.decoder(fed.context, fed.state, tokens)
            return states, _StepwiseOutput(fed.context, state)

        states = feed_stepwise(feed, begin, batch.target_in)
        return model.projection(states).log_softmax(-1)[batch.target_valid]

    def score_tokens(self, run: LoadedModel[R, Seq2Seq], batch: ParallelBatch) -> RescoredHypotheses:
        """All hypotheses of the beam that the recipe asks for, of a batch's sources; all in fp32."""
        real = zip(batch.source, batch.source_valid, strict=True)
        sources = [row[valid].tolist()[:-1] for row, valid in real]
        exact = dict(run.recipe)["decoding"].model_copy(update={"precision": "fp32"})
        found = TextTranslator(run.model, run.tokenizers[0], run.tokenizers[-1], exact, exact.beam).search(sources)
        return rescore_hypotheses(run.model, batch.source, batch.source_valid, found)


@dataclass(frozen=True)
class _StepwiseOutput(BatchedState):
    """What a decoder reads at each step, and what it has become by them."""

    context: BatchedState
    state: BatchedState


def feed_stepwise(feed: Callable[[State, Tokens], tuple[Vectors, State]], state: State, tokens: Tokens) -> Vectors:
    """Decoder states before the projection, one token fed per step.

    The rows of the state are reversed before each step, as a beam search reorders them.
    """
    rows, found = torch.arange(len(tokens), device=tokens.device), []
    turn = rows.flip(0)
    for place in range(tokens.shape[1]):
        rows, state = rows[turn], state.select(turn)
        states, state = feed(state, tokens[rows, place : place + 1])
        # turned round twice is as it was
        found.append(states[rows, 0])
    return torch.stack(found, dim=1)


def collapsed(sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]) -> Finding:
    """Whether different sources are answered alike; see `collapse`, which looks while a model is trained."""
    different, right = len(set(sources)), len(set(references))
    answers, empty = len(set(outputs)), sum(not text.strip() for text in outputs)
    found = describe_collapse(sources, outputs, references) is not None
    measured = (
        f"{answers:,} different answers to {different:,} different sources, where {right:,} are right; {empty:,} "
        "answers are empty"
    )
    threshold = (
        "where answers are fewer than a tenth of the sources, and of what is right, or all one, or most are empty"
    )
    remedy = "lower training.learning_rate, raise training.warmup, and look for misaligned pairs with `s2s data check`"
    return plain_sign("says always the same", found, measured, answers / max(1, different), threshold, remedy)


def rescore_hypotheses(
    model: Seq2Seq,
    source: Shaped[Tensor, "batch ..."],
    valid: Bool[Tensor, "batch source"],
    found: Sequence[Sequence[Hypothesis]],
) -> RescoredHypotheses:
    """Hypotheses of each source of a batch, each fed as a target by teacher forcing."""
    rows = [row for row, hypotheses in enumerate(found) for _ in hypotheses]
    every = [hypothesis for hypotheses in found for hypothesis in hypotheses]
    again = sequence_scores(model, source[rows], valid[rows], [h.tokens for h in every])
    reported = torch.tensor([h.log_probability for h in every], dtype=again.dtype, device=again.device)
    return RescoredHypotheses(reported, again, 1 + max(len(h.tokens) for h in every))


def sequence_scores(
    model: Seq2Seq,
    source: Shaped[Tensor, "batch ..."],
    valid: Bool[Tensor, "batch source"],
    targets: Sequence[Sequence[int]],
) -> Float[Tensor, " batch"]:
    """The log probability of a target, its `EOS` counted, for each source of a batch, in nats."""
    empty = [[] for _ in targets]
    batch = collate(empty, targets, range(len(targets))).to(source.device)
    memory = model.encoder(source, valid)
    context, state = model.decoder.start(memory, batch.target_in.shape[1])
    states, _ = model.decoder(context, state, batch.target_in)
    each = model.projection(states).log_softmax(-1).gather(2, batch.target_out.unsqueeze(2)).squeeze(2)
    return (each * batch.target_valid).sum(dim=1)
