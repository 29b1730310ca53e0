"""Command `s2s caption`: caption images."""

from pathlib import Path

import click

from s2s.cli import options
from s2s.cli.lines import BadLines, check_output, write_all


@options.command(
    epilog=options.examples(
        "s2s caption runs/captioning image.png", "s2s caption runs/captioning image.png --attention words.png"
    )
)
@options.run
@click.argument("images", nargs=-1, required=True, type=options.FILE, metavar="IMAGE...")
@options.output
@options.beam
@click.option("--attention", type=options.FILE, help="Draw the attention of each word to this file: .png or .html.")
@options.checkpoint
def caption(
    run: Path,
    images: tuple[Path, ...],
    output: Path | None,
    beam: int | None,
    attention: Path | None,
    checkpoint: str | None,
) -> None:
    """Caption each IMAGE with the model in RUN, one line each.

    With several images, the path and a tab come before each caption.
    """
    from s2s.run.folder import open_ensemble

    captioner = open_ensemble(run, [f"decoding.beam={beam}"] if beam else [], ["captioning"])
    options.check_beam(captioner.recipe, beam)
    check_output(output)
    check_output(attention, "--attention")
    from s2s.models.base import Seq2Seq
    from s2s.run.inference import load_for_inference
    from s2s.tasks.captioning.figures import caption_files, check_ending
    from s2s.tasks.captioning.recipe import CaptionRecipe

    if attention:
        check_ending(attention)
    from s2s.decoding.generate import one_line

    bad = BadLines("image")
    loaded = load_for_inference(captioner, checkpoint).narrow(CaptionRecipe, Seq2Seq)
    found = caption_files(loaded, images, attention is not None, bad.refuse)
    if attention and len(found.refused) < len(images):
        found.save(attention)
    if found.length_limited:
        click.echo(str(found.length_limited), err=True)
    several = len(images) > 1
    lines = zip(map(str, images), found.captions, strict=True)
    write_all((one_line(f"{name}\t{text}" if several else text) for name, text in lines), output, bad)
