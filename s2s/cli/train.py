"""`s2s train`."""

import sys
from pathlib import Path

import click

from s2s.errors import UserError, quoted


@click.command()
@click.argument("recipe", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1, metavar="[section.key=value]...")
@click.option("--resume", "resuming", is_flag=True, help="Continue the run in the folder RECIPE.")
@click.option("--overwrite", is_flag=True, help="Replace a run of the same name.")
@click.option("--overfit", "overfitting", is_flag=True, help="Only see whether 16 pairs can be learned by heart.")
def train(recipe: Path, overrides: tuple[str, ...], resuming: bool, overwrite: bool, overfitting: bool) -> None:
    """Train RECIPE: `s2s train recipes/translate.yaml training.updates=500`.

    With --resume, RECIPE is the folder of a run, which continues as if it had never stopped; data.* and device.* may
    say where its data lies now and what computes. With --overfit, nothing is kept.
    """
    if overfitting and (resuming or overwrite):
        raise UserError("--overfit keeps no run", remedy="leave out --resume and --overwrite")
    if overfitting:
        _overfit(recipe, overrides)
        return
    folder, use = _resume(recipe, overrides) if resuming else _train(recipe, overrides, overwrite)
    if use:
        click.echo(use.format(quoted(folder)))
    click.echo(f"curves:     tensorboard --logdir {quoted(folder.parent)}")


def _train(path: Path, overrides: tuple[str, ...], overwrite: bool) -> tuple[Path, str]:
    from s2s.recipe.reading import recipe_path
    from s2s.run.folder import check_free, folder_of
    from s2s.run.tasks import read, schema_of

    # mistakes are answered before torch is loaded
    recipe = read(recipe_path(path), overrides)
    check_free(folder_of(recipe), overwrite)
    _wait(f"{recipe.name}: loading …")
    from rich.console import Console

    from s2s.run.training import train
    from s2s.training.devices import prepare_process

    prepare_process(recipe.device)
    return train(recipe, Console(), overwrite), schema_of(recipe).use


def _wait(what: str) -> None:
    """Says that something goes on, before imports that take a minute on a loaded machine."""
    click.echo(what)
    sys.stdout.flush()


def _overfit(path: Path, overrides: tuple[str, ...]) -> None:
    from s2s.recipe.reading import recipe_path
    from s2s.run.tasks import read

    recipe = read(recipe_path(path), overrides)
    if recipe.task != "translation":
        raise UserError(f"--overfit is for translation, and the task is {recipe.task}", remedy="leave it out")
    _wait(f"{recipe.name}: loading …")
    from s2s.run.room import room_to_train
    from s2s.tasks.translation.task import TASK, overfit
    from s2s.training.devices import prepare_process

    prepare_process(recipe.device)
    with room_to_train(TASK, recipe):
        overfit(recipe, click.echo)


def _resume(folder: Path, overrides: tuple[str, ...]) -> tuple[Path, str]:
    from s2s.run.folder import check_resumable
    from s2s.run.tasks import schema_of

    recipe = check_resumable(folder, overrides)
    _wait(f"going on with {folder}: loading …")
    from rich.console import Console

    from s2s.run.training import resume
    from s2s.training.devices import prepare_process

    prepare_process(recipe.device)
    return resume(folder, Console(), overrides, recipe), schema_of(recipe).use
