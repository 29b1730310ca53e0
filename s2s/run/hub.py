"""Runs and published weights on the Hugging Face hub, named `hf:USER/NAME`."""

from pathlib import Path

from s2s.errors import UserError
from s2s.run.published import FILES, as_run, is_published

PREFIX = "hf:"
# Files of an export for the hub that are needed to use the run; other files are not downloaded.
_FILES = ("recipe.yaml", "tokenizer/*", "model.safetensors", "pooler.safetensors", "manifest.json", "export.json")


def is_on_hub(path: Path | str) -> bool:
    """Return True for a path of the form `hf:USER/NAME`.

    Example:
        >>> is_on_hub("hf:google-bert/bert-base-uncased"), is_on_hub("runs/translate")
        (True, False)
    """
    return str(path).startswith(PREFIX)


def resolve_run_path(path: Path | str) -> Path:
    """Return the local folder of a run, and download it from the hub if needed.

    Only the needed files are downloaded, and cached files are reused. With HF_HUB_OFFLINE=1 nothing is downloaded.
    Published weights are converted to a run first.

    Args:
        path: A folder, `hf:USER/NAME` or `hf:USER/NAME@REVISION`.

    Raises:
        UserError: The name does not exist, or the files are neither cached nor can be downloaded.
    """
    folder = _fetched(path) if is_on_hub(path) else Path(path)
    return as_run(folder) if is_published(folder) else folder


def _fetched(path: Path | str) -> Path:
    name, _, revision = str(path).removeprefix(PREFIX).partition("@")
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    cache, wanted = constants.HF_HUB_CACHE, [*_FILES, *FILES]
    try:
        return Path(snapshot_download(name, revision=revision or None, cache_dir=cache, allow_patterns=wanted))
    except HFValidationError as error:
        raise UserError(f"is no name of the hub: {error!s:.200}", str(path), "write hf:USER/NAME") from None
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        what = f"cannot be fetched: {str(error).splitlines()[0]:.200}"
        raise UserError(
            what, str(path), "look at the name, the network and HF_TOKEN, or name a folder that it was copied to"
        ) from None
