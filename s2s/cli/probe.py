"""`s2s probe`."""

from pathlib import Path

import click

from s2s.cli.group import Group
from s2s.errors import UserError


@click.group(cls=Group)
def group() -> None:
    """Ask a trained model what it expects."""


@group.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--pairs", type=click.Path(path_type=Path), help="A table of sentence pairs like CrowS-Pairs.")
@click.option("--text", help="A sentence with a blank ___, for --words.")
@click.option("--words", help="Two or more words for the blank: his/her")
@click.option("--checkpoint", help="best, last, average or a number; the average if there is one, else the best.")
def bias(run: Path, pairs: Path | None, text: str | None, words: str | None, checkpoint: str | None) -> None:
    """Which sentence of a pair, or which word of two, does the masked-language model in RUN prefer?

    The limits of the method are in docs/bias-probe.md.
    """
    choices = words.split("/") if words else []
    if (pairs is None) == (text is None) or (text is None) != (words is None) or (words and len(choices) < 2):
        raise UserError("give either --pairs FILE, or --text 'The ___ …' with --words his/her", remedy="see --help")
    from s2s.run.opened import opened

    model = opened(run, tasks=["masked-lm"])
    from s2s.run.loaded import ready
    from s2s.tasks.masked_lm.bias import probe
    from s2s.tasks.masked_lm.filling import weigh

    loaded = ready(model, checkpoint)
    click.echo(str(probe(loaded, pairs) if pairs else weigh(loaded, text or "", choices)))
