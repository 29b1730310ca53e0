"""Keeps what reproductions came to, for the table of docs/reproductions.md.

python -m benchmarks.reproductions runs/reproduce-radius runs/reproduce-depth

Of each folder that `s2s reproduce` made, the file goes to `docs/results/reproductions/<name>.json`; the table is
written anew from these files.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

from benchmarks import keeping
from benchmarks.keeping import ROOT
from s2s.comparison.report.figures import drawn
from s2s.comparison.reproduce.reproducing import REPRODUCTIONS
from s2s.comparison.reproduced import RESULT, Check, Reproduced, read

RESULTS = keeping.RESULTS / "reproductions"
# whose first figure is on the page
_DRAWN = ("law",)
# which more seeds would tell nothing
_WITHOUT_CHANCE = ("depth",)


def kept() -> list[Reproduced]:
    """Those that were measured, in the order in which `s2s reproduce` lists them."""
    paths = [RESULTS / f"{name}.json" for name in REPRODUCTIONS]
    return [read(path) for path in paths if path.is_file()]


def table() -> str:
    """What was published, the band, and what came out; one line for each number."""
    published = [result for result in kept() if REPRODUCTIONS[result.name].published]
    lines = [_summed(published)]
    lines += [
        f"`{each.name}`, of which we know no measurement: {each.verdict}." for each in kept() if each not in published
    ]
    lines.append("")
    lines += ["| finding | quantity | published | band | here | |", "|---|---|---|---|---|---|"]
    for result in kept():
        for place, check in enumerate(result.checks):
            name = f"`{result.name}`: {result.verdict}" if place == 0 else ""
            row = (name, check.band.what, check.band.published, check.band, _ours(check), _state(check))
            lines.append(f"| {' | '.join(map(str, row))} |")
    missing = [f"`{name}`" for name in REPRODUCTIONS if name not in {result.name for result in kept()}]
    rest = [f"Not measured yet: {', '.join(missing)}.\n"] if missing else []
    return "\n".join([*lines, "", *(_paragraph(result) for result in kept()), *rest]) + "\n"


def _summed(published: Sequence[Reproduced]) -> str:
    found = [result for result in published if result.inside]
    alone = sum(len(result.seeds) == 1 and result.name not in _WITHOUT_CHANCE for result in found)
    return (
        f"{len(found)} of {len(published)} published findings are reproduced by the medians over seeds, "
        f"{sum(result.by_every_seed for result in found)} of them by every seed; {alone} of the {len(found)} "
        f"{'has' if alone == 1 else 'have'} one seed alone, though chance has a part in it."
    )


def _ours(check: Check) -> str:
    if check.ours is None:
        return "not measured"
    several = len(check.by_seed) > 1
    spread = f" ({min(check.by_seed):.4g} to {max(check.by_seed):.4g})" if several else ""
    ends = f" (95 %: {check.interval[0]:.2g} to {check.interval[1]:.2g})" if check.interval else ""
    return f"{check.ours:.4g}{spread}{ends}"


def _state(check: Check) -> str:
    return check.state if check.inside else f"**{check.state}**"


def _paragraph(result: Reproduced) -> str:
    seeds = f"{len(result.seeds)} seed{'s' if len(result.seeds) > 1 else ''}"
    by = f"{result.machine['processor']}, {result.machine['date']}, commit {result.machine['commit'][:12]}"
    cost = f"{result.core_seconds:,.0f} seconds of one core ({result.seconds:,.0f} by the clock, beside other work)"
    shown = f"\n![{result.finding}](images/{result.name}.png)\n" if result.name in _DRAWN else ""
    return (
        f"**{result.name}.** {result.finding} {result.method} `{result.command}`: {seeds}, {cost}; {by}. Source: "
        + f"{result.source}.\n{shown}"
    )


def main() -> None:
    """Keeps the folders given, and writes the table."""
    parser = keeping.asked(__doc__)
    parser.add_argument("folders", nargs="*", type=Path)
    RESULTS.mkdir(parents=True, exist_ok=True)
    for folder in parser.parse_args().folders:
        shutil.copy(folder / RESULT, RESULTS / f"{read(folder / RESULT).name}.json")
    for result in kept():
        if result.name in _DRAWN:
            picture = drawn(result.figures[0], ["rnn", "lstm", "mingru"]).png
            (ROOT / "docs" / "images" / f"{result.name}.png").write_bytes(picture)
    keeping.write_tables({"docs/reproductions.md": table()}, "reproductions")


if __name__ == "__main__":
    main()
