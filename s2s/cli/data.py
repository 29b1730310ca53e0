"""Your own data, before training: `s2s data` looks at them, `s2s new` writes a recipe for them."""

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from s2s.cli import options
from s2s.cli.main import Group
from s2s.errors import UserError

_output = click.option("--output", type=options.FILE, default="mine.yaml", show_default=True, help="The recipe.")
_overwrite = click.option("--overwrite", is_flag=True, help="Replace a recipe of that name.")
_TABLE = "tsv, csv, jsonl, parquet, or a txt with tabs or `IN: … OUT: …` lines; plain, .gz or .xz"


@click.group(cls=Group)
def data() -> None:
    """Look at a corpus before training."""


@data.command()
@click.argument("recipe", type=options.FILE)
@options.overrides
def check(recipe: Path, overrides: tuple[str, ...]) -> None:
    """Look for what spoils a corpus: empty and unequal lines, duplicates, test pairs in the training data."""
    from s2s.recipe.reading import recipe_path
    from s2s.run.inspection import inspected
    from s2s.run.tasks import read

    # what a run has learned from, unless other data are asked for
    folder = recipe if recipe.is_dir() and not overrides else None
    click.echo(inspected(read(recipe_path(recipe), overrides), partial(click.echo, err=True), folder))


@click.group(cls=Group)
def new() -> None:
    """Write a recipe for your own files."""


@new.command()
@click.option("--data", type=options.FILE, help=f"A table of pairs: {_TABLE}.")
@click.option("--source", help="Column of --data that is read; without --data, a file of lines.")
@click.option("--target", help="Column of --data that is written; without --data, a file of lines.")
@click.option("--validation", type=options.FILE, help="A table to validate by; held out of --data when absent.")
@click.option("--test", type=options.FILE, help="A table to test on; held out of --data when absent.")
@click.option("--validation-source", type=options.FILE, help="Lines to validate by; held out of --source when absent.")
@click.option("--validation-target", type=options.FILE, help="Their translations.")
@click.option("--test-source", type=options.FILE, help="Lines to test on; held out of --source when absent.")
@click.option("--test-target", type=options.FILE, help="Their translations.")
@_output
@_overwrite
def translate(
    data: Path | None,
    source: str | None,
    target: str | None,
    validation: Path | None,
    test: Path | None,
    validation_source: Path | None,
    validation_target: Path | None,
    test_source: Path | None,
    test_target: Path | None,
    output: Path,
    overwrite: bool,
) -> None:
    """Write a translation recipe fitted to a table of pairs, or to two line-aligned files."""
    held_out = (
        _given("validation", validation, validation_source, validation_target),
        _given("test", test, test_source, test_target),
    )
    if not data and not (source and target):
        raise UserError(
            "no data is named", remedy="s2s new translate --data TABLE, or --source LINES --target LINES: two files"
        )
    if data and any(isinstance(pair, tuple) for pair in held_out):
        raise UserError(
            "--validation-source and the like go with two files of lines", remedy="use --validation, --test"
        )
    from s2s.tasks.fitting import Splits
    from s2s.tasks.translation.fitting import fitted_translation

    if data:
        _write(output, overwrite, lambda: fitted_translation(output.stem, Splits(data, *held_out), source, target))
    else:
        lines = Path(source or ""), Path(target or "")
        _write(output, overwrite, lambda: fitted_translation(output.stem, Splits(lines, *held_out)))


@new.command()
@click.option("--data", type=options.FILE, required=True, help=f"A table of labelled texts: {_TABLE}.")
@click.option("--text", multiple=True, help="Column of the text; several are joined by a space.")
@click.option("--label", help="Column of the class.")
@click.option("--validation", type=options.FILE, help="A table to validate by; held out of --data when absent.")
@click.option("--test", type=options.FILE, help="A table to test on; held out of --data when absent.")
@_output
@_overwrite
def classify(
    data: Path,
    text: tuple[str, ...],
    label: str | None,
    validation: Path | None,
    test: Path | None,
    output: Path,
    overwrite: bool,
) -> None:
    """Write a classification recipe fitted to a table of labelled texts."""
    from s2s.tasks.classification.fitting import fitted_classification
    from s2s.tasks.fitting import Splits

    _write(output, overwrite, lambda: fitted_classification(output.stem, Splits(data, validation, test), text, label))


@new.command()
@click.option("--data", type=options.FILE, required=True, help="A folder with a folder for each class, or IDX files.")
@click.option("--validation", type=options.FILE, help="Another one to validate by; held out of --data when absent.")
@click.option("--test", type=options.FILE, help="Another one to test on; held out of --data when absent.")
@_output
@_overwrite
def images(data: Path, validation: Path | None, test: Path | None, output: Path, overwrite: bool) -> None:
    """Write a recipe fitted to labelled images: `cat/1.png`, `train/cat/1.png`, or IDX files as MNIST has."""
    from s2s.tasks.fitting import Splits
    from s2s.tasks.images.fitting import fitted_images

    _write(output, overwrite, lambda: fitted_images(output.stem, Splits(data, validation, test)))


@new.command()
@click.option(
    "--data", type=options.FILE, required=True, help="Plain text, a folder of .txt files, or a table of texts."
)
@click.option("--text", help="Column of the text, of a table.")
@click.option("--validation", type=options.FILE, help="Another one to validate by; held out of --data when absent.")
@click.option("--test", type=options.FILE, help="Another one to test on; held out of --data when absent.")
@_output
@_overwrite
def text(
    data: Path, text: str | None, validation: Path | None, test: Path | None, output: Path, overwrite: bool
) -> None:
    """Write a language model's recipe fitted to texts without labels."""
    from s2s.tasks.fitting import Splits
    from s2s.tasks.language_model.fitting import fitted_language_model

    _write(output, overwrite, lambda: fitted_language_model(output.stem, Splits(data, validation, test), text))


def _given(split: str, table: Path | None, source: Path | None, target: Path | None) -> Path | tuple[Path, Path] | None:
    if table and (source or target):
        raise UserError(f"two {split} sets", remedy=f"give --{split}, or --{split}-source and --{split}-target")
    if source and target:
        return source, target
    if source or target:
        raise UserError(
            f"{source or target} is one side of the {split} pairs",
            remedy=f"give --{split}-source and --{split}-target, or neither",
        )
    return table


def _write(output: Path, overwrite: bool, fitted: Callable[[], str]) -> None:
    from s2s.recipe.reading import check_new, write_new

    check_new(output, overwrite)
    text = fitted()
    write_new(output, text, overwrite)
    name = shlex.quote(str(output))
    # what the choices rest on is better seen at once than found later
    click.echo("\n".join(line for line in text.splitlines() if "#" in line))
    click.echo(f"\nwrote {name}\nlook:   s2s data check {name}\ntrain:  s2s train {name}")
