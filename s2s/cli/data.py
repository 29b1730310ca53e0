"""`s2s data`."""

from pathlib import Path

import click


@click.group()
def data() -> None:
    """Look at a corpus before training."""


@data.command()
@click.argument("recipe", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1, metavar="[section.key=value]...")
def check(recipe: Path, overrides: tuple[str, ...]) -> None:
    """Look for what spoils a corpus: empty and unequal lines, duplicates, test pairs in the training data."""
    from s2s.recipe.reading import read, recipe_path

    settings = read(recipe_path(recipe), overrides).data
    from s2s.data.corpora import load
    from s2s.data.inspection import inspect, render

    click.echo(render(inspect(load(settings), settings)))
