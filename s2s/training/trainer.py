"""Training: the optimizer step, and the loop around it.

`Trainer.train_step` has gradient accumulation over micro-batches, data parallelism over ranks, gradient clipping, mixed
precision (autocast) and EMA. `TrainingLoop.fit` logs each step, validates, saves checkpoints, applies early stopping
and stops gracefully at a signal. `Trainer.updates` and `TrainingLoop.fit` are generators of steps: the caller can look
at each step, or stop iterating.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Tensor, nn

from s2s.data.dataset import (
    BaseBatch,
    Examples,
    Plan,
    Prefetcher,
    group_into_steps,
    is_asynchronous,
    iterate_batches,
    shard_batches,
)
from s2s.errors import Stopped, UserError
from s2s.recipe.schema import OptimizationSettings, PauseSettings, SeedSettings
from s2s.training.checkpoint import Checkpoints, Progress
from s2s.training.device import DeviceContext, derive_seed, seed_generators
from s2s.training.distributed import PeerLostError, check_world_size
from s2s.training.logger import RunLog
from s2s.training.optimization import OptimizerWrapper, freeze, learning_rate
from s2s.training.shutdown import GracefulShutdown
from s2s.training.step import StepMetrics, StepResult
from s2s.training.tensor_files import check_shapes
from s2s.training.validation import Validation, count_without_improvement, is_stuck_at_zero

Model = TypeVar("Model", bound=nn.Module)
Batch = TypeVar("Batch", bound=BaseBatch)

Loss = Callable[[Model, Batch], tuple[Tensor, Tensor]]
"""Function of a model and a batch that returns two sums over the `batch.count` items of the batch.

- The objective is differentiated. It may contain regularization, such as label smoothing.
- The reported loss is logged and validated. It has no regularization, so that runs can be compared.

An item is what the loss is averaged over: a target token, an example or a masked token, by task.
"""

# Seconds for which the other ranks let rank 0 report a lost process before they do.
_WAIT_FOR_REPORT = 10.0
# Metric that already distinguishes checkpoints while the one on the left is still 0.
_METRIC_BEFORE = {"bleu": "chrf", "exact": "chrf", "cider": "chrf"}


@dataclass(frozen=True)
class _PendingStep(Generic[Batch]):
    """Optimizer step whose loss and gradient have not been checked for NaN or infinity yet."""

    number: int
    position: tuple[int, int]
    batches: list[Batch]
    count: int
    measured: StepMetrics


class Trainer(Generic[Model, Batch]):
    """Trains a model of any task.

    The gradient of a step is summed over all items of all micro-batches and ranks, then divided by the number of items.

    Args:
        model: The model; parameters named by `training.freeze` are frozen.
        examples: Training examples, which are also the batch sampler.
        loss: Training objective and reported loss of a batch, summed over its items.
        training: Optimizer, learning-rate schedule, clipping and EMA.
        seeds: Seeds of the data order and of dropout.
        device_context: Device, precision, and the process group of data-parallel training.
        scales: Factor of the learning rate by parameter name; 1 for other parameters.

    Raises:
        UserError: `training.freeze` matches no parameter or all of them; most steps have fewer examples than there are
            ranks; or the noise scale is to be measured with several ranks, or with one micro-batch in each step.
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
        # The mean batch size can differ between epochs. The number of accumulation steps is that of the first epoch in
        # the whole run, also if it is resumed, because another number would make all later steps larger or smaller.
        batches = examples.make_batches(seeds.data, 0)
        self.micro_batches = examples.accumulation_steps(batches)
        self.epoch, self.position = 0, 0
        self._group(batches)
        check_world_size(self.distributed, [sum(map(len, group)) for group in self.groups], training.noise_scale)
        if training.noise_scale and all(len(group) < 2 for group in self.groups):
            raise UserError(
                "an optimizer step has only one micro-batch, and the noise is measured between micro-batches",
                where="training.noise_scale",
                remedy="use two micro-batches or more: lower batches.tokens or the task's setting for the batch size, "
                "and set training.tokens_per_update or training.examples_per_update to the previous size",
            )
        self._prefetcher = Prefetcher(examples, device_context.device)
        self._pending: _PendingStep[Batch] | None = None
        # Only calls use the compiled model. State and parameters are read from `model`, which shares them.
        called = cast(Model, torch.compile(model, dynamic=True)) if device_context.compile else model
        self._compute = partial(loss, called)

    def updates(self, until: int) -> Iterator[StepResult]:
        """Run optimizer steps until the model has had `until` steps in total.

        On a GPU, the next step is queued before the previous one is checked. After a step whose loss or gradient is not
        finite, all later steps are skipped on the device; the error is raised at the next step, by `state`, or at the
        end of the loop.

        Args:
            until: Total number of steps, including those before a resume.

        Yields:
            Result of each step.

        Raises:
            UserError: A loss or a gradient is not finite; the weights are those before that step.
        """
        while self.update < until:
            if self.position == len(self.groups):
                self._start_at(self.epoch + 1, 0)
            yield self.train_step()
        self._check_pending_finite()

    def state(self) -> tuple[dict[str, Tensor], dict[str, int]]:
        """Return everything that resuming needs.

        Returns:
            Tensors by name (weights, optimizer state, EMA weights); and the position in the data as numbers (`update`,
            `epoch`, `position`).

        Raises:
            UserError: The loss or gradient of the last step, or a weight after it, is not finite.
        """
        self._check_pending_finite()
        # Finite gradients can overflow the weights.
        is_finite = torch.stack([p.detach().isfinite().all() for p in self.model.parameters()]).tolist()
        for (name, _), finite in zip(self.model.named_parameters(), is_finite, strict=True):
            if not finite:
                from s2s.training.nonfinite import REMEDY

                raise UserError(f"{name} is not finite after the step", f"update {self.update}", REMEDY)
        weights = {f"model.{name}": p.detach() for name, p in self.model.named_parameters()}
        place = {"update": self.update, "epoch": self.epoch, "position": self.position}
        return weights | self.optimization.state(), place

    def load_state(self, tensors: dict[str, Tensor], place: dict[str, int], where: Path = Path("state")) -> None:
        """Restore the result of `state`.

        Args:
            tensors: Weights, optimizer state and EMA weights, by name.
            place: Position in the data: `update`, `epoch` and `position`.
            where: File of the tensors, for error messages.

        Raises:
            UserError: The tensors do not fit the model, or the position is beyond the end of an epoch.
        """
        expected, optional = self.optimization.expected(tensors)
        weights = {f"model.{name}": p for name, p in self.model.named_parameters()}
        check_shapes(tensors, expected | weights, where, optional)
        with torch.no_grad():
            for name, p in weights.items():
                p.copy_(tensors[name])
        self.optimization.load_state(tensors)
        self.update, self._pending = place["update"], None
        self._start_at(place["epoch"], place["position"])
        if self.position > len(self.groups):
            raise UserError(
                f"position {self.position} of epoch {self.epoch}: an epoch has only {len(self.groups)} steps",
                where=str(where),
                remedy="restore the checkpoint, or delete it and resume from an older one",
            )

    def sync_from_main(self) -> None:
        """Broadcast state and precision of rank 0 to all ranks; each rank calls this once, before the first step.

        Raises:
            UserError: A weight is not finite.
        """
        if self.distributed.world_size == 1:
            return
        precision = self.distributed.broadcast_object(self.device_context.precision)
        self.device_context = replace(self.device_context, precision=precision, autoselect_precision=False)
        tensors, place = self.state()
        self.load_state(self.distributed.broadcast_tensors(tensors), self.distributed.broadcast_object(place))

    def _start_at(self, epoch: int, position: int) -> None:
        """Make the batches of an epoch, and continue at a step of it."""
        self.epoch, self.position = epoch, position
        self._group(self.examples.make_batches(self.seeds.data, epoch))

    def _group(self, batches: Plan) -> None:
        """Group the batches of an epoch, rows of examples, into steps, and split each step among the ranks."""
        self.groups = group_into_steps(batches, self.micro_batches)
        self._shares = [
            shard_batches(group, self.distributed.rank, self.distributed.world_size) for group in self.groups
        ]

    def train_step(self) -> StepResult:
        """Run one optimizer step: accumulate gradients over micro-batches and ranks, clip, and move the weights.

        Whether loss and gradient are finite is known when the device has computed them. A GPU computes behind the CPU,
        so step n is checked while step n + 1 is computed:

        1. The CPU queues forward and backward pass of step n + 1.
        2. It waits for the numbers of step n, and raises an error if one is not finite.
        3. It queues the update of step n + 1, which the device itself skips if its gradient is not finite.

        On a CPU, and with an optimizer that cannot skip on the device, step n + 1 is instead checked before its update;
        the check of step n then has nothing left to do.

        Returns:
            Result of the step.

        Raises:
            UserError: A loss or a gradient is not finite; the weights are those before that step.
        """
        started, worked = time.perf_counter(), time.process_time()
        number, device = self.update + 1, self.device_context.device
        # 1. The micro-batches of this rank. All steps of an epoch share one seed, so that the mask of an example does
        #    not depend on the batch it is in. The next step's batches are prepared meanwhile.
        group, *following = self._shares[self.position : self.position + 2]
        epoch_seed = derive_seed(self.seeds.data, self.epoch)
        batches = self._prefetcher.batches(group, epoch_seed, following[0] if following else None)
        # 2. One denominator for all items of the step, over micro-batches and ranks.
        items, tokens, real, num_micro_batches = self.distributed.all_reduce_sum(
            sum(batch.count for batch in batches),
            sum(batch.tokens for batch in batches),
            sum(batch.real_share for batch in batches),
            len(batches),
        )
        count = max(1, int(items))
        # 3. Gradient accumulation over micro-batches: forward and backward pass of each. A rank can have none.
        self._seed_dropout(number)
        self.model.train()
        losses: list[Tensor] = []
        part_norms: list[Tensor] = []
        measures_noise = self.settings.noise_scale and len(batches) > 1
        for batch in batches:
            # The noise scale needs the gradient of each micro-batch before it is added to that of the earlier ones.
            earlier = self.optimization.take_gradients() if measures_noise else None
            losses.append(self._add_gradient(self._compute, count, batch))
            if earlier is not None:
                part_norms.append(self.optimization.gradient_norm())
                self.optimization.add_gradients(earlier)
        loss = torch.stack(losses or [torch.zeros((), device=device)]).sum()
        # 4. The all-reduce of data-parallel training.
        loss = self.distributed.all_reduce_gradients(self.optimization.parameters, loss)
        # Check the previous step. The GPU does not idle, because it is still computing this gradient.
        self._check_pending_finite()
        norm, layer_norms = self.optimization.measure_gradient_norms()
        measured = StepMetrics(loss, layer_norms, part_norms)
        self._pending = _PendingStep(number, (self.epoch, self.position), batches, count, measured)
        # 5. Gradient clipping, learning-rate schedule, optimizer and EMA update.
        if is_asynchronous(device) and self.optimization.skips_on_device:
            self.optimization.step(number, norm, measured.found_inf)
        else:
            # Check this step, before it moves the weights.
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
            real_share=real / num_micro_batches,
            clip=self.settings.clip,
            measured=measured,
            parts=tuple(batch.count for batch in batches),
        )

    def _seed_dropout(self, update: int) -> None:
        # Rank 0 has the seed of single-process training: a trailing zero does not change a derived seed.
        seed_generators(derive_seed(self.seeds.dropout, update, self.distributed.rank), self.device_context.device)

    def _add_gradient(self, compute: Callable[[Batch], tuple[Tensor, Tensor]], count: int, batch: Batch) -> Tensor:
        """Add the gradient of a micro-batch, divided by `count`, and return its reported loss, summed."""
        with self.device_context.mixed_precision():
            objective, reported = compute(batch.to(self.device_context.device))
        (objective / count).backward()
        return reported.detach()

    def _check_pending_finite(self) -> None:
        """Raise an error if the loss or the gradient of the pending step, if there is one, is not finite."""
        last, self._pending = self._pending, None
        if last is None or last.measured.finite:
            return
        self.update = last.number - 1
        self._start_at(*last.position)
        from s2s.training.nonfinite import locate_nonfinite

        # The weights are unchanged; the gradient is computed again, with the same dropout, to locate the tensor.
        self.optimization.zero_grad()
        self._seed_dropout(last.number)
        again = partial(self._add_gradient, partial(self.loss, self.model), last.count)
        raise locate_nonfinite(self.model, again, last.batches, last.number, self.examples.item_name, self.distributed)


class TrainingLoop:
    """Training of a run: optimizer steps, logging, validation, early stopping, checkpoints and graceful stop.

    All ranks of data-parallel training run the same loop. Only rank 0 has checkpoints, and a log that writes.

    Args:
        trainer: Trainer, at the step of `progress`.
        settings: Steps between two validations, and the patience of early stopping.
        metric: Name of the validation metric, for messages.
        validate: Measures the model on the validation set; called on all ranks, with the EMA weights.
        log: Receives steps and messages.
        checkpoints: Checkpoints of the run; None on other ranks than 0.
        progress: Progress of the run so far.
        save_minutes: Maximum time between two checkpoints, in minutes.

    Attributes:
        progress: Progress at the last checkpoint.
    """

    def __init__(
        self,
        trainer: Trainer[Any, Any],
        settings: PauseSettings,
        metric: str,
        validate: Callable[[], Validation],
        log: RunLog,
        checkpoints: Checkpoints | None,
        progress: Progress,
        save_minutes: float,
    ) -> None:
        self.trainer = trainer
        self.settings = settings
        self.metric = metric
        self.validate = validate
        self.log = log
        self.checkpoints = checkpoints
        self.progress = progress
        self.save_minutes = save_minutes
        self._started = time.perf_counter() - progress.seconds

    def fit(self) -> Iterator[StepResult]:
        """Train until the last step, early stopping or a signal.

        The first SIGINT, SIGTERM or SIGHUP saves a checkpoint and stops. Rank 0 decides for all ranks.

        Yields:
            Result of each optimizer step, after it is logged.

        Raises:
            UserError: A loss or gradient is not finite, or the disk is full.
            PeerLostError: Another rank ended; the steps so far are saved.
            Stopped: A signal requested the stop.
        """
        distributed, done = self.trainer.distributed, self.progress.update
        # A run that lost a rank during a validation has saved this step without its validation. It is validated
        # here, because the loop starts with the next step.
        is_missing = done > 0 and self.progress.validation is None and self._is_validation_step(done)
        if distributed.broadcast_object(is_missing):
            self._save(validates=True)
        if distributed.broadcast_object(self._should_stop_early()):
            return
        saved = time.monotonic()
        with GracefulShutdown() as shutdown:
            try:
                for step in self.trainer.updates(self.trainer.settings.updates):
                    self.log.log_step(step)
                    validates, ends = self._is_validation_step(step.update), False
                    is_save_due = self.checkpoints is not None and time.monotonic() - saved >= 60 * self.save_minutes
                    # All ranks pause after the same step.
                    signal, is_save_due = distributed.all_reduce_max(shutdown.signal, int(is_save_due))
                    # Keep a signal that arrives during the all-reduce.
                    shutdown.signal = shutdown.signal or signal
                    if validates or signal or is_save_due:
                        self._save(validates)
                        saved = time.monotonic()
                        ends = validates and self._should_stop_early()
                        ends = distributed.broadcast_object(ends or bool(shutdown.signal))
                    yield step
                    if ends:
                        break
            except PeerLostError:
                self._save_after_lost_peer()
                raise
        if shutdown.signal and distributed.is_main_process:
            raise Stopped(shutdown.signal)

    def _is_validation_step(self, update: int) -> bool:
        return update % self.settings.every == 0 or update == self.trainer.settings.updates

    def _save(self, validates: bool) -> None:
        """Validate if `validates`, then save a checkpoint, both with the EMA weights."""
        # All ranks raise the same error if a value is not finite.
        tensors, place = self.trainer.state()
        with self.trainer.optimization.use_ema_weights():
            validation = self.validate() if validates else None
            if self.checkpoints is None:
                return
            found = [validation] if validation else []
            seconds = time.perf_counter() - self._started
            self.progress = Progress(**place, validations=self.progress.validations + found, seconds=seconds)
            self.checkpoints.save(self.trainer.model, tensors, self.progress, str(self.trainer.device_context))
        if validates and is_stuck_at_zero(self.progress.validations):
            self.log.info(
                f"validation.metric: {self.metric} is 0 at two validations although the loss falls, so it cannot rank "
                "checkpoints; until it rises, the lower loss counts. "
                f"Better for such data: validation.metric={_METRIC_BEFORE.get(self.metric, 'loss')}"
            )

    def _should_stop_early(self) -> bool:
        """Check for early stopping: `validation.patience` validations without improvement."""
        patience = self.settings.patience
        if patience is None or count_without_improvement(self.progress.validations) < patience:
            return False
        update, last = self.progress.update, self.trainer.settings.updates
        reason = f"{self.metric} has not improved for {patience} validations (validation.patience)"
        self.log.info(f"early stopping after update {update:,} of {last:,}: {reason}")
        return True

    def _save_after_lost_peer(self) -> None:
        """Save the steps since the last checkpoint, on rank 0; the other ranks let it report the error."""
        launch = self.trainer.distributed.launch
        if self.checkpoints is None:
            if launch:
                launch.wait_for_another(_WAIT_FOR_REPORT)
            return
        # First, because saving takes time: only this rank can report how to resume.
        if launch:
            launch.claim_error_report()
        if self.trainer.update > self.progress.update:
            self._save(validates=False)


def mean_loss(
    model: Model, examples: Examples[Batch], loss: Loss[Model, Batch], device_context: DeviceContext
) -> float:
    """Compute the mean loss over all examples, in evaluation mode.

    Random choices for the examples, such as masks, are the same in each call. In data-parallel training each rank
    computes a share, and all ranks return the same value.

    Returns:
        Reported loss in nats per item.
    """
    model.eval()
    total, count, distributed = torch.zeros((), device=device_context.device), 0, device_context.distributed
    with torch.no_grad(), device_context.mixed_precision():
        for _, batch in iterate_batches(examples, device_context.device, distributed.rank, distributed.world_size):
            total += loss(model, batch)[1]
            count += batch.count
    whole, items = distributed.all_reduce_sum(float(total), count)
    return whole / max(1, items)
