"""Command `s2s data`: check a corpus before training."""

from pathlib import Path

import click

from s2s.cli import options
from s2s.cli.main import Group


@click.group(cls=Group)
def data() -> None:
    """Check a corpus before training."""


@data.command(epilog=options.examples("s2s data check translate data.train=300 data.validation=8 data.test=8"))
@click.argument("recipe", type=options.FILE)
@options.overrides
def check(recipe: Path, overrides: tuple[str, ...]) -> None:
    """Check a corpus for common faults.

    These are empty and unequal lines, duplicates, and test pairs in the training data.
    """
    from s2s.recipe.reading import recipe_path
    from s2s.run.tasks import inspected, read

    click.echo(inspected(read(recipe_path(recipe), overrides)))
