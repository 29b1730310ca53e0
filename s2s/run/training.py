"""The story of a training run: recipe, data, model, trainer, training, test.

`run_training` runs it on rank 0, `run_worker` on the other ranks of data-parallel training. The optimizer step and the
loop around it are in `s2s.training.trainer`.
"""

from collections.abc import Generator, Sequence
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from torch import nn

from s2s.data.dataset import BaseBatch
from s2s.errors import printable
from s2s.files import read_file
from s2s.recipe.schema import FineTunedRecipe, TrainRecipe
from s2s.run import folder as folders
from s2s.run.inference import data_hashes, evaluate, load_tokenizers
from s2s.run.init_from import Initialization, PretrainedRun, initialize_from, open_pretrained
from s2s.run.memory_check import check_memory, explain_oom
from s2s.run.start import start_training
from s2s.run.tasks import deserialize_recipe, serialize_recipe, task_of
from s2s.tasks.base import FIGURES, AnyContext, AnyTask, PreparedData, TrainContext
from s2s.tasks.protocols import WritesAtEnd, WritesAtStart
from s2s.training.checkpoint import Checkpoints, Progress, average_checkpoints
from s2s.training.device import DeviceContext, select_device, setup_process
from s2s.training.distributed import SINGLE_PROCESS, Distributed
from s2s.training.divergence import check_divergence
from s2s.training.logger import NullLog, RunLog
from s2s.training.shutdown import print_resume_hint_on_exit
from s2s.training.step import StepResult
from s2s.training.trainer import Trainer, TrainingLoop


def train(
    recipe: TrainRecipe,
    console: Console,
    overwrite: bool = False,
    data: PreparedData | None = None,
    distributed: Distributed = SINGLE_PROCESS,
) -> Path:
    """Train a new run to its end; see `run_training`."""
    return _run_to_end(run_training(recipe, console, overwrite, data, distributed=distributed))


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
        UserError: it is not a run, or its recipe or its training data has changed since.
    """
    recipe = recipe or folders.check_resumable(folder, overrides)
    return _run_to_end(run_training(recipe, console, folder=folder, overrides=overrides, distributed=distributed))


def _run_to_end(steps: Generator[StepResult, None, Path]) -> Path:
    """Exhaust the generator and return its value."""
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
        source = open_pretrained(recipe) if folder is None else None
        recipe = source.adapt_recipe(recipe) if source and isinstance(recipe, FineTunedRecipe) else recipe
        if folder is None:
            task.check(recipe)

        # 2. Data and tokenizers.
        tokenizers = load_tokenizers(folder, recipe) if folder else source.tokenizers if source else ()
        prepared = data or task.prepare(recipe, tokenizers, print_fn)
        recipe = task.finalize_config(recipe, prepared)
        distributed.broadcast_object((serialize_recipe(recipe), prepared.tokenizers, folder and folder.resolve()))

        # 3. Model and trainer.
        trainer, initialization = build_trainer(task, recipe, prepared, device_context, (source, folder))
        distributed.assert_equal_across_ranks(
            lambda: data_hashes(task, recipe, prepared) | {"device.kind": device_context.device.type}
        )

    with ExitStack() as stack:
        # 4. The folder.
        named = dict(zip(recipe.tokenizer_names, prepared.tokenizers, strict=True))
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
        progress = start_training(task, train_context, initialization, checkpoints, print_fn)
        trainer.sync_from_main()

        # 5. Training.
        total = recipe.training.updates
        with RunLog(folder, progress.update, total, console, task.perplexity, validation.metric) as log:
            if not progress.update and isinstance(task, WritesAtStart):
                task.on_train_start(train_context, folder, log)
            loop = _training_loop(task, train_context, log, checkpoints, progress)
            with explain_oom(train_context, folder):
                yield from loop.fit()
            memory = trainer.device_context.peak_memory() / 2**30
            log.info(f"trained in {loop.progress.seconds / 60:.1f} minutes, peak memory {memory:.1f} GiB")
            if noise := log.noise():
                log.info(noise)
            if last := recipe.training.average_last:
                average_checkpoints(trainer.model, checkpoints.validated()[-last:])
                checkpoints.save_average(trainer.model, loop.progress)
            if isinstance(task, WritesAtEnd):
                task.on_train_end(train_context, folder, log)

            # 6. Scores of the best checkpoint on the test set.
            if prepared.corpus.test is not None:
                _test(recipe, folder, log, trainer.update, folders.without_length_override(overrides))
        check_divergence(folder, trainer.model, prepared.chance_loss)
    return folder


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


def build_trainer(
    task: AnyTask,
    recipe: TrainRecipe,
    data: PreparedData,
    device_context: DeviceContext,
    origin: tuple[PretrainedRun | None, Path | None],
) -> tuple[Trainer[nn.Module, BaseBatch], Initialization]:
    """Build the model and the trainer of a run, with initial or pretrained weights.

    Args:
        origin: The pretrained run of `init_from`, if any; and the folder of a run that is resumed.

    Returns:
        The trainer before its first step, and which weights were loaded.
    """
    model = task.build(recipe, data.tokenizers)
    initialization = initialize_from(model, recipe, *origin)
    examples, loss = task.examples(recipe, data, model.to(device_context.device)), task.loss(recipe)
    trainer = Trainer(model, examples, loss, recipe.training, recipe.seeds, device_context, initialization.scales)
    return trainer, initialization


def _training_loop(
    task: AnyTask,
    train_context: AnyContext,
    log: RunLog,
    checkpoints: Checkpoints | None,
    progress: Progress,
) -> TrainingLoop:
    recipe = train_context.recipe
    return TrainingLoop(
        train_context.trainer,
        recipe.validation,
        recipe.validation.metric,
        lambda: task.validate(train_context, log),
        log,
        checkpoints,
        progress,
        recipe.run.save_minutes,
    )


def _status(trainer: Trainer[nn.Module, BaseBatch], checkpoints: Checkpoints) -> str:
    """Return the progress and the last saved step as a phrase, for messages."""
    last = checkpoints.last()
    saved = int(last.name) if last else 0
    phrase = f"saved is update {saved:,}" if last else "no update is saved yet"
    phrase = "saved" if last and saved == trainer.update else phrase
    return f"stopped after update {trainer.update:,} of {trainer.settings.updates:,}; {phrase}"


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
