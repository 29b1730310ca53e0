"""Fine-tuning: no pair is in both halves, what was learned is kept once, and a planted gain is found."""

import json

import numpy as np
import pytest
import torch

from s2s.experiments import transfer, translating
from s2s.experiments.contest import NotForThisModel
from s2s.experiments.transfer import EXPERIMENT, Sizes, halves, pretrained, shared_pieces
from s2s.experiments.transfer.conclude import SHARES, gain_of
from s2s.experiments.translating import chosen_pairs, counts_of
from s2s.experiments.whole_runs import prepared
from s2s.questions import ROWS
from s2s.training.trainer import Trainer

TINY = Sizes(pretraining=2.0, finetuning=0.34, looks=2, sentences=10, seeds=1)


def _timeless(found):
    text = json.dumps(found, allow_nan=False)
    return json.loads(text, object_pairs_hook=lambda pairs: {k: v for k, v in pairs if not k.endswith("seconds")})


def _planted(share, seed, gain, better=()):
    """Losses of twenty sentences; those after fine-tuning are lower by about the gain."""
    generator = np.random.default_rng(seed)
    tokens = generator.integers(5, 15, 20)
    scratch = 3.0 * tokens + generator.normal(0, 0.5, 20)
    tuned = scratch - gain * tokens + generator.normal(0, 0.1, 20)
    references = [f"w{i} a b c d e" for i in range(20)]
    worse = [text if i in better else text.replace("b", "x") for i, text in enumerate(references)]
    arms = {}
    for name, losses, texts in (("tuned", tuned, references), ("scratch", scratch, worse)):
        mean = float(losses.sum() / tokens.sum())
        arms[name] = {
            "updates": [0, 5, 10],
            "curve": [mean + 1, mean, mean + 0.5],
            "losses": losses.tolist(),
            "counts": counts_of("bleu", texts, references),
            "seconds": 1.0,
        }
    return {
        "share": share,
        "pairs": 10 * share,
        "pretraining_pairs": 1000,
        "pretraining_updates": 20,
        "pretraining_seconds": 2.0,
        "updates": 10,
        "tokens": tokens.tolist(),
        "arms": arms,
    }


def test_no_pair_is_in_both_halves(contest):
    recipe = shared_pieces(contest(["rnn"]).contestants[0].recipe)
    data = prepared(recipe)
    first, second = halves(data.train, recipe.batches.max_length)
    assert not set(first.tolist()) & set(second.tolist())
    assert abs(len(first) - len(second)) <= 1
    assert len(first) + len(second) == len(data.train)
    texts = data.corpus.train.select(first), data.corpus.train.select(second)
    assert not set(texts[0]["source"]) & set(texts[1]["source"])


def test_pretraining_is_done_once_helps_and_is_repeatable(contest, monkeypatch, tmp_path):
    monkeypatch.setitem(transfer.SIZES, "quick", TINY)
    made = contest(["gru"], seeds=(1, 2))
    cells = EXPERIMENT.cells(made)
    assert [cell.part for cell in cells] == ["share-1", "share-10", "share-100"]
    seen = []
    updates = Trainer.updates

    def counted(self, until):
        if self.update == 0 and until == 24:
            seen.append(len(self.examples))
        return updates(self, until)

    monkeypatch.setattr(Trainer, "updates", counted)
    measured = {cell: EXPERIMENT.measure(made, cell) for cell in cells}
    assert seen == [200]
    assert [found["pairs"] for found in measured.values()] == [2, 20, 200]
    for found in measured.values():
        tuned, scratch = found["arms"]["tuned"], found["arms"]["scratch"]
        assert tuned["updates"] == scratch["updates"] == [0, 2, 4]
        # before the first update, weights that learned something know more than fresh ones
        assert tuned["curve"][0] < scratch["curve"][0] - 0.1
        for arm in (tuned, scratch):
            assert sum(arm["losses"]) / sum(found["tokens"]) == pytest.approx(min(arm["curve"]), rel=1e-4)
    assert len(json.dumps(measured[cells[0]])) < 200_000
    # the start is the pre-trained one, so it is the same whatever comes after it
    assert len({found["arms"]["tuned"]["curve"][0] for found in measured.values()}) == 1
    other = type(made)(tmp_path / "again", made.profile, made.contestants, made.seeds, made.computer)
    assert _timeless(EXPERIMENT.measure(other, cells[1])) == _timeless(measured[cells[1]])
    weights = [pretrained(each, "gru", 1)[0] for each in (made, other)]
    assert all(torch.equal(a, b) for a, b in zip(weights[0].values(), weights[1].values(), strict=True))
    result = EXPERIMENT.conclude(made, measured)
    assert result.experiment == ROWS["fine-tuning"][1]
    assert {f.figure for f in result.findings} <= {figure.name for figure in result.figures}


def test_the_opposite_direction_is_learned_first(contest, monkeypatch):
    monkeypatch.setitem(transfer.SIZES, "quick", TINY)
    made = contest(["gru"])
    given = []
    build = Trainer.__init__

    def seen(self, model, examples, *rest):
        given.append(examples.data)
        build(self, model, examples, *rest)

    monkeypatch.setattr(Trainer, "__init__", seen)
    pretrained(made, "gru", 1)
    recipe = shared_pieces(made.contestants[0].recipe)
    data = prepared(recipe).train
    wanted = chosen_pairs(data, halves(data, recipe.batches.max_length)[0])
    assert given[0].pair(3) == wanted.pair(3)[::-1]
    assert len(given) == 1


def test_the_best_look_counts(contest, monkeypatch):
    monkeypatch.setitem(transfer.SIZES, "quick", TINY)
    made = contest(["gru"])
    looked, translated = [], []
    take, translator = transfer.pair_losses, translating.Translator

    def worse_and_worse(model, data, *rest):
        looked.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        return take(model, data, *rest) * 0 + len(looked)

    def seen(model, *rest):
        translated.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        return translator(model, *rest)

    monkeypatch.setattr(transfer, "pair_losses", worse_and_worse)
    monkeypatch.setattr(translating, "Translator", seen)
    found = EXPERIMENT.measure(made, EXPERIMENT.cells(made)[1])
    assert found["arms"]["tuned"]["losses"][0] == 1
    assert found["arms"]["scratch"]["losses"][0] == 4
    assert torch.equal(translated[0], looked[0])
    assert torch.equal(translated[1], looked[3])
    assert not torch.equal(looked[0], looked[2])


def test_a_planted_gain_is_found_over_sentences_and_over_seeds(contest):
    made = contest(["rnn", "gru"], seeds=(1,))
    gains = {"rnn": {1: 0.9, 10: 0.5, 100: 0.0}, "gru": {1: 0.3, 10: 0.2, 100: 0.0}}

    def found(seeds):
        return {
            type(cell)(cell.model, cell.part, seed): _planted(s, seed, gains[cell.model][s])
            for cell in EXPERIMENT.cells(made)
            for s in SHARES
            if cell.part == f"share-{s}"
            for seed in seeds
        }

    result = EXPERIMENT.conclude(made, found([1]))
    rnn, gru = result.findings
    assert rnn.value == pytest.approx(0.5, abs=0.03)
    assert rnn.low < 0.5 < rnn.high
    assert "over sentences, 1 seed" in rnn.quantity
    assert rnn.verdict.startswith("gains at 1 % and 10 %")
    assert "at 10 % 0.30 more than gru" in rnn.verdict or "at 10 % 0.29 more" in rnn.verdict
    assert "less than rnn" in gru.verdict
    over = EXPERIMENT.conclude(made, found([1, 2, 3])).findings[0]
    assert "mean of 3 seeds" in over.quantity
    assert over.low < over.value < over.high
    table = next(table for table in result.tables if table.name == "gains")
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["BLEU"] > 0
    assert row["low (BLEU)"] > 0
    assert row["loss before the first update (nats per token)"] == pytest.approx(0.9, abs=0.05)


def test_a_gain_is_from_scratch_minus_fine_tuned():
    gain = gain_of({1: _planted(10, 1, 0.4)})
    assert gain.loss.value == pytest.approx(0.4, abs=0.03)
    assert gain.resampled.mean() == pytest.approx(gain.loss.value, abs=0.02)
    assert gain_of({1: _planted(10, 1, -0.4)}).loss.value < 0


def test_harm_is_called_harm(contest):
    made = contest(["rnn"])
    cell = next(cell for cell in EXPERIMENT.cells(made) if cell.part == "share-10")
    (finding,) = EXPERIMENT.conclude(made, {cell: _planted(10, 1, -0.4)}).findings
    assert finding.verdict.startswith("loses by pre-training at 10 %")


def test_missing_measurements_are_left_out(contest):
    made = contest(["rnn", "gru"])
    few = {t: _planted(1, 1, 0.5) for t in EXPERIMENT.cells(made) if (t.model, t.part) == ("gru", "share-1")}
    (finding,) = EXPERIMENT.conclude(made, few).findings
    assert finding.model == "gru"
    assert "with 1 % of the pairs" in finding.quantity
    assert finding.verdict.endswith("no other model was measured")
    assert EXPERIMENT.conclude(made, {}).findings == []


def test_a_tagger_is_told_so(contest, monkeypatch):
    monkeypatch.setitem(transfer.SIZES, "quick", TINY)
    made = contest(["rnn-tagger"])
    with pytest.raises(NotForThisModel):
        EXPERIMENT.measure(made, EXPERIMENT.cells(made)[0])
