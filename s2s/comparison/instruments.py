"""Measuring instruments: timer, reference work, peak memory, and control of fused kernels."""

import gc
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch._C._autograd import _disable_profiler, _enable_profiler, _prepare_profiler
from torch._C._profiler import ProfilerActivity, ProfilerConfig, ProfilerState, RecordScope, _ExperimentalConfig
from torch.nn.attention import SDPBackend, sdpa_kernel

from s2s.models.base import BatchedState
from s2s.training.device import DeviceContext

# side of the square matrices on a GPU and on others: large enough for the full rate of the device
_GPU_SIDE, _SIDE = 4096, 512
# rows of the chain: a batch of 1,024 tokens in texts of 32, or enough to keep a GPU busy; width of a small model
_GPU_ROWS, _ROWS, _WIDTH = 2048, 32, 64
_STEPS = 1000
# seconds for which a reference is repeated, so that a short disturbance does not change the fastest call
_WATCHED = 0.2
CHAIN = f"chain of {2 * _STEPS:,} small operations"
PRODUCT = f"product of two {_SIDE}² matrices"
"""Names of the references that are timed around measurements of time; see `chain` and `product`."""


class Marks:
    """Timestamps between pieces of work, as events in the stream of a GPU, which is not synchronized until the end."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._moments: list[Any] = []

    def mark(self) -> None:
        """Record a timestamp after all work launched so far."""
        if self.device.type == "cuda":
            event: Any = torch.cuda.Event(enable_timing=True)
            event.record()
            self._moments.append(event)
            return
        if self.device.type == "mps":
            torch.mps.synchronize()
        self._moments.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """Seconds from each mark to the next one."""
        pairs = zip(self._moments[:-1], self._moments[1:], strict=True)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            return [before.elapsed_time(after) / 1000 for before, after in pairs]
        return [after - before for before, after in pairs]


@contextmanager
def undisturbed() -> Iterator[None]:
    """Context manager that disables garbage collection."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def spent(work: Callable[[], object], device: torch.device) -> float:
    """Measure the seconds of one call."""
    marks = Marks(device)
    marks.mark()
    work()
    marks.mark()
    return marks.seconds()[0]


def rounded(value: float, figures: int = 5) -> float:
    """Round to significant digits, so that files stay small."""
    return float(f"{value:.{figures}g}")


def chain(device_context: DeviceContext) -> float:
    """Measure the seconds of 2,000 small operations in sequence: the work of recurrent networks and of generation.

    A state of the size of a small model's is multiplied by a matrix and goes through a tanh, a thousand times. Large
    products do not show the causes that slow such work down: operation launches, and caches that another program uses.

    Returns:
        Seconds of the fastest repetition within 0.2 seconds.
    """
    device = device_context.device
    rows = _GPU_ROWS if device.type == "cuda" else _ROWS
    weights = torch.eye(_WIDTH, dtype=device_context.precision, device=device)
    start = torch.ones(rows, _WIDTH, dtype=device_context.precision, device=device)

    def _run() -> None:
        state = start
        for _ in range(_STEPS):
            state = torch.tanh(state @ weights)

    with torch.inference_mode():
        return _fastest(_run, device)


def product(device_context: DeviceContext) -> float:
    """Measure the seconds of a product of two large square matrices: the fastest within 0.2 seconds."""
    side = _GPU_SIDE if device_context.device.type == "cuda" else _SIDE
    a = torch.ones(side, side, dtype=device_context.precision, device=device_context.device)
    b, out = torch.ones_like(a), torch.empty_like(a)
    return _fastest(lambda: torch.mm(a, b, out=out), device_context.device)


def _fastest(work: Callable[[], object], device: torch.device) -> float:
    """Measure the seconds of the fastest call within `_WATCHED`, after a warm-up call."""
    spent(work, device)
    seconds = [spent(work, device)]
    while sum(seconds) < _WATCHED:
        seconds.append(spent(work, device))
    return min(seconds)


def flops_of_product(device_context: DeviceContext) -> int:
    """Return the FLOPs of `product`."""
    return 2 * (_GPU_SIDE if device_context.device.type == "cuda" else _SIDE) ** 3


def peak_bytes(work: Callable[[], object], device: torch.device) -> int:
    """Measure the peak memory of a call beyond what was allocated before, in bytes.

    On a GPU this is the peak of the caching allocator, on a CPU the maximum of the running sum of allocations.

    Args:
        work: The call. It must have run before, so that one-time allocations exist, and must not free earlier
            allocations, because the CPU allocator does not report that.
        device: Device that it uses.
    """
    # garbage collection during the call would distort the sum
    with undisturbed():
        if device.type != "cuda":
            return max(0, *accumulate(_allocations(work), initial=0))
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before


def _allocations(work: Callable[[], object]) -> list[int]:
    """Return allocations (positive) and frees (negative) of torch's CPU memory in bytes, in order."""
    config = ProfilerConfig(ProfilerState.KINETO, False, True, False, False, False, _ExperimentalConfig(), "")
    activities = {ProfilerActivity.CPU}
    with _without_chatter():
        _prepare_profiler(config, activities)
        # With a scope that is never opened, it records memory alone. torch.profiler records operations, too: seven
        # gigabytes for a recurrence over 2,048 tokens, and ten times the time. Torch's stubs lack scopes and sizes.
        _enable_profiler(config, activities, {RecordScope.USER_SCOPE})  # pyright: ignore
    try:
        work()
    finally:
        with _without_chatter():
            events = _disable_profiler().events()
    changes = [(e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"]  # pyright: ignore
    return [size for _, size in sorted(changes, key=lambda change: change[0])]


@contextmanager
def _without_chatter() -> Iterator[None]:
    """Redirect file descriptor 2: the profiler's library writes to it whenever it starts and stops."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def numbers(bundle: object) -> list[Tensor]:
    """Return the floating-point tensors of a state and of nested states and tuples, in the order of the fields."""
    if isinstance(bundle, Tensor):
        return [bundle] if bundle.is_floating_point() else []
    if isinstance(bundle, BatchedState):
        return [tensor for field in fields(bundle) for tensor in numbers(getattr(bundle, field.name))]
    return [tensor for item in bundle for tensor in numbers(item)] if isinstance(bundle, tuple) else []


def bytes_of(bundle: object) -> int:
    """Return the bytes of the floating-point tensors of a decoder's state or context."""
    return sum(tensor.numel() * tensor.element_size() for tensor in numbers(bundle))


@contextmanager
def unfused() -> Iterator[None]:
    """Context manager without fused kernels: recurrent layers run step by step, attention computes its weights."""
    with ExitStack() as stack:
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        with warnings.catch_warnings():
            # leaving the TF32 setting unchanged raises a deprecation warning
            warnings.simplefilter("ignore")
            stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        try:
            yield
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                stack.close()
