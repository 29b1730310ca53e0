"""Keep records of the time to a score, and write the tables of docs/speedrun.md.

s2s train translate run.dir=runs/fast --seeds 3
python -m benchmarks.speedrun --change "What is new" --by NAME runs/fast-seed1 runs/fast-seed2 runs/fast-seed3

The runs of one command are one entry: the same recipe with several seeds. The entry is a record if it has three seeds
or more, their mean score on the test set reaches the goal, and the machine was idle. All entries are kept in
docs/results/speedrun.json.
"""

import re
from pathlib import Path

from benchmarks.keeping import (
    RESULTS,
    Told,
    asked,
    described,
    entries,
    last_state,
    learned_from,
    read,
    recipe_of,
    write,
    write_tables,
)
from s2s.evaluation.inference import mean

ENTRIES = RESULTS / "speedrun.json"
PAGE = "docs/speedrun.md"
# Goal by corpus: test score (BLEU) and whether letter case is ignored.
GOALS = {"built-in": (95.0, False), "multi30k": (39.5, True)}
_SEEDS = 3
# The folder of the corpus on the machine of the entry says nothing to others.
_ROOT = re.compile("data.root=.*")


def corpus(run: Path) -> str:
    """Return the corpus of a run, a key of `GOALS`."""
    return recipe_of(run)["data"]["corpus"].rpartition("/")[2]


def entry(runs: list[Path], change: str, prediction: str, by: str) -> Told:
    """Summarize runs of one recipe with several seeds.

    Args:
        runs: Folders of finished runs with a test score.
        change: Description of the change against the record before.
        prediction: Outcome that was expected before the runs.
        by: Author of the entry.

    Returns:
        Entry, with one value per run in `seconds` (training, validation included; without data preparation and test),
        `cpu_seconds` (updates alone), `bleu` and `exact`. `command` is that of the first run, without its folder.
    """
    told, words = described(runs[0]), read(runs[0] / "manifest.json")[0]["command"][1:]
    lowercase = GOALS[corpus(runs[0])][1]
    tests = [
        next(
            test for path in sorted(run.glob("evaluation-test*.json")) if (test := read(path))["lowercase"] == lowercase
        )
        for run in runs
    ]
    return {
        "corpus": corpus(runs[0]),
        "change": change,
        "prediction": prediction,
        "by": by,
        "command": " ".join(["s2s", *(_ROOT.sub("data.root=DIR", word) for word in words if word[:8] != "run.dir=")]),
        **{key: told[key] for key in ("machine", "torch", "commit", "date", "parameters", "updates")},
        "target_tokens": learned_from(runs[0], "tokens"),
        "seconds": [round(last_state(run)["seconds"]) for run in runs],
        "cpu_seconds": [round(sum(line.get("cpu_seconds", 0) for line in entries(run))) for run in runs],
        "bleu": [test["scores"]["bleu"]["value"] for test in tests],
        "exact": [test["exact"] for test in tests],
    }


def is_record(found: Told) -> bool:
    """Return True for an entry of enough seeds, on an idle machine, whose mean score reaches the goal of its corpus."""
    enough = len(found["bleu"]) >= _SEEDS and mean(found["bleu"]).value >= GOALS[found["corpus"]][0]
    return enough and not found.get("busy", False)


def tables(kept: list[Told]) -> str:
    """Write the records of each corpus, fastest last, and then all other entries."""
    parts: list[str] = []
    for name, (goal, lowercase) in GOALS.items():
        own = [found for found in kept if found["corpus"] == name]
        records = sorted(filter(is_record, own), key=lambda found: -mean(found["seconds"]).value)
        others = [found for found in own if not is_record(found)]
        parts += [f"## {name}: {goal:g} BLEU{', lower-cased' if lowercase else ''}", ""]
        parts += [*_table(records, "Records"), *_table(others, "Other entries")]
    return "\n".join(parts) + "\n"


def _table(kept: list[Told], title: str) -> list[str]:
    if not kept:
        return [f"{title}: none yet.", ""]
    rows = [
        f"{title}:",
        "",
        "| date | change | predicted | BLEU | exact | training | CPU time | updates | seeds | by | machine |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for found in kept:
        scores = ", ".join(f"{score:.2f}" for score in found["bleu"])
        exact = ", ".join(f"{score:.1f} %" for score in found["exact"])
        rows.append(
            f"| {found['date']} | {found['change']}: `{found['command']}` | {found['prediction']} | {scores} | {exact} "
            f"| {mean(found['seconds']).value:.0f} s | {mean(found['cpu_seconds']).value:.0f} s | {found['updates']:,} "
            f"| {len(found['bleu'])} | {found['by']} | {found['machine']}, torch {found['torch']}, "
            f"commit {found['commit'][:7]} |"
        )
    return [*rows, ""]


def main() -> None:
    """Add an entry if runs are named, and write the page."""
    parser = asked(__doc__)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--change", default="", help="description of the change against the record before")
    parser.add_argument("--prediction", default="–", help="outcome that was expected before the runs")
    parser.add_argument("--by", default="s2s", help="your name")
    parser.add_argument("--busy", action="store_true", help="other work ran on the machine, so this is no record")
    given = parser.parse_args()
    kept: list[Told] = read(ENTRIES) if ENTRIES.exists() else []
    if given.runs:
        if not given.change:
            parser.error("--change is missing: describe the change in a few words")
        found = entry(given.runs, given.change, given.prediction, given.by)
        kept.append(found | {"busy": True} if given.busy else found)
        write(ENTRIES, kept)
    write_tables({PAGE: tables(kept)}, "speedrun")


if __name__ == "__main__":
    main()
