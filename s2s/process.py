"""Memory, limits, signals and installed packages of this process; Windows has fewer of the first three."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from typing import Literal

INTERRUPTIONS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGHUP") if hasattr(signal, name))
"""Signals of a terminal: Ctrl-C, and, except on Windows, its closing."""
STOP_SIGNALS = (*INTERRUPTIONS, signal.SIGTERM)
"""Signals that stop a command; the last one is a scheduler's."""


@cache
def package_version(name: str) -> str:
    """Return the version of an installed package; its metadata is parsed once per process."""
    return metadata.version(name)


def limit(of: Literal["AS", "NOFILE"]) -> int | None:
    """Return the limit on the memory in bytes, or on the number of open files; None without one."""
    try:
        import resource
    except ImportError:
        return None
    found, _ = resource.getrlimit(getattr(resource, f"RLIMIT_{of}"))
    return None if found == resource.RLIM_INFINITY else found


def peak_memory() -> int | None:
    """Return the peak memory of this process in bytes; None where the system does not report it."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def machine_memory(of: Literal["PHYS", "AVPHYS"]) -> int | None:
    """Return the memory of this machine in bytes, all or what is free; None where the system does not report it."""
    try:
        return os.sysconf(f"SC_{of}_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


@contextmanager
def block_interruptions() -> Iterator[None]:
    """Start child processes that do not hear `INTERRUPTIONS` before they can ignore them; a context manager."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTIONS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
