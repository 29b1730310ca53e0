"""Beam search compared with exhaustive search, greedy search and rescoring."""

import itertools
import math
import runpy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from s2s.data.tokenizers import BOS, EOS, PAD
from s2s.decoding.beam_search import Beam, search
from s2s.decoding.constraints import Constraints
from s2s.models.base import BatchedState, Decoder, Seq2Seq
from s2s.models.transformer_layers import TransformerDecoder

SIZE = 7

WORDS = [piece for piece in range(SIZE) if piece not in (PAD, BOS, EOS)]


def log_probability(model, source, valid, tokens: tuple[int, ...]) -> float:
    """Teacher forcing of one whole sequence, EOS included."""
    fed = torch.tensor([[BOS, *tokens]])
    scores = model.logits(source, valid, fed).log_softmax(-1)[0]
    return sum(scores[i, piece].item() for i, piece in enumerate([*tokens, EOS]))


def log_probabilities(model, source, valid, space: list[tuple[int, ...]]) -> dict[tuple[int, ...], float]:
    """Teacher forcing of whole sequences of one length, EOS included."""
    fed = torch.tensor([[BOS, *tokens] for tokens in space])
    scores = model.logits(source.expand(len(space), -1), valid.expand(len(space), -1), fed).log_softmax(-1)
    pieces = torch.tensor([[*tokens, EOS] for tokens in space])
    return dict(zip(space, scores.gather(2, pieces[:, :, None]).sum(dim=(1, 2)).tolist(), strict=True))


def _search(model, sources, limits, beam: Beam, pieces: int | None = None):
    source, valid = sources
    return search(model, source, valid, np.array(limits), beam, pieces)


@pytest.mark.parametrize(("penalty", "pieces"), [(0.0, None), (0.6, None), (1.5, None), (0.6, SIZE - 2)])
def test_beam_as_wide_as_the_space_is_exhaustive_search(model, sources, penalty, pieces):
    limits = [3, 2, 3, 1, 0]
    beam = Beam(size=200, nbest=12, length_penalty=penalty)
    found = _search(model, sources, limits, beam, pieces)
    # sentinels, behind all other pieces, are no text
    words = [piece for piece in WORDS if pieces is None or piece < pieces]
    for i, limit in enumerate(limits):
        source, valid = sources[0][i : i + 1], sources[1][i : i + 1]
        scored: dict[tuple[int, ...], float] = {}
        for length in range(limit + 1):
            space = list(itertools.product(words, repeat=length))
            logs = log_probabilities(model, source, valid, space)
            scored |= {tokens: log / beam.penalty(length + 1) for tokens, log in logs.items()}
        expected = sorted(scored.items(), key=lambda item: -item[1])[:12]
        assert [h.tokens for h in found[i]] == [tokens for tokens, _ in expected]
        assert [h.score for h in found[i]] == pytest.approx([score for _, score in expected], abs=1e-5)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_beam_search_reported_score_is_the_rescoring_of_that_very_sequence(model, sources, size):
    beam = Beam(size=size, nbest=size, length_penalty=0.7)
    found = _search(model, sources, [6, 9, 4, 7, 5], beam)
    assert any(len(hypotheses) > 1 for hypotheses in found) or size == 1
    for i, hypotheses in enumerate(found):
        for h in hypotheses:
            again = log_probability(model, sources[0][i : i + 1], sources[1][i : i + 1], h.tokens)
            assert h.log_probability == pytest.approx(again, abs=1e-5)
            assert h.score == pytest.approx(again / beam.penalty(len(h.tokens) + 1), abs=1e-5)


def test_beam_one_is_greedy_search(model, sources):
    found = _search(model, sources, [8] * 5, Beam(size=1))
    for i in range(5):
        source, valid, tokens = sources[0][i : i + 1], sources[1][i : i + 1], [BOS]
        while len(tokens) < 9:
            scores = model.logits(source, valid, torch.tensor([tokens]))[0, -1]
            scores[[PAD, BOS]] = float("-inf")
            if scores.argmax() == EOS:
                break
            tokens.append(int(scores.argmax()))
        assert list(found[i][0].tokens) == tokens[1:]


@pytest.mark.parametrize("size", [1, 4])
def test_beam_search_batch_is_its_sentences_alone(model, sources, size):
    limits, beam = [6, 3, 5, 9, 2], Beam(size=size, nbest=size)
    together = _search(model, sources, limits, beam)
    for i, limit in enumerate(limits):
        length = int(sources[1][i].sum())
        alone = _search(model, (sources[0][i : i + 1, :length], sources[1][i : i + 1, :length]), [limit], beam)[0]
        assert [h.tokens for h in together[i]] == [h.tokens for h in alone]
        assert [h.score for h in together[i]] == pytest.approx([h.score for h in alone], abs=1e-5)


def test_beam_search_no_hypothesis_is_longer_than_its_limit_or_holds_special_pieces(model, sources):
    limits = [1, 5, 0, 8, 3]
    for hypotheses, limit in zip(_search(model, sources, limits, Beam(size=4, nbest=4)), limits, strict=True):
        assert hypotheses
        for h in hypotheses:
            assert len(h.tokens) <= limit
            assert not {PAD, BOS, EOS} & set(h.tokens)
            assert not h.cut or len(h.tokens) == limit


def _decided(model, seed: int):
    """The same model, surer of what comes next: some texts end soon, and some never do."""
    torch.manual_seed(seed)
    torch.nn.init.normal_(model.projection.weight, std=3)
    return model


@pytest.mark.parametrize("pieces", [None, SIZE - 2])
@pytest.mark.parametrize("size", [1, 4])
def test_beam_search_only_what_would_have_gone_on_is_cut(model, sources, size, pieces):
    seen, limits = set(), [1, 5, 0, 2, 3]
    for seed in range(5):
        found = _search(_decided(model, seed), sources, limits, Beam(size=size, nbest=size), pieces)
        for i, (hypotheses, limit) in enumerate(zip(found, limits, strict=True)):
            for h in hypotheses:
                fed = torch.tensor([[BOS, *h.tokens]])
                scores = model.logits(sources[0][i : i + 1], sources[1][i : i + 1], fed)[0, -1, :pieces]
                scores[[PAD, BOS]] = float("-inf")
                assert h.cut == (len(h.tokens) == limit and bool(scores.argmax() != EOS))
                seen.add((h.cut, len(h.tokens) == limit))
    assert seen == {(True, True), (False, True), (False, False)}


def test_beam_search_limit_that_the_output_reaches_by_itself_cuts_nothing(model, sources):
    ended = 0
    for seed in range(5):
        free = [one[0] for one in _search(_decided(model, seed), sources, [7] * 5, Beam(size=1))]
        lengths = np.array([len(h.tokens) for h in free])
        assert not any(h.cut for h in free if len(h.tokens) < 7)
        assert [one[0] for one in _search(model, sources, lengths, Beam(size=1))] == free
        shorter = _search(model, sources, np.maximum(lengths - 1, 0), Beam(size=1))
        for (less, *_), h in zip(shorter, free, strict=True):
            assert (less.tokens, less.cut) == (h.tokens[:-1], len(h.tokens) > 0)
            ended += 0 < len(h.tokens) < 7
    # a Transformer so small ends at once or never
    assert ended or isinstance(model.decoder, TransformerDecoder)


def test_beam_search_hypotheses_are_different_and_the_best_come_first(model, sources):
    for hypotheses in _search(model, sources, [6] * 5, Beam(size=5, nbest=5)):
        assert len({h.tokens for h in hypotheses}) == len(hypotheses)
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("std", [1, 3, 8])
def test_wider_beam_never_returns_a_lower_score(model, sources, std, penalty):
    widths = [1, 2, 3, 5, 9]
    for seed in range(3):
        torch.manual_seed(seed)
        torch.nn.init.normal_(model.projection.weight, std=std)
        scores = [
            [found[0].score for found in _search(model, sources, [9, 4, 7, 5, 12], Beam(size, 1, penalty))]
            for size in widths
        ]
        for narrow, wide in itertools.pairwise(scores):
            assert all(b >= a - 1e-4 for a, b in zip(narrow, wide, strict=True))


@pytest.mark.parametrize("size", [2, 5])
def test_beam_search_first_of_nbest_is_the_best_of_one(model, sources, size):
    for seed in range(3):
        _decided(model, seed)
        one, many = (_search(model, sources, [6, 9, 4, 7, 5], Beam(size, nbest)) for nbest in (1, size))
        assert [found[0].tokens for found in one] == [found[0].tokens for found in many]
        assert [found[0].score for found in one] == pytest.approx([found[0].score for found in many], abs=1e-5)


class _Peaked(Decoder):
    """Writes `answer` with probability 0.9 a token; every other token, EOS included, shares the rest."""

    max_positions = None
    is_one_to_one = False

    def __init__(self, answer: list[int]) -> None:
        super().__init__()
        self.answer = answer

    def start(self, memory, most):
        return memory, _Written(torch.zeros(len(memory.valid), 0, dtype=torch.long))

    def forward(self, context, state, tokens):
        written = torch.cat((state.tokens, tokens), dim=1)
        log_probability = torch.full((len(written), SIZE), math.log(0.1 / (SIZE - 3)))
        place = written.shape[1] - 1
        log_probability[:, ([*self.answer, EOS] + [EOS] * 99)[place]] = math.log(0.9)
        return log_probability.unsqueeze(1), _Written(written)


@dataclass(frozen=True)
class _Written(BatchedState):
    tokens: torch.Tensor


@pytest.mark.parametrize("size", [1, 2, 5, 50])
def test_unlikely_hypotheses_that_finish_early_do_not_end_the_search(model, sources, size):
    answer = WORDS * 4
    projection = torch.nn.Linear(SIZE, SIZE, bias=False)
    torch.nn.init.eye_(projection.weight)
    peaked = Seq2Seq(model.encoder, _Peaked(answer), projection).eval()
    for found in _search(peaked, sources, [40] * 5, Beam(size, 1, 0.0)):
        assert list(found[0].tokens) == answer


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("weight", [float("nan"), float("inf")])
def test_search_with_weights_that_are_not_finite_ends(model, sources, size, weight):
    torch.nn.init.constant_(model.projection.weight, weight)
    found = search(model, *sources, np.array([4] * 5), Beam(size), None, _at_most(6))
    assert [len(hypotheses) for hypotheses in found] == [0] * 5


@pytest.mark.parametrize("size", [1, 4])
def test_search_that_can_never_end_a_text_ends(model, sources, size):
    model.projection.bias = torch.nn.Parameter(torch.zeros(SIZE, dtype=torch.double))
    torch.nn.init.constant_(model.projection.bias[EOS], float("-inf"))
    found = search(model, *sources, np.array([4] * 5), Beam(size), None, _at_most(6))
    assert [len(hypotheses) for hypotheses in found] == [0] * 5


def _at_most(steps: int) -> Callable[[], None]:
    """Fail at a step after so many, instead of waiting for ever."""
    counted = itertools.count()

    def before_step() -> None:
        assert next(counted) < steps, "the search does not end"

    return before_step


def test_exception_before_a_step_ends_the_search(model, sources):
    steps = []

    def stop_after_two() -> None:
        steps.append(len(steps))
        if len(steps) == 3:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        search(model, *sources, np.array([40] * 5), Beam(2), None, stop_after_two)
    assert len(steps) == 3


def test_beam_search_sentences_that_are_done_leave_the_batch(model, sources, monkeypatch):
    rows = []
    decode = type(model.decoder).forward

    def counted(self, context, state, tokens):
        rows.append(len(tokens))
        return decode(self, context, state, tokens)

    monkeypatch.setattr(type(model.decoder), "forward", counted)
    _search(model, sources, [1, 1, 1, 1, 9], Beam(size=2))
    assert rows[0] == 5
    assert all(n <= 2 for n in rows[3:])


def test_beam_search_benchmarks_decoder_without_a_cache_translates_the_same(model, sources):
    benchmark = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "decoding.py"))
    slow = Seq2Seq(model.encoder, benchmark["Uncached"](model.decoder), model.projection)
    assert (slow.decoder.max_positions, slow.decoder.is_one_to_one) == (
        model.decoder.max_positions,
        model.decoder.is_one_to_one,
    )
    ours, theirs = (_search(m, sources, [6, 9, 4, 7, 5], Beam(size=3)) for m in (model, slow))
    assert [[h.tokens for h in found] for found in ours] == [[h.tokens for h in found] for found in theirs]


def _repeats(tokens, n):
    """True if the last n-gram occurred before."""
    grams = [tokens[i : i + n] for i in range(len(tokens) - n + 1)]
    return bool(n and grams) and grams[-1] in grams[:-1]


@pytest.mark.parametrize(
    ("constraints", "prefixes"),
    [
        (Constraints(min_length=2), None),
        (Constraints(no_repeat_ngram=1), None),
        (Constraints(min_length=3, no_repeat_ngram=2), None),
        (Constraints(), [[3], [], [5, 5], [4], []]),
        (Constraints(min_length=2, no_repeat_ngram=1), [[], [5, 5], [3], [], [4]]),
    ],
)
def test_beam_search_with_constraints_is_exhaustive_search_of_what_they_allow(model, sources, constraints, prefixes):
    limits, beam = [3, 2, 3, 1, 0], Beam(size=300, nbest=12, length_penalty=0.6, constraints=constraints)
    source, valid = sources
    found = search(model, source, valid, np.array(limits), beam, None, None, prefixes)
    for i, limit in enumerate(limits):
        begins = tuple(prefixes[i]) if prefixes else ()
        most = max(limit, len(begins))
        scored: dict[tuple[int, ...], float] = {}
        for length in range(most + 1):
            space = list(itertools.product(WORDS, repeat=length))
            logs = log_probabilities(model, source[i : i + 1], valid[i : i + 1], space)
            scored |= {tokens: log / beam.penalty(length + 1) for tokens, log in logs.items()}
        n = constraints.no_repeat_ngram
        allowed = {
            tokens: score
            for tokens, score in scored.items()
            if tokens[: len(begins)] == begins
            and len(tokens) >= min(constraints.min_length, most)
            # a forced token may repeat an n-gram; one that follows may not
            and not any(_repeats(tokens[: j + 1], n) for j in range(len(begins), len(tokens)))
        }
        expected = sorted(allowed.items(), key=lambda item: -item[1])[:12]
        assert [h.tokens for h in found[i]] == [tokens for tokens, _ in expected]
        assert [h.score for h in found[i]] == pytest.approx([score for _, score in expected], abs=1e-5)


@pytest.mark.parametrize("size", [1, 3])
def test_target_that_constraints_leave_nothing_to_write_ends(model, sources, size):
    constraints = Constraints(min_length=9, no_repeat_ngram=1)
    for each in _search(model, sources, [9] * 5, Beam(size=size, nbest=size, constraints=constraints)):
        assert len(each) == size
        for hypothesis in each:
            assert sorted(hypothesis.tokens) == WORDS
            assert not hypothesis.cut
    # a limit still ends it before
    found = _search(model, sources, [2] * 5, Beam(size=size, constraints=constraints))
    assert {len(hypothesis.tokens) for each in found for hypothesis in each} == {2}


@pytest.mark.parametrize("groups", [1, 2])
def test_beam_search_with_a_copy_penalty_is_exhaustive_search_of_penalized_scores(model, sources, groups):
    source, valid = sources
    limits, penalty = [3, 2, 3, 1, 0], 0.7
    beam = Beam(size=300, nbest=12, length_penalty=0.6, copy_penalty=penalty, groups=groups, diversity_penalty=0.0)
    found, changed = search(model, source, valid, np.array(limits), beam), 0
    for i, limit in enumerate(limits):
        copied = set(source[i][valid[i]].tolist()) - {EOS}
        scored: dict[tuple[int, ...], float] = {}
        for length in range(limit + 1):
            space = list(itertools.product(WORDS, repeat=length))
            for tokens, log in log_probabilities(model, source[i : i + 1], valid[i : i + 1], space).items():
                count = sum(token in copied for token in tokens)
                changed += count > 0
                scored[tokens] = (log - penalty * count) / beam.penalty(length + 1)
        expected = sorted(scored.items(), key=lambda item: -item[1])[:12]
        assert [h.tokens for h in found[i]] == [tokens for tokens, _ in expected]
        assert [h.score for h in found[i]] == pytest.approx([score for _, score in expected], abs=1e-5)
    assert changed


@pytest.mark.parametrize("size", [1, 3])
def test_beam_search_constraints_hold_in_a_batch_as_alone(model, sources, size):
    prefixes, limits = [[3, 4], [], [5], [4, 4, 4], []], [6, 9, 4, 7, 5]
    beam = Beam(size=size, nbest=size, constraints=Constraints(min_length=4, no_repeat_ngram=2))
    together = search(model, *sources, np.array(limits), beam, prefixes=prefixes)
    for i, limit in enumerate(limits):
        length = int(sources[1][i].sum())
        one = sources[0][i : i + 1, :length], sources[1][i : i + 1, :length]
        alone = search(model, *one, np.array([limit]), beam, prefixes=[prefixes[i]])[0]
        assert [h.tokens for h in together[i]] == [h.tokens for h in alone]
        assert all(list(h.tokens[: len(prefixes[i])]) == prefixes[i] for h in alone)
        assert all(len(h.tokens) >= 4 for h in alone)
