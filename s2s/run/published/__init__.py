"""Published weights as runs: what others have trained, under our names, so that every command takes it."""

import hashlib
import json
import os
from importlib import import_module
from pathlib import Path

from s2s.errors import UserError
from s2s.files import whole
from s2s.run.published.description import CONFIG, read_json

FILES = (
    *(CONFIG, "model.safetensors", "pytorch_model.bin", "source.spm", "target.spm", "vocab.json", "vocab.txt"),
    *("tokenizer.json", "tokenizer_config.json"),
)
"""Of a model on the hub, what is read."""
_KINDS = ("marian", "bert")
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
# of what is made here: another number makes it again
_VERSION = 1


def is_published(folder: Path) -> bool:
    """Whether a folder holds somebody's published weights, and is no run."""
    return (folder / CONFIG).is_file() and not (folder / "recipe.yaml").exists()


def as_run(folder: Path) -> Path:
    """A checkpoint of the same model, as ours are; made once, and kept in the user's cache.

    Raises:
        UserError: it is of a kind that s2s does not know, or something is missing or damaged.
    """
    config = read_json(folder / CONFIG)
    kind = config.get("model_type")
    if kind not in _KINDS:
        raise UserError(f"is a model of type {kind!r}", str(folder / CONFIG), f"s2s reads {' and '.join(_KINDS)}")
    weights = next((folder / name for name in _WEIGHTS if (folder / name).exists()), None)
    if weights is None:
        raise UserError(f"has no weights: neither {' nor '.join(_WEIGHTS)}", str(folder), "fetch the whole model")
    stat = weights.stat()
    name = json.dumps([_VERSION, str(folder.resolve()), config, stat.st_size, stat.st_mtime_ns])
    place = _cache() / f"{kind}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    if place.exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    with whole(place) as temporary:
        temporary.mkdir()
        try:
            import_module(f"s2s.run.published.{kind}").convert(folder, config, weights, temporary)
        except KeyError as error:
            raise UserError(f"a description of the model lacks {error}", str(folder), "fetch the model again") from None
    return place


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "s2s" / "published"
