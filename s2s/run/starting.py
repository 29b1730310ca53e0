"""What `s2s train` is asked: checked before torch is loaded, and then carried out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from s2s.errors import UserError
from s2s.launch import Launch
from s2s.recipe.reading import recipe_path
from s2s.run.folder import check_free, check_resumable, folder_of
from s2s.run.tasks import read

if TYPE_CHECKING:
    from s2s.run.tasks import AnyTask


@dataclass(frozen=True)
class Start:
    """A training that can begin; of a run that goes on, its folder, and overrides with which it does."""

    recipe: "AnyTask"
    folder: Path | None
    overrides: Sequence[str]
    overwrite: bool
    overfit: bool


def planned(
    path: Path, overrides: Sequence[str], resume: bool, overwrite: bool, overfit: bool, launch: Launch | None
) -> Start:
    """What is to be done with a recipe, or with a run that goes on.

    Raises:
        UserError: it has mistakes, its run is there already, or is none to go on with; or options exclude each other.
    """
    if overfit and (resume or overwrite):
        raise UserError("--overfit keeps no run", remedy="leave out --resume and --overwrite")
    if resume and overwrite:
        raise UserError("--resume keeps what --overwrite would replace", remedy="leave one of them out")
    if overfit and launch:
        raise UserError("--overfit is for one process", remedy="leave torchrun out")
    recipe = check_resumable(path, overrides) if resume else read(recipe_path(path), overrides)
    if launch and not resume and launch.goes_on_with(folder_of(recipe)):
        # what it was begun with is in its recipe
        resume, path, overrides = True, folder_of(recipe), ()
        recipe = check_resumable(path)
    if overfit and recipe.task != "translation":
        raise UserError(f"--overfit is for translation, and the task is {recipe.task}", remedy="leave it out")
    if not (overfit or resume):
        check_free(recipe, overwrite)
    return Start(recipe, path if resume else None, overrides, overwrite, overfit)


def carried_out(start: Start, launch: Launch | None, say: Callable[[str], None]) -> Path | None:
    """Trains to the end, and gives the run's folder; none where nothing is kept."""
    from rich.console import Console

    from s2s.run import training
    from s2s.training.devices import prepare_process
    from s2s.training.ranks import joined

    recipe = start.recipe
    prepare_process(recipe.device)
    if start.overfit and recipe.task == "translation":
        from s2s.run.room import room_to_train
        from s2s.tasks.translation.task import TASK, overfit

        with room_to_train(TASK, recipe):
            overfit(recipe, say)
        return None
    with joined(launch) as ranks:
        if start.folder:
            return training.resume(start.folder, Console(), start.overrides, recipe, ranks)
        return training.train(recipe, Console(), start.overwrite, ranks=ranks)
