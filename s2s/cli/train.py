"""Command `s2s train`: train a model from a recipe, or resume a run."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

import click

from s2s.cli import options
from s2s.errors import UserError, counted, format_message, quote_path
from s2s.launch import detect_torchrun

if TYPE_CHECKING:
    from rich.console import Console

    from s2s.recipe.schema import TrainRecipe
    from s2s.run.sweep import SweptRun


@options.command(
    epilog=options.examples(
        "s2s train translate run.dir=runs/new training.updates=500",
        "s2s train runs/translate --resume",
        "s2s train translate training.learning_rate=0.002,0.004 model.kind=gru,transformer --seeds 3",
        "s2s train translate --overfit",
    )
)
@click.argument("recipe", metavar="RECIPE", type=options.FILE)
@options.overrides
@click.option("--resume", "resuming", is_flag=True, help="Resume the run in the folder RECIPE, or a sweep.")
@click.option("--overwrite", is_flag=True, help="Replace an existing run of the same name.")
@click.option("--overfit", is_flag=True, help="Sanity check: overfit 16 training pairs; keep no run.")
@click.option("--jobs", type=click.IntRange(1, 256), help="Number of runs of a sweep that train at the same time.")
@click.option("--seeds", type=click.IntRange(2, 100), help="Train with seeds 1 to N, a run each; print mean scores.")
@click.option(
    "--precision-of",
    metavar="RUN",
    type=options.FILE,
    help="With device.precision=auto: use the precision of RUN instead of measuring; all runs of a sweep do so.",
)
@options.quiet
@options.verbose("Print a line for each update, and the time before each line; no progress bar.")
def train(
    recipe: Path,
    overrides: tuple[str, ...],
    resuming: bool,
    overwrite: bool,
    overfit: bool,
    jobs: int | None,
    seeds: int | None,
    precision_of: Path | None,
    quiet: bool,
    verbose: bool,
) -> None:
    """Train a model from RECIPE, or resume a run.

    With --resume, RECIPE is the folder of a run; the result is the same as without the stop. Then data.* and device.*
    can name a new place of the data and another device, and training.updates a new number of steps.

    Several values of a key (KEY=VALUE,VALUE) or --seeds give a sweep: a run for each combination, one after another,
    and a table. Repeated with --resume, the command skips finished runs and resumes or trains the others.

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

    _check_options(launch is not None, resuming, overwrite, overfit, quiet and verbose)
    if precision_of and (resuming or overfit):
        raise UserError("is for new runs", f"--precision-of {precision_of}", "leave it out")
    path = recipe
    if seeds or (any("," in word for word in overrides) and not (resuming and path.is_dir())):
        from s2s.run.sweep import plan_sweep

        _check_seeds(overrides, seeds, resuming and path.is_dir())
        if runs := plan_sweep(recipe_path(path), overrides, seeds, overwrite, resuming):
            _check_precision_of(precision_of, [run.recipe for run in runs])
            if overfit or launch:
                raise UserError("several runs train one after another", remedy="leave out --overfit and torchrun")
            _train_sweep(runs, jobs or 1, _console(quiet, verbose), overwrite, precision_of, options.printer(quiet))
            return
    if jobs is not None:
        raise UserError("is for several runs", f"--jobs {jobs}", "name several values of a key, or --seeds")
    asked = check_resumable(path, overrides) if resuming else read(recipe_path(path), overrides)
    if launch and not resuming and launch.recorded_run(run_dir(asked)):
        # torchrun restarted the processes. The overrides of the first start are in the run's recipe.
        resuming, path, overrides = True, run_dir(asked), ()
        asked = check_resumable(path)
    if overfit and asked.task != "translation":
        raise UserError(f"--overfit is for translation; the task is {asked.task}", remedy="leave it out")
    if not (overfit or resuming):
        _check_precision_of(precision_of, [asked])
        check_free(asked, overwrite)

    # 2. Printed before imports that take a minute on a loaded machine.
    tell = options.printer(quiet)
    tell(f"resuming {path}: loading …" if resuming else f"{asked.name}: loading …")
    sys.stdout.flush()
    from s2s.run import training
    from s2s.run.manifest import training_precision
    from s2s.training.device import setup_process
    from s2s.training.distributed import init_distributed

    # 3. Training.
    setup_process(asked.device)
    if overfit:
        training.overfit(asked, click.echo)
        return
    console = _console(quiet, verbose)
    precision = training_precision(precision_of) if precision_of else None
    with init_distributed(launch) as distributed:
        if resuming:
            folder = training.resume(path, console, overrides, asked, distributed)
        else:
            folder = training.train(asked, console, overwrite, distributed=distributed, precision=precision)
    tell(f"curves:     tensorboard --logdir {quote_path(folder.parent)}")


def _check_options(torchrun: bool, resuming: bool, overwrite: bool, overfit: bool, quiet_and_verbose: bool) -> None:
    if overfit and resuming:
        raise UserError("--overfit keeps no run", remedy="leave out --resume")
    if quiet_and_verbose:
        raise UserError("--quiet and --verbose exclude each other", remedy="leave one of them out")
    if resuming and overwrite:
        raise UserError("--resume and --overwrite exclude each other", remedy="leave one of them out")
    if overfit and torchrun:
        raise UserError("--overfit is for one process", remedy="start it without torchrun")


def _check_precision_of(run: Path | None, recipes: "Sequence[TrainRecipe]") -> None:
    """Refuse a run whose precision is unknown or has no effect."""
    from s2s.run.manifest import training_precision

    if run is None:
        return
    training_precision(run)
    if settings := {recipe.device.precision for recipe in recipes} - {"auto"}:
        what = f"has no effect with device.precision={settings.pop()}"
        raise UserError(what, f"--precision-of {run}", "leave one of them out")


def _console(quiet: bool, verbose: bool) -> "Console":
    from rich.console import Console

    from s2s.training.progress import TimestampedStream

    return Console(file=cast("TextIO", TimestampedStream(sys.stdout))) if verbose else Console(quiet=quiet)


def _check_seeds(overrides: tuple[str, ...], seeds: int | None, resumes_run: bool) -> None:
    set_already = [word for word in overrides if word.partition("=")[0].strip().split(".")[0] in ("seed", "seeds")]
    if seeds and set_already:
        raise UserError("sets seeds, as --seeds does", set_already[0], "leave one of them out")
    if seeds and resumes_run:
        raise UserError("--seeds is for a recipe, and this is a run", remedy="repeat the first command with --resume")


def _train_sweep(
    runs: "Sequence[SweptRun]",
    jobs: int,
    console: "Console",
    overwrite: bool,
    precision_of: Path | None,
    tell: Callable[[str], None],
) -> None:
    """Train the runs of a sweep, and print a table."""
    from s2s.run.listing import ListedRun, format_runs, format_sweep, list_run
    from s2s.run.sweep import check_all_trained, train_in_processes, train_sweep

    order = "one after another" if jobs == 1 else f"{jobs} at a time"
    tell(f"{counted(len(runs), 'run')}, {order}; if interrupted, repeat the command with --resume")
    print_error = partial(click.echo, err=True)
    if jobs > 1:
        failed = train_in_processes(runs, jobs, overwrite, precision_of, print_error)
    else:
        failed = train_sweep(runs, console, overwrite, precision_of, print_error)
    trained = list[tuple[dict[str, str], ListedRun]]()
    for run in runs:
        try:
            if (run.folder / "recipe.yaml").exists():
                trained.append((run.values, list_run(run.folder)))
        except UserError as error:
            if run.folder not in failed:
                print_error(format_message(str(error)))
                failed.append(run.folder)
    is_sweep = any(run.values.keys() != {"seed"} for run in runs)
    click.echo(format_sweep(trained) if is_sweep else format_runs([run for _, run in trained]))
    check_all_trained(failed, len(runs))
