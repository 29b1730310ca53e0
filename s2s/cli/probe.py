"""What a trained model is asked: `probe bias`, `probe induction`."""

from pathlib import Path

import click

from s2s.cli import options
from s2s.cli.main import Group
from s2s.errors import UserError


@click.group(cls=Group)
def probe() -> None:
    """Ask a trained model what it expects."""


@probe.command()
@options.run
@click.option("--pairs", type=options.FILE, help="A table of sentence pairs like CrowS-Pairs.")
@click.option("--text", help="A sentence with a blank ___, for --words.")
@click.option("--words", help="Two or more words for the blank: his/her")
@options.checkpoint
def bias(run: Path, pairs: Path | None, text: str | None, words: str | None, checkpoint: str | None) -> None:
    """Which sentence of a pair, or which word of two, does the masked-language model in RUN prefer?

    The limits of the method are in docs/bias-probe.md.
    """
    choices = words.split("/") if words else []
    if (pairs is None) == (text is None) or (text is None) != (words is None) or (words and len(choices) < 2):
        raise UserError("give either --pairs FILE, or --text 'The ___ …' with --words his/her", remedy="see --help")
    from s2s.run.folder import opened

    model = opened(run, tasks=["masked-lm"])
    from s2s.run.loaded import ready
    from s2s.tasks.masked_lm.bias import probe
    from s2s.tasks.masked_lm.filling import weigh

    loaded = ready(model, checkpoint)
    click.echo(str(probe(loaded, pairs) if pairs else weigh(loaded, text or "", choices)))


@probe.command()
@options.run
@click.option(
    "--length", type=click.IntRange(2, 10_000), default=40, show_default=True, help="Random pieces in a sequence."
)
@click.option("--sequences", type=click.IntRange(1, 10_000), default=64, show_default=True, help="How many sequences.")
@click.option(
    "--seed", type=click.IntRange(0, 2**32 - 1), default=1, show_default=True, help="Seed of the random pieces."
)
@options.checkpoint
def induction(run: Path, length: int, sequences: int, seed: int, checkpoint: str | None) -> None:
    """Does the language model in RUN repeat random pieces that it has just read?"""
    from s2s.run.folder import opened

    model = opened(run, tasks=["language-model"])
    from s2s.run.loaded import ready
    from s2s.tasks.language_model.induction import probe

    click.echo(str(probe(ready(model, checkpoint), length, sequences, seed)))
