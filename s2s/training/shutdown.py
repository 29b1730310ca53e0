"""Graceful shutdown at SIGINT, SIGTERM and SIGHUP, and how to resume after it."""

import multiprocessing
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from s2s.errors import Stopped
from s2s.files import explain_os_error, is_disk_full
from s2s.process import STOP_SIGNALS
from s2s.training.device import OutOfMemory
from s2s.training.distributed import PeerLostError


def _handled_signals() -> list[signal.Signals]:
    """Return Ctrl-C, the signal of a scheduler, and that of a closed terminal.

    Ignored signals stay ignored (nohup), and worker processes of a comparison leave signals to their parent.
    """
    if threading.current_thread() is not threading.main_thread() or multiprocessing.parent_process() is not None:
        return []
    return [number for number in STOP_SIGNALS if signal.getsignal(number) not in (signal.SIG_IGN, None)]


class GracefulShutdown:
    """Context manager: the first SIGINT, SIGTERM or SIGHUP requests a stop, the second one exits immediately.

    Attributes:
        signal: Number of the signal; 0 while no stop is requested.
    """

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "GracefulShutdown":
        self._before = {number: signal.signal(number, self._request_stop) for number in _handled_signals()}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            # torchrun stops all ranks when one is lost, but this one ends by itself, after it has reported the reason.
            signal.signal(number, signal.SIG_IGN if isinstance(error, PeerLostError) else before)

    def _request_stop(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            raise Stopped(number)
        self.signal = number


@contextmanager
def interrupt_immediately() -> Iterator[Callable[[], None]]:
    """Context manager: SIGINT, SIGTERM and SIGHUP raise `KeyboardInterrupt`, so that child processes are ended, too.

    A `GracefulShutdown` inside takes over the signals while it is active.

    Yields:
        A function that raises `KeyboardInterrupt` again if a signal was lost: Python drops exceptions that are raised
        during garbage collection.

    Raises:
        Stopped: A signal arrived.
    """
    arrived: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        arrived.append(number)
        # The only exception that Ray, which waits for other processes, passes on.
        raise KeyboardInterrupt

    def check() -> None:
        if arrived:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _handled_signals()}
    try:
        yield check
    except KeyboardInterrupt:
        raise Stopped(arrived[-1] if arrived else signal.SIGINT) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def print_resume_hint_on_exit(folder: Path, command: Sequence[str], status: Callable[[], str]) -> Iterator[None]:
    """Context manager that adds the progress and the command to resume to errors that end a training.

    Raises:
        Stopped: A signal requested a stop.
        UserError: The disk is full, memory is exhausted, or another process of the training is lost.
    """
    again = f"resume with: {shlex.join(command)}"
    try:
        yield
    except (KeyboardInterrupt, Stopped) as stop:
        raise Stopped(getattr(stop, "signal", signal.SIGINT), status(), str(folder), again) from None
    except (PeerLostError, OutOfMemory) as lost:
        raise type(lost)(f"{lost.what}; {status()}", str(folder), f"{lost.remedy}; {again}") from None
    except OSError as error:
        if not is_disk_full(error):
            raise
        raise explain_os_error(error, str(folder), again) from None
