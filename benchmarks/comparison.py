"""Keeps what comparisons found, for README.md and docs/comparison.md.

python -m benchmarks.comparison runs/compare-rnn-transformer
python -m benchmarks.comparison runs/compare-lstm-attention-transformer --as scaling
python -m benchmarks.comparison runs/compare-rnn-transformer --as gpu
python -m benchmarks.comparison --analyse

Results (`comparison.json`, each `result.json`, `claims.csv`), single measurements (`cells.tar.xz`) and some pictures
are copied to `docs/comparison-lecture/`, or to the folder of the profile or of `--as`; `s2s report` draws the page from
there. The table of claims and the first picture of README.md, and the tables of docs/comparison.md, are written anew;
verdicts on another device have a column of their own.
To continue a kept comparison, copy it, `tar -xf cells.tar.xz` there, and `s2s compare --resume COPY --seeds 8`.
`--analyse` analyses the kept measurements again with today's code.
"""

import json
import re
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks import claims
from benchmarks.cost import cost_tables
from benchmarks.keeping import ROOT, asked, write_tables
from s2s.comparison.engine import reanalyse
from s2s.comparison.plans import TABLES
from s2s.comparison.report.drawing import kept_comparison, kept_results, write_claims
from s2s.comparison.report.numbers import duration, titled, with_unit
from s2s.comparison.report.table import (
    LEGEND,
    Box,
    Line,
    matrix,
)
from s2s.comparison.results import RESULT, Summary, read_summary
from s2s.files import COMPARISON
from s2s.run.folder import RECIPE

# by what it is called, first who has a row for all
PLACES = {name: ROOT / "docs" / f"comparison-{name}" for name in ("definitive", "lecture", "scaling", "gpu")}
CELLS = "cells.tar.xz"
PAGE = ROOT / "docs" / "comparison.md"
_LEGEND = (
    f"{LEGEND} ↑ higher is better, ↓ lower is better. In brackets: 95 % intervals, or ranges where the row says so."
)


@dataclass(frozen=True)
class KeptComparison:
    """A comparison, finished or not."""

    folder: Path
    summary: Summary
    lines: list[Line]  # the rows of its table

    @classmethod
    def of(cls, folder: Path) -> "KeptComparison":
        """Read a comparison."""
        summary = read_summary(folder / COMPARISON)
        return cls(folder, summary, matrix(summary, summary.models, list(kept_results(folder, summary))))


def keep(folder: Path, name: str) -> None:
    """Copies what is worth keeping of a comparison: all that was measured and found, and the pictures of its pages."""
    kept = KeptComparison.of(folder)
    profile = PLACES.get(kept.summary.profile)
    if not name and profile and profile.is_dir():
        there = KeptComparison.of(profile).summary.command
        if there != kept.summary.command:
            raise SystemExit(
                f"{profile} is that of `{there}`; if this one shall replace it, say --as {kept.summary.profile}"
            )
    name = name or kept.summary.profile
    if name not in PLACES:
        raise SystemExit(f"{folder}: {name}: kept are comparisons called {', '.join(PLACES)}; name one by --as")
    place = PLACES[name]
    shutil.rmtree(place, ignore_errors=True)
    results = [f"{path.parent.name}/{RESULT}" for path in sorted(folder.glob(f"*/{RESULT}"))]
    pictures = [f"{line.row.experiment}/{line.figure}.png" for line in kept.lines if line.row.key and line.figure]
    # and those that the page shows beside them
    pictures += re.findall(rf"\({place.name}/(\S+\.png)\)", PAGE.read_text(encoding="utf-8"))
    for each in (COMPARISON, RECIPE, *results, *dict.fromkeys(pictures)):
        (place / each).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / each, place / each)
    write_claims(place, *kept_comparison(place))
    with tarfile.open(place / CELLS, "w:xz") as archive:
        for path in sorted(
            [*folder.glob("cells/*/*.json"), *folder.glob("cells/data.json"), *folder.glob(f"cells/{RECIPE}")]
        ):
            archive.add(path, path.relative_to(folder))


def analyse(place: Path) -> None:
    """Analyse the measurements of a kept comparison again, without measuring."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / place.name
        shutil.copytree(place, folder)
        with tarfile.open(folder / CELLS) as archive:
            archive.extractall(folder, filter="data")
        reanalyse(folder)
        for path in folder.glob(f"*/{RESULT}"):
            (place / path.parent.name).mkdir(exist_ok=True)
            shutil.copy(path, place / path.parent.name / RESULT)
    write_claims(place, *kept_comparison(place))


@dataclass(frozen=True)
class Shown:
    """Kept comparisons of the same models, and the finished rows of their table, each from the first that has it."""

    comparisons: list[KeptComparison]
    lines: list[tuple[Line, KeptComparison]]

    @property
    def models(self) -> list[str]:
        """Those compared."""
        return self.comparisons[0].summary.models


def shown() -> list[Shown]:
    """What is kept, that of the most models first."""
    by_models: dict[tuple[str, ...], list[KeptComparison]] = {}
    for kept in (KeptComparison.of(folder) for folder in PLACES.values() if folder.is_dir()):
        by_models.setdefault(tuple(kept.summary.models), []).append(kept)
    tables = []
    for alike in by_models.values():
        first: dict[str, tuple[Line, KeptComparison]] = {}
        for kept in alike:
            for line in kept.lines:
                if line.finished:
                    first.setdefault(line.name, (line, kept))
        rows = [first[name] for name in TABLES[alike[0].summary.task] if name in first]
        tables.append(Shown(alike, rows))
    return sorted(tables, key=lambda each: -len(each.models))


def table() -> str:
    """The classroom table, from the kept files; rows without any verdict or figure are named below it."""
    every = shown()
    return "\n".join(text for each in every for text in _table(each, _missing(each, every)))


def _missing(one: Shown, every: list[Shown]) -> list[str]:
    """Rows that neither a table nor any other has."""
    there = {line.name for each in every for line, _ in each.lines}
    return [name for name in TABLES[one.comparisons[0].summary.task] if name not in there]


def _table(kept: Shown, missing: list[str]) -> list[str]:
    lines, models = kept.lines, kept.models
    grey = [line.name for line, _ in lines if all(box.open for box in line.boxes)]
    written = [f"| | {' | '.join(f'`{model}`' for model in models)} |", f"|---|{'---|' * len(models)}"]
    for line in (line for line, _ in lines if line.name not in grey):
        arrow = f" {line.arrow}" if line.arrow else ""
        written.append(
            f"| **{line.name}**{arrow}: {titled(line.quantity, line.unit)} | {' | '.join(map(_figure, line.boxes))} |"
        )
    told = [_LEGEND]
    for one in kept.comparisons:
        names = [line.name for line, of in lines if of is one]
        if not names:
            continue
        summary = one.summary
        results = list(kept_results(one.folder, summary))
        # a question may be asked with fewer than the comparison's
        seeds = [seed for seed in summary.seeds if any(seed in each.seeds for each in results)]
        machine = summary.measured_on(results)
        elsewhere = {name: where for name, where in _elsewhere(one).items() if name in names}
        for where in dict.fromkeys(elsewhere.values()):
            machine += f"; {', '.join(name for name, its in elsewhere.items() if its == where)} on {where}"
        parameters = ", ".join(f"{each.parameters:,}" for each in summary.contenders) or "not noted"
        told.append(
            f"`{summary.command}` ({', '.join(names)}): seeds {', '.join(map(str, seeds))}; parameters "
            f"{parameters}; {machine}; measurements of {duration(summary.seconds)}, added up."
        )
    told += _gaps(kept, missing)
    if grey:
        told.append(f"No verdict, for reasons that are given below: {', '.join(grey)}.")
    # a table that has no row yet is none
    spaced = [text for each in told for text in ("", each)] if lines else told[1:]
    return [*(written if lines else []), *spaced, ""]


def _elsewhere(kept: KeptComparison) -> dict[str, str]:
    """By row of the table, the machines that measured it, where they are others than the comparison's."""
    results = kept_results(kept.folder, kept.summary)
    machines = {result.experiment: " and ".join(result.elsewhere(kept.summary)) for result in results}
    return {name: where for name, row in TABLES[kept.summary.task].items() if (where := machines.get(row.experiment))}


def verdicts() -> str:
    """Every cell in words, from the kept files."""
    every = shown()
    return "\n".join(text for each in every for text in _verdicts(each, _missing(each, every), len(every) > 1))


def _verdicts(kept: Shown, missing: list[str], headed: bool) -> list[str]:
    said = [f"### {', '.join(f'`{model}`' for model in kept.models)}", ""] if headed else []
    for line, one in kept.lines:
        result = one.folder / line.row.experiment / RESULT
        count = len(json.loads(result.read_text(encoding="utf-8"))["seeds"])
        seeds = "one seed" if count == 1 else f"{count} seeds"
        said += [f"**{line.name[0].upper()}{line.name[1:]}.** {line.row.asks} ({one.summary.profile}, {seeds})", ""]
        if len({box.verdict for box in line.boxes}) == 1 and line.boxes[0].verdict:
            said.append(f"All: {line.boxes[0].label}; {line.boxes[0].verdict}.")
        else:
            said += [_words(box) for box in line.boxes]
        said += ["", *([f"Published: {line.row.literature}", ""] if line.row.literature else [])]
    return said + [text for each in _gaps(kept, missing) for text in (each, "")]


def _gaps(kept: Shown, missing: list[str]) -> list[str]:
    """What a table does not hold."""
    begun = [
        f"Under way, without a finished row: `{each.summary.command}`, {_count(each.folder)} measurements so far."
        for each in kept.comparisons
        if not each.summary.machine
    ]
    return begun + ([f"Not measured yet: {', '.join(missing)}."] if missing and kept.lines else [])


def _count(folder: Path) -> int:
    with tarfile.open(folder / CELLS) as archive:
        return sum(name.endswith(".json") for name in archive.getnames())


def _figure(box: Box) -> str:
    value = with_unit(f"{box.value} {box.ends if box.ends.startswith('(') else f'({box.ends})'}", box.unit)
    value = value if box.ends else with_unit(box.value, box.unit)
    if not box.has_figure:
        return f"*{box.label}*"
    if box.word == "still learning":
        return f"*{value}, {box.label}*"
    return f"{value}, {box.label}" if box.word in ("better", "worse", "tie", "undecided") else value


def _words(box: Box) -> str:
    steady = f" ({box.steady})" if box.steady else ""
    named = not box.verdict or not box.verdict.startswith(box.label)
    said = "; ".join([*([box.label] if named else []), *([box.verdict] if box.verdict else [])])
    return f"- `{box.model}`: {said}{steady}."


def main() -> None:
    """Keeps the comparison given, and writes the tables."""
    parser = asked(__doc__)
    parser.add_argument("comparison", nargs="?", type=Path)
    parser.add_argument("--as", dest="name", default="", help="what it is called; its profile when absent")
    parser.add_argument("--analyse", action="store_true", help="analyse what is kept again, without measuring")
    given = parser.parse_args()
    if given.comparison:
        keep(given.comparison, given.name)
    folders = [folder for folder in PLACES.values() if folder.is_dir()]
    for folder in folders if given.analyse else ():
        analyse(folder)
    tables = {"README.md": claims.short_table(folders), "docs/comparison.md": claims.table(folders)}
    write_tables(tables, "claims")
    write_tables({"docs/comparison.md": cost_tables(PLACES["lecture"])}, "cost")
    write_tables({"docs/comparison.md": f"{table()}\n{verdicts()}"}, "comparison")
    claims.draw(PLACES["lecture"], ROOT / "docs" / "images" / "claims.png")


if __name__ == "__main__":
    main()
