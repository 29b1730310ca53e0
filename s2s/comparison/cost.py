"""Estimated cost of a comparison: a table of measured seconds, and disk space."""

from collections.abc import Sequence
from dataclasses import dataclass

from s2s.comparison.plans import Profile
from s2s.comparison.spec import Comparison, Experiment, Trial

# Measured mean seconds of a trial on an otherwise idle core, by question, or by question and the first or the last word
# of the trial's part. `lecture` is from the comparison in docs/comparison-lecture. `definitive` is scaled from it by
# the sizes if no stored comparison has the question.
SECONDS: dict[str, dict[Profile, float]] = {
    "parallelism": {"quick": 6, "lecture": 6, "definitive": 60},
    "memory": {"quick": 32, "lecture": 32, "definitive": 60},
    "long-range": {"quick": 20, "lecture": 20, "definitive": 120},
    "copying": {"quick": 10, "lecture": 18, "definitive": 70},
    "copying/longer": {"lecture": 74},
    "associative-recall": {"quick": 15, "lecture": 22, "definitive": 100},
    "associative-recall/longer": {"lecture": 67},
    "state-tracking": {"quick": 10, "lecture": 11, "definitive": 50},
    "state-tracking/longer": {"lecture": 37},
    "initialization": {"quick": 2, "lecture": 2.8, "definitive": 12},
    "length-generalization": {"quick": 14, "lecture": 33, "definitive": 170},
    "length-generalization/longer": {"lecture": 72},
    "capacity": {"quick": 7, "lecture": 37, "definitive": 75},
    "gradients": {"quick": 1, "lecture": 10, "definitive": 33},
    "bottleneck": {"quick": 5, "lecture": 16, "definitive": 16},
    "positions": {"quick": 3, "lecture": 12, "definitive": 16},
    "decoding": {"quick": 4, "lecture": 4, "definitive": 30},
    "text-length": {"quick": 1, "lecture": 1, "definitive": 1},
}
# Measured seconds of a training per million tokens of its updates, by question, or by question and kind of trial.
SECONDS_PER_MILLION_TOKENS: dict[str, float] = {
    "tuning": 10,
    "tuning/whole": 57,
    "quality": 96,
    "positions/equal": 61,
    "transfer": 43,
    "scaling": 174,
    "classification": 60,
}
# Bytes per parameter: the best and the last checkpoint, each with weights, EMA weights and two moments, in fp32.
_BYTES = 2 * 5 * 4


@dataclass(frozen=True)
class Cost:
    """Estimated cost of one question.

    Attributes:
        name: Name of the question.
        missing: Number of trials to run.
        done: Number of trials that are stored already.
        seconds: Wall-clock time of the missing trials.
        exclusive: True if they run one after another.
    """

    name: str
    missing: int
    done: int
    seconds: float
    exclusive: bool


def expected_seconds(experiment: Experiment, comparison: Comparison, trial: Trial, processes: int) -> float:
    """Estimate the wall-clock seconds that a trial adds to a comparison.

    The measured mean of the question is scaled by the speed of its trials that are stored already.

    Args:
        processes: Number of trials that run at the same time.
    """
    name, part = experiment.name, trial.part
    keys = [f"{name}/{part.partition('-')[0]}", f"{name}/{part.rpartition('-')[2]}", name]
    per_token = next((SECONDS_PER_MILLION_TOKENS[key] for key in keys if key in SECONDS_PER_MILLION_TOKENS), None)
    if per_token is None:
        seconds = next((SECONDS[key] for key in keys if key in SECONDS), {}).get(comparison.profile, 1.0)
    else:
        recipe = comparison.candidate(trial.model).recipe
        seconds = per_token * recipe.batches.tokens * recipe.training.updates / 1e6
    seconds *= comparison.paces.get(name, 1.0)
    return seconds if experiment.exclusive else seconds / processes


def disk_bytes(comparison: Comparison) -> int:
    """Return an upper bound of the bytes that trained models need: one run for each model and seed."""
    return _BYTES * len(comparison.seeds) * sum(each.parameters for each in comparison.candidates)


def format_costs(costs: Sequence[Cost], runs: int, processes: int) -> str:
    """Format the costs, one question per line, and their sum.

    Args:
        runs: Bytes of disk for trained models.
        processes: Number of trials that run at the same time.
    """
    lines = [
        f"{each.name}: {each.missing} measurements, {_format_duration(each.seconds)}"
        f"{', one after another' if each.exclusive else ''}"
        for each in costs
        if each.missing
    ]
    new, there = sum(each.missing for each in costs), sum(each.done for each in costs)
    known = f"; {there} are stored already" if there else ""
    space = f", at most {runs / 1e9:.1f} GB of disk" if runs else ""
    beside = f", {processes} at a time" if processes > 1 else ""
    whole = _format_duration(sum(each.seconds for each in costs))
    return "\n".join([*lines, f"total: {new} measurements{beside}, {whole}{space}{known}"])


def _format_duration(seconds: float) -> str:
    """Format an estimate: `about 3 h 50 min`."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute"
    hours, rest = divmod(minutes, 60)
    return f"about {hours} h {rest} min" if hours else f"about {minutes} min"
