"""Runs on the Hugging Face hub (`hf:USER/NAME`), and conversion of published weights to runs."""

import hashlib
import json
import os
import sys
from importlib import import_module
from pathlib import Path

from s2s.errors import UserError
from s2s.files import sha256_of, write_folder_atomically
from s2s.run.exported import check_files, seal
from s2s.run.published.description import AGAIN, CONFIG, HUB, read_object
from s2s.run.tasks import read, task_of

FILES = (
    *(CONFIG, "model.safetensors", "pytorch_model.bin", "source.spm", "target.spm", "vocab.json", "vocab.txt"),
    *("tokenizer.json", "tokenizer_config.json"),
)
"""Files of a model on the hub that are read."""
# Files of a run that was exported to the hub; others are not downloaded.
_RUN_FILES = ("recipe.yaml", "tokenizer/*", "model.safetensors", "pooler.safetensors", "manifest.json", "export.json")
_KINDS = ("marian", "bert")
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
# Version of the conversion; increase it to convert cached models again.
_VERSION = 2


def local_run(path: str) -> Path:
    """Return the local folder of a run; download it from the hub and convert published weights if needed.

    Only the needed files are downloaded, and cached files are reused. With HF_HUB_OFFLINE=1 nothing is downloaded.

    Args:
        path: A folder, `hf:USER/NAME` or `hf:USER/NAME@REVISION`.

    Raises:
        UserError: The name does not exist, or the files are neither cached nor can be downloaded.
    """
    folder = _download(path) if path.startswith(HUB) else Path(path)
    is_run = (folder / "recipe.yaml").exists() or not (folder / CONFIG).is_file()
    return folder if is_run else convert_to_run(folder)


def _download(path: str) -> Path:
    name, _, revision = path.removeprefix(HUB).partition("@")
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    cache, wanted = constants.HF_HUB_CACHE, [*_RUN_FILES, *FILES]
    try:
        return Path(snapshot_download(name, revision=revision or None, cache_dir=cache, allow_patterns=wanted))
    except HFValidationError as error:
        raise UserError(f"is not a name on the hub: {error!s:.200}", path, "write hf:USER/NAME") from None
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        what = f"cannot be downloaded: {str(error).splitlines()[0]:.200}"
        raise UserError(what, path, "check the name, the network and HF_TOKEN, or name a folder with a copy") from None


def convert_to_run(folder: Path) -> Path:
    """Convert published weights to a checkpoint, and cache it.

    The cache key is a digest of all files read. A cached copy that has changed is created again.

    Args:
        folder: Folder with the published files.

    Returns:
        The folder of the checkpoint, in the user's cache.

    Raises:
        UserError: The model type is not supported, or a file is missing or damaged.
    """
    config = read_object(folder / CONFIG)
    kind = config.get("model_type")
    if kind not in _KINDS:
        raise UserError(
            f"has a model of unsupported type {kind!r:.60}", str(folder / CONFIG), f"s2s reads {' and '.join(_KINDS)}"
        )
    weights = next((folder / name for name in _WEIGHTS if (folder / name).exists()), None)
    if weights is None:
        raise UserError(f"has no weights: neither {' nor '.join(_WEIGHTS)}", str(folder), "download the whole model")
    there = [name for name in FILES if (folder / name).exists()]
    contents = json.dumps([_VERSION, [(name, sha256_of(folder / name)) for name in there]])
    place = _cache() / f"{kind}-{hashlib.sha256(contents.encode()).hexdigest()[:16]}"
    if place.exists():
        try:
            check_files(place)
            return place
        except UserError as error:
            print(f"{error.where}: {error.what}; converting {folder} again", file=sys.stderr)
    place.parent.mkdir(parents=True, exist_ok=True)
    with write_folder_atomically(place) as temporary:
        temporary.mkdir()
        try:
            import_module(f"s2s.run.published.{kind}").convert(folder, config, weights, temporary)
            _check_shapes(temporary, weights)
        except (IndexError, RuntimeError) as error:
            # torch's message about tensors whose shapes do not match the description.
            what = f"tensors do not fit {CONFIG}: {str(error).splitlines()[0]:.200}"
            raise UserError(what, str(weights), AGAIN) from None
        seal(temporary, "published", weights.name)
    return place


def _check_shapes(place: Path, weights: Path) -> None:
    """Refuse a converted model whose tensor shapes do not match its recipe."""
    import torch

    from s2s.data.tokenizers import Tokenizer
    from s2s.training.tensor_files import read_tensors

    recipe = read(place / "recipe.yaml")
    task = task_of(recipe)
    tokenizers = tuple(Tokenizer.load(place / "tokenizer", name) for name in recipe.tokenizer_names)
    with torch.random.fork_rng(devices=[]):
        wanted = {name: tuple(p.shape) for name, p in task.build(recipe, tokenizers).named_parameters()}
    for name, tensor in read_tensors(place / "model.safetensors").items():
        if name in wanted and tuple(tensor.shape) != wanted[name]:
            what = f"tensors do not fit {CONFIG}: {name} (converted) is {tuple(tensor.shape)}, not {wanted[name]}"
            raise UserError(what, str(weights), AGAIN)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "s2s" / "published"
