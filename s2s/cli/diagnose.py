"""Is a run sound, and if it is bad, why: `doctor` and `explain`."""

import sys
from functools import partial
from pathlib import Path

import click

from s2s.cli.lines import check_output
from s2s.files import write_atomically

_FILE = click.Path(path_type=Path)
_run = click.argument("run", type=_FILE)
_overrides = click.argument("overrides", nargs=-1, metavar="[section.key=value]...")
_checkpoint = click.option(
    "--checkpoint", help="best, last, average or a number; the average if there is one, else the best."
)
_json = click.option("--json", "file", type=_FILE, help="Write everything to this file, too.")


@click.command()
@_run
@_overrides
@_checkpoint
@_json
def doctor(run: Path, overrides: tuple[str, ...], checkpoint: str | None, file: Path | None) -> None:
    """Prove on RUN's own model and examples that it computes what it should; exit status 1 where it does not."""
    from s2s.run.folder import opened

    patient = opened(run, overrides)
    check_output(file, "--json")
    from s2s.run.doctor import examined

    found = examined(patient, checkpoint, partial(click.echo, err=True))
    click.echo(str(found))
    if file:
        write_atomically(file, found.to_json())
    if not found.sound:
        sys.exit(1)


@click.command()
@_run
@_overrides
@click.option("--split", type=click.Choice(["test", "validation"]), help="The test set, if there is one, if absent.")
@click.option("--examples", type=click.IntRange(2), default=500, show_default=True, help="Answers that are looked at.")
@_checkpoint
@_json
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
    click.echo(str(found))
    if file:
        write_atomically(file, found.to_json())
