"""Threads that stay on their cores, for commands that measure times."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

# the processors that this process and its children may use, as they were before threads were held
_ALLOWED = "S2S_PROCESSORS"
# what OpenMP reads when it loads
_HOW = ("OMP_PROC_BIND", "OMP_PLACES")


def hold() -> None:
    """Makes each thread of a product stay on a core of its own; to be called before torch, and with it OpenMP, loads.

    Where they are not held, two threads that slept while one computed alone may wake up on the same core and stay there
    for seconds: a product on two threads was then seen to take exactly twice its time. Where the system cannot hold
    threads, or the user has said how they are held, nothing changes.
    """
    if not hasattr(os, "sched_getaffinity") or "OMP_PROC_BIND" in os.environ:
        return
    os.environ[_ALLOWED] = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    os.environ["OMP_PROC_BIND"] = "spread"
    os.environ.setdefault("OMP_PLACES", "cores")


def let_go() -> None:
    """Lets this process run on any core again, as one of several that compute beside each other has to."""
    if allowed := os.environ.get(_ALLOWED):
        os.sched_setaffinity(0, map(int, allowed.split(",")))


@contextmanager
def free_children() -> Iterator[None]:
    """Within it, processes begin whose threads nobody holds, once they have been let go.

    Libraries bring an OpenMP each (torch, SentencePiece), and each holds the process's first thread as it is loaded, in
    all processes on the same core.
    """
    if _ALLOWED not in os.environ:
        yield
        return
    held = {name: os.environ.pop(name) for name in _HOW if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(held)
