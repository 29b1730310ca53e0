"""Bound the bits that pass from encoder to decoder by copying, with longer training than in `copying`."""

from s2s.comparison.spec import Scale
from s2s.comparison.task_question import Score, TaskClaim, TaskPlan, task_experiment
from s2s.data.synthetic_tasks import Copying

BITS = 4
"""Bits of a symbol."""
CONVEYED = Score(of=lambda run: max(run.bits or [0.0]), title="bits conveyed")
_LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
_TASK = Copying(2**BITS, trained=_LENGTHS, tested=_LENGTHS)
PLANS: dict[Scale, list[TaskPlan]] = {
    "quick": [TaskPlan(_TASK, 32, (), seeds=4, other_seeds=0, updates=2_000, trial=500, entropy=BITS)],
    "lecture": [
        TaskPlan(_TASK, 32, (16,), seeds=8, other_seeds=3, updates=12_000, trial=1_000, every=200, entropy=BITS)
    ],
    "definitive": [
        TaskPlan(_TASK, 32, (16, 64, 128), seeds=8, other_seeds=3, updates=24_000, trial=2_000, every=200, entropy=BITS)
    ],
}
CLAIM = TaskClaim(
    "bits",
    ahead=lambda traits: traits.cross_attention,
    behind=lambda traits: not traits.cross_attention,
    measured="lower bound on the bits from encoder to decoder (width {width}, {updates} updates, up to 64 tested)",
    groups=("with attention", "without attention"),
    verb="conveys",
    score=CONVEYED,
    unit="bits",
)

EXPERIMENT = task_experiment(
    "capacity", "How many bits pass from encoder to decoder?", PLANS, "bits between encoder and decoder", CLAIM
)
