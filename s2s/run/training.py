"""Run a training: recipe, data, model, trainer, folder, training, test.

`run_training` runs it on rank 0, `run_worker` on the other ranks of data-parallel training. The optimizer step and the
loop around it are in `s2s.training.trainer`.
"""

import shlex
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from pydantic import BaseModel
from rich.console import Console
from torch import nn

from s2s.data.dataset import BaseBatch
from s2s.data.sources import train_overlaps
from s2s.data.tokenizers import Tokenizer, lowered_sizes
from s2s.errors import UserError, counted, printable, quote_path
from s2s.files import LARGE_BYTES, check_unlinked, read_file, remove_unfinished
from s2s.json_files import read_json
from s2s.models.base import count_parameters
from s2s.nn.precision import fp32_layers
from s2s.recipe.schema import FineTunedRecipe, OptimizationSettings, PieceSettings, SearchRecipe, TrainRecipe
from s2s.run import folder as folders
from s2s.run import manifest
from s2s.run.inference import data_hashes, evaluate, find_checkpoint, load_tokenizers
from s2s.run.memory_check import check_memory, explain_oom
from s2s.run.tasks import deserialize_recipe, read, schema_of, serialize_recipe, task_of
from s2s.tasks.base import FIGURES, AnyContext, AnyTask, PreparedData, PrintFn, TrainContext
from s2s.tasks.protocols import ShowsExample, WritesAtEnd, WritesAtStart
from s2s.training.checkpoint import (
    Checkpoints,
    Progress,
    average_checkpoints,
    check_weights,
    digest_of_weights,
    read_progress,
    read_training,
)
from s2s.training.device import PRECISION_NAMES, DeviceContext, parse_precision, select_device, setup_process
from s2s.training.distributed import SINGLE_PROCESS, Distributed
from s2s.training.divergence import check_divergence
from s2s.training.logger import METRICS, NullLog, RunLog
from s2s.training.optimization import learning_rate
from s2s.training.shutdown import print_resume_hint_on_exit
from s2s.training.step import StepResult
from s2s.training.trainer import Trainer, TrainingLoop
from s2s.training.validation import count_without_improvement

if TYPE_CHECKING:
    from s2s.run.init_from import Initialization, PretrainedRun
    from s2s.training.precision import PrecisionBenchmark


class _Scores(BaseModel):
    """The field of an evaluation that names the scored weights."""

    weights: str | None


def train(
    recipe: TrainRecipe,
    console: Console,
    overwrite: bool = False,
    data: PreparedData | None = None,
    distributed: Distributed = SINGLE_PROCESS,
    precision: torch.dtype | None = None,
) -> Path:
    """Train a new run to its end; see `run_training`."""
    steps = run_training(recipe, console, overwrite, data, distributed=distributed, precision=precision)
    return _run_to_end(steps)


def resume(
    folder: Path,
    console: Console,
    overrides: Sequence[str] = (),
    recipe: TrainRecipe | None = None,
    distributed: Distributed = SINGLE_PROCESS,
) -> Path:
    """Resume a run from its last checkpoint; the result is that of an uninterrupted run, to the bit.

    Args:
        overrides: Overrides of `data`, `device` and `training.updates`; the run keeps the last one.
        recipe: Recipe with the overrides applied; None: it is read and checked here.
        distributed: Process group of data-parallel training.

    Raises:
        UserError: The folder is not a run, or its recipe or its training data has changed since.
    """
    recipe = recipe or folders.check_resumable(folder, overrides)
    return _run_to_end(run_training(recipe, console, folder=folder, overrides=overrides, distributed=distributed))


def is_finished(folder: Path, recipe: TrainRecipe) -> bool:
    """Return True if a run has had all its steps, or stopped early, and the result is scored on the test set.

    Args:
        folder: Folder of the run.
        recipe: Its recipe, with the overrides of a resume.
    """
    last, scores = Checkpoints(folder).last(), folder / folders.TEST_SCORES
    if last is None:
        return False
    if recipe.data.test is not None:
        if not scores.exists():
            return False
        scored = read_json(scores, _Scores, "delete the file; the run is then tested again", LARGE_BYTES)
        # An evaluation before the end may have scored other weights.
        if scored.weights != digest_of_weights(find_checkpoint(folder, None)):
            return False
    progress, patience = read_progress(last), recipe.validation.patience
    stopped = patience is not None and count_without_improvement(progress.validations) >= patience
    return stopped or progress.update >= recipe.training.updates


def _run_to_end(steps: Generator[StepResult, None, Path]) -> Path:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def run_training(
    recipe: TrainRecipe,
    console: Console,
    overwrite: bool = False,
    data: PreparedData | None = None,
    folder: Path | None = None,
    overrides: Sequence[str] = (),
    distributed: Distributed = SINGLE_PROCESS,
    precision: torch.dtype | None = None,
) -> Generator[StepResult, None, Path]:
    """Run a training from the recipe to the scores on the test set.

    The folder of a new run is created only after data, tokenizers and model have been checked. A caller that stops
    iterating leaves a run that resumes from its last checkpoint.

    Args:
        overwrite: Replace a run in the same folder.
        data: Prepared data; None: they are read here.
        folder: Folder of a run to resume; None for a new run.
        overrides: Overrides of this start of a resumed run.
        distributed: Process group of data-parallel training.
        precision: Precision of a new run with `device.precision=auto`; None: the faster one is measured.

    Yields:
        Result of each optimizer step, after it is logged.
    """

    def print_fn(text: str) -> None:
        console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    # 1. The recipe and the device.
    if folder is None:
        folders.check_free(recipe, overwrite)
    task = task_of(recipe)
    with check_memory(task, recipe):
        distributed.broadcast_object(serialize_recipe(recipe))
        device_context = select_device(recipe.device, distributed)
        print_fn(f"{recipe.name} on {device_context}")
        source = None
        if folder is None:
            if isinstance(recipe, FineTunedRecipe) and recipe.init_from is not None:
                from s2s.run.init_from import open_pretrained

                source = open_pretrained(recipe)
                recipe = source.adapt_recipe(recipe)
            task.check(recipe)
            _warn_of_long_warmup(recipe.training, print_fn)

        # 2. Data and tokenizers.
        tokenizers = load_tokenizers(folder, recipe) if folder else source.tokenizers if source else ()
        prepared = data or task.prepare(recipe, tokenizers, print_fn)
        named = dict(zip(recipe.tokenizer_names, prepared.tokenizers, strict=True))
        if folder is None and source is None:
            _print_lowered_sizes(recipe, named, print_fn)
        recipe = task.finalize_config(recipe, prepared)
        distributed.broadcast_object((serialize_recipe(recipe), prepared.tokenizers, folder and folder.resolve()))

        # 3. Model and trainer.
        trainer, initialization = build_trainer(task, recipe, prepared, device_context, (source, folder), print_fn)
        distributed.assert_equal_across_ranks(
            lambda: data_hashes(task, recipe, prepared) | {"device.kind": device_context.device.type}
        )

    with ExitStack() as stack:
        # 4. The folder: its lock, the precision, the manifest, and the state of the last checkpoint.
        folder = stack.enter_context(
            folders.run_lock(folder) if folder else folders.create_run_dir(recipe, named, overwrite)
        )
        train_context = TrainContext(recipe, prepared, trainer)
        keep_last, validation = recipe.training.average_last or 1, recipe.validation
        checkpoints = Checkpoints(folder, validation.keep_best, keep_last, validation.every)
        again = ["train", str(folder), "--resume", *overrides]
        if launch := distributed.launch:
            launch.record_run(folder)
        command = launch.command(again) if launch else ["s2s", *again]
        stack.enter_context(print_resume_hint_on_exit(folder, command, lambda: _status(trainer, checkpoints)))
        _remove_unfinished(checkpoints)
        measured = _select_precision(train_context, folder, precision, print_fn)
        _write_manifest(task, train_context, checkpoints, measured)
        _log_summary(task, train_context, initialization, folder, print_fn)
        progress = _restore(trainer, checkpoints, print_fn)
        trainer.sync_from_main()

        # 5. Training, and the scores of the best checkpoint on the test set.
        yield from _fit_and_test(train_context, checkpoints, progress, console, overrides)
        check_divergence(folder, trainer.model, prepared.chance_loss)
    _print_usage(task, recipe, prepared, folder, print_fn)
    return folder


def _fit_and_test(
    train_context: AnyContext, checkpoints: Checkpoints, progress: Progress, console: Console, overrides: Sequence[str]
) -> Generator[StepResult, None, None]:
    """Train up to the last update, and score the best checkpoint on the test set."""
    recipe, trainer = train_context.recipe, train_context.trainer
    task, folder = task_of(recipe), checkpoints.folder.parent
    with RunLog(
        folder, progress.update, recipe.training.updates, console, task.perplexity, recipe.validation.metric
    ) as log:
        if not progress.update and isinstance(task, WritesAtStart):
            task.on_train_start(train_context, folder, log)
        loop = _training_loop(task, train_context, log, checkpoints, progress)
        with explain_oom(train_context, folder):
            yield from loop.fit()
        peak = trainer.device_context.peak_memory()
        memory = f", peak memory {peak / 2**30:.1f} GiB" if peak else ""
        seconds = loop.progress.seconds
        log.info(f"trained in {f'{seconds / 60:.1f} minutes' if seconds >= 60 else f'{seconds:.0f} seconds'}{memory}")
        if noise := log.noise():
            log.info(noise)
        if last := recipe.training.average_last:
            average_checkpoints(trainer.model, checkpoints.validated()[-last:])
            checkpoints.save_average(trainer.model, loop.progress)
        if isinstance(task, WritesAtEnd):
            task.on_train_end(train_context, folder, log)

        if train_context.data.corpus.test is not None:
            # The run's recipe has the new number of steps already.
            others = [override for override in overrides if override.partition("=")[0].strip() != folders.LENGTH]
            _test(recipe, folder, log, trainer.update, others)


def _print_usage(task: AnyTask, recipe: TrainRecipe, prepared: PreparedData, folder: Path, print_fn: PrintFn) -> None:
    """Print a command that uses the model on an example of the test or validation set."""
    schema, corpus = schema_of(recipe), prepared.corpus
    words = ()
    if isinstance(task, ShowsExample):
        words = task.example(recipe, corpus.validation if corpus.test is None else corpus.test)
    if schema.use:
        print_fn(schema.use.format(quote_path(folder), shlex.join(words) if words else schema.example))


def run_worker(distributed: Distributed) -> None:
    """Run the training of a rank other than 0, in step with `run_training` on rank 0.

    Rank 0 broadcasts the recipe, the tokenizers and the weights; it logs and saves for all.

    Raises:
        UserError: This rank has no device, its data differ from those of rank 0, or another rank is lost.
    """
    recipe = deserialize_recipe(distributed.broadcast_object(("", "", "")))
    setup_process(recipe.device)
    device_context, task = select_device(recipe.device, distributed), task_of(recipe)
    written, tokenizers, folder = distributed.broadcast_object((("", "", ""), (), Path()))
    recipe = deserialize_recipe(written)
    with check_memory(task, recipe):
        prepared = task.prepare(recipe, tokenizers, lambda text: None)
        trainer, _ = build_trainer(task, recipe, prepared, device_context, (None, folder))
    distributed.assert_equal_across_ranks(
        lambda: data_hashes(task, recipe, prepared) | {"device.kind": device_context.device.type}
    )
    trainer.sync_from_main()
    train_context = TrainContext(recipe, prepared, trainer)
    with explain_oom(train_context, folder or folders.run_dir(recipe)):
        for _ in _training_loop(task, train_context, NullLog(), None, Progress(0, 0, 0)).fit():
            pass


def overfit(recipe: TrainRecipe, print_fn: PrintFn) -> None:
    """Overfit 16 pairs of a translation recipe, as a sanity check; no run is kept.

    The command refuses other tasks before.
    """
    from s2s.tasks.translation.diagnosis import overfit as overfit_translation
    from s2s.tasks.translation.recipe import Recipe

    with check_memory(task_of(recipe), recipe):
        if isinstance(recipe, Recipe):
            overfit_translation(recipe, print_fn)


def build_trainer(
    task: AnyTask,
    recipe: TrainRecipe,
    data: PreparedData,
    device_context: DeviceContext,
    origin: "tuple[PretrainedRun | None, Path | None]",
    print_fn: PrintFn = lambda line: None,
) -> "tuple[Trainer[nn.Module, BaseBatch], Initialization | None]":
    """Build the model and the trainer of a run, with initial or pretrained weights.

    Args:
        origin: The pretrained run of `init_from`, if any; and the folder of a run that is resumed.
        print_fn: Receives the coverage of pretrained word vectors.

    Returns:
        The trainer before its first step, and the weights that were loaded; None without `init_from`.
    """
    model, initialization = task.build(recipe, data.tokenizers), None
    if isinstance(recipe, FineTunedRecipe) and recipe.init_from is not None:
        from s2s.run.init_from import initialize_from

        initialization = initialize_from(model, recipe, *origin)
    if isinstance(recipe, FineTunedRecipe) and recipe.vectors is not None:
        from s2s.run.vectors import load_vectors

        resumed = origin[1] is not None and Checkpoints(origin[1]).last() is not None
        load_vectors(model, data.tokenizers, recipe.vectors, resumed, print_fn)
    scales = initialization.scales if initialization else None
    examples, loss = task.examples(recipe, data, model.to(device_context.device)), task.loss(recipe)
    return Trainer(model, examples, loss, recipe.training, recipe.seeds, device_context, scales), initialization


def _warn_of_long_warmup(training: OptimizationSettings, print_fn: PrintFn) -> None:
    if training.warmup > training.updates:
        print_fn(
            f"training.warmup: {training.warmup:,} updates of warm-up are more than training.updates "
            f"({training.updates:,}); the learning rate ends at {learning_rate(training.updates, training):.2e} "
            f"instead of {training.learning_rate:.2e}. For a shorter warm-up: training.warmup=0.1 (a share of the "
            "updates)"
        )


def _print_lowered_sizes(recipe: TrainRecipe, tokenizers: Mapping[str, Tokenizer], print_fn: PrintFn) -> None:
    settings = dict(recipe).get("tokenizer")
    for line in lowered_sizes(settings, tokenizers) if isinstance(settings, PieceSettings) else ():
        print_fn(line)


def _training_loop(
    task: AnyTask, train_context: AnyContext, log: RunLog, checkpoints: Checkpoints | None, progress: Progress
) -> TrainingLoop:
    recipe, trainer = train_context.recipe, train_context.trainer
    settings, minutes = recipe.validation, recipe.run.save_minutes
    validate = lambda: task.validate(train_context, log)  # noqa: E731
    return TrainingLoop(trainer, settings, settings.metric, validate, log, checkpoints, progress, minutes)


def _status(trainer: Trainer[nn.Module, BaseBatch], checkpoints: Checkpoints) -> str:
    """Return the progress and the last saved step as a phrase, for messages."""
    last = checkpoints.last()
    if last is None:
        saved = "no checkpoint yet"
    elif int(last.name) == trainer.update:
        saved = "saved"
    else:
        saved = f"last checkpoint: update {int(last.name):,}"
    return f"stopped after update {trainer.update:,} of {trainer.settings.updates:,}; {saved}"


def _remove_unfinished(checkpoints: Checkpoints) -> None:
    folder = checkpoints.run
    check_unlinked(folder)
    # Other processes may be writing results into the run; only this one writes checkpoints.
    for place in (folder, folder / FIGURES, folder / folders.TOKENIZER):
        remove_unfinished(place)
    remove_unfinished(checkpoints.folder, alone=True)


def _select_precision(
    train_context: AnyContext, folder: Path, chosen: torch.dtype | None, print_fn: PrintFn
) -> "PrecisionBenchmark | None":
    """Select the faster precision for a new run; a resumed run keeps its precision, so that all bits are equal."""
    trainer, recipe = train_context.trainer, train_context.recipe
    device_context, before = trainer.device_context, parse_precision(manifest.training_device(folder))
    if before is None and chosen is not None:
        print_fn(f"precision: {PRECISION_NAMES[chosen]}, as in another run")
        trainer.device_context = replace(device_context, precision=chosen, autoselect_precision=False)
    elif before is not None and device_context.autoselect_precision:
        trainer.device_context = replace(device_context, precision=before, autoselect_precision=False)
    elif before is not None and before != device_context.precision:
        print_fn(
            f"precision changed from {PRECISION_NAMES[before]} to {PRECISION_NAMES[device_context.precision]}; "
            "the result will not be bit-identical to an uninterrupted run"
        )
    measured = None
    searched = recipe.decoding.precision if isinstance(recipe, SearchRecipe) else "fp32"
    in_search = torch.bfloat16 if searched == "bf16" else torch.float32
    with explain_oom(train_context, folder):
        if trainer.device_context.autoselect_precision:
            from s2s.training.precision import benchmark_precision

            measured = benchmark_precision(trainer)
            trainer.device_context = replace(device_context, precision=measured.faster, autoselect_precision=False)
            print_fn(str(measured))
        if torch.bfloat16 in (trainer.device_context.precision, in_search):
            from s2s.training.precision import check_precision

            check_precision(trainer, in_search)
    if exception := fp32_layers(trainer.model, {trainer.device_context.precision, in_search}, device_context.device):
        print_fn(exception)
    return measured


def _write_manifest(
    task: AnyTask, train_context: AnyContext, checkpoints: Checkpoints, measured: "PrecisionBenchmark | None"
) -> None:
    """Add this start to the manifest; raise an error if the data changed since the first one."""
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
    sizes = {name: len(part) for name, part in corpus.splits().items()}
    counts = {"test": 0, **sizes, **trainer.examples.manifest_counts()}
    start = manifest.describe(recipe, trainer.device_context, trainer.model, hashes, counts, overlaps, measured)
    manifest.write(start, path)


def _log_summary(
    task: AnyTask,
    train_context: AnyContext,
    initialization: "Initialization | None",
    folder: Path,
    print_fn: PrintFn,
) -> None:
    task.log_dataset_summary(train_context, print_fn)
    if initialization:
        initialization.save(folder)
        initialization.log_summary(print_fn)
    trainer = train_context.trainer
    learning, whole = count_parameters(trainer.model), sum(p.numel() for p in trainer.model.parameters())
    parameters = f"{whole:,} parameters" if learning == whole else f"{learning:,} of {whole:,} parameters trained"
    print_fn(
        f"{parameters} · {counted(len(trainer.groups), 'update')} per epoch · "
        f"{counted(trainer.micro_batches, 'micro-batch', 'micro-batches')} per update"
    )


def _restore(trainer: Trainer[nn.Module, BaseBatch], checkpoints: Checkpoints, print_fn: PrintFn) -> Progress:
    """Apply a changed `training.updates`, and load the last checkpoint into the trainer if there is one.

    Returns:
        Progress of the run so far.

    Raises:
        UserError: A checkpoint is damaged; found now, because each of them could end the run hours later.
    """
    last, now = checkpoints.last(), trainer.settings
    then = read(checkpoints.run / folders.RECIPE).training
    if last is not None:
        for place in sorted({last, *checkpoints.validated()}):
            check_weights(place, "restore the file, or delete this checkpoint and resume from another one")
        if then.updates != now.updates:
            read_training(last)
    if then.updates != now.updates:
        checkpoints.prepare_extension()
        (checkpoints.run / folders.TEST_SCORES).unlink(missing_ok=True)
        last = checkpoints.last()
        for place in (last, checkpoints.run):
            if place is not None:
                folders.set_num_updates(place / folders.RECIPE, now.updates)
        print_fn(f"training.updates changed from {then.updates:,} to {now.updates:,}")
        if now.depends_on_updates and last is not None:
            done = int(last.name)
            before, after = (
                f"{rate:.2e}" for rate in (learning_rate(max(1, done), then), learning_rate(done + 1, now))
            )
            changes = f"the learning rate changes from {before} to {after}; " if before != after else ""
            print_fn(
                f"the {now.schedule} schedule now ends at the new last update: {changes}the result differs from a run "
                "planned with this length from the start"
            )
    if last is None:
        if (checkpoints.run / METRICS).exists():
            print_fn("no checkpoint yet: starting from the first update")
        return Progress(0, 0, 0)
    tensors, progress = read_training(last)
    trainer.load_state(tensors, progress.place, last)
    # Prune here: a run that is already at its last step saves no further checkpoint.
    checkpoints.prune()
    longer = ""
    if progress.update >= now.updates:
        command = f"s2s train {quote_path(checkpoints.run)} --resume training.updates={2 * now.updates}"
        longer = f", the last one; to train longer: {command}"
    print_fn(f"resuming after update {progress.update}{longer}")
    return progress


def _test(recipe: TrainRecipe, folder: Path, log: RunLog, update: int, overrides: Sequence[str]) -> None:
    """Load the best checkpoint from disk and evaluate it on the test set."""
    evaluation = evaluate(folder, overrides=overrides, progress_bar=log.progress_bar)
    ending = f"-{evaluation.split}.png"
    for file in sorted((folder / FIGURES).glob(f"*{ending}")):
        log.add_figure(f"test/{file.name.removesuffix(ending)}", read_file(file), update)
    log.add_hyperparameters(folders.flatten(recipe.model_dump(mode="json")), evaluation.headline_metrics())
    log.info(str(evaluation))
    for source, written in evaluation.samples():
        log.info_pair(source, written)
