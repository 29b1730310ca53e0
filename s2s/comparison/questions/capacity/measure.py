"""Train candidates to copy a few symbols, for long: bits that pass from encoder to decoder."""

from collections.abc import Mapping

from pydantic import TypeAdapter

from s2s.comparison import task_question
from s2s.comparison.spec import Analysis, Comparison, Experiment, Scale, Trial
from s2s.comparison.task_question import TaskClaim, TaskPlan, TaskResult
from s2s.comparison.task_training import Rates
from s2s.data.synthetic_tasks import Copying

ROW = "bits between encoder and decoder"
BITS = 4
"""Bits of a symbol."""
_LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
_TASK = Copying(2**BITS, trained=_LENGTHS, tested=_LENGTHS)
PLANS: dict[Scale, list[TaskPlan]] = {
    "quick": [TaskPlan(_TASK, 32, (), seeds=4, other_seeds=0, updates=2_000, trial=500)],
    "lecture": [TaskPlan(_TASK, 32, (16,), seeds=4, other_seeds=3, updates=12_000, trial=1_000, every=200)],
    "definitive": [TaskPlan(_TASK, 32, (16, 64, 128), seeds=8, other_seeds=3, updates=24_000, trial=2_000, every=200)],
}
CLAIM = TaskClaim(
    "bits",
    ahead=lambda traits: traits.cross_attention,
    behind=lambda traits: not traits.cross_attention,
    measured="bits from encoder to decoder (states of {width} numbers, 64 bits tested)",
    groups=("with attention", "without attention"),
    verb="conveys",
    factor=BITS,
    unit="bits",
)


def trials(comparison: Comparison) -> list[Trial]:
    """Return the searches for rates and the trainings."""
    return task_question.trials(comparison, comparison.sizes(PLANS))


def measure(comparison: Comparison, trial: Trial) -> TaskResult | Rates:
    """Search for the best rate of a candidate, or train at it and test every size."""
    return task_question.measure(comparison, trial, comparison.sizes(PLANS), EXPERIMENT.name)


def analyse(comparison: Comparison, measured: Mapping[Trial, TaskResult | Rates]) -> Analysis:
    """Compare the sizes that the candidates master."""
    return task_question.analyse(
        comparison, measured, comparison.sizes(PLANS), "bits between encoder and decoder", CLAIM
    )


EXPERIMENT = Experiment(
    "capacity",
    "How many bits pass from encoder to decoder?",
    trials,
    measure,
    analyse,
    measurement=TypeAdapter(TaskResult | Rates),
    tuning_level="",
    precision="fp32",
)
