"""`s2s data`."""

from pathlib import Path

import click

from s2s.cli.group import Group


@click.group(cls=Group)
def data() -> None:
    """Look at a corpus before training."""


@data.command()
@click.argument("recipe", type=click.Path(path_type=Path))
@click.argument("overrides", nargs=-1, metavar="[section.key=value]...")
def check(recipe: Path, overrides: tuple[str, ...]) -> None:
    """Look for what spoils a corpus: empty and unequal lines, duplicates, test pairs in the training data."""
    from s2s.recipe.reading import recipe_path
    from s2s.run.tasks import inspected, read

    click.echo(inspected(read(recipe_path(recipe), overrides)))
