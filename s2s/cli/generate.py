"""Command `s2s generate`: continue a text with a language model."""

import itertools
from functools import partial
from pathlib import Path
from typing import IO

import click

from s2s.cli import options
from s2s.cli.lines import BadLines, announce_waiting, check_output, chunks, lines_to, show_text
from s2s.errors import UserError

_BY_DEFAULT = click.core.ParameterSource.DEFAULT


@options.command(
    epilog=options.examples(
        "s2s generate runs/language 'The dog' --max-tokens 20",
        "s2s generate runs/language 'The dog' --temperature 0.8 --top-p 0.9 --count 3 --max-tokens 20",
    )
)
@options.run
@click.argument("prompt", type=options.TEXT, required=False)
@options.source(help="Without PROMPT: file with one prompt per line; default: standard input.")
@options.output
@click.option(
    "--temperature",
    type=options.Number(0, 100),
    default=1.0,
    show_default=True,
    help="Sampling temperature; 0 is greedy search.",
)
@click.option("--top-k", type=click.IntRange(1), help="Sample from the K most probable tokens.")
@click.option(
    "--top-p",
    type=options.Number(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="Sample from the most probable tokens with this total probability (nucleus sampling).",
)
@click.option(
    "--max-tokens", type=click.IntRange(1, 1_000_000), default=200, show_default=True, help="Maximum number of tokens."
)
@click.option("--count", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Texts per prompt.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=1, show_default=True, help="Seed of the sampling.")
@options.checkpoint
def generate(
    run: Path,
    prompt: str | None,
    source: IO[bytes],
    output: Path | None,
    temperature: float,
    top_k: int | None,
    top_p: float,
    max_tokens: int,
    count: int,
    seed: int,
    checkpoint: str | None,
) -> None:
    """Continue PROMPT with the language model in RUN, up to the end of the document.

    An empty PROMPT ('') starts a document. Without PROMPT, continue each line of the input; an empty line starts a
    document. Text is printed while it is generated. With several texts per prompt, each is one line, with spaces
    instead of line breaks.
    """
    from s2s.run.folder import open_run

    if prompt is not None and click.get_current_context().get_parameter_source("source") is not _BY_DEFAULT:
        raise UserError("PROMPT and --input exclude each other", "--input", "leave one of them out")
    model = open_run(run, tasks=["language-model"])
    check_output(output)
    wait = announce_waiting(run, source) if prompt is None else lambda: None
    from s2s.decoding.generate import one_line
    from s2s.models.language_model import LanguageModel
    from s2s.run.inference import load_for_inference
    from s2s.tasks.language_model.generation import (
        PromptWarnings,
        Sampling,
        Writing,
        answers,
        generate_texts,
        grow_text,
    )
    from s2s.tasks.language_model.recipe import LanguageRecipe

    loaded = load_for_inference(model, checkpoint).narrow(LanguageRecipe, LanguageModel)
    asked = Writing(Sampling(temperature, top_k, top_p), max_tokens, count, seed)
    tell = partial(click.echo, err=True)
    if prompt is not None and count == 1 and output is None:
        show_text(itertools.chain(grow_text(loaded, prompt, asked), ["\n"]))
        PromptWarnings(loaded, True, tell).add(prompt)
        return
    if prompt is not None:
        with lines_to(output) as write:
            for text in generate_texts(loaded, prompt, asked):
                write(text if count == 1 else one_line(text))
        PromptWarnings(loaded, True, tell).add(prompt)
        return
    bad = BadLines()
    with lines_to(output) as write:
        for text in answers(loaded, chunks(source, 1, bad, wait), asked, bad.refuse, source.isatty(), tell):
            write(text)
    bad.exit()
