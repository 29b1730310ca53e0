"""Train a small model on an exercise, and search for its learning rate.

The best rate is the one that solves the exercise first and keeps the solution for `Budget.settle` more updates; of
several that solve it at the same validation, the middle one. Rates are trained in turns, so that all stop once one has
solved the exercise, and the grid grows while its best is at an end. A rate whose answers are no better than a shortcut
at the end of the trials is censored; if all are, trials become as long as trainings, and the loss decides where the
grid grows.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool
from pydantic import AliasChoices, Field
from torch import Tensor
from torch.nn import functional

from s2s.comparison.tuning_search import TuningTrial, inside, next_trials
from s2s.data.batches import collate, make_batches
from s2s.data.exercises import Examples
from s2s.data.tokenized import TokenizedDataset
from s2s.data.tokenizers import BOS, PAD
from s2s.errors import UserError
from s2s.evaluation.gates import above_chance
from s2s.evaluation.inference import wilson
from s2s.models.base import Seq2Seq
from s2s.recipe.schema import SeedSettings
from s2s.tasks.translation.recipe import BatchSettings, TrainingSettings
from s2s.tasks.translation.task import translation_trainer
from s2s.training.device import DeviceContext

SOLVED = 0.99
"""Share of right held-out answers that solves an exercise."""
_ROWS_AT_ONCE = 64  # of the longest examples, when answers are counted


@dataclass(frozen=True)
class Budget:
    """Limits of a training."""

    updates: int  # at most
    rows: int  # examples per update, about
    batches: int  # batches per update, about; a batch has examples of one length, an update of several
    every: int  # updates between validations on the held-out examples
    trial: int  # updates of a trial of a learning rate
    warmup: int  # updates of linear warm-up; then the rate is constant
    settle: int = 0  # updates after the exercise is solved


@dataclass(frozen=True)
class TrainingTask:
    """A model and the examples that it is trained on."""

    build: Callable[[], Seq2Seq]
    train: Examples
    held_out: Examples
    budget: Budget
    seed: int
    device_context: DeviceContext


class Validation(NamedTuple):
    """Score on the held-out examples during training."""

    update: int
    loss: float  # nats per target token
    accuracy: float  # right answers in percent


@dataclass(frozen=True)
class Answers:
    """Answers of a model to examples."""

    right: Bool[np.ndarray, " examples"]
    loss: float  # cross-entropy in nats per target token

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return float(self.right.mean())


@dataclass(frozen=True)
class TriedRate:
    """Trial of one learning rate."""

    updates: int
    solved: int | None  # updates to a stable solution
    loss: float | None  # at the last validation, in nats per target token; None if training failed
    left_chance: Annotated[bool, Field(validation_alias=AliasChoices("left_chance", "left chance"))]


@dataclass(frozen=True)
class Rates:
    """Result of the search for a learning rate."""

    best: float
    other: float | None  # the next best one; None if no other left chance
    inside: bool  # True if the best has worse ones on both sides
    tried: dict[float, TriedRate]


class Run:
    """A training at one learning rate.

    Attributes:
        solved: Updates at the first validation with 99 % right held-out answers; None before.
        lost: True if fewer were right at the end of `settle`.
        looks: Validations.
        failure: Reason of a failed training; empty otherwise.
        seconds: CPU time.
    """

    def __init__(self, training_task: TrainingTask, rate: float) -> None:
        self.training_task, self.rate = training_task, rate
        data, budget = encoded(training_task.train), training_task.budget
        longest = int(max(data.source_lengths.max(), data.target_lengths.max()))
        tokens = max(longest, round(budget.rows * float(data.source_lengths.mean()) / budget.batches))
        planned = make_batches(data.source_lengths, data.target_lengths, tokens, training_task.seed, 0)
        at_once = float(data.target_lengths.sum()) / len(planned)
        training = TrainingSettings(
            updates=budget.updates,
            tokens_per_update=max(round(budget.rows * float(data.target_lengths.mean())), round(at_once)),
            learning_rate=rate,
            schedule="constant",
            warmup=budget.warmup,
            label_smoothing=0.0,
        )
        batches = BatchSettings(tokens=tokens, max_length=longest)
        seeds = SeedSettings(initialization=training_task.seed, data=training_task.seed, dropout=training_task.seed)
        model = training_task.build().to(training_task.device_context.device)
        self.trainer = translation_trainer(model, data, training, batches, seeds, training_task.device_context)
        self.solved: int | None = None
        self.lost = False
        self.looks: list[Validation] = []
        self.failure = ""
        self.seconds = 0.0

    @property
    def loss(self) -> float | None:
        """Loss at the last validation; None if training failed."""
        return self.looks[-1].loss if self.looks and not self.failure else None

    @property
    def holds(self) -> bool:
        """True if the exercise is solved, and was not lost again."""
        return self.solved is not None and not self.lost

    def score(self, cheating: float) -> float | None:
        """Score of the rate, lower is better: negative if solved, the sooner the lower; otherwise the loss.

        Returns:
            The score; None (censored) if training failed, or if the answers are not significantly better than
            `cheating`, the share of right answers of a shortcut.
        """
        if self.loss is None:
            return None
        if self.solved is not None and not self.lost:
            return float(self.solved - self.training_task.budget.updates - 1)
        asked = len(self.training_task.held_out)
        share = wilson(round(self.looks[-1].accuracy * asked / 100), asked)
        return self.loss if above_chance(share, 100 * cheating).passed else None

    def continue_until(self, until: int) -> None:
        """Train until that many updates are made in all, or the exercise is solved."""
        self._train(until, stop_when_solved=True)

    def settle(self, updates: int) -> None:
        """Train that many updates after the exercise was solved, to see whether the solution is stable."""
        if self.solved is not None and updates:
            self._train(self.solved + updates, stop_when_solved=False)
            self.lost = bool(self.failure) or self.looks[-1].accuracy < 100 * SOLVED

    def _train(self, until: int, stop_when_solved: bool) -> None:
        started, task = time.process_time(), self.training_task
        try:
            while self.trainer.update < until and not self.failure and not (stop_when_solved and self.solved):
                for _ in self.trainer.updates(min(until, self.trainer.update + task.budget.every)):
                    pass
                held_out = answers(self.trainer.model, task.held_out, task.device_context)
                if not math.isfinite(held_out.loss):
                    raise UserError("its answers are no longer finite")
                self.looks.append(Validation(self.trainer.update, held_out.loss, 100 * held_out.accuracy))
                if held_out.accuracy >= SOLVED and self.solved is None:
                    self.solved = self.trainer.update
        except UserError as error:
            self.failure = error.what
        self.seconds += time.process_time() - started


def train_at_best(training_task: TrainingTask, rates: Sequence[float]) -> Run:
    """Train at the best of these rates until the exercise is solved or the budget is spent.

    Raises:
        UserError: Training fails at every rate, or later at the best.
    """
    runs = [Run(training_task, rate) for rate in rates]
    _train_in_turn(runs, training_task.budget.trial)
    _check_trained(runs)
    best = min(runs, key=_by_speed)
    best.continue_until(training_task.budget.updates)
    if best.failure:
        raise UserError(f"training fails at rate {best.rate:g} after {best.trainer.update} updates: {best.failure}")
    return best


def search(training_task: TrainingTask, cheating: float) -> Rates:
    """Find the best learning rate in a growing grid, see `s2s.comparison.tuning_search`.

    Args:
        training_task: Task of the trials.
        cheating: Share of the held-out examples that a shortcut answers.

    Raises:
        UserError: Training fails at every rate.
    """
    runs: dict[TuningTrial, Run] = {}
    scores: dict[TuningTrial, float | None] = {}

    def _ranked() -> Mapping[TuningTrial, float | None]:
        at_chance = all(score is None for score in scores.values())
        return {trial: run.loss for trial, run in runs.items()} if at_chance else scores

    limit = training_task.budget.trial
    while new := next_trials((), _ranked(), 0):
        fresh = {trial: Run(training_task, trial.rate) for trial in new}
        runs |= fresh
        while True:
            _train_in_turn(list(fresh.values()), limit)
            scores = {trial: run.score(cheating) for trial, run in runs.items()}
            if limit >= training_task.budget.updates or any(score is not None for score in scores.values()):
                break
            # all are at chance, so no score tells them apart yet
            limit = min(2 * limit, training_task.budget.updates)
        limit = min([limit, *(run.solved for run in runs.values() if run.solved and run.holds)])
    _check_trained(list(runs.values()))
    left = sorted((score, trial.rate) for trial, score in scores.items() if score is not None)
    # of rates that solve it at the same validation, the lowest has barely learned it, and the highest may lose it
    tied = [rate for score, rate in left if score == left[0][0]]
    best = TuningTrial(tied[(len(tied) - 1) // 2] if tied else min(runs.values(), key=_by_speed).rate)
    return Rates(
        best=best.rate,
        other=next((rate for _, rate in left if rate != best.rate), None),
        inside=inside(best, _ranked()),
        tried={
            trial.rate: TriedRate(
                updates=run.trainer.update,
                solved=run.solved if run.holds else None,
                loss=run.loss,
                left_chance=scores[trial] is not None,
            )
            for trial, run in sorted(runs.items(), key=lambda each: each[0].rate)
        },
    )


def _train_in_turn(runs: Sequence[Run], limit: int) -> None:
    budget = runs[0].training_task.budget
    for until in range(budget.every, limit + budget.every, budget.every):
        for run in runs:
            before = run.solved
            run.continue_until(min(until, limit))
            if run.solved != before:
                run.settle(budget.settle)
        if any(run.holds for run in runs):
            return


def _by_speed(run: Run) -> tuple[float, float]:
    return math.inf if run.solved is None else run.solved, math.inf if run.loss is None else run.loss


def _check_trained(runs: Sequence[Run]) -> None:
    if all(run.failure for run in runs):
        raise UserError(
            f"training fails at every rate of {', '.join(f'{run.rate:g}' for run in runs)}: {runs[0].failure}",
            remedy="correct the model's initial weights, or leave it out",
        )


def encoded(examples: Examples) -> TokenizedDataset:
    """Convert examples to a dataset for the trainer."""
    return TokenizedDataset.from_rows(examples.sources, examples.targets)


@torch.inference_mode()
def answers(model: Seq2Seq, examples: Examples, device_context: DeviceContext) -> Answers:
    """Answer examples in evaluation mode and fp32, with teacher forcing.

    For a whole target this equals greedy decoding: greedy search writes the target exactly if the right token is the
    likeliest one at every step.
    """
    model.eval()
    data = encoded(examples)
    longest = int(max(data.source_lengths.max(), data.target_lengths.max()))
    right, loss = np.zeros(len(examples), dtype=bool), 0.0
    for rows in make_batches(data.source_lengths, data.target_lengths, _ROWS_AT_ONCE * longest, 0, 0):
        batch = collate(*data.rows(rows), rows).to(device_context.device)
        logits = model.logits(batch.source, batch.source_valid, batch.target_in).float()
        # a search never writes these
        logits[..., PAD] = logits[..., BOS] = float("-inf")
        losses = functional.cross_entropy(logits.transpose(1, 2), batch.target_out, reduction="none", ignore_index=PAD)
        loss += float(losses.sum())
        hits = (logits.argmax(dim=2) == batch.target_out) | ~batch.target_valid
        good = hits.all(dim=1) if examples.rivals is None else _beats(logits, batch.target_out, examples, rows)
        right[rows] = good.cpu().numpy()
    return Answers(right, loss / float(data.target_lengths.sum()))


def _beats(logits: Tensor, target: Tensor, examples: Examples, rows: np.ndarray) -> Tensor:
    """Return True for each row whose right token is likelier than its rival."""
    rivals = torch.tensor([(examples.rivals or [])[row] for row in rows], device=logits.device)
    each = torch.arange(len(rows), device=logits.device)
    there = logits[each, rivals[:, 0]]
    return there[each, target[each, rivals[:, 0]]] > there[each, rivals[:, 1]]
