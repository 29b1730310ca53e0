"""Threads that stay on their cores, for commands that measure times."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

# the processors that this process and its children may use, as they were before threads were held
_ALLOWED = "S2S_PROCESSORS"
# what OpenMP reads when it loads
_HOW = {"OMP_PROC_BIND": "spread", "OMP_PLACES": "cores"}


@contextmanager
def save_affinity() -> Iterator[None]:
    """Within it, OpenMP loads so that each thread of a product stays on a core of its own; to be entered before torch.

    Where they are not held, two threads that slept while one computed alone may wake up on the same core and stay there
    for seconds: a product on two threads was then seen to take exactly twice its time. Where the system cannot hold
    threads, torch is loaded, or the user has said how threads are held, nothing changes. Afterwards the environment,
    which other programs would inherit, is as it was, and this thread may run on any core again.
    """
    if not hasattr(os, "sched_getaffinity") or "torch" in sys.modules or "OMP_PROC_BIND" in os.environ:
        yield
        return
    places = os.environ.get("OMP_PLACES", _HOW["OMP_PLACES"])
    allowed = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    with _environment(_HOW | {"OMP_PLACES": places, _ALLOWED: allowed}):
        try:
            yield
        finally:
            restore_affinity()


def restore_affinity() -> None:
    """Lets this process run on any core again, as one of several that compute beside each other has to."""
    if allowed := os.environ.get(_ALLOWED):
        os.sched_setaffinity(0, map(int, allowed.split(",")))


@contextmanager
def unpin_children() -> Iterator[None]:
    """Within it, processes begin whose threads nobody holds, once they have been let go.

    Libraries bring an OpenMP each (torch, SentencePiece), and each holds the process's first thread as it is loaded, in
    all processes on the same core.
    """
    with _environment(dict.fromkeys(_HOW) if _ALLOWED in os.environ else {}):
        yield


@contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Within it, these variables are so; None where there is none."""
    before = {name: os.environ.get(name) for name in changes}
    _set(changes)
    try:
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
