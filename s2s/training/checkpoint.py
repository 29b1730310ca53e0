"""Checkpoints: safetensors and JSON files, written atomically.

A checkpoint folder contains all that decoding and resuming need:

    recipe.yaml            the resolved recipe
    tokenizer/             the tokenizers
    model.safetensors      weights for decoding (the EMA weights, if there are any)
    training.safetensors   weights in training, state of the optimizer, EMA weights
    state.json             position in the data, validations, digests
    device.txt             device, threads and precision of the training
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from s2s.errors import UserError
from s2s.files import (
    copy_files,
    is_number,
    make_folder,
    open_regular,
    read_file,
    remove,
    write_atomically,
    write_folder_atomically,
)
from s2s.json_files import read_json
from s2s.training.tensor_files import ANOTHER, read_tensors, read_weights, save_tensors, save_weights
from s2s.training.validation import Validation

_TRAINING = "training.safetensors"
_STATE = "state.json"
_WEIGHTS = "model.safetensors"
_DEVICE = "device.txt"
_AVERAGE = "average"
_DIGEST, _WEIGHTS_DIGEST = "digest", "weights"
_RESTORE = "restore the file, or delete this checkpoint and resume from an older one"


@dataclass(frozen=True)
class Progress:
    """Progress of a run: all of a checkpoint that is not a tensor.

    Attributes:
        update: Optimizer steps done.
        epoch: Epochs done.
        position: Optimizer steps done in this epoch.
        validations: All validations so far, oldest first.
        seconds: Training time so far, validation included.
    """

    update: int
    epoch: int
    position: int
    validations: list[Validation] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def validation(self) -> Validation | None:
        """Validation of this checkpoint; None if it was not validated."""
        last = self.validations[-1] if self.validations else None
        return last if last and last.update == self.update else None

    @property
    def place(self) -> dict[str, int]:
        """Position in the data, as keyword arguments of a trainer."""
        return {"update": self.update, "epoch": self.epoch, "position": self.position}


class Checkpoints:
    """Checkpoints of one run, in its folder `checkpoints/`.

    Args:
        run: Folder of the run.
        keep_best: Number of checkpoints to keep for the value of `validation.metric`.
        keep_last: Number of checkpoints to keep for being the newest, at least one.
        every: Optimizer steps between two validations.
    """

    def __init__(self, run: Path, keep_best: int = 1, keep_last: int = 1, every: int = 1) -> None:
        self.run = run
        self.folder = run / "checkpoints"
        self.keep_best = keep_best
        self.keep_last = max(1, keep_last)
        self.every = every

    def save(self, model: nn.Module, training: dict[str, Tensor], progress: Progress, device: str) -> Path:
        """Write a checkpoint, named by its optimizer step, and prune older ones.

        An averaged checkpoint is removed, because it has not learned from the newest steps.

        Args:
            model: Model with the weights for decoding.
            training: Tensors for resuming.
            progress: Position in the data, and validations.
            device: Description of device, threads and precision.

        Returns:
            Folder of the checkpoint.
        """
        if (self.folder / _AVERAGE).exists():
            remove(self.folder / _AVERAGE)
        path = self._write(f"{progress.update:07d}", model, progress, training, device)
        self.prune()
        return path

    def save_average(self, model: nn.Module, progress: Progress) -> Path:
        """Write a checkpoint named `average`, for decoding only, and return its folder."""
        return self._write(_AVERAGE, model, progress, None, None)

    def _write(
        self, name: str, model: nn.Module, progress: Progress, training: dict[str, Tensor] | None, device: str | None
    ) -> Path:
        path = self.folder / name
        make_folder(self.folder)
        with write_folder_atomically(path) as place:
            place.mkdir()
            save_weights(model, place / _WEIGHTS)
            if training is not None:
                save_tensors({n: t.detach() for n, t in training.items()}, place / _TRAINING)
            weights = _digest_of(place / _WEIGHTS)
            (place / _STATE).write_text(_state_json(progress, place / _TRAINING, weights), encoding="utf-8")
            if device is not None:
                (place / _DEVICE).write_text(f"{device}\n", encoding="utf-8")
            (place / "recipe.yaml").write_bytes(read_file(self.run / "recipe.yaml"))
            copy_files(self.run / "tokenizer", place / "tokenizer")
        return path

    def validated(self) -> list[Path]:
        """Return the validated checkpoints, oldest first; the others exist for resuming only."""
        return list(self._validations())

    def prepare_extension(self) -> None:
        """Prepare a finished run for more optimizer steps.

        This drops the validation of the last step, unless one was due there: a longer run would not have it.
        """
        last = self.last()
        if last is not None and int(last.name) % self.every:
            progress = read_progress(last)
            in_turn = [validation for validation in progress.validations if validation.update != progress.update]
            progress = replace(progress, validations=in_turn)
            write_atomically(last / _STATE, _state_json(progress, last / _TRAINING, _saved(last, _WEIGHTS_DIGEST)))

    def all(self) -> list[Path]:
        """Return the checkpoints of training, oldest first; `average` is not among them."""
        return sorted((p for p in self.folder.glob("*") if is_number(p.name)), key=lambda p: int(p.name))

    def last(self) -> Path | None:
        """Return the newest checkpoint; None if there is none."""
        return self.all()[-1] if self.all() else None

    def device(self) -> str:
        """Return device, threads and precision of the newest checkpoint; empty if there is none."""
        last = self.last()
        if last is None:
            return ""
        try:
            return read_file(last / _DEVICE, _RESTORE).decode("utf-8", errors="replace").strip()
        except FileNotFoundError:
            raise UserError("is missing", str(last / _DEVICE), _RESTORE) from None

    def best(self) -> Path | None:
        """Return the checkpoint with the best value of `validation.metric`; the newest one if none was validated.

        Equal values are ranked by the lower validation loss, equal losses by the newer checkpoint.
        """
        best = _best_first(self._validations())
        return best[0] if best else self.last()

    def _validations(self) -> dict[Path, Validation]:
        """Return the validation of each validated checkpoint, oldest first.

        A checkpoint that training removes at the same time is skipped.
        """
        found = {}
        for path in self.all():
            try:
                progress = read_progress(path)
            except UserError:
                if path.exists():
                    raise
                continue
            if progress.validation:
                found[path] = progress.validation
        return found

    def prune(self) -> None:
        """Remove checkpoints that need not be kept.

        Called after each save. If a process ends between saving and pruning, the next call removes what remained.
        """
        numbered, validations = self.all(), self._validations()
        kept = set(numbered[-1:])
        # The last step of a run may be validated out of turn. It must not replace a checkpoint that an extended run
        # would have kept, so the checkpoints in turn are ranked separately, too.
        in_turn = {path: found for path, found in validations.items() if int(path.name) % self.every == 0}
        for some in (validations, in_turn):
            kept |= {*list(some)[-self.keep_last :], *_best_first(some)[: self.keep_best]}
        for path in set(numbered) - kept:
            remove(path)


def _best_first(validations: Mapping[Path, Validation]) -> list[Path]:
    return sorted(validations, key=lambda path: (*validations[path].rank, validations[path].update), reverse=True)


def read_training(checkpoint: Path) -> tuple[dict[str, Tensor], Progress]:
    """Read the trainer's tensors and the progress from a checkpoint; a changed file raises a `UserError`."""
    tensors, progress = read_tensors(checkpoint / _TRAINING), read_progress(checkpoint)
    if _saved(checkpoint, _DIGEST) != _digest(progress, checkpoint / _TRAINING):
        raise UserError(
            f"{_TRAINING} or {_STATE} has changed since the checkpoint was saved",
            where=str(checkpoint),
            remedy="restore both files, or delete this checkpoint and resume from an older one",
        )
    return tensors, progress


def check_weights(checkpoint: Path, remedy: str = f"restore the file, or {ANOTHER}") -> None:
    """Check that the weights of a checkpoint are those that were saved with it.

    Args:
        checkpoint: Folder of the checkpoint.
        remedy: Advice for the error message.

    Raises:
        UserError: The weights are missing or have changed, or the checkpoint is damaged.
    """
    read_progress(checkpoint)
    saved, file = _saved(checkpoint, _WEIGHTS_DIGEST), checkpoint / _WEIGHTS
    if saved != (_digest_of(file) if file.exists() else ""):
        what = "has changed since the checkpoint was saved" if file.exists() else "is missing"
        raise UserError(what, where=str(file), remedy=remedy)


def digest_of_weights(checkpoint: Path) -> str:
    """Return a digest of the weights; another checkpoint may get the same name later."""
    return _digest_of(checkpoint / _WEIGHTS)


def _saved(checkpoint: Path, key: str) -> str:
    """Return a digest that was saved with the checkpoint."""
    path = checkpoint / _STATE
    saved = read_json(path, dict[str, Any], _RESTORE).get(key)
    if not isinstance(saved, str):
        raise UserError(f"has no digest {key!r}", str(path), _RESTORE)
    return saved


def read_progress(checkpoint: Path) -> Progress:
    """Read the progress of a checkpoint from `state.json`; a missing or damaged file raises a `UserError`."""
    progress = None
    try:
        written = read_json(checkpoint / _STATE, dict[str, Any], _RESTORE)
        for key in (_DIGEST, _WEIGHTS_DIGEST):
            written.pop(key, None)
        if missing := {field.name for field in fields(Progress)} - written.keys():
            raise KeyError(min(missing))
        progress = Progress(**{**written, "validations": [Validation(**each) for each in written["validations"]]})
    except UserError as error:
        wrong = error.what
    except KeyError as error:
        wrong = f"has no {error}"
    except (ValueError, TypeError) as error:
        wrong = f"has other contents: {error}"
    else:
        wrong = _inconsistency(progress, checkpoint)
    if wrong or progress is None:
        raise UserError(
            f"damaged checkpoint: {_STATE}: {wrong}",
            where=str(checkpoint),
            remedy=_RESTORE,
        )
    return progress


def _inconsistency(progress: Progress, checkpoint: Path) -> str:
    """Return what is inconsistent in a checkpoint's progress; empty if nothing is."""
    numbers = [(name, getattr(progress, name)) for name in ("update", "epoch", "position")]
    numbers += [("validations", validation.update) for validation in progress.validations]
    for name, value in numbers:
        if type(value) is not int or value < 0:
            return f"{name} is {value!r}, expected an integer of at least 0"
    for validation in progress.validations:
        if not isinstance(validation.lower_is_better, bool):
            return f"validations has lower_is_better {validation.lower_is_better!r}, expected true or false"
    floats = [("seconds", progress.seconds)]
    floats += [("validations", number) for each in progress.validations for number in (each.value, each.loss)]
    for name, value in floats:
        if type(value) not in (int, float):
            return f"{name} is {value!r}, expected a number"
    if not 0 <= progress.seconds < math.inf:
        return f"seconds is {progress.seconds}, expected 0 or more"
    if is_number(checkpoint.name) and int(checkpoint.name) != progress.update:
        return f"update is {progress.update}, but the folder is named {int(checkpoint.name)}"
    if max(progress.epoch, progress.position) > progress.update:
        return f"epoch {progress.epoch}, position {progress.position} is impossible after {progress.update} updates"
    return ""


def _state_json(progress: Progress, training: Path, weights: str) -> str:
    """Return the content of `state.json`; `weights` is the digest of the weights."""
    digests = {_DIGEST: _digest(progress, training), _WEIGHTS_DIGEST: weights}
    return json.dumps(asdict(progress) | digests, indent=1)


def _digest(progress: Progress, training: Path) -> str:
    return _digest_of(training, json.dumps(asdict(progress)).encode())


def _digest_of(path: Path, before: bytes = b"") -> str:
    """Return a digest of `before` and, if the file exists, its content."""
    digest = hashlib.blake2b(before, digest_size=16)
    if path.exists():
        with open_regular(path, _RESTORE) as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def average_checkpoints(model: nn.Module, checkpoints: list[Path]) -> None:
    """Set a model's weights to the mean of several checkpoints' weights, in place.

    The mean is computed in fp64.

    Args:
        model: Model of the checkpoints' recipe.
        checkpoints: Folders of the checkpoints.
    """
    total: dict[str, Tensor] = {}
    for path in checkpoints:
        for name, tensor in read_weights(path / _WEIGHTS).items():
            wide = tensor.cpu().double()
            total[name] = total[name] + wide if name in total else wide
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_((total[name] / len(checkpoints)).to(p.dtype))
