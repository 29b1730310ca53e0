"""Command `s2s diagnose`: numerical self-tests and signs of a bad run."""

import sys
from functools import partial
from pathlib import Path
from typing import Literal

import click

from s2s.cli import options
from s2s.cli.lines import check_output
from s2s.errors import printable
from s2s.files import write_atomically


@options.command(epilog=options.examples("s2s diagnose runs/translate", "s2s diagnose runs/translate --only signs"))
@options.run
@options.overrides
@click.option("--only", type=click.Choice(["self-tests", "signs"]), help="Run only this section of the report.")
@click.option(
    "--split",
    type=click.Choice(["test", "validation"]),
    help="Split of the examples; default: test, or validation if the run has no test set.",
)
@click.option(
    "--examples", type=click.IntRange(2), default=500, show_default=True, help="Number of answers to check for signs."
)
@options.checkpoint
@options.json
def diagnose(
    run: Path,
    overrides: tuple[str, ...],
    only: Literal["self-tests", "signs"] | None,
    split: str | None,
    examples: int,
    checkpoint: str | None,
    file: Path | None,
) -> None:
    """Diagnose the trained model in RUN: numerical self-tests and signs of a bad run.

    Exit status: 0 if no self-test fails, 1 if one fails. Signs do not change the exit status.
    """
    from s2s.run.folder import open_run

    found = open_run(run, overrides)
    check_output(file, "--json")
    from rich.console import Console

    from s2s.diagnosis.report import diagnose as diagnosis_of
    from s2s.training.progress import no_progress_bar, progress_bar

    console = Console(stderr=True)
    shown = progress_bar(console) if console.is_terminal else no_progress_bar
    report = diagnosis_of(found, checkpoint, split, examples, only, partial(click.echo, err=True), shown)
    click.echo(printable(str(report)))
    if file:
        write_atomically(file, report.to_json(), follow=True)
    if not report.passed:
        sys.exit(1)
