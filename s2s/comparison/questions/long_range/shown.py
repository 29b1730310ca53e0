"""The figures and tables of the long-range experiment."""

from collections.abc import Mapping, Sequence
from operator import itemgetter

import scipy

from s2s.comparison.questions.long_range import capacity
from s2s.comparison.questions.long_range.reach import MARGIN, Models, Part, TaskRuns, differences, half_distance
from s2s.comparison.questions.long_range.sooner import tested
from s2s.comparison.reporting import Column, Interval, axis, figure, gates_table, series, table
from s2s.comparison.results import Figure, Series, Table
from s2s.comparison.spec import Measured
from s2s.evaluation.gates import failed
from s2s.evaluation.inference import mean
from s2s.evaluation.survival import kaplan_meier

FORMS = {"full": "whole model", "head": "linear head"}
"""Of a model, by their names in cells."""
_ENDS = {"median": "value", "low": "low", "high": "high"}


def _name(part: Part) -> str:
    return f"{part.task}, {FORMS[part.form]}"


def curves(of_all: Models) -> Figure:
    """A task's accuracy against distance, with what can be had without doing it."""
    own = next(iter(of_all.values()))
    first = own.any
    places = [float(distance) for distance in first["distances"]]
    shown = [series(m, m, places, [e.accuracy(i) for i in range(len(places))]) for m, e in of_all.items()]
    lines = {"without memory": first["baseline"], first["cheat"]: first["cheating"]}
    shown += [series(how, "", places, [100 * each for each in lines[how]], reference=True) for how in lines]
    shown.append(_end_of_training(own.trained))
    return figure(
        own.part.key,
        f"{first['title'].capitalize()}, {FORMS[own.part.form]}: accuracy against distance",
        (axis("distance", first["unit"], log=places[0] > 0), axis("right answers", "%")),
        shown,
        "What lies beyond the upright line is longer than trained on. Dashed lines are the best answers without memory "
        "and of one who reads but does not do what is asked: a model that is not above them has shown nothing. "
        "Intervals (95 %): Wilson's over all answers or Student's over seeds, whichever is wider.",
    )


def _end_of_training(place: float) -> Series:
    return series("end of training", "", [float(place)] * 2, [0.0, 100.0], reference=True)


def survival(of_all: Models) -> Figure:
    """Seeds that have not solved the task yet, against updates (Kaplan & Meier 1958)."""
    own, shown = next(iter(of_all.values())), []
    for model, each in of_all.items():
        waited = each.times()
        x, y = kaplan_meier(waited).steps(0.0) if waited.ended else ([0.0], [100.0])
        if waited.waited:
            # censored seeds: nobody knows more than that they had not solved it by then
            x.append(float(max(waited.waited)))
            y.append(y[-1])
        label = f"{model} ({len(waited.waited)} of {len(waited)} never)" if waited.waited else model
        shown.append(series(label, model, x, y))
    shown.append(_end_of_training(own.any["budget"]))
    return figure(
        f"{own.part.key}-solved",
        f"{own.any['title'].capitalize()}, {FORMS[own.part.form]}: seeds that have not solved it yet",
        (axis("updates"), axis("seeds not there yet", "%")),
        shown,
        "Solved: 99 % of the held-out answers are right, at the distances trained on. A curve that ends above 0 has "
        "seeds of which it is only known that they took longer (censored).",
    )


def summary(trials: Sequence[TaskRuns]) -> Table:
    """Every task, form and model in a line."""

    def _median(own: TaskRuns, end: str) -> float | None:
        waited = own.times()
        found = getattr(kaplan_meier(waited).median(), end) if waited.ended else float("inf")
        return None if found == float("inf") else found

    columns = [
        Column("task", lambda own: own.part.task),
        Column("form", lambda own: FORMS[own.part.form]),
        Column("model", lambda own: own.model),
        Column("seeds", lambda own: len(own.by_seed)),
        Interval("wrong at the shortest distance (%)", lambda own: own.error(), 1, "error"),
        Interval("D50", lambda own: own.reach(), 1, "D50"),
        Column("seeds beyond the longest distance", lambda own: own.beyond()),
        Column("longest distance", lambda own: own.max_distance),
        Column("trained to", lambda own: own.trained),
        Column("right there (%)", lambda own: own.accuracy(own.any["trained"] - 1).value, 1),
        Column("by cheating there (%)", lambda own: 100 * own.any["cheating"][own.any["trained"] - 1], 1),
        Column("solved", lambda own: own.num_solved()),
        *(Column(f"updates to solve, {name}", lambda own, e=end: _median(own, e)) for name, end in _ENDS.items()),
        Column("gates closed", lambda own: ", ".join(gate.name for gate in failed(own.gates()))),
    ]
    return table(
        "tasks", "Every task, form and model: errors near, distance reached, time to the solution", columns, trials
    )


def distances(trials: Mapping[Part, Models]) -> Table:
    """Every pair of models, task by task and form by form: by how many doublings one reaches further."""
    rows = []
    for part, of_all in trials.items():
        pairs = differences(of_all)
        for (a, b), pair in pairs.items():
            seen = pair.detectable(level=pairs.level)
            # seeds that reach beyond the longest distance lie there together, whatever they could do
            beyond = any(of_all[model].beyond() for model in (a, b))
            equal = None if beyond else pair.equivalence_p(MARGIN)
            rows.append((part.task, FORMS[part.form], f"{b} − {a}", pair, pairs.p[a, b], equal, seen))
    columns = [
        *("task", "form", "models"),
        Interval("doublings of D50", itemgetter(3), 2),
        Column("p (log-rank, Holm within the task)", itemgetter(4), 4),
        Column(f"p (equal within {MARGIN:g})", itemgetter(5), 4),
        Column("seen in 80 %", itemgetter(6), 2),
    ]
    return table("distances", "Differences between models in how far they reach", columns, rows)


def times(trials: Mapping[Part, Models]) -> Table:
    """Every pair of models whose rates lie inside their grids: whether one solves the task sooner."""
    rows = []
    for part, of_all in trials.items():
        for pair, (p, after) in tested(of_all).items():
            both = [of_all[model] for model in pair]
            counts = [f"{each.num_solved()} of {len(each.by_seed)}" for each in both]
            seeds = [len(each.by_seed) for each in both]
            least = (1 if seeds[0] != seeds[1] else 2) / scipy.special.comb(sum(seeds), seeds[0])
            rows.append((part.task, FORMS[part.form], ", ".join(pair), *counts, p, after, least))
    columns = [
        *("task", "form", "models", "solved by the first", "by the second"),
        Column("p (log-rank)", itemgetter(5), 4),
        Column("p (Holm within the task)", itemgetter(6), 4),
        Column("least p that so few seeds can give", itemgetter(7), 4),
    ]
    return table("solved", "Who solves a task sooner: log-rank tests, unsolved seeds censored", columns, rows)


def gates(trials: Sequence[TaskRuns]) -> Table:
    """Table of validity checks."""
    closed = {(_name(own.part), own.model): own.gates() for own in trials}
    return gates_table("a model before it is judged", closed, ("task", "model", "gate"))


def rates(trials: Sequence[TaskRuns]) -> Table:
    """Table of the learning rates that were tried."""

    def _said(tried: Measured) -> str:
        if tried["loss"] is None:
            return "failed"
        if tried["solved"]:
            return f"solved at {tried['solved']:,}"
        return f"{tried['loss']:.3f} at {tried['updates']:,}{'' if tried['left chance'] else ', at chance'}"

    rows = [
        (_name(own.part), own.model, rate, _said(tried), own)
        for own in trials
        if own.rates
        for rate, tried in own.rates["tried"].items()
    ]
    columns = [
        *("task", "model", "rate"),
        Column("loss (nats per piece)", itemgetter(3)),
        Column("chosen", lambda row: "yes" if float(row[2]) == row[4].any["rate"] else ""),
    ]
    return table("rates", "Which learning rates were tried, on a seed of their own", columns, rows)


def runs(trials: Sequence[TaskRuns]) -> Table:
    """Every training."""
    columns = [
        *map(Column, ("task", "model", "seed", "parameters")),
        Column("width", lambda run: run["settings"].get("width")),
        Column("rate", lambda run: f"{run['rate']:g}"),
        *map(Column, ("updates", "solved")),
        Column("loss at the end (nats per piece)", lambda run: run["looks"][-1][1] if run["looks"] else None, 4),
        Column("D50", lambda run: half_distance(run)[0], 1),
        Column("beyond the longest", lambda run: "yes" if half_distance(run)[1] else ""),
        Column("CPU seconds", "seconds", 1),
    ]
    rows = (
        {"task": _name(own.part), "model": own.model, "seed": seed, **run}
        for own in trials
        for seed, run in own.by_seed.items()
    )
    return table("runs", "Every training", columns, rows)


def capacity_figure(runs: Sequence[Measured]) -> Figure:
    """Bits copied against the numbers that they are read from."""
    shown = []
    for model in dict.fromkeys(run["model"] for run in runs):
        own = [run for run in runs if run["model"] == model]
        widths = dict.fromkeys(run["width"] for run in own)
        points = [
            (mean([capacity.numbers(r) for r in at]).value, mean([capacity.copied(r) * r["symbol"] for r in at]))
            for at in ([run for run in own if run["width"] == width] for width in widths)
        ]
        label = f"{model} (a vector a symbol)" if own[0]["attention"] else model
        shown.append(series(label, model, [x for x, _ in points], [y for _, y in points]))
    ends = [min((r["width"] for r in runs), default=1), max((capacity.numbers(r) for r in runs), default=1)]
    if runs:
        shown.append(series("one bit a number", "", [float(e) for e in ends], [float(e) for e in ends], reference=True))
    return figure(
        capacity.NAME,
        "How many bits go through what the decoder reads: random symbols copied without a mistake in 95 % of the cases",
        (axis("numbers that the decoder gets", log=True), axis("bits copied", log=True)),
        shown,
        "A model without attention gets one vector however long the source is; with attention it gets one for each "
        f"symbol. At most {capacity.LENGTHS[-1]} symbols of 4 bits were tried: a curve that is level there knows more.",
    )


def capacity_table(runs: Sequence[Measured]) -> Table:
    """Every measurement in bits."""
    columns = [
        *map(Column, ("model", "width", "seed")),
        Column("numbers that the decoder gets", capacity.numbers),
        Column("symbols copied", capacity.copied),
        Column("bits copied", lambda run: capacity.copied(run) * run["symbol"]),
        Column("bits a number", lambda run: capacity.copied(run) * run["symbol"] / capacity.numbers(run), 2),
        Column("bits that certainly went through", capacity.conveyed, 1),
        Column("rate", lambda run: f"{run['rate']:g}"),
        Column("rate inside", lambda run: "yes" if run["inside"] else "no"),
        Column("updates"),
        Column("solved", lambda run: run["solved"]),
        Column("state", capacity.state),
        Column("CPU seconds", "seconds", 1),
    ]
    return table(capacity.NAME, "The bottleneck in bits: symbols of 4 bits, copied", columns, runs)
