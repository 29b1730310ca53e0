"""Train candidates to copy strings of random symbols."""

from s2s.comparison.spec import Scale
from s2s.comparison.task_question import TaskClaim, TaskPlan, task_experiment
from s2s.data.synthetic_tasks import Copying

_TASK = Copying(
    26, trained=range(1, 51), tested=(1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 30, 40, 50, 75, 100, 150, 200)
)
PLANS: dict[Scale, list[TaskPlan]] = {
    "quick": [TaskPlan(_TASK, 64, (), seeds=4, other_seeds=0, updates=1_000, trial=200, settle=150, rows=100)],
    "lecture": [TaskPlan(_TASK, 64, (32, 16), seeds=8, other_seeds=4, updates=2_000, trial=500, longer=8_000)],
    "definitive": [TaskPlan(_TASK, 64, (128, 32, 16), seeds=8, other_seeds=8, updates=8_000, trial=1_000)],
}
CLAIM = TaskClaim(
    "copies",
    ahead=lambda traits: traits.cross_attention,
    behind=lambda traits: not traits.cross_attention,
    measured="symbols copied without a mistake (width {width}, up to {trained} in training, {updates} updates)",
    groups=("with attention", "without attention"),
    verb="copies",
)

EXPERIMENT = task_experiment("copying", "How long a string can it copy?", PLANS, "copying", CLAIM)
