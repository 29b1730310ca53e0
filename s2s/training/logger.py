"""What a run tells while it trains: metrics.jsonl, TensorBoard, and the terminal."""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch.utils.tensorboard.summary import hparams
from torch.utils.tensorboard.writer import SummaryWriter

from s2s.training.checkpoint import write_atomically
from s2s.training.trainer import Update

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRICS = "metrics.jsonl"
_CURVE_POINTS = 1000
_PLAIN_LINE_EVERY = 10.0


@dataclass(frozen=True)
class Sample:
    """A validation sentence: what came in, what a human wrote, what the model writes."""

    source: str
    reference: str
    translation: str


class RunLog:
    """Writes down a run; a context manager.

    Args:
        run: the run's folder.
        done: updates done before; what the files say of later ones is forgotten.
        total: updates when training ends.
        console: where progress is shown.
        perplexity: whether the loss is that of pieces, so that its exponential means something.
    """

    def __init__(self, run: Path, done: int, total: int, console: Console, perplexity: bool = True) -> None:
        self.path = run / METRICS
        forget_after(self.path, done)
        self._metrics = self.path.open("a", encoding="utf-8", newline="\n")
        self._board = SummaryWriter(str(run), purge_step=done + 1)
        self._console = console
        self._total = total
        self._perplexity = perplexity
        self._interval = max(1, total // _CURVE_POINTS)
        self._recent: list[Update] = []
        self._spoke = time.monotonic()
        self._bar = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]:.3f} · {task.fields[speed]:,.0f} tokens/s ·"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("training", total=total, completed=done, loss=math.nan, speed=0.0)

    def __enter__(self) -> "RunLog":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        self._metrics.close()
        self._board.close()

    def update(self, update: Update) -> None:
        """Notes one update."""
        self._write(
            {
                "update": update.update,
                "loss": update.loss,
                "count": update.count,
                "tokens": update.tokens,
                "seconds": round(update.seconds, 6),
                "learning_rate": update.learning_rate,
                "gradient_norm": update.gradient_norm,
            }
        )
        self._recent.append(update)
        if update.update % self._interval == 0 or update.update == self._total:
            self._draw_curves()
        self._show(update)

    def validation(self, update: int, scores: dict[str, float], samples: Sequence[Sample] = ()) -> None:
        """Notes a validation.

        Args:
            update: after which it was.
            scores: by name; losses in nats, the others in percent.
            samples: some translations.
        """
        self._write({"update": update, "validation": scores})
        for name, value in scores.items():
            self._board.add_scalar(f"validation/{name}", value, update)
        if samples:
            table = "\n".join(f"| {s.source} | {s.reference} | {s.translation} |" for s in samples)
            head = "| source | reference | translation |\n|---|---|---|\n"
            self._board.add_text("translations", head + table, update)
        self._board.flush()
        shown = (f"{name} {value:.{3 if name == 'loss' else 2}f}" for name, value in scores.items())
        self.say(f"update {update}: validation {' · '.join(shown)}")
        for sample in samples[:1]:
            self.say(f"    {sample.source}  →  {sample.translation}")

    def picture(self, name: str, figure: "Figure", update: int) -> None:
        """Notes a figure."""
        # a figure that pyplot does not know has no canvas of its own for the writer to draw on
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        FigureCanvasAgg(figure)
        self._board.add_figure(name, figure, update, close=False)

    def settings(self, values: dict[str, object], scores: dict[str, float]) -> None:
        """Notes the recipe beside its final scores, for TensorBoard's table of runs."""
        plain = {k: v if isinstance(v, bool | int | float | str) else str(v) for k, v in values.items()}
        for summary in hparams(plain, {f"final/{name}": value for name, value in scores.items()}):
            self._board._get_file_writer().add_summary(summary)
        for name, value in scores.items():
            self._board.add_scalar(f"final/{name}", value, self._total)

    def say(self, text: str) -> None:
        """Prints a line above the progress bar."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _write(self, entry: dict[str, object]) -> None:
        self._metrics.write(json.dumps(entry) + "\n")
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
        for name, value in values.items():
            self._board.add_scalar(name, value, last.update)

    def _show(self, update: Update) -> None:
        speed = update.tokens / update.seconds
        self._bar.update(self._task, completed=update.update, loss=update.loss, speed=speed)
        if self._bar.disable and time.monotonic() - self._spoke > _PLAIN_LINE_EVERY:
            self._spoke = time.monotonic()
            done = f"update {update.update}/{self._total}"
            self.say(f"{done}: loss {update.loss:.3f} · {speed:,.0f} tokens/s · rate {update.learning_rate:.2e}")


def forget_after(metrics: Path, update: int) -> None:
    """Removes what metrics.jsonl says of updates after this one, and a line cut short by a crash."""
    if not metrics.exists():
        return
    kept = []
    for line in metrics.read_text(encoding="utf-8").split("\n"):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if entry["update"] <= update:
            kept.append(line + "\n")
    write_atomically(metrics, "".join(kept))
