"""The course of a run, the same for every task: train, pause to validate and to save, resume, average, test."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from rich.console import Console

from s2s.data.tokenizers import Tokenizer
from s2s.errors import UserError
from s2s.models.contract import parameter_count
from s2s.run import manifest
from s2s.run.folder import MANIFEST, alone, create
from s2s.run.pretrained import Beginning
from s2s.training.checkpoint import Checkpoints, Progress, average, read_progress, read_tensors
from s2s.training.logger import METRICS, RunLog
from s2s.training.trainer import Trainer

Say = Callable[[str], None]


def plain(console: Console) -> Say:
    """Prints a line as it is: square brackets of a text are no colours."""
    return lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True)


class Course(ABC):
    """What a run of one task has of its own.

    Args:
        recipe: the resolved recipe.
        trainer: that has done nothing yet.
        beginning: what the model has from another run; None where a task cannot begin with one.

    Attributes:
        perplexity: whether the loss is that of pieces, so that its exponential means something.
    """

    perplexity: ClassVar[bool] = False

    def __init__(self, recipe: Any, trainer: Trainer, beginning: Beginning | None = None) -> None:
        self.recipe = recipe
        self.trainer = trainer
        self.beginning = beginning

    def tokenizers(self) -> dict[str, Tokenizer]:
        """What a new run keeps to cut texts with, by file name; none where nothing is cut."""
        return {}

    @abstractmethod
    def hashes(self) -> dict[str, str]:
        """What identifies the training data and all that was made of it, whatever files are called."""

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """How many examples there are, by split, and how many were left out or cut."""

    @abstractmethod
    def introduce(self, say: Say) -> None:
        """Tells in plain lines what will be learned from, before training begins."""

    @abstractmethod
    def begin(self, folder: Path, log: RunLog) -> None:
        """Draws what is to be seen before the first update.

        Args:
            folder: of the run.
            log: takes pictures.
        """

    @abstractmethod
    def validate(self, log: RunLog) -> float:
        """Measures the model as it is now and writes down what was found.

        Args:
            log: takes scores, texts and pictures.

        Returns:
            The score that decides which checkpoint is best; higher is better.
        """

    @abstractmethod
    def test(self, folder: Path, log: RunLog) -> None:
        """Scores the run's final checkpoint on its test set, where there is one, and writes down what was found.

        Args:
            folder: of the run.
            log: takes scores and pictures.
        """


def start(course: Course, console: Console, overwrite: bool = False) -> Path:
    """Makes the folder of a new run, and trains it to the end.

    Args:
        course: what is trained, found good.
        console: where progress is shown.
        overwrite: replace a run that is there.

    Returns:
        The run's folder.
    """
    folder = create(course.recipe, course.tokenizers(), overwrite)
    follow(course, folder, console)
    return folder


def follow(course: Course, folder: Path, console: Console) -> None:
    """Trains from the last checkpoint, or from the beginning where there is none, to the end.

    Args:
        course: what is trained.
        folder: of the run; made before.
        console: where progress is shown.

    Raises:
        UserError: another process trains this run, its data changed, or a number is not finite.
    """
    with alone(folder):
        _Following(course, folder, console).finish()


class _Following:
    def __init__(self, course: Course, folder: Path, console: Console) -> None:
        self.course = course
        self.recipe = course.recipe
        self.trainer = course.trainer
        self.folder = folder
        self.console = console
        self.say = plain(console)
        keep_last = self.recipe.training.average_last or 1
        self.checkpoints = Checkpoints(folder, self.recipe.validation.keep_best, keep_last)

    def finish(self) -> None:
        course, total = self.course, self.recipe.training.updates
        self._describe()
        progress = self._continue()
        with RunLog(self.folder, progress.update, total, self.console, course.perplexity) as log:
            if not progress.update:
                course.begin(self.folder, log)
            progress = self._train(progress, log)
            memory = self.trainer.computer.peak_memory() / 2**30
            log.say(f"trained in {progress.seconds / 60:.1f} minutes, peak memory {memory:.1f} GiB")
            if self.recipe.training.average_last:
                average(self.trainer.model, self.checkpoints.numbered()[-self.recipe.training.average_last :])
                self.checkpoints.save_average(self.trainer.model, progress)
            course.test(self.folder, log)

    def _describe(self) -> None:
        path, hashes = self.folder / MANIFEST, self.course.hashes()
        for earlier in manifest.read(path):
            if changed := _changed(hashes, earlier["hashes"]):
                raise UserError(
                    f"{changed} changed since the run was started",
                    where=str(self.folder),
                    remedy="restore the files, or start a new run with run.dir=DIR",
                )
        trainer = self.trainer
        described = manifest.describe(self.recipe, trainer.computer, trainer.model, hashes, self.course.counts())
        manifest.write(described, path)
        self.course.introduce(self.say)
        if self.course.beginning is not None:
            self.course.beginning.keep(self.folder)
            self.course.beginning.introduce(self.say)
        learning, whole = parameter_count(trainer.model), sum(p.numel() for p in trainer.model.parameters())
        parameters = f"{whole:,} parameters" if learning == whole else f"{learning:,} of {whole:,} parameters learn"
        self.say(
            f"{parameters} · {len(trainer.groups)} updates an epoch · {trainer.micro_batches} micro-batches an update"
        )

    def _continue(self) -> Progress:
        last = self.checkpoints.last()
        if last is None:
            if (self.folder / METRICS).exists():
                self.say("no checkpoint yet: starting again from the first update")
            return Progress(0, 0, 0)
        progress = read_progress(last)
        place = {"update": progress.update, "epoch": progress.epoch, "position": progress.position}
        self.trainer.load_state(read_tensors(last / "training.safetensors"), place)
        self.say(f"continuing after update {progress.update}")
        return progress

    def _train(self, progress: Progress, log: RunLog) -> Progress:
        settings, total, trainer = self.recipe.validation, self.recipe.training.updates, self.trainer
        if self._out_of_patience(progress):
            return progress
        started = time.perf_counter() - progress.seconds
        for update in trainer.updates(total):
            log.update(update)
            if update.update % settings.every and update.update != total:
                continue
            tensors, place = trainer.state()
            with trainer.optimization.averaged():
                score = self.course.validate(log)
                scores = [*progress.scores, (update.update, score)]
                progress = Progress(**place, score=score, scores=scores, seconds=time.perf_counter() - started)
                self.checkpoints.save(trainer.model, tensors, progress)
            if self._out_of_patience(progress):
                log.say(f"stopping: no better {settings.metric} in {settings.patience} validations")
                break
        return progress

    def _out_of_patience(self, progress: Progress) -> bool:
        patience = self.recipe.validation.patience
        scores = [score for _, score in progress.scores]
        return patience is not None and bool(scores) and len(scores) - 1 - scores.index(max(scores)) >= patience


def _changed(now: Mapping[str, str], then: Mapping[str, str]) -> str:
    return ", ".join(name for name in now if now[name] != then.get(name, now[name]))
