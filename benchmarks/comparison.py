"""Keeps what a comparison found, for README.md and docs/comparison.md.

python benchmarks/comparison.py runs/compare-rnn-transformer

Its page, what it found (`comparison.json`, each `result.json`) and some of its pictures go to `docs/comparison/`, from
where `s2s report` draws all pictures again; the classroom table of README.md and docs/comparison.md is written anew.
"""

import argparse
import runpy
import shutil
from pathlib import Path

from s2s.report.drawing import PAGE
from s2s.report.formatting import duration, interval, with_unit
from s2s.results import COMPARISON, RESULT, ROWS, Finding, Result, read_result, read_summary

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "comparison"
PICTURES = ("parallelism/depth.png", "memory/training-memory.png", "long-range/recall.png", "quality/bleu-tokens.png")


def keep(folder: Path) -> None:
    """Copies what is worth keeping of a comparison.

    Args:
        folder: of a finished and drawn comparison.
    """
    shutil.rmtree(KEPT, ignore_errors=True)
    found = read_summary(folder / COMPARISON)
    results = [f"{name}/{RESULT}" for name in found.experiments]
    for name in (PAGE, COMPARISON, *results, *PICTURES):
        (KEPT / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / name, KEPT / name)


def table() -> str:
    """The classroom table, from the kept files."""
    summary = read_summary(KEPT / COMPARISON)
    results = [read_result(KEPT / name / RESULT) for name in summary.experiments]
    findings = {(finding.row, finding.model): finding for result in results for finding in result.findings}
    rows = [f"| | {' | '.join(f'`{model}`' for model in summary.models)} |", f"|---|{'---|' * len(summary.models)}"]
    for row in ROWS:
        cells = [findings[row, model] for model in summary.models]
        asked = next((cell.quantity for cell in cells if cell.quantity), "")
        rows.append(f"| **{row}**: {asked} | {' | '.join(_figure(cell) for cell in cells)} |")
    machine = ", ".join(summary.machine[key] for key in ("processor", "device", "date"))
    parameters = ", ".join(f"{each.parameters:,}" for each in summary.contenders)
    return "\n".join(
        [
            *rows,
            "",
            f"`{summary.command}`: seeds {', '.join(map(str, summary.seeds))}; parameters {parameters}; {machine}; "
            f"measurements of {duration(summary.seconds)}, added up. In brackets: 95 % intervals; ranges over "
            "seeds where the row says so.",
            "",
        ]
    )


def verdicts() -> str:
    """Every cell in words, from the kept files."""
    summary = read_summary(KEPT / COMPARISON)
    lines = []
    for row, (_, experiment) in ROWS.items():
        result: Result = read_result(KEPT / experiment / RESULT)
        lines += [f"**{row[0].upper()}{row[1:]}.**", ""]
        lines += [f"- `{cell.model}`: {cell.failed or cell.verdict}." for cell in result.findings if cell.row == row]
        lines.append("")
    return "\n".join([*lines, f"Measured on {summary.machine['date']}, commit {summary.machine['commit']}.", ""])


def _figure(cell: Finding) -> str:
    if cell.value is None:
        return cell.failed or cell.verdict
    return with_unit(interval(cell.value, cell.low, cell.high), cell.unit)


def main() -> None:
    """Keeps the comparison given, and writes the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparison", nargs="?", type=Path)
    folder = parser.parse_args().comparison
    if folder:
        keep(folder)
    written = runpy.run_path(str(ROOT / "benchmarks" / "results.py"))["written"]
    for name, content in (("README.md", table()), ("docs/comparison.md", verdicts())):
        page = ROOT / name
        page.write_text(written(page.read_text(encoding="utf-8"), content, "comparison"), encoding="utf-8")


if __name__ == "__main__":
    main()
