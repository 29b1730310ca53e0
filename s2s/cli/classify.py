"""Command `s2s classify`: classify lines of text, or images."""

from pathlib import Path
from typing import IO

import click

from s2s.cli import options
from s2s.cli.lines import BadLines, announce_waiting, check_output, chunks, write_all

_LINES_AT_ONCE = 10_000


@options.command(
    epilog=options.examples(
        "s2s classify runs/classes 'A dog sleeps.'", "s2s classify runs/classes --input lines.txt --probabilities"
    )
)
@options.run
@options.texts
@options.source(help="Without TEXT: file with one text or image path per line; default: standard input.")
@options.output
@click.option("--probabilities", is_flag=True, help="Print the probability of each class, too: TAB name=0.1234.")
@options.checkpoint
@options.quiet
def classify(
    run: Path,
    texts: tuple[str, ...],
    source: IO[bytes],
    output: Path | None,
    probabilities: bool,
    checkpoint: str | None,
    quiet: bool,
) -> None:
    """Classify each TEXT, or the lines of the input, with the model in RUN. Empty lines stay empty.

    A line is a text or, if RUN was trained on images, the path of an image. One that cannot be read has an empty answer
    and a message; the exit status is then 1.
    """
    from s2s.run.folder import open_run

    options.check_texts(texts)
    classifier = open_run(run, tasks=["classification", "images"])
    check_output(output)
    prompt = announce_waiting(run, source, texts)
    from s2s.models.base import Classifier
    from s2s.recipe.labelled import LabelledRecipe
    from s2s.run.inference import load_for_inference
    from s2s.run.tasks import classification_task
    from s2s.tasks.classification_base import classify_lines

    loaded = load_for_inference(classifier, checkpoint).narrow(LabelledRecipe, Classifier)
    bad, tell = BadLines(), options.printer(quiet, err=True)
    arriving = [list(texts)] if texts else chunks(source, _LINES_AT_ONCE, bad, prompt)
    found = classify_lines(
        classification_task(loaded.recipe), loaded, arriving, probabilities, bad.refuse, source.isatty(), tell
    )
    write_all(found, output, bad)
