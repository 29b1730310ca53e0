import statistics
from dataclasses import replace

import pytest
import torch

from s2s.comparison import speed_benchmark
from s2s.comparison.questions.decoding import measure as decoding
from s2s.comparison.questions.decoding.analyse import DecodingTimes, PlaceTimes, TargetTime
from s2s.comparison.questions.decoding.measure import EXPERIMENT, SIZES, Sizes
from s2s.comparison.results import Result
from s2s.comparison.spec import NotForThisModel
from s2s.comparison.speed_benchmark import EQUAL_DEPTH_PART, Place, round_trials
from s2s.comparison.tuning import recipe_at
from s2s.comparison.tuning_search import TuningTrial
from s2s.comparison.workload import End, built
from s2s.training.device import DeviceContext

# two in name alone, so that tests do not fight for processors
TWO = Place("2 threads", DeviceContext(torch.device("cpu"), torch.float32), 1)
TINY = (Sizes(1, (16, 32, 64), (8, 16, 32), 1), Sizes(3, (16,), (8, 32), 1))


@pytest.fixture
def tiny(monkeypatch):
    """Smaller sizes for the quick profile, and a machine that is steady."""
    for profile in ("quick", "definitive"):
        monkeypatch.setitem(SIZES, profile, TINY)
    monkeypatch.setattr(speed_benchmark, "chain", lambda device_context: 0.001)
    monkeypatch.setattr(decoding, "places", lambda device_context: [TWO])
    monkeypatch.setattr(decoding, "round_trials", lambda models, part: round_trials(models, part, 2))


@pytest.fixture
def measured(tiny, measured_once):
    """A comparison of two models, and all its measurements."""
    return measured_once(EXPERIMENT, ["rnn", "transformer"])


def test_decoding_has_a_cell_for_every_model(measured):
    shared, found = measured
    result = EXPERIMENT.result(shared, found)
    assert [(f.model, f.row) for f in result.findings] == [(model, "decoding cost") for model in shared.models]
    for finding in result.findings:
        # two rounds have no interval
        assert (finding.low, finding.high) == (None, None)
        assert "exponent of time against source length" in finding.facts
        assert finding.figure in {figure.name for figure in result.figures}
        assert set(finding.variations) == {"source of 64 tokens", "batch 3"}
    assert Result.model_validate_json(result.model_dump_json()) == result
    tokens = next(table for table in result.tables if table.name == "tokens")
    assert len(tokens.rows) == 2 * (3 + 3 + 1 + 2)


def test_decoding_tables_are_what_was_measured(contest, tiny, monkeypatch):
    # reading takes 1 s for each source token, the k-th token k seconds
    def run(model, rows, source, target, device):
        return [1.0 * source, *(float(k) for k in range(1, target + 1))]

    monkeypatch.setattr(decoding, "_run", run)
    shared = contest(["rnn"])
    found = {cell: EXPERIMENT.measure(shared, cell) for cell in EXPERIMENT.trials(shared)}
    one = next(iter(found.values())).places[0]
    assert [point.seconds for point in one.targets] == [32 + 36, 32 + 136, 32 + 528]
    # tokens 5 to 8, 9 to 16, 17 to 32
    assert [point.last for point in one.targets] == [6.5, 12.5, 24.5]
    assert [point.seconds for point in one.sources] == [16 + 528, 32 + 528, 64 + 528]
    cell = EXPERIMENT.result(shared, found).findings[0]
    assert cell.value == pytest.approx(1000 * (32 + 528) / 32)
    assert cell.reasons == ["no other model was measured"]
    # a step writes a token of each sentence of a batch
    for figure in EXPERIMENT.result(shared, found).figures:
        of_one, of_three = ({x: y for x, y in zip(line.x, line.y, strict=True)} for line in figure.series)
        for length in of_one.keys() & of_three.keys():
            assert of_three[length] == pytest.approx(of_one[length] / 3)


def _round(seconds, alone, reference=0.001):
    """A planted round: seconds of a whole translation with two threads, and with one."""
    times = [
        PlaceTimes(place, [], [TargetTime(32, s, 0.1)], [])
        for place, s in (("1 thread", alone), ("2 threads", seconds))
    ]
    return DecodingTimes(places=times, references={"1 thread": [0.002] * 2, "2 threads": [reference] * 2})


# slowdown of each round, without a trend
SLOW = (1.3, 1.0, 1.7, 1.1, 1.5, 1.2, 1.6, 1.4)


def _planted(reference=0.001, alone=1.0):
    """With two threads `lstm` takes three times as long as `rnn`, and as long with one."""
    return {
        cell: _round(
            seconds * SLOW[i] * (1 + i * (model == "lstm") / 1000),
            alone * SLOW[i] * (1 + i * (model == "lstm") / 1000),
            reference if i else 0.001,
        )
        for model, seconds in (("rnn", 0.32), ("lstm", 0.96))
        for i, cell in enumerate(round_trials([model], "batch-1-round"))
    }


def test_decoding_the_faster_model_is_better(contest):
    shared = contest(["rnn", "lstm"])
    cells = {finding.model: finding for finding in EXPERIMENT.result(shared, _planted()).findings}
    assert cells["rnn"].value == pytest.approx(10 * statistics.median(SLOW))
    assert (cells["rnn"].standing, cells["rnn"].rival) == ("better", "lstm")
    assert cells["rnn"].difference == pytest.approx(3.01, abs=0.01)
    assert cells["lstm"].standing == "worse"
    # with one thread both take as long; both are ranked with two, which is no other choice
    assert cells["lstm"].variations == {"1 thread": False}


def test_decoding_uses_the_number_of_threads_that_is_fastest_for_the_model(contest):
    shared = contest(["rnn", "lstm"])
    # with one thread both take 0.4 s for 32 tokens: rnn is faster with two, lstm with one
    result = EXPERIMENT.result(shared, _planted(alone=0.4))
    cells = {finding.model: finding for finding in result.findings}
    slow = statistics.median(SLOW)
    assert cells["rnn"].value == pytest.approx(10 * slow)
    assert cells["lstm"].value == pytest.approx(12.5 * slow, rel=0.005)
    assert (cells["rnn"].standing, cells["rnn"].difference) == ("better", pytest.approx(1.25, abs=0.01))
    assert cells["lstm"].facts == {"lstm ran on": "1 thread", "rnn ran on": "2 threads"}
    assert cells["rnn"].variations == {"1 thread": False, "2 threads": True}
    assert all(each.quantity.endswith("with the number of threads that is fastest for it") for each in cells.values())
    lines = {each.model: each.y for figure in result.figures if figure.name == "by-target" for each in figure.series}
    assert lines == {model: [pytest.approx(cells[model].value)] for model in lines}


def _deep(shared):
    """The same contest after a search that chose two layers, where its recipe has one, for its first model."""
    first, *others = (replace(each, depths=(1, 2)) for each in shared.candidates)
    deep = replace(first, recipe=recipe_at(first.recipe, TuningTrial(first.learning_rate, 2)))
    return replace(shared, candidates=(deep, *others))


def test_decoding_at_equal_depth_builds_models_with_the_layers_of_the_recipe(contest, tiny, monkeypatch):
    shared, made = _deep(contest(["rnn", "transformer"], profile="definitive")), []

    def build(comparison, candidate, longest, device):
        made.append(candidate.settings)
        return built(comparison, candidate, longest, device)

    monkeypatch.setattr(decoding, "built", build)
    level = [trial for trial in EXPERIMENT.trials(shared) if trial.part.startswith(EQUAL_DEPTH_PART)]
    assert [(trial.model, trial.part) for trial in level] == [
        (model, f"equal-depth-round-{i}") for i in (1, 2) for model in shared.models
    ]
    times = EXPERIMENT.measure(shared, level[0])
    (own,) = made
    assert (own.encoder_layers, own.decoder_layers) == (1, 1)
    assert own.width > shared.candidate("rnn").settings.width
    assert [(place.sources, [point.m for point in place.targets]) for place in times.places] == [([], [32])]
    # without depths that were searched there is nothing to make equal; other profiles have no time for it
    for other in (contest(["rnn"], profile="definitive"), replace(shared, profile="quick")):
        assert not [trial for trial in EXPERIMENT.trials(other) if trial.part.startswith(EQUAL_DEPTH_PART)]


def test_decoding_claim_names_equal_depth_if_the_verdict_depends_on_it(contest):
    shared = _deep(contest(["rnn", "transformer"]))

    def rounds(part, slower, by):
        return {
            cell: _round(*[(by if model == slower else 0.32) * SLOW[i]] * 2)
            for model in shared.models
            for i, cell in enumerate(round_trials([model], part))
        }

    (claim,) = EXPERIMENT.result(shared, rounds("batch-1-round", "rnn", 0.9)).claims
    assert (claim.verdict, "equal depth" in claim.stable) == ("no", False)
    for slower, verdict in (("rnn", True), ("transformer", False)):
        found = rounds("batch-1-round", "rnn", 0.9) | rounds(EQUAL_DEPTH_PART, slower, 0.5)
        (claim,) = EXPERIMENT.result(shared, found).claims
        assert (claim.verdict, claim.stable["equal depth"]) == ("no", verdict)


def test_decoding_refuses_a_model_that_cannot_translate(contest, tiny):
    shared = contest(["rnn-tagger"])
    with pytest.raises(NotForThisModel, match="rnn-tagger"):
        EXPERIMENT.measure(shared, EXPERIMENT.trials(shared)[0])


def test_decoding_series_ends_where_memory_runs_out(contest, tiny, monkeypatch):
    real = decoding._run

    def failing(model, rows, source, target, device):
        if source > 32:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return real(model, rows, source, target, device)

    monkeypatch.setattr(decoding, "_run", failing)
    shared = contest(["rnn"])
    found = EXPERIMENT.measure(shared, EXPERIMENT.trials(shared)[0])
    for own in found.places:
        assert [point.n for point in own.sources] == [16, 32]
        assert own.notes == [End(64, "memory ran out", length="source")]
