"""What length costs: the same sentences one and several at a time, in shares of a model's own BLEU."""

import json
import random
import sys

import pytest
import sacrebleu

from s2s.experiments import bottleneck
from s2s.experiments.bottleneck import EXPERIMENT, Sizes
from s2s.experiments.bottleneck.conclude import compared, cut
from s2s.experiments.contest import NotForThisModel
from s2s.experiments.translating import counts_of, joined_texts
from s2s.questions import ROWS

CHANCE = random.Random(0)
SENTENCES = [" ".join(f"w{CHANCE.randrange(50)}" for _ in range(CHANCE.randint(6, 12))) for _ in range(60)]


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    monkeypatch.setitem(bottleneck.SIZES, "quick", Sizes(texts=6, words=30, seconds=1))


def _planted(wrong, seed, slope=0.0):
    """What a model would leave behind that gets so many words wrong, and more with each sentence that is joined."""
    mistakes, parts = random.Random(seed), []
    for together in (1, 2, 3):
        rows = joined_texts(len(SENTENCES), together, 40)
        references = [" ".join(SENTENCES[row] for row in text) for text in rows]
        share = wrong + slope * (together - 1)
        texts = [" ".join("x" if mistakes.random() < share else w for w in text.split()) for text in references]
        parts.append(
            {
                "rows": rows,
                "words": [len(text.split()) for text in references],
                "translations": texts,
                "counts": counts_of("bleu", texts, references),
                "exact": [int(a == b) for a, b in zip(texts, references, strict=True)],
                "unread": 0,
            }
        )
    return {"parts": parts, "learned": 20, "tokens": [100, 200, 400], "losses": [1.02, 1.01, 1.0]}


def _concluded(contest, planted, seeds=(1, 2, 3, 4, 5)):
    made = contest(list(planted), seeds=seeds)
    measured = {cell: planted[cell.model](100 * len(cell.model) + cell.seed) for cell in EXPERIMENT.cells(made)}
    return EXPERIMENT.conclude(made, measured), measured


def _table(result, name):
    table = next(table for table in result.tables if table.name == name)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_texts_of_every_length_hold_each_sentence_about_as_often():
    for together in (1, 2, 4, 7):
        texts = joined_texts(len(SENTENCES), together, 100)
        assert len(texts) >= 100
        assert {len(text) for text in texts} == {together}
        one_pass = [row for text in texts[: 60 // together] for row in text]
        assert len(set(one_pass)) == len(one_pass) == 60 // together * together
        assert texts == joined_texts(len(SENTENCES), together, 100)
    assert joined_texts(2, 3, 10) == []


def test_texts_longer_than_all_learned_from_are_told_apart(monkeypatch):
    run = _planted(0.1, 1, 0.1)
    assert [part["words"] for part in cut(run)["parts"]] == [part["words"] for part in run["parts"]]
    monkeypatch.setattr(sys.modules[cut.__module__], "_LEAST", 5)
    parts = cut(run)["parts"]
    assert [part["sentences"] for part in parts] == [1, 2, 2, 3, 3][: len(parts)]
    for sentences, whole in enumerate(run["parts"], start=1):
        own = [part for part in parts if part["sentences"] == sentences]
        for key in ("words", "counts", "exact"):
            assert sorted(each for part in own for each in part[key]) == sorted(whole[key])
        if len(own) == 2:
            assert max(own[0]["words"]) <= run["learned"] < min(own[1]["words"])
            references = [" ".join(SENTENCES[row] for row in text) for text in whole["rows"]]
            longer = [i for i, text in enumerate(references) if len(text.split()) > run["learned"]]
            assert own[1]["counts"] == [whole["counts"][i] for i in longer]
    assert len(parts) > 3


def test_what_is_left_is_the_ratio_of_two_corpus_scores(contest):
    result, measured = _concluded(contest, {"lstm": lambda seed: _planted(0.1, seed, 0.1)}, seeds=(1,))
    (run,) = measured.values()
    scores = []
    for part in run["parts"]:
        references = [" ".join(SENTENCES[row] for row in text) for text in part["rows"]]
        scores.append(sacrebleu.corpus_bleu(part["translations"], [references]).score)
    rows = _table(result, "lengths")
    assert [row["BLEU"] for row in rows] == pytest.approx(scores, abs=0.01)
    wanted = [100 * score / scores[0] for score in scores]
    assert [row["of its own on single sentences (%)"] for row in rows] == pytest.approx(wanted, abs=0.1)
    assert rows[2]["low (%)"] < wanted[2] < rows[2]["high (%)"]
    (finding,) = result.findings
    assert (finding.standing, finding.verdict) == ("not measurable", "no other model was measured")


def test_a_planted_fall_is_found_and_compared(contest):
    planted = {"lstm": lambda seed: _planted(0.05, seed, 0.1), "lstm-attention": lambda seed: _planted(0.1, seed)}
    result, measured = _concluded(contest, planted)
    assert EXPERIMENT.conclude(contest(list(planted), (1, 2, 3, 4, 5)), dict(reversed(measured.items()))) == result
    falls, stays = result.findings
    assert (falls.standing, stays.standing) == ("worse", "better")
    assert falls.high < 90 < stays.low
    assert set(falls.variations) == {
        "shorter texts",
        "BLEU lost, in points",
        *(f"without seed {i}" for i in range(1, 6)),
    }
    assert all(falls.variations.values())
    assert falls.tokens == 400
    (pair,) = _table(result, "pairs")
    assert pair["models"] == "lstm-attention − lstm"
    assert pair["points of what is kept"] == pytest.approx(stays.value - falls.value, abs=0.01)
    assert pair["p"] < 0.001
    # a model that is worse everywhere by the same share of words loses nothing with length
    runs = {m: {c.seed: run for c, run in measured.items() if c.model == m} for m in planted}
    assert abs(compared(runs["lstm-attention"], runs["lstm-attention"], 2).value) < 1e-9


def test_models_that_keep_as_much_are_a_tie(contest):
    planted = {"gru": lambda seed: _planted(0.02, seed), "lstm": lambda seed: _planted(0.02, seed)}
    result, _ = _concluded(contest, planted)
    assert {finding.standing for finding in result.findings} == {"tie"}
    assert "within 5 % of its own BLEU" in result.findings[0].verdict
    assert result.findings[0].variations == {}


@pytest.mark.parametrize(
    ("change", "standing", "sentence"),
    [
        (lambda seed: _planted(0.6, seed), "not measurable", "BLEU on single sentences (≥ 20 wanted)"),
        (
            lambda seed: _planted(0.1, seed) | {"losses": [3.0, 2.5, 2.0]},
            "still learning",
            "its loss still falls by 0.50 nats",
        ),
        (
            lambda seed: _planted(0.1, seed) | {"rate": {"chosen": 0.008, "tried": [0.004, 0.008], "inside": False}},
            "not measurable",
            "its rate 0.008 lies at an end of",
        ),
    ],
)
def test_what_cannot_translate_or_still_learns_is_not_judged_and_is_no_measure(contest, change, standing, sentence):
    planted = {"rnn": change, "gru": lambda seed: _planted(0.1, seed), "lstm": lambda seed: _planted(0.05, seed, 0.1)}
    result, _ = _concluded(contest, planted, seeds=(1, 2, 3))
    rnn, gru, lstm = result.findings
    assert rnn.standing == standing
    assert sentence in rnn.verdict
    assert rnn.verdict.startswith(f"{standing}: ")
    assert (gru.standing, lstm.standing) == ("better", "worse")
    assert [row["holds"] for row in _table(result, "gates")].count("no") == 1


def test_missing_measurements_are_left_out(contest):
    made = contest(["rnn", "gru"])
    only = {cell: _planted(0.0, 1) for cell in EXPERIMENT.cells(made) if cell.model == "gru"}
    result = EXPERIMENT.conclude(made, only)
    assert [finding.model for finding in result.findings] == ["gru"]
    assert EXPERIMENT.conclude(made, {}).findings == []


def test_a_real_run_translates_longer_and_longer_texts(contest):
    made = contest(["rnn"])
    measured = {cell: EXPERIMENT.measure(made, cell) for cell in EXPERIMENT.cells(made)}
    assert json.loads(json.dumps(measured_values := list(measured.values()))) == measured_values
    assert measured_values[0]["rate"] == made.contestants[0].choice()
    result = EXPERIMENT.conclude(made, measured)
    assert result.experiment == ROWS["fixed-size bottleneck"][1]
    rows = _table(result, "lengths")
    assert [row["sentences"] for row in rows] == [1, 2, 3]
    assert [row["texts"] for row in rows] == [40, 20, 13]
    assert rows[2]["words"] > 2.5 * rows[0]["words"]
    assert {figure.name for figure in result.figures} >= {finding.figure for finding in result.findings}
    ends = [each for figure in result.figures for each in figure.series if each.reference]
    assert ends
    assert {x for each in ends for x in each.x} == {measured_values[0]["learned"]}


def test_a_tagger_is_told_so(contest):
    made = contest(["rnn-tagger"])
    with pytest.raises(NotForThisModel):
        EXPERIMENT.measure(made, EXPERIMENT.cells(made)[0])
