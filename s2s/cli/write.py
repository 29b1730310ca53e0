"""What a language model writes: `generate`."""

import itertools
from functools import partial
from pathlib import Path

import click

from s2s.cli import options
from s2s.cli.lines import BadLines, check_output, chunks, lines_to, show_text, told_to_wait
from s2s.cli.numbers import Number
from s2s.errors import UserError

_BY_DEFAULT = click.core.ParameterSource.DEFAULT


@options.command()
@options.run
@click.argument("prompt", type=options.TEXT, required=False)
@options.source(help="Without PROMPT: a prompt a line; standard input if absent.")
@options.output
@click.option(
    "--temperature", type=Number(0, 100), default=1.0, show_default=True, help="0: always the most probable piece."
)
@click.option("--top-k", type=click.IntRange(1), help="Draw from so many of the most probable pieces.")
@click.option(
    "--top-p",
    type=Number(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="Draw from the most probable pieces that together have so much of the probability.",
)
@click.option("--max-tokens", type=click.IntRange(1, 1_000_000), default=200, show_default=True, help="Pieces at most.")
@click.option("--count", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Texts for each prompt.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=1, show_default=True, help="Seed of the drawing.")
@options.checkpoint
def generate(
    run: Path,
    prompt: str | None,
    source,
    output: Path | None,
    temperature: float,
    top_k: int | None,
    top_p: float,
    max_tokens: int,
    count: int,
    seed: int,
    checkpoint: str | None,
) -> None:
    """Continue PROMPT with the language model in RUN, to the end of the document; '' begins a document.

    Without PROMPT, each line of the input is continued; an empty line begins a document. Text appears as it is written.
    With several texts, each is a line, in which spaces stand for line ends.
    """
    from s2s.run.folder import opened

    if prompt is not None and click.get_current_context().get_parameter_source("source") is not _BY_DEFAULT:
        raise UserError("PROMPT is what is gone on with", "--input", "leave one of them out")
    model = opened(run, tasks=["language-model"])
    check_output(output)
    wait = told_to_wait(run, source) if prompt is None else lambda: None
    from s2s.decoding.translator import one_line
    from s2s.run.loaded import ready
    from s2s.tasks.language_model.generation import Sampling, Writing, answers, generated, growing, too_long_prompts

    loaded = ready(model, checkpoint)
    asked = Writing(Sampling(temperature, top_k, top_p), max_tokens, count, seed)
    tell = partial(click.echo, err=True)
    if prompt is not None and count == 1 and output is None:
        show_text(itertools.chain(growing(loaded, prompt, asked), ["\n"]))
        too_long_prompts(loaded, True, tell).add(len(loaded.tokenizers[0].encode(prompt)))
        return
    if prompt is not None:
        with lines_to(output) as write:
            for text in generated(loaded, prompt, asked):
                write(text if count == 1 else one_line(text))
        too_long_prompts(loaded, True, tell).add(len(loaded.tokenizers[0].encode(prompt)))
        return
    bad = BadLines()
    with lines_to(output) as write:
        for text in answers(loaded, chunks(source, 1, bad, wait), asked, bad.refuse, source.isatty(), tell):
            write(text)
    bad.exit()
