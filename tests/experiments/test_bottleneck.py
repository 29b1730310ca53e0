"""Scores by length: buckets are equal, a planted fall is found, and only by how much more than another's it counts."""

import itertools
import json
import random

import numpy as np
import pytest

from s2s.experiments.bottleneck import EXPERIMENT
from s2s.experiments.contest import NotForThisModel
from s2s.experiments.lengths import buckets
from s2s.experiments.translating import counts_of, sentence_scores
from s2s.questions import ROWS


def _planted(per_word, seed=1):
    """What a model would leave behind that gets a word wrong the more often the longer the sentence is."""
    chosen, wrong = random.Random(0), random.Random(seed)
    references = [" ".join(f"w{chosen.randrange(50)}" for _ in range(chosen.randint(4, 24))) for _ in range(120)]
    texts = []
    for text in references:
        words = text.split()
        share = 0.05 + per_word * (len(words) - 4)
        texts.append(" ".join("x" if wrong.random() < share else word for word in words))
    return {
        "words": [len(text.split()) for text in references],
        "counts": counts_of("bleu", texts, references),
        "chrf": sentence_scores("chrf", np.array(counts_of("chrf", texts, references))).tolist(),
        "exact": [int(a == b) for a, b in zip(texts, references, strict=True)],
    }


def _table(result, name):
    table = next(table for table in result.tables if table.name == name)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_buckets_have_equal_counts_and_rise():
    words = [random.Random(5).randint(2, 9) for _ in range(3)] + [5] * 40 + list(range(2, 61))
    found = buckets(words, 4)
    assert sorted(row for part in found for row in part) == list(range(len(words)))
    sizes = [len(part) for part in found]
    assert max(sizes) - min(sizes) <= 1
    ends = [(min(words[i] for i in part), max(words[i] for i in part)) for part in found]
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(ends))
    assert len(buckets([1, 2], 4)) == 2


def test_a_planted_fall_is_found_and_compared(contest):
    made = contest(["lstm", "lstm-attention"], seeds=(1, 2))
    cells = EXPERIMENT.cells(made)
    measured = {cell: _planted(0.03 if cell.model == "lstm" else 0.0, cell.seed) for cell in cells}
    result = EXPERIMENT.conclude(made, measured)
    falls, stays = result.findings
    assert falls.high < 0
    assert falls.verdict.startswith("falls by ")
    assert "more than lstm-attention" in falls.verdict
    assert stays.low < 0 < stays.high
    assert stays.verdict.startswith("no change in BLEU to be seen")
    assert "less than lstm" in stays.verdict
    differences = {row["models"]: row for row in _table(result, "differences")}
    steep = differences["lstm"]
    assert steep["high (slope)"] < 0 < differences["lstm-attention"]["high (slope)"]
    assert steep["low (slope)"] < steep["chrF2++ per 10 words"] < steep["high (slope)"]
    # three more words of a hundred are wrong with each word of length, so thirty with ten words
    assert -60 < steep["chrF2++ per 10 words"] < -15
    pair = differences["lstm-attention − lstm"]
    assert pair["BLEU, longest − shortest"] == pytest.approx(stays.value - falls.value, abs=0.01)
    assert pair["low"] > 0
    # the same sentences in both: the pair knows more than the two intervals do
    assert pair["high"] - pair["low"] < (stays.high - stays.low) + (falls.high - falls.low)


def test_bootstrap_and_values_do_not_depend_on_the_order_of_measurements(contest):
    made = contest(["rnn", "gru"], seeds=(1, 2))
    measured = {cell: _planted(0.01, cell.seed) for cell in EXPERIMENT.cells(made)}
    turned = dict(reversed(measured.items()))
    assert EXPERIMENT.conclude(made, measured) == EXPERIMENT.conclude(made, turned)


def test_missing_measurements_are_left_out(contest):
    made = contest(["rnn", "gru"])
    only = {cell: _planted(0.0) for cell in EXPERIMENT.cells(made) if cell.model == "gru"}
    result = EXPERIMENT.conclude(made, only)
    assert [finding.model for finding in result.findings] == ["gru"]
    assert result.findings[0].verdict.endswith("no other model was measured")
    assert EXPERIMENT.conclude(made, {}).findings == []


def test_a_model_that_knows_nothing_has_nothing_to_lose(contest):
    made = contest(["rnn"])
    zero = _planted(0.0)
    zero["counts"] = [[*counts[:2], *[0] * 4, *counts[6:]] for counts in zero["counts"]]
    (finding,) = EXPERIMENT.conclude(made, dict.fromkeys(EXPERIMENT.cells(made), zero)).findings
    assert finding.verdict.startswith("too weak to tell")


def test_a_real_run_is_cut_into_buckets(contest):
    made = contest(["rnn"])
    measured = {cell: EXPERIMENT.measure(made, cell) for cell in EXPERIMENT.cells(made)}
    assert json.loads(json.dumps(measured_values := list(measured.values()))) == measured_values
    result = EXPERIMENT.conclude(made, measured)
    assert result.experiment == ROWS["fixed-size bottleneck"][1]
    assert [row["sentences"] for row in _table(result, "buckets")] == [10] * 4
    assert {figure.name for figure in result.figures} >= {finding.figure for finding in result.findings}


def test_a_tagger_is_told_so(contest):
    made = contest(["rnn-tagger"])
    with pytest.raises(NotForThisModel):
        EXPERIMENT.measure(made, EXPERIMENT.cells(made)[0])
