"""`s2s classify`."""

from pathlib import Path
from typing import Any, cast

import click

from s2s.cli.lines import check_output, chunks, lines_to, told_to_wait

_LINES_AT_ONCE = 10_000


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--input", "source", type=click.File("rb"), default="-", help="One text or path a line; standard input if absent."
)
@click.option("--output", type=click.Path(path_type=Path), help="Where to; standard output if absent.")
@click.option("--probabilities", is_flag=True, help="Each class's probability beside the answer: TAB name=0.1234.")
@click.option("--checkpoint", help="best, last, average or a number; the average if there is one, else the best.")
def classify(run: Path, source, output: Path | None, probabilities: bool, checkpoint: str | None) -> None:
    """Name the class of each line with the model in RUN, in order; empty lines stay empty.

    A line is a text or, where RUN has learned from images, the path of an image.
    """
    from s2s.run.opened import opened

    classifier = opened(run, tasks=["classification", "images"])
    check_output(output)
    prompt = told_to_wait(run, source)
    from s2s.run.loaded import ready
    from s2s.run.tasks import task_of
    from s2s.tasks.labelled import Labelling, classified

    loaded, task = ready(classifier, checkpoint), cast(Labelling[Any, Any], task_of(classifier.recipe))
    with lines_to(output) as write:
        for line in classified(task, loaded, chunks(source, _LINES_AT_ONCE, prompt), probabilities):
            write(line)
