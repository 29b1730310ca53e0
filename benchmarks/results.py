"""Keeps what runs scored, for the tables of README.md and docs/ladder.md.

python benchmarks/results.py runs/translate runs/multi30k

Of each run, its scores on the test set (cased, and lower-cased where `s2s evaluate RUN --lowercase` was run), what it
cost and what it ran on go to `docs/results/<name>.json`; the tables are written anew from these files. A run called
`multi30k_…` is a rung of the ladder and stands in its table; how fast rungs are says `benchmarks/ladder.py`. A name
that ends in a seed, such as `multi30k_lstm-2`, is the same training once more.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from s2s.evaluation.inference import mean

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
SPEED = RESULTS / "speed.json"
# what is kept beside the runs
OTHERS = ("speed", "faults", "gpu", "serve", "peers", "export", "text_to_text")
TOP = "multi30k"
RUNG = f"{TOP}_"
BEGIN, END = "<!-- benchmarks/{writer}.py writes this -->\n", "<!-- end of what it writes -->\n"


def described(run: Path) -> dict[str, object]:
    """What a run of any task was: model, machine, seeds, and what it cost.

    Args:
        run: the folder of a finished run.
    """
    start = json.loads((run / "manifest.json").read_text(encoding="utf-8"))[-1]
    checkpoint = max((p for p in (run / "checkpoints").iterdir() if p.name.isdigit()), key=lambda p: p.name)
    state = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
    return {
        "kind": YAML(typ="safe").load(run / "recipe.yaml")["model"]["kind"],
        "machine": f"{start['processor']}, {start['device']}",
        "torch": start["packages"]["torch"],
        "commit": start["git"]["commit"] if start["git"] else "unknown",
        "date": start["started"][:10],
        "seeds": start["seeds"],
        "parameters": start["parameters"],
        "updates": state["update"],
        "minutes": round(state["seconds"] / 60, 1),
    }


def learned_from(run: Path, what: str) -> int:
    """How many of something all updates of a run learned from.

    Args:
        run: the folder of a finished run.
        what: `tokens` or `count`.
    """
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return sum(entry[what] for entry in entries if what in entry)


def summary(run: Path) -> dict[str, object]:
    """What is worth keeping of a run.

    Args:
        run: the folder of a finished and tested run.
    """
    counts = json.loads((run / "manifest.json").read_text(encoding="utf-8"))[-1]["counts"]
    tests = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(run.glob("evaluation-test*.json"))]
    return described(run) | {
        "pairs": counts["train"],
        "target_tokens": learned_from(run, "tokens"),
        "tests": [
            {key: test[key] for key in ("beam", "length_penalty", "lowercase", "scores", "exact")}
            | {"sentences": len(test["sources"])}
            for test in tests
        ],
    }


def table() -> str:
    """The README's table, from the kept files."""
    rows = [
        "| recipe | parameters | training | case | BLEU (95 % interval) | chrF2++ | exact | test sentences |",
        "|---|---|---|---|---|---|---|---|",
    ]
    kept = {name: found for name, found in _kept().items() if not name.startswith(RUNG) and "-" not in name}
    for name, found in sorted(kept.items(), reverse=True):
        training = f"{found['updates']:,} updates, {found['target_tokens'] / 1e6:.1f} M tokens, {found['minutes']} min"
        rows += [
            f"| `{name}` | {found['parameters'] / 1e6:.2f} M | {training} "
            f"| {'ignored' if test['lowercase'] else 'kept'} | {_bleu(test)} "
            f"| {test['scores']['chrf']['value']:.2f} | {test['exact']:.1f} % | {test['sentences']:,} |"
            for test in found["tests"]
        ]
    return "\n".join([*rows, "", "One seed each; beam 5.", *_provenance(kept), ""])


def ladder() -> str:
    """The ladder's table, from the kept files, lowest score first."""
    rows = [
        "| rung | parameters | training | BLEU, lower-cased (95 % interval) | BLEU, cased | chrF2++, cased "
        "| training, tokens/s | decoding, sentences/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    runs = {name: found for name, found in _kept().items() if name == TOP or name.startswith(RUNG)}
    kept = {name: found for name, found in runs.items() if "-" not in name}
    speeds = json.loads(SPEED.read_text(encoding="utf-8")) if SPEED.exists() else {}
    order = sorted(kept, key=lambda name: _test(kept[name], True)["scores"]["bleu"]["value"])
    for name in order:
        found, speed = kept[name], speeds.get(name)
        lower, cased = _test(found, True), _test(found, False)
        pace = f"{speed['training']:,.0f} | {speed['decoding']:,.0f}" if speed else "– | –"
        rows.append(
            f"| `{found['kind']}` | {found['parameters']:,} "
            f"| {found['updates']:,} updates, {found['target_tokens'] / 1e6:.1f} M tokens, {found['minutes']} min "
            f"| {_bleu(lower)} | {_bleu(cased)} | {cased['scores']['chrf']['value']:.2f} | {pace} |"
        )
    about = "Test set test_2016_flickr, seed 1; beam 5."
    return "\n".join([*rows, "", about, *_provenance(runs), *_repeated(runs), ""])


def _repeated(runs: dict[str, dict[str, Any]]) -> list[str]:
    """What the rungs that were trained with several seeds scored with each."""
    rows = []
    for name in sorted({name.partition("-")[0] for name in runs if "-" in name}):
        same = [found for other, found in sorted(runs.items()) if other.partition("-")[0] == name]
        scores = [_test(found, False)["scores"]["bleu"]["value"] for found in same]
        over = mean(scores)
        listed = ", ".join(f"{score:.2f}" for score in scores)
        interval = f" ({over.low:.2f}–{over.high:.2f})" if len(scores) > 2 else ", two seeds: no interval"
        rows.append(f"| `{same[0]['kind']}` | {listed} | {over.value:.2f}{interval} |")
    if not rows:
        return []
    return ["", "| rung | BLEU, cased, with each seed | mean (95 % interval, Student's) |", "|---|---|---|", *rows]


def _kept() -> dict[str, dict[str, Any]]:
    return {p.stem: json.loads(p.read_text(encoding="utf-8")) for p in RESULTS.glob("*.json") if p.stem not in OTHERS}


def _test(found: dict[str, Any], lowercase: bool) -> dict[str, Any]:
    return next(test for test in found["tests"] if test["lowercase"] == lowercase)


def _bleu(test: dict[str, Any]) -> str:
    bleu = test["scores"]["bleu"]
    return f"{bleu['value']:.2f} ({bleu['low']:.2f}–{bleu['high']:.2f})"


def _provenance(kept: dict[str, dict[str, Any]]) -> list[str]:
    machines = {
        f"{found['machine']}, torch {found['torch']}, {found['date']}, commit {found['commit'][:7]}": None
        for _, found in sorted(kept.items(), reverse=True)
    }
    signatures = {
        f"`{test['scores']['bleu']['signature']}`": None
        for _, found in sorted(kept.items(), reverse=True)
        for test in found["tests"]
    }
    return [f"Machine: {'; '.join(machines)}.", f"BLEU: {' and '.join(signatures)}."]


def written(page: str, content: str, writer: str = "results") -> str:
    """The page with what is written today in it, between the marks of its writer."""
    mark = BEGIN.format(writer=writer)
    before, _, rest = page.partition(mark)
    return before + mark + content + END + rest.partition(END)[2]


def main() -> None:
    """Keeps the runs given, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    for run in parser.parse_args().runs:
        path = RESULTS / f"{run.resolve().name}.json"
        path.write_text(json.dumps(summary(run), indent=1) + "\n", encoding="utf-8")
    for page, content in ((ROOT / "README.md", table()), (ROOT / "docs" / "ladder.md", ladder())):
        page.write_text(written(page.read_text(encoding="utf-8"), content), encoding="utf-8")


if __name__ == "__main__":
    main()
