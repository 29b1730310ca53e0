"""Logs of a run: metrics.jsonl, TensorBoard, and the terminal.

`RunLog` writes all three during training; `read_metrics` reads metrics.jsonl.
"""

import json
import math
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from pydantic import BaseModel, Field, model_validator
from rich.console import Console
from rich.progress import Progress

from s2s.errors import UserError, counted, printable
from s2s.files import RESTORE, append_to, open_regular, write_atomically
from s2s.json_files import parse_json
from s2s.training.progress import PLAIN_LINE_EVERY, Advance, TimestampedStream, bar_columns, fit_to_row, progress_bar
from s2s.training.step import Noise, StepResult, noise_scale

METRICS = "metrics.jsonl"
_LONGEST_LINE = 1 << 20
_CURVE_POINTS = 1000
_WARMING = 5
_ESTIMATED_AFTER = 5.0
# Steps over which the noise scale is averaged; that of a single step is mostly chance.
_NOISY = 100


# Descriptions of curves, or of all curves of a group.
_DESCRIPTIONS = {
    "training/loss": "Training loss in nats per item (token, text or image), mean since the last point.",
    "training/perplexity": "exp(training loss).",
    "training/learning_rate": "Learning rate of the update.",
    "training/clip_rate": "Share of updates since the last point whose gradient was scaled down to `training.clip`.",
    "training/tokens_per_second": "Training speed, validation and saving excluded.",
    "training/real_tokens": "Share of the positions of a batch that are not padding.",
    "training/noise_scale": "Gradient noise scale over the last 100 updates, in items (`training.noise_scale`).",
    "gradient_norm/all": "Norm of the gradient of all parameters, before clipping.",
    "gradient_norm": "Norm of the gradient of the parameters of this module, before clipping.",
    "validation/loss": "Validation loss in nats per item, without dropout and label smoothing.",
    "validation": "Score on the validation set, in percent unless it is a loss.",
}


@dataclass(frozen=True)
class Sample:
    """Validation example for the log.

    Attributes:
        source: Input of the model.
        reference: Correct output.
        translation: Output of the model.
    """

    source: str
    reference: str
    translation: str


class RunLog:
    """Log of one run; entries after the resumed step are removed first.

    Use as a context manager, which shows a progress bar on a terminal.

    Args:
        run: Folder of the run.
        done: Optimizer steps done.
        total: Optimizer steps of the whole run.
        console: Terminal output.
        perplexity: Draw the perplexity, exp(loss).
        metric: Validation metric to show first.
    """

    def __init__(
        self, run: Path, done: int, total: int, console: Console, perplexity: bool = True, metric: str = "loss"
    ) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        self.path = run / METRICS
        drop_entries_after(self.path, done)
        self._metrics = append_to(self.path)
        self._board = SummaryWriter(str(run), purge_step=done + 1)
        if not done:
            both = {"loss": ["Multiline", ["training/loss", "validation/loss"]]}
            self._board.add_custom_scalars({"training and validation": both})
        self._console = console
        self._total = total
        self._perplexity = perplexity
        self._metric = metric
        self._latest = ""
        self._interval = max(1, total // _CURVE_POINTS)
        self._recent: list[StepResult] = []
        self._waiting: list[StepResult] = []
        # A resumed run includes earlier steps.
        earlier = (entry.noise for _, entry in (_entries(self.path) if self.path.exists() else ()) if entry.noise)
        self._noises: deque[Noise] = deque(earlier, maxlen=_NOISY)
        self._spoke = time.monotonic()
        self._every_step = isinstance(console.file, TimestampedStream)
        self._first: list[float] | None = []
        self._bar = Progress(*bar_columns("training"), console=console, disable=not console.is_terminal)
        self._task = self._bar.add_task("training", total=total, completed=done, shown="")

    def __enter__(self) -> "RunLog":
        self._bar.start()
        self._other_threads, threading.excepthook = threading.excepthook, self._ignore_reported_error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop_bar()
        # If training has failed, its error is reported, not an error in closing the files.
        try:
            with suppress(OSError) if error else nullcontext():
                self._write_available_steps()
                self._metrics.close()
                self._board.close()
        finally:
            threading.excepthook = self._other_threads

    def _ignore_reported_error(self, thrown: threading.ExceptHookArgs) -> None:
        """Suppress write errors of TensorBoard's thread, which its next call raises again."""
        if not (isinstance(thrown.exc_value, OSError) and type(thrown.thread).__module__.startswith("tensorboard.")):
            self._other_threads(thrown)

    def log_step(self, update: StepResult) -> None:
        """Log an optimizer step as soon as its numbers are available.

        On a GPU the step may still be running, so its entry may be written later.
        """
        self._waiting.append(update)
        self._write_available_steps()

    def _write_available_steps(self) -> None:
        while self._waiting and self._waiting[0].is_available:
            self._write_step(self._waiting.pop(0))

    def _write_step(self, update: StepResult) -> None:
        entry: dict[str, object] = {
            "update": update.update,
            "loss": update.loss,
            "count": update.count,
            "tokens": update.tokens,
            "seconds": round(update.seconds, 6),
            "cpu_seconds": round(update.cpu_seconds, 6),
            "learning_rate": update.learning_rate,
            "gradient_norm": update.gradient_norm,
        }
        if noise := update.noise:
            self._noises.append(noise)
            entry["noise"] = asdict(noise)
        self._write(entry)
        self._recent.append(update)
        if update.update % self._interval == 0 or update.update == self._total:
            self._draw_curves()
        self._estimate(update)
        self._update_bar(update)

    def log_validation(self, update: int, scores: dict[str, float], samples: Sequence[Sample] = ()) -> None:
        """Log a validation: losses in nats, other scores in percent.

        Args:
            update: Optimizer steps done.
            scores: Scores by name.
            samples: Examples of outputs; TensorBoard shows all, the terminal the first.
        """
        self._write_available_steps()
        self._write({"update": update, "validation": scores})
        for name, value in scores.items():
            self._add_scalar(f"validation/{name}", value, update)
        if samples:
            rows = (map(_cell, (s.source, s.reference, s.translation)) for s in samples)
            table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
            head = "| source | reference | translation |\n|---|---|---|\n"
            self._board.add_text("translations", head + table, update)
        self._board.flush()
        shown = {name: f"{name} {value:.{3 if name == 'loss' else 2}f}" for name, value in scores.items()}
        # Without this word, `loss` would look like the training loss.
        of_what = "validation " if self._metric == "loss" else ""
        self._latest = f" · {of_what}{shown[self._metric]}" if self._metric in shown else ""
        first = [shown.pop(name) for name in ("loss", self._metric) if name in shown]
        self.info(f"update {update}: validation {' · '.join([*first, *shown.values()])}")
        for sample in samples[:1]:
            self.info_pair(sample.source, sample.translation)

    def add_texts(self, name: str, texts: Sequence[str], update: int) -> None:
        """Add texts to TensorBoard, and print the beginning of the first."""
        fenced = "\n\n".join("\n".join(f"    {line}" for line in text.split("\n")) for text in texts)
        self._board.add_text(name, fenced, update)
        self._board.flush()
        self.info_pair("", texts[0])

    def add_figure(self, name: str, png: bytes, update: int) -> None:
        """Add a PNG image to TensorBoard.

        Args:
            name: Tag of the image.
            png: Content of a PNG file.
            update: Optimizer steps done.
        """
        from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

        if writer := self._board.file_writer:
            # The header of a PNG file contains its width and height.
            width, height = (int.from_bytes(png[at : at + 4], "big") for at in (16, 20))
            image = Summary.Image(height=height, width=width, colorspace=4, encoded_image_string=png)
            writer.add_summary(Summary(value=[Summary.Value(tag=name, image=image)]), update)

    def add_hyperparameters(self, values: dict[str, object], scores: dict[str, float]) -> None:
        """Add the recipe and the final scores to TensorBoard's table of runs (HParams).

        Final scores are columns like the settings: as metrics, each would be a chart of one point. The metric of the
        table is the validation loss.

        Args:
            values: Recipe settings by key.
            scores: Final scores by name.
        """
        from torch.utils.tensorboard.summary import hparams

        plain = {k: v if isinstance(v, bool | int | float | str) else str(v) for k, v in values.items()}
        final = {f"test/{name}": float(value) for name, value in scores.items()}
        if writer := self._board.file_writer:
            for summary in hparams(final | plain, {"validation/loss": 0.0}):
                writer.add_summary(summary)

    def info(self, text: str) -> None:
        """Print a line above the progress bar."""
        self._console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def info_pair(self, source: str, written: str) -> None:
        """Print an input and an output in one line."""
        self.info(fit_to_row(self._console, source, written))

    @contextmanager
    def progress_bar(self, what: str, total: int) -> Iterator[Advance]:
        """Show a progress bar for work after training, as a context manager.

        Args:
            what: Name of the work.
            total: Number of parts.

        Yields:
            A function that takes the number of finished parts.
        """
        self._stop_bar()
        with progress_bar(self._console)(what, total) as advance:
            yield advance

    def _stop_bar(self) -> None:
        # A bar that was never drawn would print an empty line when it stops.
        if not self._bar.disable:
            self._bar.stop()

    def _write(self, entry: dict[str, object]) -> None:
        self._metrics.write(json.dumps(entry).encode() + b"\n")
        self._metrics.flush()

    def _draw_curves(self) -> None:
        recent, self._recent = self._recent, []
        last, tokens = recent[-1], sum(u.tokens for u in recent)
        loss = sum(u.loss * u.count for u in recent) / sum(u.count for u in recent)
        values = {
            "training/loss": loss,
            "training/learning_rate": last.learning_rate,
            "training/clip_rate": sum(u.clipped for u in recent) / len(recent),
            "training/tokens_per_second": tokens / sum(u.seconds for u in recent),
            "training/real_tokens": sum(u.real_share for u in recent) / len(recent),
            "gradient_norm/all": last.gradient_norm,
        } | {f"gradient_norm/{name}": norm for name, norm in last.layer_norms.items()}
        if self._perplexity:
            values["training/perplexity"] = math.exp(min(loss, 50))
        if (scale := noise_scale(self._noises)) is not None:
            values["training/noise_scale"] = scale
        for name, value in values.items():
            self._add_scalar(name, value, last.update)

    def _add_scalar(self, name: str, value: float, update: int) -> None:
        from torch.utils.tensorboard.summary import scalar

        if writer := self._board.file_writer:
            summary = scalar(name, value)
            metadata, group = summary.value[0].metadata, name.partition("/")[0]
            metadata.plugin_data.plugin_name = "scalars"
            metadata.summary_description = _DESCRIPTIONS.get(name) or _DESCRIPTIONS[group]
            writer.add_summary(summary, update)

    def noise(self) -> str:
        """Return a line on the gradient noise scale of the last steps; empty if unmeasured."""
        if not self._noises:
            return ""
        scale = noise_scale(self._noises)
        found = f"about {scale:,.0f} items" if scale is not None else "too few updates to estimate it"
        return f"gradient noise scale over the last {len(self._noises)} updates: {found}"

    def _estimate(self, update: StepResult) -> None:
        """Print the estimated training time once, after the first steps on this machine."""
        if self._first is None:
            return
        self._first.append(update.seconds)
        # The first steps are not counted, because they also compile kernels and allocate memory.
        timed = self._first[_WARMING:]
        if sum(timed) >= _ESTIMATED_AFTER:
            self._first = None
            minutes = (self._total - update.update) * sum(timed) / len(timed) / 60
            if minutes >= 1:
                length = counted(round(minutes), "minute") if minutes < 120 else f"{minutes / 60:.1f} hours"
                self.info(f"remaining: about {length}, estimated from {counted(len(timed), 'update')}")

    def _update_bar(self, update: StepResult) -> None:
        speed = update.tokens / update.seconds
        shown = f"loss {update.loss:.3f}{self._latest} · {speed:,.0f} tokens/s"
        self._bar.update(self._task, completed=update.update, shown=f"{shown} ·")
        if self._bar.disable and (self._every_step or time.monotonic() - self._spoke > PLAIN_LINE_EVERY):
            self._spoke = time.monotonic()
            self.info(f"update {update.update}/{self._total}: {shown} · rate {update.learning_rate:.2e}")


def _cell(text: str) -> str:
    """Return a text for a cell of a Markdown table."""
    return " ".join(text.replace("|", r"\|").splitlines())


class NullLog(RunLog):
    """Log of the ranks other than 0: writes and prints nothing."""

    def __init__(self) -> None:
        """Open no file."""

    def log_step(self, update: StepResult) -> None:
        """Write nothing."""

    def log_validation(self, update: int, scores: dict[str, float], samples: Sequence[Sample] = ()) -> None:
        """Write nothing."""

    def add_texts(self, name: str, texts: Sequence[str], update: int) -> None:
        """Write nothing."""

    def add_figure(self, name: str, png: bytes, update: int) -> None:
        """Write nothing."""

    def info(self, text: str) -> None:
        """Print nothing."""

    def info_pair(self, source: str, written: str) -> None:
        """Print nothing."""


class Entry(BaseModel):
    """Line of metrics.jsonl: an optimizer step or a validation. Other keys are allowed."""

    update: int = Field(ge=0, le=2**53)
    loss: float | None = None
    count: int | None = Field(None, ge=0)
    tokens: int = Field(0, ge=0)
    seconds: float = 0.0
    cpu_seconds: float | None = None
    noise: Noise | None = None
    validation: dict[str, float] | None = None

    @model_validator(mode="after")
    def _complete(self) -> "Entry":
        if self.validation is None and None in (self.loss, self.count):
            raise ValueError("expected a validation, or loss and count")
        return self


def read_metrics(folder: Path) -> list[Entry]:
    """Read all entries of a run's metrics.jsonl.

    Raises:
        UserError: The file is missing, or a line is not an entry of a training.
    """
    return [entry for _, entry in _entries(folder / METRICS)]


def drop_entries_after(metrics: Path, update: int) -> None:
    """Remove entries after an optimizer step, and an incomplete line, from metrics.jsonl.

    Args:
        metrics: The file; it may be missing.
        update: Last step to keep.

    Raises:
        UserError: A line is not an entry of a training.
    """
    if metrics.exists():
        kept = [line for line, entry in _entries(metrics, skip_cut=True) if entry.update <= update]
        write_atomically(metrics, b"".join(kept))


def _entries(path: Path, skip_cut: bool = False) -> Iterator[tuple[bytes, Entry]]:
    """Yield each line with its parsed entry; skip lines that are not JSON if `skip_cut`."""
    number, remedy = 0, "delete the line, and repeat the command"
    try:
        with open_regular(path) as file:
            while line := file.readline(_LONGEST_LINE):
                number += 1
                if skip_cut and not _is_json(line):
                    continue
                yield line.rstrip(b"\n") + b"\n", parse_json(line, Entry, f"{path}:{number}", remedy)
    except OSError as error:
        what = "there is no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        raise UserError(what, str(path), RESTORE) from None


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
