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
from s2s.training.device import OutOfMemory
from s2s.training.distributed import PeerLostError

# Ctrl-C, the system's or a scheduler's wish, and a terminal that is closed
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class GracefulShutdown:
    """Context manager: the first SIGINT, SIGTERM or SIGHUP requests a stop, the second one exits immediately.

    Ignored signals stay ignored (nohup). Worker processes of a comparison leave signals to their parent.

    Attributes:
        signal: Number of the signal; 0 while no stop is requested.
    """

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "GracefulShutdown":
        if threading.current_thread() is threading.main_thread() and multiprocessing.parent_process() is None:
            for number in _SIGNALS:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            # torchrun stops all when one is lost, but this one ends by itself, and has yet to tell why
            signal.signal(number, signal.SIG_IGN if isinstance(error, PeerLostError) else before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            raise Stopped(number)
        self.signal = number


@contextmanager
def interrupt_immediately() -> Iterator[Callable[[], None]]:
    """Context manager: SIGINT, SIGTERM and SIGHUP raise `KeyboardInterrupt`, so that child processes are ended, too.

    Ignored signals stay ignored (nohup). A `GracefulShutdown` inside takes over the signals while it is active.

    Yields:
        What ends it where a signal came and was lost: Python drops what is raised while it collects garbage.

    Raises:
        Stopped: one came.
    """
    came: list[int] = []

    def _interrupt(number: int, frame: FrameType | None) -> None:
        came.append(number)
        # who waits for others, as Ray does, knows this one and passes on no other
        raise KeyboardInterrupt

    def _check() -> None:
        if came:
            raise KeyboardInterrupt

    usable = threading.current_thread() is threading.main_thread() and multiprocessing.parent_process() is None
    wanted = [each for each in _SIGNALS if usable and signal.getsignal(each) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, _interrupt) for number in wanted}
    try:
        yield _check
    except KeyboardInterrupt:
        raise Stopped(came[-1] if came else signal.SIGINT) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def print_resume_hint_on_exit(folder: Path, command: Sequence[str], stands: Callable[[], str]) -> Iterator[None]:
    """Context manager that adds the progress and the command to resume to errors that end a training.

    Raises:
        Stopped: A signal requested a stop.
        UserError: the disk is full, memory is, or another process of the training is lost.
    """
    try:
        yield
    except (KeyboardInterrupt, Stopped) as stop:
        again = f"resume with: {shlex.join(command)}"
        raise Stopped(getattr(stop, "signal", signal.SIGINT), stands(), str(folder), again) from None
    except (PeerLostError, OutOfMemory) as lost:
        again = f"{lost.remedy}; resume with: {shlex.join(command)}"
        raise type(lost)(f"{lost.what}; {stands()}", str(folder), again) from None
    except OSError as error:
        if not is_disk_full(error):
            raise
        raise explain_os_error(error, str(folder), f"resume with: {shlex.join(command)}") from None
