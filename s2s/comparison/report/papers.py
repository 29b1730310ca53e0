"""The classroom table for papers and for other programs: LaTeX with booktabs, and CSV with all digits."""

import re
from collections.abc import Iterator, Sequence

from s2s.comparison.report.matrix import LEGEND, Box, Line, steadiness
from s2s.comparison.report.numbers import csv_text

CSV, TEX = "table.csv", "table.tex"
Cells = tuple[str | float | None, ...]
HEAD = (
    *(
        "row",
        "model",
        "standing",
        "value",
        "low",
        "high",
        "unit",
        "quantity",
        "good",
        "rival",
        "difference",
        "p",
        "verdict",
        "stays",
    ),
    *("target tokens", "failed", "others found"),
)
_SIGNS = {
    **{"▲": r"$\blacktriangle$", "▼": r"$\blacktriangledown$", "=": "$=$"},
    **{"~": r"$\sim$", "△": r"$\vartriangle$", "▽": r"$\triangledown$", "≈": r"$\approx$"},
}
_PLAIN = str.maketrans(
    {
        **{sign: rf"\{sign}" for sign in "#$%&_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "−": "$-$",
        "–": "--",
        "×": r"$\times$",
        "≤": r"$\leq$",
        "≥": r"$\geq$",
        "\u202f": r"\,",
        "…": r"\dots{}",
    }
)
_SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def table_as_csv(lines: Sequence[Line]) -> str:
    """A line for each model in each row, with all digits."""
    return csv_text(HEAD, table_rows(lines))


def table_rows(lines: Sequence[Line]) -> Iterator[Cells]:
    """The same as values, by `HEAD`; None where there is no number."""
    return (_cells(line, box) for line in lines for box in line.boxes)


def _cells(line: Line, box: Box) -> Cells:
    one = box.finding
    figures = (one.value, one.low, one.high, one.unit, one.quantity) if one else (None, None, None, "", "")
    beside = (one.rival, one.difference, one.p) if one else ("", None, None)
    stays, tokens, failed = (steadiness(one), one.tokens, one.failed) if one else ("", None, "")
    said = "" if failed else box.verdict
    return (
        *(line.name, box.model, box.word, *figures, line.row.good, *beside, said),
        *(stays, tokens, failed, line.row.literature),
    )


def table_as_latex(lines: Sequence[Line], models: Sequence[str], caption: str) -> str:
    r"""A `table` with booktabs: two lines a row, figures above their intervals; it needs `amssymb`, too."""
    missing = [line.name for line in lines if not line.finished]
    body = [text for line in lines if line.finished for text in (*_rows(line), r"\addlinespace")]
    return "\n".join(
        [
            r"% \usepackage{booktabs,amssymb}",
            f"% {LEGEND}",
            *([f"% not measured yet: {', '.join(missing)}"] if missing else []),
            r"\begin{table}",
            r"\centering\footnotesize\setlength{\tabcolsep}{4pt}",
            rf"\caption{{{escaped(caption)}}}",
            rf"\begin{{tabular}}{{l{'r' * len(models)}}}",
            r"\toprule",
            _row(["", *map(escaped, models)]),
            r"\midrule",
            *body[:-1],
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _rows(line: Line) -> Iterator[str]:
    arrow = {"↑": r" $\uparrow$", "↓": r" $\downarrow$"}.get(line.arrow, "")
    yield _row([f"{escaped(line.name)}{arrow}", *(_figure(box) for box in line.boxes)])
    ends = [escaped(box.ends) for box in line.boxes]
    if line.unit or any(ends):
        yield _row([rf"\quad {escaped(line.unit)}".rstrip(), *ends])


def _figure(box: Box) -> str:
    if box.open or not box.value:
        return rf"\textit{{{escaped(box.word)}}}"
    value = escaped(f"{box.value} {box.unit}".rstrip())
    return f"{value} {_SIGNS[box.sign]}" if box.sign in _SIGNS else value


def _row(cells: Sequence[str]) -> str:
    return rf"{' & '.join(cells)} \\"


def escaped(text: str) -> str:
    """A text as LaTeX takes it."""
    plain = text.translate(_PLAIN)
    return re.sub("[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda power: f"$^{{{power[0].translate(_SUPERSCRIPTS)}}}$", plain)
