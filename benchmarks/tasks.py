"""Keeps what one run of each task scored on data that come with s2s, for the table of tasks in docs/scores.md.

python -m benchmarks.tasks runs/translate runs/captioning runs/lm_builtin

Of each run, its scores on the test set, what it cost and what it ran on go to `docs/results/tasks/<run>.json`; the
table is written anew from these files, which need nothing to be trained again.
"""

import math
from collections.abc import Callable
from pathlib import Path

from benchmarks import keeping
from benchmarks.keeping import Told
from s2s.tasks.language_model.scoring import interval_of

RESULTS = keeping.RESULTS / "tasks"


def _percent(name: str, score: Told) -> Told:
    return {"name": name, "value": score["value"], "low": score["low"], "high": score["high"], "unit": "%"}


def _language_model(test: Told) -> list[Told]:
    bits = interval_of(test["nats"], test["sizes"])
    found = [{"name": "bits per byte", "value": bits.value, "low": bits.low, "high": bits.high, "unit": ""}]
    if test["grammar"] is not None:
        gap = math.fsum(test["nats"]) / test["documents"] - test["grammar"]
        found.append({"name": "nats a sentence above the grammar's own", "value": gap, "unit": ""})
    return found


def _tasks(test: Told) -> list[Told]:
    found = []
    for each in test["tasks"]:
        known = (each["texts"] or {}).get(each["metric"], {"name": each["metric"].replace("_", "-")})
        ends = {end: known[end] for end in ("low", "high") if end in known}
        unit = "" if each["metric"] in ("bleu", "chrf", "loss") else "%"
        found.append({"name": f"{each['task']}: {known['name']}", "value": each["value"], "unit": unit} | ends)
    return found


# what stands for the whole of an evaluation, by task
SCORES: dict[str, Callable[[Told], list[Told]]] = {
    "translation": lambda test: [test["scores"]["bleu"] | {"unit": ""}],
    "captioning": lambda test: [_percent("exact", test["scores"]["exact"])],
    "classification": lambda test: [_percent("accuracy", test["scores"]["accuracy"])],
    "images": lambda test: [_percent("accuracy", test["scores"]["accuracy"])],
    "language-model": _language_model,
    "text-to-text": _tasks,
}


def summary(run: Path) -> Told:
    """What is worth keeping of a run."""
    recipe, test = keeping.recipe_of(run), keeping.read(run / "evaluation-test.json")
    task = recipe.get("task", "translation")
    return keeping.described(run) | {"recipe": recipe["name"], "task": task, "scores": SCORES[task](test)}


def table() -> str:
    """The table, from the kept files."""
    kept = [keeping.read(path) for path in RESULTS.glob("*.json")]
    order = list(SCORES)
    rows = [
        "| task | recipe | model | parameters | training | test score (95 % interval) |",
        "|---|---|---|---|---|---|",
    ]
    for found in sorted(kept, key=lambda one: (order.index(one["task"]), one["recipe"], one["kind"])):
        rows.append(
            f"| `{found['task']}` | `{found['recipe']}` | `{found['kind']}` | {found['parameters'] / 1e6:.2f} M "
            f"| {found['updates']:,} updates, {found['minutes']} min | {'; '.join(map(_told, found['scores']))} |"
        )
    return "\n".join([*rows, "", f"One seed each. {keeping.machines(kept)}", ""])


def _told(score: Told) -> str:
    figures = 3 if score["unit"] == "" and abs(score["value"]) < 10 else 2
    ends = f" ({score['low']:.{figures}f}–{score['high']:.{figures}f})" if score.get("low") is not None else ""
    return f"{score['name']} {score['value']:.{figures}f}{ends}{' ' if score['unit'] else ''}{score['unit']}"


if __name__ == "__main__":
    keeping.keep_runs(__doc__, RESULTS, summary, {"docs/scores.md": table}, "tasks")
