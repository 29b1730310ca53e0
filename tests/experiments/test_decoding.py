from itertools import pairwise

import pytest

from s2s.experiments import decoding
from s2s.experiments.contest import Cell, NotForThisModel
from s2s.experiments.decoding import EXPERIMENT, SIZES, Sizes
from s2s.results import Result

TINY = (Sizes(1, (16, 32, 64), (8, 16, 32), 6), Sizes(3, (16, 32), (8, 16), 6))


@pytest.fixture
def tiny(monkeypatch):
    """Smaller sizes for the quick profile."""
    monkeypatch.setitem(SIZES, "quick", TINY)


@pytest.fixture
def measured(tiny, measured_once):
    """A contest of two models, and all that was measured in it."""
    return measured_once(EXPERIMENT, ["rnn", "transformer"])


def test_every_model_has_its_cell(measured):
    shared, found = measured
    result = EXPERIMENT.conclude(shared, found)
    assert [(f.model, f.row) for f in result.findings] == [(model, "decoding cost") for model in shared.models]
    for finding in result.findings:
        assert finding.low <= finding.value <= finding.high
        assert "grows as n^" in finding.verdict
        assert finding.figure in {figure.name for figure in result.figures}
    assert Result.model_validate_json(result.model_dump_json()) == result
    tokens = next(table for table in result.tables if table.name == "tokens")
    assert len(tokens.rows) == 2 * (3 + 3 + 2 + 2)


def test_a_longer_target_takes_longer_and_all_lengths_are_repeated(measured):
    _, found = measured
    for one in found.values():
        assert all(len(point["seconds"]) == 6 for point in one["sources"] + one["targets"])
        # short targets are the beginnings of long ones
        for short, long in pairwise(point["seconds"] for point in one["targets"]):
            assert all(a < b for a, b in zip(short, long, strict=True))
        assert all(r < s for point in one["sources"] for r, s in zip(point["reading"], point["seconds"], strict=True))


def test_the_figures_are_what_was_measured(contest, tiny, monkeypatch):
    # reading takes 1 s for each source token, the k-th token k seconds
    def run(model, rows, source, target, device):
        return [1.0 * source, *(float(k) for k in range(1, target + 1))]

    monkeypatch.setattr(decoding, "_run", run)
    shared = contest(["rnn"])
    found = {cell: EXPERIMENT.measure(shared, cell) for cell in EXPERIMENT.cells(shared)}
    one = found[Cell("rnn", "batch-1")] if Cell("rnn", "batch-1") in found else next(iter(found.values()))
    assert [point["seconds"][0] for point in one["targets"]] == [32 + 36, 32 + 136, 32 + 528]
    # tokens 5 to 8, 9 to 16, 17 to 32
    assert [point["last"][0] for point in one["targets"]] == [6.5, 12.5, 24.5]
    assert [point["seconds"][0] for point in one["sources"]] == [16 + 528, 32 + 528, 64 + 528]
    cell = EXPERIMENT.conclude(shared, found).findings[0]
    assert cell.value == pytest.approx(1000 * (32 + 528) / 32)
    assert cell.verdict.startswith("no other model was measured")


def test_the_faster_model_is_said_to_be_faster(contest, tiny):
    shared = contest(["rnn", "lstm"])
    found = {
        Cell(model, "batch-1"): {
            "rows": 1,
            "reference": 0.001,
            "sources": [],
            "targets": [{"m": 32, "seconds": [seconds] * 10, "last": [0.1] * 10}],
            "notes": [],
        }
        for model, seconds in (("rnn", 0.32), ("lstm", 0.96))
    }
    cells = {finding.model: finding for finding in EXPERIMENT.conclude(shared, found).findings}
    assert cells["rnn"].value == pytest.approx(10)
    assert cells["rnn"].verdict == "3.00 times (3.00 to 3.00) as fast as lstm, the best of the others"
    assert cells["lstm"].verdict == "0.33 times (0.33 to 0.33) the speed of rnn, the best"


def test_a_model_that_writes_a_piece_for_each_it_reads_cannot_take_part(contest, tiny):
    shared = contest(["rnn-tagger"])
    with pytest.raises(NotForThisModel, match="rnn-tagger"):
        EXPERIMENT.measure(shared, EXPERIMENT.cells(shared)[0])


def test_a_series_ends_where_memory_does(contest, tiny, monkeypatch):
    real = decoding._run

    def failing(model, rows, source, target, device):
        if source > 32:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return real(model, rows, source, target, device)

    monkeypatch.setattr(decoding, "_run", failing)
    shared = contest(["rnn"])
    found = EXPERIMENT.measure(shared, EXPERIMENT.cells(shared)[0])
    assert [point["n"] for point in found["sources"]] == [16, 32]
    assert found["notes"] == [{"length": "source", "n": 64, "why": "memory ran out"}]


def test_a_conclusion_needs_no_measurement_of_all(measured):
    shared, found = measured
    assert EXPERIMENT.conclude(shared, {}).findings == []
    # of 64 at once alone there are figures but no cell
    batches = {cell: one for cell, one in found.items() if cell.part != "batch-1"}
    result = EXPERIMENT.conclude(shared, batches)
    assert result.findings == []
    assert result.figures
