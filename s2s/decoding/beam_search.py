"""Beam search for every model; size 1 is greedy search.

`search` decodes a batch of sources. A hypothesis is a target so far; a continuation of it is the hypothesis with one
more token. This is the algorithm:

1. A beam has `size` slots, each with a hypothesis that is not finished (live). At each step slot i takes the best
   continuation of the hypotheses in slots 0 to i that no earlier slot has taken (`topk_continuations`). So the slots of
   a narrow beam are the first slots of a wide one. For example, slot 0 takes the best continuation of hypothesis 0;
   slot 1 takes the best of what is left of hypotheses 0 and 1.
2. A hypothesis finishes if EOS is at least as likely as the least likely continuation that its own slot or a later
   slot takes. At the length limit EOS is the only continuation.
3. The score of a finished hypothesis is its log probability divided by the length penalty ((5 + length) / 6)^α, where
   the length counts EOS (Wu et al. 2016, equation 14).
4. A sentence is done when no live hypothesis can still enter the list of its `nbest` best finished hypotheses. A log
   probability can only fall, so an upper bound on the score is the log probability so far, divided by the largest
   penalty within the length limit.

The common rule "done when `size` hypotheses have finished" is not used: with a confident model, unlikely hypotheses
finish early, and a wide beam would return one of them instead of the likely hypothesis that is still live.

Consequences: a wider beam never returns a lower score than a narrower one; size 1 is greedy search, which stops at the
first EOS; and a beam as wide as the space of targets is exhaustive.

In diverse beam search each group of slots is such a beam, and tokens that earlier groups take are penalized.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from s2s.data.dataset import to_device
from s2s.data.tokenizers import BOS, EOS, PAD
from s2s.decoding.constraints import NO_CONSTRAINTS, Constraints, copy_penalties, forced_tokens
from s2s.models.base import Seq2Seq
from s2s.nn.layers import Inputs, PaddingMask
from s2s.nn.precision import autocast_matmul

_NEVER = float("-inf")
# Tokens that share one maximum in the first pass of a top-k on a CPU. Measured with 8,000 tokens and 5 hypotheses of 64
# sentences on two cores: a top-k of the best groups takes a third of the time of a top-k of all tokens.
_GROUP = 64
# For each slot: row, rank and log probability of its continuation, see `topk_continuations`.
_Slots = tuple[
    Int[np.ndarray, "sentences size"], Int[np.ndarray, "sentences size"], Float[np.ndarray, "sentences size"]
]


@dataclass(frozen=True)
class Beam:
    """Settings of a beam search.

    Attributes:
        size: Live hypotheses of each sentence; 1 is greedy search.
        nbest: Hypotheses to return for each sentence, at most `size`.
        length_penalty: The exponent α, 0 or more; 0 compares log probabilities.
        precision: Data type of matrix products.
        constraints: Constraints of all targets.
        groups: Groups of slots in diverse beam search, a divisor of `size`; 1 is ordinary beam search.
        diversity_penalty: Subtracted from the log probability of a continuation for each continuation by the same
            token, or EOS, that an earlier group takes at this step (Vijayakumar et al. 2018). It decides which
            continuations a group takes; scores of hypotheses remain those of the model.
        copy_penalty: Subtracted from the log probability of each token that occurs in the source.

    Example:
        >>> Beam(length_penalty=1.0).penalty(7)
        2.0
        >>> Beam(length_penalty=0.0).penalty(7)
        1.0
    """

    size: int = 5
    nbest: int = 1
    length_penalty: float = 1.0
    precision: torch.dtype = torch.float32
    constraints: Constraints = NO_CONSTRAINTS
    groups: int = 1
    diversity_penalty: float = 0.5
    copy_penalty: float = 0.0

    def penalty(self, length: int) -> float:
        """Compute the length penalty ((5 + length) / 6)^α (Wu et al. 2016, equation 14).

        Args:
            length: Tokens of a hypothesis, EOS included.

        Returns:
            The divisor of its log probability.
        """
        return ((5 + length) / 6) ** self.length_penalty


@dataclass(frozen=True)
class Hypothesis:
    """Finished hypothesis: a target with its score.

    Attributes:
        tokens: Token ids, without BOS and EOS.
        score: Log probability divided by the length penalty.
        log_probability: Log probability of the tokens and EOS in nats; of a search, less copy penalties.
        cut: True if the length limit, not the model, ended it: another token would have been more likely than EOS.
    """

    tokens: tuple[int, ...]
    score: float
    log_probability: float
    cut: bool


@torch.inference_mode()
def search(
    model: Seq2Seq,
    source: Inputs,
    valid: PaddingMask,
    limits: Int[np.ndarray, " batch"],
    beam: Beam,
    tokens: int | None = None,
    before_step: Callable[[], None] | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """Search the best targets of a batch of sources (beam search).

    Args:
        model: Model in evaluation mode.
        source: Inputs of the encoder, `(batch, source)` for tokens; rows of tokens end with EOS.
        valid: Padding mask, `(batch, source)`, True for real positions.
        limits: Most tokens of each target, EOS not counted, 0 or more, `(batch,)`.
        beam: Settings of the search.
        tokens: Only the first `tokens` ids of the vocabulary are written; None for all.
        before_step: Called before each step of the decoder. An exception that it raises ends the search.
        prefixes: Tokens with which each target begins; they raise its limit if it is lower. None for none.

    Returns:
        For each sentence its `nbest` hypotheses, best first; fewer if fewer exist.

    Example:
        Two best targets of one source, with an untrained model:

        >>> from s2s.models.transformer import Settings, build
        >>> _ = torch.manual_seed(0)
        >>> model = build(Settings(width=16, heads=2, feedforward=32), source_size=20, target_size=20).eval()
        >>> source = torch.tensor([[5, 6, 7, EOS]])
        >>> [best, second] = search(model, source, source > 0, limits=np.array([3]), beam=Beam(size=4, nbest=2))[0]
        >>> best.score > second.score, len(best.tokens) <= 3
        (True, True)
    """
    groups = beam.groups
    if groups > 1:
        # Each group is searched as a sentence, so that groups of a sentence may finish at different steps.
        source, valid = source.repeat_interleave(groups, dim=0), valid.repeat_interleave(groups, dim=0)
        limits, beam = np.repeat(limits, groups), replace(beam, size=beam.size // groups)
        prefixes = prefixes and [prefix for prefix in prefixes for _ in range(groups)]
    with autocast_matmul(beam.precision, source.device):
        running = _Search(model, source, valid, limits, beam, tokens, prefixes)
        while len(running.sentences):
            if before_step is not None:
                before_step()
            running.step()
    if groups == 1:
        return running.pools
    return [_join_groups(running.pools[i : i + groups], beam.nbest) for i in range(0, len(running.pools), groups)]


def _join_groups(pools: Sequence[list[Hypothesis]], nbest: int) -> list[Hypothesis]:
    # The best hypothesis of each group, then the second best, and so on, without duplicates.
    ranks = [[h for h in rank if h is not None] for rank in itertools.zip_longest(*pools)]
    ranked = [h for rank in ranks for h in sorted(rank, key=_by_score)]
    chosen = list({h.tokens: h for h in ranked}.values())[:nbest]
    return sorted(chosen, key=_by_score)


def _by_score(hypothesis: Hypothesis) -> float:
    return -hypothesis.score


@dataclass(frozen=True)
class _Continuations:
    """Continuations of each live hypothesis, on the CPU, where slots are decided.

    Attributes:
        log_probability: Log probability of each hypothesis with one more token, best first, EOS excluded.
        token: Ids of these tokens.
        end: Log probability of each hypothesis with EOS.
        cut: True for a hypothesis that must end here, although another token is more likely.
    """

    log_probability: Float[np.ndarray, "sentences width best"]
    token: Int[np.ndarray, "sentences width best"]
    end: Float[np.ndarray, "sentences width"]
    cut: Bool[np.ndarray, "sentences width"]


class _Search:
    """State of a search: unfinished sentences and their live hypotheses.

    Rows of a sentence are adjacent; the row number within the sentence is the slot.

    Attributes:
        pools: Best finished hypotheses of each sentence of the batch, best first, at most `nbest`.
        to_beat: `(batch,)`, the score that a hypothesis must exceed to enter its pool.
        sentences: `(sentences,)`, indices of the unfinished sentences in the batch.
        limits: `(sentences,)`, most tokens of each target.
        width: Rows of each sentence, which are the slots in use.
        context_of_sentence: Context of the decoder, one row for each sentence.
        context_of_hypothesis: The same for each hypothesis, see `BatchedState.repeat_for_beams`.
        state: State of the decoder, `sentences · width` rows.
        written: `(sentences · width, length)`, tokens of each hypothesis, on the CPU.
        newest: `(sentences · width, 1)`, the last token, or BOS.
        log_probability: `(sentences · width,)`, log probability of each hypothesis, in nats; -inf for an empty slot.
    """

    def __init__(
        self,
        model: Seq2Seq,
        source: Tensor,
        valid: Tensor,
        limits: np.ndarray,
        beam: Beam,
        tokens: int | None,
        prefixes: Sequence[Sequence[int]] | None,
    ) -> None:
        self.model, self.beam, self.tokens, self.device = model, beam, tokens, source.device
        self.prefixes = prefixes
        self.pools: list[list[Hypothesis]] = [[] for _ in range(len(source))]
        self.to_beat = np.full(len(source), _NEVER)
        self.sentences = np.arange(len(source))
        self.limits = np.asarray(limits)
        if prefixes is not None:
            self.limits = np.maximum(self.limits, [len(prefix) for prefix in prefixes])
        # Encode the sources once. The decoder is fed BOS and then at most `limits` tokens.
        memory = model.encoder(source, valid)
        self.context_of_sentence, self.state = model.decoder.start(memory, int(self.limits.max()) + 1)
        self.context_of_hypothesis = self.context_of_sentence
        # Copy penalty of each next token, (batch, tokens).
        self.copies = copy_penalties(source, valid, beam.copy_penalty) if beam.copy_penalty else None
        # All slots start with the same empty hypothesis, so the first step has one row per sentence.
        self.width = 1
        self.written = np.empty((len(source), 0), dtype=np.int32)
        self.newest = torch.full((len(source), 1), BOS, device=self.device)
        self.log_probability = torch.zeros(len(source), device=self.device)

    def step(self) -> None:
        """Add one token to every live hypothesis."""
        length = self.written.shape[1]
        # 1. Run the decoder: the best continuations of each hypothesis, (sentences, width, best).
        found = self._expand(self.limits == length)
        # 2. Fill the slots of the next step: parent slot and token of each, (sentences, size).
        if self.beam.groups == 1:
            slot, rank, log_probability = topk_continuations(found.log_probability, self.beam.size)
            ends = _is_ending(found.end, log_probability)
        else:
            (slot, rank, picked), ends = self._diverse_continuations(found)
            own = found.log_probability[np.arange(len(slot))[:, None], slot, rank]
            log_probability = np.where(picked > _NEVER, own, picked)
        token = found.token[np.arange(len(slot))[:, None], slot, rank]
        # 3. Move hypotheses that end here into the pools.
        self._finish(found, ends, length)
        # 4. Keep the sentences whose live hypotheses can still improve the pool, (sentences,).
        staying = self._can_improve(log_probability.max(axis=1), length)
        # The last slots stay empty while there are fewer continuations than slots.
        width = 1 + int(np.flatnonzero((log_probability > _NEVER).any(axis=0)).max(initial=0))
        # 5. Reorder the decoder state and append the tokens.
        self._advance(slot[:, :width], token[:, :width], log_probability[:, :width], staying)

    def _expand(self, must_end: Bool[np.ndarray, " sentences"]) -> _Continuations:
        # (rows, 1, width of the model), where rows = sentences · width of the beam
        states, self.state = self.model.decoder(self.context_of_hypothesis, self.state, self.newest)
        # Log probability of each next token, (rows, vocabulary).
        scores = self.model.log_probabilities(states[:, 0])
        if self.copies is not None:
            scores[:, : self.copies.shape[1]] -= self.copies[self.sentences].repeat_interleave(self.width, dim=0)
        free = scores[:, EOS].clone()
        constrained = self._constrain(scores, must_end)
        end = scores[:, EOS].clone()
        # EOS is kept in `end`; PAD and BOS are never written.
        scores[:, PAD] = scores[:, BOS] = scores[:, EOS] = _NEVER
        if self.tokens is not None:
            scores[:, self.tokens :] = _NEVER
        if constrained:
            # A target of which the constraints leave nothing to write ends.
            end = torch.where(scores.amax(dim=1) == _NEVER, free, end)
        end += self.log_probability
        # (rows, best): no slot needs more than `size` continuations of one hypothesis. Earlier groups take at most
        # `size · (groups - 1)` tokens, so the best `size` of a group are among the `size · groups` best ones without a
        # penalty.
        best, token = top_tokens(scores, self.beam.size * self.beam.groups)
        best += self.log_probability.unsqueeze(1)
        # One transfer from the device, because each transfer waits for it. Floats are reinterpreted as integers, not
        # rounded.
        packed = torch.cat((best.view(torch.int32), token.int(), end.view(torch.int32).unsqueeze(1)), dim=1)
        rows = packed.cpu().numpy().reshape(len(self.sentences), self.width, -1)
        count = best.shape[1]
        log_probability, end_on_cpu = rows[..., :count].view(np.float32), rows[..., -1:].view(np.float32)[..., 0]
        cut = must_end[:, None] & (log_probability[..., 0] > end_on_cpu)
        if must_end.any():
            log_probability = np.where(must_end[:, None, None], np.float32(_NEVER), log_probability)
        return _Continuations(log_probability, rows[..., count : 2 * count], end_on_cpu, cut)

    def _constrain(self, scores: Float[Tensor, "rows vocabulary"], must_end: Bool[np.ndarray, " sentences"]) -> bool:
        # Returns False if there is nothing to apply.
        forced = None
        if self.prefixes is not None:
            forced = forced_tokens([self.prefixes[int(i)] for i in self.sentences], self.written.shape[1])
        if forced is None and self.beam.constraints == NO_CONSTRAINTS:
            return False
        forced = None if forced is None else forced.repeat(self.width)
        self.beam.constraints.apply(scores, self.written, must_end.repeat(self.width), forced)
        return True

    def _finish(self, found: _Continuations, ends: Bool[np.ndarray, "sentences width"], length: int) -> None:
        # Scores of the hypotheses with EOS, which counts for the length, (sentences, width).
        scores = found.end.astype(np.float64) / self.beam.penalty(length + 1)
        # A hypothesis that ends enters the pool if its score is high enough.
        for sentence, slot in np.argwhere(ends & (scores > self.to_beat[self.sentences][:, None])):
            index = self.sentences[sentence]
            tokens = tuple(self.written[sentence * self.width + slot].tolist())
            log_probability, cut = float(found.end[sentence, slot]), bool(found.cut[sentence, slot])
            pool = self.pools[index]
            # Keep the `nbest` best ones; a full pool raises the score that later hypotheses must exceed.
            pool.append(Hypothesis(tokens, float(scores[sentence, slot]), log_probability, cut))
            pool.sort(key=_by_score)
            del pool[self.beam.nbest :]
            if len(pool) == self.beam.nbest:
                self.to_beat[index] = pool[-1].score

    def _diverse_continuations(self, found: _Continuations) -> tuple[_Slots, Bool[np.ndarray, "sentences width"]]:
        # As `topk_continuations`, but of log probabilities with the diversity penalty, group after group; and the
        # hypotheses that end here.
        groups, penalty, shape = self.beam.groups, self.beam.diversity_penalty, (len(self.sentences), self.beam.size)
        slot, rank, picked = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.full(shape, _NEVER, np.float32)
        ends = np.zeros(found.end.shape, dtype=bool)
        # Uses of each token at this step, EOS included, (sentences of the batch, tokens).
        uses = np.zeros((len(self.pools) // groups, max(EOS, int(found.token.max())) + 1), dtype=np.float32)
        for group in range(groups):
            rows = np.flatnonzero(self.sentences % groups == group)
            of_rows, tokens, each = self.sentences[rows] // groups, found.token[rows], np.arange(len(rows))[:, None]
            offers = found.log_probability[rows] - penalty * uses[of_rows[:, None, None], tokens]
            order = np.argsort(-offers, axis=2, kind="stable")
            slot[rows], place, picked[rows] = topk_continuations(np.take_along_axis(offers, order, 2), self.beam.size)
            rank[rows] = order[each, slot[rows], place]
            ends[rows] = _is_ending(found.end[rows] - penalty * uses[of_rows, EOS][:, None], picked[rows])
            np.add.at(uses, (of_rows[:, None], tokens[each, slot[rows], rank[rows]]), picked[rows] > _NEVER)
            uses[of_rows, EOS] += (ends[rows] & (found.end[rows] > _NEVER)).sum(axis=1)
        return (slot, rank, picked), ends

    def _can_improve(self, best_live: Float[np.ndarray, " sentences"], length: int) -> Bool[np.ndarray, " sentences"]:
        # NaN compares as False, so a diverged model returns no hypothesis.
        alive = best_live > _NEVER
        if self.beam.size == 1:
            return alive & np.array([not self.pools[i] for i in self.sentences], dtype=bool)
        # The best score that is still possible: log probability does not fall further, and the target is the longest.
        largest = ((5 + self.limits + 1) / 6) ** self.beam.length_penalty
        return alive & (best_live / largest > self.to_beat[self.sentences])

    def _advance(
        self,
        slot: Int[np.ndarray, "sentences width"],
        token: Int[np.ndarray, "sentences width"],
        log_probability: Float[np.ndarray, "sentences width"],
        staying: Bool[np.ndarray, " sentences"],
    ) -> None:
        before, width = len(self.written), slot.shape[1]
        # Row of each new hypothesis's parent, for the sentences that stay: (sentences, width) -> (sentences · width,).
        parent = (slot + self.width * np.arange(len(slot))[:, None])[staying].reshape(-1)
        token, log_probability = token[staying].reshape(-1), log_probability[staying].reshape(-1)
        # One transfer to the device.
        packed = np.stack((parent.astype(np.int32), token, log_probability.view(np.int32)))
        parents, tokens, self.log_probability = to_device(torch.from_numpy(packed), self.device)
        self.log_probability, parents = self.log_probability.view(torch.float32), parents.long()
        # All rows of a sentence have the same context, so it changes only when sentences are done or the width changes.
        if not staying.all():
            chosen = parents.view(-1, width)[:, 0] // self.width
            self.context_of_sentence = self.context_of_sentence.select(chosen)
        if width != self.width or not staying.all():
            self.context_of_hypothesis = self.context_of_sentence.repeat_for_beams(
                int(staying.sum()), width, self.device
            )
        # Reorder the decoder state (key/value cache), unless each hypothesis continues its own row.
        if not np.array_equal(parent, np.arange(before)):
            self.state = self.state.select(parents)
        # Append the tokens: (sentences · width, length + 1).
        self.newest, self.written = tokens.long().unsqueeze(1), np.column_stack((self.written[parent], token))
        self.sentences, self.limits, self.width = self.sentences[staying], self.limits[staying], width


def _is_ending(
    end: Float[np.ndarray, "sentences width"], picked: Float[np.ndarray, "sentences size"]
) -> Bool[np.ndarray, "sentences width"]:
    # True if EOS is better than the least likely continuation that the slot of a hypothesis or a later slot takes.
    return end >= np.minimum.accumulate(picked[:, ::-1], axis=1)[:, ::-1][:, : end.shape[1]]


def top_tokens(
    scores: Float[Tensor, "rows tokens"], count: int
) -> tuple[Float[Tensor, "rows best"], Int[Tensor, "rows best"]]:
    """Find the tokens with the highest scores of each row (top-k).

    On a CPU the maxima of groups of tokens are compared first: the best n tokens are in the n groups with the highest
    maxima.

    Args:
        scores: Scores, `(rows, tokens)`, one for each token of the vocabulary.
        count: Tokens to find in each row.

    Returns:
        Scores and ids of the `min(count, tokens)` best tokens, best first.

    Example:
        >>> best, tokens = top_tokens(torch.tensor([[0.1, 0.7, 0.2]]), count=2)
        >>> tokens
        tensor([[1, 2]])
    """
    count = min(count, scores.shape[1])
    if scores.device.type != "cpu" or scores.shape[1] < 2 * count * _GROUP:
        best, tokens = scores.topk(count, dim=1)
        return best, tokens
    groups, rest = divmod(scores.shape[1], _GROUP)
    grouped = scores[:, : groups * _GROUP].unflatten(1, (groups, _GROUP))
    group = grouped.amax(dim=2).topk(count, dim=1, sorted=False).indices
    candidates = grouped.gather(1, group.unsqueeze(2).expand(-1, -1, _GROUP)).flatten(1)
    if rest:
        # The last tokens fill no group, so all of them are candidates.
        candidates = torch.cat((candidates, scores[:, groups * _GROUP :]), dim=1)
    best, chosen = candidates.topk(count, dim=1)
    in_group = group.gather(1, (chosen // _GROUP).clamp_max(count - 1)) * _GROUP + chosen % _GROUP
    return best, in_group.where(chosen < count * _GROUP, chosen + (groups - count) * _GROUP)


def topk_continuations(
    log_probability: Float[np.ndarray, "sentences rows best"], size: int
) -> tuple[Int[np.ndarray, "sentences size"], Int[np.ndarray, "sentences size"], Float[np.ndarray, "sentences size"]]:
    """Choose the continuations that fill the slots of a beam, slot by slot.

    Slot i takes the best continuation of rows 0 to i that no earlier slot has taken. So the first n slots do not depend
    on how many slots follow, and a wider beam holds everything that a narrower one holds
    (Lemons et al. 2022, "Beam Search: Faster and Monotonic", ICAPS).

    Args:
        log_probability: Continuations of each live hypothesis, `(sentences, rows, best)`, best first; row i is the
            hypothesis in slot i.
        size: Slots to fill.

    Returns:
        For each slot the row that is continued, the rank of the continuation in that row, and its log probability,
        which is -inf for a slot that stays empty. All are `(sentences, size)`.

    Example:
        Slot 0 continues row 0; slot 1 prefers the best continuation of row 1 to the second of row 0:

        >>> row, rank, picked = topk_continuations(np.array([[[-1.0, -3.0], [-2.0, -4.0]]]), size=2)
        >>> row.tolist(), rank.tolist(), picked.tolist()
        ([[0, 1]], [[0, 0]], [[-1.0, -2.0]])
    """
    sentences, rows, best = log_probability.shape
    each = np.arange(sentences)
    # A row without remaining continuations has -inf at the end.
    offers = np.concatenate((log_probability, np.full((sentences, rows, 1), _NEVER, log_probability.dtype)), axis=2)
    heads, taken = offers[:, :, 0].copy(), np.zeros((sentences, rows), dtype=np.int64)
    row, rank = np.empty((2, sentences, size), dtype=np.int64)
    picked = np.empty((sentences, size), dtype=log_probability.dtype)
    for slot in range(size):
        chosen = heads[:, : slot + 1].argmax(axis=1)
        row[:, slot], rank[:, slot], picked[:, slot] = chosen, taken[each, chosen], heads[each, chosen]
        following = np.minimum(rank[:, slot] + 1, best)
        taken[each, chosen], heads[each, chosen] = following, offers[each, chosen, following]
    return row, np.minimum(rank, best - 1), picked
