"""Train a small model on a task with exact answers, and search for its learning rate.

The best learning rate solves the task first and keeps the solution for `Budget.settle` more updates; if several solve
it at the same validation, the middle one is the best. Trials at all rates alternate and stop once one has solved the
task. The grid grows while its best rate is at an end. A rate is censored if its accuracy is not above the shortcut
baseline at the end of its trial; if all are censored, trials become as long as trainings, and the loss decides where
the grid grows.
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, TypeVar, get_args

import numpy as np
import torch
from pydantic import AliasChoices, Field, TypeAdapter
from torch import Tensor, nn
from torch.nn import functional

from s2s.comparison.executor import run_cached
from s2s.comparison.spec import Trial
from s2s.comparison.tuning_search import TuningTrial, inside, next_trials
from s2s.data.synthetic_tasks import FIRST, NO_LABEL, SyntheticTask, TaskBatch
from s2s.data.tokenizers import BOS, PAD
from s2s.decoding import beam_search
from s2s.decoding.beam_search import Beam
from s2s.errors import UserError
from s2s.evaluation.gates import above_chance
from s2s.evaluation.inference import wilson
from s2s.models.base import Seq2Seq
from s2s.training.device import DeviceContext, derive_seed

SOLVED = 0.99
"""Validation accuracy at which a task counts as solved."""
BETAS = (0.9, 0.98)
"""Decay rates of Adam's moments."""
CLIP = 1.0
"""Maximum norm of gradients (clipping)."""
Ending = Literal["right", "stops too early", "does not stop in time", "writes something else"]
"""Kind of a generated answer: right, shorter or longer than the target, or wrong with the same length."""
_DECAY = 0.3  # share of the updates, at the end, in which the learning rate decays linearly to 0


@dataclass(frozen=True)
class Budget:
    """Budget of a training."""

    updates: int  # maximum number of updates
    every: int  # updates between validations
    trial: int  # updates of a trial of a learning rate
    warmup: int  # updates of linear warm-up; then the rate is constant
    settle: int = 0  # updates after the task is solved


class Validation(NamedTuple):
    """Validation on held-out examples."""

    update: int
    loss: float  # nats per target token
    accuracy: float  # correct answers in percent


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
    other: float | None  # next best rate; None if no other is above the shortcut baseline
    inside: bool  # True if the best has worse ones on both sides
    tried: dict[float, TriedRate]


class Run(ABC):
    """A training at one learning rate.

    Attributes:
        rate: The learning rate.
        budget: Budget of the training.
        held_out: Number of validation answers.
        solved: Updates at the first validation with 99 % correct answers; None before.
        lost: True if fewer are correct at the end of `settle`.
        looks: Validations.
        failure: Reason of a failed training; empty otherwise.
        seconds: CPU time.
    """

    def __init__(self, rate: float, budget: Budget, held_out: int) -> None:
        self.rate, self.budget, self.held_out = rate, budget, held_out
        self.solved: int | None = None
        self.lost = False
        self.looks: list[Validation] = []
        self.failure = ""
        self.seconds = 0.0

    @property
    @abstractmethod
    def update(self) -> int:
        """Number of updates so far."""

    @abstractmethod
    def train_until(self, update: int) -> None:
        """Make updates up to this number.

        Raises:
            UserError: Training failed, for example because the loss is not finite.
        """

    @abstractmethod
    def validate(self) -> tuple[float, float]:
        """Return the loss and the accuracy on the validation examples."""

    @property
    def loss(self) -> float | None:
        """Loss at the last validation; None if training failed."""
        return self.looks[-1].loss if self.looks and not self.failure else None

    @property
    def holds(self) -> bool:
        """True if the task is solved, and the solution was not lost again."""
        return self.solved is not None and not self.lost

    def score(self, cheating: float | None) -> float | None:
        """Score of the rate, lower is better: negative if solved, the sooner the lower; otherwise the loss.

        Args:
            cheating: Accuracy of the shortcut baseline; None to censor no rate by it.

        Returns:
            The score; None (censored) if training failed, or if the accuracy is not significantly above `cheating`.
        """
        if self.loss is None:
            return None
        if self.solved is not None and not self.lost:
            return float(self.solved - self.budget.updates - 1)
        if cheating is None:
            return self.loss
        share = wilson(round(self.looks[-1].accuracy * self.held_out / 100), self.held_out)
        return self.loss if above_chance(share, 100 * cheating).passed else None

    def continue_until(self, until: int) -> None:
        """Train until update `until`, or until the task is solved."""
        self._train(until, stop_when_solved=True)

    def settle(self, updates: int) -> None:
        """Train for `updates` updates after the solution of the task, to test whether the solution is stable."""
        if self.solved is not None and updates:
            self._train(self.solved + updates, stop_when_solved=False)
            self.lost = bool(self.failure) or self.looks[-1].accuracy < 100 * SOLVED

    def _train(self, until: int, stop_when_solved: bool) -> None:
        started = time.process_time()
        try:
            while self.update < until and not self.failure and not (stop_when_solved and self.solved):
                self.train_until(min(until, self.update + self.budget.every))
                loss, accuracy = self.validate()
                if not math.isfinite(loss):
                    raise UserError("the validation loss is not finite")
                self.looks.append(Validation(self.update, loss, 100 * accuracy))
                if accuracy >= SOLVED and self.solved is None:
                    self.solved = self.update
        except UserError as error:
            self.failure = error.what
        self.seconds += time.process_time() - started


AnyRun = TypeVar("AnyRun", bound=Run)


def find_rates(folder: Path, measure: Callable[[Trial], object], trial: Trial, precision: str) -> Rates:
    """Return the result of a search for a learning rate, cached in a file.

    Args:
        folder: Folder of the question's results; created if needed.
        measure: Runs the search of a trial, and returns `Rates`.
        trial: Trial of the search.
        precision: Precision of the question.

    Raises:
        UserError: The search failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stored = run_cached(folder, measure, trial, precision)
    if stored.measured is None:
        raise UserError(stored.failed)
    return TypeAdapter(Rates).validate_python(stored.measured)


def train_at_best(start: Callable[[float], AnyRun], rates: Sequence[float]) -> AnyRun:
    """Train at the best of these rates until the task is solved or the budget is spent.

    Args:
        start: Starts a training at a rate.
        rates: Learning rates.

    Raises:
        UserError: Training fails at every rate, or later at the best.
    """
    runs = [start(rate) for rate in rates]
    _train_in_turn(runs, runs[0].budget.trial)
    _check_trained(runs)
    best = min(runs, key=_by_speed)
    best.continue_until(best.budget.updates)
    if best.failure:
        raise UserError(f"training fails at rate {best.rate:g} after {best.update} updates: {best.failure}")
    return best


def search(start: Callable[[float], Run], cheating: float | None) -> Rates:
    """Find the best learning rate in a growing grid, see `s2s.comparison.tuning_search`.

    Args:
        start: Starts a training at a rate.
        cheating: Accuracy of the shortcut baseline; None to censor no rate by it.

    Raises:
        UserError: Training fails at every rate.
    """
    runs: dict[TuningTrial, Run] = {}
    scores: dict[TuningTrial, float | None] = {}

    def _ranked() -> Mapping[TuningTrial, float | None]:
        at_chance = all(score is None for score in scores.values())
        return {trial: run.loss for trial, run in runs.items()} if at_chance else scores

    limit = None
    while new := next_trials((), _ranked(), 0):
        fresh = {trial: start(trial.rate) for trial in new}
        runs |= fresh
        budget = next(iter(fresh.values())).budget
        limit = budget.trial if limit is None else limit
        while True:
            _train_in_turn(list(fresh.values()), limit)
            scores = {trial: run.score(cheating) for trial, run in runs.items()}
            if limit >= budget.updates or any(score is not None for score in scores.values()):
                break
            # all are censored, so the scores do not rank them yet
            limit = min(2 * limit, budget.updates)
        limit = min([limit, *(run.solved for run in runs.values() if run.solved and run.holds)])
    _check_trained(list(runs.values()))
    left = sorted((score, trial.rate) for trial, score in scores.items() if score is not None)
    # of rates that solve the task at the same validation, the lowest barely solves it, and the highest may be unstable
    tied = [rate for score, rate in left if score == left[0][0]]
    best = TuningTrial(tied[(len(tied) - 1) // 2] if tied else min(runs.values(), key=_by_speed).rate)
    return Rates(
        best=best.rate,
        other=next((rate for _, rate in left if rate != best.rate), None),
        inside=inside(best, _ranked()),
        tried={
            trial.rate: TriedRate(
                updates=run.update,
                solved=run.solved if run.holds else None,
                loss=run.loss,
                left_chance=scores[trial] is not None,
            )
            for trial, run in sorted(runs.items(), key=lambda each: each[0].rate)
        },
    )


def _train_in_turn(runs: Sequence[Run], limit: int) -> None:
    budget = runs[0].budget
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
            remedy="correct the model's initialization, or leave the model out",
        )


class TaskModel(nn.Module):
    """A model with a linear head on its encoder states, for tasks with labels at source positions.

    Args:
        model: The model.
        width: Width of the encoder states.
        classes: Number of classes of the head; 0 for no head.
    """

    def __init__(self, model: Seq2Seq, width: int, classes: int) -> None:
        super().__init__()
        self.model = model
        self.head = nn.Linear(width, classes) if classes else None

    def forward(self, batch: TaskBatch) -> tuple[Tensor | None, Tensor | None]:
        """Return the scores of the head, and those of the decoder.

        Returns:
            Scores `(rows, source, classes)`, None without head, and `(rows, steps, vocabulary)`, None if the decoder is
            not used.
        """
        memory = self.model.encoder(batch.source, torch.ones_like(batch.source, dtype=torch.bool))
        named = self.head(memory.states) if self.head is not None else None
        if batch.written is None:
            return named, None
        context, state = self.model.decoder.start(memory, batch.written.shape[1])
        return named, self.model.projection(self.model.decoder(context, state, batch.written)[0])


class TaskRun(Run):
    """A training on a synthetic task with a new batch in each update.

    The optimizer is Adam. After warm-up the learning rate is constant. It decays linearly to zero in the last 30 % of
    the updates, or in the updates of `settle`, from what it was when the task was solved.

    Args:
        model: The model to train.
        task: The task.
        rate: The learning rate.
        budget: Budget.
        seed: Seed of the examples.
        device_context: Device; training and answers are in fp32.
        held_out: Validation examples of each tested size up to the largest training size.
    """

    def __init__(
        self,
        model: TaskModel,
        task: SyntheticTask,
        rate: float,
        budget: Budget,
        seed: int,
        device_context: DeviceContext,
        held_out: int = 64,
    ) -> None:
        self.task, self.device = task, device_context.device
        self.model = model.to(self.device)
        # Fused: with many small tensors, the number of operations dominates the time of a step.
        self._adam = torch.optim.Adam(self.model.parameters(), lr=rate, betas=BETAS, fused=True)
        self._chance = torch.Generator().manual_seed(derive_seed(seed, 1) % 2**63)
        asked = torch.Generator().manual_seed(derive_seed(seed, 2) % 2**63)
        sizes = [size for size in task.tested if size <= max(task.trained)]
        self._held_out = [task.draw(size, held_out, asked).to(self.device) for size in sizes]
        self._update, self._end, self._decay, self._top = 0, budget.updates, _DECAY * budget.updates, 1.0
        super().__init__(rate, budget, held_out * len(sizes))

    @property
    def update(self) -> int:
        return self._update

    def train_until(self, update: int) -> None:
        self.model.train()
        loss = torch.zeros(())
        while self._update < update:
            # 1. Draw a batch of one size.
            size = self.task.trained[int(torch.randint(len(self.task.trained), (1,), generator=self._chance))]
            batch = self.task.draw(size, self.task.rows(size), self._chance).to(self.device)
            # 2. Compute the loss and its gradient.
            loss = sum_of_losses(batch, *self.model(batch))
            self._adam.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
            # 3. Update the weights with the learning rate of this update.
            self._update += 1
            for group in self._adam.param_groups:
                group["lr"] = self.rate * self._factor(self._update)
            self._adam.step()
        if not math.isfinite(loss.item()):
            raise UserError(f"the loss is not finite after {self._update} updates")

    def settle(self, updates: int) -> None:
        if self.solved is not None and updates:
            # a task may be solved while the rate decays, and a higher rate could lose the solution
            self._top = self._decayed(self.solved)
            self._end, self._decay = self.solved + updates, updates
        super().settle(updates)

    def _factor(self, update: int) -> float:
        return max(0.0, min(update / self.budget.warmup, self._decayed(update)))

    def _decayed(self, update: int) -> float:
        return self._top * min(1.0, (self._end + 1 - update) / self._decay)

    @torch.inference_mode()
    def validate(self) -> tuple[float, float]:
        self.model.eval()
        losses, right = [], []
        for batch in self._held_out:
            named, scores = self.model(batch)
            losses.append(sum_of_losses(batch, named, scores).item())
            right.append(self._right(batch, named if scores is None else scores).float().mean().item())
        return float(np.mean(losses)), float(np.mean(right))

    @torch.inference_mode()
    def right(self, size: int, rows: int, chance: torch.Generator) -> tuple[float, int]:
        """Test the model on new examples of a size.

        Returns:
            Accuracy, and number of answers.
        """
        self.model.eval()
        batch = self.task.draw(size, rows, chance).to(self.device)
        named, scores = self.model(batch)
        right = self._right(batch, named if scores is None else scores)
        return float(right.float().mean()), right.numel()

    @torch.inference_mode()
    def cross_entropy(self, size: int, rows: int, chance: torch.Generator) -> float:
        """Compute the cross-entropy of new answers of a size in bits, without EOS.

        Returns:
            Mean over answers of the sum over symbols; each symbol is predicted from the previous ones.
        """
        self.model.eval()
        batch = self.task.draw(size, rows, chance).to(self.device)
        _, scores = self.model(batch)
        # (rows, symbols); special tokens are excluded, because the length is known
        wanted = batch.wanted[:, :-1] - FIRST
        logits = scores[:, :-1, FIRST:].cpu().double().transpose(1, 2)
        nats = functional.cross_entropy(logits, wanted.cpu(), reduction="sum")
        return float(nats) / (rows * math.log(2))

    @torch.inference_mode()
    def endings(self, size: int, rows: int, chance: torch.Generator) -> dict[Ending, int]:
        """Generate answers to new examples of a size with greedy search, and count their endings.

        Answers have up to twice the correct length. The task must use the decoder.

        Returns:
            Number of answers by ending.
        """
        self.model.eval()
        batch = self.task.draw(size, rows, chance).to(self.device)
        limits = np.full(rows, 2 * batch.wanted.shape[1])
        valid = torch.ones_like(batch.source, dtype=torch.bool)
        found = beam_search.search(self.model.model, batch.source, valid, limits, Beam(size=1))
        counts: dict[Ending, int] = dict.fromkeys(get_args(Ending), 0)
        # the last token of a target is EOS
        for (hypothesis,), wanted in zip(found, batch.wanted[:, :-1].tolist(), strict=True):
            counts[ending(list(hypothesis.tokens), wanted)] += 1
        return counts

    def _right(self, batch: TaskBatch, scores: Tensor) -> Tensor:
        if batch.written is not None:
            # decoding never generates these tokens
            scores[..., PAD] = scores[..., BOS] = float("-inf")
        return self.task.right(batch, scores)


def ending(written: Sequence[int], wanted: Sequence[int]) -> Ending:
    """Classify a generated answer.

    Example:
        >>> ending([5, 6], [5, 6, 7])
        'stops too early'
    """
    if len(written) != len(wanted):
        return "stops too early" if len(written) < len(wanted) else "does not stop in time"
    return "right" if list(written) == list(wanted) else "writes something else"


def sum_of_losses(batch: TaskBatch, named: Tensor | None, scores: Tensor | None) -> Tensor:
    """Return the sum of the mean cross-entropies of labels and targets, in nats.

    Args:
        batch: Examples.
        named: Scores of the linear head, `(rows, source, classes)`, or None.
        scores: Scores of the decoder, `(rows, steps, vocabulary)`, or None.
    """
    loss = batch.source.new_zeros((), dtype=torch.float32)
    for each, wanted in ((named, batch.labels), (scores, batch.target)):
        if each is not None and wanted is not None:
            # A softmax over the last dimension is faster than one over a middle dimension.
            scored, labels = each.float().flatten(0, 1), wanted.flatten()
            loss = loss + functional.cross_entropy(scored, labels, ignore_index=NO_LABEL)
    return loss
