"""`s2s export`: a run as other engines and other people's hands take it."""

from pathlib import Path
from typing import cast

import click

from s2s.cli import options

_QUANTIZATIONS = ("int8", "int8_float32", "int16", "float16", "bfloat16", "float32")


@options.command()
@options.run
@click.option("--to", "to", type=click.Choice(["ctranslate2", "onnx", "hub"]), required=True, help="What to write for.")
@click.option("--output", type=options.FILE, required=True, help="Folder to make.")
@click.option(
    "--quantization", type=click.Choice(_QUANTIZATIONS), help="Number type for CTranslate2; float32 if absent."
)
@click.option("--overwrite", is_flag=True, help="Replace an export, and what was edited in it.")
@options.checkpoint
def export(run: Path, to: str, output: Path, quantization: str | None, overwrite: bool, checkpoint: str | None) -> None:
    """Write the model in RUN for CTranslate2, for ONNX, or as a folder for the Hugging Face hub."""
    from s2s.export.exportable import Format
    from s2s.export.folder import export as write
    from s2s.run.folder import opened

    click.echo(write(opened(run), cast(Format, to), output, quantization, checkpoint, overwrite))
