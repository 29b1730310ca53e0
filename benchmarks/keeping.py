"""What the scripts alike do that keep results in docs/results and write the tables of the documentation from them."""

import argparse
import json
import statistics
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
MEASURED = ROOT / "recipes" / "measured.json"
BEGIN, END = "<!-- benchmarks/{writer}.py writes this -->\n", "<!-- end of what it writes -->\n"

Told = dict[str, Any]


def read(path: Path) -> Any:
    """What a file of JSON holds."""
    return json.loads(path.read_text(encoding="utf-8"))


def write(path: Path, found: object) -> None:
    """Keeps something as JSON."""
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def recipe_of(run: Path) -> Told:
    """A run's recipe as it is written."""
    return YAML(typ="safe").load(run / "recipe.yaml")


def last_state(run: Path) -> Told:
    """Return the state of a run's last checkpoint: `update`, `seconds` and others."""
    checkpoint = max((p for p in (run / "checkpoints").iterdir() if p.name.isdigit()), key=lambda p: p.name)
    return read(checkpoint / "state.json")


def described(run: Path) -> Told:
    """What a run of any task was: model, machine, seeds, and what it cost."""
    start = read(run / "manifest.json")[-1]
    state = last_state(run)
    return {
        "kind": recipe_of(run)["model"]["kind"],
        "machine": f"{start['processor']}, {start['device']}",
        "torch": start["packages"]["torch"],
        "commit": start["git"]["commit"] if start["git"] else "unknown",
        "date": start["started"][:10],
        "seeds": start["seeds"],
        "parameters": start["parameters"],
        "updates": state["update"],
        "minutes": round(state["seconds"] / 60, 1),
    }


def entries(run: Path) -> list[Told]:
    """The lines of a run's log."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def learned_from(run: Path, what: str) -> int:
    """How many of something, `tokens` or `count`, all updates of a run learned from."""
    return sum(entry[what] for entry in entries(run) if what in entry)


def machines(kept: Iterable[Told]) -> str:
    """What measured, each once."""
    made = (f"{one['machine']}, torch {one['torch']}, {one['date']}, commit {one['commit'][:7]}" for one in kept)
    return f"Machine: {'; '.join(dict.fromkeys(made))}."


def recipe_scores() -> dict[str, Told]:
    """Return the score and the training minutes of each recipe that comes with s2s, from the kept results.

    Returns:
        `score`, such as `BLEU 92.5`, and `minutes` with its unit, by name of the recipe. Of several seeds,
        the mean score and the median minutes of those on a device like the first one's.
    """
    found: dict[str, list[Told]] = {}
    places = ("*.json", "tasks/*.json", "classification/*.json")
    for path in (path for place in places for path in sorted(RESULTS.glob(place))):
        kept = read(path)
        # `multi30k_lstm-2` is the second seed of `multi30k_lstm`
        of_file = path.stem.partition("-")[0]
        name = kept.get("recipe", of_file) if isinstance(kept, dict) and "minutes" in kept else ""
        recipe = ROOT / "recipes" / f"{name}.yaml"
        if name in found and "recipe" in kept and "test" not in kept:
            continue  # of two files of one seed, that of benchmarks/results.py
        if recipe.exists() and kept["kind"] == YAML(typ="safe").load(recipe)["model"]["kind"]:
            found.setdefault(name, []).append(kept)
    scores = {}
    for name, runs in sorted(found.items()):
        value = statistics.mean(_score(run)[1] for run in runs)
        on_cpu = ", cpu" in runs[0]["machine"]
        # The minutes of a run that was paused contain the pause.
        minutes = statistics.median(run["minutes"] for run in runs if (", cpu" in run["machine"]) == on_cpu)
        gpu = "" if on_cpu else " (GPU)"
        figures = 2 if abs(value) < 10 else 1
        scores[name] = {"score": f"{_score(runs[0])[0]} {value:.{figures}f}", "minutes": f"{minutes:.1f}{gpu}"}
    return scores


def _score(run: Told) -> tuple[str, float]:
    """Return the name and the value of a run's first score."""
    if "tests" in run:
        test = next((test for test in run["tests"] if not test["lowercase"]), run["tests"][0])
        return "BLEU", test["scores"]["bleu"]["value"]
    if "test" in run:
        return "accuracy", run["test"]["accuracy"]["value"]
    return run["scores"][0]["name"], run["scores"][0]["value"]


def written(page: str, content: str, writer: str) -> str:
    """The page with what is written today in it, between the marks of its writer."""
    mark = BEGIN.format(writer=writer)
    before, _, rest = page.partition(mark)
    return before + mark + content + END + rest.partition(END)[2]


def write_tables(tables: Mapping[str, str], writer: str) -> None:
    """Writes anew what each of these pages has of a writer."""
    for name, content in tables.items():
        page = ROOT / name
        page.write_text(written(page.read_text(encoding="utf-8"), content, writer), encoding="utf-8")


def asked(about: str | None) -> argparse.ArgumentParser:
    """The command line of a script, which its own words describe."""
    return argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)


def keep_runs(
    about: str | None,
    folder: Path,
    summary: Callable[[Path], Told],
    tables: Mapping[str, Callable[[], str]],
    writer: str,
) -> None:
    """The whole of such a script: keeps what is worth it of the runs that are named, and writes its tables.

    Args:
        about: what the script says of itself.
        folder: where a file is kept for each run.
        summary: of a finished and tested run, by its folder.
        tables: by the page that they are on.
        writer: the script's name.
    """
    parser = asked(about)
    parser.add_argument("runs", nargs="*", type=Path)
    folder.mkdir(exist_ok=True)
    for run in parser.parse_args().runs:
        write(folder / f"{run.resolve().name}.json", summary(run))
    write_tables({name: table() for name, table in tables.items()}, writer)
    write(MEASURED, recipe_scores())
