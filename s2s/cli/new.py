"""Command `s2s new`: write a recipe for your own files."""

import shlex
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from s2s.cli import options
from s2s.cli.main import Group
from s2s.errors import UserError

if TYPE_CHECKING:
    from s2s.tasks.recipe_generation import Splits

_output = click.option("--output", type=options.FILE, default="mine.yaml", show_default=True, help="Recipe to write.")
_validation = partial(click.option, "--validation", type=options.FILE)
_test = partial(click.option, "--test", type=options.FILE)
_overwrite = click.option("--overwrite", is_flag=True, help="Replace an existing recipe.")
_TABLE = "tsv, csv, jsonl, parquet, or a txt with tabs or `IN: … OUT: …` lines; plain, .gz or .xz"


@click.group(cls=Group)
def new() -> None:
    """Write a recipe for your own files."""


@new.command(epilog=options.examples("s2s new translate --data pairs.tsv --source en --target de"))
@click.option("--data", type=options.FILE, help=f"Table of pairs: {_TABLE}.")
@click.option("--source", help="Source column of --data; without --data, a file with one sentence per line.")
@click.option("--target", help="Target column of --data; without --data, a file with one sentence per line.")
@_validation(help="Table of the validation set; default: held out of --data.")
@_test(help="Table of the test set; default: held out of --data.")
@click.option(
    "--validation-source", type=options.FILE, help="Source lines of the validation set; default: held out of --source."
)
@click.option("--validation-target", type=options.FILE, help="Target lines of the validation set.")
@click.option("--test-source", type=options.FILE, help="Source lines of the test set; default: held out of --source.")
@click.option("--test-target", type=options.FILE, help="Target lines of the test set.")
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
    """Write a translation recipe for a table of pairs, or for two line-aligned files."""
    held_out = (
        _given("validation", validation, validation_source, validation_target),
        _given("test", test, test_source, test_target),
    )
    if not data and not (source and target):
        remedy = "s2s new translate --data TABLE, or --source LINES --target LINES: two files"
        raise UserError("no data is named", remedy=remedy)
    if data and any(isinstance(pair, tuple) for pair in held_out):
        what = "--validation-source and the like go with two files of lines"
        raise UserError(what, remedy="use --validation, --test")
    from s2s.tasks.recipe_generation import Splits
    from s2s.tasks.translation.recipe_generation import generate_translation_recipe

    splits = Splits(data or (Path(source or ""), Path(target or "")), *held_out)
    columns = (source, target) if data else (None, None)
    _write(output, overwrite, splits, lambda: generate_translation_recipe(output.stem, splits, *columns))


@new.command(epilog=options.examples("s2s new classify --data labelled.tsv --text en --label kind --output k.yaml"))
@click.option("--data", type=options.FILE, required=True, help=f"Table of labelled texts: {_TABLE}.")
@click.option("--text", multiple=True, help="Text column; repeat it to join several by a space.")
@click.option("--label", help="Class column.")
@_validation(help="Table of the validation set; default: held out of --data.")
@_test(help="Table of the test set; default: held out of --data.")
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
    """Write a classification recipe for a table of labelled texts."""
    from s2s.tasks.classification.recipe_generation import generate_classification_recipe
    from s2s.tasks.recipe_generation import Splits

    splits = Splits(data, validation, test)
    _write(output, overwrite, splits, lambda: generate_classification_recipe(output.stem, splits, text, label))


@new.command()
@click.option("--data", type=options.FILE, required=True, help="Folder with one folder per class, or with IDX files.")
@_validation(help="The same for the validation set; default: held out of --data.")
@_test(help="The same for the test set; default: held out of --data.")
@_output
@_overwrite
def images(data: Path, validation: Path | None, test: Path | None, output: Path, overwrite: bool) -> None:
    """Write an image classification recipe.

    The data are folders such as `cat/1.png` or `train/cat/1.png`, or IDX files as of MNIST.
    """
    from s2s.tasks.images.recipe_generation import generate_image_recipe
    from s2s.tasks.recipe_generation import Splits

    splits = Splits(data, validation, test)
    _write(output, overwrite, splits, lambda: generate_image_recipe(output.stem, splits))


@new.command()
@click.option(
    "--data", type=options.FILE, required=True, help="Plain text, a folder of .txt files, or a table of texts."
)
@click.option("--text", help="Text column, if --data is a table.")
@_validation(help="The same for the validation set; default: held out of --data.")
@_test(help="The same for the test set; default: held out of --data.")
@_output
@_overwrite
def text(
    data: Path, text: str | None, validation: Path | None, test: Path | None, output: Path, overwrite: bool
) -> None:
    """Write a language-model recipe for texts without labels."""
    from s2s.tasks.language_model.recipe_generation import generate_language_model_recipe
    from s2s.tasks.recipe_generation import Splits

    splits = Splits(data, validation, test)
    _write(output, overwrite, splits, lambda: generate_language_model_recipe(output.stem, splits, text))


def _given(split: str, table: Path | None, source: Path | None, target: Path | None) -> Path | tuple[Path, Path] | None:
    if table and (source or target):
        raise UserError(f"two {split} sets", remedy=f"give --{split}, or --{split}-source and --{split}-target")
    if source and target:
        return source, target
    if source or target:
        what = f"{source or target} is one side of the {split} pairs"
        raise UserError(what, remedy=f"give --{split}-source and --{split}-target, or neither")
    return table


def _write(
    output: Path, overwrite: bool, splits: "Splits[Path] | Splits[Path | tuple[Path, Path]]", fitted: Callable[[], str]
) -> None:
    from s2s.recipe.catalog import check_new, write_new

    for part in (splits.train, splits.validation, splits.test):
        for path in part if isinstance(part, tuple) else (part,):
            if path and path.resolve() == output.resolve():
                raise UserError("is a file of the data, which are read", f"--output {output}", "name another file")
    check_new(output, overwrite)
    text = fitted()
    write_new(output, text, overwrite)
    name = shlex.quote(str(output))
    click.echo("\n".join(_reasons(text)))
    click.echo(f"\nwrote {name}\nlook:   s2s data check {name}\ntrain:  s2s train {name}")


def _reasons(recipe: str) -> Iterator[str]:
    """Yield the lines of a recipe with a comment, each with its full key.

    The comments give the reasons for the settings.
    """
    sections: list[str] = []
    for line in recipe.splitlines():
        text = line.strip()
        if text.startswith("#"):
            yield line
            continue
        sections[(len(line) - len(line.lstrip())) // 2 :] = [text.partition(":")[0]]
        if "#" in text:
            yield ".".join([*sections[:-1], text])
