"""Plan and execute `s2s train`: checks run before torch is imported."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from s2s.errors import UserError
from s2s.launch import TorchrunProcess
from s2s.recipe.reading import recipe_path
from s2s.recipe.schema import TrainRecipe
from s2s.run.folder import check_free, check_resumable, run_dir
from s2s.run.tasks import read


@dataclass(frozen=True)
class TrainingPlan:
    """A validated training command.

    Attributes:
        folder: Folder of the run to resume; None for a new run.
        overrides: Overrides of the command line.
        overwrite: Replace an existing run.
        overfit: Only overfit 16 pairs, as a sanity check.
    """

    recipe: TrainRecipe
    folder: Path | None
    overrides: Sequence[str]
    overwrite: bool
    overfit: bool


def plan_training(
    path: Path, overrides: Sequence[str], resume: bool, overwrite: bool, overfit: bool, launch: TorchrunProcess | None
) -> TrainingPlan:
    """Validate a training command.

    Args:
        path: Recipe or, with `resume`, folder of a run.
        overrides: `section.key=value` arguments.
        overwrite: Replace an existing run.
        overfit: Only overfit 16 pairs, as a sanity check.
        launch: The torchrun process; None without torchrun.

    Raises:
        UserError: The recipe has mistakes, its run exists already or cannot be resumed, or options exclude each
            other.
    """
    if overfit and (resume or overwrite):
        raise UserError("--overfit keeps no run", remedy="leave out --resume and --overwrite")
    if resume and overwrite:
        raise UserError("--resume keeps what --overwrite would replace", remedy="leave one of them out")
    if overfit and launch:
        raise UserError("--overfit is for one process", remedy="leave torchrun out")
    recipe = check_resumable(path, overrides) if resume else read(recipe_path(path), overrides)
    if launch and not resume and launch.recorded_run(run_dir(recipe)):
        # The overrides of the first start are in the run's recipe.
        resume, path, overrides = True, run_dir(recipe), ()
        recipe = check_resumable(path)
    if overfit and recipe.task != "translation":
        raise UserError(f"--overfit is for translation, and the task is {recipe.task}", remedy="leave it out")
    if not (overfit or resume):
        check_free(recipe, overwrite)
    return TrainingPlan(recipe, path if resume else None, overrides, overwrite, overfit)


def execute_plan(start: TrainingPlan, launch: TorchrunProcess | None, print_fn: Callable[[str], None]) -> Path | None:
    """Train to the end.

    Args:
        launch: The torchrun process; None without torchrun.

    Returns:
        The run's folder; None with `overfit`, which saves no run.
    """
    from rich.console import Console

    from s2s.run import training
    from s2s.training.device import setup_process
    from s2s.training.distributed import init_distributed

    recipe = start.recipe
    setup_process(recipe.device)
    if start.overfit:
        from s2s.run.memory_check import check_memory
        from s2s.run.tasks import task_of
        from s2s.tasks.translation.diagnosis import overfit
        from s2s.tasks.translation.recipe import Recipe

        with check_memory(task_of(recipe), recipe):
            if isinstance(recipe, Recipe):
                overfit(recipe, print_fn)
        return None
    with init_distributed(launch) as distributed:
        if start.folder:
            return training.resume(start.folder, Console(), start.overrides, recipe, distributed)
        return training.train(recipe, Console(), start.overwrite, distributed=distributed)
