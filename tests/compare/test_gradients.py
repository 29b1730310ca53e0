"""Gradients question: known factors and fits, measurements in tiny models, and conclusions from planted ones."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from torch import nn

from s2s.comparison.deep import DeepTraining, DeepTrainings
from s2s.comparison.plans import ROWS
from s2s.comparison.questions.gradients import measure as gradients
from s2s.comparison.questions.gradients.analyse import (
    CandidateRuns,
    GradientRun,
    JacobianSpectrum,
    Weights,
    _jacobians,
    neutral_value,
)
from s2s.comparison.questions.gradients.decay import (
    Decay,
    Decays,
    brief,
    curve_of,
    fit_decay,
    geometric_mean,
    half_life,
)
from s2s.comparison.questions.gradients.measure import EXPERIMENT, Sizes
from s2s.comparison.questions.gradients.sweep import radius, sweep_parameter_of
from s2s.comparison.spec import NotForThisModel, Trial
from s2s.recipe.installed import module_of

DEEP = DeepTrainings(updates=2, warmup=1, layers=1, width=16, pairs=2_200, tokens=256, every=1)
TINY = Sizes(span=16, texts=2, together=2, weights=2, followed=1, settle=4, deep=DEEP, deep_seeds=0)
ROW = "vanishing and exploding gradients"


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    monkeypatch.setitem(gradients.SIZES, "quick", TINY)


KEPT = {}


def _measured(made, parts=("own", "learned", "by")):
    """Stored measurements, made once for all tests of this file."""
    size = made.sizes(gradients.SIZES)
    cells = [cell for cell in EXPERIMENT.trials(made) if cell.part.partition("-")[0] in parts]
    for cell in cells:
        if (cell, size) not in KEPT:
            KEPT[cell, size] = json.dumps(asdict(EXPERIMENT.measure(made, cell)), allow_nan=False)
            assert len(KEPT[cell, size]) < 200_000
    return {cell: json.loads(KEPT[cell, size]) for cell in cells}


def _table(result, name):
    table = next(table for table in result.tables if table.name == name)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_gradients_factor_is_that_of_the_initialization(contest, monkeypatch):
    monkeypatch.setitem(gradients.SIZES, "quick", replace(TINY, span=40, weights=3))
    made = contest(["rnn", "lstm"])
    result = EXPERIMENT.result(made, _measured(made, ["own", "by"]))
    rnn, lstm = ({f.model: f for f in result.findings}[model] for model in ("rnn", "lstm"))
    # a tanh network's gradients vanish at its usual initialisation, and those of an LSTM that begins by remembering
    # do so more slowly; but either can be turned
    assert rnn.high < 1
    assert rnn.facts["outcome"] == "vanishes"
    assert rnn.facts["half-life (steps)"] > 0
    assert lstm.value > rnn.high
    rows = {(row["model"], row["value"]): row for row in _table(result, "gradient-sweep")}
    # an independent implementation, at other widths and without text, found these at gains of the orthogonal matrix
    for gain, factor in ((0.5, 0.496), (0.9, 0.878), (1.0, 0.949), (1.1, 0.986)):
        assert rows["rnn", gain]["factor per step"] == pytest.approx(factor, abs=0.04)
    for bias, factor in ((0.0, 0.744), (1.0, 0.972)):
        assert rows["lstm", bias]["factor per step"] == pytest.approx(factor, abs=0.06)
    # the model's own initialisation is one of the values: an orthogonal matrix, and a forget bias of 1
    for model, own, value in (("rnn", rnn, 1.0), ("lstm", lstm, 1.0)):
        assert rows[model, value]["own value"] == pytest.approx(value, abs=1e-6)
        assert rows[model, value]["factor per step"] == pytest.approx(own.value, rel=1e-4)
    assert rnn.variations["spectral radius of the recurrent weights 0.5"]
    assert not rnn.variations["spectral radius of the recurrent weights 1.5"]
    ways = [way_ == "vanishes" for way_ in _ways(rows, "rnn")]
    own_value = [value for model, value in rows if model == "rnn"].index(1.0)
    assert list(rnn.variations.values()) == ways[:own_value] + ways[own_value + 1 :]
    assert "factor at spectral radius of the recurrent weights 0.5" in rnn.facts
    assert (rnn.standing, lstm.standing) == ("", "")
    jacobian = {row["model"]: row for row in _table(result, "jacobian")}
    for model in ("rnn", "lstm"):
        row = jacobian[model]
        # in the long run gradients go by the Lyapunov exponent; no step exceeds the norm
        assert row["fitted factor (state)"] == pytest.approx(row["exp(λ) per step"], abs=0.03)
        assert row["fitted factor (state)"] < row["spectral norm, mean"] <= row["spectral norm, largest"]


def _ways(rows, model):
    return [row["outcome"] for (name, _), row in rows.items() if name == model]


def test_gradients_result_has_all_tables_and_figures(contest):
    made = contest(["lstm-attention", "transformer"])
    result = EXPERIMENT.result(made, _measured(made))
    assert [(f.row, f.model, f.failed) for f in result.findings] == [(ROW, m, "") for m in made.models]
    # two validations do not say that a training was over
    assert {f.facts["trainings not converged"] for f in result.findings} == {"1 of 1"}
    assert ROWS[ROW][1] == EXPERIMENT.name == result.experiment
    names = [figure.name for figure in result.figures]
    assert names == [
        "gradient-sweep-bias",
        *("input-gradients", "input-gradients-trained", "source-gradients", "source-gradients-trained"),
        "paths",
    ]
    assert [f.figure for f in result.findings] == ["gradient-sweep-bias", "input-gradients"]
    assert [table.name for table in result.tables] == ["gradient-sweep", "gradient-factors", "jacobian", "paths"]
    # a line, the model's own point, and the line between vanishing and exploding
    assert [len(one.x) for one in result.figures[0].series] == [4, 1, 2]
    # two sets of initial weights and one of trained ones
    assert [row["sets of weights"] for row in _table(result, "gradient-factors")] == [2, 2, 1, 1] * 2
    assert {row["sets of weights"] for row in _table(result, "gradient-sweep")} == {2}
    cache = [row for row in _table(result, "jacobian") if row["model"] == "transformer"]
    assert [row["size of the state"] for row in cache] == ["no fixed-size state"] * 2
    maps = next(figure for figure in result.figures if figure.name == "paths").heatmaps
    assert [(one.model, len(one.values), len(one.values[0])) for one in maps] == [
        (model, len(maps[0].rows), len(maps[0].columns)) for model in made.models for _ in range(3)
    ]
    assert max(value for row in maps[0].values for value in row) == 100
    # the transformer's decoder reads no summary
    assert {value for row in maps[5].values for value in row} == {0.0}
    assert [row["through attention (%)"] for row in _table(result, "paths")][1] == 100


def test_sweep_parameter_changes_nothing_else():
    for kind, knob, own in (
        ("rnn", "radius", 1.0),
        ("lstm", "bias", 1.0),
        ("gru", "bias", 0.0),
        ("minlstm", "bias", 2.2),
    ):
        torch.manual_seed(1)
        module = module_of(kind)
        model = module.build(module.Settings(kind=kind, width=8, decoder_layers=2), 9, 9).double()
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        found = sweep_parameter_of(model.decoder)
        assert (found.kind, found.own) == (knob, pytest.approx(own, rel=1e-6))
        found.turn(0.7)
        assert sweep_parameter_of(model.decoder).own == pytest.approx(0.7)
        changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
        assert len(changed) == 2
        assert all("decoder" in name for name in changed)
    module = module_of("transformer")
    assert sweep_parameter_of(module.build(module.Settings(width=8, heads=2), 9, 9)) is None


@pytest.mark.parametrize("kind", ["gru", "lstm", "mingru", "minlstm"])
def test_sweep_parameter_bias_is_what_the_gate_keeps(kind):
    module = module_of(kind)
    model = module.build(module.Settings(kind=kind, width=6, encoder_layers=1, decoder_layers=1), 9, 9).double()
    (cell,) = model.decoder.stack.layers if hasattr(model.decoder, "stack") else ()
    for name, p in cell.named_parameters():
        if "bias" not in name:
            nn.init.zeros_(p)
    sweep_parameter_of(cell).turn(1.5)
    state = tuple(torch.full((1, 6), 1e-6, dtype=torch.float64) for _ in range(cell.parts))
    with torch.no_grad():
        _, after = cell(torch.zeros(1, 1, 6, dtype=torch.float64), state)
    # without inputs the state, in an LSTM the memory, shrinks by σ(b)
    assert float(after[-1][0, 0] / state[-1][0, 0]) == pytest.approx(1 / (1 + math.exp(-1.5)), rel=1e-4)


def test_radius_is_the_largest_absolute_eigenvalue():
    turn = torch.tensor([[0.0, -2.0], [2.0, 0.0]])
    assert radius(turn) == pytest.approx(2.0)


def test_gradients_normalization_is_that_of_the_reproduction(contest, monkeypatch):
    monkeypatch.setitem(gradients.SIZES, "quick", replace(TINY, deep_seeds=2))
    made = contest(["rnn", "transformer", "conv"], seeds=(1, 2, 3))
    cells = [cell for cell in EXPERIMENT.trials(made) if "warmup" in cell.part]
    assert cells == DEEP.trials([1, 2])
    assert EXPERIMENT.measure(made, cells[0]) == DEEP.measure(cells[0])
    losses = {
        "post-warmup-0": (5.0, 5.2),
        "post-warmup-1": (3.0, 3.2),
        "pre-warmup-0": (3, 3.1),
        "pre-warmup-1": (3, 3.3),
    }
    runs = {cell: DeepTraining([1, 2], [6.0, 0.0], losses[cell.part][cell.seed - 1], 5.1) for cell in cells}
    result = EXPERIMENT.result(made, {cell: asdict(run) for cell, run in runs.items()})
    post, pre = _table(result, "norm")
    assert (post["norm"], post["cost of no warm-up (nats)"], post["seeds"]) == ("post", pytest.approx(2.0), 2)
    assert pre["cost of no warm-up (nats)"] == pytest.approx(-0.1)
    assert post["p (Holm)"] < pre["p (Holm)"]
    assert [len(figure.series) for figure in result.figures if figure.name == "norm"] == [5]


def test_gradients_refuse_a_tagger(contest):
    made = contest(["rnn-tagger"])
    with pytest.raises(NotForThisModel, match="cannot translate"):
        EXPERIMENT.measure(made, Trial("rnn-tagger", "own", 1))


def _decay(factor=0.9, **changes):
    slope = math.log(factor)
    return replace(Decay([slope], fit=0.99, left=math.exp(46 * slope), reach=47, span=47), **changes)


@pytest.mark.parametrize(
    ("fits", "expected"),
    [
        ([_decay(0.9), _decay(0.91)], "vanishes"),
        ([_decay(1.1), _decay(1.11)], "explodes"),
        ([_decay(0.9), _decay(1.2)], "neither"),
        # no factor per step
        ([_decay(0.999)] * 2, "neither"),
        ([_decay(0.9, fit=0.3)] * 2, "neither"),
        # nothing arrives from more than four steps back
        ([_decay(reach=4, left=0.0)] * 2, "vanishes"),
        # too few initialisations, or distances with a gradient
        ([_decay()], None),
        ([_decay(fit=None)], None),
    ],
)
def test_decays_outcome_follows_from_the_interval(fits, expected):
    assert Decays(fits).outcome == expected


def test_decays_are_exponential_if_a_factor_describes_all_distances():
    assert Decays([_decay(0.9)] * 2).is_exponential
    # the line does not fit; all steps do not halve it; nothing comes from far
    for none in (_decay(0.9, fit=0.79), _decay(0.5 ** (0.99 / 46)), _decay(0.9, reach=4, left=0.0), _decay(fit=None)):
        assert not Decays([none] * 2).is_exponential
    assert Decays([_decay(0.5 ** (1.01 / 46), fit=0.81)] * 2).is_exponential


def test_neutral_value_is_where_the_factor_is_one():
    assert neutral_value({0.5: 0.4, 1.0: 0.9, 1.5: 1.1}) == pytest.approx(1.25)
    assert neutral_value({0.5: 0.4, 1.0: 0.9}) is None
    assert neutral_value({}) is None


def test_fit_decay_of_an_exponential_is_its_factor():
    norms = np.array([[5.0], [0.1]]) * 0.8 ** np.arange(12)
    # distance 0 is no step, and may be anything
    norms[:, 0] = 99
    found = fit_decay(norms, first=0)
    assert found.slopes == pytest.approx([math.log(0.8)] * 2)
    assert found.slope == pytest.approx(math.log(0.8))
    assert (found.fit, found.left, found.reach, found.span) == (pytest.approx(1), pytest.approx(0.8**10), 11, 11)


def test_fit_decay_may_begin_at_distance_one():
    found = fit_decay(0.5 ** np.arange(1, 9)[None], first=1)
    assert (found.slopes, found.left, found.span) == ([pytest.approx(math.log(0.5))], pytest.approx(0.5**7), 8)


def test_fit_decay_r2_is_low_for_other_curves():
    zigzag = np.where(np.arange(20) % 2, 1.0, 3.0)[None]
    found = fit_decay(zigzag, first=1)
    assert found.fit is not None
    assert found.fit < 0.1


def test_fit_decay_reach_ends_at_the_last_gradient():
    norms = np.zeros((2, 10))
    norms[:, :5] = 0.5 ** np.arange(5)
    norms[0, 4] = 0
    found = fit_decay(norms, first=0)
    assert (found.reach, found.left, found.span) == (4, 0.0, 9)
    assert found.slopes == pytest.approx([math.log(0.5)] * 2)


def test_fit_decay_needs_three_distances():
    found = fit_decay(np.array([[1.0, 0.5, 0.2, 0, 0]]), first=0)
    assert (found.slopes, found.slope, found.fit) == ([None], None, None)


def test_fit_decay_without_a_gradient_has_no_slope():
    found = fit_decay(np.zeros((1, 6)), first=0)
    assert (found.slope, found.fit, found.left, found.reach) == (None, None, 0.0, 0)


def test_geometric_mean_has_students_interval():
    found = geometric_mean([math.log(0.5), math.log(0.8)])
    assert found.value == pytest.approx(math.sqrt(0.4))
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.5 < 0.8 < found.high
    assert math.sqrt(found.low * found.high) == pytest.approx(found.value)


def test_half_life_is_when_half_is_left():
    steps = half_life(0.9)
    assert steps is not None
    assert 0.9**steps == pytest.approx(0.5)
    assert (half_life(1.0), half_life(1.2)) == (None, None)


def test_curve_of_is_the_median_without_nan():
    found = curve_of(np.array([[1.0, 2.0, math.nan], [3.0, 4.0, math.nan], [5.0, math.nan, math.nan]]), first=1)
    assert found.distance == [1, 2, 3]
    assert found.median == [3, 3, None]
    assert found.low[0] == pytest.approx(1.1)
    assert found.high[0] == pytest.approx(4.9)


def test_brief_rounds_to_six_digits():
    assert (brief(1 / 3), brief(math.inf), brief(math.nan), brief(1.23456789e-30)) == (
        0.333333,
        None,
        None,
        1.23457e-30,
    )


def test_growth_of_states_that_sometimes_forget_everything_is_zero():
    def run(exponents):
        decay = Decay([-0.1] * 2, 0.99, 0.5, 48, 48)
        return GradientRun({}, [Weights(decay, None, JacobianSpectrum(4, [1.0, 1.0], None, exponents))])

    for second, growth in (([None, None], 0.0), ([-0.1, -0.1], np.exp(-0.1))):
        runs = CandidateRuns("m", {"own": [run([-0.1, -0.1]), run(second)], "learned": []}, None)
        found = _jacobians([runs])
        (row,) = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
        assert row["exp(λ) per step"] == pytest.approx(growth)
