"""Command `s2s inspect`: attention, saliency and word alignments."""

from pathlib import Path
from typing import IO

import click

from s2s.cli import options
from s2s.cli.lines import BadLines, announce_waiting, check_output, chunks, write_all
from s2s.errors import UserError, printable
from s2s.files import write_atomically

_PICTURES = (".png", ".svg", ".pdf")
_LINES_AT_ONCE = 64
_DEFAULT = click.core.ParameterSource.DEFAULT


@options.command(
    epilog=options.examples(
        "s2s inspect runs/translate 'The dog sleeps.' --output page.html",
        "s2s inspect runs/translate --align --input lines.txt --reference reference.txt",
    )
)
@options.run
@click.argument("inputs", type=options.TEXT, nargs=-1, metavar="[INPUT] [INPUT]")
@click.option(
    "--output",
    type=options.FILE,
    help="Write a page (.html), a picture (.png, .svg, .pdf) or all numbers (.json); with --align, the alignments.",
)
@click.option("--layer", type=click.IntRange(0), help="Layer, from 0; default: the last.")
@click.option(
    "--head",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Head whose queries, keys and values are shown.",
)
@click.option(
    "--word",
    help="Word whose query, key and value are shown, or a patch of an image: row,column; default: the longest or most "
    "ambiguous word.",
)
@click.option("--translation", type=options.TEXT, help="Translation to inspect; default: the model's own.")
@click.option("--task", help="Task of a text-to-text RUN.")
@click.option("--row", type=click.IntRange(1), help="Without INPUT: example of the test set, from 1; default: 1.")
@click.option(
    "--align", is_flag=True, help="Print word alignments of --input by attention instead: 0-0 1-2 (Pharaoh format)."
)
@options.source(help="With --align: file with one sentence per line; default: standard input.")
@click.option(
    "--reference",
    type=options.FILE,
    help="With --align: translations of --input, line by line; default: the model's own.",
)
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
    align: bool,
    source: IO[bytes],
    reference: Path | None,
    checkpoint: str | None,
) -> None:
    """Show attention, queries, keys, values and saliency of the model in RUN.

    INPUT is a text or, if RUN reads images, a file; default: an example of the test set. Two texts with a word in
    common show how its vectors differ. With --align, print one line per sentence: 0-0 2-1 aligns target word 0 with
    source word 0, and target word 1 with source word 2.
    """
    check_output(output)
    context = click.get_current_context()
    given = {name for name in context.params if context.get_parameter_source(name) is not _DEFAULT}
    used = {"run", "output", "layer", "checkpoint", "align", "source", "reference"}
    if wrong := sorted(given - used if align else given & {"source", "reference"}):
        names = {"inputs": "INPUT", "source": "--input"}
        listed = ", ".join(names.get(name, f"--{name}") for name in wrong)
        remedy = "align the lines of a file: --input FILE" if "inputs" in wrong else "leave it out"
        raise UserError(f"has no effect {'with' if align else 'without'} --align", listed, remedy)
    if align:
        _align(run, source, reference, output, layer, checkpoint)
        return
    _check(output, inputs, row)
    from s2s.run.folder import open_run

    model = open_run(run)
    from s2s.inspection.inspection import InspectionRequest, check_request

    example = 0 if row is None else row - 1
    focus = InspectionRequest(inputs, None, example, translation, -1 if layer is None else layer, head, word, task=task)
    check_request(focus, model.recipe.task)
    from s2s.run.inference import inspect_input

    found = inspect_input(model, focus, checkpoint)
    if output is not None:
        if output.suffix == ".html":
            from s2s.inspection.page import page

            content: str | bytes = page(found)
        elif output.suffix == ".json":
            content = found.to_json()
        else:
            from s2s.inspection.figure import inspection_picture
            from s2s.training.figures import render_figure

            content = render_figure(inspection_picture(found, focus), output.suffix[1:])
        write_atomically(output, content, follow=True)
    click.echo(printable(str(found)))
    if output is not None:
        click.echo(f"wrote {output}", err=True)


def _align(
    run: Path, source: IO[bytes], reference: Path | None, output: Path | None, layer: int | None, checkpoint: str | None
) -> None:
    from s2s.run.folder import open_run

    translator = open_run(run, tasks=["translation"])
    targets = None
    if reference is not None:
        from s2s.data.text_files import check_there, lines

        check_there(reference)
        targets = lines(reference)
    prompt = announce_waiting(run, source)
    from s2s.models.base import Seq2Seq
    from s2s.run.inference import load_for_inference
    from s2s.tasks.translation.diagnosis import align_lines
    from s2s.tasks.translation.recipe import Recipe

    bad = BadLines()
    arriving = chunks(source, _LINES_AT_ONCE, bad, prompt)
    loaded = load_for_inference(translator, checkpoint).narrow(Recipe, Seq2Seq)
    write_all(align_lines(loaded, arriving, bad.refuse, targets, -1 if layer is None else layer), output, bad)


def _check(output: Path | None, inputs: tuple[str, ...], row: int | None) -> None:
    known = (".html", *_PICTURES, ".json")
    if output is not None and output.suffix not in known:
        raise UserError(
            f"unknown file name extension {output.suffix!r}", where=f"--output {output}", remedy=", ".join(known)
        )
    if row is not None and inputs:
        raise UserError("selects a test example, but INPUT is given", f"--row {row}", "leave one of them out")
