"""Keeps what classifiers scored, for the table of README.md and docs/classification.md.

python benchmarks/classification.py runs/imdb runs/imdb_seed2 runs/imdb_seed3 runs/ag_news_lstm

Of each run, its scores on the test set, what it cost and what it ran on go to `docs/results/classification/<run>.json`;
the table is written anew from these files. Runs of the same recipe and model that differ in their seeds are one row.
"""

import argparse
import json
import runpy
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from s2s.evaluation.inference import mean

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "classification"
# what is the same for runs of all tasks
SHARED = runpy.run_path(str(ROOT / "benchmarks" / "results.py"))


def summary(run: Path) -> dict[str, object]:
    """What is worth keeping of a run.

    Args:
        run: the folder of a finished and tested run.
    """
    test = json.loads((run / "evaluation-test.json").read_text(encoding="utf-8"))
    return SHARED["described"](run) | {
        "recipe": YAML(typ="safe").load(run / "recipe.yaml")["name"],
        "examples": json.loads((run / "manifest.json").read_text(encoding="utf-8"))[-1]["counts"]["train"],
        "seen": SHARED["learned_from"](run, "count"),
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
    kept = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))]
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
            f"| {len(runs)} | {_accuracy(runs)} | {_mean([run['test']['macro_f1'] for run in runs]):.2f} "
            f"| {runs[0]['test']['examples']:,} |"
        )
    machines = dict.fromkeys(
        f"{found['machine']}, torch {found['torch']}, {found['date']}, commit {found['commit'][:7]}" for found in kept
    )
    words = "Intervals: Student's over three seeds and more, else Wilson's over the examples of the first run."
    return "\n".join([*rows, "", words, f"Machine: {'; '.join(machines)}.", ""])


def _accuracy(runs: list[dict[str, Any]]) -> str:
    one = runs[0]["test"]["accuracy"]
    found = mean([run["test"]["accuracy"]["value"] for run in runs])
    low, high = (found.low, found.high) if len(runs) > 2 else (one["low"], one["high"])
    return f"{found.value:.2f} ({low:.2f}–{high:.2f}) %"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def main() -> None:
    """Keeps the runs given, and writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    RESULTS.mkdir(exist_ok=True)
    for run in parser.parse_args().runs:
        path = RESULTS / f"{run.resolve().name}.json"
        path.write_text(json.dumps(summary(run), indent=1) + "\n", encoding="utf-8")
    for page in (ROOT / "README.md", ROOT / "docs" / "classification.md"):
        page.write_text(
            SHARED["written"](page.read_text(encoding="utf-8"), table(), "classification"), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
