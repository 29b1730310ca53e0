"""The trainer: a generator of updates, without callbacks.

Whoever iterates decides when to validate, save, log or stop.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from s2s.data.examples import Collated, Examples, Plan
from s2s.recipe.schema import OptimizationSettings, SeedSettings
from s2s.training.devices import Computer, seed_for
from s2s.training.finite import explain
from s2s.training.optimization import Optimization, learning_rate

Whole = TypeVar("Whole", bound=nn.Module)
Batch = TypeVar("Batch", bound=Collated)

Loss = Callable[[Whole, Batch], tuple[Tensor, Tensor]]
"""Of a model and a batch: the loss to learn from and the plain one to report, both summed over `batch.count` items."""


@dataclass(frozen=True)
class Update:
    """What one update did.

    Attributes:
        update: its number, from 1 on.
        epoch: passes over the data before it.
        loss: the plain loss, in nats per item (target token, example or masked token, by task), before the step.
        count: items that `loss` is the mean of.
        tokens: real tokens it learned from: target tokens in translation, those read in tasks that only read.
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
    count: int
    tokens: int
    seconds: float
    learning_rate: float
    gradient_norm: float
    layer_norms: dict[str, float]
    clipped: bool
    real_share: float


class Trainer(Generic[Whole, Batch]):
    """Updates a model: the gradient of all items of an update, divided once by their number.

    It is the same for every task; what differs is in the examples and the loss.

    Args:
        model: what is trained, on the computer's device.
        examples: what it learns from.
        loss: what shall become small.
        training: the optimisation.
        seeds: of order, of what is drawn for the examples, and of dropout.
        computer: device and precision.
        scales: factors of the learning rate, by parameter name; 1 for those that are not there.
    """

    def __init__(
        self,
        model: Whole,
        examples: Examples[Batch],
        loss: Loss[Whole, Batch],
        training: OptimizationSettings,
        seeds: SeedSettings,
        computer: Computer,
        scales: Mapping[str, float] | None = None,
    ) -> None:
        self.model = model
        self.examples = examples
        self.loss = loss
        self.settings = training
        self.seeds = seeds
        self.computer = computer
        self.optimization = Optimization(model, training, scales)
        self.update = 0
        self.epoch = 0
        self.position = 0
        self.groups = self._plan_epoch()
        # what torch.compile gives calls like the model and has its attributes
        self._called = cast(Whole, torch.compile(model, dynamic=True)) if computer.compile else model

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

    def _plan_epoch(self) -> list[Plan]:
        groups, self.micro_batches = self.examples.updates(self.examples.plan(self.seeds.data, self.epoch))
        return groups

    def _one_update(self) -> Update:
        started = time.perf_counter()
        group = self.groups[self.position]
        number = self.update + 1
        # one seed for an epoch: what is drawn for an example does not depend on the batch that it is in
        drawn = seed_for(self.seeds.data, self.epoch)
        collated = [self.examples.collate(rows, drawn) for rows in group]
        # all items of the update share one denominator, whatever micro-batch they are in
        count = max(1, sum(batch.count for batch in collated))
        torch.manual_seed(seed_for(self.seeds.dropout, number))
        self.model.train()
        batches, losses = [], []
        for each in collated:
            batch = each.to(self.computer.device)
            losses.append(self._accumulate_gradient(batch, count))
            batches.append(batch)
        loss = float(torch.stack(losses).sum()) / count
        norm, layer_norms = self.optimization.gradient_norms()
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise explain(self.model, self._forward_again, batches, number, self.examples.noun)
        clipped = self.optimization.step(number, norm)
        self.update, self.position = number, self.position + 1
        return Update(
            update=number,
            epoch=self.epoch,
            loss=loss,
            count=count,
            tokens=sum(batch.tokens for batch in batches),
            seconds=time.perf_counter() - started,
            learning_rate=learning_rate(number, self.settings),
            gradient_norm=norm,
            layer_norms=layer_norms,
            clipped=clipped,
            real_share=float(np.mean([batch.real_share for batch in batches])),
        )

    def _accumulate_gradient(self, batch: Batch, count: int) -> Tensor:
        with self.computer.mixed_precision():
            wanted, plain = self.loss(self._called, batch)
        (wanted / count).backward()
        return plain.detach()

    def _forward_again(self, batch: Batch) -> None:
        with torch.no_grad(), self.computer.mixed_precision():
            self.loss(self.model, batch)


def mean_loss(model: Whole, examples: Examples[Batch], loss: Loss[Whole, Batch], computer: Computer) -> float:
    """The plain loss of all examples, in nats per item, dropout off.

    What is drawn at random for the examples, such as masks, is the same each time.
    """
    model.eval()
    total, count = torch.zeros((), device=computer.device), 0
    with torch.no_grad(), computer.mixed_precision():
        for rows in examples.plan(0, 0):
            batch = examples.collate(rows, 0).to(computer.device)
            total += loss(model, batch)[1]
            count += batch.count
    return float(total) / max(1, count)


def _own_tensors(model: nn.Module) -> dict[str, Tensor]:
    return dict(model.named_parameters())
