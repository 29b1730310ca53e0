"""The question scaling: planted laws, validity checks, sizes, and the search for learning rates."""

import json
from dataclasses import asdict, replace

import pytest

from s2s.comparison.matching import TOLERANCE, size_of, without_embeddings
from s2s.comparison.plans import ROWS
from s2s.comparison.questions.scaling import measure as scaling
from s2s.comparison.questions.scaling.analyse import Law, ScalingRun, SizeTraining, fit, gates
from s2s.comparison.questions.scaling.measure import EXPERIMENT, Sizes, part_of
from s2s.comparison.runs import prepared
from s2s.comparison.spec import NotForThisModel, Trial
from s2s.comparison.translation import sizes_of, train_briefly, trainer_for
from s2s.comparison.tuning_search import HIGHEST, LOWEST
from s2s.evaluation.inference import Estimate
from s2s.tasks.source_use import SourceUse
from s2s.tasks.translation.task import mean_loss

TINY = Sizes(factors=(0.5, 1), updates=0.34, seeds=1)
FIVE = Sizes(factors=(0.25, 0.5, 1, 2, 4), updates=0.34, seeds=2)


def _run(cell, b, noise=0.002, floor=0.5, **changes):
    factor = next(f for f in FIVE.factors if part_of(f) == cell.part)
    place = FIVE.factors.index(factor) + 3 * cell.seed + len(cell.model)
    loss = (floor + 2 * factor**-b) * (1 + noise * (1, -1, 0.5, -0.5, 0.2, -0.7, 0.9)[place % 7])
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


def test_scaling_finds_planted_laws(five):
    findings, tables = _concluded(five, {"rnn": 0.3, "transformer": 0.6})
    for model, b in (("rnn", 0.3), ("transformer", 0.6)):
        assert findings[model].low < b < findings[model].high
        assert findings[model].value == pytest.approx(b, abs=0.03)
    assert [findings[m].standing for m in ("rnn", "transformer")] == ["worse", "better"]
    assert (findings["transformer"].rival, findings["transformer"].difference) == ("rnn", pytest.approx(0.3, abs=0.05))
    assert 0 < findings["transformer"].facts["floor E (nats per token)"] < 1
    assert findings["rnn"].variations == {"no floor": True, "half the updates": True}
    assert all(not row["does not hold"] for row in tables["laws"])
    (row,) = tables["differences"]
    assert row["models"] == "transformer − rnn"
    assert row["low"] < 0.3 < row["high"]
    assert row["p (Holm)"] < 0.05


@pytest.mark.parametrize(
    ("change", "standing", "words"),
    [
        ({"inside": False}, "not measurable", "at 2 times the size its rate 0.004 lies at an end of"),
        ({"loss": 9.0, "half": 9.0}, "not measurable", "R² is"),
    ],
)
def test_scaling_one_invalid_size_closes_the_row(five, change, standing, words):
    measured = {cell: _run(cell, 0.4) for cell in EXPERIMENT.trials(five)}
    for cell in measured:
        if (cell.model, cell.part) == ("rnn", "size-200"):
            measured[cell] = replace(measured[cell], **change)
    result = EXPERIMENT.result(five, measured)
    rnn, transformer = result.findings
    assert (rnn.standing, transformer.standing) == (standing, "not measurable")
    assert rnn.value is None
    assert words in "; ".join(rnn.reasons)
    # the other one's own law holds: it has a figure, but nobody to stand beside
    assert transformer.value == pytest.approx(0.4, abs=0.03)
    assert transformer.reasons[0].startswith("rnn: ")
    assert next(t for t in result.tables if t.name == "differences").rows == []


@pytest.mark.parametrize(("misfit", "holds"), [(None, True), (0.5, True), (0.04, False), (0.0, False)])
def test_scaling_lack_of_fit_closes_the_row(five, misfit, holds):
    points = [(1e5 * 2**i, 0.5 + 2 * (2**i) ** -0.5) for i in range(5)]
    runs = {(cell.part, cell.seed): _run(cell, 0.5) for cell in EXPERIMENT.trials(five) if cell.model == "rnn"}
    by_factor = {(run.factor, seed): run for (_, seed), run in runs.items()}
    law = Law(
        by_factor,
        frozenset(),
        replace(fit(points), misfit=misfit),
        Estimate(0.5, None, None),
        Estimate(0.5, None, None),
    )
    assert gates(law, set())[-1].passed is holds


def test_scaling_model_without_a_size_is_not_compared(five):
    there = {
        cell: _run(cell, {"rnn": 0.3, "transformer": 0.6}[cell.model])
        for cell in EXPERIMENT.trials(five)
        if (cell.model, cell.part) != ("transformer", "size-400")
    }
    rnn, transformer = EXPERIMENT.result(five, there).findings
    assert (transformer.standing, transformer.value) == ("not measurable", None)
    assert "nothing to go by at 4 times the size, where others have been" in "; ".join(transformer.reasons)
    assert rnn.standing not in ("better", "worse", "tie")


def test_scaling_variations_only_beside_a_verdict(five):
    for b in ({"rnn": 0.5, "transformer": 0.5}, {"rnn": 0.3, "transformer": 0.6}):
        decided = b["rnn"] != b["transformer"]
        findings, _ = _concluded(five, b)
        assert [bool(each.variations) for each in findings.values()] == [decided] * 2
        assert [each.tokens for each in findings.values()] == [5, 5]


def test_scaling_model_that_ignores_its_source_has_no_exponent(five):
    measured = {cell: _run(cell, 0.4) for cell in EXPERIMENT.trials(five)}
    for cell in measured:
        if cell.model == "rnn":
            measured[cell] = replace(measured[cell], source_use=SourceUse(2.0, 2.1, 9))
    rnn, _ = EXPERIMENT.result(five, measured).findings
    assert rnn.value is None
    assert "0.10 nats lower with the right sources" in "; ".join(rnn.reasons)


def test_scaling_convergence_is_the_mean_fall_over_seeds(five):
    measured = {cell: _run(cell, 0.4) for cell in EXPERIMENT.trials(five)}
    slow = next(cell for cell in measured if (cell.model, cell.part) == ("rnn", "size-25"))
    other = next(cell for cell in measured if (cell.model, cell.part) == ("rnn", "size-100"))
    measured[other] = replace(measured[other], half=measured[other].loss + 1)
    # 0.08 and 0.01 are 0.045 on average
    measured[slow] = replace(measured[slow], half=measured[slow].loss + 0.08)
    assert EXPERIMENT.result(five, measured).findings[0].standing == "tie"
    measured[slow] = replace(measured[slow], half=measured[slow].loss + 0.1)
    (rnn, _) = EXPERIMENT.result(five, measured).findings
    assert rnn.standing == "still learning"
    assert "at 1 times the size, the second half of the updates lowered its loss by 0.50 nats" in "; ".join(rnn.reasons)
    without = {cell: replace(run, half=None) for cell, run in measured.items()}
    (rnn, _) = EXPERIMENT.result(five, without).findings
    assert rnn.standing == "still learning"
    assert "nothing says of every size whether it still learns" in "; ".join(rnn.reasons)


def test_scaling_leaves_out_a_single_size_that_still_learns(five):
    measured = {cell: _run(cell, 0.4) for cell in EXPERIMENT.trials(five)}
    slow = [cell for cell in measured if (cell.model, cell.part) == ("rnn", "size-25")]
    without = {cell: found for cell, found in measured.items() if cell.part != "size-25"}
    for cell in slow:
        measured[cell] = replace(measured[cell], loss=3.0, half=4.0, inside=False)
    rnn, _ = EXPERIMENT.result(five, measured).findings
    alone, _ = EXPERIMENT.result(five, without).findings
    assert (rnn.value, rnn.low, rnn.high, rnn.standing) == (alone.value, alone.low, alone.high, alone.standing)
    assert rnn.value == pytest.approx(0.4, abs=0.05)
    tables = {table.name: table for table in EXPERIMENT.result(five, measured).tables}
    # by all models, for laws of different sizes differ where the models do not
    assert [row[1:3] for row in tables["laws"].rows] == [[4, 8], [4, 8]]
    assert any("and is left out" in str(row) for row in tables["gates"].rows)
    # three sizes would follow any law, also where only one model has so few
    one = {cell: found for cell, found in measured.items() if (cell.model, cell.part) != ("rnn", "size-400")}
    rnn, _ = EXPERIMENT.result(five, one).findings
    assert (rnn.standing, rnn.value) == ("not measurable", None)
    assert "at 0.25 times the size, the second half of the updates lowered its loss by 1.00 nats (below" in "; ".join(
        rnn.reasons
    )
    few = {cell: found for cell, found in measured.items() if cell.part != "size-400"}
    assert EXPERIMENT.result(five, few).findings[0].standing != "tie"
    assert {row[1] for t in EXPERIMENT.result(five, few).tables if t.name == "laws" for row in t.rows} == {4}


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
    base = replace(made.candidates[0], recipe=scaling._at(made.candidates[0].recipe, 0.004))
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
