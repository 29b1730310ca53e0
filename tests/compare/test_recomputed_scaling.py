"""The scaling comparison kept in docs/comparison-scaling, computed again from its measurements by another way."""

import json
import re
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tests.compare.kept_comparison import findings, result, table

pytestmark = pytest.mark.release

DOCS = Path(__file__).parents[2] / "docs"
KEPT = DOCS / "comparison-scaling"
MODELS = ("lstm-attention", "transformer")
# the smallest, at which a model still learned, is left out
FITTED = ("50", "100", "200", "400")


@pytest.fixture(scope="module")
def trainings() -> dict[str, list[dict]]:
    """Trainings that the slopes are fitted to, by model."""
    return _trainings(FITTED)


def _trainings(sizes: Sequence[str]) -> dict[str, list[dict]]:
    """By model, what trainings of these sizes left; each with its size."""
    found: dict[str, list[dict]] = {model: [] for model in MODELS}
    with tarfile.open(KEPT / "cells.tar.xz") as kept:
        for name in sorted(kept.getnames()):
            named = re.fullmatch(r"cells/scaling/(.+)--size-([\d-]+)--seed\d+\.json", name)
            if named and named[2] in sizes:
                found[named[1]].append(json.load(kept.extractfile(name))["measured"])
    return found


def _slope(runs: list[dict]):
    return stats.linregress(*(np.log2([run[key] for run in runs]) for key in ("inner", "loss")))


@pytest.mark.parametrize("model", MODELS)
def test_slope_follows_from_the_trainings(model, trainings):
    runs, said = trainings[model], result(KEPT, "scaling")
    assert len(runs) == 2 * len(FITTED)
    line, found = _slope(runs), findings(said, "scalability")[model]
    assert found["value"] == pytest.approx(100 * (1 - 2**line.slope))
    half = stats.t.ppf(0.975, len(runs) - 2) * 100 * np.log(2) * 2**line.slope * line.stderr
    assert (found["low"], found["high"]) == pytest.approx((found["value"] - half, found["value"] + half))
    row = next(row for row in table(said, "gains") if row["model"] == model)
    assert row["reduction per doubling (%)"] == pytest.approx(found["value"], abs=0.05)


def test_models_are_compared_at_each_size(trainings):
    rows = table(result(KEPT, "scaling"), "differences")
    assert [row["size"] for row in rows] == [0.25, 0.5, 1, 2, 4]
    every = _trainings(("25", *FITTED))
    p_values = []
    for row in rows:
        one, other = ([np.log(run["loss"]) for run in every[m] if run["factor"] == row["size"]] for m in MODELS)
        found = stats.ttest_ind(other, one, equal_var=False)
        ratio = np.exp(np.mean(other) - np.mean(one))
        assert row["ratio of losses"] == pytest.approx(ratio, abs=0.0006)
        p_values.append(found.pvalue)
    # Holm by hand: the i-th least p-value times the number of those not yet rejected, never falling
    order = np.argsort(p_values)
    after = np.maximum.accumulate([min(1.0, (len(order) - i) * p_values[at]) for i, at in enumerate(order)])
    wanted = dict(zip(order.tolist(), after.tolist(), strict=True))
    for i, row in enumerate(rows):
        assert row["p (Welch's t-test, Holm)"] == pytest.approx(wanted[i], abs=0.00006)


def test_of_all_sizes_a_model_still_learned_at_the_smallest_alone(trainings):
    def falls(runs):
        return np.mean(np.reshape([run["half"] - run["loss"] for run in runs], (-1, 2)), axis=1)

    assert all(falls(runs).max() < 0.05 for runs in trainings.values())
    smallest = {model: falls(runs) for model, runs in _trainings(["25"]).items()}
    assert all(len(each) == 1 for each in smallest.values())
    assert max(smallest.values())[0] >= 0.05
    said = table(result(KEPT, "scaling"), "gates")
    assert all("at 0.25 times the size" in row["result"] for row in said if row["name"] == "converged")


def test_the_page_says_what_the_trainings_say(trainings):
    page = re.sub(r"\s+", " ", (DOCS / "comparison.md").read_text(encoding="utf-8"))
    said = re.search(r"a doubling takes (\d+) % off the loss of the LSTM with attention, and (\d+) % off", page)
    gains = [100 * (1 - 2 ** _slope(trainings[model]).slope) for model in MODELS]
    assert [float(number) for number in said.groups()] == pytest.approx(gains, abs=0.5)
    for model, name in zip(MODELS, ("the LSTM with attention", "the Transformer"), strict=True):
        ends = [np.mean([run["loss"] for run in trainings[model] if run["factor"] == size]) for size in (0.5, 4)]
        said = re.search(rf"{name} from ([\d.]+) to (\d+\.\d+)", page)
        assert [float(number) for number in said.groups()] == pytest.approx(ends, abs=0.0006)
