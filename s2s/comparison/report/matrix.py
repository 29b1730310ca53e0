"""The classroom table as a matrix of verdicts: what the page, the files for papers and README print of it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from s2s.comparison.plans import TABLES, Row, plan_of, settling
from s2s.comparison.report.numbers import brief, halves, titled
from s2s.comparison.results import Result, Summary, Verdict

# what stands beside the word of a standing, so that a reader need not tell colours apart
SIGNS = {
    **{"better": "▲", "worse": "▼", "tie": "=", "undecided": "~"},
    **{"still learning": "…", "not measurable": "?", "measured": "·"},
}
# the same where the verdict does not keep in more than a fifth of its variations
HOLLOW = {"better": "△", "worse": "▽", "tie": "≈"}
KEEPS = 0.8
# what a table says below of its signs
LEGEND = (
    "▲ better and ▼ worse than the best of the others are tested, = equal is proven by a test of its own, ~ is "
    "neither: no difference from the best of the others can be seen; in counts, in which chance has no part, ▲ and ▼ "
    "are a difference of more than 5 %, = is one of 5 % at most, by convention; "
    "chains of steps that do not grow with the length are equal, too. △, ▽ and ≈ are the same, but change with more "
    "than a fifth of the other choices that were tried."
)
ARROWS = {"high": "↑", "low": "↓", "": ""}
# those that are no verdicts: grey
OPEN = ("still learning", "not measurable", "failed", "not measured")
# of which finding a row's sentence is
_FIRST = ("better", "tie", "measured", "undecided", "worse")


@dataclass(frozen=True)
class Box:
    """One model in one row."""

    model: str
    word: str  # its standing, or why it has none
    value: str = ""  # its figure; empty where there is none
    ends: str = ""  # of the figure's interval
    unit: str = ""  # where it is not the row's
    verdict: str = ""  # in words, or why it failed
    steady: str = ""  # of how many other choices the verdict survives, and which it does not
    finding: Verdict | None = None  # what it is made from

    @property
    def sign(self) -> str:
        """Symbol of the outcome; hollow if it changes under other choices."""
        return SIGNS.get(self.word, "") if self.keeps else HOLLOW[self.word]

    @property
    def keeps(self) -> bool:
        """True unless the outcome changes in more than a fifth of the variations."""
        stays = list(self.finding.variations.values()) if self.finding and self.word in HOLLOW else []
        return not stays or sum(stays) >= KEEPS * len(stays)

    @property
    def stays(self) -> str:
        """The first half of `steady`, and what it does not stay with."""
        count, _, tried = self.steady.partition(": ")
        return f"{count}: not with{tried.partition('not with')[2]}" if "not with" in tried else count

    @property
    def open(self) -> bool:
        """True if there is neither an outcome nor an estimate to build on."""
        one = self.finding
        return self.word in OPEN or (one is not None and one.value is None and not one.standing)


@dataclass(frozen=True)
class Line:
    """A row of the matrix."""

    name: str
    row: Row
    unit: str  # of all its figures; empty where they have none, or several
    quantity: str  # what all its figures are; likewise
    boxes: list[Box]  # of all models, in their order; empty where the experiment is not finished

    @property
    def finished(self) -> bool:
        """True if there is anything to show."""
        return bool(self.boxes)

    @property
    def arrow(self) -> str:
        """Return an arrow that says whether high or low values are good; empty if neither."""
        return ARROWS[self.row.good]

    @property
    def tokens(self) -> str:
        """After how many target tokens it was measured; empty where nothing was learned."""
        seen = [box.finding.tokens for box in self.boxes if box.finding and box.finding.tokens]
        low, high = (f"{each / 1e6:.2f}" for each in (min(seen), max(seen))) if seen else ("", "")
        return f"after {low if low == high else f'{low} to {high}'} M target tokens" if seen else ""

    @property
    def figure(self) -> str:
        """Name of the figure that shows it; empty where there is none."""
        return next((box.finding.figure for box in self.boxes if box.finding and box.finding.figure), "")

    @property
    def sentence(self) -> str:
        """One sentence on the row: the outcome of its best candidate, or the reason why there is none."""
        said = [box for box in self.boxes if box.verdict]
        if not said:
            return ""
        if len({box.verdict for box in said}) == 1:
            return said[0].verdict if len(said) > 1 else f"{said[0].model}: {said[0].verdict}"
        best = min(said, key=self._order)
        return f"{best.model}: {best.verdict}"

    def _order(self, box: Box) -> tuple[int, float]:
        """The best standing first, then the best figure."""
        place = _FIRST.index(box.word) if box.word in _FIRST else len(_FIRST)
        value = box.finding.value if box.finding else None
        return place, 0.0 if value is None or not self.row.good else -value if self.row.good == "high" else value


def matrix(summary: Summary, models: Sequence[str], results: Sequence[Result]) -> list[Line]:
    """The rows that a comparison asks for, and others that were found."""
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
    # what is the same in all cells is said once
    units, quantities = {finding.unit for finding in measured}, {finding.quantity for finding in measured}
    unit = units.pop() if len(units) == 1 else ""
    quantity = quantities.pop() if len(quantities) == 1 else ""
    return Line(name, row, unit, quantity, [_box(model, found.get(model), unit, row.without) for model in models])


def _box(model: str, finding: Verdict | None, unit: str, without: str) -> Box:
    if finding is None:
        return Box(model, "not measured")
    if finding.failed:
        return Box(model, "failed", verdict=finding.failed, finding=finding)
    word = finding.standing or ("measured" if finding.value is not None else without)
    value, ends = "", ""
    if finding.value is not None:
        value, ends, power = halves(finding.value, finding.low, finding.high)
        # where both ends are the bound, they say nothing more
        ends = "" if finding.at_least and finding.low == finding.high else ends
        value, ends = f"{value}{power}", f"({ends}){power}" if power and ends else ends
        value = f"≥ {value}" if finding.at_least else value
    own = finding.unit if finding.unit != unit else ""
    return Box(model, word, value, ends, own, describe(finding), steadiness(finding), finding)


def steadiness(finding: Verdict) -> str:
    """`stays in 1 of 2: with another rate; not with half the updates`.

    Empty where nothing else was tried, or where there is no verdict that could stay.
    """
    if not finding.variations or finding.standing in (*OPEN, "undecided"):
        return ""
    kept, lost = ([name for name, stays in finding.variations.items() if stays == wanted] for wanted in (True, False))
    tried = [f"{word} {_together(names)}" for word, names in (("with", kept), ("not with", lost)) if names]
    return f"stays in {len(kept)} of {len(finding.variations)}: {'; '.join(tried)}"


def _together(names: Sequence[str]) -> str:
    """`n = 16, 64, batch 8`: what differs in its number alone is named once."""
    numbers: dict[str, list[str]] = {}
    for name in names:
        found = re.fullmatch(r"(.* )([\d.,]+)", name)
        numbers.setdefault(found[1] if found else name, []).append(found[2] if found else "")
    return ", ".join(what + ", ".join(each) for what, each in numbers.items())


def heading(line: Line) -> str:
    """Quantity of a row, with its unit."""
    return titled(line.quantity, line.unit)


def omitted_rows(summary: Summary) -> tuple[dict[str, list[str]], str]:
    """Rows that the comparison's profile does not ask for, by the shortest that does; and why."""
    plan = plan_of(summary.task, summary.profile)
    asked = {*plan.experiments, *summary.experiments}
    rows: dict[str, list[str]] = {}
    for name, row in TABLES[summary.task].items():
        if row.experiment not in asked:
            rows.setdefault(settling([row.experiment]), []).append(name)
    return rows, plan.why


_BESIDE = {
    "better": "better than {}",
    "worse": "worse than {}",
    "tie": "equal to {}",
    "undecided": "no difference from {} shown",
    "": "beside {}",
}


def describe(verdict: Verdict) -> str:
    """Describe how a candidate compares with its rival.

    Returns:
        The rival, the difference with its 95 % interval, the p-value, reasons and further numbers, for example
        `better than lstm: +3.1 BLEU (1.2 to 5.0), p = 0.002 (t-test, Holm); half-life (steps): 4.2`. Empty where
        nothing is known beside the estimate.
    """
    compared = [text for text in (_difference(verdict), _p(verdict)) if text]
    if verdict.rival and verdict.standing in _BESIDE:
        beside = _BESIDE[verdict.standing].format(verdict.rival)
        compared = [f"{beside}: {', '.join(compared)}" if compared else beside]
    facts = [f"{name}: {value if isinstance(value, str) else brief(value)}" for name, value in verdict.facts.items()]
    return "; ".join([*compared, *verdict.reasons, *facts])


def _difference(verdict: Verdict) -> str:
    if verdict.difference is None:
        return ""
    value, ends, power = halves(verdict.difference, verdict.difference_low, verdict.difference_high)
    ratio = verdict.difference_unit.startswith("times")
    sign = "+" if verdict.difference > 0 and not ratio else ""
    return f"{sign}{value}{power} {verdict.difference_unit}{f' ({ends}){power}' if ends else ''}"


def _p(verdict: Verdict) -> str:
    if verdict.p is None:
        return ""
    p = "p ≤ 0.001" if verdict.p <= 0.001 else f"p = {verdict.p:.2g}"
    return f"{p} ({verdict.test})" if verdict.test else p
