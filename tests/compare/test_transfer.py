"""The question transfer: conditions of equal length, unrelated pairs, and planted gains."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from s2s.comparison import translation
from s2s.comparison.paired_tests import WITHOUT_A_SEED
from s2s.comparison.plans import ROWS
from s2s.comparison.questions.transfer import measure as transfer
from s2s.comparison.questions.transfer.analyse import (
    ARMS,
    SHARES,
    Arm,
    Pretraining,
    TransferRun,
    gain_of,
    gates,
    worth,
)
from s2s.comparison.questions.transfer.measure import (
    EXPERIMENT,
    Sizes,
    few_pairs,
    halves,
    pretrained,
    shared_pieces,
    tokens_of,
    unrelated,
    with_batches,
)
from s2s.comparison.runs import prepared
from s2s.comparison.spec import NotForThisModel, Trial
from s2s.comparison.translation import chosen_pairs, counts_of
from s2s.evaluation.gates import LEARNING
from s2s.tasks.source_use import SourceUse
from s2s.training.trainer import Trainer

TINY = Sizes(pretraining=0.5, finetuning=0.17, rates=(0.5, 1.0), looks=2, sentences=2, seeds=1)


def _run(share, seed, over, tokens=1000, curve=(1, 0, 0.5, 0.6), read=1.0, bad="x", loss=2.0):
    """A run of twenty sentences with about this loss after fine-tuning; other conditions' are higher by so much."""
    generator = np.random.default_rng(seed)
    counts = generator.integers(5, 15, 20)
    real = loss * counts + generator.normal(0, 0.5, 20) + generator.normal(0, 0.2) * counts
    references = [f"w{i} a b c d e" for i in range(20)]
    arms = {}
    for name in ARMS:
        losses = real + (over[name] * counts + generator.normal(0, 0.1, 20) if name in over else 0)
        mean = float(losses.sum() / counts.sum())
        fresh = name == "scratch"
        written = [text.replace("b", bad) if name in over else text for text in references]
        arms[name] = Arm(
            updates=[0, 10, 20, 30] if fresh else [0, 3, 6, 10],
            tokens=3 * tokens if fresh else tokens,
            curves={"0.002": [mean + 2 * (rise + 0.1) for rise in curve], "0.004": [mean + rise for rise in curve]},
            losses=losses.tolist(),
            counts=counts_of("bleu", [bad if len(bad) > 1 else t for t in written], references),
            seconds=1.0,
            before=Pretraining() if fresh else Pretraining(20, 2000, 2.0, SourceUse(1.0, 1.0 + read, 9)),
        )
    return TransferRun(share, 10 * share, counts.tolist(), 0.004, arms)


def _with_arm(run, name, **changes):
    return replace(run, arms=run.arms | {name: replace(run.arms[name], **changes)})


def _falling(run, name):
    """The run with a condition whose loss falls by one nat with each doubling; its lowest losses stay."""
    arm = run.arms[name]
    return _with_arm(
        run,
        name,
        updates=[arm.updates[-1] * share for share in (0, 1 / 8, 1 / 4, 1 / 2, 1)],
        curves={rate: [min(curve) + fall for fall in (9, 3, 2, 1, 0)] for rate, curve in arm.curves.items()},
    )


def _found(models, seeds, losses=None, **changes):
    """Runs of models by their gain over unrelated pairs, twice of which is that over scratch, and by their losses."""
    return {
        Trial(model, f"equal-{share}", seed): _run(
            share, seed, {"unrelated": by, "scratch": 2 * by}, loss=(losses or {}).get(model, 2.0), **changes
        )
        for model, by in models.items()
        for share in SHARES
        for seed in seeds
    }


def test_transfer_halves_are_disjoint_and_samples_nested(contest):
    recipe = shared_pieces(contest(["rnn"]).candidates[0].recipe)
    data = prepared(recipe)
    first, second = halves(data.train, recipe.batches.max_length)
    assert not set(first.tolist()) & set(second.tolist())
    assert len(first) + len(second) == len(data.train)
    few, more = (
        [pairs.pair(i) for i in range(len(pairs))] for pairs in (few_pairs(data.train, recipe, 1, s) for s in SHARES)
    )
    assert (len(few), len(more)) == (2, 20)
    assert more[:2] == few
    assert few_pairs(data.train, recipe, 2, 10).pair(0) != more[0]


def test_transfer_unrelated_pairs_have_the_same_sides(contest):
    recipe = shared_pieces(contest(["rnn"]).candidates[0].recipe)
    pairs = chosen_pairs(prepared(recipe).train, np.arange(100), swapped=True)
    wrong = unrelated(pairs)
    ours, right = ([each.pair(i) for i in range(100)] for each in (wrong, pairs))
    assert [target for _, target in ours] == [target for _, target in right]
    assert sorted(source for source, _ in ours) == sorted(source for source, _ in right)
    assert not any(a == b for a, b in zip(ours, right, strict=True))
    assert np.abs(wrong.source_lengths - pairs.source_lengths).mean() <= 1


def test_transfer_batches_give_updates_equal_tokens(contest):
    recipe = shared_pieces(contest(["rnn"]).candidates[0].recipe)
    data = prepared(recipe).train
    wanted = 0.8 * tokens_of(data, recipe.batches.tokens)
    evened = with_batches(recipe, data, wanted)
    assert evened.batches.tokens < recipe.batches.tokens
    assert tokens_of(data, evened.batches.tokens) == pytest.approx(wanted, rel=0.03)


def test_transfer_arms_are_of_equal_length_and_repeatable(contest, monkeypatch, tmp_path):
    monkeypatch.setitem(transfer.SIZES, "quick", TINY)
    made = contest(["transformer"], seeds=(1, 2))
    cells = EXPERIMENT.trials(made)
    assert [(cell.part, cell.seed) for cell in cells] == [("equal-1", 1), ("equal-10", 1)]
    measured = {cell: EXPERIMENT.measure(made, cell) for cell in cells}
    assert [run.pairs for run in measured.values()] == [2, 20]
    for run in measured.values():
        assert {arm.before.updates + arm.updates[-1] for arm in run.arms.values()} == {8}
        assert [len(arm.updates) for arm in run.arms.values()] == [3, 3, 3]
        # before the first update, pretrained weights are better than fresh ones
        starts = {name: arm.curves["0.004"][0] for name, arm in run.arms.items()}
        assert max(starts["real"], starts["unrelated"]) < starts["scratch"]
        assert starts["real"] != starts["unrelated"]
        for arm in run.arms.values():
            assert set(arm.curves) == {"0.002", "0.004"}
            assert sum(arm.losses) / sum(run.tokens) == pytest.approx(arm.loss(), rel=1e-4)
    # both shares start from the same weights
    assert len({round(run.arms["real"].curves["0.004"][0], 5) for run in measured.values()}) == 1
    monkeypatch.setattr(transfer, "train_briefly", lambda *_: pytest.fail("pretrained twice"))
    again = EXPERIMENT.measure(made, cells[1])
    arms = {name: replace(arm, seconds=measured[cells[1]].arms[name].seconds) for name, arm in again.arms.items()}
    assert replace(again, arms=arms) == measured[cells[1]]
    stored = {cell: json.loads(json.dumps(asdict(run), allow_nan=False)) for cell, run in measured.items()}
    result = EXPERIMENT.result(made, stored)
    assert result == EXPERIMENT.result(made, measured)
    assert result.experiment == ROWS["fine-tuning"][1]
    assert {f.figure for f in result.findings} <= {figure.name for figure in result.figures}
    assert all("{" not in text for text in (result.method, result.limits))


def test_transfer_harm_of_a_control_is_no_gain(contest):
    made = contest(["rnn", "gru"], seeds=(1, 2, 3))
    over = {"rnn": {"unrelated": 2.0, "scratch": 0.2}, "gru": {"unrelated": 0.4, "scratch": 1.0}}
    found = {
        Trial(model, f"equal-{share}", seed): _run(share, seed, gains)
        for model, gains in over.items()
        for share in SHARES
        for seed in (1, 2, 3)
    }
    result = EXPERIMENT.result(made, found)
    # both end with the same loss, whatever another condition does
    assert [each.standing for each in result.findings] == ["undecided", "undecided"]
    gains = [gain_of(_of(found, model)) for model in made.models]
    assert [gain.control for gain in gains] == ["scratch", "unrelated"]
    assert [gain.mean() for gain in gains] == pytest.approx([0.2, 0.4], abs=0.05)


def test_transfer_pretrains_in_the_other_direction(contest, monkeypatch):
    monkeypatch.setitem(transfer.SIZES, "quick", TINY)
    made, given = contest(["gru"]), []
    build = Trainer.__init__

    def seen(self, model, examples, *rest):
        given.append(examples.data)
        build(self, model, examples, *rest)

    monkeypatch.setattr(Trainer, "__init__", seen)
    weights = [pretrained(made, "gru", 1, related, 200.0)[0] for related in (True, False)]
    recipe = shared_pieces(made.candidates[0].recipe)
    data = prepared(recipe).train
    wanted = chosen_pairs(data, halves(data, recipe.batches.max_length)[0])
    assert given[0].pair(3) == wanted.pair(3)[::-1]
    assert given[1].pair(3)[1] == wanted.pair(3)[0]
    assert given[1].pair(3)[0] != wanted.pair(3)[1]
    assert not all(torch.equal(a, b) for a, b in zip(weights[0].values(), weights[1].values(), strict=True))


def test_transfer_translates_with_the_best_validation(contest, monkeypatch):
    monkeypatch.setitem(transfer.SIZES, "quick", TINY)
    made, validated, translated = contest(["transformer"]), [], []
    take, translator = transfer.pair_losses, translation.TextTranslator

    def best_at_the_second(model, data, *rest):
        """Losses where the second validation of each condition, after some updates, is the best of its six."""
        number = len(validated)
        validated.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        return take(model, data, *rest) * 0 + number - number % 6 + (1, 0, 2, 3, 4, 5)[number % 6]

    def seen(model, *rest):
        translated.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        return translator(model, *rest)

    monkeypatch.setattr(transfer, "pair_losses", best_at_the_second)
    monkeypatch.setattr(translation, "TextTranslator", seen)
    found = EXPERIMENT.measure(made, EXPERIMENT.trials(made)[1])
    # two rates of three validations each, in every condition
    assert [arm.losses[0] for arm in found.arms.values()] == [0, 6, 12]
    assert all(torch.equal(translated[arm], validated[6 * arm + 1]) for arm in range(3))
    assert not any(torch.equal(validated[1], validated[other]) for other in (0, 2))


def test_transfer_lower_loss_is_better_whoever_gains_more(contest):
    made = contest(["rnn", "gru"], seeds=(1, 2, 3))
    measured = _found({"rnn": 0.5, "gru": 0.2}, (1, 2, 3), losses={"rnn": 4.0})
    result = EXPERIMENT.result(made, measured)
    rnn, gru = result.findings
    assert rnn.low < 4.0 < rnn.high
    assert (rnn.standing, gru.standing) == ("worse", "better")
    assert (rnn.rival, rnn.difference) == ("gru", pytest.approx(rnn.value - gru.value))
    assert 0 < rnn.difference_low < rnn.difference < rnn.difference_high
    runs = _of(measured, "rnn").values()
    assert rnn.value == pytest.approx(np.mean([sum(run.arms["real"].losses) / sum(run.tokens) for run in runs]))
    bleu = np.mean([run.arms["real"].bleu for run in runs])
    assert rnn.facts["BLEU after fine-tuning"] == pytest.approx(bleu, abs=0.05)
    assert rnn.facts["gain over unrelated pairs (nats)"] == pytest.approx(0.5, abs=0.05)
    assert rnn.tokens == 2000 + 1000
    assert "fine-tuning on 10 % of the pairs" in rnn.quantity
    assert rnn.variations == {
        "1 % of the pairs": True,
        # both translate without a mistake
        "BLEU": True,
        "the chosen rate alone": True,
        WITHOUT_A_SEED: True,
    }
    table = next(table for table in result.tables if table.name == "gains")
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert len(rows) == 2 * 2 * 2
    over = {row["gain over"]: row for row in rows if (row["model"], row["pairs (%)"]) == ("rnn", 1)}
    assert over["from scratch"]["loss (nats per token)"] == pytest.approx(1.0, abs=0.05)
    assert all(row["p (Holm)"] < 0.05 and row["BLEU"] > 0 for row in rows)


def test_transfer_worth_is_read_from_the_losses_from_scratch():
    """The loss from scratch falls by a nat with each tenfold number of pairs: 10, 100 and 1,000 of them."""
    gains = {
        share: gain_of({1: _run(share, 1, {"scratch": over, "unrelated": 9.0})})
        for share, over in ((1, 1.5), (10, 0.5), (100, -0.5))
    }
    assert worth(gains, 10) == pytest.approx(100 * 10**0.5, rel=0.1)
    few = {share: gains[share] for share in (1, 10)}
    assert worth(few, 10) == "more than 100"
    assert worth({100: gains[100]}, 100) == "at most 1,000"


def test_transfer_reports_harm(contest):
    made = contest(["rnn", "gru"], seeds=(1, 2, 3))
    rnn, _ = EXPERIMENT.result(made, _found({"rnn": -0.4, "gru": 0.1}, (1, 2, 3))).findings
    assert rnn.facts["gain over unrelated pairs (nats)"] == pytest.approx(-0.4, abs=0.05)


@pytest.mark.parametrize(
    ("change", "standing", "words"),
    [
        ({"tokens": 1100}, "not measurable", "equal totals"),
        ({"read": 0.1}, "not measurable", "0.10 nats lower with the right sources"),
        ({"bad": "not a word"}, "not measurable", "translates: 0.0 BLEU in the best condition (≥ 20 required)"),
        ({"curve": (3, 2, 1, 0)}, "still learning", "its loss still falls by"),
        # a small rise at the last validation is no convergence
        ({"curve": (3, 2, 0, 0.001)}, "still learning", "its loss still falls by"),
    ],
)
def test_transfer_failed_checks_replace_the_verdict(contest, change, standing, words):
    made = contest(["rnn", "gru"], seeds=(1, 2, 3))
    rnn_runs = _found({"rnn": 0.4}, (1, 2, 3), **change)
    if "tokens" in change:
        rnn_runs = {trial: _with_arm(run, "scratch", tokens=4000) for trial, run in rnn_runs.items()}
    rnn, gru = EXPERIMENT.result(made, _found({"gru": 0.4}, (1, 2, 3)) | rnn_runs).findings
    assert (rnn.standing, gru.standing) == (standing, "not measurable")
    assert rnn.value == pytest.approx(gain_of(_of(rnn_runs, "rnn")).loss())
    closed = [gate for gate in gates(gain_of(_of(rnn_runs, "rnn"))) if not gate.passed]
    assert any(words in f"{gate.name}: {gate.sentence}" for gate in closed)


@pytest.mark.parametrize("arm", ARMS)
def test_transfer_arm_that_still_learns_closes_the_row(contest, arm):
    made = contest(["rnn", "gru"], seeds=(1, 2, 3))
    measured = _found({"rnn": 0.5, "gru": 0.2}, (1, 2, 3))
    for trial, run in measured.items():
        if trial.model == "rnn":
            curves = {rate: [min(c) + fall for fall in (3, 2, 1, 0)] for rate, c in run.arms[arm].curves.items()}
            measured[trial] = _with_arm(run, arm, curves=curves)
    rnn, gru = EXPERIMENT.result(made, measured).findings
    assert (rnn.standing, gru.standing) == ("still learning", "not measurable")
    assert f"{ARMS[arm]}, its loss still falls by" in "; ".join(rnn.reasons)
    assert rnn.variations == gru.variations == {}


@pytest.mark.parametrize(("ahead", "passed"), [(0.9, False), (1.1, True)])
def test_transfer_worse_control_may_still_learn_if_it_stays_worse(contest, ahead, passed):
    """It falls by a nat with the next doubling: enough to become the control, or not."""
    made = contest(["rnn", "gru"], seeds=(1, 2, 3))
    own = {
        seed: _falling(_run(10, seed, {"scratch": 0.3, "unrelated": 0.3 + ahead}), "unrelated") for seed in (1, 2, 3)
    }
    measured = {trial: run for trial, run in _found({"gru": 0.2}, (1, 2, 3)).items() if trial.part == "equal-10"}
    measured |= {Trial("rnn", "equal-10", seed): run for seed, run in own.items()}
    rnn = EXPERIMENT.result(made, measured).findings[0]
    (over,) = (gate for gate in gates(gain_of(own)) if "after unrelated pairs" in gate.sentence)
    assert over.passed is passed
    assert "falls by 1.00 nats" in over.sentence
    assert (rnn.standing == "still learning") is not passed
    # the condition that is compared may not
    own = {seed: _falling(run, "scratch") for seed, run in own.items()}
    assert any("from scratch" in gate.sentence for gate in gates(gain_of(own)) if not gate.passed)


def _of(measured, model):
    return {cell.seed: m for cell, m in measured.items() if (cell.model, cell.part) == (model, "equal-10")}


def test_transfer_does_not_train_a_model_that_still_learns(contest, monkeypatch):
    monkeypatch.setitem(transfer.SIZES, "quick", TINY)
    made = contest(["rnn", "gru"], seeds=(1, 2, 3))
    rnn, gru = made.candidates
    # the least that counts as learning, and a little less
    slow = replace(made, candidates=(replace(rnn, slope=-LEARNING), replace(gru, slope=0.01 - LEARNING)))
    assert [each.still_learns for each in slow.candidates] == [True, False]
    untrained = [cell for cell in EXPERIMENT.trials(slow) if cell.model == "rnn"]
    measured = {cell: EXPERIMENT.measure(slow, cell) for cell in untrained}
    found = EXPERIMENT.result(slow, measured | _found({"gru": 0.4}, (1, 2, 3))).findings
    assert [each.model for each in found] == ["rnn", "gru"]
    assert (found[0].standing, found[0].value) == ("still learning", None)
    assert found[0].facts == {"updates with all pairs": 12}
    assert found[0].reasons[0].startswith("its loss still falls by 0.05")
    assert "fine-tuning on 10 % of the pairs" in found[0].quantity
    # nothing is compared with what was not trained
    assert found[1].reasons == ["no other model was measured"]
    assert [each.model for each in EXPERIMENT.result(slow, measured).findings] == ["rnn"]


def test_transfer_refuses_a_tagger(contest, monkeypatch):
    monkeypatch.setitem(transfer.SIZES, "quick", TINY)
    made = contest(["rnn-tagger"])
    with pytest.raises(NotForThisModel):
        EXPERIMENT.measure(made, EXPERIMENT.trials(made)[0])
