"""Fine-tuning: three arms of equal length, unrelated pairs that are unrelated, and planted gains that are found."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from s2s.comparison import translation
from s2s.comparison.plans import ROWS
from s2s.comparison.questions.transfer import measure as transfer
from s2s.comparison.questions.transfer.analyse import ARMS, SHARES, gain_of, gates
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
from s2s.training.trainer import Trainer

TINY = Sizes(pretraining=0.5, finetuning=0.17, rates=(0.5, 1.0), looks=2, sentences=2, seeds=1)


def _timeless(found):
    text = json.dumps(found, allow_nan=False)
    return json.loads(text, object_pairs_hook=lambda pairs: {k: v for k, v in pairs if not k.endswith("seconds")})


def _planted(share, seed, over, tokens=1000, curve=(1, 0, 0.5, 0.6), read=1.0, bad="x"):
    """Losses of twenty sentences; those of the real thing are lower by about so much than those of the other arms."""
    generator = np.random.default_rng(seed)
    counts = generator.integers(5, 15, 20)
    real = 2.0 * counts + generator.normal(0, 0.5, 20) + generator.normal(0, 0.2) * counts
    references = [f"w{i} a b c d e" for i in range(20)]
    arms = {}
    for name in ARMS:
        losses = real + (over[name] * counts + generator.normal(0, 0.1, 20) if name in over else 0)
        mean = float(losses.sum() / counts.sum())
        used = {"right": 1.0, "exchanged": 1.0 + read, "pairs": 9}
        fresh = name == "scratch"
        written = [text.replace("b", bad) if name in over else text for text in references]
        arms[name] = {
            "updates": [0, 10, 20, 30] if fresh else [0, 3, 6, 10],
            "tokens": 3 * tokens if fresh else tokens,
            "curves": {"0.002": [mean + 2 * (rise + 0.1) for rise in curve], "0.004": [mean + rise for rise in curve]},
            "losses": losses.tolist(),
            "source_use": used,
            "counts": counts_of("bleu", [bad if len(bad) > 1 else t for t in written], references),
            "seconds": 1.0,
            "before": {"updates": 0, "tokens": 0, "seconds": 0.0, "source_use": None}
            if fresh
            else {"updates": 20, "tokens": 2000, "seconds": 2.0, "source_use": used},
        }
    return {
        "share": share,
        "pairs": 10 * share,
        "pretraining_pairs": 1000,
        "tokens": counts.tolist(),
        "rate": 0.004,
        "arms": arms,
    }


def _found(models, seeds, **changes):
    """Planted measurements of models by what they gain over unrelated pairs; twice that from scratch."""
    return {
        Trial(model, f"equal-{share}", seed): _planted(share, seed, {"unrelated": by, "scratch": 2 * by}, **changes)
        for model, by in models.items()
        for share in SHARES
        for seed in seeds
    }


def test_no_pair_is_in_both_halves_and_few_pairs_are_part_of_more(contest):
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


def test_unrelated_pairs_have_the_same_sides_but_none_beside_its_own(contest):
    recipe = shared_pieces(contest(["rnn"]).candidates[0].recipe)
    pairs = chosen_pairs(prepared(recipe).train, np.arange(100), swapped=True)
    wrong = unrelated(pairs)
    told, right = ([each.pair(i) for i in range(100)] for each in (wrong, pairs))
    assert [target for _, target in told] == [target for _, target in right]
    assert sorted(source for source, _ in told) == sorted(source for source, _ in right)
    assert not any(a == b for a, b in zip(told, right, strict=True))
    assert np.abs(wrong.source_lengths - pairs.source_lengths).mean() <= 1


def test_batches_are_made_so_that_updates_learn_from_equally_many_tokens(contest):
    recipe = shared_pieces(contest(["rnn"]).candidates[0].recipe)
    data = prepared(recipe).train
    wanted = 0.8 * tokens_of(data, recipe.batches.tokens)
    evened = with_batches(recipe, data, wanted)
    assert evened.batches.tokens < recipe.batches.tokens
    assert tokens_of(data, evened.batches.tokens) == pytest.approx(wanted, rel=0.03)


def test_arms_are_of_equal_length_and_repeatable(contest, monkeypatch, tmp_path):
    monkeypatch.setitem(transfer.SIZES, "quick", TINY)
    made = contest(["gru"], seeds=(1, 2))
    cells = EXPERIMENT.trials(made)
    assert [(cell.part, cell.seed) for cell in cells] == [("equal-1", 1), ("equal-10", 1)]
    measured = {cell: EXPERIMENT.measure(made, cell) for cell in cells}
    assert [found["pairs"] for found in measured.values()] == [2, 20]
    for found in measured.values():
        arms = found["arms"]
        assert {its["before"]["updates"] + its["updates"][-1] for its in arms.values()} == {8}
        assert [len(its["updates"]) for its in arms.values()] == [3, 3, 3]
        # before the first update, weights that learned something know more than fresh ones
        starts = {name: its["curves"]["0.004"][0] for name, its in arms.items()}
        assert max(starts["real"], starts["unrelated"]) < starts["scratch"]
        assert starts["real"] != starts["unrelated"]
        for its in arms.values():
            least = min(min(curve) for curve in its["curves"].values())
            assert set(its["curves"]) == {"0.002", "0.004"}
            assert sum(its["losses"]) / sum(found["tokens"]) == pytest.approx(least, rel=1e-4)
    # the start is the same whatever comes after it
    assert len({round(found["arms"]["real"]["curves"]["0.004"][0], 5) for found in measured.values()}) == 1
    trained = []
    monkeypatch.setattr(transfer, "train_briefly", lambda *_: trained.append(1))
    assert _timeless(EXPERIMENT.measure(made, cells[1])) == _timeless(measured[cells[1]])
    assert not trained
    result = EXPERIMENT.result(made, measured)
    assert result.experiment == ROWS["fine-tuning"][1]
    assert {f.figure for f in result.findings} <= {figure.name for figure in result.figures}
    assert all("{" not in text for text in (result.method, result.limits))


def test_what_unrelated_pairs_harm_is_no_gain(contest):
    made = contest(["rnn", "gru"], seeds=(1, 2, 3))
    over = {"rnn": {"unrelated": 2.0, "scratch": 0.2}, "gru": {"unrelated": 0.4, "scratch": 1.0}}
    found = {
        Trial(model, f"equal-{share}", seed): _planted(share, seed, gains)
        for model, gains in over.items()
        for share in SHARES
        for seed in (1, 2, 3)
    }
    rnn, gru = EXPERIMENT.result(made, found).findings
    assert rnn.low < 0.2 < rnn.high
    assert gru.low < 0.4 < gru.high
    assert (rnn.standing, gru.standing) == ("worse", "better")
    assert rnn.variations["beside the few pairs alone"]
    assert not rnn.variations["beside unrelated pairs"]


def test_the_opposite_direction_is_learned_first(contest, monkeypatch):
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


def test_the_best_look_counts(contest, monkeypatch):
    monkeypatch.setitem(transfer.SIZES, "quick", TINY)
    made, looked, translated = contest(["gru"]), [], []
    take, translator = transfer.pair_losses, translation.TextTranslator

    def worse_and_worse(model, data, *rest):
        looked.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        return take(model, data, *rest) * 0 + len(looked)

    def seen(model, *rest):
        translated.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        return translator(model, *rest)

    monkeypatch.setattr(transfer, "pair_losses", worse_and_worse)
    monkeypatch.setattr(translation, "TextTranslator", seen)
    found = EXPERIMENT.measure(made, EXPERIMENT.trials(made)[1])
    # two rates of three looks each, in every arm
    assert [its["losses"][0] for its in found["arms"].values()] == [1, 7, 13]
    assert all(torch.equal(translated[arm], looked[6 * arm]) for arm in range(3))
    assert not torch.equal(looked[0], looked[2])


def test_planted_gains_are_found_and_compared(contest):
    made = contest(["rnn", "gru"], seeds=(1, 2, 3))
    result = EXPERIMENT.result(made, _found({"rnn": 0.5, "gru": 0.2}, (1, 2, 3)))
    rnn, gru = result.findings
    assert rnn.low < 0.5 < rnn.high
    assert (rnn.standing, gru.standing) == ("better", "worse")
    assert (rnn.rival, rnn.difference) == ("gru", pytest.approx(0.3, abs=0.05))
    assert rnn.facts["gain over unrelated pairs (nats)"] == pytest.approx(0.5, abs=0.05)
    assert rnn.tokens == 2000 + 1000
    assert "with 10 % of the pairs" in rnn.quantity
    assert rnn.variations == {
        "1 % of the pairs": True,
        "beside unrelated pairs": True,
        "beside the few pairs alone": True,
        "one rate for all arms": True,
    }
    table = next(table for table in result.tables if table.name == "gains")
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    assert len(rows) == 2 * 2 * 2
    over = {row["gain over"]: row for row in rows if (row["model"], row["pairs (%)"]) == ("rnn", 1)}
    assert over["from scratch"]["loss (nats per token)"] == pytest.approx(1.0, abs=0.05)
    assert all(row["p (Holm)"] < 0.05 and row["BLEU"] > 0 for row in rows)


def test_harm_is_called_harm(contest):
    made = contest(["rnn", "gru"], seeds=(1, 2, 3))
    rnn, _ = EXPERIMENT.result(made, _found({"rnn": -0.4, "gru": 0.1}, (1, 2, 3))).findings
    assert rnn.facts["gain over unrelated pairs (nats)"] == pytest.approx(-0.4, abs=0.05)


@pytest.mark.parametrize(
    ("change", "standing", "words"),
    [
        ({"tokens": 1100}, "not measurable", "equal totals"),
        ({"read": 0.1}, "not measurable", "0.10 nats lower with the right sources"),
        ({"bad": "not a word"}, "not measurable", "translates: 0.0 BLEU with the best arm (≥ 20 wanted)"),
        ({"curve": (3, 2, 1, 0)}, "still learning", "its loss still falls by"),
        # a hair's rise at the last look is no end
        ({"curve": (3, 2, 0, 0.001)}, "still learning", "its loss still falls by"),
    ],
)
def test_closed_gates_close_the_row(contest, change, standing, words):
    made = contest(["rnn", "gru"], seeds=(1, 2, 3))
    measured = _found({"gru": 0.4}, (1, 2, 3)) | _found({"rnn": 0.4}, (1, 2, 3), **change)
    if "tokens" in change:
        for cell, found in measured.items():
            if cell.model == "rnn":
                found["arms"]["scratch"]["tokens"] = 4000
    rnn, gru = EXPERIMENT.result(made, measured).findings
    assert (rnn.standing, gru.standing) == (standing, "not measurable")
    assert rnn.value is None
    of_rnn = {cell.seed: m for cell, m in measured.items() if (cell.model, cell.part) == ("rnn", "equal-10")}
    closed = [gate for gate in gates(gain_of(of_rnn)) if not gate.passed]
    assert any(words in f"{gate.name}: {gate.sentence}" for gate in closed)


@pytest.mark.parametrize("arm", ARMS)
def test_no_arm_may_still_learn(contest, arm):
    made = contest(["rnn", "gru"], seeds=(1, 2, 3))
    measured = _found({"rnn": 0.5, "gru": 0.2}, (1, 2, 3))
    for cell, found in measured.items():
        if cell.model == "rnn":
            curves = found["arms"][arm]["curves"]
            found["arms"][arm]["curves"] = {
                rate: [min(c) + fall for fall in (3, 2, 1, 0)] for rate, c in curves.items()
            }
    rnn, gru = EXPERIMENT.result(made, measured).findings
    assert (rnn.standing, gru.standing) == ("still learning", "not measurable")
    assert f"{ARMS[arm]}, its loss still falls by" in "; ".join(rnn.reasons)
    assert rnn.variations == gru.variations == {}


@pytest.mark.parametrize(("ahead", "passed"), [(0.9, False), (1.1, True)])
def test_an_arm_that_is_not_compared_may_fall_on_behind_the_one_that_is(contest, ahead, passed):
    """It falls by a nat with the next doubling: enough to become the control, or not."""
    made = contest(["rnn", "gru"], seeds=(1, 2, 3))
    measured = _found({"gru": 0.2}, (1, 2, 3))
    measured |= {
        Trial("rnn", "equal-10", seed): _planted(10, seed, {"scratch": 0.3, "unrelated": 0.3 + ahead})
        for seed in (1, 2, 3)
    }
    own = _of(measured, "rnn")
    for found in own.values():
        _falling(found["arms"]["unrelated"])
    rnn = EXPERIMENT.result(made, {cell: m for cell, m in measured.items() if cell.part == "equal-10"}).findings[0]
    (over,) = (gate for gate in gates(gain_of(own)) if "after unrelated pairs" in gate.sentence)
    assert over.passed is passed
    assert "falls by 1.00 nats" in over.sentence
    assert (rnn.standing == "still learning") is not passed
    # what is compared may not
    for found in own.values():
        _falling(found["arms"]["scratch"])
    assert any("from scratch" in gate.sentence for gate in gates(gain_of(own)) if not gate.passed)


def _falling(its):
    """Makes an arm's curves fall by a nat with each doubling; their lowest looks stay."""
    its["updates"] = [its["updates"][-1] * share for share in (0, 1 / 8, 1 / 4, 1 / 2, 1)]
    its["curves"] = {rate: [min(c) + fall for fall in (9, 3, 2, 1, 0)] for rate, c in its["curves"].items()}


def _of(measured, model):
    return {cell.seed: m for cell, m in measured.items() if (cell.model, cell.part) == (model, "equal-10")}


def test_a_model_that_all_pairs_are_too_few_for_is_not_trained_with_few(contest, monkeypatch):
    monkeypatch.setitem(transfer.SIZES, "quick", TINY)
    made = contest(["rnn", "gru"], seeds=(1, 2, 3))
    rnn, gru = made.candidates
    # the least that counts as learning, and a little less
    slow = replace(made, candidates=(replace(rnn, slope=-LEARNING), replace(gru, slope=0.01 - LEARNING)))
    assert [each.still_learns for each in slow.candidates] == [True, False]
    untrained = [cell for cell in EXPERIMENT.trials(slow) if cell.model == "rnn"]
    measured = {cell: EXPERIMENT.measure(slow, cell) for cell in untrained}
    told = EXPERIMENT.result(slow, measured | _found({"gru": 0.4}, (1, 2, 3))).findings
    assert [each.model for each in told] == ["rnn", "gru"]
    assert (told[0].standing, told[0].value) == ("still learning", None)
    assert told[0].facts == {"updates with all pairs": 12}
    assert told[0].reasons[0].startswith("its loss still falls by 0.05")
    assert "with 10 % of the pairs" in told[0].quantity
    # nothing is compared with what was not trained
    assert told[1].reasons == ["no other model was measured"]
    assert [each.model for each in EXPERIMENT.result(slow, measured).findings] == ["rnn"]


def test_a_tagger_is_told_so(contest, monkeypatch):
    monkeypatch.setitem(transfer.SIZES, "quick", TINY)
    made = contest(["rnn-tagger"])
    with pytest.raises(NotForThisModel):
        EXPERIMENT.measure(made, EXPERIMENT.trials(made)[0])
