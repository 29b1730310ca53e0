"""Trains a run, from its recipe to the scores of its test set, and goes on with one: the same for every task."""

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

import torch
from rich.console import Console

from s2s.data.inspection import train_overlaps
from s2s.errors import Stopped, UserError, printable
from s2s.files import check_unlinked, read_file, sweep
from s2s.models.contract import parameter_count
from s2s.nn.precision import fp32_layers
from s2s.run import folder as folders
from s2s.run import manifest
from s2s.run.loaded import evaluate, hashes_of, load_tokenizers
from s2s.run.pretrained import Beginning, Source, begin_with, open_source
from s2s.run.room import room_to_train, room_to_update, updates
from s2s.run.stopping import Wish, due, pauses, resumable
from s2s.run.tasks import read, sent, task_of
from s2s.tasks.contract import FIGURES, Course, D, M, Prepared, R, Say, Task
from s2s.training.checkpoint import Checkpoints, Progress, average, check_weights, read_training
from s2s.training.devices import NAMES, Computer, choose, precision_of
from s2s.training.divergence import check_sound
from s2s.training.logger import METRICS, RunLog
from s2s.training.optimization import learning_rate
from s2s.training.precision import GradientTimes, check_precision, measure
from s2s.training.ranks import ALONE, Lost, Ranks
from s2s.training.trainer import Trainer
from s2s.training.update import Update
from s2s.training.validation import count_without_improvement, is_stuck_at_zero

if TYPE_CHECKING:
    from s2s.run.tasks import AnyTask

# a metric that can differ where the one on the left is 0
_MOVES_SOONER = {"bleu": "chrf", "exact": "chrf", "cider": "chrf"}


def plain(console: Console) -> Say:
    """Prints a line as it is: square brackets of a text are no colours."""
    return lambda text: console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


class Running(Generic[R, D, M]):
    """A run that is under way: whoever has made its folder calls `begin`, `train` and `test`, one after the other."""

    def __init__(
        self, task: Task[R, D, M], course: Course[R, D, M], beginning: Beginning, folder: Path, console: Console
    ) -> None:
        self.task = task
        self.course = course
        self.beginning = beginning
        self.recipe: Any = course.recipe
        self.trainer = course.trainer
        self.folder = folder
        self.console = console
        self.say = plain(console)
        keep_last, pauses = self.recipe.training.average_last or 1, self.recipe.validation
        self.checkpoints = Checkpoints(folder, pauses.keep_best, keep_last, pauses.every)
        self.progress = Progress(0, 0, 0)

    def stands(self) -> str:
        """How far it has come, in words."""
        update, last = self.trainer.update, self.checkpoints.last()
        saved = int(last.name) if last else 0
        kept = (
            "saved" if last and saved == update else f"saved is update {saved:,}" if saved else "no update is saved yet"
        )
        return f"stopped after update {update:,} of {self.recipe.training.updates:,}; {kept}"

    def begin(self) -> RunLog:
        """Describes the run, goes to its last checkpoint, where there is one, and gives its log, to be entered.

        Raises:
            UserError: its data changed, or what it left is damaged.
        """
        check_unlinked(self.folder)
        # others may write results into the run, and nobody else checkpoints
        for place in (self.folder, self.folder / FIGURES, self.folder / folders.TOKENIZER):
            sweep(place)
        sweep(self.checkpoints.folder, alone=True)
        self._describe(self._decide_precision())
        self._check_kept()
        self._lengthen()
        self.progress = self._continue()
        self.trainer.follow()
        done, total, metric = self.progress.update, self.recipe.training.updates, self.recipe.validation.metric
        return RunLog(self.folder, done, total, self.console, self.task.perplexity, metric)

    def train(self, log: RunLog) -> Iterator[Update]:
        """Trains to the end, update by update; then the average is made of its last checkpoints, where one is wanted.

        Raises:
            UserError: a number is not finite, or disk or memory is full.
            Stopped: somebody wants it.
        """
        if not self.progress.update:
            self.task.begin(self.course, self.folder, log)
        yield from self._train(log)
        memory = self.trainer.computer.peak_memory() / 2**30
        log.say(f"trained in {self.progress.seconds / 60:.1f} minutes, peak memory {memory:.1f} GiB")
        if noise := log.noise():
            log.say(noise)
        if last := self.recipe.training.average_last:
            average(self.course.model, self.checkpoints.validated()[-last:])
            self.checkpoints.save_average(self.course.model, self.progress)
        self.task.end(self.course, self.folder, log)

    def test(self, log: RunLog, overrides: Sequence[str]) -> None:
        """Loads the best checkpoint, as any other user of the run would, and scores it on the test set."""
        if self.course.data.corpus.test is None:
            return
        evaluation = evaluate(self.folder, overrides=overrides, meter=log.meter)
        ending = f"-{evaluation.split}.png"
        for file in sorted((self.folder / FIGURES).glob(f"*{ending}")):
            log.picture(f"test/{file.name.removesuffix(ending)}", read_file(file), self.trainer.update)
        log.settings(folders.flat(self.recipe.model_dump(mode="json")), evaluation.main_scores())
        log.say(str(evaluation))
        for source, written in evaluation.samples():
            log.say_pair(source, written)

    def _decide_precision(self) -> GradientTimes | None:
        """The faster one for a new run; that of before, so that all bits are the same, for one that goes on.

        Raises:
            PrecisionError: the recipe, or the start before, names one that this device cannot compute the model in.
        """
        computer, before = self.trainer.computer, precision_of(manifest.trained_on(self.folder))
        if before is not None and computer.undecided:
            self.trainer.computer = replace(computer, precision=before, undecided=False)
        elif before is not None and before != computer.precision:
            self.say(
                f"until now this run computed in {NAMES[before]}, from here on it does in {NAMES[computer.precision]}: "
                "it will not end in the bits of a run that never stopped"
            )
        measured, decoding = None, dict(self.recipe).get("decoding")
        in_search = torch.bfloat16 if decoding and decoding.precision == "bf16" else torch.float32
        with room_to_update(self.course, self.folder):
            if self.trainer.computer.undecided:
                measured = measure(self.trainer)
                self.trainer.computer = replace(computer, precision=measured.faster, undecided=False)
                self.say(str(measured))
            check_precision(self.trainer, in_search)
        precisions = {self.trainer.computer.precision, in_search}
        if exception := fp32_layers(self.trainer.model, precisions, computer.device):
            self.say(exception)
        return measured

    def _describe(self, measured: GradientTimes | None) -> None:
        path, hashes = self.folder / folders.MANIFEST, hashes_of(self.task, self.course.recipe, self.course.data)
        for earlier in manifest.read(path, begun=self.checkpoints.last() is not None):
            if changed := _changed(hashes, earlier["hashes"]):
                raise UserError(
                    f"{changed} changed since the run was started",
                    where=str(self.folder),
                    remedy="restore the files, or start a new run with run.dir=DIR",
                )
        trainer = self.trainer
        counts = self.task.counts(self.course)
        overlaps = train_overlaps(self.task.source(self.recipe), self.course.data.corpus)
        start = manifest.describe(self.recipe, trainer.computer, trainer.model, hashes, counts, overlaps, measured)
        manifest.write(start, path)
        self.task.introduce(self.course, self.say)
        self.beginning.keep(self.folder)
        self.beginning.introduce(self.say)
        learning, whole = parameter_count(trainer.model), sum(p.numel() for p in trainer.model.parameters())
        parameters = f"{whole:,} parameters" if learning == whole else f"{learning:,} of {whole:,} parameters learn"
        self.say(
            f"{parameters} · {len(trainer.groups)} updates an epoch · {trainer.micro_batches} micro-batches an update"
        )

    def _check_kept(self) -> None:
        """Refuses damaged checkpoints before anything is changed: each of them may end the run, hours later."""
        last = self.checkpoints.last()
        if last is None:
            return
        for place in sorted({last, *self.checkpoints.validated()}):
            check_weights(place, "restore the file, or remove this checkpoint and go on from another one")
        if read(self.folder / folders.RECIPE).training.updates != self.recipe.training.updates:
            read_training(last)

    def _lengthen(self) -> None:
        """Takes over another number of updates: into the run, and into the checkpoint that it goes on from."""
        then, now = read(self.folder / folders.RECIPE).training, self.recipe.training
        if then.updates == now.updates:
            return
        self.checkpoints.lengthen()
        last = self.checkpoints.last()
        for place in (last, self.folder):
            if place is not None:
                folders.lengthen(place / folders.RECIPE, now.updates)
        self.say(f"training.updates: {then.updates:,} before, {now.updates:,} from now on")
        if now.schedule in ("cosine", "linear") and last is not None:
            done = int(last.name)
            rates = learning_rate(max(1, done), then), learning_rate(done + 1, now)
            self.say(
                f"the {now.schedule} schedule ends with the last update, so its tail begins again: the rate goes from "
                f"{rates[0]:.2e} to {rates[1]:.2e}; a run of this length from the start would have learned otherwise"
            )

    def _continue(self) -> Progress:
        last = self.checkpoints.last()
        if last is None:
            if (self.folder / METRICS).exists():
                self.say("no checkpoint yet: starting again from the first update")
            return Progress(0, 0, 0)
        tensors, progress = read_training(last)
        self.trainer.load_state(tensors, progress.place, last)
        # where the last update is saved, no save comes that would
        self.checkpoints.prune()
        self.say(f"continuing after update {progress.update}")
        return progress

    def _train(self, log: RunLog) -> Iterator[Update]:
        ranks = self.trainer.computer.ranks
        started, saved = time.perf_counter() - self.progress.seconds, time.monotonic()
        # a process that was lost within a validation leaves a checkpoint without one
        done = self.progress
        if ranks.led(done.update > 0 and done.score is None and due(done.update, self.recipe)):
            self._save(started, log)
        if ranks.led(self._out_of_patience(log)):
            return
        with Wish() as wish, self._keeping(started):
            for update in updates(self.course, self.folder):
                log.update(update)
                late = time.monotonic() - saved >= 60 * self.recipe.run.save_minutes
                ends = False
                if pause := pauses(update.update, self.recipe, ranks, wish, late):
                    self._save(started, log if pause.due else None)
                    saved = time.monotonic()
                    ends = pause.ends(pause.due and self._out_of_patience(log))
                yield update
                if ends:
                    break
        if wish.signal:
            raise Stopped(wish.signal)

    @contextmanager
    def _keeping(self, started: float) -> Iterator[None]:
        """Within it, what was done so far is saved when another process of the training is lost."""
        try:
            yield
        except Lost:
            # before it takes its time: this is the process that can tell how to go on
            if launch := self.trainer.computer.ranks.launch:
                launch.speaks()
            if self.trainer.update > self.progress.update:
                self._save(started, None)
            raise

    def _save(self, started: float, log: RunLog | None) -> None:
        """Saves a checkpoint; of a validation where there is a log for it, and else one only to go on from."""
        trainer = self.trainer
        tensors, place = trainer.state()
        with trainer.optimization.averaged():
            found = self.task.validate(self.course, log) if log else None
            scores = self.progress.scores + ([(found.update, found.score, found.loss)] if found else [])
            score, loss = (found.score, found.loss) if found else (None, None)
            seconds = time.perf_counter() - started
            self.progress = Progress(**place, score=score, loss=loss, scores=scores, seconds=seconds)
            self.checkpoints.save(trainer.model, tensors, self.progress, str(trainer.computer))
        if found and log:
            self._check_metric(log)

    def _check_metric(self, log: RunLog) -> None:
        """Say so where the validation metric cannot rank checkpoints of this data."""
        metric = self.recipe.validation.metric
        if metric != "loss" and is_stuck_at_zero(self.progress.validations):
            log.say(
                f"validation.metric: {metric} is 0 at two validations while the loss falls, so it cannot tell which "
                "checkpoint is best; until it moves, the lower loss decides. "
                f"Better on such data: validation.metric={_MOVES_SOONER.get(metric, 'loss')}"
            )

    def _out_of_patience(self, log: RunLog) -> bool:
        """Check for early stopping (`validation.patience`)."""
        settings = self.recipe.validation
        if settings.patience is None or count_without_improvement(self.progress.validations) < settings.patience:
            return False
        update, last = self.progress.update, self.recipe.training.updates
        no_better = f"no better {settings.metric} in {settings.patience} validations (validation.patience)"
        log.say(f"stopping after update {update:,} of {last:,}: {no_better}")
        return True


def _changed(now: Mapping[str, str], then: Mapping[str, str]) -> str:
    return ", ".join(name for name in now if now[name] != then.get(name))


def resume(
    folder: Path,
    console: Console,
    overrides: Sequence[str] = (),
    recipe: "AnyTask | None" = None,
    ranks: Ranks = ALONE,
) -> Path:
    """Continues a run from its last checkpoint, as if it had never stopped.

    Overrides are for `data` and `device`, and for `training.updates`, which the run keeps; the recipe with them is
    asked of `check_resumable` unless it is known.

    Raises:
        UserError: it is not a run, or its recipe or its training data has changed since.
    """
    recipe = recipe or folders.check_resumable(folder, overrides)
    return _ended(training(recipe, console, folder=folder, overrides=overrides, ranks=ranks))


def train(
    recipe: "AnyTask",
    console: Console,
    overwrite: bool = False,
    data: Prepared | None = None,
    ranks: Ranks = ALONE,
) -> Path:
    """Trains a new run to its end; see `training`."""
    return _ended(training(recipe, console, overwrite, data, ranks=ranks))


def _ended(under_way: Generator[Update, None, Path]) -> Path:
    """What it returns, however many updates it yields before."""
    while True:
        try:
            next(under_way)
        except StopIteration as end:
            return end.value


def training(
    recipe: "AnyTask",
    console: Console,
    overwrite: bool = False,
    data: Prepared | None = None,
    folder: Path | None = None,
    overrides: Sequence[str] = (),
    ranks: Ranks = ALONE,
) -> Generator[Update, None, Path]:
    """The story of a run: recipe, data, model, trainer; it trains, and its best checkpoint is loaded and tested.

    Its folder is made only when data, tokenizers and model are found good; a run that goes on has one, and overrides
    with which it does. The data are read unless they were prepared before. Of several processes, this is what the first
    does; what the others do is in `s2s.run.following`. Whoever leaves it after an update leaves a run that goes on from
    its last checkpoint.

    Yields:
        Each update, when it is done and noted.

    Returns:
        The folder.
    """
    if folder is None:
        folders.check_free(recipe, overwrite)
    task, say = task_of(recipe), plain(console)
    with room_to_train(task, recipe):
        ranks.led(sent(recipe))
        computer = choose(recipe.device, ranks)
        say(f"{recipe.name} on {computer}")

        source = open_source(recipe) if folder is None else None
        recipe = source.adapt(recipe) if source else recipe
        if folder is None:
            task.check(recipe)
        tokenizers = load_tokenizers(folder, recipe) if folder else source.tokenizers if source else ()
        prepared = data or task.prepare(recipe, tokenizers, say)
        recipe = task.resolved(recipe, prepared)
        ranks.led((sent(recipe), prepared.tokenizers, folder and folder.resolve()))

        trainer, beginning = trainer_of(task, recipe, prepared, computer, (source, folder))
        ranks.check_same(lambda: hashes_of(task, recipe, prepared) | {"device.kind": computer.device.type})

    with ExitStack() as stack:
        kept = dict(zip(task.tokenizer_names(recipe), prepared.tokenizers, strict=True))
        folder = stack.enter_context(folders.alone(folder) if folder else folders.created(recipe, kept, overwrite))
        run = Running(task, Course(recipe, prepared, trainer), beginning, folder, console)
        again = ["train", str(folder), "--resume", *overrides]
        if launch := ranks.launch:
            launch.begins(folder)
        stack.enter_context(resumable(folder, launch.command(again) if launch else ["s2s", *again], run.stands))
        with run.begin() as log:
            yield from run.train(log)
            run.test(log, folders.of_now(overrides))
        check_sound(folder, trainer.model, task.guessing(prepared))
    return folder


def trainer_of(
    task: Task[R, D, M], recipe: R, data: D, computer: Computer, origin: tuple[Source | None, Path | None]
) -> tuple[Trainer[M, Any], Beginning]:
    """A trainer of a run that has done nothing yet, and what its model begins with.

    The origin is the run whose encoder a new run begins with, where there is one, and the folder of a run that goes on.
    """
    model, settings = task.build(recipe, data.tokenizers), dict(recipe)
    beginning = begin_with(model, recipe, *origin)
    examples, loss = task.examples(recipe, data, model.to(computer.device)), task.loss(recipe)
    trainer = Trainer(model, examples, loss, settings["training"], recipe.seeds, computer, beginning.scales)
    return trainer, beginning
