"""A training run of any task: train, validate, apply early stopping, save checkpoints, resume, test."""

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

import torch
from rich.console import Console

from s2s.data.data_check import train_overlaps
from s2s.errors import Stopped, UserError, printable
from s2s.files import check_unlinked, read_file, remove_unfinished
from s2s.models.base import count_parameters
from s2s.nn.precision import fp32_layers
from s2s.run import folder as folders
from s2s.run import manifest
from s2s.run.inference import data_hashes, evaluate, load_tokenizers
from s2s.run.init_from import Initialization, PretrainedRun, initialize_from, open_pretrained
from s2s.run.memory_check import check_memory, explain_oom, updates
from s2s.run.shutdown import GracefulShutdown, agree_on_pause, is_validation_step, print_resume_hint_on_exit
from s2s.run.tasks import read, serialize_recipe, task_of
from s2s.tasks.base import FIGURES, D, M, PreparedData, PrintFn, R, Task, TrainContext
from s2s.training.checkpoint import Checkpoints, Progress, average_checkpoints, check_weights, read_training
from s2s.training.device import PRECISION_NAMES, DeviceContext, parse_precision, select_device
from s2s.training.distributed import SINGLE_PROCESS, Distributed, PeerLostError
from s2s.training.divergence import check_divergence
from s2s.training.logger import METRICS, RunLog
from s2s.training.optimization import learning_rate
from s2s.training.precision import PrecisionBenchmark, benchmark_precision, check_precision
from s2s.training.step import StepResult
from s2s.training.trainer import Trainer
from s2s.training.validation import count_without_improvement, is_stuck_at_zero

if TYPE_CHECKING:
    from s2s.run.tasks import AnyTask

# a metric that can differ where the one on the left is 0
_MOVES_SOONER = {"bleu": "chrf", "exact": "chrf", "cider": "chrf"}


def plain(console: Console) -> PrintFn:
    """Return a function that prints a line without interpreting rich markup."""
    return lambda text: console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


class TrainingRun(Generic[R, D, M]):
    """Training loop of rank 0. Call `begin`, `train` and `test`, in this order.

    `train` logs each step, validates every `validation.every` steps, saves checkpoints, applies early stopping
    (`validation.patience`) and stops at SIGINT, SIGTERM and SIGHUP after saving.
    """

    def __init__(
        self,
        task: Task[R, D, M],
        train_context: TrainContext[R, D, M],
        beginning: Initialization,
        folder: Path,
        console: Console,
    ) -> None:
        self.task = task
        self.train_context = train_context
        self.initialization = beginning
        self.recipe: Any = train_context.recipe
        self.trainer = train_context.trainer
        self.folder = folder
        self.console = console
        self.print_fn = plain(console)
        keep_last, pauses = self.recipe.training.average_last or 1, self.recipe.validation
        self.checkpoints = Checkpoints(folder, pauses.keep_best, keep_last, pauses.every)
        self.progress = Progress(0, 0, 0)

    def status(self) -> str:
        """Return the progress and the last saved step as a phrase, for messages."""
        update, last = self.trainer.update, self.checkpoints.last()
        saved = int(last.name) if last else 0
        kept = (
            "saved" if last and saved == update else f"saved is update {saved:,}" if saved else "no update is saved yet"
        )
        return f"stopped after update {update:,} of {self.recipe.training.updates:,}; {kept}"

    def begin(self) -> RunLog:
        """Write the manifest, restore the last checkpoint if there is one, and open the log.

        Returns:
            The log, a context manager.

        Raises:
            UserError: The data changed since the run was started, or a file of the run is damaged.
        """
        check_unlinked(self.folder)
        # Other processes may be writing results into the run; only this one writes checkpoints.
        for place in (self.folder, self.folder / FIGURES, self.folder / folders.TOKENIZER):
            remove_unfinished(place)
        remove_unfinished(self.checkpoints.folder, alone=True)
        self._describe(self._decide_precision())
        self._check_checkpoints()
        self._extend()
        self.progress = self._restore()
        self.trainer.sync_from_main()
        done, total, metric = self.progress.update, self.recipe.training.updates, self.recipe.validation.metric
        return RunLog(self.folder, done, total, self.console, self.task.perplexity, metric)

    def train(self, log: RunLog) -> Iterator[StepResult]:
        """Train to the last step, then average the last checkpoints if `training.average_last` is set.

        Yields:
            Result of each step.

        Raises:
            UserError: A loss or gradient is not finite, the disk is full, or memory is exhausted.
            Stopped: A signal requested a stop.
        """
        if not self.progress.update:
            self.task.on_train_start(self.train_context, self.folder, log)
        yield from self._train(log)
        memory = self.trainer.device_context.peak_memory() / 2**30
        log.info(f"trained in {self.progress.seconds / 60:.1f} minutes, peak memory {memory:.1f} GiB")
        if noise := log.noise():
            log.info(noise)
        if last := self.recipe.training.average_last:
            average_checkpoints(self.train_context.model, self.checkpoints.validated()[-last:])
            self.checkpoints.save_average(self.train_context.model, self.progress)
        self.task.on_train_end(self.train_context, self.folder, log)

    def test(self, log: RunLog, overrides: Sequence[str]) -> None:
        """Load the best checkpoint from disk and evaluate it on the test set."""
        if self.train_context.data.corpus.test is None:
            return
        evaluation = evaluate(self.folder, overrides=overrides, progress_bar=log.progress_bar)
        ending = f"-{evaluation.split}.png"
        for file in sorted((self.folder / FIGURES).glob(f"*{ending}")):
            log.add_figure(f"test/{file.name.removesuffix(ending)}", read_file(file), self.trainer.update)
        log.add_hyperparameters(folders.flatten(self.recipe.model_dump(mode="json")), evaluation.headline_metrics())
        log.info(str(evaluation))
        for source, written in evaluation.samples():
            log.info_pair(source, written)

    def _decide_precision(self) -> PrecisionBenchmark | None:
        """Select the faster precision for a new run; a resumed run keeps its precision, so that all bits are equal.

        Raises:
            PrecisionError: This device cannot compute the model in the precision of the recipe or of the run.
        """
        device_context, before = self.trainer.device_context, parse_precision(manifest.training_device(self.folder))
        if before is not None and device_context.autoselect_precision:
            self.trainer.device_context = replace(device_context, precision=before, autoselect_precision=False)
        elif before is not None and before != device_context.precision:
            self.print_fn(
                f"until now this run computed in {PRECISION_NAMES[before]}, "
                f"from here on it does in {PRECISION_NAMES[device_context.precision]}: "
                "it will not end in the bits of a run that never stopped"
            )
        measured, decoding = None, dict(self.recipe).get("decoding")
        in_search = torch.bfloat16 if decoding and decoding.precision == "bf16" else torch.float32
        with explain_oom(self.train_context, self.folder):
            if self.trainer.device_context.autoselect_precision:
                measured = benchmark_precision(self.trainer)
                self.trainer.device_context = replace(
                    device_context, precision=measured.faster, autoselect_precision=False
                )
                self.print_fn(str(measured))
            check_precision(self.trainer, in_search)
        precisions = {self.trainer.device_context.precision, in_search}
        if exception := fp32_layers(self.trainer.model, precisions, device_context.device):
            self.print_fn(exception)
        return measured

    def _describe(self, measured: PrecisionBenchmark | None) -> None:
        path, hashes = (
            self.folder / folders.MANIFEST,
            data_hashes(self.task, self.train_context.recipe, self.train_context.data),
        )
        for earlier in manifest.read(path, begun=self.checkpoints.last() is not None):
            if changed := _changed(hashes, earlier["hashes"]):
                raise UserError(
                    f"{changed} changed since the run was started",
                    where=str(self.folder),
                    remedy="restore the files, or start a new run with run.dir=DIR",
                )
        trainer = self.trainer
        counts = self.task.count_examples(self.train_context)
        overlaps = train_overlaps(self.task.source(self.recipe), self.train_context.data.corpus)
        start = manifest.describe(
            self.recipe, trainer.device_context, trainer.model, hashes, counts, overlaps, measured
        )
        manifest.write(start, path)
        self.task.log_dataset_summary(self.train_context, self.print_fn)
        self.initialization.save(self.folder)
        self.initialization.log_summary(self.print_fn)
        learning, whole = count_parameters(trainer.model), sum(p.numel() for p in trainer.model.parameters())
        parameters = f"{whole:,} parameters" if learning == whole else f"{learning:,} of {whole:,} parameters learn"
        self.print_fn(
            f"{parameters} · {len(trainer.groups)} updates an epoch · {trainer.micro_batches} micro-batches an update"
        )

    def _check_checkpoints(self) -> None:
        """Refuse damaged checkpoints at the start: each of them could end the run hours later."""
        last = self.checkpoints.last()
        if last is None:
            return
        for place in sorted({last, *self.checkpoints.validated()}):
            check_weights(place, "restore the file, or remove this checkpoint and go on from another one")
        if read(self.folder / folders.RECIPE).training.updates != self.recipe.training.updates:
            read_training(last)

    def _extend(self) -> None:
        """Apply a changed `training.updates` to the run and to the checkpoint it resumes from."""
        then, now = read(self.folder / folders.RECIPE).training, self.recipe.training
        if then.updates == now.updates:
            return
        self.checkpoints.prepare_extension()
        last = self.checkpoints.last()
        for place in (last, self.folder):
            if place is not None:
                folders.set_num_updates(place / folders.RECIPE, now.updates)
        self.print_fn(f"training.updates: {then.updates:,} before, {now.updates:,} from now on")
        if now.schedule in ("cosine", "linear") and last is not None:
            done = int(last.name)
            rates = learning_rate(max(1, done), then), learning_rate(done + 1, now)
            self.print_fn(
                f"the {now.schedule} schedule ends with the last update, so its tail begins again: the rate goes from "
                f"{rates[0]:.2e} to {rates[1]:.2e}; a run of this length from the start would have learned otherwise"
            )

    def _restore(self) -> Progress:
        last = self.checkpoints.last()
        if last is None:
            if (self.folder / METRICS).exists():
                self.print_fn("no checkpoint yet: starting again from the first update")
            return Progress(0, 0, 0)
        tensors, progress = read_training(last)
        self.trainer.load_state(tensors, progress.place, last)
        # Prune here: a run that is already at its last step saves no further checkpoint.
        self.checkpoints.prune()
        self.print_fn(f"continuing after update {progress.update}")
        return progress

    def _train(self, log: RunLog) -> Iterator[StepResult]:
        distributed = self.trainer.device_context.distributed
        started, saved = time.perf_counter() - self.progress.seconds, time.monotonic()
        # A rank that was lost during a validation leaves a checkpoint without validation scores.
        done = self.progress
        if distributed.broadcast_object(
            done.update > 0 and done.score is None and is_validation_step(done.update, self.recipe)
        ):
            self._save(started, log)
        if distributed.broadcast_object(self._should_stop_early(log)):
            return
        with GracefulShutdown() as wish, self._save_if_peer_lost(started):
            for update in updates(self.train_context, self.folder):
                log.log_step(update)
                late = time.monotonic() - saved >= 60 * self.recipe.run.save_minutes
                ends = False
                if pause := agree_on_pause(update.update, self.recipe, distributed, wish, late):
                    self._save(started, log if pause.is_validation_step else None)
                    saved = time.monotonic()
                    ends = pause.should_stop(pause.is_validation_step and self._should_stop_early(log))
                yield update
                if ends:
                    break
        if wish.signal:
            raise Stopped(wish.signal)

    @contextmanager
    def _save_if_peer_lost(self, started: float) -> Iterator[None]:
        """Context manager that saves a checkpoint when another rank is lost."""
        try:
            yield
        except PeerLostError:
            # First, because saving takes time: only this rank can report how to resume.
            if launch := self.trainer.device_context.distributed.launch:
                launch.claim_error_report()
            if self.trainer.update > self.progress.update:
                self._save(started, None)
            raise

    def _save(self, started: float, log: RunLog | None) -> None:
        """Save a checkpoint; with a log, validate first."""
        trainer = self.trainer
        tensors, place = trainer.state()
        with trainer.optimization.use_ema_weights():
            found = self.task.validate(self.train_context, log) if log else None
            scores = self.progress.scores + ([(found.update, found.score, found.loss)] if found else [])
            score, loss = (found.score, found.loss) if found else (None, None)
            seconds = time.perf_counter() - started
            self.progress = Progress(**place, score=score, loss=loss, scores=scores, seconds=seconds)
            self.checkpoints.save(trainer.model, tensors, self.progress, str(trainer.device_context))
        if found and log:
            self._check_metric(log)

    def _check_metric(self, log: RunLog) -> None:
        """Say so where the validation metric cannot rank checkpoints of this data."""
        metric = self.recipe.validation.metric
        if metric != "loss" and is_stuck_at_zero(self.progress.validations):
            log.info(
                f"validation.metric: {metric} is 0 at two validations while the loss falls, so it cannot tell which "
                "checkpoint is best; until it moves, the lower loss decides. "
                f"Better on such data: validation.metric={_MOVES_SOONER.get(metric, 'loss')}"
            )

    def _should_stop_early(self, log: RunLog) -> bool:
        """Check for early stopping (`validation.patience`)."""
        settings = self.recipe.validation
        if settings.patience is None or count_without_improvement(self.progress.validations) < settings.patience:
            return False
        update, last = self.progress.update, self.recipe.training.updates
        no_better = f"no better {settings.metric} in {settings.patience} validations (validation.patience)"
        log.info(f"stopping after update {update:,} of {last:,}: {no_better}")
        return True


def _changed(now: Mapping[str, str], then: Mapping[str, str]) -> str:
    return ", ".join(name for name in now if now[name] != then.get(name))


def resume(
    folder: Path,
    console: Console,
    overrides: Sequence[str] = (),
    recipe: "AnyTask | None" = None,
    distributed: Distributed = SINGLE_PROCESS,
) -> Path:
    """Resume a run from its last checkpoint; the result is that of an uninterrupted run, to the bit.

    Args:
        folder: Folder of the run.
        console: Receives all output.
        overrides: Overrides of `data`, `device` and `training.updates`; the run keeps the last one.
        recipe: Recipe with the overrides applied; None: it is read and checked here.
        distributed: Process group of data-parallel training.

    Returns:
        The folder.

    Raises:
        UserError: it is not a run, or its recipe or its training data has changed since.
    """
    recipe = recipe or folders.check_resumable(folder, overrides)
    return _run_to_end(run_training(recipe, console, folder=folder, overrides=overrides, distributed=distributed))


def train(
    recipe: "AnyTask",
    console: Console,
    overwrite: bool = False,
    data: PreparedData | None = None,
    distributed: Distributed = SINGLE_PROCESS,
) -> Path:
    """Train a new run to its end; see `run_training`."""
    return _run_to_end(run_training(recipe, console, overwrite, data, distributed=distributed))


def _run_to_end(under_way: Generator[StepResult, None, Path]) -> Path:
    """Exhaust the generator and return its value."""
    while True:
        try:
            next(under_way)
        except StopIteration as end:
            return end.value


def run_training(
    recipe: "AnyTask",
    console: Console,
    overwrite: bool = False,
    data: PreparedData | None = None,
    folder: Path | None = None,
    overrides: Sequence[str] = (),
    distributed: Distributed = SINGLE_PROCESS,
) -> Generator[StepResult, None, Path]:
    """Run the whole story of a run on rank 0: recipe, data, tokenizers, model, training, test.

    The folder of a new run is created only after data, tokenizers and model have been checked. The other ranks run
    `s2s.run.worker.run_worker`. A caller that stops iterating leaves a run that resumes from its last checkpoint.

    Args:
        recipe: The recipe.
        console: Receives all output.
        overwrite: Replace a run in the same folder.
        data: Prepared data; None: they are read here.
        folder: Folder of a run to resume; None for a new run.
        overrides: Overrides of this start of a resumed run.
        distributed: Process group of data-parallel training.

    Yields:
        Result of each optimizer step, after it is logged.

    Returns:
        The folder.
    """
    if folder is None:
        folders.check_free(recipe, overwrite)
    task, print_fn = task_of(recipe), plain(console)
    with check_memory(task, recipe):
        distributed.broadcast_object(serialize_recipe(recipe))
        device_context = select_device(recipe.device, distributed)
        print_fn(f"{recipe.name} on {device_context}")

        source = open_pretrained(recipe) if folder is None else None
        recipe = source.adapt_recipe(recipe) if source else recipe
        if folder is None:
            task.check(recipe)
        tokenizers = load_tokenizers(folder, recipe) if folder else source.tokenizers if source else ()
        prepared = data or task.prepare(recipe, tokenizers, print_fn)
        recipe = task.finalize_config(recipe, prepared)
        distributed.broadcast_object((serialize_recipe(recipe), prepared.tokenizers, folder and folder.resolve()))

        trainer, beginning = build_trainer(task, recipe, prepared, device_context, (source, folder))
        distributed.assert_equal_across_ranks(
            lambda: data_hashes(task, recipe, prepared) | {"device.kind": device_context.device.type}
        )

    with ExitStack() as stack:
        kept = dict(zip(task.tokenizer_names(recipe), prepared.tokenizers, strict=True))
        folder = stack.enter_context(
            folders.run_lock(folder) if folder else folders.create_run_dir(recipe, kept, overwrite)
        )
        run = TrainingRun(task, TrainContext(recipe, prepared, trainer), beginning, folder, console)
        again = ["train", str(folder), "--resume", *overrides]
        if launch := distributed.launch:
            launch.record_run(folder)
        stack.enter_context(
            print_resume_hint_on_exit(folder, launch.command(again) if launch else ["s2s", *again], run.status)
        )
        with run.begin() as log:
            yield from run.train(log)
            run.test(log, folders.without_length_override(overrides))
        check_divergence(folder, trainer.model, task.chance_loss(prepared))
    return folder


def build_trainer(
    task: Task[R, D, M],
    recipe: R,
    data: D,
    device_context: DeviceContext,
    origin: tuple[PretrainedRun | None, Path | None],
) -> tuple[Trainer[M, Any], Initialization]:
    """Build the model and the trainer of a run, with initial or pretrained weights.

    Args:
        task: The task.
        recipe: The resolved recipe.
        data: The prepared data.
        device_context: Device and precision.
        origin: The pretrained run of `init_from`, if any; and the folder of a run that is resumed.

    Returns:
        The trainer before its first step, and which weights were loaded.
    """
    model, settings = task.build(recipe, data.tokenizers), dict(recipe)
    beginning = initialize_from(model, recipe, *origin)
    examples, loss = task.examples(recipe, data, model.to(device_context.device)), task.loss(recipe)
    trainer = Trainer(model, examples, loss, settings["training"], recipe.seeds, device_context, beginning.scales)
    return trainer, beginning
