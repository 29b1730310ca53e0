"""The experiment on gradients: what theory fixes comes out, and what it says follows from what was measured."""

import json
from dataclasses import replace

import pytest
import torch

from s2s.evaluation.inference import Estimate
from s2s.experiments import gradients
from s2s.experiments.contest import Cell, NotForThisModel
from s2s.experiments.gradients import EXPERIMENT, Sizes
from s2s.experiments.gradients.conclude import predicts, slant, verdict
from s2s.experiments.gradients.dynamics import Schooling
from s2s.questions import ROWS
from s2s.results import Finding, Result, Table

TINY = Sizes(
    span=24,
    texts=3,
    together=3,
    weights=2,
    followed=2,
    settle=4,
    schooling=Schooling(pairs=100, updates=4, tokens=256, every=2),
    deep=Schooling(pairs=100, updates=3, tokens=256, every=2),
    depths=(1, 2),
    warmups=(0, 2),
    deep_seeds=1,
)
ROW = "vanishing and exploding gradients"


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    monkeypatch.setitem(gradients.SIZES, "quick", TINY)


KEPT = {}


def _measured(made, parts=("initial", "trained", "norm"), anew=False):
    """What a comparison would keep: through JSON and back, and measured once for all tests of this file."""
    size = made.sizes(gradients.SIZES)
    cells = [cell for cell in EXPERIMENT.cells(made) if cell.part.partition("-")[0] in parts]
    for cell in cells:
        if anew or (cell, size) not in KEPT:
            KEPT[cell, size] = json.dumps(EXPERIMENT.measure(made, cell), allow_nan=False)
            assert len(KEPT[cell, size]) < 200_000
    return {cell: json.loads(KEPT[cell, size]) for cell in cells}


def _table(result, name):
    table = next(table for table in result.tables if table.name == name)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_what_theory_fixes_comes_out(contest, monkeypatch):
    monkeypatch.setitem(gradients.SIZES, "quick", replace(TINY, span=40, weights=5))
    made = contest(["rnn", "lstm"])
    result = EXPERIMENT.conclude(made, _measured(made, ["initial"]))
    rnn, lstm = ({f.model: f for f in result.findings}[model] for model in ("rnn", "lstm"))
    # a tanh network's gradients vanish at its usual initialisation, and those of an LSTM that begins by remembering
    # do so more slowly
    assert rnn.high < 1
    assert rnn.verdict.startswith("vanishes: half is left after")
    assert lstm.low > rnn.high
    jacobian = {row["model"]: row for row in _table(result, "jacobian")}
    for model in ("rnn", "lstm"):
        row = jacobian[model]
        # in the long run gradients go by the Lyapunov exponent; no step exceeds the norm
        assert row["fitted factor (state)"] == pytest.approx(row["exp(λ) per step"], abs=0.03)
        assert row["fitted factor (state)"] < row["spectral norm, mean"] <= row["spectral norm, largest"]
    factor, radius = (
        [jacobian[m][column] for m in ("rnn", "lstm")] for column in ("fitted factor (state)", "spectral radius, mean")
    )
    # orthogonal weights turn every direction into every other, so that the spectrum of a step is that of many; an
    # LSTM's largest gate is another one in each step, and no number in the memory is kept by all of them
    assert factor[0] == pytest.approx(radius[0], abs=0.05)
    assert factor[1] < radius[1]


def test_a_whole_measurement_says_everything(contest):
    made = contest(["lstm-attention", "transformer"], seeds=(1, 2))
    measured = _measured(made)
    result = EXPERIMENT.conclude(made, measured)
    assert [(f.row, f.model, f.failed) for f in result.findings] == [(ROW, m, "") for m in made.models]
    assert all("after training" in f.verdict for f in result.findings)
    assert ROWS[ROW][1] == EXPERIMENT.name == result.experiment
    names = [figure.name for figure in result.figures]
    assert len(names) == len(set(names)) == 13
    assert result.findings[0].figure in names
    assert [table.name for table in result.tables] == ["gradient-factors", "jacobian", "paths", "training", "norm"]
    # for each seed, two sets of initial weights and one of trained ones
    assert [row["sets of weights"] for row in _table(result, "gradient-factors")] == [4, 4, 2, 2] * 2
    cache = [row for row in _table(result, "jacobian") if row["model"] == "transformer"]
    assert [row["numbers in the state"] for row in cache] == ["no fixed-size state"] * 2
    maps = next(figure for figure in result.figures if figure.name == "paths").heatmaps
    assert [(one.model, len(one.values), len(one.values[0])) for one in maps] == [
        (model, len(maps[0].rows), len(maps[0].columns)) for model in made.models for _ in range(3)
    ]
    # the transformer's decoder reads no summary
    assert {value for row in maps[5].values for value in row} == {0.0}
    assert [row["along attention (%)"] for row in _table(result, "paths")][1] == 100
    norm = _table(result, "norm")
    assert [(row["norm"], row["layers"], row["warm-up (updates)"]) for row in norm] == [
        (norm, depth, warmup) for norm in ("pre", "post") for depth in (1, 2) for warmup in (0, 2)
    ]
    # before training, warm-up makes no difference, and normalisation does; after it both do
    for key, differ in (("loss before (nats)", 4), ("loss after (nats)", 8)):
        assert len({row[key] for row in norm}) == differ


def test_every_set_of_initial_weights_is_another(contest):
    made = contest(["rnn"], seeds=(1, 2))
    measured = _measured(made, ["initial"])
    for of in ("inputs", "states"):
        weights = [each[of] for one in measured.values() for each in one["weights"]]
        assert len({each["slopes"][0] for each in weights}) == 4
        # of 24 pieces the last has distance 0
        assert {each["span"] for each in weights} == {23}


def test_two_measurements_are_the_same(contest):
    made = contest(["rnn"])
    assert _measured(made) == _measured(made, anew=True)


def test_only_a_model_with_the_choice_is_compared_with_itself(contest):
    made = contest(["rnn", "transformer", "conv"], seeds=(1, 2))
    cells = [cell for cell in EXPERIMENT.cells(made) if cell.part.startswith("norm")]
    assert [(cell.model, cell.seed) for cell in cells] == [("transformer", 1)] * 8
    assert "norm-post-layers-2-warmup-0" in {cell.part for cell in cells}


def test_a_model_that_cannot_translate_is_refused(contest):
    made = contest(["rnn-tagger"])
    with pytest.raises(NotForThisModel, match="cannot translate"):
        EXPERIMENT.measure(made, Cell("rnn-tagger", "initial", 1))


def test_what_failed_is_left_out(contest):
    made = contest(["rnn", "mingru"], seeds=(1, 2))
    assert EXPERIMENT.conclude(made, {}).findings == []
    some = {cell: m for cell, m in _measured(contest(["rnn"], seeds=(1, 2))).items() if cell.seed == 2}
    result = EXPERIMENT.conclude(made, some)
    assert [f.model for f in result.findings] == ["rnn"]
    # a training that broke down has dynamics and nothing else
    broken = {"dynamics": {"losses": [], "norms": [], "clipped": [], "layers": {}, "looks": [], "ratios": {}}}
    broken["dynamics"]["failed"] = "not finite"
    result = EXPERIMENT.conclude(made, {cell: broken if cell.part == "trained" else m for cell, m in some.items()})
    assert "after training" not in result.findings[0].verdict
    assert "training" not in [table.name for table in result.tables]


def test_a_map_has_its_models_largest_value_at_a_hundred(contest):
    made = contest(["rnn", "lstm-attention"])
    result = EXPERIMENT.conclude(made, _measured(made, ["trained"]))
    # the three of a model begin a line, so that they stand side by side
    *three, one = next(figure for figure in result.figures if figure.name == "paths").heatmaps
    assert [other.model for other in three] == ["lstm-attention"] * 3
    assert max(value for row in three[0].values for value in row) == 100
    assert max(value for row in one.values for value in row) == 100
    assert one.label == "rnn: whole (it has no attention)"
    assert (one.rows[-1], one.columns[-1]) == ("</s>", "</s>")


def _decay(**changes):
    return {"slopes": [-0.1], "fit": 0.99, "left": 0.01, "reach": 47, "span": 47} | changes


@pytest.mark.parametrize(
    ("at", "decay", "words"),
    [
        (Estimate(0.9, 0.88, 0.92), _decay(), "vanishes: half is left after 6.6 steps"),
        (Estimate(1.1, 1.05, 1.2), _decay(left=90.0), "explodes: doubles every 7.3 steps"),
        (Estimate(0.9, 0.7, 1.2), _decay(), "neither vanishes nor explodes: 1 is within the interval"),
        (
            Estimate(0.999, 0.998, 0.9995),
            _decay(left=0.95),
            "hardly changes: distance 47 has 0.95 times what distance 1 has (R² 0.99)",
        ),
        (
            Estimate(0.9, 0.88, 0.92),
            _decay(fit=0.3),
            "changes, but not by a factor per step: distance 47 has 0.01 times what distance 1 has (R² 0.30)",
        ),
        (Estimate(0.9, 0.88, 0.92), _decay(reach=4, left=0.0), "nothing arrives from more than 4 steps back"),
        (Estimate(0.9, None, None), _decay(), "factor 0.900; too few initialisations for a verdict"),
        (None, _decay(fit=None), "too few distances with a gradient for a factor"),
    ],
)
def test_a_verdict_follows_from_the_interval(at, decay, words):
    assert verdict(at, [decay]) == words


def test_the_slant_is_taken_within_the_last_stack():
    layers = {"encoder.layers.0": 9.0, "encoder.layers.1": 1.0, "decoder.layers.0": 2.0, "decoder.layers.1": 6.0}
    assert slant(layers | {"decoder.norm": 5.0}) == 3.0
    assert slant({"encoder.embedding": 1.0}) is None
    assert slant({"decoder.layers.0": 1.0}) is None


def _results(factors, memory):
    columns = ["model", "when", "with respect to", "factor per step", "left at the largest distance / at 1"]
    rows = [[m, "initialisation", "input", f, f] for m, f in factors.items()]
    # states are not what is asked for
    rows += [[m, "initialisation", "state", -f, -f] for m, f in factors.items()]
    table = Table(name="gradient-factors", title="", columns=columns, rows=rows)
    findings = [Finding(row="long-term dependencies", model=m, value=v) for m, v in memory.items()]
    findings += [Finding(row="translation quality", model=m, value=-i) for i, m in enumerate(memory)]
    blank = Result(experiment="gradients", question="", method="", models=list(factors), seeds=[1], findings=[])
    return blank.model_copy(update={"tables": [table]}), blank.model_copy(update={"findings": findings})


def test_models_with_larger_factors_reach_farther():
    factors = {"a": 0.5, "b": 0.8, "c": 0.9, "d": 1.0, "e": 0.1}
    table = predicts(*_results(factors, {"a": 4, "b": 8, "c": 16, "d": 64, "e": None}))
    assert table is not None
    predictor, models, rho, p, words = table.rows[0]
    assert (predictor, models, rho) == ("factor per step, initialisation", 4, 1.0)
    assert p == pytest.approx(2 / 24, rel=1e-5)
    assert words == "no significant correlation over 4 models (p = 0.083)"
    # after training nothing was measured
    assert table.rows[1][1:4] == [0, None, None]


def test_three_models_are_too_few_to_predict():
    table = predicts(*_results({"a": 0.5, "b": 0.8, "c": 0.9}, {"a": 4, "b": 8, "c": 16}))
    assert table is not None
    assert table.rows[0][1:] == [3, None, None, "too few models: 3, at least 4 are needed"]


def test_equal_lengths_cannot_be_predicted():
    factors = {"a": 0.5, "b": 0.8, "c": 0.9, "d": 1.0}
    table = predicts(*_results(factors, dict.fromkeys(factors, 64)))
    assert table is not None
    assert table.rows[0][2:] == [None, None, "no correlation: all models are equal in one of them"]


def test_without_either_result_nothing_is_predicted():
    gradient_result, long_range_result = _results({"a": 0.5}, {"a": 4})
    assert predicts(gradient_result.model_copy(update={"tables": []}), long_range_result) is None
    assert predicts(gradient_result, long_range_result.model_copy(update={"findings": []})) is None


def test_a_gpu_is_given_longer_trainings(contest):
    made = contest(["rnn"], profile="definitive")
    usual = made.sizes(gradients.SIZES)
    gpu = replace(made, computer=replace(made.computer, device=torch.device("cuda")))
    assert gpu.sizes(gradients.SIZES).schooling.updates > usual.schooling.updates
    assert gpu.sizes(gradients.SIZES).span == usual.span
