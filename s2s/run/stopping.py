"""Asked to stop: a signal is noted, and whoever works ends at a good place."""

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
from s2s.files import explained, full

# Ctrl-C, the system's or a scheduler's wish, and a terminal that is closed
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Wish:
    """Within it, the first signal to stop is noted, and the second one stops at once; a context manager.

    Signals that are ignored stay so (nohup), and the processes of a comparison leave theirs to their parent. The number
    of the signal is 0 while nobody wants to stop.
    """

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Wish":
        if threading.current_thread() is threading.main_thread() and multiprocessing.parent_process() is None:
            for number in _SIGNALS:
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            raise Stopped(number)
        self.signal = number


@contextmanager
def resumable(folder: Path, command: Sequence[str], stands: Callable[[], str]) -> Iterator[None]:
    """Within it, whoever stops, or finds the disk full, is told how far it came and which command goes on.

    Raises:
        Stopped: somebody wanted it.
        UserError: the disk is full.
    """
    try:
        yield
    except (KeyboardInterrupt, Stopped) as stop:
        again = f"go on: {shlex.join(command)}"
        raise Stopped(getattr(stop, "signal", signal.SIGINT), stands(), str(folder), again) from None
    except OSError as error:
        if not full(error):
            raise
        raise explained(error, str(folder), f"go on: {shlex.join(command)}") from None
