"""`s2s fill`."""

from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("text")
@click.option("--pieces", type=click.IntRange(1, 8), default=1, show_default=True, help="Pieces in the blank.")
@click.option("--best", type=click.IntRange(1), default=10, show_default=True, help="How many fillers.")
@click.option("--checkpoint", help="best, last, average or a number; the average if there is one, else the best.")
def fill(run: Path, text: str, pieces: int, best: int, checkpoint: str | None) -> None:
    """Fill the blank ___ in TEXT with what the masked-language model in RUN expects there."""
    from s2s.run.opened import opened

    model = opened(run, tasks=["masked-lm"])
    from s2s.run.loaded import ready
    from s2s.tasks.masked_lm.filling import fill_blank

    click.echo(str(fill_blank(ready(model, checkpoint), text, pieces, best)))
