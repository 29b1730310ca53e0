import pytest

from s2s.comparison.questions.memory import measure as memory
from s2s.comparison.questions.memory.analyse import MemoryUse, Peak
from s2s.comparison.questions.memory.measure import EXPERIMENT, SIZES, Sizes
from s2s.comparison.results import Result
from s2s.comparison.spec import Trial

# few, but as long as it takes until the attention weights are most of the memory
TINY = Sizes((64, 192, 256, 384, 512), 1, (8, 16, 32))


@pytest.fixture
def tiny(monkeypatch):
    """Smaller sizes for the quick profile."""
    monkeypatch.setitem(SIZES, "quick", TINY)


@pytest.fixture
def measured(tiny, measured_once):
    """A comparison of two models, and all its measurements."""
    return measured_once(EXPERIMENT, ["rnn", "transformer"])


def test_memory_grows_as_theory_says(measured):
    shared, found = measured
    result = EXPERIMENT.result(shared, found)
    table = next(table for table in result.tables if table.name == "exponents")
    exponents = {tuple(row[:3]): row[5] for row in table.rows}
    for what in ("training", "inference"):
        assert exponents["transformer", "explicit attention", what] == pytest.approx(2, abs=0.15)
        assert exponents["transformer", "as built", what] < exponents["transformer", "explicit attention", what] - 0.15
    assert exponents["rnn", "as built", "inference"] == pytest.approx(1, abs=0.05)
    for trial, one in found.items():
        form = {"rnn": "as built", "transformer": "explicit attention"}[trial.model]
        inference, training = (one.bytes_by_length(form, what)[512] for what in ("inference", "training"))
        assert inference < 0.5 * training
    cells = {finding.model: finding for finding in result.findings}
    assert list(cells) == shared.models
    assert cells["rnn"].value == exponents["rnn", "as built", "training"]
    # nothing is random, so nothing has an interval
    assert cells["rnn"].low is None
    assert cells["rnn"].facts["R²"] > 0.9
    assert cells["rnn"].facts["exponent of the last two lengths"] == pytest.approx(1, abs=0.05)
    assert "exponent, explicit attention" in cells["transformer"].facts
    assert Result.model_validate_json(result.model_dump_json()) == result


def test_memory_of_a_cache_is_a_key_and_a_value_for_each_layer_and_token(measured):
    shared, found = measured
    states = {trial.model: [each.state for each in one.states] for trial, one in found.items()}
    widths = {model: shared.candidate(model).settings.model_dump()["width"] for model in shared.models}
    assert states["transformer"] == [n * 2 * widths["transformer"] * 4 for n in TINY.written]
    assert states["rnn"] == [widths["rnn"] * 4] * 3
    facts = {f.model: f.facts["growth of the decoder's state"] for f in EXPERIMENT.result(shared, found).findings}
    assert facts == {"rnn": "constant", "transformer": "linear"}


def _peaks(exponent, form="as built", fixed=0, lengths=(64, 128, 256, 512)):
    return [
        Peak(form, what, n, fixed + round(1e6 * n**b))
        for n in lengths
        for what, b in (("training", exponent), ("inference", 1.0))
    ]


def _findings(comparison, peaks):
    return EXPERIMENT.result(comparison, {Trial(m, "peaks"): MemoryUse(own, [], []) for m, own in peaks.items()})


def test_memory_that_grows_less_is_better_whatever_its_peak(contest):
    shared = contest(["rnn", "transformer"])
    planted = {"rnn": _peaks(1.0), "transformer": [*_peaks(1.0), *_peaks(2.0, "explicit attention")]}
    first, second = _findings(shared, planted).findings
    assert (first.standing, second.standing) == ("tie", "tie")
    assert second.variations == {"inference": True, "all lengths": True, "explicit attention": False}
    first, second = _findings(shared, planted | {"transformer": _peaks(1.5)}).findings
    assert (first.standing, second.standing) == ("better", "worse")
    assert second.value == pytest.approx(1.5, abs=1e-4)


def test_memory_of_a_single_token_is_subtracted(contest):
    # a recurrent layer's workspace on a GPU, beside which its own memory was n to the power of 0.52 (docs/dev/log.md)
    shared = contest(["rnn", "transformer"])
    lengths = (1, 64, 512, 1024, 2048)
    planted = {"rnn": _peaks(1.0, fixed=10**9, lengths=lengths), "transformer": _peaks(1.0, lengths=lengths)}
    result = _findings(shared, planted)
    first, second = result.findings
    assert (first.standing, second.standing) == ("tie", "tie")
    assert first.value == second.value == pytest.approx(1, abs=0.002)
    assert first.variations == {"inference": True, "all lengths": True}
    assert all(curve.x == [64, 512, 1024, 2048] for curve in result.figures[0].series)
    # an older comparison lacks it: nearly the same exponent where nothing is fixed, another one where much is
    first, second = _findings(shared, {model: own[2:] for model, own in planted.items()}).findings
    assert first.value < 0.7
    assert second.value == pytest.approx(1, abs=0.002)
    assert all(each.quantity.startswith("exponent of peak training memory") for each in (first, second))


def test_memory_leaves_out_a_form_with_the_shortest_length_alone(contest):
    peaks = [*_peaks(1.0, lengths=(1, 64, 128, 256)), *_peaks(2.0, "explicit attention", lengths=(1,))]
    (found,) = _findings(contest(["transformer"]), {"transformer": peaks}).findings
    assert found.value == pytest.approx(1, abs=0.01)
    assert "exponent, explicit attention" not in found.facts


def test_memory_series_ends_where_memory_runs_out(contest, tiny, monkeypatch):
    real = memory.states_of

    def failing(model, pairs, form):
        if pairs.source.shape[1] > 64:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return real(model, pairs, form)

    monkeypatch.setattr(memory, "states_of", failing)
    shared = contest(["rnn"])
    found = EXPERIMENT.measure(shared, Trial("rnn"))
    assert [(note.n, note.why) for note in found.notes] == [(192, "memory ran out")]
    assert {peak.n for peak in found.peaks} == {1, 64}
    # two lengths have no exponent, so there is no cell
    assert EXPERIMENT.result(shared, {Trial("rnn"): found}).findings == []


def test_memory_that_could_take_the_machine_down_is_not_tried(contest, tiny, monkeypatch):
    monkeypatch.setattr(memory, "machine_memory", lambda of: 20_000_000)
    found = EXPERIMENT.measure(contest(["transformer"]), Trial("transformer"))
    ends = {note.form: note.n for note in found.notes if "free memory" in note.why}
    assert ends["explicit attention"] <= 512
    assert max(peak.bytes for peak in found.peaks) < 20_000_000
