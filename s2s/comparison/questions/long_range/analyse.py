"""Analyse accuracy by distance: how far each candidate recalls, and the difference from the best of the others."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from s2s.comparison.questions.long_range import capacity, shown, sooner
from s2s.comparison.questions.long_range.reach import MARGIN, Models, Part, TaskRuns, differences
from s2s.comparison.reporting import filled, verdict
from s2s.comparison.results import Verdict
from s2s.comparison.spec import Analysis, Comparison, Trials, by_model
from s2s.data.exercises import EXERCISES, Agreement
from s2s.evaluation.gates import Assessment, beside, best_other, failed
from s2s.evaluation.inference import mean

# in the order in which they are measured
NAMES = (*(exercise.name for exercise in EXERCISES), Agreement.name)
# what fills the table's rows
DECIDES = Part(NAMES[0], "full")
_HEAD = Part(NAMES[0], "head")


def analyse(comparison: Comparison, measured: Trials) -> Analysis:
    """Curves, distances, times to the solution, and what tests say of the differences."""
    parts = [Part(name, form) for name in NAMES for form in shown.FORMS]
    trials = {part: own for part in parts if (own := _trials(comparison, measured, part))}
    every = [each for own in trials.values() for each in own.values()]
    deciding = trials.get(DECIDES, {})
    others = _trials(comparison, measured, replace(DECIDES, of="other"))
    copies = [
        {"model": trial.model, "seed": trial.seed, **run}
        for trial, run in measured.items()
        if trial.part.startswith(capacity.NAME)
    ]
    copies.sort(key=lambda run: (comparison.models.index(run["model"]), run["width"], run["seed"]))
    drawn = [drawing(own) for own in trials.values() for drawing in (shown.curves, shown.survival)]
    return Analysis(
        findings=[
            *(_verdict(model, deciding, others, trials) for model in deciding),
            *sooner.verdicts(DECIDES, trials, others),
        ],
        figures=[*drawn, shown.capacity_figure(copies)],
        tables=filled(
            shown.summary(every),
            shown.distances(trials),
            shown.times(trials),
            shown.gates(every),
            shown.rates(every),
            shown.runs(every),
            shown.capacity_table(copies),
        ),
        seeds=sorted({trial.seed for trial in measured if trial.seed is not None}),
    )


def _trials(comparison: Comparison, measured: Trials, part: Part) -> dict[str, TaskRuns]:
    chosen = by_model(comparison, measured, replace(part, of="rates").key)
    rates = {model: next(iter(own.values())) for model, own in chosen.items()}
    return {
        model: TaskRuns(model, part, own, rates.get(model))
        for model, own in by_model(comparison, measured, part.key).items()
    }


def assess(model: str, of_all: Models) -> Assessment:
    """Compare a model with the best of the others; p-values of all pairs are corrected together."""
    gates = {name: own.gates() for name, own in of_all.items()}
    other = best_other(model, {name: mean(own.doublings()).value for name, own in of_all.items()}, gates)
    both = [of_all[name] for name in (model, other) if name]
    if other and not any(own.beyond() < len(own.by_seed) or failed(gates[own.model]) for own in both):
        # two that were stopped at the same place are not shown to be equal
        reason = f"both reach beyond the longest distance tested, {both[0].max_distance:,} symbols"
        return Assessment("undecided", other, reasons=(reason,))
    found = beside(model, other, differences(of_all), gates, "doublings", MARGIN, test="log-rank, Holm")
    if found.standing == "tie" and any(own.beyond() for own in both):
        # seeds that never fell count as the longest distance, which is where they are alike
        reason = f"some seeds reach beyond {both[0].max_distance:,}, the longest distance tested"
        return replace(found, standing="undecided", reasons=(reason,))
    return found


def variations(
    model: str,
    other: str,
    standing: str,
    here: Mapping[str, Sequence[float]],
    looked: Mapping[str, Mapping[str, Sequence[float]]],
) -> dict[str, bool]:
    """Recompute a verdict under other choices, to see whether its sign stays."""
    signs = {"better": lambda by: by > 0, "worse": lambda by: by < 0, "tie": lambda by: abs(by) <= MARGIN}
    if standing not in signs:
        return {}
    both = {name: (own[model], own[other]) for name, own in looked.items() if model in own and other in own}
    # what has solved the task with half of the updates would have learned no longer with all of them
    both = {name: pair for name, pair in both.items() if pair != (here.get(model), here.get(other))}
    return {name: signs[standing](mean(mine).value - mean(its).value) for name, (mine, its) in both.items()}


def _verdict(model: str, deciding: Models, others: Models, trials: Mapping[Part, Models]) -> Verdict:
    """The table's cell: how far back a first symbol is recalled."""
    own, heads = deciding[model], trials.get(_HEAD, {})
    found = assess(model, deciding)
    looked = {
        "next best rate": {name: each.doublings() for name, each in others.items()},
        "half the updates": {name: each.doublings("half") for name, each in deciding.items()},
        "linear head": {name: each.doublings() for name, each in heads.items()},
    }
    here = {name: each.doublings() for name, each in deciding.items()}
    whole = [each[model] for part, each in trials.items() if part.form == "full" and model in each]
    solved = [each.part.task for each in whole if 2 * each.num_solved() > len(each.by_seed)]
    facts: dict[str, float | str] = {
        "longest distance learned from": own.trained,
        f"wrong at {own.any['distances'][0]} (%)": round(own.error().value, 1),
        f"tasks solved, of {len(whole)}": ", ".join(solved) or "none",
    }
    if model in heads:
        facts["reach of its encoder under a linear head"] = round(heads[model].reach().value)
    kept = variations(model, found.rival, found.standing, here, looked)
    cell = verdict(
        "long-term dependencies",
        model,
        own.reach(),
        "symbols",
        "distance at which recall of a first symbol has fallen half way to chance, median of the seeds; "
        f"{own.max_distance:,} is the longest tested",
        replace(found, facts=facts, variations=kept),
        DECIDES.key,
    )
    return cell.model_copy(update={"at_least": 2 * own.beyond() > len(own.by_seed)})
