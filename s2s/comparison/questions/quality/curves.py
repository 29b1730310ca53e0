"""Analyse learning curves: losses at other budgets, and the cost of reaching a loss."""

from collections.abc import Mapping
from itertools import combinations

import numpy as np

from s2s.comparison.reporting import Column, Interval, Runs, axis, figure, series, table
from s2s.comparison.results import Figure, Table, without_precision
from s2s.comparison.spec import MACHINE, BySeed, Measured
from s2s.evaluation.inference import Estimate, holm, mean
from s2s.evaluation.survival import Times, kaplan_meier, log_rank_p

LEVELS = (6.0, 5.0, 4.0, 3.0, 2.5, 2.0, 1.5, 1.0, 0.7, 0.5, 0.3, 0.2)
"""Validation losses, in nats per token, that models are timed to; fixed before anything was measured."""
UNITS = {"updates": "updates", "seconds": "s", "flops": "Tflop"}
"""What a training costs, by kind."""
_TERA = 1e12


def kinds(runs: Runs) -> dict[str, str]:
    """Comparable kinds of training cost with their units; seconds only if one machine ran all."""
    made = {run.get(MACHINE, "") for own in runs.values() for run in own.values()}
    # the precision is the same, and some do not tell it
    machines = set(map(without_precision, made))
    return {kind: unit for kind, unit in UNITS.items() if kind != "seconds" or len(machines) == 1}


def spent(run: Measured, kind: str) -> np.ndarray:
    """Cost of a run at each validation."""
    return np.array(run["tokens"]) * run["flops"] / _TERA if kind == "flops" else np.array(run[kind], dtype=float)


def loss_at(run: Measured, kind: str, budget: float) -> float | None:
    """A run's validation loss when so much was spent, on a line in log cost between two looks; None before the first.

    At the end of the curve it is its last loss: a run is not continued in thought.
    """
    cost = spent(run, kind)
    if budget < cost[0] * (1 - 1e-9):
        return None
    return float(np.interp(np.log(budget), np.log(cost), run["losses"]))


def budgets(runs: Runs) -> dict[str, tuple[str, float]]:
    """Other budgets than the whole training, each with its kind: what the cheapest model's training took on average."""

    def _least(kind: str) -> float:
        return min(float(np.mean([spent(run, kind)[-1] for run in own.values()])) for own in runs.values())

    shares = {"updates": ("half the updates", 2), "seconds": ("at equal time", 1), "flops": ("at equal FLOPs", 1)}
    return {shares[kind][0]: (kind, _least(kind) / shares[kind][1]) for kind in kinds(runs)}


def mean_loss(runs: BySeed, kind: str, budget: float) -> Estimate | None:
    """Over the seeds; None where one has no look so early."""
    losses = [loss_at(run, kind, budget) for run in runs.values()]
    return None if None in losses else mean([loss for loss in losses if loss is not None])


def readings(runs: Runs) -> Table:
    """Each model's loss at the end and at the other budgets."""
    known = budgets(runs)
    columns = [Column("model"), Interval("whole training", "end", 3, "end")]
    for name, (kind, budget) in known.items():
        columns.append(Interval(f"{name} ({budget:.4g} {UNITS[kind]})", name, 3, name))
    rows = [
        {"model": model, "end": mean([run["losses"][-1] for run in own.values()])}
        | {name: mean_loss(own, *each) for name, each in known.items()}
        for model, own in runs.items()
    ]
    return table("readings", "Validation loss (nats per token) at other budgets than the whole training", columns, rows)


def times(runs: BySeed, kind: str, level: float) -> Times:
    """Cost until the validation loss is at most `level`; censored at the whole cost if it never is.

    If the first validation is below the level already, its cost is an upper bound, see `at_first_look`.
    """
    ended, waited = [], []
    for run in runs.values():
        cost, losses = spent(run, kind), np.array(run["losses"])
        below = np.flatnonzero(losses <= level)
        if not len(below):
            waited.append(float(cost[-1]))
            continue
        i = int(below[0])
        if not i:
            ended.append(float(cost[0]))
            continue
        # between two looks the loss is taken to fall on a line in log cost
        at = np.interp(-level, -losses[i - 1 : i + 1], np.log(cost[i - 1 : i + 1]))
        ended.append(float(np.exp(at)))
    return Times(ended, waited)


def at_first_look(runs: BySeed, kind: str, level: float) -> set[float]:
    """Costs in `times` that are upper bounds."""
    return {float(spent(run, kind)[0]) for run in runs.values() if run["losses"][0] <= level}


def half_reach(runs: Runs) -> float | None:
    """The lowest of the levels that at least half of all runs reached; None where they reached none."""
    every = [min(run["losses"]) for own in runs.values() for run in own.values()]
    return min((level for level in LEVELS if np.mean(np.array(every) <= level) >= 0.5), default=None)


def costs(runs: Runs) -> list[Table]:
    """Tables of the cost of reaching each loss, and tests at the loss that half of all runs reach."""
    rows, units = [], kinds(runs)
    for level in LEVELS:
        for model, own in runs.items():
            found = {kind: times(own, kind, level) for kind in units}
            reached = len(found["updates"].ended)
            if reached:
                medians = {kind: kaplan_meier(each).median() for kind, each in found.items()}
                early = {f"{kind} early": at_first_look(own, kind, level) for kind in units}
                rows.append({"level": level, "model": model, "reached": f"{reached} of {len(own)}"} | medians | early)
    columns = [Column("validation loss (nats per token)", "level"), Column("model"), Column("seeds", "reached")]
    for kind, unit in units.items():
        columns += [
            Column(f"median {unit}", lambda row, k=kind: _bounded(_finite(row[k]), row[f"{k} early"])),
            Column(f"low ({unit})", lambda row, k=kind: _low(_finite(row[k]), row[f"{k} early"])),
            Column(f"high ({unit})", lambda row, k=kind: (e := _finite(row[k])) and e.high, 1),
        ]
    title = (
        "What reaching a loss costs: medians over seeds (Kaplan–Meier), ≤ where it was reached before the first look; "
        "empty where more than half never reach it"
    )
    return [table("costs", title, columns, rows), _tests(runs)]


def _bounded(median: Estimate | None, early: set[float]) -> float | str | None:
    """A median as it is shown: with a sign where all that is known is that it took no longer."""
    if median is None:
        return None
    return f"≤ {round(median.value, 1):,g}" if median.value in early else round(median.value, 1)


def _low(median: Estimate | None, early: set[float]) -> float | None:
    """The lower end of its interval; None where that is no more than a bound."""
    return None if median is None or median.low is None or median.low in early else round(median.low, 1)


def _finite(value: Estimate) -> Estimate | None:
    if not np.isfinite(value.value):
        return None
    low, high = (None if end is None or not np.isfinite(end) else end for end in (value.low, value.high))
    return Estimate(value.value, low, high)


def _tests(runs: Runs) -> Table:
    level, pairs, units = half_reach(runs), list(combinations(runs, 2)), kinds(runs)
    columns = [Column("models"), *(Column(f"p ({unit})", kind, 4) for kind, unit in units.items())]
    columns += [Column(f"p ({unit}), of {len(pairs)}", f"{kind} corrected", 4) for kind, unit in units.items()]
    title = f"Log-rank tests of what it costs to reach {level} nats per token; then corrected for all pairs (Holm)"
    if level is None or any(len(own) < 2 for own in runs.values()):
        return table("cost-tests", title, columns, [])
    rows: list[dict[str, object]] = [{"models": f"{b} − {a}"} for a, b in pairs]
    for kind in units:
        found = [log_rank_p(times(runs[a], kind, level), times(runs[b], kind, level)) for a, b in pairs]
        for row, p, corrected in zip(rows, found, holm(found), strict=True):
            row |= {kind: p, f"{kind} corrected": corrected}
    return table("cost-tests", title, columns, rows)


def cost_figures(runs: Runs) -> list[Figure]:
    """Figures of the cost of reaching each loss, and of the runs that have not reached the tested one."""
    shown = []
    for kind, unit in kinds(runs).items():
        lines = []
        for model, own in runs.items():
            medians = {level: _median(own, kind, level) for level in LEVELS}
            known = [level for level in LEVELS if medians[level] is not None]
            lines.append(series(model, model, known, [medians[level] for level in known]))
        axes = (axis("validation loss", "nats per token", log=True), axis("median cost over seeds", unit, log=True))
        caption = (
            "Medians over seeds, while half of them get there; what one sees is how much dearer a better one is. What "
            "was reached before the first look at the validation set is drawn there: it cost no more."
        )
        shown.append(figure(f"cost-{kind}", f"What reaching a loss costs, in {unit}", axes, lines, caption))
    level = half_reach(runs)
    return shown if level is None else [*shown, _survival(runs, level)]


def _median(runs: BySeed, kind: str, level: float) -> float | None:
    found = times(runs, kind, level)
    value = kaplan_meier(found).median().value if found.ended else np.inf
    return value if np.isfinite(value) else None


def _survival(runs: Mapping[str, BySeed], level: float) -> Figure:
    lines = []
    for model, own in runs.items():
        found = times(own, "updates", level)
        x, y = kaplan_meier(found).steps(1.0) if found.ended else ([1.0], [100.0])
        last = max(run["updates"][-1] for run in own.values())
        lines.append(series(model, model, [*x, float(last)], [*y, y[-1]]))
    axes = (axis("updates", log=True), axis("runs that have not reached it", "%"))
    caption = (
        "Kaplan–Meier curves over seeds. A line that ends above 0 has seeds that never got there; one that falls at "
        "the first look got there then or before."
    )
    return figure("survival", f"Which runs have not reached {level:g} nats per token", axes, lines, caption)
