"""`s2s data`."""

from pathlib import Path

import click

from s2s.cli.group import Group
from s2s.errors import UserError


@click.group(cls=Group)
def data() -> None:
    """Look at a corpus before training."""


@data.command()
@click.argument("recipe", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1, metavar="[section.key=value]...")
def check(recipe: Path, overrides: tuple[str, ...]) -> None:
    """Look for what spoils a corpus: empty and unequal lines, duplicates, test pairs in the training data."""
    from s2s.recipe.reading import read, recipe_path

    found = read(recipe_path(recipe), overrides)
    if found.task == "classification":
        from s2s.data.labelled import load_labelled
        from s2s.data.labelled_inspection import inspect_labelled

        click.echo(str(inspect_labelled(load_labelled(found.data), found.data.seed)))
        return
    if found.task != "translation":
        raise UserError(f"there is no check for data of task {found.task}", remedy="look at what `s2s train` tells")
    from s2s.data.corpora import load
    from s2s.data.inspection import inspect, render

    click.echo(render(inspect(load(found.data), found.data, found.tokenizer.of("target").normalization)))
