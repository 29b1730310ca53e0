"""`s2s new`."""

from pathlib import Path

import click

_FILE = click.Path(path_type=Path)


@click.group()
def new() -> None:
    """Write a recipe for your own files."""


@new.command()
@click.option("--source", type=_FILE, required=True, help="Lines to translate from.")
@click.option("--target", type=_FILE, required=True, help="Their translations, line by line.")
@click.option("--output", type=_FILE, default="translate.yaml", show_default=True, help="The recipe.")
@click.option("--overwrite", is_flag=True, help="Replace a recipe of that name.")
def translate(source: Path, target: Path, output: Path, overwrite: bool) -> None:
    """Write a translation recipe fitted to two line-aligned files."""
    from s2s.recipe.fitting import fitted_recipe
    from s2s.recipe.reading import read
    from s2s.recipe.shipped import write_new

    write_new(output, fitted_recipe(output.stem, source, target), overwrite)
    read(output)
    click.echo(f"wrote {output}\nlook:   s2s data check {output}\ntrain:  s2s train {output}")
