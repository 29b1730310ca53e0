"""Training loop of the non-zero ranks: they compute gradients; rank 0 logs, validates and saves."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from s2s.run.folder import run_dir
from s2s.run.inference import data_hashes
from s2s.run.memory_check import check_memory, updates
from s2s.run.shutdown import GracefulShutdown, agree_on_pause
from s2s.run.tasks import deserialize_recipe, task_of
from s2s.run.training import build_trainer
from s2s.tasks.base import Task, TrainContext
from s2s.training.device import select_device, setup_process
from s2s.training.distributed import Distributed, PeerLostError
from s2s.training.logger import RunLog, Sample

# seconds that a process gives others to tell how to go on, before it tells what it knows
_POLITE = 10.0


def run_worker(distributed: Distributed) -> None:
    """Run the training loop of a non-zero rank, in step with `s2s.run.training.run_training` on rank 0.

    Rank 0 broadcasts the recipe, the tokenizers and the weights.

    Raises:
        UserError: This rank has no device, its data differ from those of rank 0, or another rank is lost.
    """
    recipe = deserialize_recipe(distributed.broadcast_object(("", "", "")))
    setup_process(recipe.device)
    device_context, task = select_device(recipe.device, distributed), task_of(recipe)
    told, tokenizers, folder = distributed.broadcast_object((("", "", ""), (), Path()))
    recipe = deserialize_recipe(told)
    with check_memory(task, recipe):
        prepared = task.prepare(recipe, tokenizers, lambda text: None)
        trainer, _ = build_trainer(task, recipe, prepared, device_context, (None, folder))
    distributed.assert_equal_across_ranks(
        lambda: data_hashes(task, recipe, prepared) | {"device.kind": device_context.device.type}
    )
    trainer.sync_from_main()
    train_context = TrainContext(recipe, prepared, trainer)
    if distributed.broadcast_object(False):
        _pause(task, train_context, validated=True)
    if not distributed.broadcast_object(False):
        _train(task, train_context, distributed, folder)


class _NullLog(RunLog):
    """Log of the non-zero ranks: writes nothing."""

    def __init__(self) -> None:
        """Open no file."""

    def log_validation(self, update: int, scores: dict[str, float], samples: Sequence[Sample] = ()) -> None:
        """Write nothing."""

    def add_figure(self, name: str, png: bytes, update: int) -> None:
        """Write nothing."""

    def info(self, text: str) -> None:
        """Print nothing."""


def _pause(task: Task[Any, Any, Any], train_context: TrainContext[Any, Any, Any], validated: bool) -> None:
    # Rank 0 saves the state at this point: all ranks raise the same error if a value is not finite.
    train_context.trainer.state()
    if validated:
        with train_context.trainer.optimization.use_ema_weights():
            task.validate(train_context, _NullLog())


def _train(
    task: Task[Any, Any, Any], train_context: TrainContext[Any, Any, Any], distributed: Distributed, folder: Path | None
) -> None:
    recipe = train_context.recipe
    with GracefulShutdown() as wish:
        try:
            for update in updates(train_context, folder or run_dir(recipe)):
                if pause := agree_on_pause(update.update, recipe, distributed, wish):
                    _pause(task, train_context, pause.is_validation_step)
                    if pause.should_stop():
                        break
        except PeerLostError:
            if distributed.launch:
                distributed.launch.wait_for_another(_POLITE)
            raise
