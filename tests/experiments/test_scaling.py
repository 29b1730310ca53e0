"""Power laws: a planted one is found, sizes agree within 5 %, and what is missing is left out."""

import json

import pytest

from s2s.experiments import scaling
from s2s.experiments.contest import NotForThisModel
from s2s.experiments.matching import TOLERANCE, size_of
from s2s.experiments.scaling import EXPERIMENT, Sizes, part_of
from s2s.questions import ROWS

TINY = Sizes(factors=(0.5, 1, 2), updates=0.34, seeds=1)


def _planted(cell, b, noise=0.0):
    factor = next(f for f in scaling.SIZES["quick"].factors if part_of(f) == cell.part)
    wiggle = 1 + noise * (-1) ** round(4 * factor)
    return {
        "factor": factor,
        "wanted": round(1e6 * factor),
        "parameters": round(1e6 * factor),
        "width": 8,
        "updates": 10,
        "tokens": 5,
        "flops": 6e6 * factor * 5,
        "loss": 3 * factor**-b * wiggle,
        "baseline": 6.0,
        "seconds": 1.0,
    }


def _laws(result):
    table = next(table for table in result.tables if table.name == "laws")
    return {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}


def test_a_planted_law_is_found(contest):
    made = contest(["rnn", "transformer"])
    planted = {"rnn": 0.05, "transformer": 0.12}
    measured = {cell: _planted(cell, planted[cell.model], 0.001) for cell in EXPERIMENT.cells(made)}
    result = EXPERIMENT.conclude(made, measured)
    for finding in result.findings:
        assert finding.value == pytest.approx(planted[finding.model], abs=0.002)
        assert finding.low < planted[finding.model] < finding.high
    rnn, transformer = (finding.verdict for finding in result.findings)
    assert rnn.startswith("loss falls by 3.")
    assert "gains less from size than transformer" in rnn
    assert "gains more from size than rnn: 0.07" in transformer
    assert transformer.endswith("(4 sizes, 1 seed)")
    laws = _laws(result)
    assert laws["transformer − rnn"]["b (parameters)"] == pytest.approx(0.07, abs=1e-4)
    assert laws["rnn"]["b (compute)"] == pytest.approx(0.05, abs=0.002)
    figure = next(figure for figure in result.figures if figure.name == "parameters")
    measured_curve, fitted = (s for s in figure.series if s.model == "rnn")
    assert not measured_curve.reference
    assert fitted.reference
    assert fitted.y == pytest.approx(measured_curve.y, rel=0.01)


def test_noise_is_no_law(contest):
    made = contest(["rnn", "gru"])
    result = EXPERIMENT.conclude(made, {cell: _planted(cell, 0.01, 0.05) for cell in EXPERIMENT.cells(made)})
    assert result.findings[0].low < 0 < result.findings[0].high
    assert result.findings[0].verdict.startswith("no gain from size to be seen")
    worse = EXPERIMENT.conclude(made, {cell: _planted(cell, -0.2) for cell in EXPERIMENT.cells(made)})
    assert worse.findings[0].verdict.startswith("loss rises by 14.9 %")


def test_missing_sizes_and_models_are_left_out(contest):
    made = contest(["rnn", "gru"])
    cells = EXPERIMENT.cells(made)
    few = {t: _planted(t, 0.1) for t in cells if (t.model == "rnn" and t.part != "size-25") or t.part == "size-100"}
    result = EXPERIMENT.conclude(made, few)
    # one size makes no law
    assert [finding.model for finding in result.findings] == ["rnn"]
    assert result.findings[0].value == pytest.approx(0.1)
    two = {t: m for t, m in few.items() if t.part in ("size-50", "size-100")}
    (finding,) = EXPERIMENT.conclude(made, two).findings
    assert finding.low is None
    assert "too few sizes" in finding.verdict
    assert EXPERIMENT.conclude(made, {}).findings == []


def test_real_sizes_agree_and_equal_seeds_give_equal_numbers(contest, monkeypatch):
    monkeypatch.setitem(scaling.SIZES, "quick", TINY)
    made = contest(["rnn", "transformer"], seeds=(1, 2))
    cells = EXPERIMENT.cells(made)
    assert {cell.seed for cell in cells} == {1}
    measured = {cell: EXPERIMENT.measure(made, cell) for cell in cells}
    size = size_of("rnn", made.contestants[0].settings, 400, 400)
    for part in ("size-50", "size-100", "size-200"):
        sizes = [found for cell, found in measured.items() if cell.part == part]
        assert len({found["wanted"] for found in sizes}) == 1
        assert len({found["tokens"] for found in sizes}) == 1
        for found in sizes:
            assert abs(found["parameters"] - found["wanted"]) <= TOLERANCE * found["wanted"]
            # what no model can have is moved a little
            assert 0.8 * found["factor"] < found["wanted"] / size < 1.2 * found["factor"]
    json.dumps(list(measured.values()), allow_nan=False)
    again = EXPERIMENT.measure(made, cells[0])
    assert {k: v for k, v in again.items() if k != "seconds"} == {
        k: v for k, v in measured[cells[0]].items() if k != "seconds"
    }
    result = EXPERIMENT.conclude(made, measured)
    assert result.experiment == ROWS["scalability"][1]
    assert {figure.name for figure in result.figures} == {"parameters", "compute"}


def test_parts_are_names_of_files():
    assert [part_of(factor) for factor in (0.125, 0.25, 1, 2)] == ["size-12-5", "size-25", "size-100", "size-200"]


def test_a_tagger_is_told_so(contest, monkeypatch):
    monkeypatch.setitem(scaling.SIZES, "quick", TINY)
    made = contest(["rnn-tagger"])
    with pytest.raises(NotForThisModel):
        EXPERIMENT.measure(made, EXPERIMENT.cells(made)[0])
