import contextlib
import json
import math
import statistics
from dataclasses import asdict, dataclass, replace

import pytest
import torch
from pydantic import TypeAdapter

from s2s.comparison import speed_benchmark
from s2s.comparison.executor import StoredResult
from s2s.comparison.instruments import PRODUCT
from s2s.comparison.speed_benchmark import (
    ROUNDS,
    Place,
    SpeedBenchmark,
    TimedMeasurement,
    assess_count,
    at_best,
    by_round,
    fastest_place,
    machine_table,
    measure_steadily,
    pairs_table,
    places,
    rivals,
    round_trials,
)
from s2s.evaluation.gates import EQUIVALENCE, Assessment
from s2s.training.device import DeviceContext

EXACT = DeviceContext(torch.device("cpu"), torch.float32)
ONE, TWO = "1 thread", "2 threads"
STEADY = {i: [0.001, 0.001] for i in range(8)}
CELLS = round_trials(["a", "b"])


@pytest.fixture
def products(monkeypatch):
    """A function that says how long the reference product takes, each time it is measured."""

    def plan(seconds):
        left = iter(seconds)
        monkeypatch.setattr(speed_benchmark, "chain", lambda device_context: next(left))

    return plan


@dataclass(frozen=True, kw_only=True)
class _Measured(TimedMeasurement):
    value: int


def _watched(folder, cells=CELLS):
    made = []

    def measure():
        made.append(len(made))
        return _Measured(value=made[-1])

    return measure_steadily(measure, [Place("1 thread", EXACT, 1)], folder, cells, CELLS[2])


def test_speed_benchmark_candidates_alternate_in_each_round():
    assert [(cell.model, cell.part) for cell in CELLS[:3]] == [("a", "round-1"), ("b", "round-1"), ("a", "round-2")]
    assert len(CELLS) == 2 * ROUNDS
    found = by_round({cell: _Measured(value=i) for i, cell in enumerate(CELLS)}, "b")
    assert found == {i + 1: _Measured(value=2 * i + 1) for i in range(ROUNDS)}


def test_measure_steadily_accepts_a_steady_measurement(tmp_path, products):
    products([0.001, 0.00109])
    assert _watched(tmp_path) == _Measured(
        value=0, references={"1 thread": [0.001, 0.00109]}, reference="chain", tries=1
    )


def test_measure_steadily_repeats_if_the_machine_changed(tmp_path, products):
    products([0.001, 0.0012, 0.001, 0.00105])
    assert _watched(tmp_path) == _Measured(
        value=1, references={"1 thread": [0.001, 0.00105]}, reference="chain", tries=2
    )


def test_measure_steadily_keeps_the_steadiest_of_three(tmp_path, products):
    products([0.001, 0.0015, 0.001, 0.0012, 0.001, 0.0013])
    found = _watched(tmp_path)
    assert (found.value, found.tries) == (1, 3)


def _keep(folder, cell, seconds, tries=1, reference="chain"):
    measured = {"references": {"1 thread": [seconds, seconds]}, "reference": reference, "tries": tries}
    (folder / f"{cell.key}.json").write_text(json.dumps(asdict(StoredResult(measured, "", 1.0))))


@pytest.mark.parametrize(
    ("before", "kept_seconds", "measured", "tries"),
    [
        # the machine changed within the round
        (CELLS[3], 0.00112, [0.001, 0.001, 0.00103, 0.00105], 2),
        # another round had another clock
        (CELLS[0], 0.001, [0.0012, 0.0012], 1),
        # slower than any clock
        (CELLS[0], 0.001, [0.0013, 0.0013, 0.001, 0.001], 2),
        # faster than all before
        (CELLS[0], 0.002, [0.001, 0.001], 1),
    ],
)
def test_measure_steadily_compares_with_earlier_measurements(tmp_path, products, before, kept_seconds, measured, tries):
    _keep(tmp_path, before, kept_seconds)
    products(measured)
    assert _watched(tmp_path).tries == tries


def test_measure_steadily_compares_only_references_of_the_same_kind(tmp_path, products):
    # a product that took a tenth of what the chain takes
    _keep(tmp_path, CELLS[3], 0.0001, reference="product")
    products([0.001, 0.001])
    assert _watched(tmp_path).tries == 1


def test_timed_measurement_without_a_kind_of_reference_had_the_product():
    kept = {"references": {"1 thread": [0.001, 0.001]}, "tries": 1, "value": 3}
    found = TypeAdapter(_Measured).validate_python(kept)
    assert (found.reference, found.value) == ("product", 3)
    assert machine_table({("a",): {1: found}}, ("model",)).rows[0][3] == PRODUCT


def test_measure_steadily_limits_the_repetitions_of_all_trials(tmp_path, products):
    for cell in CELLS[:ROUNDS]:
        _keep(tmp_path, cell, 0.001, tries=2)
    products([0.001, 0.002])
    assert _watched(tmp_path).tries == 1


def test_place_restores_the_number_of_threads():
    before = torch.get_num_threads()
    with contextlib.suppress(ZeroDivisionError), Place("3 threads", EXACT, 3).used():
        assert torch.get_num_threads() == 3
        _ = 1 / 0
    assert torch.get_num_threads() == before


def test_places_are_one_thread_and_all_threads_or_a_gpu(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert [place.name for place in places(EXACT)] == ["1 thread", "2 threads"]
    gpu = DeviceContext(torch.device("cuda"), torch.bfloat16)
    alone, other = places(gpu)
    assert (alone.device_context, alone.threads) == (EXACT, 1)
    assert (other.name, other.device_context) == ("CUDA", gpu)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert [place.name for place in places(EXACT)] == ["1 thread"]


def _between(speeds, references):
    """A benchmark of speeds and reference products by model, place and round."""
    rounds = {
        model: {
            i: TimedMeasurement(references={place: own[i] for place, own in at.items() if i in own})
            for i in sorted(set().union(*at.values()))
        }
        for model, at in references.items()
    }
    places = list(dict.fromkeys(place for at in references.values() for place in at))
    return SpeedBenchmark.between(rounds, places, lambda model, place: speeds[model][place])


def _alone(speeds, references=None):
    """A benchmark without a choice of places."""
    held = {model: {ONE: (references or {}).get(model, STEADY)} for model in speeds}
    return _between({model: {ONE: own} for model, own in speeds.items()}, held)


def _benchmark(ratios, references=None, base=(10.0, 12.0, 9.0, 11.0, 10.0)):
    """Speeds of `a`, and of `b`, which is so many times as fast in each round; both vary together."""
    a, b = dict(enumerate(base)), {i: speed * ratios[i] for i, speed in enumerate(base)}
    return _alone({"a": a, "b": b}, references)


def test_speed_benchmark_pairs_the_rounds():
    benchmark = _benchmark([2.0, 2.02, 1.98, 2.01, 1.99])
    found = benchmark.assess("b")
    assert (found.standing, found.rival, found.unit) == ("better", "a", "times as fast")
    assert (found.difference.value, found.difference.low, found.difference.high) == pytest.approx((2, 1.98, 2.02), 0.01)
    slower = benchmark.assess("a")
    assert (slower.standing, slower.rival) == ("worse", "b")
    assert slower.difference.value == pytest.approx(1 / found.difference.value)


def test_speed_benchmark_ignores_how_slow_one_disturbed_round_was():
    ratios = [2.0, 2.02, 1.98, 2.01, 1.99, 2.0, 2.03, 1.97]
    found = []
    for times in (1.4, 1.9, 9.0):
        disturbed = [ratio / (times if i == 5 else 1) for i, ratio in enumerate(ratios)]
        benchmark = _benchmark(disturbed, base=BASE)
        found.append((benchmark.assess("b"), benchmark.pairs, statistics.median(benchmark.counted("b"))))
    assert found[0] == found[1] == found[2]
    assert found[0][0].difference.value == pytest.approx(2, 0.01)


def test_speed_benchmark_tie_needs_an_equivalence_test():
    tied = _benchmark([1.0, 1.01, 0.99, 1.005, 0.995])
    assert (tied.assess("b").standing, tied.assess("b").test) == ("tie", EQUIVALENCE)
    assert tied.assess("b").difference.value == pytest.approx(1, abs=0.005)
    # as large on average, but nobody knows
    loose = _benchmark([1.0, 1.4, 0.7, 1.3, 0.8])
    assert loose.assess("b").standing == "undecided"
    assert "would be detected in 80 %" in loose.assess("b").reasons[0]
    # with more pairs, each is tested more severely, and less would be seen
    speeds = {**loose.speeds, "c": {i: speed / 2 for i, speed in loose.speeds["a"].items()}}
    three = _alone(speeds)
    seen = math.expm1(three.pairs["a", "b"].detectable(level=0.05 / 3))
    assert three.assess("b").reasons[0].startswith(f"a difference of {seen:.0%} would be detected")
    assert pairs_table("", {"x": three}).rows[0][-2] == pytest.approx(100 * seen, abs=0.1)


def test_speed_benchmark_ignores_rounds_with_a_slow_machine():
    ratios, base = [2.0, 2.02, 1.98, 2.01, 1.99, 9.0], (10.0, 12.0, 9.0, 11.0, 10.0, 10.0)
    slow = STEADY | {5: [0.001, 0.002]}
    benchmark = _benchmark(ratios, {"a": STEADY, "b": slow}, base)
    assert benchmark.assess("b") == _benchmark(ratios[:5]).assess("b")
    assert benchmark.pairs == _benchmark(ratios[:5]).pairs
    assert benchmark.speed("b") == _benchmark(ratios[:5]).speed("b")


def test_speed_benchmark_has_no_verdict_if_the_machine_changed():
    slower = {i: [0.001, 0.001 + 0.0001 * i] for i in range(5)}
    shaken = _benchmark([2.0, 2.02, 1.98, 2.01, 1.99], {"a": STEADY, "b": slower})
    for model in ("a", "b"):
        found = shaken.assess(model)
        assert found.standing == "not measurable"
        assert "in 2 of 5 rounds" in found.reasons[0]
        assert "1 to 1.4 ms" in found.reasons[0]
    assert pairs_table("", {"x": shaken}).rows[0][-1] == "no"


def test_speed_benchmark_corrects_the_p_values_of_all_pairs():
    third = {i: speed * [1.03, 1.05, 1.045, 1.2, 1.02][i] for i, speed in _benchmark([1] * 5).speeds["a"].items()}
    two = _alone({"a": _benchmark([1] * 5).speeds["a"], "b": third})
    three = _alone({**two.speeds, "c": third})
    alone = two.pairs["a", "b"].p()
    assert 0.025 < alone < 0.05
    assert two.assess("a").standing == "worse"
    # with two such pairs, twice the p-value decides
    assert three.assess("a").standing == "undecided"


def test_speed_benchmark_has_no_verdict_with_one_model_or_round():
    assert _alone({"a": {1: 1.0}}).assess("a").reasons == ("no other model was measured",)
    once = _alone({"a": {1: 1.0}, "b": {1: 2.0}})
    assert once.assess("a").standing == "not measurable"


def test_speed_benchmark_robustness_compares_signs():
    benchmark, slower = _benchmark([2.0] * 5), _benchmark([0.5] * 5)
    equal, without = _benchmark([1.01] * 5), _alone({"a": {}, "b": {1: 1.0}})
    variations = {"same": _benchmark([1.5] * 5), "turned": slower, "equal": equal, "unknown": without}
    assert benchmark.robustness("b", variations) == {"same": True, "turned": False, "equal": False}
    # what is the same benchmark says nothing more
    assert benchmark.robustness("b", variations | {"itself": replace(benchmark)}) == benchmark.robustness(
        "b", variations
    )


def test_assess_count_compares_without_a_test():
    short, turned = {"a": 1.0, "b": 3.0, "c": 9.0}, {"a": 3.0, "b": 1.0}
    variations = {"short": [short, {"a": 1.0}], "turned": [turned], "both": [short, turned], "without": [{"a": 1.0}]}
    found = assess_count("b", {"a": 1.0, "b": 2.0}, variations)
    assert found == Assessment("better", "a", variations={"short": True, "turned": False, "both": False})
    assert assess_count("a", {"a": 1.0, "b": 2.0, "c": 1.5}, {}).standing == "worse"
    assert assess_count("a", {"a": 1.0, "b": 1.04}, {}).standing == "tie"
    assert assess_count("a", {"a": 1.0}, variations) == Assessment("")


# in an order that is no trend
BASE = (10.0, 12.0, 9.0, 11.0, 10.0, 11.5, 9.5, 10.5)


def _choices(ratios, references=None):
    """Speeds of `a` and `b` on one thread and on two; each ratio is to those of `a` on one."""
    speeds = {
        model: {place: {i: speed * own[i % len(own)] for i, speed in enumerate(BASE)} for place, own in at.items()}
        for model, at in ratios.items()
    }
    return _between(speeds, references or {model: {ONE: STEADY, TWO: STEADY} for model in ratios})


NEAR = (0.99, 1.01)


def test_speed_benchmark_uses_the_fastest_place_of_each_model():
    benchmark = _choices(
        {"a": {ONE: (1.0,), TWO: (0.5,)}, "b": {ONE: (0.4,), TWO: NEAR}, "c": {ONE: (0.8,), TWO: (0.7,)}}
    )
    assert benchmark.places == {"a": ONE, "b": TWO, "c": ONE}
    # the same as who ran nowhere else
    alone = _alone({"a": dict(enumerate(BASE)), "b": benchmark.speeds["b"], "c": benchmark.speeds["c"]})
    assert benchmark.pairs == alone.pairs
    assert [benchmark.speed(model) for model in "abc"] == [alone.speed(model) for model in "abc"]
    found = benchmark.assess("b")
    assert found.standing == "tie"
    assert found.facts == {"b ran on": "2 threads", "a ran on": "1 thread"}
    assert replace(found, facts={}) == alone.assess("b")
    rows = {row[1]: row[2] for row in pairs_table("", {"x": benchmark}).rows}
    assert rows == {"b / a": f"{TWO} / {ONE}", "c / a": f"{ONE} / {ONE}", "c / b": f"{ONE} / {TWO}"}


def test_fastest_place_uses_rounds_that_are_steady_at_all_places():
    speeds = {ONE: dict.fromkeys(range(11), 1.0), TWO: {i: 0.9 if i < 5 else 3.0 for i in range(11)}}
    steady, shaken = ({i: [0.001, 0.001 if i < count else 0.002] for i in range(11)} for count in (11, 5))
    assert fastest_place(speeds, {ONE: steady, TWO: steady}) == TWO
    for references_at in ({ONE: steady, TWO: shaken}, {ONE: shaken, TWO: steady}):
        assert fastest_place(speeds, references_at) == ONE
    # too few are steady, so all count
    assert fastest_place(speeds, {ONE: steady, TWO: {i: [0.001, 0.001 * (1 + (i > 3))] for i in range(11)}}) == TWO
    assert fastest_place({ONE: {}, TWO: {}}, {ONE: STEADY, TWO: STEADY}) == ""


def test_speed_benchmark_needs_rounds_that_are_steady_at_both_places():
    shaken = STEADY | {2: [0.001, 0.0012]}
    ratios = {"a": {ONE: (1.0,), TWO: (0.5,)}, "b": {ONE: (0.4,), TWO: (2.0,)}}
    for model, place in (("a", ONE), ("b", ONE), ("a", TWO), ("b", TWO)):
        references = {name: {ONE: STEADY, TWO: STEADY} for name in ratios}
        references[model] = references[model] | {place: shaken}
        benchmark = _choices(ratios, references)
        kept = [speed for i, speed in enumerate(BASE) if i != 2]
        assert benchmark.counted("a") == kept
        assert "in 7 of 8 rounds" in benchmark.steady("a", "b").sentence
        # of seven rounds the test leaves out two
        assert benchmark.pairs["a", "b"].freedom == 4


def test_rivals_are_numbers_of_threads_or_the_gpu():
    assert rivals(["1 thread"]) == ["1 thread"]
    assert rivals(["1 thread", "2 threads"]) == ["1 thread", "2 threads"]
    assert rivals(["1 thread", "CUDA"]) == ["CUDA"]
    assert [bool(at_best(names)) for names in (["1 thread"], ["1 thread", "2 threads"], ["1 thread", "CUDA"])] == [
        False,
        True,
        False,
    ]


def test_speed_benchmark_estimate_uses_the_rounds_of_the_verdict():
    few = {i: [0.001, 0.001 if i < 6 else 0.002] for i in range(8)}
    benchmark = _benchmark([2.0, 2.02, 1.98, 2.01, 1.99, 2.0, 2.0, 2.0], {"a": STEADY, "b": few}, BASE)
    assert benchmark.counted("a") == list(BASE[:6])
    assert benchmark.pairs["a", "b"].freedom == 3
    # four are no verdict, and the figure is of all
    fewer = _benchmark([2.0] * 8, {"a": STEADY, "b": {i: [0.001, 0.001 if i < 4 else 0.002] for i in range(8)}}, BASE)
    assert fewer.counted("a") == list(BASE)
    assert fewer.assess("a").standing == "not measurable"


def test_speed_benchmark_has_no_verdict_if_times_drift():
    # the first of rnn's decoding on two threads, in ms, as they were once measured
    drift = [0.2747, 0.3413, 0.3799, 0.4018, 0.4171, 0.3925, 0.4017, 0.4234]
    level = [0.4653, 0.4491, 0.4666, 0.4695, 0.4548, 0.4617, 0.4825, 0.4611]
    benchmark = _alone(
        {"rnn": {i: 1 / s for i, s in enumerate(drift)}, "mingru": {i: 1 / s for i, s in enumerate(level)}}
    )
    for model in benchmark.speeds:
        found = benchmark.assess(model)
        assert found.standing == "not measurable"
        assert "rnn drifts: 1.54 times as long in round 7 as in round 0, p = 0.0013" in found.reasons[0]
    assert pairs_table("", {"x": benchmark}).rows[0][-1] == "no"
