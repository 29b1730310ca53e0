"""Claims about groups of models are decided by the tests of all pairs."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from s2s.comparison.claims import Pair, claim_numbers, compare_with_rival, decide, traits
from s2s.comparison.matching import settings_of
from s2s.comparison.plans import CLAIMS, ROWS
from s2s.comparison.results import read_result
from s2s.comparison.traits import Traits
from s2s.evaluation.differences import Pairwise, welch
from s2s.evaluation.gates import Gate
from s2s.models.base import Decoder, Seq2Seq
from s2s.recipe.installed import module_of

LECTURE = Path(__file__).parents[2] / "docs/comparison-lecture"


def _pairs(*found: tuple[float, float]) -> list[Pair]:
    return [Pair("a", f"b{i}", difference, p) for i, (difference, p) in enumerate(found)]


def test_traits_are_parsed_from_their_words():
    recurrences, either = ("none", "steps", "scan"), (False, True)
    every = [Traits(*parts) for parts in itertools.product(recurrences, either, either, either, recurrences)]
    assert [Traits.parse(each.in_words) for each in every] == every
    assert len({each.in_words for each in every}) == len(every)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ([(1.0, 0.01), (2.0, 0.049)], "yes"),
        ([(1.0, 0.01), (2.0, 0.051)], "undecided"),
        ([(1.0, 0.01), (-2.0, 0.024)], "no"),
        ([(1.0, 0.30), (-2.0, 0.026)], "undecided"),  # 0.026 is above the level after correction for two pairs
        ([], "undecided"),
    ],
)
def test_claim_holds_only_if_every_pair_does(found: list[tuple[float, float]], verdict: str) -> None:
    assert decide(_pairs(*found)).verdict == verdict
    for order in itertools.permutations(found):
        assert decide(_pairs(*order)).verdict == verdict


def test_claim_does_not_hold_if_a_pair_is_equal() -> None:
    equal = Pair("a", "c", 0.1, 0.6, equal=True)
    assert decide([*_pairs((1.0, 0.001)), equal]).verdict == "no"
    assert decide([*_pairs((1.0, 0.001)), equal]).pair == equal


def test_claim_on_counts_needs_no_test() -> None:
    assert decide([Pair("a", "b", 1.0, None)]).verdict == "yes"
    assert decide([Pair("a", "b", -1.0, None)]).verdict == "no"


def test_claim_of_no_difference_is_rarely_decided() -> None:
    """Uniform p-values, independent of the sign: each answer has at most its level, 2.5 % for one side."""
    chance = np.random.default_rng(1)
    verdicts = [
        decide(_pairs(*zip(chance.choice([-1.0, 1.0], 3), chance.random(3), strict=True))).verdict for _ in range(4000)
    ]
    assert verdicts.count("yes") / 4000 < 0.005  # all three of them by chance
    assert verdicts.count("no") / 4000 < 0.035


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("rnn", ("steps", False, False, "recurrent")),
        ("gru-attention", ("steps", False, True, "recurrent + attention")),
        ("minlstm", ("scan", False, False, "scan")),
        ("conv", ("none", False, True, "convolution + attention")),
        ("transformer", ("none", True, True, "self-attention")),
    ],
)
def test_traits_follow_from_the_model(kind: str, expected: tuple[str, bool, bool, str]) -> None:
    shape = {"width": 8, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    found = traits(module_of(kind).build(settings_of(kind, shape), 9, 9))
    assert (found.recurrence, found.self_attention, found.cross_attention, found.in_words) == expected


class _FixedState(Decoder[Any, Any]):
    """Decoder with a state of fixed size."""

    recurrence = "scan"

    def start(self, memory, limit):
        return memory, memory

    def forward(self, context, state, tokens):
        return state.states.new_zeros(*tokens.shape, 8), state


@pytest.mark.parametrize(
    ("kind", "expected", "words"),
    [
        ("conv", ("none", "scan"), "convolution + scan decoder"),
        ("transformer", ("none", "scan"), "self-attention encoder + scan decoder"),
        ("rnn", ("steps", "scan"), "recurrent encoder + scan decoder"),
    ],
)
def test_traits_of_a_decoder_are_its_own(kind: str, expected: tuple[str, str], words: str) -> None:
    shape = {"width": 8, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    built = module_of(kind).build(settings_of(kind, shape), 9, 9)
    found = traits(Seq2Seq(built.encoder, _FixedState(), built.projection))
    assert (found.recurrence, found.decoder_recurrence) == expected
    assert found.in_words == words
    assert not found.cross_attention
    assert not found.is_transformer


def test_claim_numbers_never_change():
    """Pages and lectures cite claims by their numbers: new ones are appended."""
    names = (
        *(
            "waits",
            "trains-faster",
            "memory",
            "cache",
            "forgets",
            "learns-late",
            "vanishes",
            "copies",
            "recalls",
            "bits",
        ),
        *("tracks", "any-length", "order", "translates-best", "writes-cheaply", "scales", "transfers"),
        *("late-by-gradients", "generalizes", "reaches-farther"),
    )
    assert [CLAIMS[name].number for name in names] == list(range(1, 21))
    assert len({text.number for text in CLAIMS.values()}) == len(CLAIMS)
    assert {text.experiment for text in CLAIMS.values()} <= {row.experiment for row in ROWS.values()}


def test_arrows_of_claims_agree_with_the_best_numbers():
    """In the kept lecture no number without a note is better than the bold ones; ties and lower bounds are bold."""
    for path in LECTURE.glob("*/result.json"):
        for claim in read_result(path).claims:
            known = [each for each in claim.numbers if each.value is not None and (each.best or not each.note)]
            best = {each.value for each in known if each.best}
            better = {"high": max, "low": min}.get(CLAIMS[claim.name].good)
            assert better or not best, claim.name
            if better and best:
                assert better(each.value for each in known) in best, claim.name
                bounds = all(each.at_least for each in known if each.best)
                assert len(best) == 1 or claim.name == ("bits" if bounds else "transfers")


def test_numbers_that_are_not_told_apart_from_the_best_are_best_too():
    scores = {"conv": [3.9, 4.0, 4.1], "lstm": [3.8, 4.05, 3.9], "rnn": [1.0, 1.1, 1.2]}
    pairs = Pairwise.of(scores, lambda a, b: welch(scores[a], scores[b]))
    values = {model: sum(own) / 3 for model, own in scores.items()}
    assert [number.best for number in claim_numbers(values, "high", pairs=pairs)] == [True, True, False]
    assert [number.best for number in claim_numbers(values, "high")] == [True, False, False]


@pytest.mark.parametrize(
    ("names", "note"),
    [
        (["converged"], "still learning"),
        (["converged", "translates"], "too weak to judge"),
        (["rate inside its grid"], "rate at end of range"),
        ([], ""),
    ],
)
def test_number_of_a_model_that_fails_a_check_has_the_reason(names: list[str], note: str) -> None:
    gates = {"rnn": [Gate(name, False, "") for name in names], "lstm": [Gate("converged", True, "")]}
    rnn, lstm = claim_numbers({"rnn": 3.0, "lstm": 2.0}, "high", gates=gates)
    assert (rnn.note, lstm.note) == (note, "")
    # a model that fails a check is never the best
    assert (rnn.best, lstm.best) == (not names, bool(names))


def test_models_beside_a_rival_are_named_after_one_correction_for_both_directions():
    pairs = [Pair("a", "t", 1.0, 0.04), Pair("b", "t", -1.0, 0.04), Pair("c", "t", -1.0, 0.001)]
    sentence = compare_with_rival(pairs, {}, "t", ("trains", "train"), ("faster", "slower"))
    assert sentence == "c trains slower than t; a and b are not significantly different from t"
