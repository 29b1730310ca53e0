"""A contestant's side of the contest: it waits for its turn, does what it is told, and answers with what that took.

A turn is a number on standard input, the answer one line of JSON on a pipe of its own, since toolkits write what they
like to standard output. The clocks run from the word to the end of the work; the sentences are named afterwards.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.task import SPECIALS, Pair, Task

Told = dict[str, Any]
_PAD, _BEGIN, _END = range(3)


@dataclass(frozen=True)
class Given:
    """The words of a contestant's command line."""

    part: str
    form: str
    task: Task
    scratch: Path
    threads: int
    answers: int

    @staticmethod
    def read() -> "Given":
        """Those of this process."""
        part, form, task, scratch, threads, answers = sys.argv[1:]
        return Given(part, form, Task(Path(task)), Path(scratch), int(threads), int(answers))


@dataclass
class Turns:
    """The turns of a contestant, for loops that call it: `begin` where an update begins, `learned` when it has learned.

    Attributes:
        answers: the number of the pipe.
    """

    answers: int
    _wanted: int = 0
    _tokens: list[int] = field(default_factory=list)
    _positions: list[int] = field(default_factory=list)
    _losses: list[float] = field(default_factory=list)
    _pairs: list[Callable[[], list[Pair]]] = field(default_factory=list)
    _began: tuple[float, float] = (0.0, 0.0)

    def begin(self) -> None:
        """Goes on, or answers and waits where a turn is over; ends the process where there is no other one."""
        if len(self._tokens) < self._wanted:
            return
        if self._wanted:
            wall, processor = elapsed(self._began)
            pairs = [pair for named in self._pairs for pair in named()]
            self._answer({"wall": wall, "processor": processor, "pairs": pairs})
        self._wanted = word()
        for each in (self._tokens, self._positions, self._losses, self._pairs):
            each.clear()
        self._began = clocks()

    def learned(self, tokens: int, positions: int, loss: float, pairs: Callable[[], list[Pair]]) -> None:
        """One update: real target tokens as the toolkit counts them, and all positions of the targets; its loss.

        Args:
            tokens: the end of each sentence counted.
            positions: padding counted, too.
            loss: per target token, by the toolkit's own definition.
            pairs: names the sentences; called when the clocks have stopped.
        """
        self._tokens.append(tokens)
        self._positions.append(positions)
        self._losses.append(float(loss))
        self._pairs.append(pairs)

    def _answer(self, told: Told) -> None:
        sums = {"updates": len(self._tokens), "tokens": sum(self._tokens), "positions": sum(self._positions)}
        answer(self.answers, sums | {"loss": sum(self._losses) / len(self._losses)} | told)


def train(given: Given, update: Callable[[Turns], None]) -> None:
    """Turns of a loop that is written here: each call makes one update and tells `learned` of it."""
    turns = Turns(given.answers)
    while True:
        turns.begin()
        update(turns)


def decode(given: Given, translate: Callable[[], list[str]]) -> None:
    """Turns of decoding: each call gives the pieces of all translations, apart by a space."""
    while True:
        word()
        began = clocks()
        outputs = translate()
        wall, processor = elapsed(began)
        answer(given.answers, {"wall": wall, "processor": processor, "outputs": outputs})


def clocks() -> tuple[float, float]:
    """Seconds on the wall, and of all processor threads of this process."""
    return time.perf_counter(), time.process_time()


def elapsed(began: tuple[float, float]) -> tuple[float, float]:
    """Seconds since then on both clocks."""
    wall, processor = clocks()
    return wall - began[0], processor - began[1]


def word() -> int:
    """The next turn's number; where no other comes, the process ends here, whatever a toolkit would still write."""
    line = sys.stdin.readline()
    if not line:
        os._exit(0)
    return int(line)


def answer(pipe: int, told: Told) -> None:
    """One line on the pipe."""
    left = memoryview((json.dumps(told) + "\n").encode())
    while left:
        left = left[os.write(pipe, left) :]


def named(rows: Sequence[Sequence[int]], pieces: Sequence[str], unended: Sequence[str] = ()) -> Iterator[str]:
    """The texts of rows of numbers up to their ends, without what is before and after.

    Args:
        rows: numbers, padded or not.
        pieces: names by number.
        unended: what is added to a text without an end.
    """
    left_out, end = {SPECIALS[_PAD], SPECIALS[_BEGIN]}, SPECIALS[_END]
    for row in rows:
        names = [pieces[number] for number in row]
        names = names[: names.index(end)] if end in names else [*names, *unended]
        yield " ".join(name for name in names if name not in left_out)


def named_pairs(sources: Any, targets: Any, pieces: Sequence[str]) -> Callable[[], list[Pair]]:
    """Of two tensors of numbers, what names their sentences when it is asked.

    A target has an end, which is learned; whether a source has one is the toolkit's business.
    """
    return lambda: [*zip(named(sources.tolist(), pieces), named(targets.tolist(), pieces, ("(no end)",)), strict=True)]
