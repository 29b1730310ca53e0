"""Command `s2s train`: train a model from a recipe, or resume a run."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

import click

from s2s.cli import options
from s2s.errors import UserError, quote_path
from s2s.launch import detect_torchrun

if TYPE_CHECKING:
    from rich.console import Console


@options.command(
    epilog=options.examples(
        "s2s train translate run.dir=runs/new training.updates=500",
        "s2s train runs/translate --resume",
        "s2s train translate --overfit",
    )
)
@click.argument("recipe", metavar="RECIPE", type=options.FILE)
@options.overrides
@click.option("--resume", "resuming", is_flag=True, help="Resume the run in the folder RECIPE.")
@click.option("--overwrite", is_flag=True, help="Replace an existing run of the same name.")
@click.option("--overfit", is_flag=True, help="Sanity check: overfit 16 training pairs; keep no run.")
@click.option("--seeds", type=click.IntRange(2, 100), help="Train with seeds 1 to N, a run each; print mean scores.")
@options.quiet
@options.verbose("Print a line for each update, and the time before each line; no progress bar.")
def train(
    recipe: Path,
    overrides: tuple[str, ...],
    resuming: bool,
    overwrite: bool,
    overfit: bool,
    seeds: int | None,
    quiet: bool,
    verbose: bool,
) -> None:
    """Train a model from RECIPE, or resume a run.

    With --resume, RECIPE is the folder of a run; the result is the same as without the stop. Then data.* and device.*
    can name a new place of the data and another device, and training.updates a new number of steps.

    With --quiet, only errors are printed; the scores are in the run's folder.
    """
    launch = detect_torchrun()
    if launch and not launch.is_main_process:
        # A worker process follows the main process.
        from s2s.run.training import run_worker
        from s2s.training.distributed import init_distributed

        with init_distributed(launch) as distributed:
            run_worker(distributed)
        return

    # 1. All checks that do not need torch.
    from s2s.recipe.reading import recipe_path
    from s2s.run.folder import check_free, check_resumable, run_dir
    from s2s.run.tasks import read

    _check_options(launch is not None, resuming, overwrite, overfit, seeds, quiet and verbose)
    path = recipe
    if seeds:
        _train_seeds(path, overrides, seeds, overwrite, quiet, verbose)
        return
    asked = check_resumable(path, overrides) if resuming else read(recipe_path(path), overrides)
    if launch and not resuming and launch.recorded_run(run_dir(asked)):
        # torchrun restarted the processes. The overrides of the first start are in the run's recipe.
        resuming, path, overrides = True, run_dir(asked), ()
        asked = check_resumable(path)
    if overfit and asked.task != "translation":
        raise UserError(f"--overfit is for translation; the task is {asked.task}", remedy="leave it out")
    if not (overfit or resuming):
        check_free(asked, overwrite)

    # 2. Printed before imports that take a minute on a loaded machine.
    tell = options.printer(quiet)
    tell(f"resuming {path}: loading …" if resuming else f"{asked.name}: loading …")
    sys.stdout.flush()
    from s2s.run import training
    from s2s.training.device import setup_process
    from s2s.training.distributed import init_distributed

    # 3. Training.
    setup_process(asked.device)
    if overfit:
        training.overfit(asked, click.echo)
        return
    console = _console(quiet, verbose)
    with init_distributed(launch) as distributed:
        if resuming:
            folder = training.resume(path, console, overrides, asked, distributed)
        else:
            folder = training.train(asked, console, overwrite, distributed=distributed)
    tell(f"curves:     tensorboard --logdir {quote_path(folder.parent)}")


def _check_options(
    torchrun: bool, resuming: bool, overwrite: bool, overfit: bool, seeds: int | None, quiet_and_verbose: bool
) -> None:
    if overfit and resuming:
        raise UserError("--overfit keeps no run", remedy="leave out --resume")
    if quiet_and_verbose:
        raise UserError("--quiet and --verbose exclude each other", remedy="leave one of them out")
    if seeds and (resuming or overfit or torchrun):
        raise UserError("--seeds is for new runs in one process", remedy="leave out --resume, --overfit and torchrun")
    if resuming and overwrite:
        raise UserError("--resume and --overwrite exclude each other", remedy="leave one of them out")
    if overfit and torchrun:
        raise UserError("--overfit is for one process", remedy="start it without torchrun")


def _console(quiet: bool, verbose: bool) -> "Console":
    from rich.console import Console

    from s2s.training.progress import TimestampedStream

    return Console(file=cast("TextIO", TimestampedStream(sys.stdout))) if verbose else Console(quiet=quiet)


def _train_seeds(
    recipe: Path, overrides: tuple[str, ...], count: int, overwrite: bool, quiet: bool, verbose: bool
) -> None:
    """Train a recipe with the seeds 1 to `count`."""
    from s2s.recipe.reading import recipe_path
    from s2s.run.folder import check_free, run_dir
    from s2s.run.listing import format_runs, list_run
    from s2s.run.tasks import read

    if set_already := [word for word in overrides if word.partition("=")[0].strip().split(".")[0] in ("seed", "seeds")]:
        raise UserError("sets seeds, as --seeds does", set_already[0], "leave one of them out")
    folder = run_dir(read(recipe_path(recipe), overrides))
    others = [word for word in overrides if word.partition("=")[0].strip() != "run.dir"]
    asked = [
        read(recipe_path(recipe), [*others, f"run.dir={folder}-seed{seed}", f"seed={seed}"])
        for seed in range(1, count + 1)
    ]
    for each in asked:
        check_free(each, overwrite)
    from s2s.run import training
    from s2s.training.device import setup_process

    setup_process(asked[0].device)
    console = _console(quiet, verbose)
    for each in asked:
        training.train(each, console, overwrite)
    click.echo(format_runs([list_run(run_dir(each)) for each in asked]))
