"""Questions on synthetic tasks: candidates of several widths are trained on a task and tested at all of its sizes.

A question is a list of tasks with their budgets (`TaskPlan`). All share the trials, the measurement and the analysis.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, takewhile

import torch
from pydantic import TypeAdapter

from s2s.comparison.claims import Decision, Pair, claim_numbers, decide, describe_each, traits_of
from s2s.comparison.matching import non_width_settings, settings_of
from s2s.comparison.paired_tests import listed
from s2s.comparison.reporting import Column, axis, figure, filled, series, table, verdict
from s2s.comparison.results import Claim, Figure, Table, Verdict
from s2s.comparison.spec import Analysis, Candidate, Comparison, Experiment, Scale, Trial, by_model, check_translates
from s2s.comparison.task_training import Budget, Ending, Rates, TaskModel, TaskRun, Validation, find_rates, search
from s2s.comparison.traits import Traits
from s2s.comparison.tuning import TRIAL_SEED
from s2s.data.synthetic_tasks import SyntheticTask
from s2s.evaluation.differences import LEVEL
from s2s.evaluation.gates import Assessment, converged
from s2s.evaluation.inference import Estimate, holm, mean
from s2s.evaluation.survival import Times, log_rank_p, median_within
from s2s.models.base import Seq2Seq, count_parameters
from s2s.recipe.installed import module_of
from s2s.training.device import derive_seed

MASTERED = 0.95
"""Accuracy at which a size counts as mastered."""
# Settings of all models on synthetic tasks. Encoders are unidirectional: a bidirectional one needs to remember less.
OPTIONS: dict[str, object] = {
    "decoder_layers": 1,
    "dropout": 0.0,
    "feedforward_ratio": 2,
    "heads": 2,
    "bidirectional": False,
    "reverse_source": False,
    "scale_embeddings": True,
}


@dataclass(frozen=True)
class TaskPlan:
    """A task of a question with its sizes; the first plan of a question, at `width`, decides.

    Attributes:
        task: The task.
        width: Deciding width of states and embeddings.
        others: Further widths.
        seeds: Number of trainings at `width`.
        other_seeds: Number of trainings at each of the other widths.
        updates: Maximum number of updates of a training.
        trial: Updates of a trial of a learning rate.
        encoder_layers: Number of layers of the encoder.
        settle: Updates after the task is solved, while the learning rate decays to zero.
        every: Updates between two validations.
        rows: Test examples of each size and seed.
        is_written: True to generate answers at the largest size with greedy search, and to classify them.
        entropy: Bits of each symbol of the answers, to bound the information from the encoder; None to skip the bound.
        longer: Maximum number of updates of further trainings of `other_seeds` seeds at `width`, a variation of the
            verdict; None for none.
    """

    task: SyntheticTask
    width: int
    others: tuple[int, ...]
    seeds: int
    other_seeds: int
    updates: int
    trial: int
    encoder_layers: int = 1
    settle: int = 300
    every: int = 100
    rows: int = 200
    is_written: bool = False
    entropy: float | None = None
    longer: int | None = None

    @property
    def longer_part(self) -> str:
        """Part of the longer trainings."""
        return f"{self.part(self.width)}-longer"

    @property
    def budget(self) -> Budget:
        """Budget of a training."""
        return Budget(self.updates, every=self.every, trial=self.trial, warmup=100)

    def part(self, width: int) -> str:
        """Return the part of the trials at a width."""
        return f"{self.task.name}-{width}"

    def build(self, candidate: Candidate, width: int) -> Seq2Seq:
        """Build a newly initialized model of a candidate."""
        # Tuning adds residual connections to deep models; these models are shallow.
        joined = {} if "residual" in candidate.own else {"residual": False}
        shape: dict[str, object] = {"encoder_layers": self.encoder_layers, "width": width, "feedforward": 2 * width}
        longest = {"max_positions": 2 * self.task.tested[-1] + 2}
        options = non_width_settings(candidate.settings) | OPTIONS | joined | shape | longest
        size = self.task.vocabulary_size
        return module_of(candidate.kind).build(settings_of(candidate.kind, options), size, size)


@dataclass(frozen=True)
class TaskResult:
    """Measurement of one training on a task."""

    width: int
    parameters: int
    sizes: list[int]  # tested sizes, ascending
    trained: int  # largest training size
    asked: list[int]  # number of test answers at each size
    right: list[float]  # accuracy at each size
    rate: float
    inside: bool  # True if the rate has worse ones on both sides
    budget: int  # maximum number of updates
    updates: int
    solved: int | None  # updates until 99 % of the validation answers were correct
    looks: list[Validation]  # validations
    seconds: float  # CPU time of the training
    failure: str = ""  # reason of a failed training
    endings: dict[Ending, int] | None = None  # number of generated answers at the largest size, by ending
    bits: list[float] | None = None  # lower bound on the bits from the encoder at each size; None if not measured

    @property
    def mastered(self) -> int:
        """Largest size up to which at least 95 % of the answers are correct at every size; 0 if there is none."""
        counts = zip(self.sizes, self.right, strict=True)
        return max((size for size, _ in takewhile(lambda each: each[1] >= MASTERED, counts)), default=0)

    @property
    def is_bound(self) -> bool:
        """True if no larger size was tested, so that `mastered` is a lower bound."""
        return self.mastered == self.sizes[-1]


@dataclass(frozen=True)
class Score:
    """Score of a training; a lower bound if the training masters the largest size.

    Attributes:
        of: Score.
        title: Name in titles of figures.
    """

    of: Callable[[TaskResult], float]
    title: str


MASTERED_SIZE = Score(of=lambda run: run.mastered, title=f"largest size with {100 * MASTERED:.0f} % accuracy")


Plans = Mapping[Scale, Sequence[TaskPlan]]
"""Tasks of a question by profile; the first one decides."""


def trials(comparison: Comparison, plans: Sequence[TaskPlan]) -> list[Trial]:
    """Return the searches for learning rates and the trainings, the deciding ones first."""
    made = []
    decide_first = [(plan, plan.width, plan.seeds) for plan in plans]
    decide_first += [(plan, width, plan.other_seeds) for plan in plans for width in plan.others]
    for plan, width, seeds in decide_first:
        searches = [_search_trial(model, plan, width) for model in comparison.models]
        made += searches
        made += [Trial(s.model, plan.part(width), seed, search=s) for seed in range(1, seeds + 1) for s in searches]
    for plan in (plan for plan in plans if plan.longer):
        searches = [_search_trial(model, plan, plan.width) for model in comparison.models]
        seeds = range(1, plan.other_seeds + 1)
        made += [Trial(s.model, plan.longer_part, seed, search=s) for seed in seeds for s in searches]
    return made


def _search_trial(model: str, plan: TaskPlan, width: int) -> Trial:
    return Trial(model, f"{plan.part(width)}-rates")


def measure(comparison: Comparison, trial: Trial, plans: Plans, question: str) -> TaskResult | Rates:
    """Search for the best learning rate of a candidate on a task, or train with it and test every size.

    Args:
        comparison: The comparison.
        trial: A trial of `trials`.
        plans: Tasks of the question.
        question: Name of the question; its folder has the results of the searches.

    Raises:
        UserError: Every training of the search failed.
    """
    plan, width = next(
        (plan, width)
        for plan in comparison.sizes(plans)
        for width in (plan.width, *plan.others)
        if trial.part in (plan.part(width), _search_trial(trial.model, plan, width).part)
        or (width == plan.width and trial.part == plan.longer_part)
    )
    if trial.seed is None or trial.search is None:
        return search(lambda rate: _start(comparison, trial, plan, width, rate), None)
    measure_rates = partial(measure, comparison, plans=plans, question=question)
    rates = find_rates(comparison.results_folder(question), measure_rates, trial.search, "fp32")
    if trial.part == plan.longer_part and plan.longer:
        plan = replace(plan, updates=plan.longer)
    run = _start(comparison, trial, plan, width, rates.best)
    run.continue_until(plan.updates)
    run.settle(plan.settle)
    chance = torch.Generator().manual_seed(derive_seed(trial.seed, 3) % 2**63)
    tested = [run.right(size, plan.rows, chance) for size in plan.task.tested]
    return TaskResult(
        width=width,
        parameters=count_parameters(run.model),
        sizes=list(plan.task.tested),
        trained=max(plan.task.trained),
        asked=[asked for _, asked in tested],
        right=[0.0 if run.failure else right for right, _ in tested],
        rate=rates.best,
        inside=rates.inside,
        budget=plan.updates,
        updates=run.update,
        solved=None if run.failure else run.solved,
        looks=run.looks,
        seconds=run.seconds,
        failure=run.failure,
        endings=(run.endings(plan.task.tested[-1], plan.rows, chance) if plan.is_written and not run.failure else None),
        bits=None if plan.entropy is None else _bits(run, plan, plan.entropy, chance),
    )


def _bits(run: TaskRun, plan: TaskPlan, entropy: float, chance: torch.Generator) -> list[float]:
    """Return a lower bound on the information from the encoder about answers of each size, in bits.

    A decoder predicts each symbol from the previous ones and from the encoder output. Its cross-entropy is at least the
    conditional entropy, so the information is at least the entropy minus the cross-entropy (Barber & Agakov 2003).
    """
    if run.failure:
        return [0.0] * len(plan.task.tested)
    return [max(0.0, entropy * size - run.cross_entropy(size, plan.rows, chance)) for size in plan.task.tested]


def _start(comparison: Comparison, trial: Trial, plan: TaskPlan, width: int, rate: float) -> TaskRun:
    seed = TRIAL_SEED if trial.seed is None else trial.seed
    torch.manual_seed(derive_seed(seed))
    model = plan.build(comparison.candidate(trial.model), width)
    check_translates(model, trial.model)
    learner = TaskModel(model, encoder_width(model), plan.task.classes)
    return TaskRun(learner, plan.task, rate, plan.budget, seed, comparison.device_context)


def encoder_width(model: Seq2Seq) -> int:
    """Return the width of a model's encoder states."""
    token = torch.zeros(1, 1, dtype=torch.long)
    with torch.no_grad():
        return model.encoder(token, token == 0).states.shape[2]


@dataclass(frozen=True)
class Mastery:
    """Scores of the trainings of a candidate at one width, by seed: by default the mastered sizes."""

    runs: Mapping[int, TaskResult]
    score: Score = MASTERED_SIZE

    @property
    def first(self) -> TaskResult:
        """The first training, for attributes that all share."""
        return next(iter(self.runs.values()))

    @property
    def times(self) -> Times:
        """Scores; those that are lower bounds are censored."""
        runs = self.runs.values()
        return Times(
            [self.score.of(run) for run in runs if not run.is_bound],
            [self.score.of(run) for run in runs if run.is_bound],
        )

    @property
    def is_bound(self) -> bool:
        """True if the median is a lower bound."""
        return 2 * len(self.times.waited) > len(self.runs)

    @property
    def median(self) -> Estimate:
        """Median over seeds (Kaplan & Meier 1958), the lower one of an even number.

        If more than half of the scores are lower bounds, so is their median.
        """
        scores = [float(self.score.of(run)) for run in self.runs.values()]
        return median_within(self.times, statistics.median_low(scores) if self.is_bound else max(scores))

    @property
    def order(self) -> tuple[float, float]:
        """Key that orders candidates: the median, then the mean."""
        return self.median.value, statistics.mean((*self.times.ended, *self.times.waited))

    def accuracy(self, i: int) -> Estimate:
        """Mean accuracy at size number `i`, in percent."""
        found = mean([100 * run.right[i] for run in self.runs.values()])
        ends = (None if end is None else min(100.0, max(0.0, end)) for end in (found.low, found.high))
        return Estimate(found.value, *ends)

    @property
    def num_solved(self) -> int:
        """Number of seeds that solved the task within the budget."""
        return sum(run.solved is not None for run in self.runs.values())

    @property
    def rate_settled(self) -> bool:
        """True if the learning rate has worse ones on both sides, or every seed solved the task with it."""
        return self.first.inside or self.num_solved == len(self.runs)

    @property
    def still_learns(self) -> bool:
        """True if some seeds did not solve the task, and their mean loss still falls at the end of the budget."""
        unsolved = [run.looks for run in self.runs.values() if run.solved is None and not run.failure]
        if not unsolved:
            return False
        count = min(map(len, unsolved))
        losses = [statistics.mean(looks[i].loss for looks in unsolved) for i in range(count)]
        return not converged([look.update for look in unsolved[0][:count]], losses).passed

    @property
    def state(self) -> str:
        """State of the trainings: solved, failed, still learning, or converged."""
        if self.num_solved == len(self.runs):
            return "solved"
        if all(run.failure for run in self.runs.values()):
            return "failed"
        return "still learning" if self.still_learns else "converged"


Models = Mapping[str, Mastery]
"""Scores at one width, by candidate in the order of the command."""


def pair_p_values(of_all: Models) -> dict[tuple[str, str], float]:
    """Return p-values of the exact log-rank test of the scores, for all pairs of candidates."""
    return {(a, b): log_rank_p(of_all[a].times, of_all[b].times) for a, b in combinations(of_all, 2)}


def claim_pairs(of_all: Models, ahead: Sequence[str], behind: Sequence[str]) -> list[Pair]:
    """Return the tests of all pairs of two groups of candidates, for `decide`."""
    p_values = pair_p_values(of_all)
    pairs = []
    for one in ahead:
        for other in behind:
            p = p_values[(one, other) if (one, other) in p_values else (other, one)]
            (a, a_mean), (b, b_mean) = of_all[one].order, of_all[other].order
            pairs.append(Pair(one, other, a - b or a_mean - b_mean, p))
    return pairs


def _stays(found: Decision, others: Models, ahead: Sequence[str], behind: Sequence[str]) -> bool | None:
    """Return whether a verdict is the same with other results; None if they have too few seeds.

    With three seeds each, no exact test has a p-value below 0.1. Then a pair counts if it has the lowest possible
    p-value: every seed of one model is better than every seed of the other.
    """
    pairs = claim_pairs(others, ahead, behind)
    seeds = min(len(others[model].runs) for model in (*ahead, *behind))
    least_p = 2 / math.comb(2 * seeds, seeds)
    if least_p < LEVEL:
        return decide(pairs).verdict == found.verdict
    apart = [pair for pair in pairs if (pair.p or 0.0) <= least_p * (1 + 1e-9)]
    contradicted = any(pair.difference < 0 for pair in apart)
    if not contradicted and len(apart) < len(pairs):
        return None
    return contradicted == (found.verdict == "no")


@dataclass(frozen=True)
class TaskClaim:
    """A claim about two groups of candidates on a task.

    Attributes:
        name: Claim, a key of `CLAIMS`.
        ahead: True for traits of the models that the claim says are better.
        behind: True for traits of the others.
        measured: Quantity of the numbers; `{width}`, `{trained}` and `{updates}` are filled in.
        groups: Descriptions of the two groups in a sentence, such as `with attention` and `without attention`.
        verb: Verb of the sentences, such as `copies`.
        score: Score of each training.
        unit: Unit of the numbers; empty for that of the task's sizes.
    """

    name: str
    ahead: Callable[[Traits], bool]
    behind: Callable[[Traits], bool]
    measured: str
    groups: tuple[str, str]
    verb: str
    score: Score = MASTERED_SIZE
    unit: str = ""

    def decide(
        self,
        comparison: Comparison,
        plan: TaskPlan,
        of_all: Models,
        variations: Mapping[str, Models],
        figure_name: str,
        longer: Models,
    ) -> Claim | None:
        """Decide the claim at the plan's width; None if a group has no candidate.

        Args:
            comparison: The comparison.
            plan: The deciding task.
            of_all: Results at the plan's width.
            variations: Results at other widths, or with more updates, which show whether the verdict is stable.
            figure_name: Name of the figure of the results.
            longer: Results with more updates; empty if there are none.
        """
        traits = traits_of(comparison)
        ahead = [model for model in of_all if self.ahead(traits[model])]
        behind = [model for model in of_all if self.behind(traits[model])]
        if not ahead or not behind:
            return None
        found = decide(claim_pairs(of_all, ahead, behind))
        stable = {}
        for name, others in variations.items():
            if {*ahead, *behind} <= others.keys() and found.verdict != "undecided":
                stays = _stays(found, others, ahead, behind)
                stable |= {} if stays is None else {name: stays}
        best = max(behind, key=lambda model: of_all[model].order)
        worst = min(ahead, key=lambda model: of_all[model].order)
        unit = self.unit or plan.task.unit
        least, most = self._number(of_all[worst]), self._number(of_all[best])
        within = f"Within {max(own.first.budget for own in of_all.values()):,} updates, by medians over seeds"
        if found.verdict == "yes" and len(ahead) + len(behind) > 2:
            first, second = self.groups
            equal = len({of_all[model].median.value for model in ahead}) == 1
            fewest = "" if equal else f" ({worst} the fewest)"
            top = [model for model in behind if of_all[model].median.value == of_all[best].median.value]
            each = f"each of {listed(ahead)}" if len(ahead) > 1 else ahead[0]
            sentence = (
                f"{within}, {first} {each} {self.verb} {least.removeprefix('at least ')} {unit} or more{fewest}; "
                f"{second} none {self.verb} more than {most} ({', '.join(top)})."
            )
        else:
            sentence = f"{within}, {worst} {self.verb} {least} {unit}, {best} {most}."
        if found.verdict == "undecided" and found.pair:
            sentence += (
                f" {found.pair.ahead} and {found.pair.behind} do not differ significantly "
                f"(p = {found.pair.p or 1:.2g})."
            )
        if rest := [model for model in of_all if model not in (*ahead, *behind)]:
            sentence += f" The others: {describe_each({model: self._number(of_all[model]) for model in rest})}."
        if longer and plan.longer:
            numbers = {model: self._number(own) + ("†" if own.still_learns else "") for model, own in longer.items()}
            sentence += f" Within {plan.longer:,} updates: {describe_each(numbers)}."
        closed = [model for model in (*ahead, *behind) if not of_all[model].rate_settled]
        if closed:
            sentence += f" The learning rate of {listed(closed)} is at an end of its grid."
        return Claim(
            name=self.name,
            measured=self.quantity(plan, of_all[worst]),
            unit=unit,
            verdict="undecided" if closed else found.verdict,
            sentence=sentence,
            numbers=claim_numbers(
                {model: own.median for model, own in of_all.items()},
                "high",
                {model: "still learning" for model, own in of_all.items() if own.still_learns},
                at_least=[model for model, own in of_all.items() if own.is_bound],
            ),
            p=found.p,
            test="exact log-rank test",
            figure=figure_name,
            stable=stable,
        )

    def quantity(self, plan: TaskPlan, own: Mastery) -> str:
        """Return the quantity of the numbers with the sizes of a plan."""
        return self.measured.format(width=plan.width, trained=own.first.trained, updates=f"{own.first.budget:,}")

    @staticmethod
    def _number(own: Mastery) -> str:
        return f"{'at least ' if own.is_bound else ''}{float(f'{own.median.value:.3g}'):g}"


def analyse(
    comparison: Comparison,
    measured: Mapping[Trial, TaskResult | Rates],
    plans: Sequence[TaskPlan],
    row: str,
    claim: TaskClaim,
) -> Analysis:
    """Analyse the scores of the candidates.

    Args:
        comparison: The comparison.
        measured: Measurements.
        plans: Tasks of the question; the first one decides.
        row: Row of the table.
        claim: Claim that the question decides.
    """
    results = {trial: each for trial, each in measured.items() if isinstance(each, TaskResult)}
    found: dict[str, dict[int, Models]] = {}
    for plan in plans:
        for width in (plan.width, *plan.others):
            own = by_model(comparison, results, plan.part(width))
            if own:
                found.setdefault(plan.task.name, {})[width] = {
                    model: Mastery(runs, claim.score) for model, runs in own.items()
                }
    deciding = plans[0]
    by_width = found.get(deciding.task.name, {})
    of_all = by_width.get(deciding.width, {})
    longer = {
        plan.task.name: {
            model: Mastery(runs, claim.score) for model, runs in by_model(comparison, results, plan.longer_part).items()
        }
        for plan in plans
        if plan.longer
    }
    own_variations = {f"width {width}": models for width, models in by_width.items() if width != deciding.width}
    if deciding.longer and longer[deciding.task.name]:
        own_variations[f"{deciding.longer:,} updates"] = longer[deciding.task.name]
    variations = own_variations | {
        plan.task.title: found[plan.task.name][plan.width]
        for plan in plans[1:]
        if plan.width in found.get(plan.task.name, {})
    }
    figures = [
        accuracy_figure(plan, found[plan.task.name][plan.width])
        for plan in plans
        if plan.width in found.get(plan.task.name, {})
    ]
    if len(by_width) > 1:
        figures.append(_widths(deciding, by_width, claim))
    shown = figures[0].name if figures else ""
    groups = [
        (plan.task.title, width, models) for plan in plans for width, models in found.get(plan.task.name, {}).items()
    ]
    groups += [
        (f"{plan.task.title}, {plan.longer:,} updates", plan.width, longer[plan.task.name])
        for plan in plans
        if plan.longer
    ]
    return Analysis(
        findings=[_verdict(model, deciding, of_all, variations, row, shown, claim) for model in of_all],
        figures=figures,
        tables=filled(pairs_table(groups), runs_table(groups)),
        seeds=sorted({trial.seed for trial in results if trial.seed is not None}),
        claims=[claim.decide(comparison, deciding, of_all, own_variations, shown, longer.get(deciding.task.name, {}))],
    )


def assess(model: str, of_all: Models) -> Assessment:
    """Compare the scores of a candidate with those of the best other one; p-values of all pairs are corrected."""
    others = [name for name in of_all if name != model]
    if not others:
        return Assessment("not measurable", reasons=("no other model was measured",))
    other, own = max(others, key=lambda name: of_all[name].order), of_all[model]
    for name in (model, other):
        if not of_all[name].rate_settled:
            reason = f"the learning rate of {name} is at an end of its grid"
            return Assessment("not measurable", other, reasons=(reason,))
    p_values = pair_p_values(of_all)
    after = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    p = after[(model, other) if (model, other) in after else (other, model)]
    facts: dict[str, float | str] = {
        f"median of {other}": of_all[other].median.value,
        "seeds that solve the task": f"{own.num_solved} of {len(own.runs)}",
    }
    standing = "undecided" if p >= LEVEL else "better" if own.order > of_all[other].order else "worse"
    return Assessment(standing, other, p=p, test="log-rank, Holm", facts=facts)


def _verdict(
    model: str,
    plan: TaskPlan,
    of_all: Models,
    variations: Mapping[str, Models],
    row: str,
    shown: str,
    claim: TaskClaim,
) -> Verdict:
    found, own = assess(model, of_all), of_all[model]
    if found.decided:
        better, worse = (model, found.rival) if found.standing == "better" else (found.rival, model)
        kept = {
            name: models[better].order > models[worse].order
            for name, models in variations.items()
            if {model, found.rival} <= models.keys()
        }
        found = replace(found, variations=kept)
    unit = claim.unit or plan.task.unit
    cell = verdict(row, model, own.median, unit, claim.quantity(plan, own), found, shown)
    return cell.model_copy(update={"at_least": own.is_bound})


def accuracy_figure(plan: TaskPlan, of_all: Models) -> Figure:
    """Draw the accuracy of each candidate by size, with the shortcut baseline."""
    first = next(iter(of_all.values())).first
    sizes = [float(size) for size in first.sizes]
    shown = [series(m, m, sizes, [own.accuracy(i) for i in range(len(sizes))]) for m, own in of_all.items()]
    shortcuts = [100 * plan.task.shortcut_accuracy(size) for size in first.sizes]
    shown.append(series("shortcut baseline", "", sizes, shortcuts, reference=True))
    if first.trained < first.sizes[-1]:
        shown.append(series("largest training size", "", [float(first.trained)] * 2, [0.0, 100.0], reference=True))
    return figure(
        f"{plan.part(plan.width)}-accuracy",
        f"{plan.task.title.capitalize()}: accuracy by size, width {plan.width}",
        (axis(f"size ({plan.task.unit})", log=True), axis("accuracy", "%")),
        shown,
        f"Means over seeds; intervals (95 %): Student's. The shortcut baseline {plan.task.shortcut}.",
    )


def _widths(plan: TaskPlan, by_width: Mapping[int, Models], claim: TaskClaim) -> Figure:
    widths, shown = sorted(by_width), []
    for model in dict.fromkeys(model for models in by_width.values() for model in models):
        known = [width for width in widths if model in by_width[width]]
        values = [by_width[width][model].median for width in known]
        shown.append(series(model, model, [float(width) for width in known], values))
    unit = claim.unit or plan.task.unit
    return figure(
        f"{plan.task.name}-widths",
        f"{plan.task.title.capitalize()}: {claim.score.title}, by width",
        (axis("width of the states", log=True), axis(unit)),
        shown,
        "Medians over seeds; intervals (95 %): Kaplan–Meier's, from six seeds on.",
    )


Group = tuple[str, int, Models]
"""Title of a task, width, and scores of all candidates."""


def pairs_table(groups: Sequence[Group]) -> Table:
    """Build the table of tests of all pairs, by task and width."""
    rows = []
    for title, width, of_all in groups:
        p_values = pair_p_values(of_all)
        for (pair, p), after in zip(p_values.items(), holm(list(p_values.values())), strict=True):
            a, b = (of_all[model] for model in pair)
            rows.append((title, width, listed(pair), round(a.median.value, 1), round(b.median.value, 1), p, after))
    columns = [
        *("task", "width", "models", "median of the first", "median of the second"),
        Column("p (log-rank)", lambda row: row[5], 4),
        Column("p (Holm within task and width)", lambda row: row[6], 4),
    ]
    return table("pairs", "Log-rank tests of all pairs of models", columns, rows)


def runs_table(groups: Sequence[Group]) -> Table:
    """Build the table of all trainings, by task and width."""
    rows = [
        (title, width, model, seed, run, own)
        for title, width, of_all in groups
        for model, own in of_all.items()
        for seed, run in own.runs.items()
    ]
    columns = [
        *("task", "width", "model", "seed"),
        Column("parameters", lambda row: row[4].parameters),
        Column("learning rate", lambda row: f"{row[4].rate:g}"),
        Column("rate inside its grid", lambda row: "yes" if row[4].inside else "no"),
        Column("updates", lambda row: row[4].updates),
        Column("updates until solved", lambda row: row[4].solved),
        Column(MASTERED_SIZE.title, lambda row: row[4].mastered),
        *(
            [Column("bits conveyed", lambda row: max(row[4].bits or [0.0]), 1)]
            if any(row[4].bits for row in rows)
            else []
        ),
        Column("state of the trainings", lambda row: row[5].state),
        Column("CPU seconds", lambda row: row[4].seconds, 1),
    ]
    return table("runs", "All trainings", columns, rows)


def task_experiment(
    name: str, question: str, plans: Plans, row: str, claim: TaskClaim
) -> Experiment[TaskResult | Rates]:
    """Build a question on synthetic tasks.

    Args:
        name: Name after `--experiment`.
        question: The question, one sentence.
        plans: Its tasks.
        row: Row of the table that it fills.
        claim: Claim that it decides.
    """

    def analyse_own(comparison: Comparison, measured: Mapping[Trial, TaskResult | Rates]) -> Analysis:
        return analyse(comparison, measured, comparison.sizes(plans), row, claim)

    return Experiment(
        name,
        question,
        lambda comparison: trials(comparison, comparison.sizes(plans)),
        partial(measure, plans=plans, question=name),
        analyse_own,
        measurement=TypeAdapter(TaskResult | Rates),
        tuning_level="",
        numbers=lambda comparison: {"settle": comparison.sizes(plans)[0].settle},
        precision="fp32",
    )
