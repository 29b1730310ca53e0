"""`s2s attention`."""

from pathlib import Path

import click

from s2s.cli.lines import check_output


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("sentence")
@click.option("--translation", help="What the model shall write; its own translation if absent.")
@click.option(
    "--output", type=click.Path(path_type=Path), help="A picture (.png, .svg, .pdf), or .json in BertViz's shapes."
)
@click.option("--layer", type=click.IntRange(0), help="Which layer is drawn, from 0; the last if absent.")
@click.option("--checkpoint", help="best, last, average or a number; the average if there is one, else the best.")
def attention(
    run: Path, sentence: str, translation: str | None, output: Path | None, layer: int | None, checkpoint: str | None
) -> None:
    """Show where the model in RUN looks while it translates SENTENCE."""
    from s2s.run.opened import opened

    translator = opened(run, tasks=["translation"])
    check_output(output)
    from s2s.run.loaded import ready
    from s2s.tasks.translation.attention import look

    weights = look(ready(translator, checkpoint), sentence, translation)
    if output:
        weights.save(output, -1 if layer is None else layer)
    click.echo(str(weights))
