"""Measuring instruments: clock, reference product, peak memory, and counters of operations."""

import gc
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import fields
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch._C._autograd import _disable_profiler, _enable_profiler, _prepare_profiler
from torch._C._profiler import ProfilerActivity, ProfilerConfig, ProfilerState, RecordScope, _ExperimentalConfig
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from s2s.models.base import BatchedState
from s2s.training.device import DeviceContext

# side of the square product that the machine is known by: large enough for its full rate
_SIDES = {"cpu": 512, "cuda": 4096}
# for so many seconds it is repeated: a moment's disturbance does not move the fastest
_WATCHED = 0.2


class Marks:
    """Moments between pieces of work, in the device's own order: a GPU is not stopped to look at the clock."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._moments: list[Any] = []

    def mark(self) -> None:
        """Record a moment after all work that was launched before."""
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
    """Context manager that disables garbage collection."""
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


def rounded(value: float, figures: int = 5) -> float:
    """The value with few figures, so that files stay small."""
    return float(f"{value:.{figures}g}")


def reference(device_context: DeviceContext) -> float:
    """Seconds of one product of two square matrices, always the same one: the fastest within a fifth of a second."""
    side = _side(device_context)
    a = torch.ones(side, side, dtype=device_context.precision, device=device_context.device)
    b, out = torch.ones_like(a), torch.empty_like(a)

    def _product() -> float:
        return spent(lambda: torch.mm(a, b, out=out), device_context.device)

    _product()
    seconds = [_product()]
    while sum(seconds) < _WATCHED:
        seconds.append(_product())
    return min(seconds)


def flops_of_reference(device_context: DeviceContext) -> int:
    """Multiplications and additions of that product."""
    return 2 * _side(device_context) ** 3


def _side(device_context: DeviceContext) -> int:
    return _SIDES.get(device_context.device.type, _SIDES["cpu"])


def peak_bytes(work: Callable[[], object], device: torch.device) -> int:
    """The most memory that a piece of work holds beyond what was held before, in bytes.

    On a GPU the caching allocator's own peak; elsewhere the sum of what the processor's allocator gave out and took
    back, in the order of time, at its largest.

    Args:
        work: has run before, so that what is made once is there; gives back nothing that was there before, since a
            processor's allocator does not report that.
        device: what works.
    """
    # garbage stays where it is: given back on the way, it would be missing from the sum
    with undisturbed():
        if device.type != "cuda":
            return max(0, *accumulate(_allocations(work), initial=0))
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before


def free_bytes(device: torch.device) -> int | None:
    """Memory that could still be taken; None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def _allocations(work: Callable[[], object]) -> list[int]:
    """Changes of torch's CPU memory in bytes, in the order of time."""
    config = ProfilerConfig(ProfilerState.KINETO, False, True, False, False, False, _ExperimentalConfig(), "")
    activities = {ProfilerActivity.CPU}
    with _without_chatter():
        _prepare_profiler(config, activities)
        # Of scopes that nobody opens it records the memory alone. The profiler of torch.profiler records operations,
        # too: of a recurrence over 2,048 tokens in seven gigabytes, and in ten times the time.
        # Torch's type stubs know neither scopes nor a memory's size.
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
    """The profiler's library writes a line past Python whenever it starts and stops."""
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
    """All floating-point tensors of a state, including nested states and tuples, in the order of its fields."""
    if isinstance(bundle, Tensor):
        return [bundle] if bundle.is_floating_point() else []
    if isinstance(bundle, BatchedState):
        return [tensor for field in fields(bundle) for tensor in numbers(getattr(bundle, field.name))]
    return [tensor for item in bundle for tensor in numbers(item)] if isinstance(bundle, tuple) else []


def bytes_of(bundle: object) -> int:
    """Bytes of the floating-point tensors of a decoder's state or context."""
    return sum(tensor.numel() * tensor.element_size() for tensor in numbers(bundle))


@contextmanager
def unfused() -> Iterator[None]:
    """Context manager without fused kernels: recurrent layers run step by step, attention computes its weights."""
    with ExitStack() as stack:
        stack.enter_context(explicit_attention())
        with warnings.catch_warnings():
            # leaving TF32 as it is warns of its old setting
            warnings.simplefilter("ignore")
            stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        try:
            yield
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                stack.close()


def explicit_attention() -> AbstractContextManager[Any]:
    """Context manager that computes attention as products and a softmax, without a fused kernel."""
    return sdpa_kernel(SDPBackend.MATH)


def counted_flops() -> FlopCounterMode:
    """Counts the floating-point operations of matrix products within it; a multiplication with an addition is two."""
    return FlopCounterMode(display=False)
