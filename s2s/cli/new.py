"""`s2s new`."""

import shlex
from pathlib import Path

import click

from s2s.errors import UserError

_FILE = click.Path(path_type=Path)


@click.group()
def new() -> None:
    """Write a recipe for your own files."""


@new.command()
@click.option("--source", type=_FILE, required=True, help="Lines to translate from.")
@click.option("--target", type=_FILE, required=True, help="Their translations, line by line.")
@click.option("--validation-source", type=_FILE, help="Lines to validate by; held out of --source when absent.")
@click.option("--validation-target", type=_FILE, help="Their translations.")
@click.option("--output", type=_FILE, default="mine.yaml", show_default=True, help="The recipe.")
@click.option("--overwrite", is_flag=True, help="Replace a recipe of that name.")
def translate(
    source: Path,
    target: Path,
    validation_source: Path | None,
    validation_target: Path | None,
    output: Path,
    overwrite: bool,
) -> None:
    """Write a translation recipe fitted to line-aligned files (plain, .gz or .xz)."""
    from s2s.recipe.fitting import fitted_recipe
    from s2s.recipe.reading import read
    from s2s.recipe.shipped import write_new

    validation = _both(validation_source, validation_target)
    write_new(output, fitted_recipe(output.stem, (source, target), validation), overwrite)
    read(output)
    name = shlex.quote(str(output))
    click.echo(f"wrote {name}\nlook:   s2s data check {name}\ntrain:  s2s train {name}")


def _both(source: Path | None, target: Path | None) -> tuple[Path, Path] | None:
    if source and target:
        return source, target
    if source or target:
        raise UserError(
            f"{source or target} is one side of the validation pairs",
            remedy="give --validation-source and --validation-target, or neither",
        )
    return None
