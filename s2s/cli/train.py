"""Command `s2s train`: train a model from a recipe, or resume a run."""

import sys
from pathlib import Path

import click

from s2s.cli import options
from s2s.errors import quote_path
from s2s.launch import detect_torchrun


@options.command(
    epilog=options.examples(
        "s2s train translate run.dir=runs/new training.updates=500",
        "s2s train runs/translate --resume",
        "s2s train translate --overfit",
    )
)
@click.argument("recipe", type=options.FILE)
@options.overrides
@click.option("--resume", "resuming", is_flag=True, help="Resume the run in the folder RECIPE.")
@click.option("--overwrite", is_flag=True, help="Replace an existing run of the same name.")
@click.option("--overfit", "overfitting", is_flag=True, help="Sanity check: overfit 16 training pairs; keep no run.")
def train(recipe: Path, overrides: tuple[str, ...], resuming: bool, overwrite: bool, overfitting: bool) -> None:
    """Train a model from RECIPE, or resume a run.

    With --resume, RECIPE is the folder of a run; the result is the same as without the stop. Then data.* and device.*
    can name a new place of the data and another device, and training.updates a new number of steps.
    """
    launch = detect_torchrun()
    if launch and not launch.is_main_process:
        # A worker process follows the main process.
        from s2s.run.training import run_worker
        from s2s.training.distributed import init_distributed

        with init_distributed(launch) as distributed:
            run_worker(distributed)
        return
    from s2s.run.plan import execute_plan, plan_training
    from s2s.run.tasks import schema_of

    start = plan_training(recipe, overrides, resuming, overwrite, overfitting, launch)
    # Printed before imports that take a minute on a loaded machine.
    click.echo(f"going on with {start.folder}: loading …" if start.folder else f"{start.recipe.name}: loading …")
    sys.stdout.flush()
    folder = execute_plan(start, launch, click.echo)
    if folder is None:
        return
    if use := schema_of(start.recipe).use:
        click.echo(use.format(quote_path(folder)))
    click.echo(f"curves:     tensorboard --logdir {quote_path(folder.parent)}")
