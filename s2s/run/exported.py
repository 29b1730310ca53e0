"""`export.json`: the format of an exported model and the digests of its files."""

import json
from pathlib import Path

from pydantic import BaseModel

from s2s.errors import UserError
from s2s.files import EXPORTED, sha256_of, write_atomically
from s2s.json_files import read_json

# Files that determine the output; a model card and results that are written later do not.
_COMPUTED_WITH = (
    *("recipe.yaml", "manifest.json", "tokenizer/*", "model.safetensors", "pooler.safetensors"),
    *("model.bin", "config.json", "*_vocabulary.*", "*.spm", "onnx.json", "*.onnx*"),
)
_AGAIN = "restore the file, or export the run again"


class Exported(BaseModel):
    """Contents of `export.json`.

    Attributes:
        format: `hub`, `ctranslate2`, `onnx`, or `published` for converted published weights.
        checkpoint: Name of the exported checkpoint.
        files: SHA-256 of each file that the model needs, by its path in the folder.
    """

    format: str
    checkpoint: str
    quantization: str
    files: dict[str, str]


def seal(folder: Path, to: str, checkpoint: str, quantization: str = "float32") -> None:
    """Write `export.json` with the digests of the exported files.

    Args:
        checkpoint: Name of the exported checkpoint.
    """
    files = {path.relative_to(folder).as_posix(): sha256_of(path) for path in _needed(folder)}
    described = Exported(format=to, checkpoint=checkpoint, quantization=quantization, files=files)
    write_atomically(folder / EXPORTED, json.dumps(described.model_dump(), indent=1) + "\n")


def check_files(folder: Path) -> None:
    """Verify the files of an exported model against the digests in `export.json`.

    Raises:
        UserError: A file has changed, is missing, or has no digest.
    """
    digests = read_json(folder / EXPORTED, Exported, "export the run again").files
    for path in _needed(folder):
        if path.relative_to(folder).as_posix() not in digests:
            raise UserError(f"has no digest in {EXPORTED}", str(path), "delete it, or export the run again")
    for name, digest in digests.items():
        path = folder / name
        if not path.exists():
            raise UserError("is missing", str(path), _AGAIN)
        if sha256_of(path) != digest:
            raise UserError("has changed since it was exported", str(path), _AGAIN)


def _needed(folder: Path) -> list[Path]:
    return sorted({path for pattern in _COMPUTED_WITH for path in folder.glob(pattern) if not path.is_dir()})
