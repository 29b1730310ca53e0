"""Start of a training in its folder: precision, manifest, and the state of the last checkpoint."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from s2s.data.dataset import BaseBatch
from s2s.data.sources import train_overlaps
from s2s.errors import UserError
from s2s.files import check_unlinked, remove_unfinished
from s2s.models.base import count_parameters
from s2s.nn.precision import fp32_layers
from s2s.recipe.schema import OptimizationSettings, SearchRecipe
from s2s.run import folder as folders
from s2s.run import manifest
from s2s.run.inference import data_hashes
from s2s.run.init_from import Initialization
from s2s.run.memory_check import explain_oom
from s2s.run.tasks import read
from s2s.tasks.base import FIGURES, AnyContext, AnyTask, PrintFn
from s2s.training.checkpoint import Checkpoints, Progress, check_weights, read_training
from s2s.training.device import PRECISION_NAMES, parse_precision
from s2s.training.logger import METRICS
from s2s.training.optimization import learning_rate
from s2s.training.precision import PrecisionBenchmark, benchmark_precision, check_precision
from s2s.training.trainer import Trainer


def start_training(
    task: AnyTask,
    train_context: AnyContext,
    initialization: Initialization,
    checkpoints: Checkpoints,
    print_fn: PrintFn,
) -> Progress:
    """Select the precision, write the manifest, and restore the last checkpoint if there is one.

    Args:
        train_context: Recipe, data and trainer of the run.
        initialization: Weights that were loaded from another run.

    Returns:
        Progress of the run so far.

    Raises:
        UserError: The data changed since the run was started, or a file of the run is damaged.
    """
    folder = checkpoints.run
    check_unlinked(folder)
    # Other processes may be writing results into the run; only this one writes checkpoints.
    for place in (folder, folder / FIGURES, folder / folders.TOKENIZER):
        remove_unfinished(place)
    remove_unfinished(checkpoints.folder, alone=True)
    measured = _select_precision(train_context, folder, print_fn)
    _write_manifest(task, train_context, checkpoints, measured)
    task.log_dataset_summary(train_context, print_fn)
    initialization.save(folder)
    initialization.log_summary(print_fn)
    _log_model_size(train_context.trainer, print_fn)
    _check_checkpoints(train_context.recipe.training, checkpoints)
    _extend(train_context.recipe.training, checkpoints, print_fn)
    return _restore(train_context.trainer, checkpoints, print_fn)


def _select_precision(train_context: AnyContext, folder: Path, print_fn: PrintFn) -> PrecisionBenchmark | None:
    """Select the faster precision for a new run; a resumed run keeps its precision, so that all bits are equal."""
    trainer, recipe = train_context.trainer, train_context.recipe
    device_context, before = trainer.device_context, parse_precision(manifest.training_device(folder))
    if before is not None and device_context.autoselect_precision:
        trainer.device_context = replace(device_context, precision=before, autoselect_precision=False)
    elif before is not None and before != device_context.precision:
        print_fn(
            f"until now this run computed in {PRECISION_NAMES[before]}, "
            f"from here on it does in {PRECISION_NAMES[device_context.precision]}: "
            "it will not end in the bits of a run that never stopped"
        )
    measured = None
    searched = recipe.decoding.precision if isinstance(recipe, SearchRecipe) else "fp32"
    in_search = torch.bfloat16 if searched == "bf16" else torch.float32
    with explain_oom(train_context, folder):
        if trainer.device_context.autoselect_precision:
            measured = benchmark_precision(trainer)
            trainer.device_context = replace(device_context, precision=measured.faster, autoselect_precision=False)
            print_fn(str(measured))
        check_precision(trainer, in_search)
    if exception := fp32_layers(trainer.model, {trainer.device_context.precision, in_search}, device_context.device):
        print_fn(exception)
    return measured


def _write_manifest(
    task: AnyTask,
    train_context: AnyContext,
    checkpoints: Checkpoints,
    measured: PrecisionBenchmark | None,
) -> None:
    """Add this start to the manifest, unless the data changed since the first one."""
    recipe, trainer, corpus = train_context.recipe, train_context.trainer, train_context.data.corpus
    path, hashes = checkpoints.run / folders.MANIFEST, data_hashes(task, recipe, train_context.data)
    for earlier in manifest.read(path, begun=checkpoints.last() is not None):
        if changed := [name for name in hashes if hashes[name] != earlier["hashes"].get(name)]:
            raise UserError(
                f"{', '.join(changed)} changed since the run was started",
                where=str(checkpoints.run),
                remedy="restore the files, or start a new run with run.dir=DIR",
            )
    overlaps = train_overlaps(task.source(recipe), corpus)
    sizes = {name: len(part) for name, part in corpus.parts().items()}
    counts = {"test": 0, **sizes, **trainer.examples.manifest_counts()}
    start = manifest.describe(recipe, trainer.device_context, trainer.model, hashes, counts, overlaps, measured)
    manifest.write(start, path)


def _log_model_size(trainer: Trainer[nn.Module, BaseBatch], print_fn: PrintFn) -> None:
    learning, whole = count_parameters(trainer.model), sum(p.numel() for p in trainer.model.parameters())
    parameters = f"{whole:,} parameters" if learning == whole else f"{learning:,} of {whole:,} parameters learn"
    print_fn(f"{parameters} · {len(trainer.groups)} updates an epoch · {trainer.micro_batches} micro-batches an update")


def _check_checkpoints(training: OptimizationSettings, checkpoints: Checkpoints) -> None:
    """Refuse damaged checkpoints at the start: each of them could end the run hours later."""
    last = checkpoints.last()
    if last is None:
        return
    for place in sorted({last, *checkpoints.validated()}):
        check_weights(place, "restore the file, or remove this checkpoint and go on from another one")
    if read(checkpoints.run / folders.RECIPE).training.updates != training.updates:
        read_training(last)


def _extend(now: OptimizationSettings, checkpoints: Checkpoints, print_fn: PrintFn) -> None:
    """Apply a changed `training.updates` to the run and to the checkpoint it resumes from."""
    then = read(checkpoints.run / folders.RECIPE).training
    if then.updates == now.updates:
        return
    checkpoints.prepare_extension()
    last = checkpoints.last()
    for place in (last, checkpoints.run):
        if place is not None:
            folders.set_num_updates(place / folders.RECIPE, now.updates)
    print_fn(f"training.updates: {then.updates:,} before, {now.updates:,} from now on")
    if now.schedule in ("cosine", "linear") and last is not None:
        done = int(last.name)
        rates = learning_rate(max(1, done), then), learning_rate(done + 1, now)
        print_fn(
            f"the {now.schedule} schedule ends with the last update, so its tail begins again: the rate goes from "
            f"{rates[0]:.2e} to {rates[1]:.2e}; a run of this length from the start would have learned otherwise"
        )


def _restore(trainer: Trainer[nn.Module, BaseBatch], checkpoints: Checkpoints, print_fn: PrintFn) -> Progress:
    """Load the last checkpoint into the trainer."""
    last = checkpoints.last()
    if last is None:
        if (checkpoints.run / METRICS).exists():
            print_fn("no checkpoint yet: starting again from the first update")
        return Progress(0, 0, 0)
    tensors, progress = read_training(last)
    trainer.load_state(tensors, progress.place, last)
    # Prune here: a run that is already at its last step saves no further checkpoint.
    checkpoints.prune()
    print_fn(f"continuing after update {progress.update}")
    return progress
