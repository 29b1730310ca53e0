"""The classroom table of verdicts: as data, in words, as CSV and as LaTeX."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from s2s.comparison.plans import TABLES, Row
from s2s.comparison.report.numbers import brief, halves, number
from s2s.comparison.results import Result, Summary, Verdict

CSV, TEX = "table.csv", "table.tex"
LABELS = {"tie": "equal", "undecided": "not significant"}
"""Labels of outcomes that differ from their keys."""
LEGEND = (
    "Each model compared with the best of the others. Better, worse: significant, or more than 5 % apart in counts. "
    "Equal: within a margin, tested. Not significant: neither."
)
ARROWS = {"high": "↑", "low": "↓", "": ""}
"""Arrows by good values: high, low, or neither."""
_DIFFERENT = "different: "
OPEN = ("still learning", "not measurable", "not applicable", "failed", "not measured")
"""Words of cells without a verdict, which are grey."""
_BESIDE = {
    "better": "better than {}",
    "worse": "worse than {}",
    "tie": "equal to {}",
    "undecided": "not significantly different from {}",
    "": "compared with {}",
}

HEAD = (
    *("row", "model", "standing", "value", "low", "high", "unit", "quantity", "good", "rival", "difference", "p"),
    *("verdict", "robustness", "target tokens", "failed", "published results"),
)
"""Columns of `table_rows`."""


@dataclass(frozen=True)
class Box:
    """Cell of the table."""

    model: str
    word: str  # the outcome, or why there is none
    value: str = ""
    ends: str = ""  # of the confidence interval
    unit: str = ""  # if it is not the row's
    verdict: str = ""  # in words, or why it failed
    steady: str = ""  # robustness in words
    finding: Verdict | None = None

    @property
    def label(self) -> str:
        """The outcome in words."""
        return LABELS.get(self.word, self.word)

    @property
    def stays(self) -> str:
        """Short form of `steady`: the count, and the variations in which the outcome changes."""
        count, _, tried = self.steady.partition(": ")
        return f"{count}; {_DIFFERENT}{tried.partition(_DIFFERENT)[2]}" if _DIFFERENT in tried else count

    @property
    def open(self) -> bool:
        """True if there is neither an outcome nor an estimate to build on."""
        one = self.finding
        return self.word in OPEN or (one is not None and one.value is None and not one.standing)

    @property
    def has_figure(self) -> bool:
        """True if a printed table shows the estimate: with an outcome, or of a model that still learns."""
        return bool(self.value) and (not self.open or self.word == "still learning")


@dataclass(frozen=True)
class Line:
    """Row of the table."""

    name: str
    row: Row
    unit: str  # common unit of all cells, or empty
    quantity: str  # common quantity of all cells, or empty
    boxes: list[Box]  # one for each model; empty if the question is not finished

    @property
    def finished(self) -> bool:
        """True if the row has cells."""
        return bool(self.boxes)

    @property
    def arrow(self) -> str:
        """Arrow up if higher is better, down if lower is; or empty."""
        return ARROWS[self.row.good]

    @property
    def tokens(self) -> str:
        """Number of target tokens that the models were trained on; empty if nothing was trained."""
        seen = [box.finding.tokens for box in self.boxes if box.finding and box.finding.tokens]
        low, high = (f"{each / 1e6:.2f}" for each in (min(seen), max(seen))) if seen else ("", "")
        return f"trained on {low if low == high else f'{low} to {high}'} M target tokens" if seen else ""

    @property
    def figure(self) -> str:
        """Name of the figure that shows the row; or empty."""
        return next((box.finding.figure for box in self.boxes if box.finding and box.finding.figure), "")


def matrix(summary: Summary, models: Sequence[str], results: Sequence[Result]) -> list[Line]:
    """Build the rows that a comparison asks for, and others that were measured.

    Args:
        summary: Summary of the comparison.
        models: Columns.
        results: Finished results.
    """
    finished = {result.experiment: result for result in results}
    return [
        _line(name, row, models, finished.get(row.experiment))
        for name, row in TABLES[summary.task].items()
        if row.experiment in finished or row.experiment in summary.experiments
    ]


def _line(name: str, row: Row, models: Sequence[str], result: Result | None) -> Line:
    if result is None:
        return Line(name, row, "", "", [])
    found: Mapping[str, Verdict] = {finding.model: finding for finding in result.findings if finding.row == name}
    measured = [finding for finding in found.values() if finding.value is not None]
    units, quantities = {finding.unit for finding in measured}, {finding.quantity for finding in measured}
    unit = units.pop() if len(units) == 1 else ""
    quantity = quantities.pop() if len(quantities) == 1 else ""
    return Line(name, row, unit, quantity, [_box(model, found.get(model), unit, row.without) for model in models])


def _box(model: str, finding: Verdict | None, unit: str, without: str) -> Box:
    if finding is None:
        return Box(model, "not measured")
    if finding.failed:
        return Box(model, finding.standing or "failed", verdict=finding.failed, finding=finding)
    word = finding.standing or ("measured" if finding.value is not None else without)
    value, ends = "", ""
    if finding.value is not None:
        value, ends, power = halves(finding.value, finding.low, finding.high)
        if finding.at_least and len({number(end) for end in (finding.low, finding.high) if end is not None}) < 2:
            # of a lower bound, an interval whose ends look the same is not shown
            value, ends, power = number(finding.value), "", ""
        value, ends = f"{value}{power}", f"({ends}){power}" if power and ends else ends
        value = f"≥ {value}" if finding.at_least else value
    own = finding.unit if finding.unit != unit else ""
    return Box(model, word, value, ends, own, describe(finding), steadiness(finding), finding)


def steadiness(finding: Verdict) -> str:
    """Describe in which variations the outcome is the same; empty without variations or without an outcome."""
    return "" if finding.standing in (*OPEN, "undecided") else stays_with(finding.variations)


def stays_with(variations: Mapping[str, bool]) -> str:
    """Describe in which variations an outcome is the same; empty without variations.

    Example:
        >>> stays_with({"half the updates": False, "rate 0.1": True, "rate 0.2": True})
        'same in 2 of 3 variations: rate 0.1, 0.2; different: half the updates'
    """
    if not variations:
        return ""
    kept, lost = ([name for name, stays in variations.items() if stays == wanted] for wanted in (True, False))
    tried = [f"{word}{group_by_name(names)}" for word, names in (("", kept), (_DIFFERENT, lost)) if names]
    return f"same in {len(kept)} of {len(variations)} variations: {'; '.join(tried)}"


def group_by_name(names: Sequence[str], separator: str = ", ") -> str:
    """Join names, and name those that differ only in a number once.

    Example:
        >>> group_by_name(["n = 16", "n = 64", "batch 8"])
        'n = 16, 64, batch 8'
    """
    numbers: dict[str, list[str]] = {}
    for name in names:
        found = re.fullmatch(r"(.* )([\d.,]+)", name)
        numbers.setdefault(found[1] if found else name, []).append(found[2] if found else "")
    return separator.join(what + ", ".join(each) for what, each in numbers.items())


def describe(verdict: Verdict) -> str:
    """Describe how a candidate compares with its rival.

    Returns:
        The rival, the difference with its 95 % interval, the p-value, reasons and further numbers, for example
        `better than lstm: +3.1 BLEU (1.2 to 5.0), p = 0.002 (t-test, Holm); half-life (steps): 4.2`. Empty where
        only the estimate is known.
    """
    compared = []
    if verdict.difference is not None:
        value, ends, power = halves(verdict.difference, verdict.difference_low, verdict.difference_high)
        sign = "+" if verdict.difference > 0 and not verdict.difference_unit.startswith("times") else ""
        compared.append(f"{sign}{value}{power} {verdict.difference_unit}{f' ({ends}){power}' if ends else ''}")
    if verdict.p is not None:
        p = "p ≤ 0.001" if verdict.p <= 0.001 else f"p = {verdict.p:.2g}"
        compared.append(f"{p} ({verdict.test})" if verdict.test else p)
    if verdict.rival and verdict.standing in _BESIDE:
        beside = _BESIDE[verdict.standing].format(verdict.rival)
        compared = [f"{beside}: {', '.join(compared)}" if compared else beside]
    facts = [f"{name}: {value if isinstance(value, str) else brief(value)}" for name, value in verdict.facts.items()]
    return "; ".join([*compared, *verdict.reasons, *facts])


def table_rows(lines: Sequence[Line]) -> Iterator[tuple[str | float | None, ...]]:
    """Yield a row for each cell of the table, with the columns of `HEAD` and all digits; None for missing numbers."""
    for line in lines:
        for box in line.boxes:
            one = box.finding or Verdict(row=line.name, model=box.model)
            yield (
                *(line.name, box.model, box.word, one.value, one.low, one.high, one.unit, one.quantity, line.row.good),
                *(one.rival, one.difference, one.p, "" if one.failed else box.verdict, steadiness(one), one.tokens),
                *(one.failed, line.row.literature),
            )


_PLAIN = str.maketrans(
    {sign: rf"\{sign}" for sign in "#$%&_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "−": "$-$", "–": "--", "×": r"$\times$", "≤": r"$\leq$"}
    | {"≥": r"$\geq$", "\u202f": r"\,", "…": r"\dots{}"}
)
_SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def table_as_latex(lines: Sequence[Line], models: Sequence[str], caption: str) -> str:
    r"""Return the text of a LaTeX `table` with booktabs: values, their intervals, and outcomes."""
    missing = [line.name for line in lines if not line.finished]
    body = [text for line in lines if line.finished for text in (*_latex_rows(line), r"\addlinespace")]
    return "\n".join(
        [
            r"% \usepackage{booktabs}",
            *([f"% not measured yet: {', '.join(missing)}"] if missing else []),
            r"\begin{table}",
            r"\centering\footnotesize\setlength{\tabcolsep}{4pt}",
            rf"\caption{{{escaped(caption)}}}\label{{tab:comparison}}",
            rf"\begin{{tabular}}{{l{'r' * len(models)}}}",
            r"\toprule",
            _latex_row(["", *map(escaped, models)]),
            r"\midrule",
            *body[:-1],
            r"\bottomrule",
            r"\end{tabular}",
            rf"\par\smallskip {escaped(LEGEND)}",
            r"\end{table}",
            "",
        ]
    )


def _latex_rows(line: Line) -> Iterator[str]:
    figures = []
    for box in line.boxes:
        shown = escaped(f"{box.value} {box.unit}".rstrip())
        figures.append(shown if box.has_figure else rf"\textit{{{escaped(box.word)}}}")
    arrow = {"↑": r" $\uparrow$", "↓": r" $\downarrow$"}.get(line.arrow, "")
    yield _latex_row([f"{escaped(line.name)}{arrow}", *figures])
    ends = [escaped(box.ends) for box in line.boxes]
    if line.unit or any(ends):
        yield _latex_row([rf"\quad {escaped(line.unit)}".rstrip(), *ends])
    outcomes = [escaped(box.label) if box.has_figure and box.word != "measured" else "" for box in line.boxes]
    if any(outcomes):
        yield _latex_row([r"\quad", *outcomes])


def _latex_row(cells: Sequence[str]) -> str:
    return rf"{' & '.join(cells)} \\"


def escaped(text: str) -> str:
    """Escape a text for LaTeX."""
    plain = text.translate(_PLAIN)
    return re.sub("[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda power: f"$^{{{power[0].translate(_SUPERSCRIPTS)}}}$", plain)
