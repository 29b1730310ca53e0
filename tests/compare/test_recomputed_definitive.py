"""The comparison kept in docs/comparison-definitive, once more from its measurements, and what the page says of it."""

import json
import math
import re
import statistics
import tarfile
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tests.compare import by_hand
from tests.compare.kept_comparison import findings, result, table

pytestmark = pytest.mark.release

DOCS = Path(__file__).parents[2] / "docs"
KEPT = DOCS / "comparison-definitive"
MODELS = ("lstm-attention", "transformer")
SEEDS = (1, 2, 3, 4, 5)
RESAMPLES = 1_000
# texts that are enough to be a kind
LEAST = 100


@pytest.fixture(scope="module")
def cells():
    """All measurements, by experiment and name."""
    with tarfile.open(KEPT / "cells.tar.xz") as kept:
        names = [re.fullmatch(r"cells/([\w-]+)/(.+)\.json", name) for name in kept.getnames()]
        return {(n[1], n[2]): json.load(kept.extractfile(n[0]))["measured"] for n in names if n}


@pytest.fixture(scope="module")
def page():
    """The page's own words, on one line."""
    text = (DOCS / "comparison.md").read_text(encoding="utf-8")
    return re.sub(r"\s+", " ", text[text.index("### On natural text") : text.index("### Scalability")])


def _of(cells, experiment, model, part):
    return [cells[experiment, f"{model}--{part}--seed{seed}"] for seed in SEEDS]


def test_both_models_are_equal_within_a_bleu(cells, page):
    counts = {
        m: [by_hand.bleu_counts(run["translations"], run["references"]) for run in _of(cells, "quality", m, "run")]
        for m in MODELS
    }
    scores = {m: [float(by_hand.bleu(c.sum(axis=0))[0]) for c in own] for m, own in counts.items()}
    said = findings(result(KEPT, "quality"), "translation quality")
    for model, name in zip(MODELS, ("for the LSTM with attention", "for the Transformer"), strict=True):
        recorded = [run["scores"]["bleu"]["value"] for run in _of(cells, "quality", model, "run")]
        assert scores[model] == pytest.approx(recorded, rel=0, abs=1e-9)
        value, low, high = by_hand.student(scores[model])
        assert [said[model][end] for end in ("value", "low", "high")] == pytest.approx([value, low, high])
        assert f"{value:.1f}{' BLEU' if model == MODELS[0] else ''} ({low:.1f} to {high:.1f}) {name}" in page
    count = len(counts[MODELS[0]][0])
    draws = np.random.default_rng(3).multinomial(count, np.full(count, 1 / count), RESAMPLES)
    drawn = [np.stack([by_hand.bleu(draws @ c) for c in counts[m]]) for m in MODELS]
    apart, error, freedom = by_hand.over_both([scores[m] for m in MODELS], drawn, count)
    p = stats.t.cdf((abs(apart) - 1) / error, freedom)
    (row,) = table(result(KEPT, "quality"), "pairs")
    assert row["BLEU over seeds and sentences"] == pytest.approx(apart, abs=0.0051)
    # two bootstraps of a thousand draws
    assert row["p (equal within 1 BLEU)"] == pytest.approx(p, rel=0.3)
    assert p < 0.05
    assert {each["standing"] for each in said.values()} == {"tie"}
    assert f"(p = {row['p (equal within 1 BLEU)']:.3f} of two one-sided tests" in page


def test_the_lstm_is_the_sooner_one(cells, page):
    reached, losses, halfway = {}, {}, {}
    for model in MODELS:
        runs = _of(cells, "quality", model, "run")
        losses[model] = statistics.mean(run["losses"][-1] for run in runs)
        halfway[model] = statistics.mean(run["losses"][run["updates"].index(20_000)] for run in runs)
        reached[model] = [[_first(run[x], run["losses"], 2.0) for run in runs] for x in ("updates", "seconds")]
    assert "{:.3f} and {:.3f} nats".format(*losses.values()) in page
    assert "the losses are {:.3f} nats and {:.3f}".format(*halfway.values()) in page
    (soon, late) = ([statistics.median(each) for each in reached[model]] for model in MODELS)
    assert f"after {round(soon[0], -1):,.0f} updates and {soon[1]:.0f} seconds of a core" in page
    assert f"the Transformer after {round(late[0], -1):,.0f} and {late[1]:.0f}" in page
    for one, other in zip(*(reached[model] for model in MODELS), strict=True):
        p = by_hand.log_rank_by_counting([(x, True) for x in one], [(x, True) for x in other])
        assert p == pytest.approx(2 / math.comb(10, 5))
        assert f"p = {p:.3f}, the least that five seeds can give" in page


def _first(x, losses, wanted):
    """Where a curve first comes to a loss, straight between two looks; x is logarithmic."""
    at = next(i for i, loss in enumerate(losses) if loss <= wanted)
    share = (losses[at - 1] - wanted) / (losses[at - 1] - losses[at])
    return math.exp(math.log(x[at - 1]) + share * math.log(x[at] / x[at - 1]))


def test_the_lstm_keeps_more_of_its_quality_on_longer_texts(cells, page):
    kinds = {m: [_kinds(run) for run in _of(cells, "bottleneck", m, "joined")] for m in MODELS}
    scores = {m: [_kept([k.sum(axis=0, keepdims=True) for k in own]) for own in runs] for m, runs in kinds.items()}
    chance = np.random.default_rng(4)
    draws = [chance.multinomial(len(k), np.full(len(k), 1 / len(k)), RESAMPLES) for k in kinds[MODELS[0]][0]]
    drawn = [np.stack([_kept([d @ k for d, k in zip(draws, own, strict=True)]) for own in kinds[m]]) for m in MODELS]
    flat = [[float(each[0]) for each in scores[m]] for m in MODELS]
    apart, error, freedom = by_hand.over_both(flat, drawn, sum(len(k) for k in kinds[MODELS[0]][0]))
    p = 2 * stats.t.sf(abs(apart) / error, freedom)
    said = findings(result(KEPT, "bottleneck"), "text longer than trained on")
    for model, own, words in zip(
        MODELS, flat, ("{:.0f} % ({:.0f} to {:.0f}) of its BLEU", "{:.0f} % ({:.0f} to {:.0f})"), strict=True
    ):
        ends = by_hand.student(own)
        assert [said[model][end] for end in ("value", "low", "high")] == pytest.approx(ends, abs=1e-6)
        assert words.format(*ends) in page
    (row,) = table(result(KEPT, "bottleneck"), "pairs")
    assert row["difference of BLEU kept (points)"] == pytest.approx(apart, abs=0.0051)
    assert row["p"] == pytest.approx(p, rel=0.25)
    assert f"p = {row['p']:.3f}" in page
    assert (said[MODELS[0]]["standing"], said[MODELS[1]]["standing"]) == ("better", "worse")


def _kinds(run):
    """Counts of single sentences, none of them longer than all that was learned from, and of each kind that is."""
    # sacreBLEU has the right n-grams of all sizes before the written ones
    order = [0, 1, 2, 6, 3, 7, 4, 8, 5, 9]
    parts = []
    for part in run["parts"]:
        sides = {True: [], False: []}
        for counts, words in zip(part["counts"], part["words"], strict=True):
            sides[words > run["learned"]].append(counts)
        if not parts or len(sides[True]) >= min(LEAST, len(sides[False])):
            parts.append(np.array(sides[bool(parts)])[:, order])
    return parts


def _kept(sums):
    """In percent of single sentences, the mean over kinds."""
    single, *longer = map(by_hand.bleu, sums)
    return np.mean([100 * each / single for each in longer], axis=0)


def test_warm_up_is_for_those_that_normalise_afterwards(cells, page):
    costs = {}
    for norm in ("post", "pre"):
        without, with_it = (
            [run["loss"] for run in _of(cells, "gradients", "transformer", f"{norm}-warmup-{n}")] for n in (0, 200)
        )
        costs[norm] = statistics.mean(without) - statistics.mean(with_it)
    rows = {row["norm"]: row for row in table(result(KEPT, "gradients"), "norm")}
    for norm, cost in costs.items():
        assert rows[norm]["cost of no warm-up (nats)"] == pytest.approx(cost, abs=1e-4)
    assert (
        f"600 updates {costs['post']:.1f} nats higher ({rows['post']['low']:.1f} to {rows['post']['high']:.1f};" in page
    )
    assert f"a pre-norm one {-costs['pre']:.2f} lower" in page
