"""Analyse the accuracy of a Transformer on strings longer than the training strings, by positional encoding."""

from collections.abc import Mapping, Sequence
from typing import get_args

from s2s.comparison.claims import Pair, claim_numbers, decide, describe_each
from s2s.comparison.paired_tests import percent
from s2s.comparison.questions.length_generalization.plan import PositionsPlan
from s2s.comparison.reporting import Column, Interval, axis, figure, filled, series, table, verdict
from s2s.comparison.results import Claim, Figure, Table, Verdict
from s2s.comparison.spec import Analysis, Candidate, Trial
from s2s.comparison.task_question import (
    MASTERED,
    Mastery,
    Models,
    TaskResult,
    accuracy_figure,
    pairs_table,
    runs_table,
)
from s2s.comparison.task_training import Ending, Rates
from s2s.evaluation.differences import paired
from s2s.evaluation.gates import Assessment
from s2s.evaluation.inference import Estimate

ROW = "strings longer than trained on"
MARGIN = 100 * (1 - MASTERED)
"""Points of accuracy that a model which generalizes may lose."""
_FIGURE = "endings"
# Names in a cell of the table of claims, where "learned" alone would be ambiguous.
_NAMES = {"learned": "learned positions", "none": "no positions"}


def analyse(
    candidate: Candidate | None, measured: Mapping[Trial, TaskResult | Rates], plans: Sequence[PositionsPlan]
) -> Analysis:
    """Compare the accuracy at the largest size with that at the largest training size, by positional encoding.

    Args:
        candidate: The candidate that was trained; None if no candidate has a choice of positional encodings.
        measured: Measurements.
        plans: Plans by task and positional encoding; the first task decides.
    """
    results = {trial: each for trial, each in measured.items() if isinstance(each, TaskResult)}
    found: dict[str, dict[str, Mastery]] = {}
    longer: dict[str, Mastery] = {}
    for plan in plans:
        if own := _select_part(results, plan.part(plan.width)):
            found.setdefault(plan.task.name, {})[plan.positions] = own
        if plan.longer and (own := _select_part(results, plan.longer_part)):
            longer[plan.positions] = own
    # one plan of each task, for attributes that all encodings share
    tasks = list({plan.task.name: plan for plan in plans if plan.task.name in found}.values())
    if candidate is None or not tasks:
        return Analysis()
    rows = [(plan.task.title, found[plan.task.name]) for plan in tasks]
    if longer:
        rows.append((f"{tasks[0].task.title}, {tasks[0].longer:,} updates", longer))
    groups = [(title, tasks[0].width, models) for title, models in rows]
    kind = candidate.settings.model_dump()["decoder_positions"]
    return Analysis(
        findings=[_verdict(candidate.name, kind, tasks, found)],
        figures=[*(_accuracy(plan, found[plan.task.name]) for plan in tasks), *_endings_figures(tasks, found)],
        tables=filled(_kinds_table(rows), pairs_table(groups), runs_table(groups)),
        seeds=sorted({trial.seed for trial in results if trial.seed is not None}),
        claims=[_claim(candidate.name, kind, tasks, found, longer)],
    )


def _select_part(results: Mapping[Trial, TaskResult], part: str) -> Mastery | None:
    own = {trial.seed or 0: run for trial, run in results.items() if trial.part == part}
    return Mastery(dict(sorted(own.items()))) if own else None


def at_largest(own: Mastery) -> Estimate:
    """Return the mean accuracy at the largest size, in percent."""
    return own.accuracy(-1)


def at_trained(own: Mastery) -> Estimate:
    """Return the mean accuracy at the largest training size, in percent."""
    return own.accuracy(own.first.sizes.index(own.first.trained))


def retention(kind: str, own: Mastery) -> Pair:
    """Test whether accuracy falls by less than `MARGIN` points from the largest training size to the largest size."""
    if at_trained(own).value < 100 * MASTERED:
        reason = f"accuracy with {kind} positions is only {at_trained(own).value:.0f} % at {own.first.trained}"
        return Pair(kind, "", 0.0, 1.0, reason=reason)
    at = own.first.sizes.index(own.first.trained)
    runs = own.runs.values()
    difference = paired([100 * run.right[at] - MARGIN for run in runs], [100 * run.right[-1] for run in runs])
    if difference is None:
        return Pair(kind, "", 0.0, 1.0, reason="one seed, so no test")
    return Pair(kind, "", difference.value, difference.p())


def _claim(
    model: str, kind: str, tasks: Sequence[PositionsPlan], found: Mapping[str, Models], longer: Models
) -> Claim | None:
    first = tasks[0]
    models = found[first.task.name]
    if kind not in models:
        return None
    decision, own = decide([retention(kind, models[kind])]), models[kind]
    others = {other: f"{at_largest(each).value:.0f} %{_mark(each)}" for other, each in models.items() if other != kind}
    size, unit = own.first.sizes[-1], first.task.unit
    learns = ", and still learns" if _mark(own) else ""
    sentence = (
        f"With {kind} positions, {model} predicts {at_largest(own).value:.0f} % of the symbols correctly at {size} "
        f"{unit} and {at_trained(own).value:.0f} % at {own.first.trained}{learns}{decision.because}. Other positions, "
        f"at {size}: {describe_each(others)}."
    )
    stable = {}
    for other in others:
        pair = retention(other, models[other])
        if decision.verdict != "undecided" and not pair.reason:
            stable[f"{other} positions"] = decide([pair]).verdict == decision.verdict
    for plan in tasks[1:]:
        if decision.verdict != "undecided" and kind in found[plan.task.name]:
            pair = retention(kind, found[plan.task.name][kind])
            if not pair.reason:
                stable[plan.task.title] = decide([pair]).verdict == decision.verdict
    if kind in longer:
        pair, updates = retention(kind, longer[kind]), f"{first.longer:,} updates"
        if decision.verdict != "undecided" and not pair.reason:
            stable[updates] = decide([pair]).verdict == decision.verdict
        late = {other: f"{at_largest(each).value:.0f} %{_mark(each)}" for other, each in longer.items()}
        sentence += f" Within {updates}: {describe_each(late)}."
    return Claim(
        name="generalizes",
        measured=f"accuracy of copies of {size} {unit}, trained on up to {own.first.trained} (other positions)",
        unit="%",
        verdict=decision.verdict,
        sentence=sentence,
        numbers=claim_numbers(
            {model: at_largest(own)},
            notes={
                model: ", ".join(
                    [*(["still learning"] if learns else []), *(f"{_NAMES.get(o, o)} {t}" for o, t in others.items())]
                )
            },
        ),
        p=decision.p,
        test=f"paired t-test over seeds against a fall by {MARGIN:.0f} points",
        figure=_accuracy(first, models).name,
        stable=stable,
    )


def _mark(own: Mastery) -> str:
    """Return a dagger, as in the table of claims, if training has not converged."""
    return "†" if own.still_learns else ""


def _verdict(model: str, kind: str, tasks: Sequence[PositionsPlan], found: Mapping[str, Models]) -> Verdict:
    first = found[tasks[0].task.name]
    facts: dict[str, float | str] = {
        f"{plan.task.title}, {_NAMES.get(other, f'{other} positions')} (%)": round(at_largest(own).value, 1)
        for plan in tasks
        for other, own in found[plan.task.name].items()
    }
    value = at_largest(first[kind]) if kind in first else None
    quantity = f"accuracy of copies of {tasks[0].task.tested[-1]} {tasks[0].task.unit}, {kind} positions"
    shown = _accuracy(tasks[0], first).name
    return verdict(ROW, model, value, "%", quantity, Assessment("", facts=facts), shown)


def _accuracy(plan: PositionsPlan, models: Models) -> Figure:
    return accuracy_figure(plan, models).model_copy(update={"name": f"{plan.task.name}-accuracy"})


def share(own: Mastery, ending: Ending) -> Estimate | None:
    """Return the mean share of the written answers with an ending, in percent; None if none were written."""
    runs = [run.endings for run in own.runs.values() if run.endings]
    return percent([100 * each[ending] / sum(each.values()) for each in runs]) if runs else None


def _endings_figures(tasks: Sequence[PositionsPlan], found: Mapping[str, Models]) -> list[Figure]:
    shown = []
    for plan in tasks:
        models = found[plan.task.name]
        bars = [series(e, e, list(models), [share(own, e) for own in models.values()]) for e in get_args(Ending)]
        title = f"{plan.task.title.capitalize()}: written answers at {plan.task.tested[-1]} {plan.task.unit}"
        axes = (axis("positional encoding"), axis("answers", "%"))
        caption = "Greedy search. Means over seeds; intervals (95 %): Student's."
        shown.append(figure(f"{plan.task.name}-{_FIGURE}", title, axes, bars, caption, "bars"))
    return shown


def _kinds_table(groups: Sequence[tuple[str, Models]]) -> Table:
    rows = [(title, kind, own) for title, models in groups for kind, own in models.items()]
    columns = [
        *("task", "positions"),
        Interval("correct at the largest training size (%)", lambda row: at_trained(row[2]), 1, "trained"),
        Interval("correct at the largest size (%)", lambda row: at_largest(row[2]), 1, "largest"),
        *(
            Column(f"{each} (%)", lambda row, each=each: None if (s := share(row[2], each)) is None else s.value, 1)
            for each in get_args(Ending)
        ),
        Column("state of the trainings", lambda row: row[2].state),
    ]
    return table(_FIGURE, "Answers to longer strings, by positional encoding", columns, rows)
