"""Is a run sound, and if it is bad, why: `doctor` and `explain`."""

import sys
from functools import partial
from pathlib import Path

import click

from s2s.cli import options
from s2s.cli.lines import check_output
from s2s.errors import printable
from s2s.files import write_atomically


@options.command()
@options.run
@options.overrides
@options.checkpoint
@options.json
def doctor(run: Path, overrides: tuple[str, ...], checkpoint: str | None, file: Path | None) -> None:
    """Prove on RUN's own model and examples that it computes what it should; exit status 1 where it does not."""
    from s2s.run.folder import opened

    patient = opened(run, overrides)
    check_output(file, "--json")
    from s2s.run.doctor import examined

    found = examined(patient, checkpoint, partial(click.echo, err=True))
    click.echo(printable(str(found)))
    if file:
        write_atomically(file, found.to_json(), follow=True)
    if not found.sound:
        sys.exit(1)


@options.command()
@options.run
@options.overrides
@click.option("--split", type=click.Choice(["test", "validation"]), help="The test set where there is one, by default.")
@click.option("--examples", type=click.IntRange(2), default=500, show_default=True, help="Answers that are looked at.")
@options.checkpoint
@options.json
def explain(
    run: Path, overrides: tuple[str, ...], split: str | None, examples: int, checkpoint: str | None, file: Path | None
) -> None:
    """Say why RUN is bad: signs measured in its answers and in its log, remedies, and the worst answers."""
    from s2s.run.folder import opened

    patient = opened(run, overrides)
    check_output(file, "--json")
    from rich.console import Console

    from s2s.run.explaining import explained
    from s2s.training.progress import meter, silent

    console = Console(stderr=True)
    found = explained(patient, checkpoint, split, examples, meter(console) if console.is_terminal else silent)
    click.echo(printable(str(found)))
    if file:
        write_atomically(file, found.to_json(), follow=True)
