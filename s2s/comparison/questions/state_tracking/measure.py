"""Train encoders to track the state of a finite automaton."""

from dataclasses import replace

from s2s.comparison.spec import Scale
from s2s.comparison.task_question import TaskClaim, TaskPlan, task_experiment
from s2s.data.synthetic_tasks import StateTracking

_TRAINED, _TESTED = range(1, 41), (1, 2, 4, 8, 12, 16, 20, 30, 40, 60, 80, 120, 200, 350, 500)


def _plan(
    name: str, seeds: int, updates: int, trial: int, others: tuple[int, ...] = (), longer: int | None = None
) -> TaskPlan:
    task = StateTracking(name, _TRAINED, _TESTED)
    return TaskPlan(task, 64, others, seeds, 4, updates, trial, encoder_layers=2, longer=longer)


PLANS: dict[Scale, list[TaskPlan]] = {
    "quick": [replace(_plan("parity", 4, 800, 150), settle=150)],
    "lecture": [
        _plan("s3", 8, 1_500, 500, (32, 16), longer=6_000),
        _plan("parity", 8, 1_500, 500),
    ],
    "definitive": [
        _plan("s3", 8, 8_000, 1_000, (128, 32, 16)),
        *(_plan(name, 8, 8_000, 1_000) for name in ("parity", "cycle", "arithmetic", "a5")),
    ],
}
CLAIM = TaskClaim(
    "tracks",
    ahead=lambda traits: traits.recurrence == "steps",
    behind=lambda traits: traits.self_attention,
    measured="symbols up to which the state is correct (width {width}, up to {trained} in training, {updates} updates)",
    groups=("with step-by-step recurrence", "with self-attention"),
    verb="tracks",
)

EXPERIMENT = task_experiment(
    "state-tracking", "How long can it track a changing state?", PLANS, "state tracking", CLAIM
)
