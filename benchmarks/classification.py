"""Keeps what classifiers scored, for the table of docs/classification.md.

python -m benchmarks.classification runs/imdb runs/imdb_seed2 runs/imdb_seed3 runs/ag_news_lstm

Of each run, its scores on the test set, what it cost and what it ran on go to `docs/results/classification/<run>.json`;
the table is written anew from these files. Runs of the same recipe and model that differ in their seeds are one row.
"""

import statistics
from pathlib import Path
from typing import Any

from benchmarks import keeping
from s2s.evaluation.inference import mean

RESULTS = keeping.RESULTS / "classification"


def summary(run: Path) -> dict[str, object]:
    """What is worth keeping of a run."""
    test = keeping.read(run / "evaluation-test.json")
    return keeping.described(run) | {
        "recipe": keeping.recipe_of(run)["name"],
        "examples": keeping.read(run / "manifest.json")[-1]["counts"]["train"],
        "seen": keeping.learned_from(run, "count"),
        "test": {
            "examples": len(test["truth"]),
            "accuracy": test["scores"]["accuracy"],
            "macro_f1": test["scores"]["macro_f1"],
        },
    }


def table() -> str:
    """The table, from the kept files."""
    rows = [
        "| recipe | model | parameters | training | seeds | test accuracy (95 % interval) | macro-F1 | test examples |",
        "|---|---|---|---|---|---|---|---|",
    ]
    kept = [keeping.read(path) for path in sorted(RESULTS.glob("*.json"))]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for found in kept:
        groups.setdefault((found["recipe"], found["kind"]), []).append(found)
    for (recipe, kind), runs in sorted(groups.items()):
        minutes = [run["minutes"] for run in runs]
        took = f"{min(minutes)}–{max(minutes)}" if min(minutes) < max(minutes) else f"{minutes[0]}"
        passes = runs[0]["seen"] / runs[0]["examples"]
        rows.append(
            f"| `{recipe}` | `{kind}` | {runs[0]['parameters'] / 1e6:.2f} M "
            f"| {max(run['updates'] for run in runs):,} updates, {passes:.1f} passes, {took} min "
            f"| {len(runs)} | {_accuracy(runs)} | {statistics.mean(run['test']['macro_f1'] for run in runs):.2f} "
            f"| {runs[0]['test']['examples']:,} |"
        )
    words = "Intervals: Student's over three seeds and more, else Wilson's over the examples of the first run."
    return "\n".join([*rows, "", words, keeping.machines(kept), ""])


def _accuracy(runs: list[dict[str, Any]]) -> str:
    one = runs[0]["test"]["accuracy"]
    found = mean([run["test"]["accuracy"]["value"] for run in runs])
    low, high = (found.low, found.high) if len(runs) > 2 else (one["low"], one["high"])
    return f"{found.value:.2f} ({low:.2f}–{high:.2f}) %"


if __name__ == "__main__":
    keeping.keep_runs(__doc__, RESULTS, summary, {"docs/classification.md": table}, "classification")
