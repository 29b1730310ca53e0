"""Keeps what runs scored, for the README's table.

python benchmarks/results.py runs/translate runs/multi30k

Of each run, its scores on the test set (cased, and lower-cased where `s2s evaluate RUN --lowercase` was run), what it
cost and what it ran on go to `docs/results/<name>.json`; the table in README.md is written anew from these files.
"""

import argparse
import json
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
BEGIN, END = "<!-- benchmarks/results.py writes this table -->\n", "<!-- end of the table -->\n"


def summary(run: Path) -> dict[str, object]:
    """What is worth keeping of a run.

    Args:
        run: the folder of a finished and tested run.
    """
    start = json.loads((run / "manifest.json").read_text(encoding="utf-8"))[-1]
    checkpoint = max((p for p in (run / "checkpoints").iterdir() if p.name.isdigit()), key=lambda p: p.name)
    state = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    tests = [json.loads(p.read_text(encoding="utf-8")) for p in sorted(run.glob("evaluation-test*.json"))]
    return {
        "machine": f"{start['processor']}, {start['device']}",
        "torch": start["packages"]["torch"],
        "commit": start["git"] and start["git"]["commit"],
        "date": start["started"][:10],
        "seeds": start["seeds"],
        "pairs": start["counts"]["train"],
        "parameters": start["parameters"],
        "updates": state["update"],
        "target_tokens": sum(e["tokens"] for e in entries if "tokens" in e),
        "minutes": round(state["seconds"] / 60, 1),
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
    signatures, machines = {}, {}
    for path in sorted(RESULTS.glob("*.json"), reverse=True):
        kept = json.loads(path.read_text(encoding="utf-8"))
        training = f"{kept['updates']:,} updates, {kept['target_tokens'] / 1e6:.1f} M tokens, {kept['minutes']} min"
        machines[f"{kept['machine']}, torch {kept['torch']}, {kept['date']}, commit {kept['commit'][:7]}"] = None
        for test in kept["tests"]:
            bleu, chrf = test["scores"]["bleu"], test["scores"]["chrf"]
            signatures[bleu["signature"]] = None
            rows.append(
                f"| `{path.stem}` | {kept['parameters'] / 1e6:.2f} M | {training} "
                f"| {'ignored' if test['lowercase'] else 'kept'} "
                f"| {bleu['value']:.2f} ({bleu['low']:.2f}–{bleu['high']:.2f}) | {chrf['value']:.2f} "
                f"| {test['exact']:.1f} % | {test['sentences']:,} |"
            )
    notes = [
        f"One seed each; beam 5. Machine: {'; '.join(machines)}.",
        f"BLEU: {' and '.join(f'`{s}`' for s in signatures)}.",
    ]
    return "\n".join([*rows, "", *notes, ""])


def written(page: str) -> str:
    """The page with the table of today in it."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


def main() -> None:
    """Keeps the runs given, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    for run in parser.parse_args().runs:
        path = RESULTS / f"{run.resolve().name}.json"
        path.write_text(json.dumps(summary(run), indent=1) + "\n", encoding="utf-8")
    page = ROOT / "README.md"
    page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
