"""What `s2s train` is asked: checked before torch is loaded, and then carried out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from s2s.errors import UserError
from s2s.launch import TorchrunProcess
from s2s.recipe.reading import recipe_path
from s2s.run.folder import check_free, check_resumable, run_dir
from s2s.run.tasks import read

if TYPE_CHECKING:
    from s2s.run.tasks import AnyTask


@dataclass(frozen=True)
class TrainingPlan:
    """A training that can begin; of a run that goes on, its folder, and overrides with which it does."""

    recipe: "AnyTask"
    folder: Path | None
    overrides: Sequence[str]
    overwrite: bool
    overfit: bool


def plan_training(
    path: Path, overrides: Sequence[str], resume: bool, overwrite: bool, overfit: bool, launch: TorchrunProcess | None
) -> TrainingPlan:
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
    if launch and not resume and launch.recorded_run(run_dir(recipe)):
        # what it was begun with is in its recipe
        resume, path, overrides = True, run_dir(recipe), ()
        recipe = check_resumable(path)
    if overfit and recipe.task != "translation":
        raise UserError(f"--overfit is for translation, and the task is {recipe.task}", remedy="leave it out")
    if not (overfit or resume):
        check_free(recipe, overwrite)
    return TrainingPlan(recipe, path if resume else None, overrides, overwrite, overfit)


def execute_plan(start: TrainingPlan, launch: TorchrunProcess | None, print_fn: Callable[[str], None]) -> Path | None:
    """Trains to the end, and gives the run's folder; none where nothing is kept."""
    from rich.console import Console

    from s2s.run import training
    from s2s.training.device import setup_process
    from s2s.training.distributed import init_distributed

    recipe = start.recipe
    setup_process(recipe.device)
    if start.overfit and recipe.task == "translation":
        from s2s.run.memory_check import check_memory
        from s2s.tasks.translation.task import TASK, overfit

        with check_memory(TASK, recipe):
            overfit(recipe, print_fn)
        return None
    with init_distributed(launch) as distributed:
        if start.folder:
            return training.resume(start.folder, Console(), start.overrides, recipe, distributed)
        return training.train(recipe, Console(), start.overwrite, distributed=distributed)
