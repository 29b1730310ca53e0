"""What goes on in a trained model: `inspect` shows one input or two, `align` the words of whole files."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from s2s.cli import options
from s2s.cli.lines import BadLines, check_output, chunks, lines_to, told_to_wait
from s2s.errors import UserError, printable
from s2s.files import write_atomically

if TYPE_CHECKING:
    from s2s.interpretability.inspection import Focus, Inspection

_PICTURES = (".png", ".svg", ".pdf")
_LINES_AT_ONCE = 64
_layer = click.option("--layer", type=click.IntRange(0), help="From 0; the last if absent.")


@options.command()
@options.run
@click.argument("inputs", type=options.TEXT, nargs=-1, metavar="[INPUT] [INPUT]")
@click.option(
    "--output", type=options.FILE, help="A page (.html), a picture (.png, .svg, .pdf) or all numbers (.json)."
)
@_layer
@click.option("--head", type=click.IntRange(0), default=0, show_default=True, help="Whose q, k and v are shown.")
@click.option(
    "--word",
    help="Whose q, k and v are shown; a patch of an image: row,column. The longest or most ambiguous if absent.",
)
@click.option(
    "--translation",
    type=options.TEXT,
    help="A translation to look into; the model's own if absent.",
)
@click.option("--task", help="Which task a text-to-text run shall do.")
@click.option("--row", type=click.IntRange(1), help="Example of the test set, without INPUT; the first if absent.")
@options.checkpoint
def inspect(
    run: Path,
    inputs: tuple[str, ...],
    output: Path | None,
    layer: int | None,
    head: int,
    word: str | None,
    translation: str | None,
    task: str | None,
    row: int | None,
    checkpoint: str | None,
) -> None:
    """Look into the model in RUN while it reads INPUT, or an example of its test set: where it looks, and why.

    INPUT is a text or, where RUN reads images, a file. Two texts with a word in common show how it differs in them.
    """
    _check(output, inputs, translation, row)
    from s2s.run.folder import opened

    model = opened(run)
    if translation is not None and model.recipe.task != "translation":
        raise UserError(f"a run of task {model.recipe.task} translates nothing", "--translation", "leave it out")
    if task is not None and model.recipe.task != "text-to-text":
        raise UserError(f"a run of task {model.recipe.task} does that alone", "--task", "leave it out")
    from s2s.interpretability.inspection import Focus
    from s2s.run.loaded import look_into

    example = 0 if row is None else row - 1
    focus = Focus(inputs, None, example, translation, -1 if layer is None else layer, head, word, task=task)
    found = look_into(model, focus, checkpoint)
    if output is not None:
        write_atomically(output, _as_file(found, focus, output.suffix), follow=True)
    click.echo(printable(str(found)))


def _as_file(found: "Inspection", focus: "Focus", ending: str) -> str | bytes:
    """What a file of that ending holds."""
    if ending == ".html":
        from s2s.interpretability.page import page

        return page(found)
    if ending == ".json":
        return found.to_json()
    from s2s.interpretability.figure import inspection_picture
    from s2s.training.drawing import drawn

    return drawn(inspection_picture(found, focus), ending[1:])


def _check(output: Path | None, inputs: tuple[str, ...], translation: str | None, row: int | None) -> None:
    check_output(output)
    known = (".html", *_PICTURES, ".json")
    if output is not None and output.suffix not in known:
        raise UserError(
            f"{output.suffix or 'no ending'} is not known", where=f"--output {output}", remedy=", ".join(known)
        )
    if len(inputs) > 2:
        raise UserError(f"there are {len(inputs)} inputs", "INPUT", "give one or two, each in quotes")
    if translation is not None and len(inputs) != 1:
        raise UserError("is of one sentence", "--translation", "give one INPUT")
    if row is not None and inputs:
        raise UserError("is of the test set, but there is an INPUT", f"--row {row}", "leave one of them out")


@options.command()
@options.run
@options.source(help="A sentence a line; standard input if absent.")
@click.option(
    "--reference", type=options.FILE, help="Translations of the sentences, line by line; the model's own if absent."
)
@options.output
@_layer
@options.checkpoint
def align(
    run: Path, source, reference: Path | None, output: Path | None, layer: int | None, checkpoint: str | None
) -> None:
    """Say which source word each target word comes from, by attention: 0-0 1-2, a line each (Pharaoh's format)."""
    from s2s.run.folder import opened

    translator = opened(run, tasks=["translation"])
    check_output(output)
    targets = None
    if reference is not None:
        from s2s.data.text_files import check_there, lines

        check_there(reference)
        targets = lines(reference)
    prompt = told_to_wait(run, source)
    from s2s.run.loaded import ready
    from s2s.tasks.translation.attention import aligned

    bad = BadLines()
    arriving, loaded = chunks(source, _LINES_AT_ONCE, bad, prompt), ready(translator, checkpoint)
    with lines_to(output) as write:
        for line in aligned(loaded, arriving, bad.refuse, targets, -1 if layer is None else layer):
            write(line)
    bad.exit()
