"""Beam search: the only search, for every model alike.

A search keeps up to `size` live hypotheses of each sentence and a pool of finished ones. A hypothesis finishes when
EOS is among the `size` best ways to go on; at its length limit, EOS is the only way. What a finished hypothesis is
worth is its log probability divided by ((5 + length) / 6)^α (Wu et al. 2016, equation 14), EOS counted in the length.
Live hypotheses all have the same length and are compared by log probability, so finished and live ones are never mixed.

A sentence is done when `size` of its hypotheses have finished, or when no live one can still enter its `nbest`: a log
probability only falls, so the best a live hypothesis can reach is what it has now, at the length limit. Sentences that
are done leave the batch. With size 1 this is greedy search; with a beam as wide as the space it is exhaustive.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from s2s.data.examples import sent
from s2s.data.tokenizers import BOS, EOS, PAD
from s2s.decoding.selection import best_ways
from s2s.models.contract import Seq2Seq
from s2s.nn.layers import Inputs, Valid
from s2s.nn.precision import products_in

_NEVER = float("-inf")


@dataclass(frozen=True)
class Beam:
    """How to search.

    Attributes:
        size: live hypotheses of each sentence; 1 is greedy search.
        nbest: hypotheses returned for each sentence, at most `size`.
        length_penalty: the exponent α; 0 compares log probabilities.
        precision: of matrix products.
    """

    size: int = 5
    nbest: int = 1
    length_penalty: float = 1.0
    precision: torch.dtype = torch.float32

    def penalty(self, length: int) -> float:
        """What the log probability of a hypothesis of this length, EOS counted, is divided by."""
        return ((5 + length) / 6) ** self.length_penalty


@dataclass(frozen=True)
class Hypothesis:
    """A possible target without BOS and EOS.

    The log probability, in nats, is that of its pieces and EOS, its score that over the length penalty, and it is cut
    where the length limit, not the model, ended it: another piece than EOS would have been the best way to go on.
    """

    tokens: tuple[int, ...]
    score: float
    log_probability: float
    cut: bool


@torch.inference_mode()
def search(
    model: Seq2Seq,
    source: Inputs,
    valid: Valid,
    limits: Int[np.ndarray, " batch"],
    beam: Beam,
    pieces: int | None = None,
) -> list[list[Hypothesis]]:
    """The `nbest` hypotheses of each sentence, best first.

    The model is in evaluation mode, sources of pieces end with `EOS`, and limits are the most pieces of each target,
    from 0 on, `EOS` not counted. Only the first `pieces` of the vocabulary are written: others, such as sentinels, are
    no text; None stands for all.
    """
    with products_in(beam.precision, source.device):
        running = _Search(model, source, valid, limits, beam, pieces)
        while len(running.sentences):
            running.step()
    return [sorted(pool, key=lambda h: -h.score)[: beam.nbest] for pool in running.pools]


@dataclass
class _Candidates:
    """Ways to go on, best first, for each sentence: numbers on the processor, where decisions are made.

    They come from the device in one piece, and go back in one: each time it is asked, it stands still. Where some must
    end, `cut` tells of each way whether what it follows would have gone on.
    """

    log_probability: Float[np.ndarray, "sentences ways"]
    piece: Int[np.ndarray, "sentences ways"]
    parent: Int[np.ndarray, "sentences ways"]
    cut: Int[np.ndarray, "sentences ways"] | None = None

    @staticmethod
    def received(log_probability: Tensor, piece: Tensor, parent: Tensor, goes_on: Tensor | None) -> "_Candidates":
        """Of the hypotheses in `goes_on`, where it is given, each tells whether it would have gone on."""
        cut = () if goes_on is None else (goes_on[parent].int(),)
        found = torch.stack((log_probability.view(torch.int32), piece.int(), parent.int(), *cut)).cpu().numpy()
        return _Candidates(found[0].view(np.float32), *found[1:])

    def on_device(self, staying: Bool[np.ndarray, " sentences"], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Log probability, piece and parent of each way of the staying sentences."""
        both = np.stack((self.log_probability.view(np.int32), self.piece, self.parent))[:, staying].reshape(3, -1)
        log_probability, piece, parent = sent(torch.from_numpy(both), device)
        return log_probability.view(torch.float32), piece.long(), parent.long()

    def take(self, order: Int[np.ndarray, "sentences chosen"]) -> "_Candidates":
        chosen = (np.take_along_axis(a, order, axis=1) for a in (self.log_probability, self.piece, self.parent))
        return _Candidates(*chosen)


class _Search:
    """What is kept of a search while it runs: of the sentences that are not done, and of their live hypotheses.

    A row stands for a hypothesis; those of a sentence follow each other.

    Attributes:
        pieces: only the first so many pieces of the vocabulary are written; None stands for all.
        pools: the finished hypotheses of each sentence of the batch.
        sentences: `(sentences,)`, which of the batch are not done.
        limits: `(sentences,)`, the most pieces of each one's target.
        width: hypotheses of each sentence.
        context_of_sentence: the decoder's context, of `sentences` rows.
        context_of_hypothesis: the same for each hypothesis, see `Rows.spread`.
        state: the decoder's state, of `sentences · width` rows.
        written: `(sentences · width, length)`, the pieces of each hypothesis, on the processor.
        newest: `(sentences · width, 1)`, the last of them, or `BOS`.
        log_probability: `(sentences · width,)`, of each hypothesis so far, in nats.
    """

    def __init__(
        self, model: Seq2Seq, source: Tensor, valid: Tensor, limits: np.ndarray, beam: Beam, pieces: int | None
    ) -> None:
        self.model, self.beam, self.pieces, self.device = model, beam, pieces, source.device
        self.pools: list[list[Hypothesis]] = [[] for _ in range(len(source))]
        self.sentences = np.arange(len(source))
        self.limits = np.asarray(limits)
        memory = model.encoder(source, valid)
        self.context_of_sentence, self.state = model.decoder.start(memory, int(self.limits.max()) + 1)
        self.context_of_hypothesis = self.context_of_sentence
        # one row a sentence until there are hypotheses to tell apart
        self.width = 1
        self.written = np.empty((len(source), 0), dtype=np.int32)
        self.newest = torch.full((len(source), 1), BOS, device=self.device)
        self.log_probability = torch.zeros(len(source), device=self.device)

    def step(self) -> None:
        """One more piece for every live hypothesis."""
        length = self.written.shape[1]
        ways = self._expand(self.limits == length)
        ends = (ways.piece == EOS) & (ways.log_probability > _NEVER)
        self._finish(ways, ends[:, : self.beam.size], length)
        live = ways.take(np.argsort(ways.piece == EOS, axis=1, kind="stable")[:, : self.beam.size])
        live.log_probability[live.piece == EOS] = _NEVER
        self._go_on(live, self._undecided(live.log_probability.max(axis=1)))

    def _expand(self, must_end: Bool[np.ndarray, " sentences"]) -> _Candidates:
        states, self.state = self.model.decoder(self.context_of_hypothesis, self.state, self.newest)
        # one kernel; `logsumexp` is several, and took four times as long
        scores = self.model.projection(states[:, 0]).float().log_softmax(dim=1)
        scores[:, PAD] = scores[:, BOS] = _NEVER
        if self.pieces is not None:
            scores[:, self.pieces :] = _NEVER
        goes_on = None
        if must_end.any():
            rows = sent(torch.from_numpy(np.flatnonzero(np.repeat(must_end, self.width))), self.device)
            goes_on = torch.zeros(len(scores), dtype=torch.bool, device=self.device)
            goes_on[rows] = scores[rows].argmax(dim=1) != EOS
            end = scores[rows, EOS]
            scores[rows] = _NEVER
            scores[rows, EOS] = end
        # size ways to end and as many to go on are among the best 2·size of the sentence
        ways = best_ways(scores, self.log_probability, self.width, 2 * self.beam.size)
        return _Candidates.received(*ways, goes_on)

    def _finish(self, ways: _Candidates, ends: Bool[np.ndarray, "sentences size"], pieces: int) -> None:
        for sentence, way in np.argwhere(ends):
            written = self.written[ways.parent[sentence, way]].tolist()
            log_probability = float(ways.log_probability[sentence, way])
            score = log_probability / self.beam.penalty(pieces + 1)
            cut = ways.cut is not None and bool(ways.cut[sentence, way])
            self.pools[self.sentences[sentence]].append(Hypothesis(tuple(written), score, log_probability, cut))

    def _undecided(self, best_live: Float[np.ndarray, " sentences"]) -> Bool[np.ndarray, " sentences"]:
        undecided = best_live > _NEVER
        for i in np.flatnonzero(undecided):
            pool = self.pools[self.sentences[i]]
            if len(pool) >= self.beam.size:
                undecided[i] = False
            elif len(pool) >= self.beam.nbest:
                to_beat = sorted((h.score for h in pool), reverse=True)[self.beam.nbest - 1]
                undecided[i] = best_live[i] / self.beam.penalty(int(self.limits[i]) + 1) > to_beat
        return undecided

    def _go_on(self, live: _Candidates, staying: Bool[np.ndarray, " sentences"]) -> None:
        before, width = len(self.written), live.piece.shape[1]
        self.log_probability, tokens, parents = live.on_device(staying, self.device)
        parent, piece = (a[staying].reshape(-1) for a in (live.parent, live.piece))
        # all rows of a sentence have the same context: it moves only when sentences leave or get more rows
        if not staying.all():
            chosen = parents.view(-1, width)[:, 0] // self.width
            self.context_of_sentence = self.context_of_sentence.select(chosen)
        if width != self.width or not staying.all():
            self.context_of_hypothesis = self.context_of_sentence.spread(int(staying.sum()), width, self.device)
        if not np.array_equal(parent, np.arange(before)):
            self.state = self.state.select(parents)
        self.newest, self.written = tokens.unsqueeze(1), np.column_stack((self.written[parent], piece))
        self.sentences, self.limits, self.width = self.sentences[staying], self.limits[staying], width
