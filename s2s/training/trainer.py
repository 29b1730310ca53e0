"""The trainer: a generator of updates, without callbacks.

Whoever iterates decides when to validate, save, log or stop.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar, cast

import torch
from torch import Tensor, nn

from s2s.data.dataset import (
    BaseBatch,
    Examples,
    Prefetcher,
    group_into_steps,
    is_asynchronous,
    iterate_batches,
    shard_batches,
)
from s2s.errors import UserError
from s2s.recipe.schema import OptimizationSettings, SeedSettings
from s2s.training.device import DeviceContext, derive_seed, seed_generators
from s2s.training.distributed import check_world_size
from s2s.training.freezing import freeze
from s2s.training.noise import check_several_micro_batches
from s2s.training.nonfinite import check_weights, locate_nonfinite
from s2s.training.optimization import OptimizerWrapper, learning_rate
from s2s.training.step import StepMetrics, StepResult
from s2s.training.tensor_files import check_shapes

Model = TypeVar("Model", bound=nn.Module)
Batch = TypeVar("Batch", bound=BaseBatch)

Loss = Callable[[Model, Batch], tuple[Tensor, Tensor]]
"""Of a model and a batch: the loss to learn from and the plain one to report, both summed over `batch.count` items."""


@dataclass(frozen=True)
class _PendingStep(Generic[Batch]):
    """A numbered update from a place (epoch, position), of which nobody has seen yet whether its numbers are finite."""

    number: int
    position: tuple[int, int]
    batches: list[Batch]
    count: int
    measured: StepMetrics


class Trainer(Generic[Model, Batch]):
    """Updates a model: the gradient of all items of an update, divided once by their number.

    It is the same for every task; what differs is in the examples and the loss. The rate of a parameter is multiplied
    by its factor in `scales`, 1 where it has none. Of several processes, each has a share of every update, and all make
    the same step.

    Raises:
        UserError: `training.freeze` names nothing, or all; or noise shall be measured, and an update has one batch; or
            an update is too small for so many processes.
    """

    def __init__(
        self,
        model: Model,
        examples: Examples[Batch],
        loss: Loss[Model, Batch],
        training: OptimizationSettings,
        seeds: SeedSettings,
        device_context: DeviceContext,
        scales: Mapping[str, float] | None = None,
    ) -> None:
        freeze(model, training.freeze)
        self.model = model
        self.examples = examples
        self.loss = loss
        self.settings = training
        self.seeds = seeds
        self.device_context = device_context
        self.distributed = device_context.distributed
        self.optimization = OptimizerWrapper(model, training, scales)
        self.update = 0
        # plans of epochs differ, and so may their batches' mean size: what an update is must not
        self.micro_batches = examples.accumulation_steps(examples.make_batches(seeds.data, 0))
        self._seek(0, 0)
        check_world_size(self.distributed, [sum(map(len, batches)) for batches in self.groups], training.noise_scale)
        if training.noise_scale:
            check_several_micro_batches(list(map(len, self.groups)))
        self._prefetcher = Prefetcher(examples, device_context.device)
        self._pending: _PendingStep[Batch] | None = None
        # what torch.compile gives calls like the model and has its attributes
        called = cast(Model, torch.compile(model, dynamic=True)) if device_context.compile else model
        self._compute = partial(loss, called)

    def updates(self, until: int) -> Iterator[StepResult]:
        """Updates the model until it has had that many updates in its life, yielding after each.

        A GPU is asked for an update before it is known whether the one before was sound; where that one was not, no
        update moves the weights any more, and the next one tells, as do `state` and the end.

        Raises:
            UserError: a loss or a gradient is not finite; the weights are then those before the update.
        """
        while self.update < until:
            if self.position == len(self.groups):
                self._seek(self.epoch + 1, 0)
            yield self.train_step()
        self._check_pending_finite()

    def state(self) -> tuple[dict[str, Tensor], dict[str, int]]:
        """What resuming needs: tensors (weights, moments, average) and numbers (where in the data).

        Raises:
            UserError: the last update, or a weight after it, is not finite.
        """
        self._check_pending_finite()
        check_weights(self.model, self.update)
        weights = {f"model.{name}": p.detach() for name, p in self.model.named_parameters()}
        place = {"update": self.update, "epoch": self.epoch, "position": self.position}
        return weights | self.optimization.state(), place

    def load_state(self, tensors: dict[str, Tensor], place: dict[str, int], where: Path = Path("state")) -> None:
        """Continues where `state` was taken, by what it gave; `where` is the tensors' file, for messages.

        Raises:
            UserError: they are not of this model, or the place is none of these examples.
        """
        wanted, may = self.optimization.expected(tensors)
        weights = {f"model.{name}": p for name, p in self.model.named_parameters()}
        check_shapes(tensors, wanted | weights, where, may)
        with torch.no_grad():
            for name, p in weights.items():
                p.copy_(tensors[name])
        self.optimization.load_state(tensors)
        self.update, self._pending = place["update"], None
        self._seek(place["epoch"], place["position"])
        if self.position > len(self.groups):
            raise UserError(
                f"update {self.position} of epoch {self.epoch} is named, but an epoch has {len(self.groups)}",
                where=str(where),
                remedy="restore the checkpoint, or remove it and go on from an older one",
            )

    def sync_from_main(self) -> None:
        """Broadcasts the state and the precision of rank 0; each rank calls this once, before the first update.

        Raises:
            UserError: a weight is not finite.
        """
        if self.distributed.world_size == 1:
            return
        precision = self.distributed.broadcast_object(self.device_context.precision)
        self.device_context = replace(self.device_context, precision=precision, autoselect_precision=False)
        tensors, place = self.state()
        self.load_state(self.distributed.broadcast_tensors(tensors), self.distributed.broadcast_object(place))

    def _seek(self, epoch: int, position: int) -> None:
        """Plans the updates of an epoch; the next one is at that position of it."""
        self.epoch, self.position = epoch, position
        self.groups = group_into_steps(self.examples.make_batches(self.seeds.data, epoch), self.micro_batches)
        self._shares = [
            shard_batches(batches, self.distributed.rank, self.distributed.world_size) for batches in self.groups
        ]

    def train_step(self) -> StepResult:
        """Run one optimizer step: accumulate gradients over micro-batches and ranks, clip, and move the weights."""
        started, worked = time.perf_counter(), time.process_time()
        number, batches = self.update + 1, self._batches()
        shares = [batch.real_share for batch in batches]
        items, tokens, real, parts = self.distributed.all_reduce_sum(
            sum(batch.count for batch in batches), sum(batch.tokens for batch in batches), sum(shares), len(batches)
        )
        # all items of an update share one denominator, whatever micro-batch, and whatever process, they are in
        count = max(1, int(items))
        self._seed_dropout(number)
        self.model.train()
        loss, part_norms = self._add_gradients(batches, count)
        loss = self.distributed.all_reduce_gradients(self.optimization.parameters, loss)
        # a GPU still has the gradient to compute: it does not stand still while the last update's numbers are read
        self._check_pending_finite()
        norm, layer_norms = self.optimization.measure_gradient_norms()
        measured = StepMetrics(loss, layer_norms, part_norms)
        self._pending = _PendingStep(number, (self.epoch, self.position), batches, count, measured)
        if is_asynchronous(self.device_context.device) and self.optimization.skips_on_device:
            self.optimization.step(number, norm, measured.found_inf)
        else:
            self._check_pending_finite()
            self.optimization.step(number, norm)
        self.update, self.position = number, self.position + 1
        return StepResult(
            update=number,
            epoch=self.epoch,
            count=count,
            tokens=int(tokens),
            seconds=time.perf_counter() - started,
            cpu_seconds=time.process_time() - worked,
            learning_rate=learning_rate(number, self.settings),
            real_share=real / parts,
            clip=self.settings.clip,
            measured=measured,
            parts=tuple(batch.count for batch in batches),
        )

    def _batches(self) -> list[Batch]:
        group, *following = self._shares[self.position : self.position + 2]
        # one seed for an epoch: what is drawn for an example does not depend on the batch that it is in
        drawn = derive_seed(self.seeds.data, self.epoch)
        return self._prefetcher.batches(group, drawn, following[0] if following else None)

    def _seed_dropout(self, update: int) -> None:
        # that of the first process is that of one alone: a last zero changes no seed
        seed_generators(derive_seed(self.seeds.dropout, update, self.distributed.rank), self.device_context.device)

    def _add_gradients(self, batches: Sequence[Batch], count: int) -> tuple[Tensor, list[Tensor]]:
        """The gradient of the mean over the `count` items of all batches; their plain loss, summed.

        Where noise is measured, also the norm of what each of several batches gave.
        """
        norms: list[Tensor] = []
        losses = (self._add_gradient(self._compute, count, batch) for batch in batches)
        if self.settings.noise_scale and len(batches) > 1:
            losses = self.optimization.per_microbatch_grad_norms(losses, norms)
        found = list(losses)
        # of several processes, one may have none of the batches
        return torch.stack(found or [torch.zeros((), device=self.device_context.device)]).sum(), norms

    def _add_gradient(self, compute: Callable[[Batch], tuple[Tensor, Tensor]], count: int, batch: Batch) -> Tensor:
        """Adds a batch's part to the gradient of the mean over `count` items; its plain loss, summed."""
        with self.device_context.mixed_precision():
            wanted, plain = compute(batch.to(self.device_context.device))
        (wanted / count).backward()
        return plain.detach()

    def _check_pending_finite(self) -> None:
        """Refuses the last update where its numbers are not finite."""
        last, self._pending = self._pending, None
        if last is None or last.measured.finite:
            return
        self.update = last.number - 1
        self._seek(*last.position)
        # its weights are still here, its gradient may not be: it is computed again, with the same dropout
        self.optimization.zero_grad()
        self._seed_dropout(last.number)
        again = partial(self._add_gradient, partial(self.loss, self.model), last.count)
        raise locate_nonfinite(self.model, again, last.batches, last.number, self.examples.item_name, self.distributed)


def mean_loss(
    model: Model, examples: Examples[Batch], loss: Loss[Model, Batch], device_context: DeviceContext
) -> float:
    """The plain loss of all examples, in nats per item, dropout off.

    What is drawn at random for the examples, such as masks, is the same each time. Of several processes each computes a
    part, and all are told the whole.
    """
    model.eval()
    total, count, distributed = torch.zeros((), device=device_context.device), 0, device_context.distributed
    with torch.no_grad(), device_context.mixed_precision():
        for _, batch in iterate_batches(examples, device_context.device, distributed.rank, distributed.world_size):
            total += loss(model, batch)[1]
            count += batch.count
    whole, items = distributed.all_reduce_sum(float(total), count)
    return whole / max(1, items)
