"""What all processes but the first do, where torchrun has started several: they compute, and decide nothing."""

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
    """The same story as `s2s.run.training.train`, step by step with the first process, which sends what it reads.

    Raises:
        UserError: there is no device for this process, its data are others, or another process is lost.
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
    """What only the first process writes down."""

    def __init__(self) -> None:
        """Opens nothing."""

    def log_validation(self, update: int, scores: dict[str, float], samples: Sequence[Sample] = ()) -> None:
        """Writes nothing."""

    def add_figure(self, name: str, png: bytes, update: int) -> None:
        """Writes nothing."""

    def info(self, text: str) -> None:
        """Says nothing."""


def _pause(task: Task[Any, Any, Any], train_context: TrainContext[Any, Any, Any], validated: bool) -> None:
    # where the first one saves it: what is not finite, all find at once
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
