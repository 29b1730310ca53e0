"""What the answers of `long_range` say: the table's row, curves against distance, and seeds that succeed."""

import statistics
from collections.abc import Mapping, Sequence

from s2s.experiments.contest import Contest, Experiment, Measured, Task
from s2s.experiments.long_range_tables import comparisons, runs, settings, summary
from s2s.experiments.long_range_trials import Sorted, Trials, corrected_p, difference_of, of_task, sort, success_rate
from s2s.experiments.verdicts import listed, seeds_in_words
from s2s.results import Axis, Figure, Finding, Result, Series

_ROW = "long-term dependencies"
_FIRST = "recall"

METHOD = """\
Each task has exact answers and a distance that can be chosen. Recall: a key, then noise; write the key. Copy: five \
symbols, then blanks; write the symbols. Adding: a list with two marked digits in different halves; write their sum. \
Associative: keys with values, then noise, then two of the keys; write their values. Dyck: nested brackets; close \
them. Listops: nested maximum, minimum, median and sum modulo ten; write the result. Agreement: translate sentences \
of the built-in corpus with relative clauses between subject and verb; the German verb must have the subject's \
number.

A small model learns each task from a mixture of distances in equal parts, with the same trainer as everything else. \
All models have the same number of parameters within 5 %, the same examples in the same number, and up to the same \
number of updates. Training stops when 99 % of held-out examples are right. The learning rate is chosen while \
learning: one training for each rate of the same small grid, in turns, and after a part of the budget the best one on \
held-out examples goes on alone (the first to have solved the task, otherwise the one with the lowest loss). What the \
others cost is in the table of trainings. Recurrent encoders read in one direction: one that also reads from the end \
would have read the first symbol last.

An answer is right when greedy decoding writes the whole target; in agreement, when the form of the verb is likelier \
than the same verb's form in the other number, after the true words before it. Test examples are not among those \
learned from, where a task has enough of them. "Without memory" is the best answer of one who knows the task and the \
distance and has read nothing. Effective memory is the longest distance with at least 95 % right there and at all \
shorter distances tested. A seed succeeds when 95 % of the answers are right over all distances trained on. The \
p-value in the table's row is that of a paired t-test over seeds, at the longest trained distance, against the best \
of the other models, corrected for the number of pairs of models (Holm 1979); those of Fisher's test are corrected for \
the number of rows of their table. Other tasks \
may be trained with fewer seeds than recall; the verdicts say with how many."""

LIMITS = """\
These are small models, trained for a short time: a task that is not solved was not learned within this budget, which \
does not say that it cannot be. Training stops when a task is solved, so what lies beyond the trained distances could \
still change. An effective memory as long as the longest distance tested is a lower bound. Positions beyond those \
trained on were never learned; where positions are learned vectors, these are as they were initialised, and they \
count among the parameters. Fisher's test asks whether \
these trained networks differ; whether their architectures do, only several seeds can tell. How far a recurrent \
network recalls a first symbol depends on how many symbols there are to tell apart: recall has 32 keys, a number \
chosen after trials in which two of four tanh networks with ten keys recalled them over 256 symbols, as far as \
attention did. The row is about 32 keys, and says nothing of fewer."""


def conclude(
    experiment: Experiment, contest: Contest, measured: Mapping[Task, Measured], order: Sequence[str]
) -> Result:
    """The result of what was measured; what is missing is left out.

    Args:
        experiment: whose result it is.
        contest: gives the models and the seeds.
        measured: by `LongRange.measure`.
        order: names of the tasks.
    """
    trials = sort(contest, measured, order)
    names = list(dict.fromkeys(name for name, _ in trials))
    return Result(
        experiment=experiment.name,
        question=experiment.question,
        method=METHOD,
        limits=LIMITS,
        models=contest.models,
        seeds=list(contest.seeds),
        findings=[_finding(contest, trials, model) for model in contest.models if (_FIRST, model) in trials],
        figures=[*(_curves(trials, name) for name in names), *([_success(trials, names)] if names else [])],
        tables=[table(trials) for table in (summary, comparisons, runs, settings)] if names else [],
        seconds=sum(found["seconds"] + found["trial_seconds"] for found in measured.values()),
    )


def _finding(contest: Contest, trials: Sorted, model: str) -> Finding:
    """The table's cell: how far back a first symbol was recalled."""
    recall = trials[_FIRST, model]
    memories = recall.memories()
    several = len(memories) > 1
    return Finding(
        row=_ROW,
        model=model,
        value=float(statistics.median(memories)),
        low=float(min(memories)) if several else None,
        high=float(max(memories)) if several else None,
        unit="symbols",
        quantity="longest distance at which a first symbol is recalled in 95 % of the cases"
        + (", median over seeds and their range" if several else ""),
        verdict=f"{_reach(recall)}; {_solved(trials, model)}; {_against(contest, trials, model)}",
        figure=_FIRST,
    )


def _reach(recall: Trials) -> str:
    middle, longest = statistics.median(recall.memories()), recall.any["distances"][-1]
    trained = recall.any["distances"][recall.any["trained"] - 1]
    if middle == 0:
        return "recalls a first symbol at no distance"
    least = "at least " if middle == longest else ""
    return f"recalls a first symbol over {least}{middle:g} symbols (trained to {trained})"


def _solved(trials: Sorted, model: str) -> str:
    own = [found for (_, of), found in trials.items() if of == model]
    parts = []
    # a task tried once is no evidence like one tried with several seeds
    for count in sorted({len(found.by_seed) for found in own}, reverse=True):
        tried = [found for found in own if len(found.by_seed) == count]
        solved = [found.name for found in tried if 2 * found.successes() > count]
        named = f" ({', '.join(solved)})" if solved else ""
        parts.append(f"{len(solved)} of {len(tried)} tasks with {seeds_in_words(count)}{named}")
    return f"solves as trained {listed(parts)}"


def _against(contest: Contest, trials: Sorted, model: str) -> str:
    """The test against the best of the others, on first-token recall at the longest trained distance."""
    recall = trials[_FIRST, model]
    others = [found for found in of_task(trials, _FIRST) if found.model != model]
    if not others:
        return "no other model to compare with"
    place = recall.any["trained"] - 1
    best = max(others, key=lambda found: found.accuracy(place).value)
    difference, _ = difference_of(best, recall, place)
    p = corrected_p([recall, *others], place).get(frozenset((best.model, model)))
    if p is None:
        return f"{_count(len(recall.by_seed), 'seed')} too few to compare models"
    where = f"at {recall.any['distances'][place]} symbols"
    if p >= 0.05:
        return f"no significant difference from {best.model} {where} ({len(recall.by_seed)} seeds, p = {p:.2g})"
    way = "above" if difference.value > 0 else "below"
    return f"{abs(100 * difference.value):.0f} points {way} {best.model} {where} (p = {p:.2g})"


def _count(number: int, thing: str) -> str:
    return f"1 {thing} is" if number == 1 else f"{number} {thing}s are"


def _curves(trials: Sorted, name: str) -> Figure:
    """Accuracy against distance, with the baseline."""
    of_all = of_task(trials, name)
    first = of_all[0].any
    distances = [float(distance) for distance in first["distances"]]
    series = []
    for found in of_all:
        estimates = [found.accuracy(place) for place in range(len(distances))]
        series.append(
            Series(
                label=found.model,
                model=found.model,
                x=distances,
                y=[100 * estimate.value for estimate in estimates],
                low=[100 * (estimate.low or 0.0) for estimate in estimates],
                high=[100 * (1.0 if estimate.high is None else estimate.high) for estimate in estimates],
            )
        )
    baseline = [100 * value for value in first["baseline"]]
    series.append(Series(label="without memory", model="", x=distances, y=baseline, reference=True))
    trained = first["distances"][first["trained"] - 1]
    return Figure(
        name=name,
        title=f"{first['title'].capitalize()}: accuracy against distance",
        x=Axis(label="distance", unit=first["unit"], log=distances[0] > 0),
        y=Axis(label="right answers", unit="%"),
        series=series,
        caption=f"Trained on distances up to {trained}; what lies beyond is longer than trained on. The dashed line is "
        " the best answer without memory. Intervals (95 %): Wilson's over all answers or Student's over seeds, "
        "whichever is wider.",
    )


def _success(trials: Sorted, names: Sequence[str]) -> Figure:
    """Share of seeds at which a task was solved, task by task."""
    series = []
    for model in dict.fromkeys(model for _, model in trials):
        rates = [success_rate(trials[name, model]) if (name, model) in trials else None for name in names]
        series.append(
            Series(
                label=model,
                model=model,
                x=list(names),
                y=[100 * rate.value if rate else None for rate in rates],
                low=[100 * rate.low if rate and rate.low is not None else None for rate in rates],
                high=[100 * rate.high if rate and rate.high is not None else None for rate in rates],
            )
        )
    return Figure(
        name="success",
        title="Seeds at which a task is solved: 95 % right answers at the distances trained on",
        kind="bars",
        x=Axis(label="task"),
        y=Axis(label="seeds that succeed", unit="%"),
        series=series,
        caption="Learning such a task is all or nothing, so seeds are counted. Intervals (95 %): Wilson's.",
    )
