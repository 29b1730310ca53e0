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
    from s2s.run.folder import check_is_run

    check_is_run(run)
    from s2s.run.loading import prepare_for
    from s2s.run.probing import fill_blank

    prepare_for(run)
    click.echo(str(fill_blank(run, text, pieces, best, checkpoint)))
