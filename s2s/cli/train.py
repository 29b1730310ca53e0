"""Command `s2s train`: train a model from a recipe, or resume a run."""

import sys
from pathlib import Path

import click

from s2s.cli import options
from s2s.errors import UserError, quote_path
from s2s.launch import detect_torchrun


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
@options.quiet
@options.verbose("Print a line for each update, and the time before each line; no progress bar.")
def train(
    recipe: Path,
    overrides: tuple[str, ...],
    resuming: bool,
    overwrite: bool,
    overfit: bool,
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

    if overfit and resuming:
        raise UserError("--overfit keeps no run", remedy="leave out --resume")
    if quiet and verbose:
        raise UserError("--quiet and --verbose exclude each other", remedy="leave one of them out")
    if resuming and overwrite:
        raise UserError("--resume and --overwrite exclude each other", remedy="leave one of them out")
    if overfit and launch:
        raise UserError("--overfit is for one process", remedy="start it without torchrun")
    path = recipe
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
    from rich.console import Console

    from s2s.run import training
    from s2s.training.device import setup_process
    from s2s.training.distributed import init_distributed
    from s2s.training.progress import TimestampedStream

    # 3. Training.
    setup_process(asked.device)
    if overfit:
        training.overfit(asked, click.echo)
        return
    console = Console(file=TimestampedStream(sys.stdout)) if verbose else Console(quiet=quiet)
    with init_distributed(launch) as distributed:
        if resuming:
            folder = training.resume(path, console, overrides, asked, distributed)
        else:
            folder = training.train(asked, console, overwrite, distributed=distributed)
    tell(f"curves:     tensorboard --logdir {quote_path(folder.parent)}")
