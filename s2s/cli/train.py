"""`s2s train`."""

import sys
from pathlib import Path

import click

from s2s.errors import UserError, quoted
from s2s.launch import Launch, launched


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
    from s2s.recipe.reading import recipe_path
    from s2s.run.folder import check_free, check_resumable, folder_of
    from s2s.run.tasks import read, schema_of

    launch = launched()
    if launch and not launch.leads:
        _follow(launch)
        return
    # mistakes are answered before torch is loaded
    if overfitting and (resuming or overwrite):
        raise UserError("--overfit keeps no run", remedy="leave out --resume and --overwrite")
    if overfitting and launch:
        raise UserError("--overfit is for one process", remedy="leave torchrun out")
    asked = check_resumable(recipe, overrides) if resuming else read(recipe_path(recipe), overrides)
    if launch and not resuming and launch.goes_on_with(folder_of(asked)):
        # what it was begun with is in its recipe
        resuming, recipe, overrides = True, folder_of(asked), ()
        asked = check_resumable(recipe, overrides)
    if overfitting and asked.task != "translation":
        raise UserError(f"--overfit is for translation, and the task is {asked.task}", remedy="leave it out")
    if not (overfitting or resuming):
        check_free(folder_of(asked), overwrite)
    # before imports that take a minute on a loaded machine
    click.echo(f"going on with {recipe}: loading …" if resuming else f"{asked.name}: loading …")
    sys.stdout.flush()
    from rich.console import Console

    from s2s.run import training
    from s2s.training.devices import prepare_process
    from s2s.training.ranks import joined

    prepare_process(asked.device)
    if overfitting and asked.task == "translation":
        from s2s.run.back_translation import with_back_translations
        from s2s.run.room import room_to_train
        from s2s.tasks.translation.task import TASK, overfit

        with room_to_train(TASK, asked):
            overfit(with_back_translations(asked, click.echo), click.echo)
        return
    with joined(launch) as ranks:
        if resuming:
            folder = training.resume(recipe, Console(), overrides, asked, ranks)
        else:
            folder = training.train(asked, Console(), overwrite, ranks=ranks)
    if use := schema_of(asked).use:
        click.echo(use.format(quoted(folder)))
    click.echo(f"curves:     tensorboard --logdir {quoted(folder.parent)}")


def _follow(launch: Launch) -> None:
    """One of several processes, and not the first, hears from that one what to do."""
    from s2s.run.following import follow
    from s2s.training.ranks import joined

    with joined(launch) as ranks:
        follow(ranks)
