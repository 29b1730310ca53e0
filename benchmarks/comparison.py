"""Keeps what a comparison found, for README.md and docs/comparison.md.

python benchmarks/comparison.py runs/compare-rnn-transformer

What it found (`comparison.json`, each `result.json`) and some of its pictures go to `docs/comparison/`, from where
`s2s report` draws its page and all pictures again; the classroom table of README.md and docs/comparison.md is written
anew.
"""

import argparse
import runpy
import shutil
from pathlib import Path

from s2s.report.numbers import duration, interval, with_unit
from s2s.results import COMPARISON, RESULT, ROWS, Finding, Result, read_result, read_summary

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "comparison"
PICTURES = ("parallelism/depth.png",)
# Rows of the kept comparison that do not bear what they said, each with what was found wrong when it was examined.
# They come back when they are measured again.
WITHDRAWN = {
    "parallel computation": "a share of the peak rewards work that need not be done, and on two cores says nothing of "
    "parallelism",
    "training speed": "a product of matrices that was timed beside the models took up to 2.3 times as long in one "
    "round as in another, so the machine was not steady",
    "memory": "the decoder's causal mask was a matrix, which no fused attention takes; and the intervals around a "
    "deterministic line say nothing",
    "long-term dependencies": "the trainings stopped before the gated models had learned: with 2,050 updates at rate "
    "0.004 the same LSTM recalls over 128 symbols, not 0",
    "fixed-size bottleneck": "37 of the 1,000 sources have more than 20 words, so long sentences were hardly tested",
    "position information": "the models had learned for a tenth of what translating takes",
    "translation quality": "1.2 million target tokens, a tenth of the ladder's: the order of how soon models learn, "
    "not of how well; and every learning rate was the highest that was tried",
    "decoding cost": "as training speed: what was timed beside the models moved by a factor of two",
    "scalability": "one learning rate served all sizes: with half of it the doubled Transformer alone has 3.49 instead "
    "of 3.72, and its exponent 0.067 instead of 0.040",
    "fine-tuning": "one arm learned for 660 updates, the other for 180",
}


def keep(folder: Path) -> None:
    """Copies what is worth keeping of a comparison.

    Args:
        folder: of a finished and drawn comparison.
    """
    shutil.rmtree(KEPT, ignore_errors=True)
    found = read_summary(folder / COMPARISON)
    results = [f"{name}/{RESULT}" for name in found.experiments]
    for name in (COMPARISON, *results, *PICTURES):
        (KEPT / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / name, KEPT / name)


def table() -> str:
    """The classroom table, from the kept files."""
    summary = read_summary(KEPT / COMPARISON)
    results = [read_result(KEPT / name / RESULT) for name in summary.experiments]
    findings = {(finding.row, finding.model): finding for result in results for finding in result.findings}
    rows = [f"| | {' | '.join(f'`{model}`' for model in summary.models)} |", f"|---|{'---|' * len(summary.models)}"]
    for row in (row for row in ROWS if row not in WITHDRAWN):
        cells = [findings[row, model] for model in summary.models]
        asked = next((cell.quantity for cell in cells if cell.quantity), "")
        rows.append(f"| **{row}**: {asked} | {' | '.join(_figure(cell) for cell in cells)} |")
    withdrawn = ", ".join(WITHDRAWN)
    machine = ", ".join(summary.machine[key] for key in ("processor", "device", "date"))
    parameters = ", ".join(f"{each.parameters:,}" for each in summary.contenders)
    return "\n".join(
        [
            *rows,
            "",
            f"`{summary.command}`: seeds {', '.join(map(str, summary.seeds))}; parameters {parameters}; {machine}; "
            f"measurements of {duration(summary.seconds)}, added up. In brackets: 95 % intervals.",
            "",
            f"Withdrawn until they are measured again, each for the reason that [the page](docs/comparison.md) gives: "
            f"{withdrawn}.",
            "",
        ]
    )


def verdicts() -> str:
    """Every cell in words, from the kept files."""
    summary = read_summary(KEPT / COMPARISON)
    lines = []
    for row, (_, experiment) in ROWS.items():
        lines += [f"**{row[0].upper()}{row[1:]}.**", ""]
        if row in WITHDRAWN:
            lines += [f"Withdrawn: {WITHDRAWN[row]}.", ""]
            continue
        result: Result = read_result(KEPT / experiment / RESULT)
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
