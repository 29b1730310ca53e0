import statistics
from dataclasses import replace

import pytest
import torch

from s2s.comparison import instruments, speed_benchmark
from s2s.comparison.plans import ROWS
from s2s.comparison.questions.parallelism import measure as parallelism
from s2s.comparison.questions.parallelism.analyse import Candidate, Counts, StepTimes, brent
from s2s.comparison.questions.parallelism.measure import EXPERIMENT, SIZES, counted, timed
from s2s.comparison.results import Result
from s2s.comparison.spec import Trial
from s2s.comparison.speed_benchmark import EQUAL_DEPTH_PART, ROUNDS, Place, by_round, round_trials
from s2s.comparison.tuning import recipe_at
from s2s.comparison.tuning_search import TuningTrial
from s2s.evaluation.inference import growth
from s2s.training.device import DeviceContext
from tests.compare.planted_rounds import SLOW, counts, planted, times

# two in name alone, so that tests do not fight for processors
TWO = Place("2 threads", DeviceContext(torch.device("cpu"), torch.float32), 1)
TINY = replace(
    SIZES["quick"],
    counted=(8, 16, 32, 64),
    written=(4, 8, 16),
    lengths=(16, 32, 64),
    tokens=64,
    repetitions=1,
    patience=60.0,
)
LAWS = {
    "rnn": "linear",
    "lstm": "linear",
    "lstm-attention": "linear",
    "mingru": "logarithmic",
    "conv": "constant",
    "transformer": "constant",
}


@pytest.fixture
def tiny(monkeypatch, counted_once):
    """Smaller sizes for the quick profile, and a machine that is steady and known; operations are counted once."""
    for profile in ("quick", "definitive"):
        monkeypatch.setitem(SIZES, profile, TINY)
    monkeypatch.setattr(parallelism, "counted", counted_once)
    monkeypatch.setattr(speed_benchmark, "chain", lambda device_context: 0.001)
    monkeypatch.setattr(instruments, "_WATCHED", 0.001)
    monkeypatch.setattr(parallelism, "AT_LEAST", 0.0)
    monkeypatch.setattr(parallelism, "places", lambda device_context: [Place("1 thread", device_context, 1), TWO])


def _depths(found, form, what, key="depth"):
    points = [point for point in found.points if point.form == form and point.what == what]
    return [point.n for point in points], [getattr(point, key) for point in points]


@pytest.fixture(scope="module")
def _known():
    return {}


@pytest.fixture
def counted_once(_known):
    """`counted`, once a file for each candidate and size."""

    def count(comparison, candidate, sizes):
        asked = repr((candidate, sizes))
        if asked not in _known:
            _known[asked] = counted(comparison, candidate, sizes)
        return _known[asked]

    return count


@pytest.fixture
def count_operations(contest, counted_once):
    """A function that counts a model's operations: once a file."""

    def count(model):
        shared = contest([model])
        return counted_once(shared, shared.candidate(model), TINY)

    return count


@pytest.mark.parametrize("model", LAWS)
def test_parallelism_depth_grows_at_the_theoretical_rate(count_operations, model):
    found = count_operations(model)
    for what in ("forward", "training"):
        lengths, depths = _depths(found, "unfused", what)
        assert lengths == [8, 16, 32, 64]
        assert growth(lengths, depths).law == LAWS[model]
    # each token waits for the one before, whatever the model
    assert growth(*_depths(found, "unfused", "generating")).law == "linear"


def test_parallelism_fused_lstm_launches_as_much_at_every_length(count_operations):
    found = count_operations("lstm")
    assert len(set(_depths(found, "as built", "training", "count")[1])) == 1
    # seven operations for each token read, and as many for each written
    assert growth(*_depths(found, "unfused", "generating")).rate >= 14
    unfused = _depths(found, "unfused", "training", "count")[1]
    assert growth([8, 16, 32, 64], unfused).law == "linear"


def test_parallelism_of_recurrences_alone_does_not_grow_with_length(count_operations):
    found = {model: Candidate(count_operations(model), {}).parallelism() for model in LAWS}
    for model, own in found.items():
        grown = own[64] / own[8]
        assert (
            grown == pytest.approx(1, abs=0.2) if LAWS[model] == "linear" and "attention" not in model else grown > 1.2
        )
    assert found["transformer"][64] > 2 * found["transformer"][16] > 2 * found["rnn"][16]


def test_parallelism_processors_are_those_of_the_product_which_may_be_the_reference():
    rounds = by_round(planted(), "rnn")
    apart = {
        i: replace(one, products={place: min(own) for place, own in one.references.items()}, references={})
        for i, one in rounds.items()
    }
    watched = {i: replace(one, references={place: [9.0] for place in one.products}) for i, one in apart.items()}
    assert Candidate(Counts(), watched).processors("2 threads") == 2
    assert Candidate(Counts(), rounds).processors("2 threads") == 2


def test_parallelism_brent_bounds_are_those_of_the_theorem():
    # work 1,000, span 10: with 4 processors between max(250, 10) and 250 + 10 steps of one's 1,000
    least, greatest = brent(1000 / 10, 4)
    assert (least, greatest) == (pytest.approx(1000 / 260), pytest.approx(1000 / 250))
    # with a thousand, no less than the span
    assert brent(100, 1000) == (pytest.approx(1000 / 11), 100)


@pytest.fixture
def measured(tiny, measured_once):
    """A comparison of two models, and all its measurements."""
    return measured_once(EXPERIMENT, ["lstm", "transformer"])


def test_parallelism_has_three_cells_for_every_model(measured):
    shared, found = measured
    result = EXPERIMENT.result(shared, found)
    rows = [name for name, row in ROWS.items() if row.experiment == EXPERIMENT.name]
    assert [(f.model, f.row) for f in result.findings] == [(m, r) for m in shared.models for r in rows]
    figures = {figure.name: figure for figure in result.figures}
    for finding in result.findings:
        assert finding.figure in figures
        assert finding.facts
        assert finding.value is not None
        assert (finding.low is None) == (finding.row != "training speed")
        assert finding.low is None or finding.low <= finding.value <= finding.high
    assert set(figures) == {"depth", "work-span", "speed-up", "time-tokens", "time-pair"}
    assert Result.model_validate_json(result.model_dump_json()) == result
    cells = {(f.model, f.row): f for f in result.findings}
    assert cells["transformer", "sequential steps"].standing == "better"
    assert cells["transformer", "parallel computation"].standing == ""
    gain = "2 threads, speed-up over one thread at n = 64"
    assert gain in cells["transformer", "parallel computation"].facts
    # a number of threads that both models are fastest with is the choice itself
    speed = cells["lstm", "training speed"]
    taken = {speed.facts[f"{model} ran on"] for model in shared.models}
    places = {"1 thread", "2 threads"} - (taken if len(taken) == 1 else set())
    assert set(speed.variations) == {"n = 16", "n = 64", "one pair at a time"} | places


def test_parallelism_round_has_all_places_and_lengths(measured):
    _, found = measured
    assert sum(cell.part.startswith("round") for cell in found) == 2 * ROUNDS
    one = found[Trial("transformer", "round-3")]
    at = {}
    for point in one.points:
        at.setdefault((point.form, point.batch, point.place), []).append(point.n)
        assert point.rows == (1 if point.batch == "pair" else 64 // point.n)
    batches, names = ("tokens", "pair"), ("1 thread", "2 threads")
    assert at == {("as built", batch, place): [16, 32, 64] for batch in batches for place in names}
    assert one.references == {"1 thread": [0.001, 0.001], "2 threads": [0.001, 0.001]}
    assert set(one.products) == set(one.flops) == {"1 thread", "2 threads"}


def test_parallelism_at_equal_depth_times_models_with_the_layers_of_the_recipe(contest, tiny, monkeypatch):
    made = []

    def time(comparison, candidate, sizes, where):
        made.append((candidate.settings.encoder_layers, candidate.settings.decoder_layers, sizes.lengths))
        return StepTimes(points=[], notes=[], flops={})

    monkeypatch.setattr(parallelism, "timed", time)
    shared = contest(["rnn", "transformer"], profile="definitive")
    assert not [trial for trial in EXPERIMENT.trials(shared) if trial.part.startswith(EQUAL_DEPTH_PART)]
    rnn, transformer = (replace(each, depths=(1, 2)) for each in shared.candidates)
    deep = replace(rnn, recipe=recipe_at(rnn.recipe, TuningTrial(rnn.learning_rate, 2)))
    shared = replace(shared, candidates=(deep, transformer))
    level = [trial for trial in EXPERIMENT.trials(shared) if trial.part.startswith(EQUAL_DEPTH_PART)]
    assert len(level) == 2 * ROUNDS
    for trial in (Trial("rnn", "round-1", in_round=True), level[0]):
        EXPERIMENT.measure(shared, trial)
    assert made == [(2, 2, TINY.lengths), (1, 1, (32,))]


def test_parallelism_claim_names_equal_depth_if_the_verdict_depends_on_it(contest):
    shared = contest(["rnn", "transformer"])

    def rounds(part, slower):
        return {
            cell: times({32: 0.004 if model == slower else 0.001}, factor=SLOW[i])
            for model in shared.models
            for i, cell in enumerate(round_trials([model], part))
        }

    (claim,) = EXPERIMENT.result(shared, rounds("round", "rnn")).claims
    assert (claim.verdict, "equal depth" in claim.stable) == ("yes", False)
    for slower, same in (("rnn", True), ("transformer", False)):
        found = rounds("round", "rnn") | rounds(EQUAL_DEPTH_PART, slower)
        (claim,) = EXPERIMENT.result(shared, found).claims
        assert (claim.verdict, claim.stable["equal depth"]) == ("yes", same)


def test_parallelism_tables_are_what_was_measured(contest):
    shared = contest(["rnn", "transformer"])
    result = EXPERIMENT.result(shared, planted())
    cells = {(f.model, f.row): f for f in result.findings}
    tables = {table.name: table for table in result.tables}
    # 2 pairs of 32 tokens in 4 ms, and longer: the median of 1, 1.1, …
    speeds = [2 * 32 / 0.004 / slow for slow in SLOW]
    assert cells["rnn", "training speed"].value == pytest.approx(statistics.median(speeds), rel=0.01)
    speed = cells["transformer", "training speed"]
    assert speed.standing == "better"
    assert (speed.rival, speed.difference_unit) == ("rnn", "times as fast")
    ends = (speed.difference, speed.difference_low, speed.difference_high)
    assert ends == pytest.approx((2.007, 2.004, 2.010), abs=0.003)
    # with 16 tokens the other one is faster; one thread takes half as long again for the Transformer alone, and that
    # both have two is no other choice where rnn is as fast with them
    others = {"one pair at a time": True, "1 thread": True}
    assert speed.variations == {"n = 16": False, "n = 256": True} | others
    # 50 × 256 FLOPs over 100; two threads are worth two in the reference product
    parallel = cells["transformer", "parallel computation"]
    assert parallel.value == pytest.approx(128)
    low, high = brent(128, 2)
    assert parallel.facts["2 threads, speed-up over one thread at n = 256"] == 1.5
    assert parallel.facts["2 threads, Brent's bounds"] == f"{low:.2f} to {high:.2f}"
    assert parallel.standing == ""
    exponents = {tuple(row[:4]): row[6] for row in tables["exponents"].rows}
    assert exponents["transformer", "as built", "fixed tokens", "2 threads"] == pytest.approx(0)


def _failing_beyond(monkeypatch, longest, message):
    real = parallelism.loss_of

    def failing(model, pairs, form, device_context):
        if form.explicit and pairs.source.shape[1] > longest:
            raise RuntimeError(message)
        return real(model, pairs, form, device_context)

    monkeypatch.setattr(parallelism, "loss_of", failing)


def test_parallelism_form_ends_where_memory_runs_out(contest, tiny, monkeypatch):
    _failing_beyond(monkeypatch, 32, "DefaultCPUAllocator: can't allocate memory")
    shared = contest(["transformer"])
    found = timed(shared, shared.candidate("transformer"), replace(TINY, variants=True), [TWO])
    assert [(note.form, note.n, note.why) for note in found.notes] == [("explicit attention", 64, "memory ran out")]
    assert [point.n for point in found.points if point.form == "explicit attention"] == [16, 32]
    _failing_beyond(monkeypatch, 0, "shapes do not fit")
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        timed(shared, shared.candidate("transformer"), replace(TINY, variants=True), [TWO])


def test_parallelism_one_thread_is_not_timed_on_batches_of_a_gpu(contest, tiny):
    shared = contest(["rnn"])
    where = [Place("1 thread", TWO.device_context, 1), Place("CUDA", TWO.device_context, 1)]
    found = timed(shared, shared.candidate("rnn"), TINY, where)
    measured = {(point.batch, point.place) for point in found.points}
    assert measured == {("pair", "1 thread"), ("pair", "CUDA"), ("tokens", "CUDA")}


def test_parallelism_form_ends_where_patience_does(contest, tiny):
    shared = contest(["rnn"])
    found = timed(shared, shared.candidate("rnn"), replace(TINY, patience=0.0), [TWO])
    assert found.points == []
    assert all(note.n == 16 and note.why.startswith("a step took") for note in found.notes)


def test_parallelism_time_of_the_verdicts_is_the_fastest_of_half_a_second(contest, monkeypatch):
    steps, seconds = dict[int, int](), {16: 0.05, 32: 0.02, 64: 0.05}

    def step(model, pairs, form, place):
        n = pairs.source.shape[1]
        steps[n] = steps.get(n, 0) + 1
        # the first step warms up, and a late one is the fastest
        return 9.0 if steps[n] == 1 else 0.01 if steps[n] == 20 else seconds[n]

    monkeypatch.setattr(parallelism, "_step", step)
    shared = contest(["rnn"])
    found = timed(shared, shared.candidate("rnn"), replace(TINY, tokens=8), [TWO])
    assert steps == {16: 2, 32: 27, 64: 2}
    assert {point.n: point.seconds for point in found.points} == {16: 0.05, 32: 0.01, 64: 0.05}


@pytest.mark.parametrize(
    ("slopes", "standings", "shorter"),
    [
        # growth of each chain with a token
        ({"rnn": 0, "transformer": 0}, ["tie", "tie"], True),
        ({"rnn": 12, "transformer": 0}, ["worse", "better"], True),
        ({"rnn": 12, "transformer": 29}, ["better", "worse"], True),
        # a growing chain may be shorter for short sources
        ({"rnn": 2, "transformer": 0}, ["worse", "better"], False),
    ],
)
def test_parallelism_chains_that_do_not_grow_are_equal_whatever_their_layers(contest, slopes, standings, shorter):
    shared = contest(["rnn", "transformer"])
    # the recurrent network has fewer layers
    found = {
        Trial(model, "work"): counts(lambda n, slope=slope, start=50 if model == "rnn" else 150: start + slope * n)
        for model, slope in slopes.items()
    }
    findings = [f for f in EXPERIMENT.result(shared, found).findings if f.row == "sequential steps"]
    assert [f.standing for f in findings] == standings
    assert all(f.variations["forward pass alone"] for f in findings)
    assert [f.variations["other lengths"] for f in findings] == [shorter, shorter]
