"""Run manifest: versions, machine, seeds, and hashes of data and tokenizers."""

import hashlib
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import BaseModel, field_validator

from s2s.data.sources import TrainOverlap
from s2s.errors import UserError
from s2s.files import EXPORTED, LARGE_BYTES, write_atomically
from s2s.json_files import read_json
from s2s.models.base import count_parameters
from s2s.process import package_version
from s2s.recipe.schema import TrainRecipe
from s2s.run.folder import MANIFEST
from s2s.training.checkpoint import Checkpoints
from s2s.training.device import DeviceContext, parse_precision

if TYPE_CHECKING:
    from s2s.training.precision import PrecisionBenchmark

_PACKAGES = ("s2s", "torch", "numpy", "sacrebleu", "sentencepiece", "datasets", "pydantic", "safetensors")
# Folders of the repository, relative to the package, that results depend on.
_CODE = (".", "../baselines")


def describe(
    recipe: TrainRecipe,
    device_context: DeviceContext,
    model: torch.nn.Module,
    hashes: dict[str, str],
    counts: dict[str, int],
    overlaps: Sequence[TrainOverlap],
    measured: "PrecisionBenchmark | None" = None,
) -> dict[str, object]:
    """Describe the start of a run for its manifest, ready for JSON.

    Args:
        hashes: Hashes of data and tokenizers by name.
        counts: Numbers of examples by name.
        overlaps: Overlap of the training data with the other splits.
        measured: Benchmark that selected the precision; None if it was not measured.
    """
    data = recipe.data.model_dump()
    # The seed of the corpus, or of each corpus of a mixture.
    seed = data["seed"] if "seed" in data else {name: each["seed"] for name, each in data["corpora"].items()}
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": sys.argv,
        "python": platform.python_version(),
        "packages": {name: package_version(name) for name in _PACKAGES},
        "git": git_commit(),
        "platform": platform.platform(),
        "processor": processor_name(),
        "device": str(device_context),
        "gradients": asdict(measured) if measured else None,
        "threads": torch.get_num_threads(),
        "seeds": recipe.seeds.model_dump() | {"corpus": seed},
        "parameters": count_parameters(model),
        "hashes": hashes,
        "counts": counts,
        "train_overlaps": [asdict(overlap) for overlap in overlaps],
    }


def write(start: dict[str, object], path: Path) -> None:
    """Append a start to the manifest; a resumed run has several."""
    write_atomically(path, json.dumps([*read(path), start], indent=1))


def read(path: Path, begun: bool = False) -> list[dict]:
    """Read the starts of a run, oldest first; empty without a manifest.

    Args:
        begun: Raise a `UserError` if there is no start.
    """
    remedy = "restore it; it identifies the run's data"
    if path.exists():
        read_json(path, list[Start], remedy, LARGE_BYTES)
    # Read again as plain dictionaries, to keep other entries.
    starts = read_json(path, list[dict], remedy, LARGE_BYTES) if path.exists() else []
    if begun and not starts:
        raise UserError("is missing or empty", where=str(path), remedy=remedy)
    return starts


def train_overlap(path: Path, split: str, digest: Callable[[], str]) -> TrainOverlap | None:
    """Read how many examples of a split the run's training data contain.

    Args:
        split: `train`, `validation` or `test`.
        digest: Computes the digest of the examples that are scored.

    Returns:
        The counts; None if nothing overlaps, the run was started with another split, or it has no manifest.
    """
    try:
        starts = read(path)
        found = [TrainOverlap(**each) for each in starts[-1].get("train_overlaps", [])] if starts else []
    except (UserError, TypeError):
        # Scoring also works without a manifest.
        return None
    same = (each for each in found if each.split == split and each.seen and each.digest == digest())
    return next(same, None)


class Start(BaseModel):
    """Validated fields of a start, which resuming and exporting read."""

    started: str
    python: str
    packages: dict[str, str]
    git: dict[str, str | bool] | None
    device: str
    seeds: dict[str, Any]
    parameters: int
    hashes: dict[str, str]
    counts: dict[str, int]

    @field_validator("hashes")
    @classmethod
    def _of_training_data(cls, hashes: dict[str, str]) -> dict[str, str]:
        if "training_data" not in hashes:
            raise ValueError("has no training_data")
        return hashes


def training_device(folder: Path) -> str:
    """Return device, threads and precision of a run's last training.

    The newest checkpoint records them. For an export, the last start counts; for a run without a checkpoint, the
    first.

    Returns:
        The description; empty for published weights and a new run.
    """
    if noted := Checkpoints(folder).device():
        return noted
    starts = read(folder / MANIFEST)
    start = -1 if (folder / EXPORTED).exists() else 0
    return str(starts[start]["device"]) if starts else ""


def training_precision(folder: Path) -> torch.dtype:
    """Return the precision of a run's last training.

    Raises:
        UserError: The folder is not a run that was trained here.
    """
    precision = parse_precision(training_device(folder))
    if precision is None:
        raise UserError("has no training whose precision is known", str(folder), "name the folder of a run")
    return precision


def processor_name() -> str:
    """Return the CPU name with family and model: virtual machines use one name for several CPU generations."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    # Reversed, so that the first processor's values are kept; all processors have the same.
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in reversed(lines))}
    name = fields.get("model name") or platform.machine()
    known = [f"{key.removeprefix('cpu ')} {fields[key]}" for key in ("cpu family", "model") if fields.get(key)]
    # The name alone may be ambiguous: some "Intel(R) Xeon(R) Processor" have AMX, others do not.
    return f"{name} ({', '.join(known)})" if known else name


def git_commit() -> dict[str, object] | None:
    """Return `commit` and `changed` of the source tree; None outside a repository."""
    try:
        # Fails if s2s is installed inside another repository.
        _git("ls-files", "--error-unmatch", str(Path(__file__).resolve()))
        return {"commit": _git("rev-parse", "HEAD"), "changed": bool(_git("status", "--porcelain", "--", *_CODE))}
    except (OSError, subprocess.CalledProcessError):
        return None


@cache
def code_version() -> str:
    """Return the versions of s2s (with a digest of its modules) and torch.

    Called when a process starts: the files may change while it runs.
    """
    there, digest = Path(__file__).parents[2], hashlib.blake2b(digest_size=4)
    for path in sorted(path for name in ("s2s", "baselines") for path in (there / name).rglob("*.py")):
        digest.update(f"{path.relative_to(there).as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return f"s2s {package_version('s2s')} (modules {digest.hexdigest()}) with torch {torch.__version__}"


def _git(*words: str) -> str:
    # Without optional locks, because a status query must not block a commit of the user.
    command, here = ["git", "--no-optional-locks", *words], Path(__file__).parents[1]
    return subprocess.run(command, cwd=here, capture_output=True, text=True, check=True).stdout.strip()
