"""`s2s classify`."""

from pathlib import Path

import click

from s2s.cli.output import check_output, lines_to
from s2s.errors import quoted


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
    from s2s.run.tasks import check_task, task_of_run

    if task_of_run(run) != "images":
        check_task(run, "classification", {"translation": f"s2s translate {quoted(run)}"})
    check_output(output)
    from s2s.cli.runs import classify_file

    with lines_to(output) as write:
        for line in classify_file(run, source, probabilities, checkpoint):
            write(line)
