"""Command `s2s fill`: fill a blank with a masked-language model."""

from pathlib import Path

import click
from click.core import ParameterSource

from s2s.cli import options
from s2s.errors import UserError, printable


@options.command(
    epilog=options.examples(
        "s2s fill runs/masked 'A ___ sleeps.' --best 5", "s2s fill runs/masked 'A ___ sleeps.' --words dog/cat"
    )
)
@options.run
@click.argument("text", type=options.TEXT)
@click.option(
    "--pieces", type=click.IntRange(1, 8), default=1, show_default=True, help="Number of tokens in the blank."
)
@click.option("--best", type=click.IntRange(1, 1000), default=10, show_default=True, help="Number of fillers to print.")
@click.option("--words", type=options.TEXT, help="Compare the probabilities of these words instead: her/his")
@options.checkpoint
def fill(run: Path, text: str, pieces: int, best: int, words: str | None, checkpoint: str | None) -> None:
    """Fill the blank ___ in TEXT with the masked-language model in RUN."""
    choices = words.split("/") if words is not None else []
    if words is not None:
        source = click.get_current_context().get_parameter_source
        if len([word for word in choices if word.strip()]) < max(2, len(choices)):
            what = "has fewer than two words" if len(choices) < 2 else "has an empty word"
            raise UserError(what, f"--words {words}", "separate words by /, as in her/his")
        if given := [name for name in ("pieces", "best") if source(name) is not ParameterSource.DEFAULT]:
            raise UserError("has no effect with --words", f"--{given[0]}", "leave it out")
    from s2s.run.folder import open_run

    model = open_run(run, tasks=["masked-lm"])
    from s2s.models.masked_lm import MaskedLM
    from s2s.run.inference import load_for_inference
    from s2s.tasks.masked_lm.filling import fill as find_fillers
    from s2s.tasks.masked_lm.filling import fill_warnings, weigh_words
    from s2s.tasks.masked_lm.recipe import MaskedRecipe

    loaded = load_for_inference(model, checkpoint).narrow(MaskedRecipe, MaskedLM)
    network, tokenizer, begin = loaded.model, loaded.tokenizers[0], loaded.recipe.masking.begin
    if choices:
        found: object = weigh_words(network, tokenizer, text, choices, begin)
    else:
        found = find_fillers(network, tokenizer, text, begin, pieces, best)
    click.echo(printable(str(found)))
    for warning in fill_warnings(text, tokenizer, loaded.recipe.batches.max_length):
        click.echo(warning, err=True)
