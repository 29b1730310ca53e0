"""Train candidates on multi-query associative recall."""

from s2s.comparison.spec import Scale
from s2s.comparison.task_question import TaskClaim, TaskPlan, task_experiment
from s2s.data.synthetic_tasks import AssociativeRecall

_TASK = AssociativeRecall(trained=(1, 2, 4, 8, 16, 32, 64), tested=(1, 2, 4, 8, 16, 32, 64))
PLANS: dict[Scale, list[TaskPlan]] = {
    "quick": [TaskPlan(_TASK, 64, (), seeds=4, other_seeds=0, updates=600, trial=150, settle=150, rows=50)],
    "lecture": [
        TaskPlan(_TASK, 64, (32, 16), seeds=8, other_seeds=4, updates=1_500, trial=500, rows=100, longer=6_000)
    ],
    "definitive": [TaskPlan(_TASK, 64, (128, 32, 16), seeds=8, other_seeds=8, updates=8_000, trial=1_000)],
}
CLAIM = TaskClaim(
    "recalls",
    ahead=lambda traits: traits.cross_attention,
    behind=lambda traits: not traits.cross_attention,
    measured="pairs recalled with 95 % accuracy, with an auxiliary loss (width {width}, up to {trained} in training, "
    "{updates} updates)",
    groups=("with attention", "without attention"),
    verb="recalls",
)

EXPERIMENT = task_experiment("associative-recall", "How many pairs can it recall?", PLANS, "associative recall", CLAIM)
