"""CPU affinity: pin OpenMP threads to cores, for commands that measure time."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

# Environment variable with the cores that this process and its children may use without pinning.
_ALLOWED = "S2S_PROCESSORS"
# Variables that OpenMP reads when it is loaded.
_HOW = {"OMP_PROC_BIND": "spread", "OMP_PLACES": "cores"}


@contextmanager
def save_affinity() -> Iterator[None]:
    """Pin each OpenMP thread to a core, and restore the affinity at the end.

    Use as a context manager, before torch is imported. Without pinning, two threads that slept while one computed alone
    may wake up on the same core and stay there for seconds: matrix products on two threads were then measured to take
    exactly twice their time. Nothing changes if the system cannot pin threads, torch is already loaded, or the user has
    set `OMP_PROC_BIND`. At the end the environment, which other programs would inherit, is restored, and this thread
    may use all cores again.
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
    """Allow this process to use all its cores again."""
    if allowed := os.environ.get(_ALLOWED):
        os.sched_setaffinity(0, map(int, allowed.split(",")))


@contextmanager
def unpin_children() -> Iterator[None]:
    """Start child processes without pinned threads.

    Use as a context manager. The children call `restore_affinity`. Several libraries bring their own OpenMP (torch,
    SentencePiece), and each pins the main thread of a process when it is loaded, to the same core in all processes.
    """
    with _environment(dict.fromkeys(_HOW) if _ALLOWED in os.environ else {}):
        yield


@contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Set environment variables; None removes one."""
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
