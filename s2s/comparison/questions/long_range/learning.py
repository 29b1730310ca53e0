"""A small model trained on pieces with the real trainer, its answers counted, and the learning rate that suits it.

A rate is the best that solves the task first and still has it some updates later, when it is asked; of several at the
same look, the one in their middle. Rates are tried in turns, so that nobody learns on after somebody has solved the
task so, and the grid grows while its best is at an end. One that is no better than cheating when the trials are over is
censored; where all are, trials are as long as trainings, and the loss says at which end the grid grows.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
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
_ROWS_AT_ONCE = 64  # of the longest examples, when answers are counted


@dataclass(frozen=True)
class Budget:
    """Limits of a training."""

    updates: int  # at most so many
    rows: int  # about so many examples make one update
    batches: int  # about so many batches make one update; a batch has examples of one length, an update of several
    every: int  # updates between two looks at the held-out examples
    trial: int  # updates after which one rate is chosen
    warmup: int  # updates during which the rate rises; then it stays
    rates: tuple[float, ...] = ()  # where the grid is given, and does not grow
    settle: int = 0  # updates after the task was solved, for who is then asked


@dataclass(frozen=True)
class TrainingTask:
    """A model and the examples that it learns."""

    build: Callable[[], Seq2Seq]
    train: Examples
    held_out: Examples
    budget: Budget
    seed: int
    device_context: DeviceContext


@dataclass(frozen=True)
class Answers:
    """Answers of a model to examples."""

    right: Bool[np.ndarray, " examples"]  # for each example, in its order, whether it counts as right
    pieces: float  # share of right pieces among all of the targets, ends counted, with the true ones before them given
    loss: float  # cross-entropy in nats per target piece

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return float(self.right.mean())


@dataclass(frozen=True)
class Rates:
    """Result of the search for a learning rate."""

    best: float
    other: float | None
    inside: bool
    tried: dict[float, dict[str, Any]]


class Run:
    """A training at one rate, with looks at the held-out examples.

    Attributes:
        solved: the first look (in updates) at which 99 % of the held-out examples were right; None: it did not come.
        lost: whether fewer were right after the updates that followed.
        looks: updates, loss (nats per piece) and share of right answers (in percent) at each look.
        failure: why it ended early; empty where it did not.
        seconds: of the processor that it took.
    """

    def __init__(self, training_task: TrainingTask, rate: float) -> None:
        self.training_task, self.rate = training_task, rate
        data, budget = encoded(training_task.train), training_task.budget
        longest = int(max(data.source_lengths.max(), data.target_lengths.max()))
        tokens = max(longest, round(budget.rows * float(data.source_lengths.mean()) / budget.batches))
        batches = BatchSettings(tokens=tokens, max_length=longest)
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
        seeds = SeedSettings(initialization=training_task.seed, data=training_task.seed, dropout=training_task.seed)
        model = training_task.build().to(training_task.device_context.device)
        self.trainer = translation_trainer(model, data, training, batches, seeds, training_task.device_context)
        self.solved: int | None = None
        self.lost = False
        self.looks: list[tuple[int, float, float]] = []
        self.failure = ""
        self.seconds = 0.0

    @property
    def loss(self) -> float | None:
        """At the last look; None where training failed."""
        return self.looks[-1][1] if self.looks and not self.failure else None

    def score(self, cheating: float) -> float | None:
        """The lower the better: below 0 where the task was solved, the sooner the lower; else the loss.

        None, censored, where the answers are not certainly better than `cheating` (a share), or training failed.
        """
        if self.loss is None:
            return None
        if self.solved is not None and not self.lost:
            return float(self.solved - self.training_task.budget.updates - 1)
        asked = len(self.training_task.held_out)
        share = wilson(round(self.looks[-1][2] * asked / 100), asked)
        return self.loss if above_chance(share, 100 * cheating).passed else None

    def continue_until(self, until: int) -> None:
        """More updates, until so many were made in all or the task is solved."""
        self._learn(until, lambda: self.solved is None)

    def settle(self, updates: int) -> None:
        """Continue for some updates once the task is solved, to see whether the solution is stable."""
        if self.solved is not None and updates:
            self._learn(self.solved + updates, lambda: True)
            self.lost = bool(self.failure) or self.looks[-1][2] < 100 * SOLVED

    @property
    def holds(self) -> bool:
        """True if the task is solved, and was not lost again."""
        return self.solved is not None and not self.lost

    def _learn(self, until: int, goes_on: Callable[[], bool]) -> None:
        started = time.process_time()
        every = self.training_task.budget.every
        try:
            while self.trainer.update < until and goes_on() and not self.failure:
                for _ in self.trainer.updates(min(until, self.trainer.update + every)):
                    pass
                held_out = answers(self.trainer.model, self.training_task.held_out, self.training_task.device_context)
                if not math.isfinite(held_out.loss):
                    raise UserError("its answers are no longer finite")
                self.looks.append((self.trainer.update, held_out.loss, 100 * held_out.accuracy))
                if held_out.accuracy >= SOLVED and self.solved is None:
                    self.solved = self.trainer.update
        except UserError as error:
            self.failure = error.what
        self.seconds += time.process_time() - started


def learn(training_task: TrainingTask) -> Run:
    """Trains until 99 % of the held-out examples are right or the budget is spent, at the best of the budget's rates.

    The best is found while learning: after the trial it goes on.

    Raises:
        UserError: training fails at every rate, or later at the best.
    """
    runs = [Run(training_task, rate) for rate in training_task.budget.rates]
    _train_in_turn(runs, training_task.budget.trial)
    best = min(runs, key=_order)
    _check(runs)
    best.continue_until(training_task.budget.updates)
    if best.failure:
        raise UserError(f"training fails at rate {best.rate:g} after {best.trainer.update} updates: {best.failure}")
    return best


def search(training_task: TrainingTask, cheating: float) -> Rates:
    """The best learning rate in a grid that grows while its best is at an end, see `s2s.comparison.tuning_search`.

    Args:
        training_task: what is learned in the trials.
        cheating: share of the held-out examples that can be had without doing what is asked.

    Raises:
        UserError: training fails at every rate.
    """
    runs: dict[TuningTrial, Run] = {}
    scores: dict[TuningTrial, float | None] = {}
    limit = training_task.budget.trial
    while new := next_trials((), _ranked(runs, scores), 0):
        fresh = {trial: Run(training_task, trial.rate) for trial in new}
        runs |= fresh
        while True:
            _train_in_turn(list(fresh.values()), limit)
            scores = {trial: run.score(cheating) for trial, run in runs.items()}
            if limit >= training_task.budget.updates or any(score is not None for score in scores.values()):
                break
            # all are at chance, which says nothing of any: they go on
            limit = min(2 * limit, training_task.budget.updates)
        limit = min([limit, *(run.solved for run in runs.values() if run.solved and run.holds)])
    _check(list(runs.values()))
    left = sorted((score, trial.rate) for trial, score in scores.items() if score is not None)
    # of rates that solve it at the same look the lowest has hardly learned it, the highest may lose it at any moment
    tied = [rate for score, rate in left if score == left[0][0]]
    best = TuningTrial(tied[(len(tied) - 1) // 2] if tied else min(runs.values(), key=_order).rate)
    others = [rate for _, rate in left if rate != best.rate]
    return Rates(
        best.rate,
        others[0] if others else None,
        inside(best, _ranked(runs, scores)),
        {
            trial.rate: {
                "updates": run.trainer.update,
                "solved": run.solved if run.holds else None,
                "loss": run.loss,
                "left chance": scores[trial] is not None,
            }
            for trial, run in sorted(runs.items(), key=lambda each: each[0].rate)
        },
    )


def _ranked(
    runs: Mapping[TuningTrial, Run], scores: Mapping[TuningTrial, float | None]
) -> Mapping[TuningTrial, float | None]:
    """Scores of the trials; their losses if all are at chance."""
    left = any(score is not None for score in scores.values())
    return scores if left else {trial: run.loss for trial, run in runs.items()}


def _train_in_turn(runs: Sequence[Run], limit: int) -> None:
    every = runs[0].training_task.budget.every
    for until in range(every, limit + every, every):
        for run in runs:
            before = run.solved
            run.continue_until(min(until, limit))
            if run.solved != before:
                run.settle(run.training_task.budget.settle)
        if any(run.holds for run in runs):
            return


def _order(run: Run) -> tuple[float, float]:
    return math.inf if run.solved is None else run.solved, math.inf if run.loss is None else run.loss


def _check(runs: Sequence[Run]) -> None:
    if all(run.failure for run in runs):
        raise UserError(
            f"training fails at every rate of {', '.join(f'{run.rate:g}' for run in runs)}: {runs[0].failure}",
            remedy="mend the model's initial weights, or leave it out",
        )


def encoded(examples: Examples) -> TokenizedDataset:
    """Examples as the trainer takes them."""
    return TokenizedDataset.from_rows(examples.sources, examples.targets)


@torch.inference_mode()
def answers(model: Seq2Seq, examples: Examples, device_context: DeviceContext) -> Answers:
    """The answers of a model, in evaluation mode and fp32.

    The true pieces before each one are given. For a whole target this is greedy decoding: if the likeliest piece is
    the right one at every step, greedy search writes the target, and if greedy search writes it, every piece was the
    likeliest.
    """
    model.eval()
    data = encoded(examples)
    longest = int(max(data.source_lengths.max(), data.target_lengths.max()))
    right = np.zeros(len(examples), dtype=bool)
    pieces = loss = 0.0
    for rows in make_batches(data.source_lengths, data.target_lengths, _ROWS_AT_ONCE * longest, 0, 0):
        batch = collate(*data.rows(rows), rows).to(device_context.device)
        logits = model.logits(batch.source, batch.source_valid, batch.target_in).float()
        # no search writes these
        logits[..., PAD] = logits[..., BOS] = float("-inf")
        hits = (logits.argmax(dim=2) == batch.target_out) | ~batch.target_valid
        pieces += float((hits & batch.target_valid).sum())
        lost = functional.cross_entropy(logits.transpose(1, 2), batch.target_out, reduction="none", ignore_index=PAD)
        loss += float(lost.sum())
        good = hits.all(dim=1) if examples.rivals is None else _beats(logits, batch.target_out, examples, rows)
        right[rows] = good.cpu().numpy()
    total = float(data.target_lengths.sum())
    return Answers(right, pieces / total, loss / total)


def _beats(logits: Tensor, target: Tensor, examples: Examples, rows: np.ndarray) -> Tensor:
    """Return True for each row whose right token is likelier than its rival."""
    rivals = torch.tensor([(examples.rivals or [])[row] for row in rows], device=logits.device)
    each = torch.arange(len(rows), device=logits.device)
    there = logits[each, rivals[:, 0]]
    return there[each, target[each, rivals[:, 0]]] > there[each, rivals[:, 1]]
