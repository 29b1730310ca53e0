"""What computations are measured with: a clock, the machine's best rate, the allocator, a counter of operations.

Operations are counted on the real computation: how many there are, and how many of them must wait for each other.
"""

import gc
import math
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import FlopCounterMode

from s2s.models.contract import Rows
from s2s.training.devices import Computer

# sides of square products, of which the fastest counts as the machine's peak
_SIDES = {"cpu": (256, 512, 1024), "cuda": (2048, 4096, 8192)}
_REPETITIONS = 12
_REFERENCE = 512
# memory without numbers: nothing is computed, so nothing has to be waited for
_ALLOCATIONS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}


class Marks:
    """Moments between pieces of work, in the device's own order: a GPU is not stopped to look at the clock."""

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


def round_figures(values: Sequence[float], figures: int = 5) -> list[float]:
    """The values with few figures, so that files stay small."""
    return [float(f"{value:.{figures}g}") for value in values]


@dataclass(frozen=True)
class Machine:
    """What the machine could do while something was measured."""

    # floating-point operations a second in the fastest of some large matrix products, in training's precision
    peak: float
    reference: float  # what `reference` gave


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
    """What torch's allocator of processor memory gave out (above 0) and took back (below), in the order of time."""
    profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
    with _without_chatter():
        profiler.start()
    try:
        work()
    finally:
        with _without_chatter():
            profiler.stop()
    results = profiler.profiler.kineto_results if profiler.profiler else None
    events = [] if results is None else results.events()
    # torch's type stubs do not know the method
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
    """All floating-point tensors of a bundle, those of its inner bundles and tuples too, in the order of its fields."""
    if isinstance(bundle, Tensor):
        return [bundle] if bundle.is_floating_point() else []
    if isinstance(bundle, Rows):
        return [tensor for field in fields(bundle) for tensor in numbers(getattr(bundle, field.name))]
    return [tensor for item in bundle for tensor in numbers(item)] if isinstance(bundle, tuple) else []


def bytes_of(bundle: object) -> int:
    """What the floating-point tensors of a decoder's state or context hold, in bytes; anything else holds nothing."""
    return sum(tensor.numel() * tensor.element_size() for tensor in numbers(bundle))


class Operations(TorchDispatchMode):
    """Counts, within its `with`, the operations that torch sends to its kernels, and follows who waits for whom.

    An operation waits for all that wrote into the memory that it reads; its depth is one more than the largest of
    theirs. Memory is followed in stretches, from a tensor's first number to its last: quarters of a row are told apart,
    every other row of a matrix from the rows between is not. An operation in place waits for what stood there before.
    Views, allocations and questions about a shape are no operations. Backward passes are followed, too, if they run in
    this thread, as they do on a processor.

    Attributes:
        count: operations so far; a fused kernel is one of them, whatever goes on inside it.
        depth: the longest chain of operations of which each waits for the one before.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.depth = 0
        # of each piece of memory, the stretches that were written: first byte, end, depth
        self._written: dict[int, list[tuple[int, int, int]]] = {}
        # an address is given out again when its owner is gone, so owners are kept
        self._kept: dict[int, Any] = {}

    def depth_of(self, tensor: Tensor) -> int:
        """The longest chain that led to the tensor; 0 for what was there before."""
        first, end = _stretch(tensor)
        known = self._written.get(_address(tensor), ())
        return max((depth for start, stop, depth in known if start < end and first < stop), default=0)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Runs the operation and takes note of it."""
        given = dict(kwargs or {})
        out = func(*args, **given)
        read, made = _tensors((args, given)), _tensors(out)
        written = _written(func, args, given)
        known = {_address(tensor) for tensor in read}
        views = func.overloadpacket.__name__ in _ALLOCATIONS or all(_address(tensor) in known for tensor in made)
        if not written and views:
            return out
        self.count += 1
        depth = 1 + max((self.depth_of(tensor) for tensor in read), default=0)
        self.depth = max(self.depth, depth)
        for tensor in (*made, *written):
            address, (first, end) = _address(tensor), _stretch(tensor)
            self._kept[address] = tensor.untyped_storage()
            # it was read before, so it is deeper than all that it covers
            left = [old for old in self._written.get(address, ()) if old[0] < first or end < old[1]]
            self._written[address] = [*left, (first, end, depth)]
        return out


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _stretch(tensor: Tensor) -> tuple[int, int]:
    """The tensor's first byte in its memory, and the one after its last."""
    first, size = int(tensor.storage_offset()), tensor.element_size()
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    length = 1 + sum((count - 1) * stride for count, stride in steps) if tensor.numel() else 0
    return first * size, (first + length) * size


def _tensors(tree: object) -> list[Tensor]:
    return [leaf for leaf in tree_iter(tree) if isinstance(leaf, Tensor)]


def _written(func: Any, args: tuple, given: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that an operation changes in place."""
    if not func._schema.is_mutable or torch.Tag.inplace_view in func.tags:
        return []
    named = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | dict(given)
    changed = (a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write)
    return [tensor for name in changed for tensor in _tensors(named.get(name))]


@contextmanager
def unfused() -> Iterator[None]:
    """Within it, recurrent layers run step by step out of small operations, not as one kernel with a loop inside."""
    with ExitStack() as stack:
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


def counted_flops() -> FlopCounterMode:
    """Counts the floating-point operations of matrix products within it; a multiplication with an addition is two."""
    return FlopCounterMode(display=False)


def continued(lengths: Sequence[int], counts: Sequence[float], n: int) -> float:
    """A count at a length that was not counted, by the parabola through the last three of at least three that were.

    Matrix products of layers grow with the length and those of attention with its square, so nothing is lost.
    """
    known = dict(zip(lengths, counts, strict=True))
    if n in known:
        return float(known[n])
    last = lengths[-3:]
    shares = (math.prod((n - other) / (here - other) for other in last if other != here) for here in last)
    return sum(share * known[here] for share, here in zip(shares, last, strict=True))
