"""Bits that pass from encoder to decoder: models of several widths copy random symbols.

If n symbols of k bits are copied without a mistake in 95 % of the cases, n·k bits have passed through the decoder's
input: one vector without attention, one vector per symbol with attention.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from s2s.comparison.questions.long_range.learning import Validation
from s2s.comparison.reporting import Column, axis, figure, series, table
from s2s.comparison.results import Figure, Table
from s2s.comparison.spec import Comparison, Trial
from s2s.evaluation.gates import converged
from s2s.evaluation.inference import mean

CAPACITY = "capacity"
LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
"""Numbers of symbols."""


@dataclass(frozen=True)
class CopyRun:
    """Measurement of a model that was trained to copy symbols."""

    width: int
    attention: bool  # True if the decoder has cross-attention
    lengths: list[int]  # symbols to copy
    symbol: int  # bits of a symbol
    asked: list[int]  # test examples of each length
    right: list[int]  # those that were copied without a mistake
    losses: list[float]  # cross-entropy in nats per target token, at each length
    rate: float
    inside: bool  # True if the rate has worse ones on both sides
    updates: int
    solved: int | None  # updates until 99 % of the held-out examples were right
    looks: list[Validation]
    seconds: float  # CPU time of the training

    @property
    def copied(self) -> int:
        """The most symbols that are copied without a mistake in 95 % of the cases, as are all smaller numbers.

        Whole sequences count: of 16 symbols with 95 % right each, less than half of the sequences would be.
        """
        counts = zip(self.lengths, self.right, self.asked, strict=True)
        return max((length for length, *_ in takewhile(lambda each: each[1] >= 0.95 * each[2], counts)), default=0)

    @property
    def numbers(self) -> int:
        """Numbers that the decoder reads for the longest text that is copied."""
        return self.width * (max(1, self.copied) if self.attention else 1)

    @property
    def conveyed(self) -> float:
        """Lower bound, in bits, of what is known after reading, whether it is copied or not.

        n·k less the cross-entropy of the answer, which is no smaller than what is unknown (Barber & Agakov 2003).
        """
        losses = zip(self.lengths, self.losses, strict=True)
        return max(n * self.symbol - loss * (n + 1) / math.log(2) for n, loss in losses)

    @property
    def state(self) -> str:
        """State of the training: learned, or why the number of bits is a lower bound."""
        if self.solved:
            return "all lengths solved: a lower bound"
        still = converged([each.update for each in self.looks], [each.loss for each in self.looks])
        return "learned" if still.passed else f"a lower bound: {still.sentence}"


def report(comparison: Comparison, runs: Mapping[Trial, CopyRun]) -> tuple[Figure, Table]:
    """Return the figure of bits against numbers that the decoder reads, and the table of all measurements."""
    rows = sorted(
        ((trial.model, trial.seed, run) for trial, run in runs.items()),
        key=lambda row: (comparison.models.index(row[0]), row[2].width, row[1]),
    )
    return _figure(rows), _table(rows)


def _figure(rows: Sequence[tuple[str, int | None, CopyRun]]) -> Figure:
    shown = []
    for model in dict.fromkeys(model for model, *_ in rows):
        own = [run for name, _, run in rows if name == model]
        by_width = [[run for run in own if run.width == width] for width in dict.fromkeys(run.width for run in own)]
        numbers = [mean([run.numbers for run in same]).value for same in by_width]
        bits = [mean([run.copied * run.symbol for run in same]) for same in by_width]
        shown.append(series(f"{model} (a vector a symbol)" if own[0].attention else model, model, numbers, bits))
    if rows:
        ends = [float(min(run.width for *_, run in rows)), float(max(run.numbers for *_, run in rows))]
        shown.append(series("one bit a number", "", ends, ends, reference=True))
    return figure(
        CAPACITY,
        "How many bits go through what the decoder reads: random symbols copied without a mistake in 95 % of the cases",
        (axis("numbers that the decoder gets", log=True), axis("bits copied", log=True)),
        shown,
        "A model without attention gets one vector however long the source is; with attention it gets one for each "
        f"symbol. At most {LENGTHS[-1]} symbols of 4 bits were tried: a curve that is level there knows more.",
    )


def _table(rows: Sequence[tuple[str, int | None, CopyRun]]) -> Table:
    columns = [
        *("model", "width", "seed"),
        Column("numbers that the decoder gets", lambda row: row[3].numbers),
        Column("symbols copied", lambda row: row[3].copied),
        Column("bits copied", lambda row: row[3].copied * row[3].symbol),
        Column("bits a number", lambda row: row[3].copied * row[3].symbol / row[3].numbers, 2),
        Column("bits that certainly went through", lambda row: row[3].conveyed, 1),
        Column("rate", lambda row: f"{row[3].rate:g}"),
        Column("rate inside", lambda row: "yes" if row[3].inside else "no"),
        Column("updates", lambda row: row[3].updates),
        Column("solved", lambda row: row[3].solved),
        Column("state", lambda row: row[3].state),
        Column("CPU seconds", lambda row: row[3].seconds, 1),
    ]
    title = "The bottleneck in bits: symbols of 4 bits, copied"
    return table(CAPACITY, title, columns, [(model, run.width, seed, run) for model, seed, run in rows])
