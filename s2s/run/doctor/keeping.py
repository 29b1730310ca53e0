"""What is kept is what comes back: weights of a checkpoint, and a training that goes on from one.

The run itself is only read. What is written goes into a folder that is removed at the end.
"""

import math
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from s2s.errors import UserError
from s2s.run import folder as folders
from s2s.run import manifest
from s2s.run.back_translation import with_back_translations
from s2s.run.doctor.equalities import Patient, apart
from s2s.run.doctor.findings import Finding, held, not_applicable
from s2s.run.loaded import load_tokenizers
from s2s.run.training import trainer_of
from s2s.training.checkpoint import Checkpoints, Progress, read_training
from s2s.training.devices import precision_of
from s2s.training.tensor_files import load_weights, read_tensors, save_weights
from s2s.training.trainer import Trainer

UPDATES = 4
"""That are trained from the checkpoint on, in one go and in two halves."""
_LARGEST = 1e4
_BITS = "allowed: none, the bits must be equal"


def differing(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> int:
    """How many tensors are not in both, or not the same in every bit."""
    same = [n for n in one.keys() & other.keys() if _bits(one[n], other[n])]
    return len(one.keys() | other.keys()) - len(same)


def _bits(one: Tensor, other: Tensor) -> bool:
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    # compared as bytes: what is no number equals itself here
    left, right = (t.detach().cpu().contiguous().view(-1).view(torch.uint8) for t in (one, other))
    return torch.equal(left, right)


def saving(name: str, patient: Patient) -> Finding:
    """The checkpoint's tensors against those of the loaded model, saved once more."""
    run = patient.run
    kept = read_tensors(run.checkpoint / "model.safetensors")
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "model.safetensors"
        save_weights(run.model, file)
        again = read_tensors(file)
    said = f"{len(kept)} tensors of the checkpoint, and what was loaded from it, saved and read once more"
    return held(name, f"{said}: how many differ", differing(kept, again), 0, _BITS)


def finite(name: str, patient: Patient) -> Finding:
    """Whether all weights are finite, and none is larger than a sound training makes it."""
    weights = {n: p.detach().cpu().double() for n, p in patient.run.model.named_parameters() if p.numel()}
    largest = {n: float(p.abs().max()) for n, p in weights.items()}
    worst = max(largest, key=lambda n: largest[n] if math.isfinite(largest[n]) else math.inf)
    norm = math.sqrt(sum(float(p.square().sum()) for p in weights.values()))
    said = f"the largest of {sum(p.numel() for p in weights.values()):,} weights ({worst}); norm of all {norm:.4g}"
    reason = f"allowed: {_LARGEST:g}; weights begin below 10, and Adam moves each by about the learning rate an update"
    return held(name, said, largest[worst], _LARGEST, reason)


def another_seed(name: str, patient: Patient) -> Finding:
    """All that a model knows must be in its file: what was drawn when it was built may not matter."""
    run, task = patient.run, patient.task
    seeds = run.recipe.seeds.model_copy(update={"initialization": run.recipe.seeds.initialization + 1})
    other = task.build(run.recipe.model_copy(update={"seeds": seeds}), run.tokenizers)
    load_weights(other, run.checkpoint / "model.safetensors")
    other = other.to(run.computer.device).eval()
    again = replace(patient, run=replace(run, model=other)).right
    said = f"{patient.told(again)} of this model, and of one built from another seed that loads its checkpoint"
    return held(name, said, apart(patient.right, again), 0, _BITS)


def resuming(name: str, patient: Patient) -> Finding:
    """Some updates from the run's last checkpoint, in one go, and stopped, saved, loaded and gone on with half-way."""
    folder, recipe, task = patient.run.path, patient.run.recipe, patient.task
    checkpoints = Checkpoints(folder)
    last = checkpoints.last()
    if last is None or not (last / "training.safetensors").exists():
        return not_applicable(name, "there is no checkpoint that training could go on from")
    try:
        tokenizers = load_tokenizers(folder, recipe)
        data = task.prepare(with_back_translations(recipe, patient.say, folder), tokenizers, lambda line: None)
    except (UserError, OSError) as error:
        return not_applicable(name, f"the training data cannot be read: {str(error).splitlines()[0]}")
    starts = manifest.read(folder / folders.MANIFEST)
    if starts and starts[-1]["hashes"].get("training_data") != data.hashes()["training_data"]:
        return not_applicable(name, "the training data changed since the run was started")
    recipe = task.resolved(recipe, data)
    tensors, progress = read_training(last)
    until = progress.update + UPDATES
    # a schedule that ends with the run would leave nothing to be learned
    longer = recipe.training.model_copy(update={"updates": max(until + 1, recipe.training.updates)})
    recipe = recipe.model_copy(update={"training": longer})
    before = precision_of(manifest.trained_on(folder))
    computer = replace(patient.run.computer, precision=before or patient.run.computer.precision, undecided=False)

    def fresh() -> Trainer[Any, Any]:
        """A trainer as a new process would make it."""
        return trainer_of(task, recipe, data, computer, (None, folder))[0]

    straight = _from(fresh(), tensors, progress, last)
    losses = [update.loss for update in straight.updates(until)]
    stopped = _from(fresh(), tensors, progress, last)
    halves = [update.loss for update in stopped.updates(progress.update + UPDATES // 2)]
    with tempfile.TemporaryDirectory() as place:
        saved = _saved(stopped, Path(place), last)
        resumed = _from(fresh(), *read_training(saved), saved)
        halves += [update.loss for update in resumed.updates(until)]
    one, two = straight.state()[0], resumed.state()[0]
    wrong = differing(one, two) + sum(a != b for a, b in zip(losses, halves, strict=True))
    moved = max(apart(one[n], tensors[n].to(one[n].device)) for n in tensors if n.startswith("model."))
    said = (
        f"{len(one)} tensors and {len(losses)} losses after update {until}, in one go and stopped after "
        f"{progress.update + UPDATES // 2}: how many differ (weights moved by up to {moved:.1g})"
    )
    return held(name, said, wrong, 0, _BITS)


def _from(trainer: Trainer[Any, Any], tensors: dict[str, Tensor], progress: Progress, where: Path) -> Trainer[Any, Any]:
    # what is loaded may be taken over, and is needed again
    trainer.load_state({name: tensor.clone() for name, tensor in tensors.items()}, progress.place, where)
    return trainer


def _saved(trainer: Trainer[Any, Any], place: Path, like: Path) -> Path:
    """A checkpoint in a folder that looks like the run's."""
    shutil.copy(like / folders.RECIPE, place / folders.RECIPE)
    shutil.copytree(like / folders.TOKENIZER, place / folders.TOKENIZER)
    tensors, where = trainer.state()
    with trainer.optimization.averaged():
        return Checkpoints(place).save(
            trainer.model, tensors, Progress(where["update"], where["epoch"], where["position"])
        )
