"""The page: everything that a comparison found, in one file that needs nothing else."""

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from markupsafe import Markup, escape

from s2s.comparison.plans import TABLES, plan_of
from s2s.comparison.report.figures import Drawing
from s2s.comparison.report.numbers import Sheet, brief, csv_name, duration, figure_sheets, number, table_sheet
from s2s.comparison.report.plots import MARKS, PALETTE
from s2s.comparison.report.table import LEGEND, Line, matrix, omitted_rows
from s2s.comparison.results import CandidateSummary, Figure, Result, Summary
from s2s.templates import templates

# so many rows of a table are shown without being asked for
_LONG = 16
# so many figures stand beside the table
_KEY = 6
_HERE = Path(__file__).parent
_MATCHED = {
    "parameters": "Widths are solved so that the numbers of parameters agree within 5 %, and all train for the same "
    "number of updates.",
    "time": "Widths are solved so that the numbers of parameters agree within 5 %, and all train for the same time on "
    "this machine, so a faster model sees more data.",
}

# by experiment and figure: as it is meant, and with linear axes where these differ
Pictures = Mapping[tuple[str, str], Sequence[Drawing]]
# likewise: what the template shows of them
Figures = Mapping[tuple[str, str], Mapping[str, object]]


def page(summary: Summary, models: Sequence[str], results: Sequence[Result], pictures: Pictures) -> str:
    """The whole page as HTML: a table whose columns are the models, and the finished experiments in their order."""
    surroundings = templates(_HERE)
    surroundings.filters["typeset"] = typeset
    lines = matrix(summary, models, results)
    counter = _Counter(results, _key(lines, results))
    figures = {
        (result.experiment, figure.name): _figure(result, figure, pictures[result.experiment, figure.name], counter)
        for result in results
        for figure in result.figures
    }
    return surroundings.get_template("report.html").render(
        title=f"{_listed(models)}, compared",
        summary=summary,
        lead="The classroom table" if summary.task == "translation" else summary.task.capitalize(),
        facts=_facts(summary),
        brief=_brief(summary, results),
        gaps=_gaps(summary, results),
        models=[
            {"name": model, "mark": MARKS[i % len(MARKS)], "colour": f"--model-{i % len(PALETTE)}"}
            for i, model in enumerate(models)
        ],
        lines=lines,
        legend=LEGEND,
        numbers={line.name: counter.figures.get((line.row.experiment, line.figure)) for line in lines},
        shown=counter.key,
        key=[figures[at] for at in counter.key],
        sections=[_section(summary, models, result, figures, counter) for result in results],
        fairness=_fairness(summary, counter),
        style=Markup((_HERE / "report.css").read_text(encoding="utf-8")),
        script=Markup((_HERE / "report.js").read_text(encoding="utf-8")),
    )


def command_for(command: str, experiment: str) -> str:
    """The comparison's command, asking for one experiment alone."""
    kept, words = [], iter(shlex.split(command))
    for word in words:
        if word == "--experiment":
            next(words, None)
        elif not word.startswith("--experiment="):
            kept.append(word)
    return shlex.join([*kept, "--experiment", experiment])


class _Counter:
    """Numbers of figures and tables, as a paper counts them; the matrix is the first table, key figures come first."""

    def __init__(self, results: Sequence[Result], key: Sequence[tuple[str, str]]) -> None:
        figures = [(result.experiment, figure.name) for result in results for figure in result.figures]
        tables = [(result.experiment, table.name) for result in results for table in result.tables]
        self.key = key
        self.figures = {at: i for i, at in enumerate(dict.fromkeys([*key, *figures]), 1)}
        self.tables = {at: i for i, at in enumerate(tables, 2)}
        self.next_table = len(tables) + 2


def _key(lines: Sequence[Line], results: Sequence[Result]) -> list[tuple[str, str]]:
    """The figures that stand beside the table, by experiment and name."""
    there = {(result.experiment, figure.name) for result in results for figure in result.figures}
    named = dict.fromkeys((line.row.experiment, line.figure) for line in lines if line.row.key)
    return [at for at in named if at in there][:_KEY]


def _gaps(summary: Summary, results: Sequence[Result]) -> dict[str, object]:
    """Rows that the table lacks, and why."""
    finished = {result.experiment for result in results}
    outside, why = omitted_rows(summary)
    absent = [
        name
        for name, row in TABLES[summary.task].items()
        if row.experiment not in {*summary.experiments, *finished} and name not in chain(*outside.values())
    ]
    return {
        "missing": [name for name in summary.experiments if name not in finished],
        "outside": outside,
        "why": why,
        "unasked": absent,
        "beyond": plan_of(summary.task, summary.profile).beyond(summary.experiments),
    }


def _section(
    summary: Summary, models: Sequence[str], result: Result, figures: Figures, counter: _Counter
) -> dict[str, object]:
    name = result.experiment
    return {
        "name": name,
        "title": name.replace("-", " ").capitalize(),
        "result": result,
        "rows": [row for row, asked in TABLES[summary.task].items() if asked.experiment == name],
        "method": _paragraphs(result.method),
        "limits": _paragraphs(result.limits),
        "others": [] if result.models == list(models) else result.models,
        "seeds": _seeds(result.seeds),
        "seconds": duration(result.seconds),
        "machines": " and ".join(result.elsewhere(summary)),
        "codes": _listed(result.codes) if result.codes[1:] else "",
        "figures": [figures[name, figure.name] for figure in result.figures],
        "tables": [
            {
                "key": f"table-{name}-{table.name}",
                "number": counter.tables[name, table.name],
                "sheet": table_sheet(table),
                "csv": f"{name}/{csv_name(result, table)}",
                "long": len(table.rows) > _LONG,
            }
            for table in result.tables
        ],
        "command": command_for(summary.command, name),
    }


def _figure(result: Result, figure: Figure, ways: Sequence[Drawing], counter: _Counter) -> dict[str, object]:
    sides, place = [], counter.figures[result.experiment, figure.name]
    for way, side in zip(("meant", "linear"), ways, strict=False):
        sides.append(vars(side) | {"way": way} | side.inline(f"f{place}{way}"))
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


def _fairness(summary: Summary, counter: _Counter) -> dict[str, object]:
    contenders, first = summary.contenders, counter.next_table
    counts = [candidate.parameters for candidate in contenders]
    spread = 100 * (max(counts) / min(counts) - 1) if counts and min(counts) else 0.0
    return {
        "matched": _MATCHED[summary.match],
        "spread": f"{number(spread, 2)}\u202f%",
        "tuning": duration(sum(candidate.tuning_seconds for candidate in contenders)),
        "seeds": _seeds(summary.seeds),
        "tried": any(candidate.rates for candidate in contenders),
        "contenders": _candidates_table(contenders),
        "settings": _settings(contenders),
        "numbers": (first, first + 1),
    }


def _candidates_table(contenders: Sequence[CandidateSummary]) -> Sheet:
    rates = sorted({rate for candidate in contenders for rate in candidate.rates}, key=float)
    if not rates:
        few = [[candidate.model, number(candidate.parameters)] for candidate in contenders]
        return Sheet("Contenders", ["model", "parameters"], few, [False, True])
    head = ["model", "parameters", "learning rate chosen", "time to choose it"]
    rows = [
        [
            candidate.model,
            number(candidate.parameters),
            _plain(candidate.learning_rate)
            + (" (an end of what was tried)" if candidate.rates and not candidate.inside else ""),
            duration(candidate.tuning_seconds),
            *(_loss(candidate.rates, rate) for rate in rates),
        ]
        for candidate in contenders
    ]
    head += [f"validation loss at {_plain(float(rate))}" for rate in rates]
    tried = dict.fromkeys(depth for candidate in contenders for depth in candidate.depths)
    if tried:
        head += [f"best with {depth} {'layer' if depth == '1' else 'layers'}" for depth in tried]
        for row, candidate in zip(rows, contenders, strict=True):
            row += [_loss(candidate.depths, depth) for depth in tried]
    title = "Contenders, and the learning rates and depths tried for each"
    return Sheet(title, head, rows, [False] + [True] * (len(head) - 1))


def _loss(losses: Mapping[str, float | None], key: str) -> str:
    loss = losses.get(key, "not tried")
    return "failed" if loss is None else loss if isinstance(loss, str) else brief(loss)


def _settings(contenders: Sequence[CandidateSummary]) -> Sheet:
    words = {"True": "true", "False": "false", "None": "none"}
    keys = dict.fromkeys(key for candidate in contenders for key in candidate.settings)
    each = ([str(candidate.settings.get(key, "–")) for candidate in contenders] for key in keys)
    rows = [[key, *(words.get(text, text) for text in texts)] for key, texts in zip(keys, each, strict=True)]
    head = ["setting", *(candidate.model for candidate in contenders)]
    return Sheet("Each model's section of the recipe", head, rows, [False] * len(head))


def _plain(rate: float) -> str:
    """A learning rate as one types it."""
    return f"{rate:.10f}".rstrip("0") if 1e-6 <= rate < 1 else f"{rate:g}"


def _facts(summary: Summary) -> list[tuple[str, str]]:
    """Key facts of the comparison."""
    return [
        # the sizes of another task are its recipe's own
        ("profile", summary.profile) if summary.task == "translation" else ("task", summary.task),
        ("seeds", _listed([str(seed) for seed in summary.seeds])),
        ("made equal", "parameters and updates" if summary.match == "parameters" else "parameters and training time"),
        ("measurements took, added up", duration(summary.seconds)),
        *summary.machine.items(),
    ]


def _brief(summary: Summary, results: Sequence[Result]) -> str:
    """The same in a line, as far as it matters to whom only looks."""
    named = [f"{summary.profile} profile"] if summary.task == "translation" else []
    equal = "equal parameters and updates" if summary.match == "parameters" else "equal parameters and training time"
    return " · ".join([*named, _seeds(summary.seeds), equal, *filter(None, [summary.measured_on(results)])])


def _paragraphs(text: str) -> list[str]:
    return [part.strip() for part in text.split("\n\n") if part.strip()]


def typeset(text: str) -> Markup:
    """A number and its percent sign stay together, a minus is as long as a plus, exponents are raised, code is code."""
    tied = re.sub(r"(?<![\w.-])-(?=\d)", "−", re.sub(r"(?<=\d) (?=%)", "\u202f", text))
    # what was in the text is escaped, and only then does it get tags
    raised = re.sub(r"\^\(?([−+]?(?:\d+(?:\.\d+)?|b\b))\)?", r"<sup>\1</sup>", str(escape(tied)))
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", raised))


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {_listed([str(seed) for seed in seeds])}" if seeds else "no seeds"


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else list(words))
