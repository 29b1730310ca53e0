"""The question scaling: planted slopes, validity checks, sizes, and the search for learning rates."""

import json
from dataclasses import asdict, replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from s2s.comparison.executor import StoredResult
from s2s.comparison.matching import TOLERANCE, size_of, without_embeddings
from s2s.comparison.plans import ROWS
from s2s.comparison.questions.scaling import measure as scaling
from s2s.comparison.questions.scaling.analyse import ScalingRun, SizeTraining, difference, gain_per_doubling
from s2s.comparison.questions.scaling.measure import EXPERIMENT, Sizes, part_of
from s2s.comparison.runs import prepared
from s2s.comparison.spec import NotForThisModel, Trial
from s2s.comparison.translation import sizes_of, train_briefly, trainer_for
from s2s.comparison.tuning_search import HIGHEST, LOWEST
from s2s.evaluation.differences import Difference
from s2s.tasks.seq2seq import mean_loss
from s2s.tasks.source_use import SourceUse

TINY = Sizes(factors=(0.5, 1), updates=0.34, seeds=1)
FIVE = Sizes(factors=(0.25, 0.5, 1, 2, 4), updates=0.34, seeds=2)


def _run(cell, b, noise=0.02, **changes):
    factor = next(f for f in FIVE.factors if part_of(f) == cell.part)
    place = FIVE.factors.index(factor) + 3 * cell.seed + len(cell.model)
    loss = 2 * factor**-b * (1 + noise * (1, -1, 0.5, -0.5, 0.2, -0.7, 0.9)[place % 7])
    run = ScalingRun(
        factor=factor,
        wanted=round(1e6 * factor),
        parameters=round(1e6 * factor),
        inner=round(6e5 * factor),
        width=8,
        rate=0.004,
        rates=[(0.002, loss + 0.3), (0.004, loss + 0.2), (0.008, loss + 0.4)],
        whole=[(0.002, loss + 0.2), (0.004, loss)],
        inside=True,
        updates=10,
        tokens=5,
        flops=6e6 * factor * 5,
        half=loss + 0.01,
        loss=loss,
        source_use=SourceUse(loss, loss + 1, 9),
        baseline=6.0,
        seconds=1.0,
    )
    return replace(run, **changes)


@pytest.fixture
def five(contest, monkeypatch):
    """A contest of two models with five sizes and two seeds."""
    monkeypatch.setitem(scaling.SIZES, "quick", FIVE)
    return contest(["rnn", "transformer"], seeds=(1, 2))


def _concluded(made, b, **changes):
    """Findings by model, and tables by name; `changes` are of single sizes, by the factor's part."""
    measured = {
        cell: _run(cell, b[cell.model], **changes.get(cell.part.replace("-", "_"), {}))
        for cell in EXPERIMENT.trials(made)
    }
    result = EXPERIMENT.result(made, measured)
    tables = {t.name: [dict(zip(t.columns, row, strict=True)) for row in t.rows] for t in result.tables}
    return {each.model: each for each in result.findings}, tables


def test_scaling_finds_planted_slopes(five):
    findings, tables = _concluded(five, {"rnn": 0.3, "transformer": 0.6})
    gains = {model: 100 * (1 - 2**-b) for model, b in (("rnn", 0.3), ("transformer", 0.6))}
    for model, gain in gains.items():
        assert findings[model].low < gain < findings[model].high
        assert findings[model].value == pytest.approx(gain, abs=1)
    assert [findings[m].standing for m in ("rnn", "transformer")] == ["worse", "better"]
    assert findings["transformer"].rival == "rnn"
    assert findings["transformer"].difference == pytest.approx(gains["transformer"] - gains["rnn"], abs=1)
    assert findings["rnn"].variations == {"half the updates": True, "without the smallest size": True}
    rows = {row["size"]: row for row in tables["differences"]}
    assert list(rows) == list(FIVE.factors)
    assert rows[4]["ratio of losses"] == pytest.approx(4**-0.3, rel=0.05)
    assert rows[4]["low"] < 4**-0.3 < rows[4]["high"]


def test_gain_per_doubling_equals_scipys_regression(five):
    runs = {(r.factor, c.seed): r for c in EXPERIMENT.trials(five) for r in [_run(c, 0.4)] if c.model == "rnn"}
    found = gain_per_doubling(runs)
    line = stats.linregress(np.log2([r.inner for r in runs.values()]), np.log2([r.loss for r in runs.values()]))
    assert found.value == pytest.approx(100 * (1 - 2**line.slope))
    # by the delta method, d(100 · 2ᵇ) / db = 100 · 2ᵇ ln 2
    assert found.error == pytest.approx(100 * 2**line.slope * np.log(2) * line.stderr)
    assert found.freedom == len(runs) - 2
    assert gain_per_doubling({key: run for key, run in runs.items() if key[0] <= 0.5}) is None


def test_difference_of_slopes_has_welchs_degrees_of_freedom():
    found = difference(Difference(1.0, 3.0, 8), Difference(6.0, 4.0, 5))
    assert (found.value, found.error) == (5.0, 5.0)
    assert found.freedom == pytest.approx(25**2 / (9**2 / 8 + 16**2 / 5))


def test_difference_of_equal_slopes_is_found_in_5_percent_of_cases():
    chance, p_values = np.random.default_rng(7), []
    for _ in range(2_000):
        gains = []
        for _ in range(2):
            logs = [-0.4 * np.log(factor) + chance.normal(0, 0.1) for factor in FIVE.factors for _ in range(2)]
            keys = [(factor, seed) for factor in FIVE.factors for seed in (1, 2)]
            inner = {factor: round(6e5 * factor) for factor in FIVE.factors}
            own = {
                key: SimpleNamespace(inner=inner[key[0]], loss=float(np.exp(log)))
                for key, log in zip(keys, logs, strict=True)
            }
            gains.append(gain_per_doubling(own))
        p_values.append(difference(*gains).p())
    assert 0.035 < np.mean(np.array(p_values) < 0.05) < 0.065


def test_scaling_one_invalid_rate_closes_the_row(five):
    measured = {cell: _run(cell, 0.4) for cell in EXPERIMENT.trials(five)}
    for cell in measured:
        if (cell.model, cell.part) == ("rnn", "size-200"):
            measured[cell] = replace(measured[cell], inside=False)
    rnn, transformer = EXPERIMENT.result(five, measured).findings
    assert (rnn.standing, transformer.standing) == ("not measurable", "not measurable")
    assert rnn.value is None
    assert "at 2 times the size its rate 0.004 lies at an end of" in "; ".join(rnn.reasons)
    assert transformer.value == pytest.approx(100 * (1 - 2**-0.4), abs=1)
    assert transformer.reasons[0].startswith("rnn: ")


def test_scaling_model_without_a_size_is_not_compared(five):
    there = {
        cell: _run(cell, {"rnn": 0.3, "transformer": 0.6}[cell.model])
        for cell in EXPERIMENT.trials(five)
        if (cell.model, cell.part) != ("transformer", "size-400")
    }
    rnn, transformer = EXPERIMENT.result(five, there).findings
    assert (transformer.standing, transformer.value) == ("not measurable", None)
    assert "it was not measured at 4 times the size, unlike others" in "; ".join(transformer.reasons)
    assert rnn.standing not in ("better", "worse", "tie")


def test_scaling_variations_only_beside_a_verdict(five):
    for b in ({"rnn": 0.5, "transformer": 0.5}, {"rnn": 0.3, "transformer": 0.6}):
        decided = b["rnn"] != b["transformer"]
        findings, _ = _concluded(five, b)
        assert [bool(each.variations) for each in findings.values()] == [decided] * 2
        assert [each.tokens for each in findings.values()] == [5, 5]


def test_scaling_model_that_ignores_its_source_has_no_slope(five):
    measured = {cell: _run(cell, 0.4) for cell in EXPERIMENT.trials(five)}
    for cell in measured:
        if cell.model == "rnn":
            measured[cell] = replace(measured[cell], source_use=SourceUse(2.0, 2.1, 9))
    rnn, _ = EXPERIMENT.result(five, measured).findings
    assert rnn.value is None
    assert "0.10 nats lower with the right sources" in "; ".join(rnn.reasons)


def test_scaling_leaves_sizes_out_at_which_a_model_still_learns(five):
    measured = {cell: _run(cell, 0.4) for cell in EXPERIMENT.trials(five)}
    slow = [cell for cell in measured if (cell.model, cell.part) == ("rnn", "size-25")]
    without = {cell: found for cell, found in measured.items() if cell.part != "size-25"}
    # 0.1 and 0.01 are more than 0.05 in the mean over seeds, 0.08 and 0.01 are less
    measured[slow[0]] = replace(measured[slow[0]], half=measured[slow[0]].loss + 0.08)
    every = EXPERIMENT.result(five, measured).findings
    measured[slow[0]] = replace(measured[slow[0]], half=measured[slow[0]].loss + 0.1, inside=False)
    found, alone = (EXPERIMENT.result(five, each).findings for each in (measured, without))
    for one, other in zip(found, alone, strict=True):
        assert (one.value, one.low, one.high, one.standing) == (other.value, other.low, other.high, other.standing)
    assert every[0].value != found[0].value
    few = {
        cell: replace(run, half=run.loss + 1) if cell.part in ("size-25", "size-50", "size-100") else run
        for cell, run in measured.items()
    }
    rnn, _ = EXPERIMENT.result(five, few).findings
    assert rnn.value is None
    assert "lowered its loss by 1.00 nats, and the size is left out" in "; ".join(rnn.reasons)
    unknown = {cell: replace(run, half=None, inside=True) for cell, run in measured.items()}
    rnn, _ = EXPERIMENT.result(five, unknown).findings
    assert rnn.standing == "still learning"
    assert "for some sizes it is unknown whether the loss still falls" in "; ".join(rnn.reasons)


def test_scaling_trains_an_added_model_with_the_parameters_of_stored_trials(contest, monkeypatch):
    monkeypatch.setitem(scaling.SIZES, "quick", TINY)
    made = contest(["rnn", "transformer"])
    training = SizeTraining(
        **{key: 0 for key in ("parameters", "inner", "width", "updates", "tokens", "flops", "loss", "baseline")},
        source_use=None,
        seconds=0.0,
    )
    trained = []
    monkeypatch.setattr(scaling, "short_training", lambda *_: (1.0, 1.0))
    monkeypatch.setattr(scaling, "_train", lambda made, recipe, seed: trained.append(recipe) or training)
    trial = Trial("rnn", "size-100", 1)
    found = EXPERIMENT.measure(made, trial)
    stored = StoredResult({"wanted": found.wanted + 7}, "", 1.0, cell=trial.key)
    folder = made.results_folder("scaling")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{trial.key}.json").write_text(json.dumps(asdict(stored)))
    assert EXPERIMENT.measure(made, Trial("transformer", "size-100", 1)).wanted == found.wanted + 7
    assert EXPERIMENT.measure(made, Trial("transformer", "size-50", 1)).wanted < found.wanted


@pytest.mark.parametrize("best", [0.001, 0.002, 0.004, 0.032, LOWEST / 4, HIGHEST * 4])
@pytest.mark.parametrize("whole", [1, 0.5, 0.125])
def test_scaling_searches_the_rate_of_each_size(contest, monkeypatch, best, whole):
    """By whole trainings, whose best rate is `whole` times that of shorter trainings."""
    made, asked = contest(["rnn"]), []
    monkeypatch.setitem(scaling.SIZES, "quick", TINY)
    updates = scaling.shortened(made.candidates[0].recipe, TINY.updates).training.updates

    def loss(recipe):
        asked.append((recipe.training.learning_rate, recipe.training.updates == updates))
        rate, full = asked[-1]
        return abs(rate - (whole if full else 1) * best)

    monkeypatch.setattr(scaling, "short_training", lambda recipe, *_: (loss(recipe), 1.0))
    training = SizeTraining(
        **{key: 0 for key in ("parameters", "inner", "width", "updates", "tokens", "flops", "loss", "baseline")},
        source_use=None,
        seconds=0.0,
    )
    trained = []
    monkeypatch.setattr(scaling, "_train", lambda made, recipe, seed: trained.append(recipe) or training)
    base = replace(made.candidates[0], recipe=scaling._with_rate(made.candidates[0].recipe, 0.004))
    found = EXPERIMENT.measure(replace(made, candidates=(base,)), Trial("rnn", "size-100", 1))
    assert len(set(asked)) == len(asked)
    short, full = dict(found.rates), dict(found.whole)
    assert len(short) >= 3
    assert max(full) in short
    middle = min(max(best, LOWEST), HIGHEST)
    assert found.rate == min(full, key=full.get)
    assert found.rate == pytest.approx(max(min(middle, whole * best), LOWEST))
    assert [recipe.training.learning_rate for recipe in trained] == [found.rate]
    # a lower rate was tried in full, unless it is the lowest there is
    assert min(full) == max(found.rate / 2, LOWEST)
    assert found.inside == (found.rate > LOWEST and best < HIGHEST)


def test_scaling_measures_real_sizes_once(contest, monkeypatch):
    monkeypatch.setitem(scaling.SIZES, "quick", TINY)
    made = contest(["rnn", "transformer"], seeds=(1, 2))
    cells = EXPERIMENT.trials(made)
    assert {cell.seed for cell in cells} == {1}
    measured = {cell: EXPERIMENT.measure(made, cell) for cell in cells}
    size = size_of("rnn", made.candidates[0].settings, 400, 400)
    for part in ("size-50", "size-100"):
        sizes = [found for cell, found in measured.items() if cell.part == part]
        assert len({found.wanted for found in sizes}) == 1
        assert len({found.tokens for found in sizes}) == 1
        for found in sizes:
            assert abs(found.parameters - found.wanted) <= TOLERANCE * found.wanted
            assert 0.8 * found.factor < found.wanted / size < 1.2 * found.factor
            assert found.inner < found.parameters
            assert len(found.rates) >= 3
            whole = dict(found.whole)
            assert min(whole, key=whole.get) == found.rate
            assert len(whole) >= 2
            assert found.half > found.loss
            # the trial that chose the rate has another seed
            assert found.loss not in whole.values()
    monkeypatch.setattr(scaling, "short_training", lambda *_: pytest.fail("a trial is made twice"))
    again = EXPERIMENT.measure(made, cells[0])
    stored = json.loads(json.dumps(asdict(measured[cells[0]]), allow_nan=False))
    loaded = EXPERIMENT.measurement.validate_python(stored)
    assert loaded == measured[cells[0]] == replace(again, seconds=loaded.seconds)
    other = EXPERIMENT.measure(made, replace(cells[0], seed=2))
    assert (other.rate, other.rates, other.whole) == (again.rate, again.rates, again.whole)
    assert other.loss != again.loss
    result = EXPERIMENT.result(made, measured)
    assert result.experiment == ROWS["scalability"][1]
    assert {figure.name for figure in result.figures} == {"parameters", "compute"}
    assert all("{" not in text for text in (result.method, result.limits))


def test_scaling_half_way_loss_is_that_of_half_the_updates(contest):
    made = contest(["transformer"])
    recipe, device_context = made.candidates[0].recipe, made.device_context
    steady = {"schedule": "constant", "updates": 6, "ema": 0.9}
    whole, half = (
        recipe.model_copy(update={"training": recipe.training.model_copy(update=steady | more)})
        for more in ({}, {"updates": 3})
    )
    found = scaling._train(made, whole, 1)
    assert found.half == scaling._train(made, half, 1).loss
    alone = train_briefly(whole, prepared(whole), 1, device_context)
    loss = mean_loss(alone.model, prepared(whole).validation, whole.batches, device_context)
    assert (found.loss, found.tokens) == (loss, alone.tokens)


@pytest.mark.parametrize("kind", ["gru", "transformer"])
def test_scaling_embeddings_are_those_of_both_languages_and_the_output(contest, kind):
    recipe = contest([kind]).candidates[0].recipe
    trainer = trainer_for(recipe, sizes_of(prepared(recipe)), prepared(recipe).train, 1, contest([kind]).device_context)
    sizes = {name: p.numel() for name, p in trainer.model.named_parameters()}
    tables = sum(count for name, count in sizes.items() if "embed" in name or name.startswith("projection"))
    assert tables >= 400 * recipe.model.width
    assert without_embeddings(trainer.model) == sum(sizes.values()) - tables


def test_scaling_parts_are_names_of_files():
    assert [part_of(factor) for factor in (0.125, 0.25, 1, 2)] == ["size-12-5", "size-25", "size-100", "size-200"]


def test_scaling_refuses_a_tagger(contest, monkeypatch):
    monkeypatch.setitem(scaling.SIZES, "quick", TINY)
    made = contest(["rnn-tagger"])
    with pytest.raises(NotForThisModel):
        EXPERIMENT.measure(made, EXPERIMENT.trials(made)[0])
