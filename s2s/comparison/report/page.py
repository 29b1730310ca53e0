"""Render the report page of a comparison or a reproduction: one HTML file without external resources."""

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from jinja2 import Template
from markupsafe import Markup, escape

from s2s.comparison.plans import TABLES, plan_of, settling
from s2s.comparison.report import claims
from s2s.comparison.report.claims import claim_rows, command_for
from s2s.comparison.report.figures import Drawing, drawn
from s2s.comparison.report.numbers import Sheet, brief, csv_name, duration, figure_sheets, number, table_sheet
from s2s.comparison.report.plots import MARKS, PALETTE
from s2s.comparison.report.table import LEGEND, matrix
from s2s.comparison.reproduced import Reproduced
from s2s.comparison.results import CandidateSummary, Figure, Result, Summary
from s2s.templates import templates

# number of rows above which a table is folded
_LONG = 16
# largest number of figures with the classroom table
_KEY_FIGURES = 6
_HERE = Path(__file__).parent
# beginning of an item of a list, in Markdown
_ITEM = re.compile(r"(?:^|\n)- ")
_MATCHED = {
    "parameters": "Widths are chosen so that the numbers of parameters agree within 5 %, and all train for the same "
    "number of updates.",
    "time": "Widths are chosen so that the numbers of parameters agree within 5 %, and all train for the same time on "
    "this machine, so a faster model trains on more data.",
}

Pictures = Mapping[tuple[str, str], Sequence[Drawing]]
"""By question and figure: the drawing, and the one with linear axes if any axis is logarithmic."""


def page(summary: Summary, models: Sequence[str], results: Sequence[Result], pictures: Pictures) -> str:
    """Render the page of a comparison.

    Args:
        summary: Summary of the comparison.
        models: Candidates, the columns of the classroom table.
        results: Finished results, in order.
        pictures: All drawings.
    """
    lines, rows = matrix(summary, models, results), claim_rows(models, results)
    # numbered as in a paper: the classroom table is the first table, and its figures are the first figures
    known = [(result.experiment, figure.name) for result in results for figure in result.figures]
    named = dict.fromkeys((line.row.experiment, line.figure) for line in lines if line.row.key)
    key = [at for at in named if at in known][:_KEY_FIGURES]
    order = {at: i for i, at in enumerate(dict.fromkeys([*key, *known]), 1)}
    figures = {}
    for result in results:
        for figure in result.figures:
            at = result.experiment, figure.name
            figures[at] = _figure(result, figure, pictures[at], order[at])
    tables = [(result.experiment, table.name) for result in results for table in result.tables]
    # only translation has profiles
    translates = summary.task == "translation"
    equal = f"parameters and {'updates' if summary.match == 'parameters' else 'training time'}"
    brief_facts = (
        f"{summary.profile} profile" if translates else "",
        _seeds_of_all(summary, results),
        f"equal {equal}",
        summary.measured_on(results),
    )
    return _template("report.html").render(
        title=f"Comparison of {_listed(models)}",
        summary=summary,
        lead=f"Measurements of {summary.task}.",
        facts=[
            ("profile", summary.profile) if translates else ("task", summary.task),
            ("seeds", _listed([str(seed) for seed in summary.seeds])),
            ("equal", equal),
            ("total measurement time", duration(summary.seconds)),
            *summary.machine.items(),
        ],
        brief=" · ".join(filter(None, brief_facts)),
        gaps=_gaps(summary, results),
        models=[
            {
                "name": model,
                "mark": MARKS[i % len(MARKS)],
                "colour": f"--model-{i % len(PALETTE)}",
                "traits": next((each.traits for each in summary.contenders if each.model == model), ""),
            }
            for i, model in enumerate(models)
        ],
        claims=rows,
        claim_legend=claims.LEGEND,
        tally=claims.tally(rows),
        device=claims.device_in_words(summary),
        claim_figures={row.claim.name: order.get((row.result.experiment, row.claim.figure)) for row in rows},
        no_claims=claims.explain_absence(summary, results),
        undecided=claims.undecided(summary, results),
        lines=lines,
        legend=LEGEND,
        numbers={line.name: order.get((line.row.experiment, line.figure)) for line in lines},
        shown=key,
        key=[figures[at] for at in key],
        sections=[_section(summary, models, result, figures, tables) for result in results],
        fairness=_fairness(summary, len(tables) + 2),
        style=_read("report.css"),
        script=_read("report.js"),
    )


def reproduction_page(result: Reproduced) -> str:
    """Render the page of a reproduction."""
    pictures = []
    for i, figure in enumerate(result.figures):
        models = list(dict.fromkeys(series.model for series in figure.series if series.model))
        pictures.append({"title": figure.title, "caption": figure.caption} | drawn(figure, models).inline(f"f{i}"))
    return _template("reproduction.html").render(
        result=result,
        pictures=pictures,
        took=duration(result.core_seconds),
        clock=duration(result.seconds),
        expected=" to ".join(duration(seconds) for seconds in result.expected),
        style=_read("report.css"),
    )


def _template(name: str) -> Template:
    surroundings = templates(_HERE)
    surroundings.filters["typeset"] = _typeset
    return surroundings.get_template(name)


def _read(name: str) -> Markup:
    return Markup((_HERE / name).read_text(encoding="utf-8"))


def _gaps(summary: Summary, results: Sequence[Result]) -> dict[str, object]:
    """Return the rows that the table lacks, with reasons."""
    finished = {result.experiment for result in results}
    plan = plan_of(summary.task, summary.profile)
    # rows outside the profile, by the shortest profile that has them
    outside: dict[str, list[str]] = {}
    for name, row in TABLES[summary.task].items():
        if row.experiment not in {*plan.experiments, *summary.experiments}:
            outside.setdefault(settling([row.experiment]), []).append(name)
    return {
        "missing": [name for name in summary.experiments if name not in finished],
        "outside": outside,
        "why": plan.why,
        "unasked": [
            name
            for name, row in TABLES[summary.task].items()
            if row.experiment not in {*summary.experiments, *finished} and name not in chain(*outside.values())
        ],
        "beyond": plan.beyond(summary.experiments),
    }


def _section(
    summary: Summary,
    models: Sequence[str],
    result: Result,
    figures: Mapping[tuple[str, str], object],
    tables: Sequence[tuple[str, str]],
) -> dict[str, object]:
    name = result.experiment
    return {
        "name": name,
        "title": name.replace("-", " ").capitalize(),
        "result": result,
        "rows": [row for row, asked in TABLES[summary.task].items() if asked.experiment == name],
        "method": render_text(result.method),
        "limits": render_text(result.limits),
        "others": [] if result.models == list(models) else result.models,
        "seeds": _seeds(result.seeds),
        "seconds": duration(result.seconds),
        "machines": " and ".join(result.elsewhere(summary)),
        "codes": _listed(result.codes) if result.codes[1:] else "",
        "figures": [figures[name, figure.name] for figure in result.figures],
        "tables": [
            {
                "key": f"table-{name}-{table.name}",
                "number": tables.index((name, table.name)) + 2,
                "sheet": table_sheet(table),
                "csv": f"{name}/{csv_name(result, table)}",
                "long": len(table.rows) > _LONG,
            }
            for table in result.tables
        ],
        "command": command_for(summary.command, name),
    }


def _figure(result: Result, figure: Figure, drawings: Sequence[Drawing], place: int) -> dict[str, object]:
    sides = [
        vars(drawing) | {"way": way} | drawing.inline(f"f{place}{way}")
        for way, drawing in zip(("meant", "linear"), drawings, strict=False)
    ]
    return {
        "at": (result.experiment, figure.name),
        "key": f"figure-{result.experiment}-{figure.name}",
        "number": place,
        "title": figure.title,
        "caption": figure.caption,
        "sides": sides,
        "sheets": figure_sheets(figure),
        "file": f"{result.experiment}/{figure.name}",
        "csv": f"{result.experiment}/{csv_name(result, figure)}",
    }


def _fairness(summary: Summary, next_table: int) -> dict[str, object]:
    candidates = summary.contenders
    counts = [candidate.parameters for candidate in candidates]
    spread = 100 * (max(counts) / min(counts) - 1) if counts and min(counts) else 0.0
    words = {"True": "true", "False": "false", "None": "none"}
    settings = []
    for key in dict.fromkeys(key for candidate in candidates for key in candidate.settings):
        texts = [str(candidate.settings.get(key, "–")) for candidate in candidates]
        settings.append([key, *(words.get(text, text) for text in texts)])
    head = ["setting", *(candidate.model for candidate in candidates)]
    return {
        "matched": _MATCHED[summary.match],
        "spread": f"{number(spread, 2)}\u202f%",
        "tuning": duration(sum(candidate.tuning_seconds for candidate in candidates)),
        "seeds": _seeds(summary.seeds),
        "tried": any(candidate.rates for candidate in candidates),
        "contenders": _candidates_table(candidates),
        "settings": Sheet("Model section of each recipe", head, settings, [False] * len(head)),
        "numbers": (next_table, next_table + 1),
    }


def _candidates_table(candidates: Sequence[CandidateSummary]) -> Sheet:
    rates = sorted({rate for candidate in candidates for rate in candidate.rates}, key=float)
    if not rates:
        few = [[candidate.model, number(candidate.parameters)] for candidate in candidates]
        return Sheet("Candidates", ["model", "parameters"], few, [False, True])
    depths = dict.fromkeys(depth for candidate in candidates for depth in candidate.depths)
    head = ["model", "parameters", "learning rate", "search time"]
    head += [f"validation loss at {_plain(float(rate))}" for rate in rates]
    head += [f"lowest loss with {depth} {'layer' if depth == '1' else 'layers'}" for depth in depths]
    rows = []
    for each in candidates:
        at_end = " (an end of the range)" if each.rates and not each.inside else ""
        row = [each.model, number(each.parameters), _plain(each.learning_rate) + at_end, duration(each.tuning_seconds)]
        for tried, losses in ((rates, each.rates), (depths, each.depths)):
            found = [losses.get(value, "not tried") for value in tried]
            row += ["failed" if loss is None else loss if isinstance(loss, str) else brief(loss) for loss in found]
        rows.append(row)
    title = "Candidates, with the learning rates and depths tried"
    return Sheet(title, head, rows, [False] + [True] * (len(head) - 1))


def _plain(rate: float) -> str:
    """Format a learning rate without an exponent."""
    return f"{rate:.10f}".rstrip("0") if 1e-6 <= rate < 1 else f"{rate:g}"


def render_text(text: str) -> Markup:
    r"""Convert a text with the Markdown of `METHOD.md` to HTML: paragraphs, lists of one level, bold, code.

    Example:
        >>> print(render_text("**Data.** Two sizes:\n- 8\n- 16"))
        <p><b>Data.</b> Two sizes:</p>
        <ul>
        <li>8</li>
        <li>16</li>
        </ul>
    """
    lines: list[str] = []
    for block in re.split(r"\n{2,}", text.strip()):
        lead, *items = (
            re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", str(_typeset(part.strip()))) for part in _ITEM.split(block)
        )
        lines += [f"<p>{lead}</p>"] if lead else []
        lines += ["<ul>", *(f"<li>{item}</li>" for item in items), "</ul>"] if items else []
    return Markup("\n".join(lines))


def _typeset(text: str) -> Markup:
    """Escape a text; tie numbers to percent signs, use minus signs, raise exponents, and mark code."""
    tied = re.sub(r"(?<![\w.-])-(?=\d)", "−", re.sub(r"(?<=\d) (?=%)", "\u202f", text))
    raised = re.sub(r"\^\(?([−+]?(?:\d+(?:\.\d+)?|b\b))\)?", r"<sup>\1</sup>", str(escape(tied)))
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", raised))


def _seeds_of_all(summary: Summary, results: Sequence[Result]) -> str:
    """Return the seeds, or the range of their number where some questions have more than others."""
    # Counts of operations and of bytes do not depend on a seed, so these questions have only one.
    counts = {len(seeds) for seeds in (summary.seeds, *(result.seeds for result in results)) if len(seeds) > 1}
    return _seeds(summary.seeds) if len(counts) < 2 else f"{min(counts)} to {max(counts)} seeds"


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {_listed([str(seed) for seed in seeds])}" if seeds else "no seeds"


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else list(words))
