"""`s2s translate`."""

from pathlib import Path

import click

from s2s.cli.lines import check_output, chunks, lines_to, told_to_wait

# how many lines are read ahead, in batches
_BATCHES = 50


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--input", "source", type=click.File("rb"), default="-", help="Lines to translate; standard input if absent."
)
@click.option("--output", type=click.Path(path_type=Path), help="Where to; standard output if absent.")
@click.option("--beam", type=click.IntRange(1), help="Hypotheses kept at each step; the recipe's by default.")
@click.option("--nbest", type=click.IntRange(1), default=1, help="Translations a line: number, score, text.")
@click.option("--length-penalty", type=click.FloatRange(0), help="Exponent of the length penalty.")
@click.option("--checkpoint", help="best, last, average or a number; the average if there is one, else the best.")
def translate(run: Path, source, output: Path | None, beam, nbest: int, length_penalty, checkpoint) -> None:
    """Translate lines with the model in RUN, in order; empty lines stay empty."""
    from s2s.run.opened import opened

    changes = {"beam": beam, "length_penalty": length_penalty}
    overrides = [f"decoding.{key}={value}" for key, value in changes.items() if value is not None]
    translator = opened(run, overrides, ["translation"])
    check_output(output)
    prompt = told_to_wait(run, source)
    from s2s.run.loaded import ready
    from s2s.tasks.translation.lines import translated

    loaded = ready(translator, checkpoint)
    arriving = chunks(source, loaded.recipe.decoding.batch * _BATCHES, prompt)
    with lines_to(output) as write:
        for line in translated(loaded, arriving, nbest, source.isatty(), lambda text: click.echo(text, err=True)):
            write(line)
