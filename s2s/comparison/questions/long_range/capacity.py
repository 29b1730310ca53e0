"""Measure how many bits pass from encoder to decoder: random symbols that a model copies.

If n symbols of k bits are copied without a mistake in 95 % of the cases, n·k bits have passed through the decoder's
input: one vector without attention, one vector per symbol with attention.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch

from s2s.comparison.matching import settings_of
from s2s.comparison.questions.long_range.learning import Budget, Run, TrainingTask, answers, search
from s2s.comparison.spec import Comparison, Measured, Trial, check_translates
from s2s.comparison.tuning import TRIAL_SEED
from s2s.data.exercises import Symbols, concatenate, unseen
from s2s.errors import UserError
from s2s.evaluation.gates import converged
from s2s.models.base import Seq2Seq
from s2s.recipe.installed import module_of
from s2s.recipe.schema import Section
from s2s.training.device import derive_seed

NAME = "capacity"
LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
_EXAMPLES, _HELD_OUT, _TESTED = 4_000, 32, 200


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurement."""

    widths: tuple[int, ...]  # of states and embeddings
    seeds: int  # how many of them
    updates: int  # of a training, at most
    trial: int  # of the trials that choose its rate


def trials(comparison: Comparison, sizes: Sizes) -> list[Trial]:
    """One for each width, seed and model."""
    return [
        Trial(model, f"{NAME}-{width}", seed)
        for width in sizes.widths
        for seed in comparison.seeds[: sizes.seeds]
        for model in comparison.models
    ]


def as_wide(kind: str, options: dict[str, object], width: int) -> Section:
    """Settings of a model of this width with one layer on each side, its inner size twice as large."""
    layers: dict[str, object] = {"encoder_layers": 1, "feedforward": 2 * width, "width": width}
    return settings_of(kind, options | layers)


def measure(
    comparison: Comparison, trial: Trial, sizes: Sizes, settings_for: Callable[..., Section], budget: Budget
) -> Measured:
    """Trains a model of some width to copy, at the best of its rates, and counts how much it copies at each length."""
    width, seed = int(trial.part.removeprefix(f"{NAME}-")), trial.seed or 0
    exercise = Symbols()
    settings = settings_for(exercise.vocabulary_size, (2 + LENGTHS[-1],) * 2, width=width)

    def _build(seed: int) -> Seq2Seq:
        torch.manual_seed(derive_seed(seed))
        return module_of(comparison.candidate(trial.model).kind).build(
            settings, exercise.vocabulary_size, exercise.vocabulary_size
        )

    model = _build(seed)
    check_translates(model, trial.model)
    budget = replace(budget, updates=sizes.updates, trial=sizes.trial, settle=0)

    def _training_task(seed: int) -> TrainingTask:
        train = concatenate([exercise.examples(n, _EXAMPLES, seed) for n in LENGTHS])
        held_out = concatenate([unseen(exercise.examples(n, _HELD_OUT, seed, "held-out"), train) for n in LENGTHS])
        return TrainingTask(partial(_build, seed), train, held_out, budget, seed, comparison.device_context)

    rates = search(_training_task(TRIAL_SEED), sum(exercise.baseline(n) for n in LENGTHS) / len(LENGTHS))
    training_task = _training_task(seed)
    run = Run(training_task, rates.best)
    run.continue_until(budget.updates)
    if run.failure:
        raise UserError(f"training fails at rate {rates.best:g}: {run.failure}")
    tests = [unseen(exercise.examples(n, _TESTED, seed, "test"), training_task.train) for n in LENGTHS]
    answered = [answers(run.trainer.model, test, comparison.device_context) for test in tests]
    return {
        "width": width,
        "attention": looks_back(model),
        "lengths": list(LENGTHS),
        "symbol": exercise.bits,
        "asked": [len(test) for test in tests],
        "right": [int(each.right.sum()) for each in answered],
        "losses": [each.loss for each in answered],
        "rate": rates.best,
        "inside": rates.inside,
        "tried": [f"{rate:g}" for rate in rates.tried],
        "updates": run.trainer.update,
        "solved": run.solved,
        "looks": [list(look) for look in run.looks],
        "seconds": run.seconds,
    }


def looks_back(model: Seq2Seq) -> bool:
    """Return True if the decoder has cross-attention."""
    one = torch.full((1, 1), 4)
    with torch.no_grad():
        return model.decoder.attention_weights(model.encoder(one, one > 0), one).shape[1] > 0


def copied(run: Measured) -> int:
    """The most symbols that are written again without a mistake in 95 % of the cases, as are all smaller numbers.

    Whole sequences count: of 16 symbols with 95 % right each, less than half of the sequences would be.
    """
    most = 0
    for length, right, asked in zip(run["lengths"], run["right"], run["asked"], strict=True):
        if right < 0.95 * asked:
            break
        most = length
    return most


def numbers(run: Measured) -> int:
    """Numbers that the decoder gets for the longest text that is copied."""
    return run["width"] * (max(1, copied(run)) if run["attention"] else 1)


def conveyed(run: Measured) -> float:
    """Bits that certainly went through, copied or not: the most that are known of n symbols after reading them.

    n k less the cross-entropy of the answer, which is no smaller than what is not known (e.g. Barber & Agakov 2003).
    """
    return max(
        n * run["symbol"] - loss * (n + 1) / math.log(2) for n, loss in zip(run["lengths"], run["losses"], strict=True)
    )


def state(run: Measured) -> str:
    """Describe whether longer training or longer texts would give more."""
    if run["solved"]:
        return "all lengths solved: a lower bound"
    still = converged([updates for updates, *_ in run["looks"]], [loss for _, loss, _ in run["looks"]])
    return "learned" if still.passed else f"a lower bound: {still.sentence}"
