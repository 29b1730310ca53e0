import pytest

from s2s.comparison.questions.memory import measure as memory
from s2s.comparison.questions.memory.measure import EXPERIMENT, SIZES, Sizes
from s2s.comparison.results import Result
from s2s.comparison.spec import Trial

# few, but as long as it takes until the matrix of weights is most of the memory
TINY = Sizes((64, 192, 256, 384, 512), 1, (8, 16, 32))


@pytest.fixture
def tiny(monkeypatch):
    """Smaller sizes for the quick profile."""
    monkeypatch.setitem(SIZES, "quick", TINY)


@pytest.fixture
def measured(tiny, measured_once):
    """A contest of two models, and all that was measured in it."""
    return measured_once(EXPERIMENT, ["rnn", "transformer"])


def _exponents(result):
    table = next(table for table in result.tables if table.name == "exponents")
    return {tuple(row[:3]): row[5] for row in table.rows}


def test_memory_grows_as_theory_says(measured):
    shared, found = measured
    result = EXPERIMENT.result(shared, found)
    exponents = _exponents(result)
    for what in ("training", "inference"):
        assert exponents["transformer", "explicit attention", what] == pytest.approx(2, abs=0.15)
        assert exponents["transformer", "as built", what] < exponents["transformer", "explicit attention", what] - 0.15
    assert exponents["rnn", "as built", "inference"] == pytest.approx(1, abs=0.05)
    for cell, one in found.items():
        peaks = {(point["form"], point["what"]): point["bytes"] for point in one["peaks"] if point["n"] == 512}
        form = {"rnn": "as built", "transformer": "explicit attention"}[cell.model]
        assert peaks[form, "inference"] < 0.5 * peaks[form, "training"]
    cells = {finding.model: finding for finding in result.findings}
    assert list(cells) == shared.models
    assert cells["rnn"].value == exponents["rnn", "as built", "training"]
    # nothing is random, so nothing has an interval
    assert cells["rnn"].low is None
    assert cells["rnn"].facts["R²"] > 0.9
    assert cells["rnn"].facts["exponent of the last two lengths"] == pytest.approx(1, abs=0.05)
    assert "exponent, explicit attention" in cells["transformer"].facts
    assert cells["rnn"].facts["growth of the decoder's state"] == "constant"
    assert Result.model_validate_json(result.model_dump_json()) == result


def test_a_cache_grows_by_a_key_and_a_value_for_each_layer_and_token(measured):
    shared, found = measured
    states = {cell.model: [point["state"] for point in one["states"]] for cell, one in found.items()}
    settings = {model: shared.candidate(model).settings.model_dump() for model in shared.models}
    width = settings["transformer"]["width"]
    assert states["transformer"] == [n * 2 * width * 4 for n in TINY.written]
    assert states["rnn"] == [settings["rnn"]["width"] * 4] * 3
    facts = next(f.facts for f in EXPERIMENT.result(shared, found).findings if f.model == "transformer")
    assert facts["growth of the decoder's state"] == "linear"


def _peaks(exponent, form="as built", fixed=0, lengths=(64, 128, 256, 512)):
    return [
        {"form": form, "what": what, "n": n, "bytes": fixed + round(1e6 * n**b)}
        for n in lengths
        for what, b in (("training", exponent), ("inference", 1.0))
    ]


def test_who_grows_less_is_better_whatever_it_takes(contest):
    shared = contest(["rnn", "transformer"])
    planted = {"rnn": _peaks(1.0), "transformer": [*_peaks(1.0), *_peaks(2.0, "explicit attention")]}
    found = {Trial(m, "peaks"): {"peaks": own, "states": [], "notes": []} for m, own in planted.items()}
    first, second = EXPERIMENT.result(shared, found).findings
    assert (first.standing, second.standing) == ("tie", "tie")
    assert second.variations == {"inference": True, "all lengths": True, "explicit attention": False}
    found[Trial("transformer", "peaks")]["peaks"] = _peaks(1.5)
    first, second = EXPERIMENT.result(shared, found).findings
    assert (first.standing, second.standing) == ("better", "worse")
    assert second.value == pytest.approx(1.5, abs=1e-4)


def test_what_a_single_token_takes_is_no_matter_of_length(contest):
    # a recurrent layer's workspace on a GPU, beside which its own memory was n to the power of 0.52 (docs/dev/log.md)
    shared = contest(["rnn", "transformer"])
    lengths = (1, 64, 512, 1024, 2048)
    planted = {"rnn": _peaks(1.0, fixed=10**9, lengths=lengths), "transformer": _peaks(1.0, lengths=lengths)}
    found = {Trial(m, "peaks"): {"peaks": own, "states": [], "notes": []} for m, own in planted.items()}
    result = EXPERIMENT.result(shared, found)
    first, second = result.findings
    assert (first.standing, second.standing) == ("tie", "tie")
    assert first.value == second.value == pytest.approx(1, abs=0.002)
    assert first.variations == {"inference": True, "all lengths": True}
    assert all(curve.x == [64, 512, 1024, 2048] for curve in result.figures[0].series)
    for own in planted.values():
        del own[:2]
    # without it, that of the longest lengths is nearly the same where nothing is fixed, and another where much is
    first, second = EXPERIMENT.result(shared, found).findings
    assert first.value < 0.7
    assert second.value == pytest.approx(1, abs=0.002)
    assert all(each.quantity.startswith("exponent of peak training memory") for each in (first, second))


def test_a_form_that_only_the_shortest_text_has_room_for_is_left_out(contest):
    shared = contest(["transformer"])
    explicit = _peaks(2.0, "explicit attention", lengths=(1,))
    one = {"peaks": [*_peaks(1.0, lengths=(1, 64, 128, 256)), *explicit], "states": [], "notes": []}
    (found,) = EXPERIMENT.result(shared, {Trial("transformer", "peaks"): one}).findings
    assert found.value == pytest.approx(1, abs=0.01)
    assert "exponent, explicit attention" not in found.facts


def test_a_series_ends_where_memory_does(contest, tiny, monkeypatch):
    real = memory.states_of

    def failing(model, pairs, form):
        if pairs.source.shape[1] > 64:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return real(model, pairs, form)

    monkeypatch.setattr(memory, "states_of", failing)
    shared = contest(["rnn"])
    found = EXPERIMENT.measure(shared, Trial("rnn"))
    assert [(note["n"], note["why"]) for note in found["notes"]] == [(192, "memory ran out")]
    assert {point["n"] for point in found["peaks"]} == {1, 64}
    # two lengths have no exponent, so there is no cell
    assert EXPERIMENT.result(shared, {Trial("rnn"): found}).findings == []


def test_what_could_take_the_machine_down_is_not_tried(contest, tiny, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 20_000_000)
    shared = contest(["transformer"])
    found = EXPERIMENT.measure(shared, Trial("transformer"))
    ends = {note["form"]: note["n"] for note in found["notes"] if "free memory" in note["why"]}
    assert ends["explicit attention"] <= 512
    assert max(point["bytes"] for point in found["peaks"]) < 20_000_000
