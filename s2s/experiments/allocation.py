"""Memory, from the allocator's own statistics: the peak of a computation, and what a bundle of tensors holds."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from s2s.experiments.timing import undisturbed
from s2s.models.contract import Rows


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
            return _highest(_allocations(work))
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


def _highest(changes: list[int]) -> int:
    held = highest = 0
    for change in changes:
        held += change
        highest = max(highest, held)
    return highest


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
    found = [] if results is None else results.events()
    # torch's type stubs do not know the method
    changes = [(e.start_ns(), e.nbytes()) for e in found if e.name() == "[memory]"]  # pyright: ignore
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


def bytes_of(bundle: object) -> int:
    """What the tensors of floating-point numbers of a bundle hold, in bytes.

    Args:
        bundle: a decoder's state or context: tensors, bundles and tuples of them; anything else holds nothing.
    """
    if isinstance(bundle, Tensor):
        return bundle.numel() * bundle.element_size() if bundle.is_floating_point() else 0
    if isinstance(bundle, Rows):
        return sum(bytes_of(getattr(bundle, f.name)) for f in fields(bundle))
    return sum(bytes_of(item) for item in bundle) if isinstance(bundle, tuple) else 0
