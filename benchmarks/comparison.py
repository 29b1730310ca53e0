"""Keeps what comparisons found, for README.md and docs/comparison.md.

python -m benchmarks.comparison runs/compare-rnn-transformer

What it found (`comparison.json`, each `result.json`) and some of its pictures go to `docs/comparison-lecture/`, or the
folder of its profile, from where `s2s report` draws its page and all pictures again; the classroom table of README.md
and docs/comparison.md is written anew. Comparisons of the same models share a table, in which a row stands as the
longest profile has it; others have one of their own. One that is under way can be kept, too.
The single measurements are kept, too, so that anyone can compute with them, or go on with a copy:
`tar -xf cells.tar.xz`, then `s2s compare --resume COPY --seeds 8`.
"""

import json
import re
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.keeping import ROOT, asked, write_tables
from s2s.questions import TABLES
from s2s.report.drawing import kept_results
from s2s.report.matrix import LEGEND, Box, Line, heading, matrix
from s2s.report.numbers import duration, with_unit
from s2s.results import COMPARISON, RESULT, Summary, read_summary
from s2s.run.folder import RECIPE

# by profile, the longest first
KEPT = {profile: ROOT / "docs" / f"comparison-{profile}" for profile in ("definitive", "lecture")}
CELLS = "cells.tar.xz"
PAGE = ROOT / "docs" / "comparison.md"
_LEGEND = f"{LEGEND} ↑ high figures are good, ↓ low ones. In brackets: 95 % intervals, or ranges where the row says so."


def keep(folder: Path) -> None:
    """Copies what is worth keeping of a comparison: all that was measured and found, and the pictures of its pages."""
    summary, lines = found(folder)
    if summary.profile not in KEPT:
        raise SystemExit(f"{folder}: profile is {summary.profile}; kept are comparisons of {' and '.join(KEPT)}")
    place = KEPT[summary.profile]
    shutil.rmtree(place, ignore_errors=True)
    results = [f"{path.parent.name}/{RESULT}" for path in sorted(folder.glob(f"*/{RESULT}"))]
    pictures = [f"{line.row.experiment}/{line.figure}.png" for line in lines if line.row.key and line.figure]
    # and those that the page shows beside them
    pictures += re.findall(rf"\({place.name}/(\S+\.png)\)", PAGE.read_text(encoding="utf-8"))
    for name in (COMPARISON, RECIPE, *results, *dict.fromkeys(pictures)):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / name, place / name)
    with tarfile.open(place / CELLS, "w:xz") as archive:
        for path in sorted([*folder.glob("cells/*/*.json"), *folder.glob(f"cells/{RECIPE}")]):
            archive.add(path, path.relative_to(folder))


def found(folder: Path) -> tuple[Summary, list[Line]]:
    """What a comparison was, and the rows of its table, finished or not."""
    summary = read_summary(folder / COMPARISON)
    return summary, matrix(summary, summary.models, list(kept_results(folder, summary)))


@dataclass(frozen=True)
class Shown:
    """Kept comparisons of the same models, and the finished rows of their table, each from the first that has it."""

    summaries: list[Summary]
    lines: list[tuple[Line, Summary]]

    @property
    def models(self) -> list[str]:
        """Those compared."""
        return self.summaries[0].models


def shown() -> list[Shown]:
    """What is kept, that of the most models first."""
    by_models: dict[tuple[str, ...], list[tuple[Summary, list[Line]]]] = {}
    for summary, lines in (found(folder) for folder in KEPT.values() if folder.is_dir()):
        by_models.setdefault(tuple(summary.models), []).append((summary, lines))
    tables = []
    for kept in by_models.values():
        first: dict[str, tuple[Line, Summary]] = {}
        for summary, lines in kept:
            for line in lines:
                if line.finished:
                    first.setdefault(line.name, (line, summary))
        rows = [first[name] for name in TABLES[kept[0][0].task] if name in first]
        tables.append(Shown([summary for summary, _ in kept], rows))
    return sorted(tables, key=lambda each: -len(each.models))


def table() -> str:
    """The classroom table, from the kept files; rows without any verdict or figure are named below it."""
    return "\n".join(text for each in shown() for text in _table(each))


def _table(kept: Shown) -> list[str]:
    lines, models = kept.lines, kept.models
    grey = [line.name for line, _ in lines if all(box.open for box in line.boxes)]
    written = [f"| | {' | '.join(f'`{model}`' for model in models)} |", f"|---|{'---|' * len(models)}"]
    for line in (line for line, _ in lines if line.name not in grey):
        arrow = f" {line.arrow}" if line.arrow else ""
        written.append(f"| **{line.name}**{arrow}: {heading(line)} | {' | '.join(map(_figure, line.boxes))} |")
    told = [_LEGEND]
    for summary in kept.summaries:
        names = [line.name for line, of in lines if of is summary]
        if not names:
            continue
        machine = summary.measured_on(kept_results(KEPT[summary.profile], summary))
        elsewhere = {name: where for name, where in _elsewhere(summary).items() if name in names}
        for where in dict.fromkeys(elsewhere.values()):
            machine += f"; {', '.join(name for name, its in elsewhere.items() if its == where)} on {where}"
        parameters = ", ".join(f"{each.parameters:,}" for each in summary.contenders)
        told.append(
            f"`{summary.command}` ({', '.join(names)}): seeds {', '.join(map(str, summary.seeds))}; parameters "
            f"{parameters}; {machine}; measurements of {duration(summary.seconds)}, added up."
        )
    told += _gaps(kept)
    if grey:
        told.append(f"No verdict, for reasons that [the page](docs/comparison.md) gives: {', '.join(grey)}.")
    # a table that has no row yet is none
    spaced = [text for each in told for text in ("", each)] if lines else told[1:]
    return [*(written if lines else []), *spaced, ""]


def _elsewhere(summary: Summary) -> dict[str, str]:
    """By row of the table, the machines that measured it, where they are others than the comparison's."""
    results = kept_results(KEPT[summary.profile], summary)
    machines = {result.experiment: " and ".join(result.elsewhere(summary)) for result in results}
    return {name: where for name, row in TABLES[summary.task].items() if (where := machines.get(row.experiment))}


def verdicts() -> str:
    """Every cell in words, from the kept files."""
    return "\n".join(text for each in shown() for text in _verdicts(each))


def _verdicts(kept: Shown) -> list[str]:
    said = [] if len(shown()) == 1 else [f"### {', '.join(f'`{model}`' for model in kept.models)}", ""]
    for line, summary in kept.lines:
        result = KEPT[summary.profile] / line.row.experiment / RESULT
        count = len(json.loads(result.read_text(encoding="utf-8"))["seeds"])
        seeds = "one seed" if count == 1 else f"{count} seeds"
        said += [f"**{line.name[0].upper()}{line.name[1:]}.** {line.row.asks} ({summary.profile}, {seeds})", ""]
        if len({box.verdict for box in line.boxes}) == 1 and line.boxes[0].verdict:
            said.append(f"All: {line.boxes[0].word}; {line.boxes[0].verdict}.")
        else:
            said += [_words(box) for box in line.boxes]
        said += ["", *([f"Others: {line.row.literature}", ""] if line.row.literature else [])]
    return said + [text for each in _gaps(kept) for text in (each, "")]


def _gaps(kept: Shown) -> list[str]:
    """What a table does not hold."""
    there, asked = {line.name for line, _ in kept.lines}, kept.summaries[0]
    missing = [name for name in TABLES[asked.task] if name not in there]
    under_way = [summary for summary in kept.summaries if not summary.machine]
    begun = [
        f"Under way, without a finished row: `{summary.command}`, {_count(KEPT[summary.profile])} measurements so far."
        for summary in under_way
    ]
    if not there:
        return begun
    return begun + ([f"Not measured yet: {', '.join(missing)}."] if missing else [])


def _count(kept: Path) -> int:
    with tarfile.open(kept / CELLS) as archive:
        return sum(name.endswith(".json") for name in archive.getnames())


def _figure(box: Box) -> str:
    if box.open or not box.value:
        return f"*{box.word}*"
    value = with_unit(f"{box.value} {box.ends if box.ends.startswith('(') else f'({box.ends})'}", box.unit)
    value = value if box.ends else with_unit(box.value, box.unit)
    return f"{value} {box.sign}" if box.word in ("better", "worse", "tie", "undecided") else value


def _words(box: Box) -> str:
    steady = f" ({box.steady})" if box.steady else ""
    named = not box.verdict or (box.word != "measured" and not box.verdict.startswith(box.word))
    said = ": ".join([*([box.word] if named else []), *([box.verdict] if box.verdict else [])])
    return f"- `{box.model}`: {said}{steady}."


def main() -> None:
    """Keeps the comparison given, and writes the tables."""
    parser = asked(__doc__)
    parser.add_argument("comparison", nargs="?", type=Path)
    folder = parser.parse_args().comparison
    if folder:
        keep(folder)
    write_tables({"README.md": table(), "docs/comparison.md": verdicts()}, "comparison")


if __name__ == "__main__":
    main()
