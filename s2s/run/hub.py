"""Runs, and published weights, on the Hugging Face hub: `hf:USER/NAME` in the place of a folder."""

from collections.abc import Sequence
from pathlib import Path

from s2s.errors import UserError

PREFIX = "hf:"
# of an export for the hub: all that is needed to use it, whatever else lies beside it
_FILES = ("recipe.yaml", "tokenizer/*", "model.safetensors", "manifest.json", "export.json")


def is_on_hub(path: Path | str) -> bool:
    """Whether a path names something on the hub."""
    return str(path).startswith(PREFIX)


def located(path: Path | str, files: Sequence[str] = _FILES) -> Path:
    """The folder of what a path names: itself, or, of `hf:USER/NAME` or `hf:USER/NAME@REVISION`, its copy here.

    Only the named files are fetched, and none that is here already. With HF_HUB_OFFLINE=1, nothing is.

    Raises:
        UserError: there is nothing of that name, or it can neither be fetched nor is it here.
    """
    if not is_on_hub(path):
        return Path(path)
    name, _, revision = str(path).removeprefix(PREFIX).partition("@")
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    cache = constants.HF_HUB_CACHE
    try:
        return Path(snapshot_download(name, revision=revision or None, cache_dir=cache, allow_patterns=list(files)))
    except HFValidationError as error:
        raise UserError(f"is no name of the hub: {error!s:.200}", str(path), "write hf:USER/NAME") from None
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        what = f"cannot be fetched: {str(error).splitlines()[0]:.200}"
        raise UserError(
            what, str(path), "look at the name, the network and HF_TOKEN, or name a folder that it was copied to"
        ) from None
