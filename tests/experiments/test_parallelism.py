from dataclasses import replace

import pytest

from s2s.evaluation.inference import growth
from s2s.experiments import parallelism
from s2s.experiments.contest import Cell
from s2s.experiments.instruments import Machine
from s2s.experiments.parallelism import EXPERIMENT, SIZES, counted, timed
from s2s.questions import ROWS
from s2s.results import Result

TINY = replace(
    SIZES["quick"],
    counted=(8, 16, 32, 64),
    written=(4, 8, 16),
    lengths=(16, 32, 64),
    tokens=64,
    rows=1,
    by_step=32,
    repetitions=3,
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
def tiny(monkeypatch):
    """Smaller sizes for the quick profile, and a machine that is known."""
    monkeypatch.setitem(SIZES, "quick", TINY)
    monkeypatch.setattr(parallelism, "machine", lambda computer: Machine(1e12, 0.001))


def _depths(found, form, what, key="depth"):
    points = [point for point in found["points"] if point["form"] == form and point["what"] == what]
    return [point["n"] for point in points], [point[key] for point in points]


@pytest.mark.parametrize("model", LAWS)
def test_sequential_depth_grows_as_theory_says(contest, model):
    shared = contest([model])
    found = counted(shared, shared.contestant(model), TINY)
    for what in ("forward", "training"):
        lengths, depths = _depths(found, "unfused", what)
        assert lengths == [8, 16, 32, 64]
        assert growth(lengths, depths).law == LAWS[model]
    # each token waits for the one before, whatever the model
    assert growth(*_depths(found, "unfused", "generating")).law == "linear"


def test_fused_the_lstm_launches_as_much_at_every_length(contest):
    shared = contest(["lstm"])
    found = counted(shared, shared.contestant("lstm"), TINY)
    assert len(set(_depths(found, "as built", "training", "operations")[1])) == 1
    # seven operations for each token read, and as many for each written
    assert growth(*_depths(found, "unfused", "generating")).rate >= 14
    unfused = _depths(found, "unfused", "training", "operations")[1]
    assert growth([8, 16, 32, 64], unfused).law == "linear"


def test_counting_again_gives_the_same(contest):
    shared = contest(["transformer"])
    sizes = replace(TINY, counted=(16, 32), written=(4,))
    assert counted(shared, shared.contestant("transformer"), sizes) == counted(
        shared, shared.contestant("transformer"), sizes
    )


@pytest.fixture
def measured(tiny, measured_once):
    """A contest of two models, and all that was measured in it."""
    return measured_once(EXPERIMENT, ["lstm", "transformer"])


def test_every_model_has_its_three_cells(measured):
    shared, found = measured
    result = EXPERIMENT.conclude(shared, found)
    rows = [name for name, row in ROWS.items() if row.experiment == EXPERIMENT.name]
    assert [(f.model, f.row) for f in result.findings] == [(m, r) for m in shared.models for r in rows]
    figures = {figure.name: figure for figure in result.figures}
    for finding in result.findings:
        assert finding.figure in figures
        assert finding.verdict
        assert finding.value is not None
        assert finding.low is None or finding.low <= finding.value <= finding.high
    assert set(figures) == {
        "depth",
        "depth-generating",
        "operations",
        "time-tokens",
        "time-rows",
        "passes",
        "decoding-step",
        "share",
    }
    assert Result.model_validate_json(result.model_dump_json()) == result
    labels = {series.label for series in figures["time-rows"].series}
    assert labels == {
        "lstm, as built",
        "lstm, unfused",
        "lstm, decoder step by step",
        "transformer, as built",
        "transformer, explicit attention",
        "transformer, decoder step by step",
    }


def test_a_conclusion_needs_no_measurement_of_all(measured):
    shared, found = measured
    for left in ({}, {t: m for t, m in found.items() if t.part == "depth"}, {t: m for t, m in found.items() if t.part}):
        EXPERIMENT.conclude(shared, left)
    times = {cell: one for cell, one in found.items() if cell.part == "time-2"}
    rows = [finding.row for finding in EXPERIMENT.conclude(shared, times).findings]
    # without a count there is no share of the peak
    assert rows == ["training speed"] * 2
    alone = {cell: one for cell, one in found.items() if cell.model == "lstm"}
    assert {finding.model for finding in EXPERIMENT.conclude(shared, alone).findings} == {"lstm"}


def test_each_round_is_repeated_as_often_and_its_forms_at_equal_lengths(measured):
    _, found = measured
    one = next(m for cell, m in found.items() if cell.key == "transformer--time-1")
    at = {}
    for point in one["points"]:
        at.setdefault((point["form"], point["batch"]), []).append(point["n"])
        assert len(point["forward"]) == len(point["backward"]) == TINY.repetitions
        assert point["rows"] == (1 if point["batch"] == "rows" else 64 // point["n"])
    assert at == {
        ("as built", "tokens"): [16, 32, 64],
        ("as built", "rows"): [16, 32, 64],
        ("explicit attention", "rows"): [16, 32, 64],
        ("decoder step by step", "rows"): [16, 32],
    }
    assert [point["n"] for point in one["steps"]] == [16, 32, 64]


def _times(seconds, peak=1e9):
    """What `timed` would have given for a model as built, with these seconds for each pass."""
    points = [
        {"form": "as built", "batch": batch, "n": n, "rows": rows, "forward": [s] * 5, "backward": [s] * 5}
        for batch, rows in (("tokens", 2), ("rows", 4))
        for n, s in seconds.items()
    ]
    return {"points": points, "steps": [], "notes": [], "peak": peak, "reference": 0.001}


def _counts():
    return {"points": [], "flops": [{"n": n, "flops": 1000 * n + n * n} for n in (16, 32, 64)], "width": 8}


def test_the_figures_are_what_was_measured(contest):
    shared = contest(["rnn", "transformer"])
    found = {}
    for model, seconds in (
        ("rnn", {16: 0.001, 32: 0.004, 256: 0.016}),
        ("transformer", {16: 0.002, 32: 0.002, 256: 0.002}),
    ):
        found[Cell(model, "depth")] = _counts()
        for i in (1, 2):
            found[Cell(model, f"time-{i}")] = _times(seconds)
    result = EXPERIMENT.conclude(shared, found)
    cells = {(f.model, f.row): f for f in result.findings}
    # 2 pairs of 32 tokens in 4 + 4 ms
    assert cells["rnn", "training speed"].value == pytest.approx(2 * 32 / 0.008)
    assert cells["transformer", "training speed"].verdict == (
        "2.00 times (2.00 to 2.00) as fast as rnn, the best of the others"
    )
    # 2 × (1000 × 256 + 256²) operations in 32 ms, of 10⁹ a second
    share = 100 * 2 * (256_000 + 65_536) / 0.032 / 1e9
    assert cells["rnn", "parallel computation"].value == pytest.approx(share)
    crossings = next(table for table in result.tables if table.name == "crossings")
    assert [row[-1] for row in crossings.rows] == ["23; rnn is faster below 23"] * 2
    exponents = {tuple(row[:4]): row[6] for table in result.tables if table.name == "exponents" for row in table.rows}
    assert exponents["transformer", "as built", "fixed batch", "both"] == pytest.approx(0)


def test_a_form_ends_where_memory_does(contest, tiny, monkeypatch):
    real = parallelism.loss_of

    def failing(model, pairs, form, computer):
        if form.name == "explicit attention" and pairs.source.shape[1] > 32:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return real(model, pairs, form, computer)

    monkeypatch.setattr(parallelism, "loss_of", failing)
    shared = contest(["transformer"])
    found = timed(shared, shared.contestant("transformer"), TINY)
    notes = {note["form"]: (note["n"], note["why"]) for note in found["notes"]}
    assert notes["explicit attention"] == (64, "memory ran out")
    lengths = {form: [p["n"] for p in found["points"] if p["form"] == form and p["batch"] == "rows"] for form in notes}
    assert lengths["explicit attention"] == [16, 32]


def test_a_form_ends_where_patience_does(contest, tiny):
    shared = contest(["rnn"])
    found = timed(shared, shared.contestant("rnn"), replace(TINY, patience=0.0))
    assert found["points"] == []
    assert all(note["n"] == 16 and note["why"].startswith("a step took") for note in found["notes"])


def test_another_error_is_no_end(contest, tiny, monkeypatch):
    def failing(model, pairs, form, computer):
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(parallelism, "loss_of", failing)
    shared = contest(["rnn"])
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        timed(shared, shared.contestant("rnn"), TINY)
