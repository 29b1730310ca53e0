"""Command `s2s export`: export a run to CTranslate2, ONNX or the hub."""

from pathlib import Path
from typing import cast

import click

from s2s.cli import options

_QUANTIZATIONS = ("int8", "int8_float32", "int16", "float16", "bfloat16", "float32")


@options.command(
    epilog=options.examples(
        "s2s export runs/translate --to ctranslate2 --quantization int8 --output translate-int8",
        "s2s export runs/translate --to hub --output translate-hub",
    )
)
@options.run
@click.option("--to", "to", type=click.Choice(["ctranslate2", "onnx", "hub"]), required=True, help="Format.")
@click.option("--output", type=options.FILE, required=True, help="Folder to create.")
@click.option(
    "--quantization", type=click.Choice(_QUANTIZATIONS), help="Number type for CTranslate2; default: float32."
)
@click.option("--overwrite", is_flag=True, help="Replace an existing export, including your edits.")
@options.checkpoint
def export(run: Path, to: str, output: Path, quantization: str | None, overwrite: bool, checkpoint: str | None) -> None:
    """Export the model in RUN to CTranslate2, ONNX, or a folder for the hub.

    The hub is the Hugging Face hub. The export is checked: ONNX graphs must compute what the model computes, within
    10⁻⁴. docs/export.md shows how to load it.
    """
    from s2s.export.exportable import Format
    from s2s.export.folder import export as write
    from s2s.run.folder import open_run

    click.echo(write(open_run(run), cast(Format, to), output, quantization, checkpoint, overwrite))
