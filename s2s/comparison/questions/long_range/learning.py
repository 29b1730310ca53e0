"""Train a small model on an exercise."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor
from torch.nn import functional

from s2s.comparison.task_training import Budget, Run
from s2s.data.batches import collate, make_batches
from s2s.data.exercises import Examples
from s2s.data.tokenized import TokenizedDataset
from s2s.data.tokenizers import BOS, PAD
from s2s.models.base import Seq2Seq
from s2s.recipe.schema import SeedSettings
from s2s.tasks.seq2seq import translation_trainer
from s2s.tasks.translation.recipe import BatchSettings, TrainingSettings
from s2s.training.device import DeviceContext

_ROWS_AT_ONCE = 64  # number of the longest examples in a batch of evaluation


@dataclass(frozen=True, kw_only=True)
class ExerciseBudget(Budget):
    """Limits of a training on an exercise, and the size of its updates."""

    rows: int  # examples per update, about
    batches: int  # batches per update, about; a batch has examples of one length, an update of several


@dataclass(frozen=True)
class TrainingTask:
    """A model and the examples that it is trained on."""

    build: Callable[[], Seq2Seq]
    train: Examples
    held_out: Examples
    budget: ExerciseBudget
    seed: int
    device_context: DeviceContext

    def start(self, rate: float) -> "ExerciseRun":
        """Start a training at a learning rate."""
        return ExerciseRun(self, rate)


@dataclass(frozen=True)
class Answers:
    """Answers of a model to examples."""

    right: Bool[np.ndarray, " examples"]
    loss: float  # cross-entropy in nats per target token

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return float(self.right.mean())


class ExerciseRun(Run):
    """A training on the examples of an exercise."""

    def __init__(self, training_task: TrainingTask, rate: float) -> None:
        super().__init__(rate, training_task.budget, len(training_task.held_out))
        self.training_task = training_task
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

    @property
    def update(self) -> int:
        return self.trainer.update

    def train_until(self, update: int) -> None:
        for _ in self.trainer.updates(update):
            pass

    def validate(self) -> tuple[float, float]:
        held_out = answers(self.trainer.model, self.training_task.held_out, self.training_task.device_context)
        return held_out.loss, held_out.accuracy


def encoded(examples: Examples) -> TokenizedDataset:
    """Convert examples to a dataset for the trainer."""
    return TokenizedDataset.from_rows(examples.sources, examples.targets)


@torch.inference_mode()
def answers(model: Seq2Seq, examples: Examples, device_context: DeviceContext) -> Answers:
    """Answer examples in evaluation mode and fp32, with teacher forcing.

    For a whole target this equals greedy search, which outputs the target exactly if the right token is the most
    probable one at every step.
    """
    model.eval()
    data = encoded(examples)
    longest = int(max(data.source_lengths.max(), data.target_lengths.max()))
    right, loss = np.zeros(len(examples), dtype=bool), 0.0
    for rows in make_batches(data.source_lengths, data.target_lengths, _ROWS_AT_ONCE * longest, 0, 0):
        batch = collate(*data.rows(rows), rows).to(device_context.device)
        logits = model.logits(batch.source, batch.source_valid, batch.target_in).float()
        # greedy search never outputs these
        logits[..., PAD] = logits[..., BOS] = float("-inf")
        losses = functional.cross_entropy(logits.transpose(1, 2), batch.target_out, reduction="none", ignore_index=PAD)
        loss += float(losses.sum())
        hits = (logits.argmax(dim=2) == batch.target_out) | ~batch.target_valid
        good = hits.all(dim=1) if examples.rivals is None else _beats(logits, batch.target_out, examples, rows)
        right[rows] = good.cpu().numpy()
    return Answers(right, loss / float(data.target_lengths.sum()))


def _beats(logits: Tensor, target: Tensor, examples: Examples, rows: np.ndarray) -> Tensor:
    """Return True for each row whose right token is more probable than its rival."""
    rivals = torch.tensor([(examples.rivals or [])[row] for row in rows], device=logits.device)
    each = torch.arange(len(rows), device=logits.device)
    there = logits[each, rivals[:, 0]]
    return there[each, target[each, rivals[:, 0]]] > there[each, rivals[:, 1]]
