"""What all processes but the first do, where torchrun has started several: they compute, and decide nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from s2s.run.folder import folder_of
from s2s.run.loaded import hashes_of
from s2s.run.room import room_to_train, updates
from s2s.run.stopping import Wish, pauses
from s2s.run.tasks import received, task_of
from s2s.run.training import trainer_of
from s2s.tasks.contract import Course, Task
from s2s.training.devices import choose, prepare_process
from s2s.training.logger import RunLog, Sample
from s2s.training.ranks import Lost, Ranks

# seconds that a process gives others to tell how to go on, before it tells what it knows
_POLITE = 10.0


def follow(ranks: Ranks) -> None:
    """The same story as `s2s.run.training.train`, step by step with the first process, which sends what it reads.

    Raises:
        UserError: there is no device for this process, its data are others, or another process is lost.
    """
    recipe = received(ranks.led(("", "", "")))
    prepare_process(recipe.device)
    computer, task = choose(recipe.device, ranks), task_of(recipe)
    told, tokenizers, folder = ranks.led((("", "", ""), (), Path()))
    recipe = received(told)
    with room_to_train(task, recipe):
        prepared = task.prepare(recipe, tokenizers, lambda text: None)
        trainer, _ = trainer_of(task, recipe, prepared, computer, (None, folder))
    ranks.check_same(lambda: hashes_of(task, recipe, prepared) | {"device.kind": computer.device.type})
    trainer.follow()
    course = Course(recipe, prepared, trainer)
    if ranks.led(False):
        _pause(task, course, validated=True)
    if not ranks.led(False):
        _train(task, course, ranks, folder)


class _Unwritten(RunLog):
    """What only the first process writes down."""

    def __init__(self) -> None:
        """Opens nothing."""

    def validation(self, update: int, scores: dict[str, float], samples: Sequence[Sample] = ()) -> None:
        """Writes nothing."""

    def picture(self, name: str, png: bytes, update: int) -> None:
        """Writes nothing."""

    def say(self, text: str) -> None:
        """Says nothing."""


def _pause(task: Task[Any, Any, Any], course: Course[Any, Any, Any], validated: bool) -> None:
    # where the first one saves it: what is not finite, all find at once
    course.trainer.state()
    if validated:
        with course.trainer.optimization.averaged():
            task.validate(course, _Unwritten())


def _train(task: Task[Any, Any, Any], course: Course[Any, Any, Any], ranks: Ranks, folder: Path | None) -> None:
    recipe = course.recipe
    with Wish() as wish:
        try:
            for update in updates(course, folder or folder_of(recipe)):
                if pause := pauses(update.update, recipe, ranks, wish):
                    _pause(task, course, pause.due)
                    if pause.ends():
                        break
        except Lost:
            if ranks.launch:
                ranks.launch.wait_for_another(_POLITE)
            raise
