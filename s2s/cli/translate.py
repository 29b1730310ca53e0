"""`s2s translate`."""

from pathlib import Path

import click

from s2s.cli.output import check_output, lines_to
from s2s.errors import quoted


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
    from s2s.run.tasks import check_task

    check_task(run, "translation", {"classification": f"s2s classify {quoted(run)}"})
    check_output(output)
    from s2s.cli.runs import translate_file

    with lines_to(output) as write:
        for line in translate_file(run, source, {"beam": beam, "length_penalty": length_penalty}, nbest, checkpoint):
            write(line)
