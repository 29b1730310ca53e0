"""Positions question: shuffled sources, other positional encodings, and conclusions from planted measurements."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from s2s.comparison.executor import run_cached
from s2s.comparison.plans import ROWS
from s2s.comparison.questions.positions import measure as positions
from s2s.comparison.questions.positions.analyse import TRAINED, OtherPositions, Places, Spared, TrainedPositions
from s2s.comparison.questions.positions.measure import (
    EXPERIMENT,
    Sizes,
    kinds_of,
    own_kinds,
    part_of,
    shuffle,
    shuffle_all,
    with_kinds,
)
from s2s.comparison.runs import LearningCurve, prepared
from s2s.comparison.spec import RateChoice, Trial
from s2s.comparison.translation import counts_of, sizes_of
from s2s.errors import UserError
from s2s.evaluation.differences import welch
from s2s.recipe.installed import module_of
from s2s.tasks.seq2seq import build_model
from s2s.tasks.source_use import pair_losses

TINY = Sizes(sentences=12, all_kinds=False, seeds=1, seeds_left_out=1, texts=4)


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    monkeypatch.setitem(positions.SIZES, "quick", TINY)


def _table(result, name):
    table = next(table for table in result.tables if table.name == name)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_shuffle_keeps_the_words_and_the_end():
    text = "The boy, who sleeps, saw a dog!"
    found = shuffle(text, 3)
    assert found != text
    assert sorted(found.removesuffix("!").split()) == sorted(text.removesuffix("!").split())
    assert found.endswith("!")
    assert shuffle(text, 3) == found
    assert len({shuffle(text, number) for number in range(20)}) > 10
    # nothing to change
    assert shuffle("Go.", 1) == "Go."
    assert shuffle("no no no.", 1) == "no no no."
    assert shuffle("", 1) == ""
    # two words can only change places
    assert {shuffle("He sleeps.", number) for number in range(20)} == {"sleeps He."}
    assert shuffle_all([text, text])[0] != shuffle_all([text, text])[1]


def test_positions_kinds_are_those_of_the_settings():
    transformer = module_of("transformer").Settings()
    assert own_kinds(transformer) == ("sinusoidal", "sinusoidal")
    assert kinds_of(transformer, every=False) == [
        ("sinusoidal", "none"),
        ("none", "sinusoidal"),
        ("none", "none"),
        *((kind, kind) for kind in ("learned", "rope", "alibi", "relative")),
    ]
    every = kinds_of(transformer, every=True)
    assert len(set(every)) == len(every) == 35
    for kind in ("rnn", "lstm-attention", "mingru"):
        settings = module_of(kind).Settings()
        assert own_kinds(settings) is None
        assert kinds_of(settings, every=True) == []
    assert part_of("none", "learned") == "equal-none-learned"
    # no more positions are learned than are read: a longer table would take its parameters from the layers
    for longest in (160, 2000):
        changed = with_kinds(transformer, ("learned", "none"), longest, 90)
        kinds = (changed.encoder_positions, changed.decoder_positions)
        assert (*kinds, changed.max_positions) == ("learned", "none", longest)
        assert changed.max_distance == transformer.max_distance
    # no distance is told apart that training texts do not have
    for trained, wanted in ((90, 45), (20, 17)):
        assert with_kinds(transformer, ("relative", "relative"), 160, trained).max_distance == wanted


@pytest.mark.parametrize("kind", ["none", "sinusoidal"])
def test_positions_losses_without_encoder_positions_ignore_order(contest, kind):
    made = contest(["transformer"])
    recipe = made.candidates[0].recipe
    data = prepared(recipe)
    settings = with_kinds(recipe.model, (kind, "sinusoidal"), 128, 90)
    model = build_model(recipe.model_copy(update={"model": settings}), *sizes_of(data))
    with torch.no_grad():
        for p in model.parameters():
            # far from the start, where a fresh model hardly looks at its source
            p.mul_(2)
    found = positions.losses_of(model, recipe, data.validation, positions.shuffled_pairs(data), made)
    natural, other = map(np.array, found)
    # a word may be cut otherwise where a full stop leaves it
    kept = [
        sorted(data.source_tokenizer.encode(a)) == sorted(data.source_tokenizer.encode(b))
        for a, b in zip(data.corpus.validation["source"], shuffle_all(data.corpus.validation["source"]), strict=True)
    ]
    assert sum(kept) > 10
    assert np.allclose(natural[kept], other[kept], rtol=1e-4) == (kind == "none")


_COMMON = {"tokens": [10] * 40, "parameters": 5, "places": Places([0, 10], [2.0, 3.0]), "learned": 15}


def _curve(*losses):
    return LearningCurve(updates=[1, 2, 4], tokens=[100, 200, 400], seconds=[1.0] * 3, losses=list(losses))


def _planted(share, natural, shuffled, own=None):
    """A trained model that translates all words right, or that share of the sentences wrong when shuffled."""
    references = [f"w{i} a b c d e f g" for i in range(40)]
    other = [text if i >= share * 40 else "x y z u v" for i, text in enumerate(references)]
    return TrainedPositions(
        **_COMMON,
        natural=[natural * 10.0 + 0.01 * i for i in range(40)],
        shuffled=[shuffled * 10.0 + 0.01 * i for i in range(40)],
        bleu=counts_of("bleu", references, references),
        bleu_shuffled=counts_of("bleu", other, references),
        reordered=[1] * 40,
        changed=[int(a != b) for a, b in zip(references, other, strict=True)],
        same_words=[int(a == b) for a, b in zip(references, other, strict=True)],
        examples=[("a", "b", "c", "d")],
        own=own,
        curve=_curve(natural + 0.02, natural + 0.01, natural),
    )


def _signal(kinds, natural):
    losses = {"natural": [natural * 10.0 + 0.02 * i for i in range(40)], "shuffled": [natural * 10.0] * 40}
    return OtherPositions(**_COMMON, **losses, encoder=kinds[0], decoder=kinds[1], updates=3, seconds=1.0)


def _result(made, measured):
    return EXPERIMENT.result(made, {trial: json.loads(json.dumps(asdict(each))) for trial, each in measured.items()})


def _measured():
    own = _planted(0.5, 2.0, 3.0, own=("sinusoidal", "sinusoidal"))
    return {
        Trial("rnn", TRAINED, 1): _planted(0.25, 2.0, 2.5),
        Trial("transformer", TRAINED, 1): own,
        Trial("transformer", "equal-none-none", 1): _signal(("none", "none"), 2.6),
        Trial("transformer", "equal-none-sinusoidal", 1): _signal(("none", "sinusoidal"), 2.4),
        Trial("transformer", "equal-sinusoidal-none", 1): _signal(("sinusoidal", "none"), 1.99),
        Trial("transformer", "equal-learned-learned", 1): _signal(("learned", "learned"), 2.1),
    }


def test_positions_planted_effect_of_order_is_found(contest):
    made = contest(["rnn", "transformer"])
    measured = _measured()
    result = _result(made, measured)
    rnn, transformer = result.findings
    assert 0 < rnn.low < rnn.value < rnn.high < transformer.high
    assert rnn.facts == {"BLEU on natural sources": 100, "translations that change (%)": 25}
    # 2.0 against 2.6 and 2.4 nats per token, and a little for the slope over the pairs
    added = "rise of the loss with positions {} (nats per token)"
    assert transformer.facts[added.format("none")] == pytest.approx(0.62, abs=0.005)
    assert transformer.facts[added.format("none / sinusoidal")] == pytest.approx(0.42, abs=0.005)
    rows = {(row["encoder"], row["decoder"]): row for row in _table(result, "signals")}
    assert rows["sinusoidal", "sinusoidal"]["rise above its own"] is None
    assert rows["learned", "learned"]["rise above its own"] == pytest.approx(0.12, abs=0.01)
    assert rows["none", "none"]["low"] > 0
    assert _result(made, dict(reversed(measured.items()))) == result


def test_positions_failed_check_replaces_the_verdict(contest):
    made = contest(["rnn", "transformer"])
    measured = _measured()
    rnn, transformer = Trial("rnn", TRAINED, 1), Trial("transformer", TRAINED, 1)
    measured[rnn] = replace(measured[rnn], curve=_curve(3.0, 2.5, 2.0))
    weak = [f"w{i} q r s" for i in range(40)]
    measured[transformer] = replace(measured[transformer], bleu=counts_of("bleu", ["x y"] * 40, weak))
    rnn, transformer = _result(made, measured).findings
    assert (rnn.standing, transformer.standing) == ("still learning", "not measurable")
    assert rnn.reasons[0].startswith("its loss still falls by 0.50 nats")
    assert "BLEU on single sentences (≥ 20 required)" in transformer.reasons[0]
    measured = _measured()
    rate = RateChoice(chosen=0.008, tried=(0.004, 0.008), losses=(2.0, 1.0), inside=False)
    measured[Trial("rnn", TRAINED, 1)] = replace(measured[Trial("rnn", TRAINED, 1)], rate=rate)
    rnn, transformer = _result(made, measured).findings
    assert (rnn.standing, transformer.standing) == ("not measurable", "")
    assert rnn.reasons[0].startswith("its rate 0.008 lies at an end of the range tried")
    assert rnn.tokens == transformer.tokens == 400


def test_positions_of_several_seeds_are_tested_and_corrected(contest):
    made = contest(["transformer"], seeds=(1, 2, 3))
    measured = {}
    for seed in made.seeds:
        for cell, one in _measured().items():
            if cell.model == "transformer":
                shift = 0.1 * seed + 0.003 * seed * seed * (cell.part != TRAINED)
                measured[replace(cell, seed=seed)] = replace(one, natural=[each + shift for each in one.natural])
    result = _result(made, measured)
    rows = {(row["encoder"], row["decoder"]): row for row in _table(result, "signals")}
    losses = [[m.loss for c, m in measured.items() if c.part == p] for p in (TRAINED, "equal-none-none")]
    apart = welch(*losses)
    assert rows["none", "none"]["rise above its own"] == pytest.approx(apart.value, abs=1e-4)
    assert rows["none", "none"]["low"] == pytest.approx(apart.interval()[0], abs=1e-4)
    key = "p (Holm)"
    assert apart.p() - 1e-4 <= rows["none", "none"][key] <= 4 * apart.p() + 1e-4
    assert rows["sinusoidal", "sinusoidal"][key] is None
    # a seed with the model's own positions alone changes no difference
    alone = next(trial for trial in measured if trial.part == TRAINED)
    more = measured | {replace(alone, seed=4): replace(measured[alone], natural=[9.0] * 40)}
    again = {(row["encoder"], row["decoder"]): row for row in _table(_result(made, more), "signals")}
    compared = [name for name in rows["none", "none"] if name.startswith(("rise above", "p (", "low", "high"))]
    assert [again["none", "none"][name] for name in compared] == [rows["none", "none"][name] for name in compared]
    learned = "rise of the loss with positions learned (nats per token)"
    assert result.findings[0].facts[learned] == pytest.approx(
        rows["learned", "learned"]["rise above its own"], abs=1e-3
    )
    # not significant
    assert "rise of the loss with positions sinusoidal / none (nats per token)" not in result.findings[0].facts
    for cell, one in measured.items():
        if cell.part == "equal-learned-learned":
            measured[cell] = replace(one, natural=[each + (cell.seed or 0) for each in one.natural])
    assert learned not in _result(made, measured).findings[0].facts
    (figure,) = [figure for figure in result.figures if figure.name == "places"]
    assert [line.x for line in figure.series if line.reference] == [[15, 15]]


def test_place_losses_add_up_to_those_of_the_texts(contest, monkeypatch):
    made = contest(["transformer"])
    recipe = made.candidates[0].recipe
    data = prepared(recipe)
    monkeypatch.setattr(positions, "_PIECES", 0)
    longer = positions.long_pairs(data, 128)
    assert longer.source_lengths.max() < 128
    assert longer.target_lengths.mean() > 1.5 * data.validation.target_lengths.mean()
    model = build_model(recipe, *sizes_of(data))
    found = positions.place_losses(model, longer, recipe, made)
    counts = [
        np.clip(longer.target_lengths - start, 0, 10).sum() for start in range(0, longer.target_lengths.max(), 10)
    ]
    assert found.start == list(range(0, longer.target_lengths.max(), 10))
    whole = pair_losses(model, longer, recipe.batches, made.device_context).sum()
    assert np.dot(found.losses, counts) == pytest.approx(whole, rel=1e-4)


class _Trained(Exception):
    pass


def _train(*_):
    raise _Trained


def test_positions_on_one_side_are_spared_if_both_are_negligible(contest, monkeypatch):
    made = contest(["transformer"])
    cells = {cell.part: cell for cell in EXPERIMENT.trials(made)}
    assert list(cells)[-2:] == ["equal-sinusoidal-none", "equal-none-sinusoidal"]
    monkeypatch.setattr(positions, "train_briefly", _train)
    folder = made.results_folder("positions")
    folder.mkdir(parents=True)

    def measured(part, without):
        """A part, where the loss without any positions is that, and 2 with the model's own."""
        planted = {TRAINED: _planted(0.5, 2.0, 3.0), "equal-none-none": _signal(("none", "none"), without)}
        for name, found in planted.items():
            (folder / f"{cells[name].key}.json").unlink(missing_ok=True)
            run_cached(folder, lambda _, found=found: found, cells[name])
        return EXPERIMENT.measure(made, cells[part])

    # the planted losses of sentences rise to the last, by another 0.02 without positions
    for part in ("equal-none-sinusoidal", "equal-sinusoidal-none"):
        for without in (1.9, 2.02):
            found = measured(part, without)
            assert found == Spared(pytest.approx(without - 2.0 + 0.0195))
            assert _result(made, {cells[part]: found}).tables == []
        with pytest.raises(_Trained):
            measured(part, 2.04)
    with pytest.raises(_Trained):
        measured("equal-learned-learned", 1.9)
    # what is not known spares nothing
    (folder / f"{cells['equal-none-none'].key}.json").unlink()
    with pytest.raises(_Trained):
        EXPERIMENT.measure(made, cells["equal-none-sinusoidal"])


def test_positions_measurement_has_all_tables_and_figures(contest, monkeypatch):
    # untrained models write to the end of every text
    monkeypatch.setattr(positions, "_LONG", 16)
    made = contest(["rnn", "transformer"], seeds=(1, 2))
    cells = EXPERIMENT.trials(made)
    assert len(cells) == 2 * 2 + 7
    measured = {
        cell: EXPERIMENT.measure(made, cell)
        for cell in cells
        if cell.part in (TRAINED, "equal-none-none") and cell.seed == 1
    }
    result = _result(made, measured)
    assert [f.model for f in result.findings] == ["rnn", "transformer"]
    assert result.experiment == ROWS["position information"][1]
    assert {f.figure for f in result.findings} <= {figure.name for figure in result.figures}
    rows = _table(result, "signals")
    assert [(row["encoder"], row["decoder"]) for row in rows] == [("sinusoidal", "sinusoidal"), ("none", "none")]
    assert rows[1]["rise with shuffled sources"] == pytest.approx(0, abs=1e-3)
    assert {finding.standing for finding in result.findings} == {"not measurable"}
    assert "0.0 BLEU on single sentences (≥ 20 required)" in result.findings[0].reasons[0]
    # the same kind on both sides, or no choice at all
    assert {(cell.model, cell.part): each.longer is not None for cell, each in measured.items()} == {
        ("rnn", TRAINED): False,
        ("transformer", TRAINED): True,
        ("transformer", "equal-none-none"): True,
    }
    again = EXPERIMENT.measure(made, cells[0])
    assert again == measured[cells[0]]


def test_positions_on_one_side_alone_are_trained_with_seeds_of_their_own(contest):
    settings = contest(["transformer"]).candidate("transformer").settings
    sizes = Sizes(sentences=12, all_kinds=False, seeds=5, seeds_left_out=3, texts=4)
    third, fifth, sixth = (set(positions._trainings(settings, sizes, number)) for number in (2, 4, 5))
    assert third - fifth == {"equal-none-sinusoidal", "equal-sinusoidal-none"}
    assert len(fifth) == 5
    assert not sixth


def test_positions_refuse_a_tagger(contest):
    made = contest(["rnn-tagger"])
    with pytest.raises(UserError, match="rnn-tagger"):
        EXPERIMENT.measure(made, EXPERIMENT.trials(made)[0])
