"""Store results of reproductions and write the tables of docs/reproductions.md.

python -m benchmarks.reproductions runs/reproduce-radius runs/reproduce-depth

The result of each folder of `s2s reproduce` is copied to `docs/results/reproductions/<name>.json`. The tables are
written from these files.
"""

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks import keeping
from benchmarks.keeping import ROOT
from s2s.comparison.report.figures import drawn
from s2s.comparison.reproduce.reproducing import REPRODUCTIONS
from s2s.comparison.reproduced import RESULT, Check, Reproduced, read

RESULTS = keeping.RESULTS / "reproductions"
# reproductions whose first figure is on the page
_DRAWN = ("law",)


def kept() -> list[Reproduced]:
    """Return the stored results, in the order of `s2s reproduce`."""
    paths = [RESULTS / f"{name}.json" for name in REPRODUCTIONS]
    return [read(path) for path in paths if path.is_file()]


def summary(results: Sequence[Reproduced]) -> str:
    """Count the published findings by outcome."""
    published = [result for result in results if REPRODUCTIONS[result.name].published]
    counts = Counter(result.outcome for result in published)
    identities = [
        f"`{result.name}`" for result in published if all(check.band.deterministic for check in result.numbers)
    ]
    return (
        f"Of {len(published)} published findings, {counts['reproduced']} are reproduced, {counts['not reproduced']} "
        f"are not reproduced, and {counts['undecided']} are undecided. Reproduced by a count, without chance: "
        f"{', '.join(identities)}."
    )


def tables() -> str:
    """Return the tables: findings with their outcome, then numbers with their bands."""
    results = kept()
    lines = [summary(results), "", "| finding | statement | outcome |", "|---|---|---|"]
    lines += [f"| `{result.name}` | {result.finding} | {_emphasized(result)} |" for result in results]
    lines += [
        "",
        "| finding | quantity | published | band | mean (95 % interval) | outcome |",
        "|---|---|---|---|---|---|",
    ]
    for result in results:
        for place, check in enumerate(result.checks):
            name = f"`{result.name}`" if place == 0 else ""
            row = (name, check.band.what, check.band.published, check.band, check, _state(check))
            lines.append(f"| {' | '.join(map(str, row))} |")
    missing = [f"`{name}`" for name in REPRODUCTIONS if name not in {result.name for result in results}]
    rest = [f"Not measured yet: {', '.join(missing)}.\n"] if missing else []
    return "\n".join([*lines, "", *(_paragraph(result) for result in results), *rest]) + "\n"


def _emphasized(result: Reproduced) -> str:
    return result.verdict.replace(result.outcome, f"**{result.outcome}**", 1)


def _state(check: Check) -> str:
    return f"**{check.state}**" if check.outcome == "not reproduced" and not check.band.validity else check.state


def _paragraph(result: Reproduced) -> str:
    seeds = f"{len(result.seeds)} seed{'s' if len(result.seeds) > 1 else ''}"
    by = f"{result.machine['processor']}, {result.machine['date']}, commit {result.machine['commit'][:12]}"
    cost = f"{result.core_seconds:,.0f} CPU seconds"
    shown = f"\n![{result.finding}](images/{result.name}.png)\n" if result.name in _DRAWN else ""
    return (
        f"**{result.name}.** {result.method} `{result.command}`: {seeds}, {cost}; {by}. Source: "
        + f"{result.source}.\n{shown}"
    )


def main() -> None:
    """Store the results of the given folders, and write the tables."""
    parser = keeping.asked(__doc__)
    parser.add_argument("folders", nargs="*", type=Path)
    RESULTS.mkdir(parents=True, exist_ok=True)
    for folder in parser.parse_args().folders:
        shutil.copy(folder / RESULT, RESULTS / f"{read(folder / RESULT).name}.json")
    for result in kept():
        if result.name in _DRAWN:
            picture = drawn(result.figures[0], ["rnn", "lstm", "mingru"]).png
            (ROOT / "docs" / "images" / f"{result.name}.png").write_bytes(picture)
    keeping.write_tables({"docs/reproductions.md": tables()}, "reproductions")


if __name__ == "__main__":
    main()
