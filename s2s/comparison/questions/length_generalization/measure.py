"""Train a Transformer with six positional encodings on strings, and test it on longer ones."""

from dataclasses import replace
from typing import get_args

from pydantic import TypeAdapter

from s2s.comparison import task_question
from s2s.comparison.questions.length_generalization.analyse import analyse
from s2s.comparison.questions.length_generalization.plan import PositionsPlan
from s2s.comparison.spec import Candidate, Comparison, Experiment, NotForThisModel, Scale, Trial
from s2s.comparison.task_question import TaskResult
from s2s.comparison.task_training import Rates
from s2s.data.synthetic_tasks import Addition, Copying, Reversal
from s2s.models.transformer import Positions

_TRAINED, _TESTED = range(1, 21), (1, 5, 10, 15, 20, 25, 30, 40)
# so that two numbers together have as many digits as the strings have symbols
_DIGITS, _TESTED_DIGITS = range(1, 11), (1, 3, 5, 8, 10, 12, 15, 20)
# the first one decides
_TASKS = (
    Copying(16, _TRAINED, _TESTED, whole=False),
    Reversal(16, _TRAINED, _TESTED, whole=False),
    Addition(_DIGITS, _TESTED_DIGITS, whole=False),
)


def _plans(seeds: int, updates: int, trial: int, longer: int | None = None) -> list[PositionsPlan]:
    plans = [
        PositionsPlan(task, 64, (), seeds, seeds, updates, trial, rows=100, is_written=True, positions=kind)
        for task in _TASKS
        for kind in get_args(Positions)
    ]
    return [replace(plan, longer=longer) if plan.task is _TASKS[0] else plan for plan in plans]


PLANS: dict[Scale, list[PositionsPlan]] = {
    "quick": _plans(seeds=3, updates=600, trial=200),
    "lecture": _plans(seeds=4, updates=1_500, trial=200, longer=6_000),
    "definitive": _plans(seeds=8, updates=8_000, trial=1_000),
}


def trained_candidate(comparison: Comparison) -> Candidate | None:
    """Return the first candidate with a choice of positional encodings."""
    return next((each for each in comparison.candidates if each.kind == "transformer"), None)


def trials(comparison: Comparison) -> list[Trial]:
    """Return the trials of all tasks and positional encodings, and one of each candidate that is not trained."""
    chosen = trained_candidate(comparison)
    others = [Trial(each.name) for each in comparison.candidates if each is not chosen]
    if chosen is None:
        return others
    return [*task_question.trials(replace(comparison, candidates=(chosen,)), comparison.sizes(PLANS)), *others]


def measure(comparison: Comparison, trial: Trial) -> TaskResult | Rates:
    """Search for a learning rate, or train with it, test every size, and classify the answers at the largest one.

    Raises:
        NotForThisModel: The model is not the first Transformer.
    """
    if not trial.part:
        raise NotForThisModel("only the first Transformer is trained with other kinds of positions")
    return task_question.measure(comparison, trial, PLANS, EXPERIMENT.name)


EXPERIMENT = Experiment(
    "length-generalization",
    "Does it generalize to strings longer than trained on?",
    trials,
    measure,
    lambda comparison, measured: analyse(trained_candidate(comparison), measured, comparison.sizes(PLANS)),
    measurement=TypeAdapter(TaskResult | Rates),
    tuning_level="",
    numbers=lambda comparison: {"settle": comparison.sizes(PLANS)[0].settle},
    precision="fp32",
)
