"""Time, measured: marks in the stream of work, medians with intervals, and what the machine can do at best."""

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import stats

from s2s.evaluation.inference import Estimate
from s2s.training.devices import Computer

# sides of square products, of which the fastest counts as the machine's peak
_SIDES = {"cpu": (256, 512, 1024), "cuda": (2048, 4096, 8192)}
_REPETITIONS = 12
_REFERENCE = 512
_RESAMPLES = 2000


class Marks:
    """Moments between pieces of work, in the device's own order: a GPU is not stopped to look at the clock.

    Args:
        device: what works.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._moments: list[Any] = []

    def mark(self) -> None:
        """What was asked for before this call is done before the moment, what comes after it afterwards."""
        if self.device.type == "cuda":
            event: Any = torch.cuda.Event(enable_timing=True)
            event.record()
            self._moments.append(event)
            return
        if self.device.type == "mps":
            torch.mps.synchronize()
        self._moments.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """From each mark to the next one."""
        pairs = zip(self._moments[:-1], self._moments[1:], strict=True)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            return [before.elapsed_time(after) / 1000 for before, after in pairs]
        return [after - before for before, after in pairs]


@contextmanager
def undisturbed() -> Iterator[None]:
    """Within it, Python does not collect garbage."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def spent(work: Callable[[], object], device: torch.device) -> float:
    """Seconds that a piece of work takes, once."""
    marks = Marks(device)
    marks.mark()
    work()
    marks.mark()
    return marks.seconds()[0]


def median(values: Sequence[float]) -> Estimate:
    """The median of repetitions, with an interval of at least 95 % between two of the values themselves.

    Of k values in order, the median lies below the j-th with the probability that fewer than j of k fair coins show
    heads (Conover 1999, section 3.2): no assumption about how times are spread. None below six values.
    """
    ordered = sorted(values)
    below = int(stats.binom.ppf(0.025, len(ordered), 0.5)) - 1
    if below < 0:
        return Estimate(statistics.median(ordered), None, None)
    return Estimate(statistics.median(ordered), ordered[below], ordered[-1 - below])


def ratio(above: Sequence[float], below: Sequence[float]) -> Estimate:
    """The ratio of two medians, with the interval of drawing both samples anew (bootstrap, Efron 1979).

    Args:
        above: repetitions of what is divided.
        below: repetitions of what it is divided by.
    """
    generator = np.random.default_rng(1)
    medians = [
        np.median(generator.choice(np.asarray(values), (_RESAMPLES, len(values))), axis=1) for values in (above, below)
    ]
    low, high = np.percentile(medians[0] / medians[1], (2.5, 97.5))
    return Estimate(statistics.median(above) / statistics.median(below), float(low), float(high))


@dataclass(frozen=True)
class Machine:
    """What the machine could do while something was measured.

    Attributes:
        peak: floating-point operations a second in the fastest of some large matrix products, in training's precision.
        reference: what `reference` gave.
    """

    peak: float
    reference: float


def machine(computer: Computer) -> Machine:
    """Measures the machine, in a second or two."""
    sides = _SIDES.get(computer.device.type, _SIDES["cpu"])
    rates = [2 * side**3 / _product(side, computer.precision, computer.device) for side in sides]
    return Machine(max(rates), reference(computer.device))


def reference(device: torch.device) -> float:
    """Seconds that one product of two matrices of 512 × 512 takes in fp32: was the machine the same all the time?"""
    return _product(_REFERENCE, torch.float32, device)


def _product(side: int, precision: torch.dtype, device: torch.device) -> float:
    """Seconds that the product of two square matrices takes: the median."""
    a = torch.ones(side, side, dtype=precision, device=device)
    b = torch.ones(side, side, dtype=precision, device=device)
    out = torch.empty_like(a)
    spent(lambda: torch.mm(a, b, out=out), device)
    return statistics.median(spent(lambda: torch.mm(a, b, out=out), device) for _ in range(_REPETITIONS))
