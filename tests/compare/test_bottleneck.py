"""The question bottleneck: BLEU on longer texts as a share of a model's own BLEU on single sentences."""

import json
import random
import statistics
import sys
from dataclasses import asdict, replace

import pytest
import sacrebleu

from s2s.comparison.longer_texts import Translations, longer_kinds, split_by_length
from s2s.comparison.plans import ROWS
from s2s.comparison.questions.bottleneck import measure as bottleneck
from s2s.comparison.questions.bottleneck.analyse import (
    BottleneckRun,
    compared,
)
from s2s.comparison.questions.bottleneck.measure import EXPERIMENT, Sizes
from s2s.comparison.spec import RateChoice
from s2s.comparison.translation import counts_of, joined_texts
from s2s.errors import UserError
from s2s.evaluation.gates import EQUIVALENCE

CHANCE = random.Random(0)
SENTENCES = [" ".join(f"w{CHANCE.randrange(50)}" for _ in range(CHANCE.randint(6, 12))) for _ in range(60)]


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    monkeypatch.setitem(bottleneck.SIZES, "quick", Sizes(texts=6, words=30))


def _run(wrong, seed, slope=0.0, **changes):
    """A run with this share of wrong words, which grows by `slope` with each further sentence."""
    mistakes, parts = random.Random(seed), []
    for together in (1, 2, 3):
        rows = joined_texts(len(SENTENCES), together, 40)
        references = [" ".join(SENTENCES[row] for row in text) for text in rows]
        share = wrong + slope * (together - 1)
        texts = [" ".join("x" if mistakes.random() < share else w for w in text.split()) for text in references]
        parts.append(
            Translations(
                rows=rows,
                words=[len(text.split()) for text in references],
                translations=texts,
                counts=counts_of("bleu", texts, references),
                exact=[int(a == b) for a, b in zip(texts, references, strict=True)],
                unread=0,
            )
        )
    run = BottleneckRun(
        parts=parts, learned=12, updates=[1, 2, 4], tokens=[100, 200, 400], seconds=[1, 2, 4], losses=[1.02, 1.01, 1.0]
    )
    return replace(run, **changes)


def _concluded(contest, planted, seeds=(1, 2, 3, 4, 5)):
    made = contest(list(planted), seeds=seeds)
    measured = {cell: planted[cell.model](100 * len(cell.model) + cell.seed) for cell in EXPERIMENT.trials(made)}
    return EXPERIMENT.result(made, measured), measured


def _table(result, name):
    table = next(table for table in result.tables if table.name == name)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_bottleneck_texts_use_each_sentence_about_as_often():
    for together in (1, 2, 4, 7):
        texts = joined_texts(len(SENTENCES), together, 100)
        assert len(texts) >= 100
        assert {len(text) for text in texts} == {together}
        one_pass = [row for text in texts[: 60 // together] for row in text]
        assert len(set(one_pass)) == len(one_pass) == 60 // together * together
        assert texts == joined_texts(len(SENTENCES), together, 100)
    assert joined_texts(2, 3, 10) == []


@pytest.mark.parametrize("least", [5, 1000])
def test_bottleneck_splits_texts_by_the_longest_training_source(monkeypatch, least):
    run = _run(0.1, 1, 0.1, learned=20)
    monkeypatch.setattr(sys.modules[split_by_length.__module__], "_LEAST", least)
    kinds, divided = split_by_length(run.parts, run.learned), 0
    for sentences, part in enumerate(run.parts, start=1):
        sides = {}
        for i, words in enumerate(part.words):
            sides.setdefault(words > run.learned, []).append(i)
        if len(sides) == 1 or any(len(rows) < least for rows in sides.values()):
            sides = {longer: rows for longer, rows in sides.items() if len(rows) == max(map(len, sides.values()))}
        own = [kind for kind in kinds if kind.sentences == sentences]
        assert [kind.beyond for kind in own] == sorted(sides)
        divided += len(sides) == 2
        for kind in own:
            rows = sides[kind.beyond]
            assert kind.words.tolist() == [part.words[i] for i in rows]
            assert kind.counts.tolist() == [part.counts[i] for i in rows]
            assert kind.exact == [part.exact[i] for i in rows]
    assert divided == (1 if least == 5 else 0)
    places = longer_kinds({"rnn": {1: kinds}})
    assert places == [i for i, kind in enumerate(kinds) if kind.beyond]


def test_bottleneck_share_is_the_ratio_of_corpus_scores(contest):
    result, measured = _concluded(contest, {"lstm": lambda seed: _run(0.1, seed, 0.1)}, seeds=(1,))
    (run,) = measured.values()
    scores = []
    for together, part in enumerate(run.parts, start=1):
        # two of the shortest sentences are no longer than one of the longest
        here = [i for i, words in enumerate(part.words) if (words > run.learned) == (together > 1)]
        references = [" ".join(SENTENCES[row] for row in part.rows[i]) for i in here]
        scores.append(sacrebleu.corpus_bleu([part.translations[i] for i in here], [references]).score)
    rows = _table(result, "lengths")
    assert [row["BLEU"] for row in rows] == pytest.approx(scores, abs=0.01)
    wanted = [100 * score / scores[0] for score in scores]
    assert [row["BLEU kept (%)"] for row in rows] == pytest.approx(wanted, abs=0.1)
    assert rows[2]["low (%)"] < wanted[2] < rows[2]["high (%)"]
    (finding,) = result.findings
    assert [row["beyond the training lengths"] for row in rows] == ["no", "yes", "yes"]
    assert finding.value == pytest.approx(statistics.mean(wanted[1:]), abs=1e-9)
    assert finding.low < finding.value < finding.high
    assert (finding.standing, finding.reasons) == ("not measurable", ["no other model was measured"])


def test_bottleneck_finds_a_planted_fall(contest):
    planted = {"lstm": lambda seed: _run(0.05, seed, 0.1), "lstm-attention": lambda seed: _run(0.1, seed)}
    result, measured = _concluded(contest, planted)
    assert EXPERIMENT.result(contest(list(planted), (1, 2, 3, 4, 5)), dict(reversed(measured.items()))) == result
    falls, stays = result.findings
    assert (falls.standing, stays.standing) == ("worse", "better")
    assert falls.high < 90 < stays.low
    assert set(falls.variations) == {
        "the shortest texts beyond the training lengths",
        "the longest texts",
        "BLEU lost, in points",
        "any one seed left out",
    }
    assert all(falls.variations.values())
    assert falls.tokens == 400
    (pair,) = _table(result, "pairs")
    assert pair["models"] == "lstm-attention − lstm"
    assert pair["difference of BLEU kept (points)"] == pytest.approx(stays.value - falls.value, abs=0.01)
    assert pair["p"] < 0.001
    by_kind = [pair["2 sentences (points)"], pair["3 sentences (points)"]]
    assert pair["difference of BLEU kept (points)"] == pytest.approx(statistics.mean(by_kind), abs=0.01)
    kinds = {
        t.seed: split_by_length(run.parts, run.learned) for t, run in measured.items() if t.model == "lstm-attention"
    }
    assert abs(compared(kinds, kinds, [1, 2]).value) < 1e-9


def test_bottleneck_without_longer_texts_is_not_measurable(contest):
    planted = {name: lambda seed: _run(0.05, seed, learned=99) for name in ("gru", "lstm")}
    result, _ = _concluded(contest, planted)
    for finding in result.findings:
        assert (finding.standing, finding.value) == ("not measurable", None)
        assert finding.reasons == ["no text is longer than the longest training source, 99 words"]


def test_bottleneck_equal_shares_are_a_tie(contest):
    planted = {"gru": lambda seed: _run(0.02, seed), "lstm": lambda seed: _run(0.02, seed)}
    result, _ = _concluded(contest, planted)
    assert {finding.standing for finding in result.findings} == {"tie"}
    assert result.findings[0].test == EQUIVALENCE
    assert result.findings[0].variations == {}


@pytest.mark.parametrize(
    ("change", "standing", "sentence"),
    [
        (lambda seed: _run(0.6, seed), "not measurable", "BLEU on single sentences (≥ 20 required)"),
        (
            lambda seed: _run(0.1, seed, losses=[3.0, 2.5, 2.0]),
            "still learning",
            "its loss still falls by 0.50 nats",
        ),
        (
            lambda seed: _run(0.1, seed, rate=RateChoice(0.008, (0.004, 0.008))),
            "not measurable",
            "its rate 0.008 lies at an end of",
        ),
    ],
)
def test_bottleneck_failed_checks_replace_the_verdict(contest, change, standing, sentence):
    planted = {"rnn": change, "gru": lambda seed: _run(0.1, seed), "lstm": lambda seed: _run(0.05, seed, 0.1)}
    result, _ = _concluded(contest, planted, seeds=(1, 2, 3))
    rnn, gru, lstm = result.findings
    assert rnn.standing == standing
    assert sentence in rnn.reasons[0]
    assert (gru.standing, lstm.standing) == ("better", "worse")
    assert [row["passed"] for row in _table(result, "gates")].count("no") == 1


def test_bottleneck_measures_a_real_run(contest):
    made = contest(["rnn"])
    (trial,) = EXPERIMENT.trials(made)
    run = EXPERIMENT.measure(made, trial)
    assert EXPERIMENT.measurement.validate_python(json.loads(json.dumps(asdict(run)))) == run
    assert run.rate == made.candidates[0].choice()
    result = EXPERIMENT.result(made, {trial: run})
    assert result.experiment == ROWS["text longer than trained on"][1]
    rows = _table(result, "lengths")
    assert [row["sentences"] for row in rows] == [1, 2, 3]
    kinds = [[words > run.learned for words in part.words] for part in run.parts]
    assert [len(kind) for kind in kinds] == [40, 20, 13]
    assert [row["texts"] for row in rows] == [max(sum(kind), len(kind) - sum(kind)) for kind in kinds]
    assert rows[2]["words"] > 2.5 * rows[0]["words"]
    assert {figure.name for figure in result.figures} >= {finding.figure for finding in result.findings}
    ends = [each for figure in result.figures for each in figure.series if each.reference]
    assert ends
    assert {x for each in ends for x in each.x} == {run.learned}


def test_bottleneck_refuses_a_tagger(contest):
    made = contest(["rnn-tagger"])
    with pytest.raises(UserError, match="rnn-tagger"):
        EXPERIMENT.measure(made, EXPERIMENT.trials(made)[0])
