"""The scaling comparison kept in docs/comparison-scaling, fitted again from its measurements by another way."""

import json
import re
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, stats

from tests.compare.kept_comparison import findings, result, table

pytestmark = pytest.mark.release

DOCS = Path(__file__).parents[2] / "docs"
KEPT = DOCS / "comparison-scaling"
MODELS = ("lstm-attention", "transformer")
# the smallest, at which a model still learned, is left out of both laws
FITTED = ("50", "100", "200", "400")


@pytest.fixture(scope="module")
def trainings() -> dict[str, list[dict]]:
    """Those of the law."""
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


def _fitted(runs: list[dict]) -> tuple[float, float, np.ndarray]:
    """b, E, and each training's relative error: for each b, the other two are linear and not negative."""
    sizes, losses = (np.array([float(run[key]) for run in runs]) for key in ("inner", "loss"))

    def others(b: float) -> tuple[np.ndarray, float]:
        terms = np.stack([1 / losses, (sizes / sizes.min()) ** -b / losses], axis=1)
        found, _ = optimize.nnls(terms, np.ones(len(losses)))
        return found, terms @ found - 1

    grid = np.linspace(0.01, 5, 500)
    near = grid[np.argmin([np.square(others(b)[1]).sum() for b in grid])]
    best = optimize.minimize_scalar(
        lambda b: np.square(others(b)[1]).sum(), bounds=(near - 0.01, near + 0.01), method="bounded"
    )
    found, errors = others(best.x)
    return best.x, found[0], errors


@pytest.mark.parametrize("model", MODELS)
def test_the_law_is_the_one_that_its_trainings_give(model, trainings):
    runs, said = trainings[model], result(KEPT, "scaling")
    assert len(runs) == 2 * len(FITTED)
    b, floor, errors = _fitted(runs)
    law = next(row for row in table(said, "laws") if row["model"] == model)
    assert law["b of E + a N^−b"] == pytest.approx(b, abs=0.002)
    assert law["E (nats per token)"] == pytest.approx(floor, abs=0.0006)
    assert findings(said, "scalability")[model]["value"] == pytest.approx(b, abs=0.002)
    # how much of what the sizes' mean losses vary by the law explains
    by_size = {size: [run["factor"] == size for run in runs] for size in {run["factor"] for run in runs}}
    losses = np.array([run["loss"] for run in runs])
    means, wanted = (np.log([each[of].mean() for of in by_size.values()]) for each in (losses, losses * (1 + errors)))
    explained = 1 - np.square(means - wanted).sum() / np.square(means - means.mean()).sum()
    assert law["R²"] == pytest.approx(explained, abs=0.003)
    # lack of fit against what seeds differ by: how far a size's mean is from the law, and its seeds from their mean
    times = 1 / (1 + errors)
    apart = sum(sum(of) * (times[of].mean() - 1) ** 2 for of in by_size.values()) / (len(by_size) - 3)
    chance = sum(np.square(times[of] - times[of].mean()).sum() for of in by_size.values()) / len(by_size)
    p = stats.f.sf(apart / chance, len(by_size) - 3, len(by_size))
    gate = next(row for row in table(said, "gates") if row["model"] == model and row["name"] == "law holds")
    assert float(re.search(r"p = ([\d.]+)", gate["what was found"])[1]) == pytest.approx(p, rel=0.05)


def test_of_all_sizes_a_model_still_learned_at_the_smallest_alone(trainings):
    def falls(runs):
        return np.mean(np.reshape([run["half"] - run["loss"] for run in runs], (-1, 2)), axis=1)

    assert all(falls(runs).max() < 0.05 for runs in trainings.values())
    smallest = {model: falls(runs) for model, runs in _trainings(["25"]).items()}
    assert all(len(each) == 1 for each in smallest.values())
    assert max(smallest.values())[0] >= 0.05
    said = table(result(KEPT, "scaling"), "gates")
    assert all("at 0.25 times the size" in row["what was found"] for row in said if row["name"] == "converged")


def test_the_page_says_what_the_trainings_say(trainings):
    page = re.sub(r"\s+", " ", (DOCS / "comparison.md").read_text(encoding="utf-8"))
    exponents = [_fitted(trainings[model])[0] for model in MODELS]
    said = re.search(r"with b = ([\d.]+) \([^)]+\) for the LSTM with attention and ([\d.]+) ", page)
    assert [float(number) for number in said.groups()] == pytest.approx(exponents, abs=0.05)
    for model, name in zip(MODELS, ("the LSTM with attention", "the Transformer"), strict=True):
        ends = [np.mean([run["loss"] for run in trainings[model] if run["factor"] == size]) for size in (0.5, 4)]
        said = re.search(rf"{name} from ([\d.]+) to (\d+\.\d+)", page)
        assert [float(number) for number in said.groups()] == pytest.approx(ends, abs=0.0006)
