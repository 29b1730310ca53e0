"""Runs, and published weights, on the Hugging Face hub: `hf:USER/NAME` in the place of a folder."""

from pathlib import Path

from s2s.errors import UserError
from s2s.run.published import FILES, as_run, is_published

PREFIX = "hf:"
# of an export for the hub: all that is needed to use it, whatever else lies beside it
_FILES = ("recipe.yaml", "tokenizer/*", "model.safetensors", "pooler.safetensors", "manifest.json", "export.json")


def is_on_hub(path: Path | str) -> bool:
    """Whether a path names something on the hub."""
    return str(path).startswith(PREFIX)


def resolve_run_path(path: Path | str) -> Path:
    """The folder of the run that a path names: itself, or, of `hf:USER/NAME` or `hf:USER/NAME@REVISION`, its copy here.

    Of weights that others have published, that of a run that was made of them. Only what is needed is fetched, and
    nothing that is here already; with HF_HUB_OFFLINE=1, nothing at all.

    Raises:
        UserError: there is nothing of that name, or it can neither be fetched nor is it here.
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
