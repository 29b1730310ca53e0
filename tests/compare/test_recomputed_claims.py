"""The claims of the kept comparisons follow from their measurements, and from the tables beside them."""

import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

from s2s.comparison.engine import reanalyse
from s2s.comparison.plans import CLAIMS
from s2s.comparison.report.drawing import kept_comparison, write_claims
from s2s.comparison.results import read_result
from tests.compare.kept_comparison import figure, findings, result, table

pytestmark = pytest.mark.release

DOCS = Path(__file__).parents[2] / "docs"
LECTURE = DOCS / "comparison-lecture"
RECURRENT, ATTENTION = ("rnn", "lstm", "lstm-attention"), ("lstm-attention", "conv", "transformer")


def _claim(name, folder=LECTURE):
    said = result(folder, CLAIMS[name].experiment)
    claim = next(each for each in said["claims"] if each["name"] == name)
    return said, claim, {each["model"]: each["value"] for each in claim["numbers"]}


@pytest.mark.parametrize("name", ["definitive", "lecture", "scaling"])
def test_claims_follow_from_the_kept_measurements(name, tmp_path):
    kept, folder = DOCS / f"comparison-{name}", tmp_path / "again"
    shutil.copytree(kept, folder)
    with tarfile.open(kept / "cells.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    reanalyse(folder)
    decided = 0
    for path in kept.glob("*/result.json"):
        again = read_result(folder / path.relative_to(kept))
        for claim, stored in zip(again.claims, read_result(path).claims, strict=True):
            assert (claim.name, claim.verdict, claim.stable) == (stored.name, stored.verdict, stored.stable)
            assert claim.sentence == stored.sentence
            decided += 1
    assert decided == len(kept_claims(kept))
    write_claims(tmp_path, *kept_comparison(kept))
    assert (tmp_path / "claims.csv").read_text("utf-8") == (kept / "claims.csv").read_text("utf-8")


def kept_claims(folder):
    """The claims in the results of a kept comparison."""
    files = (json.loads(path.read_text("utf-8")) for path in folder.glob("*/result.json"))
    return [claim for each in files for claim in each["claims"]]


def test_claim_waits_has_the_steps_of_one_token():
    said, claim, numbers = _claim("waits")
    for model, chain in figure(said, "depth").items():
        steps = np.diff(chain["y"]) / np.diff(chain["x"])
        if model == "mingru":
            # a scan waits whenever the length doubles, so there is no number of steps for one token
            assert numbers[model] is None
            assert np.ptp(np.diff(chain["y"]) / np.diff(np.log2(chain["x"]))) < 1e-6
        else:
            assert steps == pytest.approx([numbers[model]] * len(steps))
    assert claim["verdict"] == "yes"
    assert all(((numbers[model] or 0) > 0) == (model in RECURRENT) for model in numbers)


def test_claims_on_speed_follow_from_the_table_of_pairs():
    for name, of, groups in (
        ("trains-faster", "n = 32", (("transformer",), RECURRENT)),
        ("writes-cheaply", "batch 1, 32 tokens", ((*RECURRENT, "mingru"), ("transformer",))),
    ):
        said, claim, _ = _claim(name)
        known = {tuple(row["models"].split(" / ")): row for row in table(said, "pairs") if row["benchmark"] == of}
        slower, faster = [], []
        for ahead, behind in ((a, b) for a in groups[0] for b in groups[1]):
            row = known.get((ahead, behind)) or known[behind, ahead]
            ratio = row["times as fast"] if (ahead, behind) in known else 1 / row["times as fast"]
            sure = row["p (Holm)"] < 0.05
            slower.append(ratio < 1 and sure)
            faster.append(ratio > 1 and sure)
        # the table corrects for all pairs, the claim for its own: what is sure there is sure here
        if any(slower):
            assert claim["verdict"] == "no"
        elif all(faster):
            assert claim["verdict"] == "yes"


def test_claim_learns_late_follows_from_the_table_of_log_rank_tests():
    said, claim, numbers = _claim("learns-late")
    rows = [row for row in table(said, "solved") if (row["task"], row["form"]) == ("recall", "whole model")]
    p_values = {frozenset(row["models"].split(", ")): row["p (log-rank)"] for row in rows}
    late = [(a, b) for a in ("rnn", "lstm") for b in ATTENTION]
    assert claim["verdict"] == "yes"
    assert all(numbers[a] > numbers[b] and p_values[frozenset((a, b))] < 0.05 for a, b in late)
    assert claim["p"] == pytest.approx(max(p_values[frozenset(pair)] for pair in late), abs=5e-5)
    assert numbers == {each["model"]: each["value"] for each in said["findings"] if each["row"].startswith("learning")}


def test_claim_translates_best_is_refused_by_an_equal_model():
    for folder in (LECTURE, DOCS / "comparison-definitive"):
        said, claim, numbers = _claim("translates-best", folder)
        standings = {model: each["standing"] for model, each in findings(said, "translation quality").items()}
        assert claim["verdict"] == "no"
        assert standings["transformer"] == "tie"
        assert numbers == {model: each["value"] for model, each in findings(said, "translation quality").items()}


def test_claim_any_length_compares_the_kept_share_with_95_percent():
    for folder in (LECTURE, DOCS / "comparison-definitive"):
        said, claim, numbers = _claim("any-length", folder)
        cells = findings(said, "text longer than trained on")
        assert claim["verdict"] == "no"
        assert any(cells[model]["high"] < 95 for model in numbers if model in ATTENTION)
        assert numbers == {model: each["value"] for model, each in cells.items()}


def test_claim_order_follows_from_the_table_of_positions():
    said, claim, numbers = _claim("order")
    rows = [row for row in table(said, "signals") if (row["encoder"], row["decoder"]) == ("none", "none")]
    found = {row["model"]: (row["rise above its own"], row["p (Holm)"]) for row in rows}
    assert {model: value for model, value in numbers.items() if value is not None} == pytest.approx(
        {model: more for model, (more, _) in found.items()}, abs=5e-5
    )
    assert (claim["verdict"] == "yes") == (found["transformer"][0] > 0 and found["transformer"][1] < 0.05)


def test_claim_cache_and_memory_follow_from_bytes():
    said, claim, numbers = _claim("cache")
    for model, added in numbers.items():
        states = [
            (row["generated tokens"], row["state (bytes)"]) for row in table(said, "states") if row["model"] == model
        ]
        (first, least), *_, (last, most) = states
        assert added == pytest.approx((most - least) / (last - first))
    assert claim["verdict"] == ("yes" if numbers["transformer"] > 0 == max(numbers[m] for m in RECURRENT) else "no")
    said, claim, numbers = _claim("memory")
    assert claim["verdict"] == ("yes" if findings(said, "memory")["transformer"]["value"] > 1.5 else "no")
