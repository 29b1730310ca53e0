"""`s2s report`."""

from pathlib import Path

import click


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
def report(folder: Path) -> None:
    """Draw the report of the comparison in FOLDER again, from its saved files."""
    from s2s.report.drawing import draw

    click.echo(draw(folder))
