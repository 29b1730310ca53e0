"""The trainer: a generator of updates, without callbacks.

Whoever iterates decides when to validate, save, log or stop.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from s2s.data.batches import Batch, accumulate, collate, plan
from s2s.data.encoding import Encoded
from s2s.errors import UserError
from s2s.models.contract import Seq2Seq
from s2s.recipe.schema import BatchSettings, SeedSettings, TrainingSettings
from s2s.training.devices import Computer, seed_for
from s2s.training.finite import explain
from s2s.training.loss import cross_entropy
from s2s.training.optimization import Optimization, learning_rate


@dataclass(frozen=True)
class Update:
    """What one update did.

    Attributes:
        update: its number, from 1 on.
        epoch: passes over the data before it.
        loss: cross-entropy without smoothing, in nats per target token, before the step.
        tokens: real target tokens it learned from.
        seconds: how long it took.
        learning_rate: of this step.
        gradient_norm: before clipping.
        layer_norms: the gradient's norm layer by layer.
        clipped: whether the gradient was longer than allowed.
        real_share: real tokens among all positions of its batches.
    """

    update: int
    epoch: int
    loss: float
    tokens: int
    seconds: float
    learning_rate: float
    gradient_norm: float
    layer_norms: dict[str, float]
    clipped: bool
    real_share: float


class Trainer:
    """Updates a model: the gradient of all tokens of an update, divided once by their number.

    Args:
        model: what is trained, on the computer's device.
        data: the training pairs as pieces.
        training: the optimisation.
        batches: how pairs become batches.
        seeds: of order and dropout.
        computer: device and precision.
    """

    def __init__(
        self,
        model: Seq2Seq,
        data: Encoded,
        training: TrainingSettings,
        batches: BatchSettings,
        seeds: SeedSettings,
        computer: Computer,
    ) -> None:
        self.model = model
        self.data = data
        self.settings = training
        self.batches = batches
        self.seeds = seeds
        self.computer = computer
        self.optimization = Optimization(model, training)
        self.kept, self.left_out = data.within(batches.max_length)
        if not len(self.kept):
            raise UserError(
                f"all {len(data):,} training pairs are longer than {batches.max_length} pieces",
                where="batches.max_length",
                remedy="raise it",
            )
        self.update = 0
        self.epoch = 0
        self.position = 0
        self.groups = self._plan_epoch()
        self._states = torch.compile(model, dynamic=True) if computer.compile else model

    def updates(self, until: int) -> Iterator[Update]:
        """Updates the model until it has had that many updates in its life, yielding after each.

        Raises:
            UserError: a loss or a gradient is not finite; the weights are then those before the update.
        """
        while self.update < until:
            if self.position == len(self.groups):
                self.epoch, self.position = self.epoch + 1, 0
                self.groups = self._plan_epoch()
            yield self._one_update()

    def state(self) -> tuple[dict[str, Tensor], dict[str, int]]:
        """What resuming needs: tensors (weights, moments, average) and numbers (where in the data)."""
        weights = {f"model.{name}": p.detach() for name, p in _own_tensors(self.model).items()}
        place = {"update": self.update, "epoch": self.epoch, "position": self.position}
        return weights | self.optimization.state(), place

    def load_state(self, tensors: dict[str, Tensor], place: dict[str, int]) -> None:
        """Continues where `state` was taken."""
        with torch.no_grad():
            for name, p in _own_tensors(self.model).items():
                p.copy_(tensors[f"model.{name}"])
        self.optimization.load_state(tensors)
        self.update, self.epoch, self.position = place["update"], place["epoch"], place["position"]
        self.groups = self._plan_epoch()

    def _plan_epoch(self) -> list[list[np.ndarray]]:
        sources, targets = self.data.source_lengths[self.kept], self.data.target_lengths[self.kept]
        batches = plan(sources, targets, self.batches.tokens, self.seeds.data, self.epoch)
        wanted = self.settings.tokens_per_update or self.batches.tokens
        groups, self.micro_batches = accumulate(batches, targets, wanted)
        return [[self.kept[rows] for rows in group] for group in groups]

    def _one_update(self) -> Update:
        started = time.perf_counter()
        group = self.groups[self.position]
        number = self.update + 1
        torch.manual_seed(seed_for(self.seeds.dropout, number))
        self.model.train()
        tokens = int(sum(self.data.target_lengths[rows].sum() for rows in group))
        batches, losses = [], []
        for rows in group:
            batch = collate(*self.data.rows(rows), rows).to(self.computer.device)
            losses.append(self._accumulate_gradient(batch, tokens))
            batches.append(batch)
        loss = float(torch.stack(losses).sum()) / tokens
        norm, layer_norms = self.optimization.gradient_norms()
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise explain(self.model, batches, number, self.computer)
        clipped = self.optimization.step(number, norm)
        self.update, self.position = number, self.position + 1
        return Update(
            update=number,
            epoch=self.epoch,
            loss=loss,
            tokens=tokens,
            seconds=time.perf_counter() - started,
            learning_rate=learning_rate(number, self.settings),
            gradient_norm=norm,
            layer_norms=layer_norms,
            clipped=clipped,
            real_share=float(np.mean([batch.real_share for batch in batches])),
        )

    def _accumulate_gradient(self, batch: Batch, tokens: int) -> Tensor:
        with self.computer.mixed_precision():
            states = self._states(batch.source, batch.source_valid, batch.target_in)
            smoothed, plain = cross_entropy(
                states,
                self.model.projection.weight,
                batch.target_out,
                batch.target_valid,
                self.settings.label_smoothing,
            )
        # all tokens of the update share one denominator, whatever micro-batch they are in
        (smoothed / tokens).backward()
        return plain.detach()


def mean_loss(model: Seq2Seq, data: Encoded, batches: BatchSettings, computer: Computer) -> float:
    """Cross-entropy without smoothing of all pairs, in nats per target token, dropout off."""
    model.eval()
    total = torch.zeros((), device=computer.device)
    longest = int(max(data.source_lengths.max(), data.target_lengths.max()))
    with torch.no_grad(), computer.mixed_precision():
        for rows in plan(data.source_lengths, data.target_lengths, max(batches.tokens, longest), 0, 0):
            batch = collate(*data.rows(rows), rows).to(computer.device)
            states = model(batch.source, batch.source_valid, batch.target_in)
            total += cross_entropy(states, model.projection.weight, batch.target_out, batch.target_valid)[1]
    return float(total) / int(data.target_lengths.sum())


def _own_tensors(model: Seq2Seq) -> dict[str, Tensor]:
    return dict(model.named_parameters())
