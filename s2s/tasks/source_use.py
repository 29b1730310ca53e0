"""Scores of given targets: losses by pair and token, rescoring of hypotheses, and a test of the use of sources.

All are computed by teacher forcing, but for `feed_stepwise`, with which a self-test compares it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from s2s.data.batches import ParallelBatch, collate, make_batches
from s2s.data.tokenized import TokenizedDataset
from s2s.decoding.beam_search import Hypothesis
from s2s.decoding.generate import TextTranslator
from s2s.models.base import BatchedState, Seq2Seq
from s2s.nn.layers import Tokens, Vectors
from s2s.recipe.pairs import BatchSettings, PairRecipe
from s2s.tasks.base import LoadedModel
from s2s.tasks.protocols import RescoredHypotheses
from s2s.tasks.seq2seq import fitting_pairs
from s2s.training.device import DeviceContext

State = TypeVar("State", bound=BatchedState)


def pair_losses(
    model: Seq2Seq, data: TokenizedDataset, batches: BatchSettings, device_context: DeviceContext
) -> Float[np.ndarray, " pairs"]:
    """Compute the cross-entropy of each pair in nats, summed over its target tokens, without dropout."""
    losses = np.zeros(len(data))
    for rows, each, valid in token_losses(model, data, batches, device_context):
        losses[rows] = (each * valid).sum(axis=1)
    return losses


def token_losses(
    model: Seq2Seq, data: TokenizedDataset, batches: BatchSettings, device_context: DeviceContext
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Compute the cross-entropy of each target token, without dropout.

    Yields:
        For each batch: rows of its pairs, cross-entropy in nats (batch, target), and the padding mask (batch, target),
        True for real tokens.
    """
    model.eval()
    longest = int(max(data.source_lengths.max(), data.target_lengths.max()))
    with torch.no_grad(), device_context.mixed_precision():
        for rows in make_batches(data.source_lengths, data.target_lengths, max(batches.tokens, longest), 0, 0):
            batch = collate(*data.rows(rows), rows).to(device_context.device)
            scores = model.logits(batch.source, batch.source_valid, batch.target_in).float()
            each = nn.functional.cross_entropy(scores.transpose(1, 2), batch.target_out, reduction="none")
            yield rows, each.cpu().double().numpy(), batch.target_valid.cpu().numpy()


def token_scores(
    model: Seq2Seq,
    source: Shaped[Tensor, "batch ..."],
    valid: Bool[Tensor, "batch source"],
    targets: Sequence[Sequence[int]],
) -> Float[Tensor, "batch target"]:
    """Return the log-probabilities of the tokens of one target for each source of a batch.

    Args:
        valid: Padding mask, True at real positions.
        targets: Tokens of each target, without `BOS` and `EOS`.

    Returns:
        Log-probabilities in nats of the target's tokens and its `EOS`; 0 for padding.
    """
    batch = collate([[] for _ in targets], targets, range(len(targets))).to(source.device)
    memory = model.encoder(source, valid)
    context, state = model.decoder.start(memory, batch.target_in.shape[1])
    # Teacher forcing: all target tokens at once, so that the final state is not needed.
    states, _ = model.decoder(context, state, batch.target_in)  # (batch, target, width)
    # The log-probability of each target token.
    each = model.log_probabilities(states).gather(2, batch.target_out.unsqueeze(2)).squeeze(2)
    return each * batch.target_valid


def rescore_texts(run: LoadedModel[PairRecipe, Seq2Seq], batch: ParallelBatch) -> RescoredHypotheses:
    """Rescore the n-best hypotheses of a batch of sources, in fp32, with the beam of the recipe.

    The search has no copy penalty, which its scores would contain and the model's do not.
    """
    sources = [row[valid].tolist()[:-1] for row, valid in zip(batch.source, batch.source_valid, strict=True)]
    exact = run.recipe.decoding.model_copy(update={"precision": "fp32", "copy_penalty": 0.0})
    found = TextTranslator(run.model, run.tokenizers[0], run.tokenizers[-1], exact, exact.beam).search(sources)
    return rescore_hypotheses(run.model, batch.source, batch.source_valid, found)


def rescore_hypotheses(
    model: Seq2Seq,
    source: Shaped[Tensor, "batch ..."],
    valid: Bool[Tensor, "batch source"],
    found: Sequence[Sequence[Hypothesis]],
) -> RescoredHypotheses:
    """Recompute the log-probabilities of the hypotheses of a batch of sources by teacher forcing.

    Args:
        valid: Padding mask, True at real positions.
    """
    rows = [row for row, hypotheses in enumerate(found) for _ in hypotheses]
    every = [hypothesis for hypotheses in found for hypothesis in hypotheses]
    again = token_scores(model, source[rows], valid[rows], [h.tokens for h in every]).sum(dim=1)
    reported = torch.tensor([h.log_probability for h in every], dtype=again.dtype, device=again.device)
    return RescoredHypotheses(reported, again, 1 + max(len(h.tokens) for h in every))


@dataclass(frozen=True)
class _Decoding(BatchedState):
    """Decoder context (fixed) and decoder state (updated at each step)."""

    context: BatchedState
    state: BatchedState


def decode_stepwise(model: Seq2Seq, batch: ParallelBatch) -> Float[Tensor, "batch target width"]:
    """Return the decoder's hidden states for a batch, with one target token fed per step; see `feed_stepwise`."""
    memory = model.encoder(batch.source, batch.source_valid)

    def feed(fed: _Decoding, tokens: Tokens) -> tuple[Vectors, _Decoding]:
        states, state = model.decoder(fed.context, fed.state, tokens)
        return states, _Decoding(fed.context, state)

    return feed_stepwise(feed, _Decoding(*model.decoder.start(memory, batch.target_in.shape[1])), batch.target_in)


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


@dataclass(frozen=True)
class SourceUse:
    """Value of the sources for a translator, on the same targets.

    Attributes:
        right: Loss with the right sources, in nats per target token.
        exchanged: Loss with the sources of other sentences of about the same length, in nats per target token.
    """

    right: float
    exchanged: float
    pairs: int


def exchanged_rows(lengths: Int[np.ndarray, " pairs"], seed: int = 1) -> Int[np.ndarray, " pairs"]:
    """Return a derangement that exchanges rows of about the same length.

    Rows are sorted by length, and neighbors are swapped in pairs; an odd number ends with a cycle of three. A source of
    a different length would be recognizable by its length. Ties in length are broken at random.

    Args:
        lengths: Lengths of at least two rows.

    Returns:
        For each row, another row; every row occurs once.

    Example:
        >>> import numpy as np
        >>> exchanged_rows(np.array([3, 9, 4, 8]))
        array([2, 3, 0, 1])
    """
    order = np.lexsort((np.random.default_rng(seed).permutation(len(lengths)), lengths))
    partner = np.arange(len(lengths)) ^ 1
    if len(lengths) % 2:
        partner[-3:] = [len(lengths) - 2, len(lengths) - 1, len(lengths) - 3]
    rows = np.empty_like(order)
    rows[order] = order[partner]
    return rows


def source_use(
    model: Seq2Seq, data: TokenizedDataset, batches: BatchSettings, device_context: DeviceContext
) -> SourceUse | None:
    """Measure the losses with the right sources and with exchanged sources.

    Pairs that are longer than the model's positions are left out, and those whose exchanged source is the same text.

    Returns:
        Both losses; None if no pair has a different source.
    """
    data = fitting_pairs(model, data)
    if len(data) < 2:
        return None
    sources, targets = data.rows(np.arange(len(data)))
    others = exchanged_rows(data.source_lengths)
    kept = np.array([not np.array_equal(sources[i], sources[j]) for i, j in enumerate(others.tolist())])
    if not kept.any():
        return None
    exchanged = TokenizedDataset.from_rows([sources[j] for j in others.tolist()], targets)
    tokens = float(data.target_lengths[kept].sum())
    right, wrong = (
        float(pair_losses(model, pairs, batches, device_context)[kept].sum()) / tokens for pairs in (data, exchanged)
    )
    return SourceUse(right, wrong, int(kept.sum()))
