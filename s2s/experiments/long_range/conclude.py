"""What the answers at each distance say: how far back a model reaches, curves, and seeds that succeed."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from operator import itemgetter
from typing import Any

from scipy import stats

from s2s.data.agreement import Agreement
from s2s.data.exercises import EXERCISES
from s2s.evaluation.inference import Estimate, Share, holm, mean, wilson
from s2s.experiments.contest import Cells, Conclusion, Contest, Measured, by_model
from s2s.experiments.presenting import Column, Interval, axis, figure, finding, series, table
from s2s.experiments.verdicts import LEVEL, Evidence, corrected, difference, listed, seeds_in_words
from s2s.results import Figure, Finding, Table

# in the order in which they are measured; the first one fills the table's row
NAMES = (*(exercise.name for exercise in EXERCISES), Agreement.name)
_FIRST = NAMES[0]
_ENOUGH = 0.95


@dataclass(frozen=True)
class Trials:
    """One model's measurements of one task, by seed."""

    model: str  # whose
    name: str  # the task's
    by_seed: dict[int, Measured]  # what was measured

    @property
    def any(self) -> Measured:
        """One of them, for what is the same in all."""
        return next(iter(self.by_seed.values()))

    def accuracies(self, place: int) -> dict[int, float]:
        """Share of right answers at a distance, by seed."""
        return {seed: run["right"][place] / run["asked"][place] for seed, run in self.by_seed.items()}

    def accuracy(self, place: int) -> Share:
        """The mean over seeds at a distance, see `pooled`."""
        return pooled([(run["right"][place], run["asked"][place]) for run in self.by_seed.values()])

    def inside(self) -> list[float]:
        """Share of right answers over all trained distances, seed by seed."""
        return [within(run) for run in self.by_seed.values()]

    def successes(self) -> int:
        """Seeds at which 95 % of the answers at trained distances were right."""
        return sum(value >= _ENOUGH for value in self.inside())

    def memories(self) -> list[int]:
        """The effective memory length, seed by seed."""
        return [memory(run) for run in self.by_seed.values()]

    def steps(self) -> float | None:
        """Median of the updates to 99 %; None where half of the seeds or more never came to it."""
        middle = statistics.median_high([run["solved"] or float("inf") for run in self.by_seed.values()])
        return None if middle == float("inf") else middle

    def success_rate(self) -> Share:
        """Share of seeds that succeed, in percent, with Wilson's interval."""
        return wilson(self.successes(), len(self.by_seed))


def within(run: Measured) -> float:
    """Share of right answers over all trained distances."""
    return sum(run["right"][: run["trained"]]) / sum(run["asked"][: run["trained"]])


def memory(run: Measured) -> int:
    """The effective memory length: the largest distance with 95 % right there and at all shorter ones; 0 if none."""
    reached = 0
    for distance, right, asked in zip(run["distances"], run["right"], run["asked"], strict=True):
        if right < _ENOUGH * asked:
            break
        reached = distance
    return reached


def pooled(counts: Sequence[tuple[int, int]]) -> Share:
    """The mean share of right answers over seeds, with an interval that doubts both examples and seeds.

    It is Wilson's over all answers or Student's over seeds, whichever reaches further: alone, the first would take
    answers of one network for independent ones, and the second would be certain where all seeds agree. Counts are right
    and asked, seed by seed.
    """
    over_answers = wilson(sum(right for right, _ in counts), sum(asked for _, asked in counts), whole=1)
    over_seeds = mean([right / asked for right, asked in counts])
    ends = [end for end in (over_answers.low, over_answers.high, over_seeds.low, over_seeds.high) if end is not None]
    return Share(over_seeds.value, max(0.0, min(ends)), min(1.0, max(ends)))


# by task and model
Sorted = dict[str, dict[str, Trials]]


def conclude(contest: Contest, measured: Cells) -> Conclusion:
    """Curves, success rates, effective memory, and what tests say of the differences."""
    runs = {name: by_model(contest, measured, name) for name in NAMES}
    trials: Sorted = {
        name: {model: Trials(model, name, by_seed) for model, by_seed in own.items()}
        for name, own in runs.items()
        if own
    }
    if not trials:
        return Conclusion()
    every = [each for own in trials.values() for each in own.values()]
    # task by task: sizes of vocabularies differ, and so do widths of equal size
    settings = (
        (own.name, own.model, ", ".join(f"{key}: {value}" for key, value in own.any["settings"].items()))
        for own in every
    )
    small = table("settings", "Settings of the small models", ("task", "model", "settings"), settings)
    return Conclusion(
        findings=[_finding(trials, model) for model in trials.get(_FIRST, ())],
        figures=[*(_curves(list(own.values())) for own in trials.values()), _success(trials)],
        tables=[_summary(every), _comparisons(trials), _runs(every), small],
    )


def difference_of(first: Trials, second: Trials, place: int) -> Evidence | None:
    """By how much the second is more accurate at a distance; None without a seed that both had."""
    return difference(first.accuracies(place), second.accuracies(place))


def fisher(first: Trials, second: Trials, place: int) -> float:
    """Whether these trained networks differ; whether their architectures do, only seeds can tell."""
    counts = []
    for trials in (first, second):
        right = sum(run["right"][place] for run in trials.by_seed.values())
        counts.append([right, sum(run["asked"][place] for run in trials.by_seed.values()) - right])
    test: Any = stats.fisher_exact(counts)
    return float(test.pvalue)


def _finding(trials: Sorted, model: str) -> Finding:
    """The table's cell: how far back a first symbol was recalled."""
    recall = trials[_FIRST][model]
    memories = [float(reached) for reached in recall.memories()]
    middle = statistics.median(memories)
    quantity = "longest distance at which a first symbol is recalled in 95 % of the cases"
    reached = Estimate(middle, None, None)
    if len(memories) > 1:
        quantity += ", median over seeds and their range"
        reached = Estimate(middle, min(memories), max(memories))
    reach = "recalls a first symbol at no distance"
    if middle:
        least = "at least " if middle == recall.any["distances"][-1] else ""
        trained = recall.any["distances"][recall.any["trained"] - 1]
        reach = f"recalls a first symbol over {least}{middle:g} symbols (trained to {trained})"
    verdict = f"{reach}; {_solved(trials, model)}; {_against(list(trials[_FIRST].values()), recall)}"
    return finding("long-term dependencies", model, reached, "symbols", quantity, verdict, _FIRST)


def _solved(trials: Sorted, model: str) -> str:
    own, parts = [each[model] for each in trials.values() if model in each], []
    # a task tried once is no evidence like one tried with several seeds
    for count in sorted({len(each.by_seed) for each in own}, reverse=True):
        tried = [each for each in own if len(each.by_seed) == count]
        solved = [each.name for each in tried if 2 * each.successes() > count]
        named = f" ({', '.join(solved)})" if solved else ""
        parts.append(f"{len(solved)} of {len(tried)} tasks with {seeds_in_words(count)}{named}")
    return f"solves as trained {listed(parts)}"


def _against(of_all: Sequence[Trials], recall: Trials) -> str:
    """The test against the best of the others, on first-token recall at the longest trained distance."""
    others = [each for each in of_all if each is not recall]
    if not others:
        return "no other model to compare with"
    place, count = recall.any["trained"] - 1, len(recall.by_seed)
    best = max(others, key=lambda each: each.accuracy(place).value)
    compared = combinations([recall, *others], 2)
    pairs = {(a.model, b.model): e for a, b in compared if (e := difference_of(b, a, place))}
    pair = corrected(pairs).get((recall.model, best.model))
    if pair is None or pair.p is None:
        return f"{seeds_in_words(count)} {'is' if count == 1 else 'are'} too few to compare models"
    where = f"at {recall.any['distances'][place]} symbols"
    if pair.p >= LEVEL:
        return f"no significant difference from {best.model} {where} ({count} seeds, p = {pair.p:.2g})"
    by = 100 * pair.over_seeds.value
    return f"{abs(by):.0f} points {'above' if by > 0 else 'below'} {best.model} {where} (p = {pair.p:.2g})"


def _curves(of_all: Sequence[Trials]) -> Figure:
    """A task's accuracy against distance, with the baseline."""
    first = of_all[0].any
    distances = [float(distance) for distance in first["distances"]]
    shown = [
        series(each.model, each.model, distances, [_percent(each.accuracy(i)) for i in range(len(distances))])
        for each in of_all
    ]
    references = {"without memory": first["baseline"]}
    # measurements that were kept before know nothing of cheating
    if first.get("cheating"):
        references[first["cheat"]] = first["cheating"]
    lines = [
        series(how, "", distances, [100 * value for value in answers], reference=True)
        for how, answers in references.items()
    ]
    return figure(
        of_all[0].name,
        f"{first['title'].capitalize()}: accuracy against distance",
        (axis("distance", first["unit"], log=distances[0] > 0), axis("right answers", "%")),
        [*shown, *lines],
        f"Trained on distances up to {first['distances'][first['trained'] - 1]}; what lies beyond is longer than "
        "trained on. Dashed lines are the best answers without memory and, where it is known, of one who reads but "
        "does not do what is asked: a model that is not above them has shown nothing. Intervals (95 %): Wilson's over "
        "all answers or Student's over seeds, whichever is wider.",
    )


def _percent(share: Share) -> Estimate:
    return Estimate(100 * share.value, 100 * share.low, 100 * share.high)


def _success(trials: Sorted) -> Figure:
    """Share of seeds at which a task was solved, task by task."""
    shown = []
    for model in dict.fromkeys(model for own in trials.values() for model in own):
        rates = [own[model].success_rate() if model in own else None for own in trials.values()]
        shown.append(series(model, model, list(trials), rates))
    return figure(
        "success",
        "Seeds at which a task is solved: 95 % right answers at the distances trained on",
        (axis("task"), axis("seeds that succeed", "%")),
        shown,
        "Learning such a task is all or nothing, so seeds are counted. Intervals (95 %): Wilson's.",
        "bars",
    )


def _tenth(share: float | None) -> float | None:
    """A share in per cent, to a tenth."""
    return None if share is None else round(100 * share, 1)


def _cheating(own: Trials) -> float | None:
    """What the best answer of one who does not do what is asked scores at the longest distance trained on."""
    return own.any["cheating"][own.any["trained"] - 1] if own.any.get("cheating") else None


def _summary(trials: Sequence[Trials]) -> Table:

    def succeed(own: Trials) -> str:
        rate = own.success_rate()
        return f"{own.successes()} of {len(own.by_seed)} ({round(rate.low, 1):g} to {round(rate.high, 1):g} %)"

    def longer(own: Trials, beyond: int) -> float:
        return own.accuracy(own.any["trained"] + beyond).value

    columns = [
        Column("task", lambda own: own.name),
        Column("model", lambda own: own.model),
        Column("seeds that succeed", succeed),
        Column("right as trained (%)", lambda own: statistics.mean(own.inside()), _tenth),
        Column("at 2 × (%)", partial(longer, beyond=0), _tenth),
        Column("at 4 × (%)", partial(longer, beyond=1), _tenth),
        Column("without memory (%)", lambda own: own.any["baseline"][own.any["trained"] - 1], _tenth),
        Column("by cheating (%)", _cheating, _tenth),
        Column("effective memory (median)", lambda own: float(statistics.median(own.memories()))),
        Column("updates to 99 % (median)", lambda own: own.steps()),
    ]
    title = "Every task and model: solved seeds, accuracy, effective memory, and how soon it was learned"
    return table("tasks", title, columns, trials)


def _comparisons(trials: Sorted) -> Table:
    """Every pair of models, task by task."""
    pairs = [
        (first, second, first.any["trained"] - 1)
        for own in trials.values()
        for first, second in combinations(own.values(), 2)
    ]
    nothing = Evidence(0, Estimate(0.0, None, None), None)
    rows = [
        (a.name, f"{b.model} − {a.model}", a.any["distances"][place], difference_of(a, b, place) or nothing, chance)
        for (a, b, place), chance in zip(pairs, holm([fisher(*pair) for pair in pairs]), strict=True)
    ]
    columns = [
        *("task", "models", "distance"),
        Interval("difference (points)", lambda row: row[3].over_seeds, _tenth),
        Column("p over seeds (paired t-test)", lambda row: row[3].p),
        Column("p over answers (Fisher's exact test, Holm)", itemgetter(4)),
    ]
    return table("comparisons", "Differences between models at the longest trained distance", columns, rows)


def _runs(trials: Sequence[Trials]) -> Table:
    def tried(run: Measured) -> str:
        said = {rate: "failed" if loss is None else f"{loss:.3f}" for rate, loss in run["losses"].items()}
        return ", ".join(f"{rate}: {loss}" for rate, loss in said.items())

    columns = [
        *map(Column, ("task", "model", "seed", "parameters")),
        Column("rates tried: loss on held-out examples", tried),
        Column("rate chosen", lambda run: f"{run['rate']:g}"),
        Column("updates"),
        Column("updates to 99 %", "solved"),
        Column("loss at the end (nats per piece)", "loss", 4),
        Column("right pieces as trained (%)", lambda run: statistics.mean(run["pieces"][: run["trained"]]), _tenth),
        Column("effective memory", memory),
        Column("seconds", "seconds", 1),
        Column("seconds for the other rates", "trial_seconds", 1),
    ]
    rows = (
        {"task": own.name, "model": own.model, "seed": seed, **run}
        for own in trials
        for seed, run in own.by_seed.items()
    )
    return table("runs", "Every training: what was tried, what was chosen, and what it cost", columns, rows)
