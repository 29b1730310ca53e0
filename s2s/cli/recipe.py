"""Command `s2s recipe`: validate, show, list and copy recipes; list models."""

from pathlib import Path

import click

from s2s.cli import options
from s2s.cli.lines import show_text
from s2s.cli.main import Group
from s2s.errors import UserError
from s2s.recipe.catalog import copy_shipped, corpora_of, measured, missing_files
from s2s.recipe.pairs import LearnedPairs
from s2s.recipe.reading import data_sections, dump, recipe_path, shipped
from s2s.run.tasks import read, schemas


@click.group(cls=Group)
def recipe() -> None:
    """Validate, show, list and copy recipes; list models."""


@recipe.command(epilog=options.examples("s2s recipe validate translate training.updates=500"))
@click.argument("words", nargs=-1, required=True, metavar="RECIPE... [section.key=value]...")
def validate(words: tuple[str, ...]) -> None:
    """Check recipes: all keys and values; then all files; then the columns of pairs.

    All mistakes of a step are listed, with their lines. For a valid recipe, list the formats that `s2s export` can
    write.
    """
    paths, overrides = options.paths_and_overrides(words)
    if not paths:
        raise UserError(f"{words[0]!r} overrides a recipe, but there is none", remedy="name a recipe file before it")
    if mistakes := [mistake for path in paths if (mistake := _mistakes(path, overrides))]:
        raise UserError("\n".join(mistakes))


def _mistakes(path: Path, overrides: list[str]) -> str:
    try:
        found = read(recipe_path(path), overrides)
        missing = missing_files(found)
    except UserError as error:
        return str(error)
    if missing:
        return "\n".join(f"{path}: {line}" for line in missing)
    from s2s.data.pairs import check_columns
    from s2s.export.exportable import exportable

    try:
        for place, section in data_sections(found.data):
            if isinstance(section, LearnedPairs):
                check_columns(section, ".".join(map(str, place)))
    except UserError as error:
        return f"{path}: {error}"

    click.echo(f"{path}: fine; exportable: {' '.join(exportable(found)) or 'nothing'}")
    return ""


@recipe.command(epilog=options.examples("s2s recipe show translate"))
@click.argument("path", type=options.FILE, metavar="RECIPE")
@options.overrides
def show(path: Path, overrides: tuple[str, ...]) -> None:
    """Print a recipe with all keys, including defaults."""
    show_text([dump(read(recipe_path(path), overrides))])


@recipe.command("list", epilog=options.examples("s2s recipe list"))
def list_() -> None:
    """List the recipes that come with s2s, with their measured score and training time.

    `s2s recipe show NAME` prints a recipe with its description.
    """
    rows = [("name", "task", "needs data", "minutes", "score")]
    for name, path in shipped().items():
        recipe, found = read(path), measured(name)
        rows.append((name, recipe.task, " ".join(corpora_of(recipe)) or "no", found.minutes, found.score))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())


@recipe.command(epilog=options.examples("s2s recipe copy translate my.yaml"))
@click.argument("name")
@click.argument("destination", type=options.FILE, default=".")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
def copy(name: str, destination: Path, overwrite: bool) -> None:
    """Copy a recipe that comes with s2s, so that you can change it."""
    click.echo(f"{copy_shipped(name, destination, overwrite)}: edit it, then `s2s train` it")


@recipe.command(epilog=options.examples("s2s recipe schema --model transformer"))
@click.option(
    "--model", "kinds", multiple=True, metavar="KIND", help="Include the keys of this model only; may be repeated."
)
def schema(kinds: tuple[str, ...]) -> None:
    """Print the JSON schema of recipes, for completion in editors."""
    from s2s.recipe.reference import json_schema

    show_text([json_schema(schemas(), list(kinds) or None), "\n"])


@recipe.command(epilog=options.examples("s2s recipe reference"))
def reference() -> None:
    """Print the reference of all recipe keys (docs/recipe.md)."""
    from s2s.recipe.reference import reference as page

    show_text([page(schemas())])


@recipe.command(epilog=options.examples("s2s recipe models"))
def models() -> None:
    """List the installed models, the values of `model.kind`."""
    from s2s.recipe.installed import models as installed
    from s2s.recipe.installed import module_of, package_of

    for kind, point in installed().items():
        first_line = (module_of(kind).__doc__ or "").strip().split("\n")[0]
        click.echo(f"{kind:20} {package_of(point):16} {first_line}")
