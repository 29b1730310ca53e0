"""Each question decides its claims from the tests that it makes, from planted numbers of every outcome."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from s2s.comparison.plans import CLAIMS
from s2s.comparison.questions.bottleneck.claims import translates_longer
from s2s.comparison.questions.decoding.claims import writes_cheaply
from s2s.comparison.questions.gradients.claims import Initialisations, vanishes
from s2s.comparison.questions.gradients.decay import Decay, Decays
from s2s.comparison.questions.long_range.claims import Reaches, SolutionTimes, forgets, learns_late
from s2s.comparison.questions.memory.claims import TrainingPeak, cache_grows, needs_square
from s2s.comparison.questions.parallelism.claims import trains_faster, waits
from s2s.comparison.questions.positions.claims import Without, needs_order
from s2s.comparison.questions.quality.claims import translates_best
from s2s.comparison.questions.scaling.claims import gains_more
from s2s.comparison.questions.transfer.claims import learns_best
from s2s.comparison.report.claims import missing_models
from s2s.comparison.results import CandidateSummary, Claim
from s2s.comparison.speed_benchmark import SpeedBenchmark
from s2s.comparison.traits import Traits
from s2s.evaluation.differences import Difference, Pairwise
from s2s.evaluation.gates import Gate
from s2s.evaluation.inference import Estimate, Slope

TRAITS = {
    "rnn": Traits("steps", False, False, decoder_recurrence="steps"),
    "attention": Traits("steps", False, True, decoder_recurrence="steps"),
    "scan": Traits("scan", False, False, decoder_recurrence="scan"),
    "transformer": Traits("none", True, True),
    "fixed": Traits("none", False, False, convolution=True, decoder_recurrence="scan"),
}
LENGTHS = (8, 16, 32, 64)
STEADY = {i: (0.001, 0.001) for i in range(1, 9)}
OPEN, CLOSED = [Gate("converged", True, "")], [Gate("converged", False, "its loss still falls")]


def _number(claim: Claim, model: str) -> tuple[float | None, str, bool]:
    (found,) = (each for each in claim.numbers if each.model == model)
    return found.value, found.note, found.best


def _depths(**slopes: float) -> dict[str, dict[int, int]]:
    return {model: {n: round(100 + slope * n) for n in LENGTHS} for model, slope in slopes.items()}


def _waits(training, generating=None) -> Claim | None:
    return waits(TRAITS, {"training": training, "forward": training, "generating": generating or {}})


def test_claim_waits_is_decided_by_growth_laws():
    scan = {n: round(100 + 32 * math.log2(n)) for n in LENGTHS}
    claim = _waits(_depths(rnn=48, transformer=0) | {"scan": scan}, _depths(rnn=30, transformer=50))
    assert claim.verdict == "yes"
    assert claim.stable == {"forward pass alone": True, "generation": False}
    assert [_number(claim, model)[0] for model in ("rnn", "transformer")] == pytest.approx([48, 0])
    assert _number(claim, "scan") == (None, "32 per doubling", False)
    assert _number(claim, "attention") == (None, "", False)
    assert claim.sentence == (
        "In a training step, the longest chain of dependent operations grows with each token (rnn), with each doubling "
        "of the length (scan) and not at all (transformer)."
    )
    assert _waits(_depths(rnn=48, transformer=2)).verdict == "no"
    assert _waits(_depths(rnn=0, transformer=0)).verdict == "no"
    assert _waits(_depths(rnn=48, attention=60)) is None
    assert _waits(_depths(transformer=0)) is None


def _benchmark(noise: float, **speeds: float) -> SpeedBenchmark:
    chance = np.random.default_rng(4)
    rounds = {model: {i: speed * chance.lognormal(0, noise) for i in STEADY} for model, speed in speeds.items()}
    return SpeedBenchmark(rounds, {model: {"1 thread": STEADY} for model in speeds}, dict.fromkeys(speeds, "1 thread"))


@pytest.mark.parametrize(("speed", "verdict"), [(1300.0, "yes"), (800.0, "no"), (1001.0, "no"), (1080.0, "undecided")])
def test_claim_trains_faster_follows_from_paired_rounds(speed, verdict):
    noise = {1001.0: 0.001, 1080.0: 0.2}.get(speed, 0.01)
    given = {"n = 32": _benchmark(noise, rnn=1000, transformer=speed), "n = 64": _benchmark(0.01, rnn=1, transformer=9)}
    claim = trains_faster(TRAITS, given, {})
    assert claim.verdict == verdict
    assert claim.stable == {"n = 64": verdict == "yes"}
    assert _number(claim, "transformer")[0] == pytest.approx(speed / 1000, rel=0.01 if noise < 0.1 else 0.2)
    words = {
        1300.0: "rnn trains slower than transformer",
        800.0: "rnn trains faster than transformer",
        1001.0: "rnn is equal to transformer",
        1080.0: "rnn is not significantly different from transformer",
    }
    assert claim.sentence.startswith(f"On this machine, at 32 tokens, {words[speed]}")
    idle = trains_faster(TRAITS, given, {"rnn": Gate("device busy", False, "it waits")})
    assert (idle.verdict, "rnn: it waits" in idle.sentence) == ("undecided", True)


def test_claim_trains_faster_needs_a_steady_machine():
    given = _benchmark(0.01, rnn=1000, transformer=2000)
    moved = {model: {"1 thread": {i: (0.001, 0.002) for i in STEADY}} for model in given.speeds}
    claim = trains_faster(TRAITS, {"n = 32": replace(given, references=moved)}, {})
    assert claim.verdict == "undecided"
    assert "kept its speed" in claim.sentence


def test_claim_writes_cheaply_names_the_exceptions():
    costs = {"rnn": Estimate(1.0, None, None), "attention": Estimate(3.0, None, None)}
    costs["transformer"] = Estimate(2.0, None, None)
    given = {"batch 1": _benchmark(0.01, rnn=6, attention=2, transformer=3)}
    claim = writes_cheaply(TRAITS, given, costs)
    assert claim.verdict == "no"
    assert claim.sentence == (
        "On this machine, per token, rnn (1 ms) takes less time than transformer (2 ms); attention (3 ms) takes more "
        "time."
    )
    del costs["attention"]
    assert writes_cheaply(TRAITS, given, costs).verdict == "yes"
    assert writes_cheaply(TRAITS, given, {"transformer": costs["transformer"]}) is None
    decoder_alone = {"fixed": costs["rnn"], "transformer": costs["transformer"]}
    given = {"batch 1": _benchmark(0.01, fixed=6, transformer=3)}
    assert writes_cheaply(TRAITS, given, decoder_alone).verdict == "yes"


def _peak(exponent: float) -> TrainingPeak:
    return TrainingPeak(2048, 10 * exponent, Slope(512, 2048, exponent, 1.0, 0.0, exponent))


def test_claim_memory_depends_on_the_kernel():
    claim = needs_square(TRAITS, {"rnn": _peak(1.0), "transformer": _peak(1.0)}, {"transformer": _peak(1.9)})
    assert (claim.verdict, claim.stable) == ("no", {"all attention weights stored": False})
    assert _number(claim, "transformer") == (10.0, "19", True)
    assert claim.sentence == (
        "With attention weights stored, memory grows as n^1.90 (19 MiB); the fused kernel used here, the default, does "
        "not store them: n^1.00 (10 MiB)."
    )
    square = needs_square(TRAITS, {"transformer": _peak(1.9)}, {})
    assert (square.verdict, square.sentence) == ("yes", "Memory grows as n^1.90 (19 MiB).")
    assert needs_square(TRAITS, {"rnn": _peak(1.0)}, {}) is None


def test_claim_cache_counts_bytes_of_a_token():
    states = {"rnn": dict.fromkeys((8, 16, 32), 64), "transformer": {n: 256 * n for n in (8, 16, 32)}}
    claim = cache_grows(TRAITS, states)
    assert claim.verdict == "yes"
    assert [_number(claim, model)[0] for model in states] == pytest.approx([0, 256])
    assert cache_grows(TRAITS, states | {"rnn": states["transformer"]}).verdict == "no"
    assert cache_grows(TRAITS, states | {"transformer": states["rnn"]}).verdict == "no"
    assert cache_grows(TRAITS, {"rnn": states["rnn"]}) is None
    decoder_alone = {"fixed": states["rnn"], "transformer": states["transformer"]}
    assert cache_grows(TRAITS, decoder_alone).verdict == "yes"


def _reaches(rnn: tuple[float, float, float], gates=OPEN, scan=None) -> Reaches:
    distances = {"rnn": Estimate(*rnn)} | ({"scan": Estimate(*scan)} if scan else {})
    right = dict.fromkeys(distances, Estimate(50.0, None, None))
    return Reaches(distances, [], dict.fromkeys(distances, gates), 32, right, 2048)


@pytest.mark.parametrize(
    ("rnn", "gates", "verdict"),
    [
        ((8.0, 4.0, 16.0), OPEN, "yes"),
        ((64.0, 40.0, 128.0), OPEN, "no"),
        ((64.0, 16.0, 128.0), OPEN, "undecided"),
        ((8.0, 4.0, 16.0), CLOSED, "undecided"),
        ((8.0, None, None), OPEN, "undecided"),
    ],
)
def test_claim_forgets_compares_the_distance_with_that_of_training(rnn, gates, verdict):
    claim = forgets(TRAITS, _reaches(rnn, gates), {"next best rate": _reaches((8.0, 4.0, 16.0))})
    assert claim.verdict == verdict
    assert claim.stable == {"next best rate": verdict == "yes"}
    assert ("its loss still falls" in claim.sentence) == (gates is CLOSED)


def test_a_variation_of_claim_forgets_may_have_too_few_seeds_for_an_interval():
    claim = forgets(
        TRAITS, _reaches((8.0, 4.0, 16.0)), {"a": _reaches((9.0, None, None)), "b": _reaches((64.0, None, None))}
    )
    assert claim.stable == {"a": True, "b": False}


def test_claim_forgets_names_the_shortest_distance_and_models_that_still_learn():
    traits = TRAITS | dict.fromkeys(("lstm", "gru"), TRAITS["rnn"])
    distances = {"rnn": Estimate(90.0, 80.0, 99.0), "lstm": Estimate(70.0, 60.0, 80.0), "gru": Estimate(1.0, 1.0, 1.0)}
    right = {"rnn": Estimate(64.2, None, None), "lstm": Estimate(55.0, None, None), "gru": Estimate(4.0, None, None)}
    closed = {"rnn": OPEN, "lstm": OPEN, "gru": CLOSED}
    claim = forgets(traits, Reaches(distances, [], closed, 32, right, 2048), {})
    assert claim.sentence == (
        "Trained on distances up to 32, recall of the first symbol falls half way to chance at 70 or more in every "
        "recurrent model without attention that passes the validity checks (shortest: lstm); gru fails a validity "
        "check. Accuracy at distance 2,048: 64 % (rnn), 55 % (lstm) and 4 % (gru)."
    )
    notes = {each.model: each.note for each in claim.numbers if each.note}
    assert notes == {"rnn": "64\xa0%", "lstm": "55\xa0%", "gru": "still learning, 4\xa0%"}


def test_claim_forgets_says_that_recall_outlasts_the_longest_test():
    reaches = replace(_reaches((2048.0, 2048.0, 2048.0)), beyond=["rnn"])
    assert "recall of the first symbol falls half way to chance not before 2,048 (rnn). " in (
        forgets(TRAITS, reaches, {}).sentence
    )


def test_claim_forgets_counts_scans_as_a_variation():
    claim = forgets(TRAITS, _reaches((8.0, 4.0, 16.0), scan=(64.0, 40.0, 128.0)), {})
    assert claim.verdict == "yes"
    assert list(claim.stable.values()) == [False]
    assert (
        forgets(TRAITS, replace(_reaches((8.0, 4.0, 16.0)), distances={"transformer": Estimate(9.0, 9.0, 9.0)}), {})
        is None
    )


def _times(rnn: float, p: float) -> SolutionTimes:
    medians = {"rnn": Estimate(rnn, None, None), "transformer": Estimate(300.0, None, None)}
    return SolutionTimes(medians, ["rnn"] if rnn == 1500 else [], {("rnn", "transformer"): (p, p)}, 50)


@pytest.mark.parametrize(
    ("rnn", "p", "verdict"),
    [(1500, 0.01, "yes"), (100, 0.01, "no"), (1500, 0.2, "undecided"), (350, 0.01, "undecided")],
)
def test_claim_learns_late_follows_from_log_rank_tests(rnn, p, verdict):
    claim = learns_late(TRAITS, _times(rnn, p), {"copy": _times(1500, 0.01)}, 32)
    assert claim.verdict == verdict
    assert claim.stable == {"copy": verdict == "yes"}
    assert ("more than 1,500 (rnn)" in claim.sentence) == (rnn == 1500)


def _decays(factor: float) -> Decays:
    return Decays([Decay([math.log(factor) + 0.001 * i], 1.0, factor**100, 101, 101) for i in range(-2, 3)])


def test_claim_vanishes_is_that_of_the_initialisation():
    turned = Initialisations(_decays(0.7), "radius", {0.5: _decays(0.4), 2.0: _decays(1.1)})
    claim = vanishes(TRAITS, {"rnn": turned, "transformer": Initialisations(_decays(1.0), "", {})})
    assert claim.verdict == "yes"
    assert claim.stable == {"rnn, radius 0.5": True, "rnn, radius 2": False}
    assert _number(claim, "rnn") == (pytest.approx(0.7), "0.40–1.10", False)
    assert _number(claim, "transformer") == (None, "no factor", False)
    assert claim.sentence == (
        "At the usual initialisation, before training, 0.0011 % (rnn) of a gradient remains after 32 steps; with "
        "another initialisation, it does not vanish in rnn."
    )
    assert vanishes(TRAITS, {"rnn": Initialisations(_decays(1.1), "", {})}).verdict == "no"
    assert vanishes(TRAITS, {"transformer": turned}) is None


@pytest.mark.parametrize(
    ("shares", "gates", "verdict"),
    [
        ([99.0, 98.5, 99.5], OPEN, "yes"),
        ([60.0, 61.0, 59.0], OPEN, "no"),
        ([90.0, 99.0, 95.0], OPEN, "undecided"),
        ([60.0], OPEN, "undecided"),
        ([60.0, 61.0, 59.0], CLOSED, "undecided"),
    ],
)
def test_claim_any_length_tests_the_kept_share(shares, gates, verdict):
    found = {"transformer": Estimate(60.0, 59.0, 61.0)}, {"all": {"transformer": shares}}
    claim = translates_longer(TRAITS, *found, {"transformer": gates}, 30, 5.0)
    assert claim.verdict == verdict
    words = {"yes": "transformer (60 %) keeps more than 95 % of", "no": "transformer (60 %) keeps less than 95 % of"}
    tested = gates is OPEN and len(shares) > 1
    words["undecided"] = f"transformer (60 %) is not {'significantly different from 95 % of' if tested else 'tested'}"
    assert words[verdict] in claim.sentence
    assert _number(claim, "transformer")[1:] == (("still learning", False) if gates is CLOSED else ("", True))
    assert translates_longer(TRAITS, {"rnn": found[0]["transformer"]}, {"all": {}}, {}, 30, 5.0) is None


def _difference(value: float, error: float) -> Difference:
    return Difference(value, error, 8)


@pytest.mark.parametrize(
    ("difference", "gates", "verdict"),
    [
        (_difference(5.0, 0.2), OPEN, "yes"),
        (_difference(-5.0, 0.2), OPEN, "no"),
        (_difference(0.1, 0.1), OPEN, "no"),
        (_difference(0.5, 2.0), OPEN, "undecided"),
        (_difference(5.0, 0.2), CLOSED, "undecided"),
    ],
)
def test_claims_on_scores_follow_from_pairs_and_checks(difference, gates, verdict):
    pairs = Pairwise({("rnn", "transformer"): difference})
    values = {"rnn": Estimate(30.0, None, None), "transformer": Estimate(30.0 + difference.value, None, None)}
    checks = {"rnn": gates, "transformer": OPEN}
    kept = {"rate": True, "budget": False}
    given = (TRAITS, values, pairs, checks, lambda a, b: kept if (a, b) == ("transformer", "rnn") else {})
    best = translates_best(*given)
    learns = learns_best(*given[:2], {"rnn": 40.0, "transformer": 50.0}, *given[2:], 1.0)
    assert (_number(learns, "transformer")[1], _number(learns, "rnn")[1].endswith("40")) == ("50", True)
    assert learns.sentence.endswith("From scratch, it is 40 (rnn) and 50 (transformer).")
    assert best.verdict == gains_more(*given, 1.0).verdict == learns.verdict == verdict
    assert best.stable == (kept if verdict != "undecided" and difference.value != 0.1 else {})
    assert (best.p is None) == (gates is CLOSED or difference.value == 0.1)
    assert ("equal within 1 BLEU" in best.sentence) == (difference.value == 0.1)
    assert ("its loss still falls" in best.sentence) == (gates is CLOSED)
    assert translates_best(TRAITS, {"transformer": values["transformer"]}, *given[2:]) is None


@pytest.mark.parametrize(
    ("rise", "p", "gates", "verdict"),
    [
        (0.3, 0.001, OPEN, "yes"),
        (-0.3, 0.001, OPEN, "no"),
        (0.3, 0.1, OPEN, "undecided"),
        (0.3, None, OPEN, "undecided"),
        (0.3, 0.001, CLOSED, "undecided"),
    ],
)
def test_claim_order_tests_models_without_positions(rise, p, gates, verdict):
    found = {"transformer": Without(Estimate(rise, None, None), p)}
    decoder = {"transformer": Without(Estimate(0.01, None, None), 0.4)}
    signals = {"both": found, "encoder": {}, "decoder": decoder}
    claim = needs_order(TRAITS, signals, {"transformer": gates}, {"transformer": (97.6, 59.04)})
    assert claim.verdict == verdict
    assert claim.stable == {"without positions in the decoder alone": verdict == "undecided"}
    assert "with and without, is 97.6 and 59.0 in transformer" in claim.sentence
    assert "BLEU" not in needs_order(TRAITS, signals, {"transformer": gates}, {}).sentence
    assert needs_order(TRAITS, {"both": {}, "encoder": {}, "decoder": {}}, {}, {}) is None


_DECIDED = {
    "waits": lambda models: _waits(_depths(**dict.fromkeys(models, 1))),
    "memory": lambda models: needs_square(TRAITS, dict.fromkeys(models, _peak(1.0)), {}),
    "cache": lambda models: cache_grows(TRAITS, dict.fromkeys(models, dict.fromkeys(LENGTHS, 64))),
    "vanishes": lambda models: vanishes(TRAITS, dict.fromkeys(models, Initialisations(_decays(0.7), "", {}))),
    "forgets": lambda models: forgets(TRAITS, _reaches_of(models), {}),
    "learns-late": lambda models: learns_late(
        TRAITS, SolutionTimes(dict.fromkeys(models, Estimate(1.0, None, None)), [], {}, 50), {}, 32
    ),
    "writes-cheaply": lambda models: writes_cheaply(
        TRAITS,
        {"batch 1": _benchmark(0.01, **dict.fromkeys(models, 3))},
        dict.fromkeys(models, Estimate(1.0, None, None)),
    ),
    "trains-faster": lambda models: trains_faster(TRAITS, {"n = 32": _benchmark(0.01, **dict.fromkeys(models, 3))}, {}),
}


def _reaches_of(models) -> Reaches:
    distances = dict.fromkeys(models, Estimate(64.0, 60.0, 70.0))
    return Reaches(distances, [], dict.fromkeys(models, OPEN), 32, distances, 2048)


@pytest.mark.parametrize("name", _DECIDED)
@pytest.mark.parametrize("models", [(a, b) for a, b in itertools.combinations(TRAITS, 2)])
def test_claim_is_decided_exactly_for_the_models_that_it_needs(name, models):
    candidates = [
        CandidateSummary(
            model=model,
            settings={"kind": model},
            traits=TRAITS[model].in_words,
            parameters=1,
            learning_rate=0.1,
            rates={},
            tuning_seconds=0,
            recipe="",
        )
        for model in models
    ]
    assert (_DECIDED[name](models) is None) == bool(missing_models(CLAIMS[name], candidates))
