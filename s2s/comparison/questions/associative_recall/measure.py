"""Train candidates to recall the values of many keys."""

from collections.abc import Mapping

from pydantic import TypeAdapter

from s2s.comparison import task_question
from s2s.comparison.spec import Analysis, Comparison, Experiment, Scale, Trial
from s2s.comparison.task_question import TaskClaim, TaskPlan, TaskResult
from s2s.comparison.task_training import Rates
from s2s.data.synthetic_tasks import AssociativeRecall

_TASK = AssociativeRecall(trained=(1, 2, 4, 8, 16, 32, 64), tested=(1, 2, 4, 8, 16, 32, 64))
PLANS: dict[Scale, list[TaskPlan]] = {
    "quick": [TaskPlan(_TASK, 64, (), seeds=4, other_seeds=0, updates=600, trial=250, rows=50)],
    "lecture": [TaskPlan(_TASK, 64, (32, 16), seeds=8, other_seeds=4, updates=1_500, trial=500, rows=100)],
    "definitive": [TaskPlan(_TASK, 64, (128, 32, 16), seeds=8, other_seeds=8, updates=8_000, trial=1_000)],
}
CLAIM = TaskClaim(
    "recalls",
    ahead=lambda traits: traits.cross_attention,
    behind=lambda traits: not traits.cross_attention,
    measured="pairs of which 95 % are recalled (width {width}, trained to {trained})",
    groups=("with attention", "without attention"),
    verb="recalls",
)


def trials(comparison: Comparison) -> list[Trial]:
    """Return the searches for rates and the trainings."""
    return task_question.trials(comparison, comparison.sizes(PLANS))


def measure(comparison: Comparison, trial: Trial) -> TaskResult | Rates:
    """Search for the best rate of a candidate, or train at it and test every size."""
    return task_question.measure(comparison, trial, comparison.sizes(PLANS), EXPERIMENT.name)


def analyse(comparison: Comparison, measured: Mapping[Trial, TaskResult | Rates]) -> Analysis:
    """Compare the sizes that the candidates master."""
    return task_question.analyse(comparison, measured, comparison.sizes(PLANS), "associative recall", CLAIM)


EXPERIMENT = Experiment(
    "associative-recall",
    "How many pairs can it recall?",
    trials,
    measure,
    analyse,
    measurement=TypeAdapter(TaskResult | Rates),
    tuning_level="",
    precision="fp32",
)
