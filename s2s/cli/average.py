"""Command `s2s average`: average the weights of checkpoints."""

from pathlib import Path

import click

from s2s.cli import options


@options.command(epilog=options.examples("s2s average runs/translate --last 2"))
@options.run
@click.option("--last", type=click.IntRange(1), required=True, help="Number of validated checkpoints, newest first.")
def average(run: Path, last: int) -> None:
    """Average the weights of the last checkpoints of RUN, into its checkpoint `average`.

    Commands use this checkpoint unless --checkpoint names another one. A run keeps few checkpoints; keep more with
    training.average_last or validation.keep_best (docs/ensembles.md).
    """
    from s2s.run.folder import open_run
    from s2s.run.inference import average_run

    opened = open_run(run)
    for path in average_run(opened, last):
        click.echo(f"averaged: {path.name}")
    click.echo(f"wrote {opened.path / 'checkpoints' / 'average'}; s2s evaluate {run} scores it")
