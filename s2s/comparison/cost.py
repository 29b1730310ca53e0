"""Estimate what a comparison takes: one table of measured seconds, and disk space."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from s2s.comparison.executor import StoredResult, load_result, machine_here
from s2s.comparison.plans import Profile
from s2s.comparison.spec import Comparison, Experiment, Trial
from s2s.run.manifest import code_version

# measured mean seconds of a trial on one core. `lecture`: the comparison kept in docs/comparison-lecture; questions of
# `definitive` that no kept comparison asks are scaled from it by their sizes
SECONDS: dict[str, dict[Profile, float]] = {
    "parallelism": {"quick": 6, "lecture": 6, "definitive": 60},
    "memory": {"quick": 32, "lecture": 32, "definitive": 60},
    "long-range": {"quick": 20, "lecture": 20, "definitive": 120},
    "gradients": {"quick": 1, "lecture": 10, "definitive": 33},
    "bottleneck": {"quick": 5, "lecture": 16, "definitive": 16},
    "positions": {"quick": 2, "lecture": 2, "definitive": 4},
    "decoding": {"quick": 4, "lecture": 4, "definitive": 30},
    "text-length": {"quick": 1, "lecture": 1, "definitive": 1},
}
# the same of trainings, per million tokens of the recipe's updates; by question, or question and kind of trial
SECONDS_PER_MILLION_TOKENS: dict[str, float] = {
    "tuning": 10,
    "tuning/whole": 57,
    "quality": 96,
    "positions/equal": 70,
    "transfer": 43,
    "scaling": 174,
    "classification": 60,
}
# a run keeps its best and its last checkpoint, each with weights, EMA weights and two moments, in fp32
_BYTES = 2 * 5 * 4


@dataclass(frozen=True)
class Cost:
    """Estimated cost of one question."""

    name: str
    missing: int  # trials to run
    done: int  # trials that are stored already
    seconds: float  # wall-clock time of the missing ones
    exclusive: bool  # whether they run one after the other


def missing_trials(experiment: Experiment, comparison: Comparison, trials: Sequence[Trial]) -> list[Trial]:
    """Select the trials to run: those without a stored result, and failed ones that may succeed.

    Timing and memory results from another machine, version or thread count are not comparable: if any trial is new,
    they are measured again, too. A failed trial does not count as new. A round in which a trial is new is measured
    again.
    """
    folder = comparison.results_folder(experiment.name)
    tried = {trial: one for trial in trials if (one := load_result(folder, trial))}
    before = {trial: one for trial, one in tried.items() if not one.failed}
    if experiment.exclusive:
        new = [trial for trial in trials if trial not in tried]
        own = {trial: one for trial, one in before.items() if _of_here(one, experiment.precision_in(comparison))}
        if new or 0 < len(own) < len(before):
            rounds = {trial.part for trial in new if trial.in_round}
            before = {trial: one for trial, one in own.items() if trial.part not in rounds}
    final = {trial for trial, one in tried.items() if one.failed and one.final}
    # in their order: rounds are told apart by it
    return [trial for trial in trials if trial not in {*before, *final}]


def _of_here(one: StoredResult, precision: str) -> bool:
    return (one.machine, one.code, one.threads) == (machine_here(precision), code_version(), torch.get_num_threads())


def expected_seconds(experiment: Experiment, comparison: Comparison, trial: Trial, processes: int) -> float:
    """Expected wall-clock seconds that a trial adds to a comparison, from the table.

    Args:
        experiment: the question.
        comparison: the comparison.
        trial: the trial.
        processes: number of trials that run at the same time.
    """
    name, kind = experiment.name, f"{experiment.name}/{trial.part.partition('-')[0]}"
    per_token = SECONDS_PER_MILLION_TOKENS.get(kind, SECONDS_PER_MILLION_TOKENS.get(name))
    if per_token is None:
        seconds = SECONDS.get(name, {}).get(comparison.profile, 1.0)
    else:
        recipe = comparison.candidate(trial.model).recipe
        seconds = per_token * recipe.batches.tokens * recipe.training.updates / 1e6
    return seconds if experiment.exclusive else seconds / processes


def estimate_cost(experiment: Experiment, comparison: Comparison, trials: Sequence[Trial], processes: int) -> Cost:
    """The cost of those trials that are not stored yet."""
    new = missing_trials(experiment, comparison, trials)
    seconds = sum(expected_seconds(experiment, comparison, trial, processes) for trial in new)
    return Cost(experiment.name, len(new), len(trials) - len(new), seconds, experiment.exclusive)


def disk_bytes(comparison: Comparison) -> int:
    """Upper bound of the bytes that the trained models take: one run for each model and seed."""
    return _BYTES * len(comparison.seeds) * sum(each.parameters for each in comparison.candidates)


def format_costs(costs: Sequence[Cost], runs: int, processes: int) -> str:
    """Format the costs, one question a line, and their sum.

    Args:
        costs: of each question.
        runs: bytes of disk that trained models take.
        processes: number of trials that run at the same time.
    """
    lines = [
        f"{each.name}: {each.missing} measurements, {_format_duration(each.seconds)}"
        f"{', one after another' if each.exclusive else ''}"
        for each in costs
        if each.missing
    ]
    new, there = sum(each.missing for each in costs), sum(each.done for each in costs)
    known = f"; {there} are kept" if there else ""
    space = f", and {runs / 1e9:.1f} GB of disk at most" if runs else ""
    beside = f", {processes} at a time" if processes > 1 else ""
    whole = _format_duration(sum(each.seconds for each in costs))
    return "\n".join([*lines, f"in all {new} measurements{beside}: {whole}{space}{known}"])


def _format_duration(seconds: float) -> str:
    """Format an estimate: `about 3 h 50 min`."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute"
    hours, rest = divmod(minutes, 60)
    return f"about {hours} h {rest} min" if hours else f"about {minutes} min"
