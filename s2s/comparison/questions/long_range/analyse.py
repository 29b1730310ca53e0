"""Analyse the distance over which each candidate recalls, and the updates that it needs to learn this."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from operator import itemgetter

import numpy as np
import scipy

from s2s.comparison.claims import traits_of
from s2s.comparison.questions.long_range.claims import Reaches, SolutionTimes, forgets, learns_late
from s2s.comparison.reporting import Column, Interval, axis, figure, filled, gates_table, series, table, verdict
from s2s.comparison.results import Claim, Figure, Series, Table, Verdict
from s2s.comparison.spec import Analysis, Comparison, Trial, by_model
from s2s.comparison.task_training import Rates, Validation
from s2s.data.exercises import EXERCISES, Agreement
from s2s.evaluation.differences import LEVEL, Difference, Pairwise, welch
from s2s.evaluation.gates import Assessment, Gate, above_chance, assess_pair, best_other, converged, failed, rate_inside
from s2s.evaluation.inference import Estimate, Share, holm, mean, wilson
from s2s.evaluation.survival import Times, kaplan_meier, log_rank_p, median_within

MARGIN = 0.5
"""Equivalence margin in doublings of the distance: half of the step between two tested distances."""
FORMS = {"full": "whole model", "head": "linear head"}
"""Titles of the forms of a model, by their names in trials."""
DISTANCE_ROW, TIME_ROW = "long-term dependencies", "learning long-term dependencies"


@dataclass(frozen=True)
class Part:
    """A part of the question: task, form of the model, and kind of trial."""

    task: str
    form: str
    of: str = ""  # `rates`: search for the learning rate; `other`: trainings at the next best rate

    @property
    def key(self) -> str:
        """Name of its trials' part."""
        return "-".join(word for word in (self.task, self.form, self.of) if word)

    @property
    def title(self) -> str:
        """Task and form, for readers."""
        return f"{self.task}, {FORMS[self.form]}"

    @classmethod
    def of_key(cls, key: str) -> "Part":
        """Parse a trial's part."""
        return cls(*key.split("-"))


NAMES = (*(exercise.name for exercise in EXERCISES), Agreement.name)
"""Tasks in the order in which they are measured."""
DECIDES = Part(NAMES[0], "full")
"""The part that the verdicts are based on."""


@dataclass(frozen=True)
class TaskRun:
    """Measurement of one training on a task."""

    distances: list[int]  # tested ones, ascending
    trained: int  # how many of them were trained on
    asked: list[int]  # test examples at each distance
    right: list[int]  # right answers
    half: list[int]  # right answers after half of the updates
    baseline: list[float]  # best accuracy without reading the source
    cheat: str  # description of the shortcut baseline
    cheating: list[float]  # accuracy of the shortcut baseline
    title: str  # of the task
    unit: str  # of the distance
    settings: dict[str, object]  # of the whole model
    parameters: int
    rate: float
    budget: int  # limit of the updates
    updates: int
    solved: int | None  # updates until 99 % of the held-out examples were right
    looks: list[Validation]
    seconds: float  # CPU time of the training
    failure: str = ""  # reason of a failed training, which counts as unsolved


@dataclass(frozen=True)
class TaskRuns:
    """Trainings of one candidate on one task, by seed, and the search for their learning rate."""

    model: str
    part: Part
    by_seed: Mapping[int, TaskRun]
    rates: Rates | None = None

    @property
    def first(self) -> TaskRun:
        """The first run, for attributes that all share."""
        return next(iter(self.by_seed.values()))

    @property
    def max_distance(self) -> int:
        """The longest distance tested."""
        return self.first.distances[-1]

    @property
    def trained(self) -> int:
        """The longest distance trained on."""
        return self.first.distances[self.first.trained - 1]

    @property
    def num_solved(self) -> int:
        """Seeds that solved the task."""
        return sum(run.solved is not None for run in self.by_seed.values())

    @property
    def solved_in_words(self) -> str:
        """Seeds that solved the task, of all."""
        return f"{self.num_solved} of {len(self.by_seed)}"

    @property
    def beyond(self) -> int:
        """Seeds whose accuracy has not fallen half way to chance at the longest tested distance."""
        return len(self.reaches().waited)

    @property
    def resolution(self) -> int:
        """Updates between two validations."""
        return next((run.looks[0].update for run in self.by_seed.values() if run.looks), self.first.budget)

    def accuracy(self, i: int) -> Estimate:
        """Estimate the accuracy at distance number `i`, in percent."""
        return pooled([(run.right[i], run.asked[i]) for run in self.by_seed.values()])

    def error(self) -> Estimate:
        """Estimate the share of wrong answers at the shortest distance, in percent."""
        right = self.accuracy(0)
        return Estimate(100 - right.value, *(None if end is None else 100 - end for end in (right.high, right.low)))

    def doublings(self, half_trained: bool = False) -> list[float]:
        """Return log₂ of `half_distance` by seed, also after half of the updates; censored values count as reached."""
        return [
            math.log2(half_distance(run, run.half if half_trained else run.right)[0]) for run in self.by_seed.values()
        ]

    def reaches(self) -> Times:
        """Return `half_distance` by seed, censored at the longest distance tested."""
        found = [half_distance(run, run.right) for run in self.by_seed.values()]
        return Times([far for far, beyond in found if not beyond], [far for far, beyond in found if beyond])

    def reach(self) -> Estimate:
        """Estimate the median of `half_distance` over seeds (Kaplan & Meier 1958), at most the longest tested."""
        return median_within(self.reaches(), float(self.max_distance))

    def times(self) -> Times:
        """Return updates to the solution by seed; unsolved ones are censored, failed ones at the budget's end."""
        unsolved = [run for run in self.by_seed.values() if not run.solved]
        spent = [run.budget if run.failure else run.updates for run in unsolved]
        return Times([run.solved for run in self.by_seed.values() if run.solved], spent)

    def time(self) -> Estimate:
        """Estimate the median of `times` (Kaplan & Meier 1958), at most the budget."""
        return median_within(self.times(), float(self.first.budget))

    def gates(self) -> list[Gate]:
        """Check that no training failed, that answers are above chance, that loss converged, and the learning rate."""
        runs, checks = list(self.by_seed.values()), []
        if failures := [run.failure for run in runs if run.failure]:
            # the successful seeds alone would be a biased sample
            said = f"the training of {len(failures)} of {len(runs)} seeds failed: {failures[0]}"
            checks.append(Gate("trains", False, said))
        counts = [(sum(run.right[: run.trained]), sum(run.asked[: run.trained])) for run in runs]
        cheating = self.first.cheating[: self.first.trained]
        return [
            *checks,
            above_chance(pooled(counts), 100 * statistics.mean(cheating)),
            self._convergence_gate(),
            self.rate_gate(),
        ]

    def _convergence_gate(self) -> Gate:
        left = [run.looks for run in self.by_seed.values() if not run.solved and not run.failure]
        if not left:
            return Gate("converged", True, "every seed has solved the task")
        count = min(map(len, left))
        losses = np.mean([[look.loss for look in looks[:count]] for looks in left], axis=0)
        found = converged([look.update for look in left[0][:count]], losses.tolist())
        said = f"{len(left)} of {len(self.by_seed)} seeds have not solved it in {self.first.budget:,} updates"
        return Gate(found.name, found.passed, f"{said}: {found.sentence}")

    def rate_gate(self) -> Gate:
        """Check that the learning rate lies inside the grid that was searched."""
        if not self.rates:
            return Gate("rate inside its grid", False, "the tried learning rates are unknown")
        return rate_inside(self.rates.best, list(self.rates.tried), self.rates.inside)


Models = Mapping[str, TaskRuns]
"""By candidate, in the order of the command."""


def half_distance(run: TaskRun, right: Sequence[int]) -> tuple[float, bool]:
    """Compute D50: the distance at which accuracy has fallen half way from its value at the shortest one to chance.

    Interpolated linearly in log distance; distance 0 counts as 1. Errors at the shortest distance do not shorten it.

    Args:
        run: The run.
        right: Its right answers at each distance.

    Returns:
        The distance, and True if it is censored: accuracy did not fall so far up to the longest distance tested. A
        model at chance at the shortest distance has that distance.
    """
    places = [math.log2(max(1, distance)) for distance in run.distances]
    above = [r / asked - chance for r, asked, chance in zip(right, run.asked, run.baseline, strict=True)]
    if above[0] <= 0:
        return 2.0 ** places[0], False
    for i, (before, after) in enumerate(pairwise(above)):
        if after <= above[0] / 2:
            share = (before - above[0] / 2) / (before - after)
            return 2.0 ** (places[i] + share * (places[i + 1] - places[i])), False
    return 2.0 ** places[-1], True


def pooled(counts: Sequence[tuple[int, int]]) -> Share:
    """Estimate the mean share of right answers over seeds, in percent.

    The interval is Wilson's over all answers or Student's over seeds, whichever reaches further: the first alone treats
    the answers of one network as independent, and the second has no width if all seeds agree.

    Args:
        counts: Right answers and examples of each seed.
    """
    over_answers = wilson(sum(right for right, _ in counts), sum(asked for _, asked in counts))
    over_seeds = mean([100 * right / asked for right, asked in counts])
    ends = [end for end in (over_answers.low, over_answers.high, over_seeds.low, over_seeds.high) if end is not None]
    return Share(over_seeds.value, max(0.0, min(ends)), min(100.0, max(ends)))


def differences(of_all: Models) -> Pairwise:
    """Return the differences in the distance reached (second minus first, in doublings) of all pairs.

    The interval is Welch's (1947), of values censored at the longest distance; the p-value is that of the exact
    log-rank test, which accounts for censoring. Pairs with fewer than two seeds are missing.
    """

    def _compare_models(a: str, b: str) -> Difference | None:
        found = welch(of_all[a].doublings(), of_all[b].doublings())
        return found and replace(found, tested=log_rank_p(of_all[a].reaches(), of_all[b].reaches()))

    return Pairwise.of(of_all, _compare_models)


def time_tests(of_all: Models) -> dict[tuple[str, str], tuple[float, float]]:
    """Test the times to the solution of all pairs whose learning rates are inside their grids.

    Returns:
        P-value of the exact log-rank test, and the same corrected for all pairs (Holm 1979).
    """
    pairs = list(combinations([own for own in of_all.values() if own.rate_gate().passed], 2))
    p_values = [log_rank_p(one.times(), two.times()) for one, two in pairs]
    return {(a.model, b.model): (p, after) for (a, b), p, after in zip(pairs, p_values, holm(p_values), strict=True)}


def analyse(comparison: Comparison, measured: Mapping[Trial, TaskRun | Rates]) -> Analysis:
    """Analyse accuracy by distance, and times to the solution."""
    runs = {trial: each for trial, each in measured.items() if isinstance(each, TaskRun)}
    rates = {(trial.model, trial.part): each for trial, each in measured.items() if isinstance(each, Rates)}

    def _select_runs(part: Part) -> dict[str, TaskRuns]:
        searched = replace(part, of="rates").key
        own = by_model(comparison, runs, part.key)
        return {model: TaskRuns(model, part, each, rates.get((model, searched))) for model, each in own.items()}

    parts = {
        part: own for part in (Part(name, form) for name in NAMES for form in FORMS) if (own := _select_runs(part))
    }
    every = [each for own in parts.values() for each in own.values()]
    others = _select_runs(replace(DECIDES, of="other"))
    return Analysis(
        findings=[*_distance_verdicts(parts, others), *_time_verdicts(parts, others)],
        figures=[*(draw(own) for own in parts.values() for draw in (_accuracy, _survival))],
        tables=filled(
            _summary(every),
            _distances(parts),
            _times(parts),
            gates_table(
                "the models",
                {(own.part.title, own.model): own.gates() for own in every},
                ("task", "model", "check"),
            ),
            _runs(every),
        ),
        seeds=sorted({trial.seed for trial in measured if trial.seed is not None}),
        claims=_claims(comparison, parts, others),
    )


def _claims(comparison: Comparison, parts: Mapping[Part, Models], others: Models) -> list[Claim | None]:
    deciding, heads = parts.get(DECIDES, {}), parts.get(replace(DECIDES, form="head"), {})
    if not deciding:
        return []
    traits, trained = traits_of(comparison), next(iter(deciding.values())).trained
    tasks = {part.task: own for part, own in parts.items() if part.form == DECIDES.form and part != DECIDES}
    solved = {task: own for task, own in tasks.items() if any(each.num_solved for each in own.values())}
    rates = {"next best rate": others} if others else {}
    forms = rates | ({"linear head": heads} if heads else {})
    elsewhere = {name: _solution_times(own) for name, own in {**forms, **solved}.items()}
    return [
        forgets(traits, _reaches(deciding), {name: _reaches(own) for name, own in forms.items()}),
        learns_late(traits, _solution_times(deciding), elsewhere, trained),
    ]


def _reaches(models: Models) -> Reaches:
    return Reaches(
        distances={model: own.reach() for model, own in models.items()},
        beyond=[model for model, own in models.items() if 2 * own.beyond > len(own.by_seed)],
        gates={model: own.gates() for model, own in models.items()},
        trained=next(iter(models.values())).trained,
        right={model: own.accuracy(len(own.first.distances) - 1) for model, own in models.items()},
        longest=next(iter(models.values())).max_distance,
    )


def _solution_times(models: Models) -> SolutionTimes:
    return SolutionTimes(
        medians={model: own.time() for model, own in models.items()},
        never=[model for model, own in models.items() if 2 * own.num_solved < len(own.by_seed)],
        tests=time_tests(models),
        resolution=next(iter(models.values())).resolution,
    )


def assess_distance(model: str, of_all: Models) -> Assessment:
    """Compare a candidate's D50 with that of the best other one; p-values of all pairs are corrected together."""
    gates = {name: own.gates() for name, own in of_all.items()}
    other = best_other(model, {name: mean(own.doublings()).value for name, own in of_all.items()}, gates)
    both = [of_all[name] for name in (model, other) if name]
    if other and not any(own.beyond < len(own.by_seed) or failed(gates[own.model]) for own in both):
        # both are censored at the same distance, which does not make them equal
        reason = f"both reach beyond the longest tested distance, {both[0].max_distance:,} symbols"
        return Assessment("undecided", other, reasons=(reason,))
    found = assess_pair(model, other, differences(of_all), gates, "doublings", MARGIN, test="log-rank, Holm")
    if found.standing == "tie" and any(own.beyond for own in both):
        # censored seeds count as the longest distance, so they are equal by construction
        reason = f"some seeds reach beyond the longest tested distance, {both[0].max_distance:,} symbols"
        return replace(found, standing="undecided", reasons=(reason,))
    return found


def variations(
    model: str,
    other: str,
    standing: str,
    here: Mapping[str, Sequence[float]],
    elsewhere: Mapping[str, Mapping[str, Sequence[float]]],
) -> dict[str, bool]:
    """Return whether an outcome stays the same under other choices.

    Args:
        model: The candidate.
        other: Its rival.
        standing: Outcome of the candidate.
        here: Doublings of each candidate.
        elsewhere: The same under each other choice; equal values are no other choice.
    """
    signs = {"better": lambda by: by > 0, "worse": lambda by: by < 0, "tie": lambda by: abs(by) <= MARGIN}
    if standing not in signs:
        return {}
    both = {name: (own[model], own[other]) for name, own in elsewhere.items() if model in own and other in own}
    both = {name: pair for name, pair in both.items() if pair != (here.get(model), here.get(other))}
    return {name: signs[standing](mean(mine).value - mean(its).value) for name, (mine, its) in both.items()}


def _distance_verdicts(parts: Mapping[Part, Models], others: Models) -> Iterable[Verdict]:
    deciding, heads = parts.get(DECIDES, {}), parts.get(replace(DECIDES, form="head"), {})
    here = {name: each.doublings() for name, each in deciding.items()}
    elsewhere = {
        "next best rate": {name: each.doublings() for name, each in others.items()},
        "half the updates": {name: each.doublings(half_trained=True) for name, each in deciding.items()},
        "linear head": {name: each.doublings() for name, each in heads.items()},
    }
    for model, own in deciding.items():
        found = assess_distance(model, deciding)
        whole = [each[model] for part, each in parts.items() if part.form == "full" and model in each]
        solved = [each.part.task for each in whole if 2 * each.num_solved > len(each.by_seed)]
        facts: dict[str, float | str] = {
            "longest trained distance": own.trained,
            f"error rate at distance {own.first.distances[0]} (%)": round(own.error().value, 1),
            f"tasks solved, of {len(whole)}": ", ".join(solved) or "none",
        }
        if model in heads:
            facts["reach with a linear head"] = round(heads[model].reach().value)
        kept = variations(model, found.rival, found.standing, here, elsewhere)
        found = replace(found, facts=facts, variations=kept)
        quantity = (
            "D50: distance at which recall of the first symbol has fallen half way to chance (median over seeds; "
            f"longest tested distance: {own.max_distance:,})"
        )
        cell = verdict(DISTANCE_ROW, model, own.reach(), "symbols", quantity, found, DECIDES.key)
        yield cell.model_copy(update={"at_least": 2 * own.beyond > len(own.by_seed)})


def assess_time(model: str, of_all: Models) -> Assessment:
    """Compare the updates until a candidate solves a task with those of the fastest other one."""
    own, tests = of_all[model], time_tests(of_all)
    rivals = [name for name, each in of_all.items() if name != model and each.rate_gate().passed]

    def _speed(name: str) -> tuple[float, float]:
        # equal medians are ordered by means, in which unsolved seeds count with their budget
        times = of_all[name].times()
        return of_all[name].time().value, mean([*times.ended, *times.waited]).value if len(times) else math.inf

    other = min(rivals, key=_speed, default="")
    if not (gate := own.rate_gate()).passed:
        return Assessment("not measurable", other, reasons=(gate.sentence,))
    if not other:
        reason = "no other model has a learning rate inside its grid"
        return Assessment("not measurable", reasons=(reason,))
    rival = of_all[other]
    if not own.num_solved + rival.num_solved:
        return Assessment("not measurable", other, reasons=("neither model solves the task with any seed",))
    p = next(tests[pair][1] for pair in ((model, other), (other, model)) if pair in tests)
    facts: dict[str, float | str] = {f"median of {other} (updates)": round(rival.time().value)}
    for each in (own, rival):
        if each.num_solved < len(each.by_seed):
            facts[f"seeds that solve the task, {each.model}"] = each.solved_in_words
    found = Assessment("undecided", other, p=p, test="log-rank, Holm", facts=facts)
    if p >= LEVEL:
        return found
    if (sooner := _is_sooner(own, rival)) is None:
        reason = f"the medians differ by at most one validation interval, {own.resolution:,} updates"
        return replace(found, reasons=(reason,))
    return replace(found, standing="better" if sooner else "worse")


def _is_sooner(own: TaskRuns, rival: TaskRuns) -> bool | None:
    """Return True if the median of `own` is lower, None if it differs by one validation or less."""
    mine, its = own.time().value, rival.time().value
    return None if abs(mine - its) <= own.resolution else mine < its


def _time_verdicts(parts: Mapping[Part, Models], others: Models) -> Iterable[Verdict]:
    elsewhere = {"next best rate": others}
    for part, models in parts.items():
        if part.task == DECIDES.task and part != DECIDES:
            elsewhere["linear head"] = models
        elif part != DECIDES:
            elsewhere[part.task if part.form == DECIDES.form else f"{part.task} under a linear head"] = models
    of_all = parts.get(DECIDES, {})
    for model, own in of_all.items():
        found = assess_time(model, of_all)
        pairs = {
            name: (models[model], models[found.rival])
            for name, models in elsewhere.items()
            if found.decided and {model, found.rival} <= models.keys()
        }
        kept = {
            name: _is_sooner(mine, its) is (found.standing == "better")
            for name, (mine, its) in pairs.items()
            if mine.num_solved + its.num_solved
        }
        quantity = (
            f"updates until the first symbol is recalled over up to {own.trained} others (median over seeds, at most "
            f"{own.first.budget:,}; rounded up to the validations, every {own.resolution:,} updates)"
        )
        found, picture = replace(found, variations=kept), f"{DECIDES.key}-solved"
        cell = verdict(TIME_ROW, model, own.time(), "updates", quantity, found, picture)
        yield cell.model_copy(update={"at_least": 2 * own.num_solved < len(own.by_seed)})


def _accuracy(of_all: Models) -> Figure:
    own = next(iter(of_all.values()))
    run, title = own.first, f"{own.first.title.capitalize()}, {FORMS[own.part.form]}"
    places = [float(distance) for distance in run.distances]
    shown = [series(m, m, places, [each.accuracy(i) for i in range(len(places))]) for m, each in of_all.items()]
    for label, shares in {"without memory": run.baseline, "shortcut baseline": run.cheating}.items():
        shown.append(series(label, "", places, [100 * share for share in shares], reference=True))
    shown.append(_vertical_line("longest trained distance", own.trained))
    return figure(
        own.part.key,
        f"{title}: accuracy by distance",
        (axis("distance", run.unit, log=places[0] > 0), axis("accuracy", "%")),
        shown,
        "Distances to the right of the vertical line are longer than in training. Without memory: the best accuracy "
        f"without reading the source. The shortcut baseline {run.cheat}; a model that is not above it has not learned "
        "the task. Intervals (95 %): Wilson's over all answers or Student's over seeds, whichever is wider.",
    )


def _vertical_line(label: str, place: float) -> Series:
    return series(label, "", [float(place)] * 2, [0.0, 100.0], reference=True)


def _survival(of_all: Models) -> Figure:
    """Draw the share of seeds that have not solved the task, against updates (Kaplan & Meier 1958)."""
    own, shown = next(iter(of_all.values())), []
    for model, each in of_all.items():
        times = each.times()
        x, y = kaplan_meier(times).steps(0.0) if times.ended else ([0.0], [100.0])
        if times.waited:
            x.append(float(max(times.waited)))
            y.append(y[-1])
        label = f"{model} ({len(times.waited)} of {len(times)} unsolved)" if times.waited else model
        shown.append(series(label, model, x, y))
    return figure(
        f"{own.part.key}-solved",
        f"{own.first.title.capitalize()}, {FORMS[own.part.form]}: unsolved seeds against updates",
        (axis("updates"), axis("unsolved seeds", "%")),
        [*shown, _vertical_line("budget", own.first.budget)],
        "Kaplan–Meier curves. Solved: 99 % of the held-out answers at the trained distances are right. A curve that "
        "ends above 0 has unsolved seeds (censored).",
    )


def _summary(every: Sequence[TaskRuns]) -> Table:
    def _median_time(own: TaskRuns, end: str) -> float | None:
        times = own.times()
        found = getattr(kaplan_meier(times).median(), end) if times.ended else math.inf
        return None if found == math.inf else found

    columns = [
        Column("task", lambda own: own.part.task),
        Column("form", lambda own: FORMS[own.part.form]),
        Column("model", lambda own: own.model),
        Column("seeds", lambda own: len(own.by_seed)),
        Interval("error at the shortest distance (%)", TaskRuns.error, 1, "error"),
        Interval("D50", TaskRuns.reach, 1, "D50"),
        Column("seeds beyond the longest distance", lambda own: own.beyond),
        Column("longest distance", lambda own: own.max_distance),
        Column("longest trained distance", lambda own: own.trained),
        Column("accuracy there (%)", lambda own: own.accuracy(own.first.trained - 1).value, 1),
        Column("shortcut baseline there (%)", lambda own: 100 * own.first.cheating[own.first.trained - 1], 1),
        Column("seeds that solve the task", lambda own: own.num_solved),
        Column("updates to solve, median", lambda own: _median_time(own, "value")),
        Column("updates to solve, low", lambda own: _median_time(own, "low")),
        Column("updates to solve, high", lambda own: _median_time(own, "high")),
        Column("failed checks", lambda own: ", ".join(gate.name for gate in failed(own.gates()))),
    ]
    title = "Error, reach and learning time, by task, form and model"
    return table("tasks", title, columns, every)


def _distances(parts: Mapping[Part, Models]) -> Table:
    rows = []
    for part, of_all in parts.items():
        pairs = differences(of_all)
        for (a, b), pair in pairs.items():
            # censored seeds are equal by construction, which proves no tie
            equal = None if of_all[a].beyond or of_all[b].beyond else pair.equivalence_p(MARGIN)
            seen = pair.detectable(level=pairs.level)
            rows.append((part.task, FORMS[part.form], f"{b} − {a}", pair, pairs.p[a, b], equal, seen))
    columns = [
        *("task", "form", "models"),
        Interval("doublings of D50", itemgetter(3), 2),
        Column("p (log-rank, Holm within the task)", itemgetter(4), 4),
        Column(f"p (equal within {MARGIN:g})", itemgetter(5), 4),
        Column("detectable with 80 % power (doublings)", itemgetter(6), 2),
    ]
    return table("distances", "Differences in reach between models", columns, rows)


def _times(parts: Mapping[Part, Models]) -> Table:
    rows = []
    for part, of_all in parts.items():
        for pair, (p, after) in time_tests(of_all).items():
            both = [of_all[model] for model in pair]
            seeds = [len(each.by_seed) for each in both]
            least = (1 if seeds[0] != seeds[1] else 2) / scipy.special.comb(sum(seeds), seeds[0])
            solved = [each.solved_in_words for each in both]
            rows.append((part.task, FORMS[part.form], ", ".join(pair), *solved, p, after, least))
    columns = [
        *("task", "form", "models", "solved by the first", "solved by the second"),
        Column("p (log-rank)", itemgetter(5), 4),
        Column("p (Holm within the task)", itemgetter(6), 4),
        Column("smallest possible p", itemgetter(7), 4),
    ]
    return table("solved", "Log-rank tests of the learning times (unsolved seeds censored)", columns, rows)


def _runs(every: Sequence[TaskRuns]) -> Table:
    columns = [
        *("task", "model", "seed"),
        Column("parameters", lambda row: row[3].parameters),
        Column("width", lambda row: row[3].settings.get("width")),
        Column("learning rate", lambda row: f"{row[3].rate:g}"),
        Column("updates", lambda row: row[3].updates),
        Column("updates until solved", lambda row: row[3].solved),
        Column("final loss (nats per token)", lambda row: row[3].looks[-1].loss if row[3].looks else None, 4),
        Column("D50", lambda row: row[4][0], 1),
        Column("beyond the longest", lambda row: "yes" if row[4][1] else ""),
        Column("CPU seconds", lambda row: row[3].seconds, 1),
    ]
    rows = (
        (own.part.title, own.model, seed, run, half_distance(run, run.right))
        for own in every
        for seed, run in own.by_seed.items()
    )
    return table("runs", "All trainings", columns, rows)
