"""What the answers at each distance say: how far each model reaches, beside the best of the others."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from s2s.data.agreement import Agreement
from s2s.data.exercises import EXERCISES
from s2s.evaluation.gates import Judgement, beside, best_other, failed
from s2s.evaluation.inference import mean
from s2s.experiments.contest import Cells, Conclusion, Contest, by_model
from s2s.experiments.long_range import capacity, shown, sooner
from s2s.experiments.long_range.reach import MARGIN, Models, Part, Trials, differences
from s2s.experiments.presenting import filled, finding
from s2s.experiments.verdicts import in_words, listed
from s2s.results import Finding

# in the order in which they are measured
NAMES = (*(exercise.name for exercise in EXERCISES), Agreement.name)
# what fills the table's rows
DECIDES = Part(NAMES[0], "full")
_HEAD = Part(NAMES[0], "head")


def conclude(contest: Contest, measured: Cells) -> Conclusion:
    """Curves, distances, times to the solution, and what tests say of the differences."""
    parts = [Part(name, form) for name in NAMES for form in shown.FORMS]
    trials = {part: own for part in parts if (own := _trials(contest, measured, part))}
    every = [each for own in trials.values() for each in own.values()]
    deciding = trials.get(DECIDES, {})
    others = _trials(contest, measured, replace(DECIDES, of="other"))
    copies = [
        {"model": cell.model, "seed": cell.seed, **run}
        for cell, run in measured.items()
        if cell.part.startswith(capacity.NAME)
    ]
    copies.sort(key=lambda run: (contest.models.index(run["model"]), run["width"], run["seed"]))
    drawn = [drawing(own) for own in trials.values() for drawing in (shown.curves, shown.survival)]
    return Conclusion(
        findings=[
            *(_finding(model, deciding, others, trials) for model in deciding),
            *sooner.findings(DECIDES, trials, others),
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
        seeds=sorted({cell.seed for cell in measured if cell.seed is not None}),
    )


def _trials(contest: Contest, measured: Cells, part: Part) -> dict[str, Trials]:
    chosen = by_model(contest, measured, replace(part, of="rates").key)
    rates = {model: next(iter(own.values())) for model, own in chosen.items()}
    return {
        model: Trials(model, part, own, rates.get(model))
        for model, own in by_model(contest, measured, part.key).items()
    }


def judgement(model: str, of_all: Models) -> tuple[Judgement, str]:
    """How a model stands to the best of the others, and who that is; p-values of all pairs are corrected together."""
    gates = {name: own.gates() for name, own in of_all.items()}
    other = best_other(model, {name: mean(own.doublings()).value for name, own in of_all.items()}, gates)
    both = [of_all[name] for name in (model, other) if name]
    if other and not any(own.beyond() < len(own.by_seed) or failed(gates[own.model]) for own in both):
        # two that were stopped at the same place are not shown to be equal
        said = f"like {other}, it reaches beyond all that was tested, {both[0].longest:,} symbols: nobody can tell"
        return Judgement("undecided", said), other
    said = beside(model, other, differences(of_all), gates, "doublings", MARGIN)
    if said.standing == "tie" and any(own.beyond() for own in both):
        # seeds that never fell count as the longest distance, which is where they are alike
        end = f"some seeds reach beyond {both[0].longest:,}, the longest distance tested"
        said = Judgement("undecided", f"{said.sentence}; but {end}, and nobody knows how far")
    return said, other


def variations(
    model: str,
    other: str,
    standing: str,
    here: Mapping[str, Sequence[float]],
    looked: Mapping[str, Mapping[str, Sequence[float]]],
) -> dict[str, bool]:
    """Whether a verdict keeps its sign elsewhere; a tie does where the two differ by no more than the margin.

    Args:
        model: whose verdict.
        other: beside whom.
        standing: the verdict; nothing is said of what is none.
        here: log₂ of the distances reached by model, seed by seed, of which the verdict is.
        looked: the same by the name of what was chosen instead; where nothing differs, it is no other choice.
    """
    signs = {"better": lambda by: by > 0, "worse": lambda by: by < 0, "tie": lambda by: abs(by) <= MARGIN}
    if standing not in signs:
        return {}
    both = {name: (own[model], own[other]) for name, own in looked.items() if model in own and other in own}
    # what has solved the task with half of the updates would have learned no longer with all of them
    both = {name: pair for name, pair in both.items() if pair != (here.get(model), here.get(other))}
    return {name: signs[standing](mean(mine).value - mean(its).value) for name, (mine, its) in both.items()}


def _finding(model: str, deciding: Models, others: Models, trials: Mapping[Part, Models]) -> Finding:
    """The table's cell: how far back a first symbol is recalled."""
    own = deciding[model]
    said, other = judgement(model, deciding)
    heads = trials.get(_HEAD, {})
    looked = {
        "next best rate": {name: each.doublings() for name, each in others.items()},
        "half the updates": {name: each.doublings("half") for name, each in deciding.items()},
        "linear head": {name: each.doublings() for name, each in heads.items()},
    }
    said_of = [
        said.sentence,
        f"recalls a first symbol over {_at_least(own)}{in_words(own.reach(), 0)} symbols (trained to {own.trained}), "
        f"{in_words(own.error())} % wrong at {own.any['distances'][0]}",
        *(f"its encoder under a linear head {_reached(heads[model])}" for _ in heads.keys() & {model}),
        _solved(model, trials),
    ]
    here = {name: each.doublings() for name, each in deciding.items()}
    kept = variations(model, other, said.standing, here, looked)
    found = finding(
        "long-term dependencies",
        model,
        own.reach(),
        "symbols",
        "distance at which recall of a first symbol has fallen half way to chance, median of the seeds; "
        f"{own.longest:,} is the longest tested",
        Judgement(said.standing, "; ".join(said_of), kept),
        DECIDES.key,
    )
    return found.model_copy(update={"at_least": _is_bound(own)})


def _is_bound(own: Trials) -> bool:
    """Whether the median lies beyond the longest distance tested."""
    return 2 * own.beyond() > len(own.by_seed)


def _at_least(own: Trials) -> str:
    return "at least " if _is_bound(own) else ""


def _reached(own: Trials) -> str:
    return f"over {_at_least(own)}{in_words(own.reach(), 0)}"


def _solved(model: str, trials: Mapping[Part, Models]) -> str:
    """Which tasks the whole model solves in more than half of its seeds."""
    own = [each[model] for part, each in trials.items() if part.form == "full" and model in each]
    named = [each.part.task for each in own if 2 * each.solved() > len(each.by_seed)]
    return f"solves {len(named)} of {len(own)} tasks{f' ({listed(named)})' if named else ''}"
