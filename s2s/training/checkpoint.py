"""Checkpoints: safetensors and JSON, written whole or not at all.

A checkpoint folder is enough to decode and to resume:

    recipe.yaml            the resolved recipe
    tokenizer/             the tokenizers
    model.safetensors      the weights that decode (the average, where one is kept)
    training.safetensors   weights in training, Adam's moments, average
    state.json             place in the data, validation scores, metadata
"""

import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from s2s.errors import UserError

_TEMPORARY = ".unfinished-"


@dataclass(frozen=True)
class Progress:
    """How far a run has come: all of a checkpoint that is not a tensor.

    Attributes:
        update: updates done.
        epoch: passes over the data done.
        position: updates done in this epoch.
        score: of this checkpoint's validation, higher is better; None when it was not validated.
        scores: (update, score) of all validations so far.
        seconds: time spent in training so far, validation included.
    """

    update: int
    epoch: int
    position: int
    score: float | None = None
    scores: list[tuple[int, float]] = field(default_factory=list)
    seconds: float = 0.0


def write_atomically(path: Path, text: str) -> None:
    """Replaces a text file: readers see the old one or the new one, whole."""
    temporary = path.with_name(f"{_TEMPORARY}{path.name}")
    temporary.write_text(text, encoding="utf-8", newline="\n")
    _sync(temporary)
    temporary.replace(path)
    _sync(path.parent)


def save_weights(model: nn.Module, path: Path) -> None:
    """Writes a model's parameters; tied ones once."""
    _save({name: p.detach() for name, p in model.named_parameters()}, path)


def _save(tensors: dict[str, Tensor], path: Path) -> None:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    # safetensors lets nobody else read what it writes; the user's own mask shall decide
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)


def load_weights(model: nn.Module, path: Path) -> None:
    """Reads what `save_weights` wrote.

    Raises:
        UserError: the file is missing or damaged, or it belongs to another model.
    """
    tensors = read_tensors(path)
    wanted = {name: p for name, p in model.named_parameters()}
    wrong = sorted(set(tensors) ^ set(wanted))
    wrong += [n for n in wanted if n in tensors and tensors[n].shape != wanted[n].shape]
    if wrong:
        raise UserError(
            f"{len(wrong)} tensors do not fit the model, first {wrong[0]}",
            where=str(path),
            remedy="the recipe beside the checkpoint was changed after training; restore it",
        )
    with torch.no_grad():
        for name, p in wanted.items():
            p.copy_(tensors[name])


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on the processor.

    Raises:
        UserError: the file is missing or damaged.
    """
    try:
        # safetensors calls a file that may not be read missing
        path.open("rb").close()
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(
            f"cannot be read: {error}", where=str(path), remedy="use another checkpoint of the run"
        ) from None


class Checkpoints:
    """The checkpoints of one run, in the folder `checkpoints/`.

    Args:
        run: the run's folder, which holds `recipe.yaml` and `tokenizer/`.
        keep_best: how many are kept for their score.
        keep_last: how many are kept for being the newest; at least one.
    """

    def __init__(self, run: Path, keep_best: int = 1, keep_last: int = 1) -> None:
        self.run = run
        self.folder = run / "checkpoints"
        self.keep_best = keep_best
        self.keep_last = max(1, keep_last)

    def save(self, model: nn.Module, training: dict[str, Tensor], progress: Progress) -> Path:
        """Writes a checkpoint of these weights under its update's number, then removes those no longer kept.

        Args:
            model: with the weights that shall decode.
            training: the trainer's tensors.
            progress: everything else.
        """
        path = self._write(f"{progress.update:07d}", model, progress, training)
        self._remove_old()
        return path

    def save_average(self, model: nn.Module, progress: Progress) -> Path:
        """Writes a model that only decodes, under the name `average`."""
        return self._write("average", model, progress, None)

    def _write(self, name: str, model: nn.Module, progress: Progress, training: dict[str, Tensor] | None) -> Path:
        path, temporary = self.folder / name, self.folder / f"{_TEMPORARY}{name}"
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        save_weights(model, temporary / "model.safetensors")
        if training is not None:
            _save({n: t.detach() for n, t in training.items()}, temporary / "training.safetensors")
        (temporary / "state.json").write_text(json.dumps(asdict(progress), indent=1), encoding="utf-8")
        shutil.copy(self.run / "recipe.yaml", temporary / "recipe.yaml")
        shutil.copytree(self.run / "tokenizer", temporary / "tokenizer")
        for file in (*temporary.rglob("*"), temporary):
            _sync(file)
        if path.exists():
            shutil.rmtree(path)
        temporary.rename(path)
        _sync(self.folder)
        return path

    def numbered(self) -> list[Path]:
        """The checkpoints that training wrote, oldest first."""
        return sorted(p for p in self.folder.glob("*") if p.name.isdigit())

    def last(self) -> Path | None:
        """The newest one."""
        return self.numbered()[-1] if self.numbered() else None

    def best(self) -> Path | None:
        """The one with the best validation score; the newest when none was validated."""
        scored = [(score, p) for p in self.numbered() if (score := read_progress(p).score) is not None]
        return max(scored, default=(0.0, self.last()), key=lambda pair: pair[0])[1]

    def _remove_old(self) -> None:
        numbered = self.numbered()
        scores = {p: score for p in numbered if (score := read_progress(p).score) is not None}
        best = sorted(scores, key=lambda p: scores[p], reverse=True)[: self.keep_best]
        for path in set(numbered) - set(numbered[-self.keep_last :]) - set(best):
            # renamed first: a removal that is cut short leaves nothing that looks like a checkpoint
            rubbish = path.with_name(f"{_TEMPORARY}{path.name}")
            shutil.rmtree(rubbish, ignore_errors=True)
            path.rename(rubbish)
            shutil.rmtree(rubbish)


def read_progress(checkpoint: Path) -> Progress:
    """What a checkpoint says of itself.

    Raises:
        UserError: there is no such checkpoint, or its file is damaged.
    """
    try:
        found = json.loads((checkpoint / "state.json").read_text(encoding="utf-8"))
        return Progress(**{**found, "scores": [(int(u), float(s)) for u, s in found["scores"]]})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"not a whole checkpoint: {error}", where=str(checkpoint)) from None


def average(model: nn.Module, checkpoints: list[Path]) -> None:
    """Gives the model the mean of the checkpoints' decoding weights."""
    total: dict[str, Tensor] = {}
    for path in checkpoints:
        for name, tensor in read_tensors(path / "model.safetensors").items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(total[name] / len(checkpoints))


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
