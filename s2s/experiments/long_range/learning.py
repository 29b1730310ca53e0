"""A small model trained on pieces with the real trainer, and its answers counted.

The learning rate is chosen while learning: the same fresh model begins with each rate of a small grid, and after a
short trial the one that did best on held-out examples goes on. What the others cost is reported.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import datasets
import numpy as np
import pyarrow
import torch
from jaxtyping import Bool
from torch import Tensor
from torch.nn import functional

from s2s.data.batches import collate, plan
from s2s.data.encoding import Encoded
from s2s.data.exercises import Examples
from s2s.data.tokenizers import BOS, PAD
from s2s.errors import UserError
from s2s.models.contract import Seq2Seq
from s2s.recipe.schema import SeedSettings
from s2s.tasks.translation.recipe import BatchSettings, TrainingSettings
from s2s.tasks.translation.task import translation_trainer
from s2s.training.devices import Computer

SOLVED = 0.99
_ROWS_AT_ONCE = 64  # of the longest examples, when answers are counted


@dataclass(frozen=True)
class Budget:
    """How a model may learn."""

    updates: int  # at most so many
    rows: int  # about so many examples make one update
    batches: int  # about so many batches make one update; a batch has examples of one length, an update of several
    every: int  # updates between two looks at the held-out examples
    trial: int  # updates after which one rate is chosen
    rates: tuple[float, ...]  # the grid of learning rates
    warmup: int  # updates during which the rate rises; then it stays


@dataclass(frozen=True)
class Answers:
    """What a model said."""

    right: Bool[np.ndarray, " examples"]  # for each example, in its order, whether it counts as right
    pieces: float  # share of right pieces among all of the targets, ends counted, with the true ones before them given
    loss: float  # cross-entropy in nats per target piece

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return float(self.right.mean())


@dataclass(frozen=True)
class Learned:
    """A trained model and how it became one."""

    model: Seq2Seq  # in evaluation mode
    rate: float  # the chosen learning rate
    # on held-out examples after the trial, in nats per piece, by rate; None where training failed
    losses: dict[float, float | None]
    updates: int  # how many it had
    # the first look (in updates) at which 99 % of the held-out examples were right; None: it never came
    solved: int | None
    loss: float  # on held-out examples at the end, in nats per piece
    seconds: float  # that the chosen one took
    trial_seconds: float  # that the others took


def learn(
    build: Callable[[], Seq2Seq], train: Examples, held_out: Examples, budget: Budget, seed: int, computer: Computer
) -> Learned:
    """Trains a fresh model until 99 % of the held-out examples are right, or the budget is spent.

    Args:
        build: makes the untrained model, the same at each call.
        train: what is learned from, as often as the budget allows.
        held_out: what decides on the rate and on when to stop; no reported accuracy is of these.
        budget: how long.
        seed: of the order and of what is dropped.
        computer: device and precision.

    Raises:
        UserError: training fails at every rate.
    """
    data = encoded(train)
    runs = [_Run(build, data, held_out, budget, rate, seed, computer) for rate in budget.rates]
    trial = min(budget.trial, budget.updates)
    # in turns, so that nobody learns on after somebody has solved the task
    for until in range(budget.every, trial + budget.every, budget.every):
        for run in runs:
            run.go_on(min(until, trial))
        if any(run.solved for run in runs):
            break
    losses = {run.rate: run.loss for run in runs}
    best = min(runs, key=lambda run: run.rank)
    if best.loss is None:
        raise UserError(
            f"training fails at every rate of {', '.join(f'{rate:g}' for rate in budget.rates)}: {best.failure}",
            remedy="mend the model's initial weights, or leave it out",
        )
    best.go_on(budget.updates)
    if best.loss is None:
        raise UserError(f"training fails at rate {best.rate:g} after {best.trainer.update} updates: {best.failure}")
    return Learned(
        model=best.trainer.model.eval(),
        rate=best.rate,
        losses=losses,
        updates=best.trainer.update,
        solved=best.solved,
        loss=best.loss,
        seconds=best.seconds,
        trial_seconds=sum(run.seconds for run in runs if run is not best),
    )


class _Run:
    """A training at one rate, with looks at the held-out examples."""

    def __init__(
        self,
        build: Callable[[], Seq2Seq],
        data: Encoded,
        held_out: Examples,
        budget: Budget,
        rate: float,
        seed: int,
        computer: Computer,
    ) -> None:
        self.held_out, self.every, self.rate, self.computer = held_out, budget.every, rate, computer
        longest = int(max(data.source_lengths.max(), data.target_lengths.max()))
        tokens = max(longest, round(budget.rows * float(data.source_lengths.mean()) / budget.batches))
        batches = BatchSettings(tokens=tokens, max_length=longest)
        planned = plan(data.source_lengths, data.target_lengths, tokens, seed, 0)
        at_once = float(data.target_lengths.sum()) / len(planned)
        training = TrainingSettings(
            updates=budget.updates,
            tokens_per_update=max(round(budget.rows * float(data.target_lengths.mean())), round(at_once)),
            learning_rate=rate,
            schedule="constant",
            warmup=budget.warmup,
            label_smoothing=0.0,
        )
        seeds = SeedSettings(initialization=seed, data=seed, dropout=seed)
        self.trainer = translation_trainer(build().to(computer.device), data, training, batches, seeds, computer)
        self.solved: int | None = None
        self.loss: float | None = None
        self.failure = ""
        self.seconds = 0.0

    @property
    def rank(self) -> tuple[float, float]:
        """The lower the better: solved sooner, or with a lower loss; failed last."""
        return (
            float("inf") if self.solved is None else float(self.solved),
            float("inf") if self.loss is None else self.loss,
        )

    def go_on(self, until: int) -> None:
        """More updates, until so many were made in all or the task is solved."""
        started = time.perf_counter()
        try:
            while self.trainer.update < until and self.solved is None and not self.failure:
                for _ in self.trainer.updates(min(until, self.trainer.update + self.every)):
                    pass
                held_out = answers(self.trainer.model, self.held_out, self.computer)
                if not math.isfinite(held_out.loss):
                    raise UserError("its answers are no longer finite")
                self.loss = held_out.loss
                if held_out.accuracy >= SOLVED:
                    self.solved = self.trainer.update
        except UserError as error:
            self.loss, self.failure = None, error.what
        self.seconds += time.perf_counter() - started


def encoded(examples: Examples) -> Encoded:
    """Examples as the trainer takes them."""
    table = pyarrow.table({"source": _column(examples.sources), "target": _column(examples.targets)})
    return Encoded(datasets.Dataset(table))


def _column(rows: list[list[int]]) -> pyarrow.ListArray:
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    return pyarrow.ListArray.from_arrays(offsets, np.fromiter(chain.from_iterable(rows), np.int32, int(offsets[-1])))


@torch.inference_mode()
def answers(model: Seq2Seq, examples: Examples, computer: Computer) -> Answers:
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
    for rows in plan(data.source_lengths, data.target_lengths, _ROWS_AT_ONCE * longest, 0, 0):
        batch = collate(*data.rows(rows), rows).to(computer.device)
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
    """Whether the right piece is likelier than its rival, for each of the rows."""
    rivals = torch.tensor([(examples.rivals or [])[row] for row in rows], device=logits.device)
    each = torch.arange(len(rows), device=logits.device)
    there = logits[each, rivals[:, 0]]
    return there[each, target[each, rivals[:, 0]]] > there[each, rivals[:, 1]]
