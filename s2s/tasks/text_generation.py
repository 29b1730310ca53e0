"""Parts of tasks that generate text: evaluation, and log-probabilities for the self-tests of `s2s diagnose`.

Log-probabilities are computed by teacher forcing and token by token, and those of hypotheses of a search again.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Self, TypeVar

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from s2s.data.batches import ParallelBatch, collate
from s2s.decoding.beam_search import Hypothesis
from s2s.decoding.generate import LengthLimited, TextTranslator
from s2s.evaluation.metrics import NAMES, Score, score_lines
from s2s.evaluation.tokenization import choose_tokenization, describe_tokenizer
from s2s.models.base import BatchedState, Seq2Seq
from s2s.nn.layers import Tokens, Vectors
from s2s.recipe.pairs import PairRecipe
from s2s.recipe.schema import BleuTokenizer
from s2s.tasks.base import Evaluation, LoadedModel, check_case, check_comparable, check_tokenizers
from s2s.tasks.protocols import RescoredHypotheses

if TYPE_CHECKING:
    from s2s.evaluation.significance import Comparison

State = TypeVar("State", bound=BatchedState)
_SAMPLES = 3


class TextGeneration:
    """Methods of all tasks that generate one target text for each source."""

    perplexity: ClassVar[bool] = True

    def log_probs(self, model: Seq2Seq, batch: ParallelBatch) -> Float[Tensor, "pieces vocabulary"]:
        """Return the log-probabilities of all tokens, by teacher forcing.

        Returns:
            Log-probabilities (target tokens, vocabulary) at the positions that are not padding, row after row.
        """
        logits = model.logits(batch.source, batch.source_valid, batch.target_in)
        return logits.log_softmax(-1)[batch.target_valid]

    def incremental_log_probs(self, model: Seq2Seq, batch: ParallelBatch) -> Float[Tensor, "pieces vocabulary"]:
        """Return the log-probabilities of `log_probs`, with one token fed per step.

        Returns:
            Log-probabilities (target tokens, vocabulary), in the order of `log_probs`; see `feed_stepwise`.
        """
        memory = model.encoder(batch.source, batch.source_valid)
        begin = _StepwiseOutput(*model.decoder.start(memory, batch.target_in.shape[1]))

        def feed(fed: _StepwiseOutput, tokens: Tokens) -> tuple[Vectors, _StepwiseOutput]:
            """Run one step of the decoder."""
            states, state = model.decoder(fed.context, fed.state, tokens)
            return states, _StepwiseOutput(fed.context, state)

        states = feed_stepwise(feed, begin, batch.target_in)
        return model.projection(states).log_softmax(-1)[batch.target_valid]


@dataclass(frozen=True)
class _StepwiseOutput(BatchedState):
    """Decoder context (fixed) and decoder state (updated at each step)."""

    context: BatchedState
    state: BatchedState


def rescore_texts(run: LoadedModel[PairRecipe, Seq2Seq], batch: ParallelBatch) -> RescoredHypotheses:
    """Rescore the n-best hypotheses of a batch of sources, in fp32.

    Args:
        run: Trained model; `decoding` in its recipe sets the beam.
        batch: Sources, with padding mask.

    Returns:
        Log-probabilities of the search and of teacher forcing.
    """
    real = zip(batch.source, batch.source_valid, strict=True)
    sources = [row[valid].tolist()[:-1] for row, valid in real]
    exact = run.recipe.decoding.model_copy(update={"precision": "fp32"})
    found = TextTranslator(run.model, run.tokenizers[0], run.tokenizers[-1], exact, exact.beam).search(sources)
    return rescore_hypotheses(run.model, batch.source, batch.source_valid, found)


def feed_stepwise(feed: Callable[[State, Tokens], tuple[Vectors, State]], state: State, tokens: Tokens) -> Vectors:
    """Return decoder states before the projection, with one token fed per step.

    The rows of the state are reversed before each step, because a beam search reorders them.

    Args:
        feed: One step: takes a state and tokens (batch, 1), and returns hidden states (batch, 1, width) and the new
            state.
        state: State before the first token.
        tokens: Tokens (batch, target).

    Returns:
        Hidden states (batch, target, width).
    """
    rows, found = torch.arange(len(tokens), device=tokens.device), []
    turn = rows.flip(0)
    for place in range(tokens.shape[1]):
        # A beam search selects rows of the state after each step; here the selection is a reversal.
        rows, state = rows[turn], state.select(turn)
        states, state = feed(state, tokens[rows, place : place + 1])
        # `rows` is a reversal or the identity, so indexing by it restores the original order.
        found.append(states[rows, 0])
    return torch.stack(found, dim=1)


def rescore_hypotheses(
    model: Seq2Seq,
    source: Shaped[Tensor, "batch ..."],
    valid: Bool[Tensor, "batch source"],
    found: Sequence[Sequence[Hypothesis]],
) -> RescoredHypotheses:
    """Recompute the log-probabilities of hypotheses by teacher forcing.

    Args:
        source: Sources of a batch, (batch, source) for texts.
        valid: Padding mask, True at real positions.

    Returns:
        Log-probabilities of the search and of teacher forcing, hypothesis by hypothesis.
    """
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
    """Return the log-probability of one target for each source of a batch.

    Args:
        source: Sources of a batch, (batch, source) for texts.
        valid: Padding mask, True at real positions.
        targets: Tokens of each target, without `BOS` and `EOS`.

    Returns:
        Log-probabilities in nats, summed over the target's tokens and its `EOS`.
    """
    empty = [[] for _ in targets]
    batch = collate(empty, targets, range(len(targets))).to(source.device)
    memory = model.encoder(source, valid)
    context, state = model.decoder.start(memory, batch.target_in.shape[1])
    # Teacher forcing: all target tokens at once, so that the final state is not needed.
    states, _ = model.decoder(context, state, batch.target_in)  # (batch, target, width)
    # The log-probability of each target token, and the sum over tokens without padding.
    each = model.projection(states).log_softmax(-1).gather(2, batch.target_out.unsqueeze(2)).squeeze(2)
    return (each * batch.target_valid).sum(dim=1)


@dataclass(frozen=True)
class GenerationEvaluation(Evaluation):
    """Scores of generated texts against their references.

    Attributes:
        length_penalty: Length penalty of the beam search.
        lowercase: True if scored without regard to case.
        own_case: True if `lowercase` is the default of the run. A model that writes only lower case is scored without
            regard to case, because it cannot match cased references.
        scores: Scores by name of the metric.
        references: One reference for each text, or a list of references.
        tokenizer: sacreBLEU tokenizer for BLEU and TER.
        length_limited: Number of texts that the length limit ended; None if there are none.
    """

    metrics: ClassVar[Sequence[str]] = NAMES

    beam: int
    length_penalty: float
    lowercase: bool
    own_case: bool
    scores: dict[str, Score]
    references: list[str] | list[list[str]]
    tokenizer: BleuTokenizer = field(default="13a", kw_only=True)
    length_limited: LengthLimited | None = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def inputs(self) -> list[str]:
        """Sources, or names of the images."""

    @property
    @abstractmethod
    def outputs(self) -> list[str]:
        """Generated texts."""

    def notes(self) -> list[str]:
        return [*super().notes(), *([f"  {self.length_limited}"] if self.length_limited else [])]

    def headline_metrics(self) -> dict[str, float]:
        return {name: score.value for name, score in self.scores.items()}

    def score_table(self, of_what: str) -> list[str]:
        """Return the headline and the scores as lines.

        Args:
            of_what: Number and kind of the inputs, such as `20 sentences`.
        """
        case = "lower-cased" if self.lowercase else "cased"
        head = f"{self.run}, checkpoint {self.checkpoint}, {self.split}: {of_what}, beam {self.beam}, {case}"
        note = describe_tokenizer(self.tokenizer, self.references)
        return [head, *([f"  {note}"] if note else []), *score_lines(self.scores)]

    def samples(self) -> list[tuple[str, str]]:
        """Return some different inputs with their outputs, spread over the split."""
        pairs = list(dict(zip(self.inputs, self.outputs, strict=True)).items())
        return pairs[:: max(1, len(pairs) // _SAMPLES)][:_SAMPLES]

    @property
    def file(self) -> str:
        """File name in the run's folder; has a suffix if case was ignored by request."""
        return f"evaluation-{self.split}{'' if self.own_case else '-lowercase'}.json"

    @classmethod
    def compare(cls, evaluations: Sequence[Self]) -> "list[Comparison]":
        """Compare generated texts by paired approximate randomization.

        Args:
            evaluations: Evaluations of the same inputs and references; the first is the baseline.

        Returns:
            One comparison for each evaluation and metric; the first has no p-value.

        Raises:
            UserError: The evaluations differ in inputs, references, case or tokenizer.
        """
        from s2s.evaluation.significance import compare

        first = evaluations[0]
        check_comparable(evaluations, lambda each: (each.inputs, each.references))
        check_case([each.lowercase for each in evaluations])
        check_tokenizers([each.tokenizer for each in evaluations])
        tokenization = choose_tokenization(first.references, first.tokenizer)
        texts = {each.run: each.outputs for each in evaluations}
        return compare(texts, first.references, first.lowercase, cls.metrics, tokenization)
