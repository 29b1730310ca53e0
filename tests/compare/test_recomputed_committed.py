"""The comparison kept in docs/comparison-lecture, once more: as far as its tables and figures hold what it takes."""

import json
import math
import re
import statistics
import tarfile
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch

from s2s.recipe.installed import module_of
from s2s.run.tasks import read
from tests.compare import by_hand
from tests.compare.kept_comparison import figure, findings, result, table
from tests.compare.recounting import recounted

pytestmark = pytest.mark.release

KEPT = Path(__file__).parents[2] / "docs" / "comparison-lecture"
CONTENDERS = {each["model"]: each for each in json.loads((KEPT / "comparison.json").read_text("utf-8"))["contenders"]}


def _rows(experiment, name):
    return next(each["rows"] for each in result(KEPT, experiment)["tables"] if each["name"] == name)


@pytest.mark.parametrize("kind", CONTENDERS)
def test_chains_are_as_long_in_a_model_built_from_the_kept_recipe(kind, tmp_path):
    page = tmp_path / "recipe.yaml"
    page.write_text(CONTENDERS[kind]["recipe"], encoding="utf-8")
    torch.manual_seed(9)
    model = module_of(kind).build(read(page).model, 1000, 1000).train()
    own = recounted(model, (16,), (8,), torch.randint(4, 1000, (2, 1, 64)))
    chains = figure(result(KEPT, "parallelism"), "depth")[kind]
    assert dict(zip(chains["x"], chains["y"], strict=True))[16] == own["training", 16]["depth"]
    ends = {(row[0], row[1], row[2]): row[3:6] for row in _rows("parallelism", "growth")}
    for what, n in (("training", 16), ("generating", 8)):
        assert ends[kind, "unfused", what] == [n, own[what, n]["depth"], own[what, n]["count"]]


def test_laws_and_ratios_follow_from_the_counts():
    said = result(KEPT, "parallelism")
    words = {
        "constant": "does not grow with n",
        "linear": "grows as n: by {:.3g} with each token",
        "logarithmic": "grows with log n: by {:.3g} with each doubling",
    }
    for kind, chain in figure(said, "depth").items():
        law, rate = by_hand.law_by_akaike(chain["x"], chain["y"])
        found = findings(said, "sequential steps")[kind]
        assert found["facts"]["chain in training"] == words[law].format(rate)
        assert found["value"] == chain["y"][-1]
    for row in table(said, "work"):
        assert row["work / span"] == pytest.approx(row["work"] / row["span"], rel=1e-12)
        if row["pass"] == "training":
            curve = figure(said, "work-span")[row["model"]]
            assert curve["y"][curve["x"].index(row["n"])] == row["work / span"]


def test_the_machine_was_called_steady_where_its_products_say_so():
    said = result(KEPT, "parallelism")
    products = {}
    for row in table(said, "machine"):
        own = products.setdefault(row["place"], {}).setdefault(row["model"], {})
        own[row["round"]] = (row["before (ms)"], row["after (ms)"])
    assert {len(own) for place in products.values() for own in place.values()} == {8}
    for row in table(said, "pairs"):
        held = set(range(1, 9))
        for there in (products[place] for place in row["places"].split(" / ")):
            of_both = {i: [s for kind in row["models"].split(" / ") for s in there[kind][i]] for i in range(1, 9)}
            fastest = min(map(min, of_both.values()))
            held &= {i for i, each in of_both.items() if max(each) <= 1.1 * min(each) and max(each) <= 1.25 * fastest}
        if row["benchmark"] == "n = 32":
            # the only times that stand in no table
            ends = zip(row["models"].split(" / "), row["places"].split(" / "), strict=True)
            drifts = [kind for kind, place in ends if _trend(kind, place, tuple(sorted(held))) < 0.01]
            assert row["steady"] == ("yes" if len(held) >= 5 and not drifts else "no")
        else:
            assert row["steady"] == "no" or len(held) >= 5


@cache
def _trend(kind, place, rounds):
    """Of a training step on batches of 32 tokens, from the single measurements."""
    times = []
    with tarfile.open(KEPT / "cells.tar.xz") as archive:
        for i in rounds:
            one = json.load(archive.extractfile(f"cells/parallelism/{kind}--round-{i}.json"))
            points = {(p["batch"], p["place"], p["n"]): p["seconds"] for p in one["measured"]["points"]}
            times.append(math.log(points["tokens", place, 32]))
    return by_hand.trend(rounds, times)


def test_exponents_of_memory_follow_from_the_peaks():
    said = result(KEPT, "memory")
    for row in table(said, "exponents"):
        key = row["model"], row["form"], row["pass"]
        peaks = {each["n"]: each["bytes"] for each in table(said, "peaks") if tuple(each.values())[:3] == key}
        least = next(
            each["bytes"]
            for each in table(said, "peaks")
            if tuple(each.values())[:4] == (row["model"], row["form"], "inference", 1)
        )
        peaks.pop(1)
        long = [n for n in peaks if n >= max(peaks) / 4]
        slope, explained, furthest, last = by_hand.exponent(long, [peaks[n] - least for n in long])
        assert (row["from n"], row["to n"]) == (long[0], long[-1])
        assert [row["b"], row["b of the last two lengths"]] == pytest.approx([slope, last], rel=1e-9)
        assert row["R²"] == pytest.approx(explained, abs=1e-9)
        assert row["largest error (%)"] == pytest.approx(100 * furthest, rel=1e-6, abs=1e-9)
        curve = figure(said, f"{row['pass']}-memory")[f"{row['model']}, {row['form']}"]
        assert curve["y"] == pytest.approx([each / 2**20 for each in peaks.values()])
        if key[1:] == ("as built", "training"):
            assert findings(said, "memory")[row["model"]]["value"] == row["b"]


def test_factors_of_gradients_are_those_of_their_figure():
    said = result(KEPT, "gradients")
    rows = {
        row["model"]: row
        for row in table(said, "gradient-factors")
        if (row["with respect to"], row["when"]) == ("input", "initialisation")
    }
    for kind, curve in figure(said, "input-gradients").items():
        there = [(x, math.log(y)) for x, y in zip(curve["x"], curve["y"], strict=True) if x >= 1 and y]
        slope, _, _ = by_hand.line(*zip(*there, strict=True))
        row, found = rows[kind], findings(said, "vanishing and exploding gradients")[kind]
        ends = [row[name] for name in ("factor per step", "low", "high")]
        steps = row["largest distance (steps)"]
        halves = abs(math.log2(row["factor per step"])) * (steps - 1) >= 1
        there = row["R²"] >= 0.8 and halves and row["reach (steps)"] == steps
        assert [found[e] for e in ("value", "low", "high")] == (ends if there else [None] * 3)
        assert there == (kind not in ("conv", "transformer"))
        # the figure has medians over texts where the factor has the mean of each text's line
        assert math.exp(slope) == pytest.approx(row["factor per step"], rel=0.02)
        # six sets of weights: as far up as down on the logarithmic axis
        assert row["low"] * row["high"] == pytest.approx(row["factor per step"] ** 2, rel=2e-5)
        if row["half-life (steps)"]:
            assert 2 ** (-1 / row["half-life (steps)"]) == pytest.approx(row["factor per step"], rel=1e-5)


def test_where_a_gradient_is_neutral_follows_from_the_sweep():
    said = result(KEPT, "gradients")
    sweep = table(said, "gradient-sweep")
    for kind in dict.fromkeys(row["model"] for row in sweep):
        own = {row["value"]: row["factor per step"] for row in sweep if row["model"] == kind}
        curve = figure(said, f"gradient-sweep-{'radius' if kind == 'rnn' else 'bias'}")[kind]
        assert dict(zip(curve["x"], curve["y"], strict=True)) == pytest.approx(own, rel=1e-5)
        facts = findings(said, "vanishing and exploding gradients")[kind]["facts"]
        values = sorted(own)
        ends = [facts[name] for name in facts if name.startswith("factor at ")]
        assert ends == [round(own[values[0]], 2), round(own[values[-1]], 2)]
        (neutral,) = (value for name, value in facts.items() if name.endswith(" with factor 1"))
        place = float(np.interp(1, [own[each] for each in values], values))
        assert neutral == ("none" if max(own.values()) < 1 else float(f"{place:.2g}"))


@pytest.fixture(scope="module")
def trained():
    """By task and model, the rows of its trainings."""
    runs = {}
    for row in table(result(KEPT, "long-range"), "runs"):
        runs.setdefault((row["task"], row["model"]), []).append(row)
    return runs


def _reaches(runs):
    """D50 of each seed, and whether it was seen: those beyond the longest distance tested are censored."""
    return [(run["D50"], run["beyond the longest"] == "") for run in runs]


def test_d50_and_its_tests_follow_from_the_runs(trained):
    said = result(KEPT, "long-range")
    for row in table(said, "tasks"):
        reaches = _reaches(trained[f"{row['task']}, {row['form']}", row["model"]])
        assert row["seeds beyond the longest distance"] == sum(not seen for _, seen in reaches)
        found = by_hand.median_reach(reaches, row["longest distance"])
        assert [row[name] for name in ("D50", "low (D50)", "high (D50)")] == pytest.approx(found, abs=1e-9)
    for form in ("whole model", "linear head"):
        rows = [row for row in table(said, "distances") if (row["task"], row["form"]) == ("recall", form)]
        reaches = {kind: _reaches(trained[f"recall, {form}", kind]) for kind in CONTENDERS}
        p = [by_hand.log_rank_by_counting(reaches[a], reaches[b]) for a, b in combinations(CONTENDERS, 2)]
        assert [row["p (log-rank, Holm within the task)"] for row in rows] == pytest.approx(by_hand.holm(p), abs=5.1e-5)
    for kind, found in findings(said, "long-term dependencies").items():
        reaches = _reaches(trained["recall, whole model", kind])
        assert found["value"] == pytest.approx(by_hand.median_reach(reaches, 2048)[0], abs=0.051)


def test_times_to_the_solution_follow_from_the_runs(trained):
    said = result(KEPT, "long-range")
    # who has solved it learns on for a while
    times = {
        key: [(run["updates until solved"] or run["updates"], bool(run["updates until solved"])) for run in runs]
        for key, runs in trained.items()
    }
    for row in table(said, "tasks"):
        own = times[f"{row['task']}, {row['form']}", row["model"]]
        ended, waited = ([time for time, over in own if over == which] for which in (True, False))
        shown = tuple(row[f"updates to solve, {name}"] for name in ("median", "low", "high"))
        assert shown == by_hand.median_by_product_limit(ended, waited)
    for form in ("whole model", "linear head"):
        rows = [row for row in table(said, "solved") if (row["task"], row["form"]) == ("recall", form)]
        task = f"recall, {form}"
        p = [by_hand.log_rank_by_counting(times[task, a], times[task, b]) for a, b in combinations(CONTENDERS, 2)]
        assert [row["p (log-rank)"] for row in rows] == pytest.approx(p, abs=5.1e-5)
        holm = dict(zip(combinations(CONTENDERS, 2), by_hand.holm(p), strict=True))
        assert [row["p (Holm within the task)"] for row in rows] == pytest.approx([*holm.values()], abs=5.1e-5)
        for kind, found in findings(said, "learning long-term dependencies").items() if form == "whole model" else ():
            own = times[task, kind]
            ended, waited = ([time for time, over in own if over == which] for which in (True, False))
            assert (found["value"], found["low"], found["high"]) == by_hand.median_by_product_limit(ended, waited)
            other = found["rival"]
            corrected = holm.get((kind, other), holm.get((other, kind)))
            assert found["p"] == pytest.approx(corrected)
            middle = {name: statistics.median(t for t, _ in times[task, name]) for name in CONTENDERS}
            apart = middle[kind] - middle[other]
            told = corrected < 0.05 and abs(apart) > 50
            assert found["standing"] == (("better" if apart < 0 else "worse") if told else "undecided")


def test_the_page_says_what_the_result_says():
    page = (KEPT.parent / "comparison.md").read_text(encoding="utf-8")
    # the page shows each row of the longest profile that has it
    steps = findings(result(KEPT, "parallelism"), "sequential steps")
    for kind, found in steps.items():
        (line,) = re.findall(rf"^- `{kind}`: .*chain in generation.*$", page, re.M)
        assert all(f"{name}: {law}" in line for name, law in found["facts"].items())
