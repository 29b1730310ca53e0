"""Asked to stop: a signal is noted, and whoever works ends at a good place."""

import multiprocessing
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from s2s.errors import Stopped
from s2s.files import explain_os_error, is_disk_full
from s2s.run.memory_check import OutOfMemory
from s2s.training.distributed import Distributed, PeerLostError

if TYPE_CHECKING:
    from s2s.run.tasks import AnyTask

# Ctrl-C, the system's or a scheduler's wish, and a terminal that is closed
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class GracefulShutdown:
    """Within it, the first signal to stop is noted, and the second one stops at once; a context manager.

    Signals that are ignored stay so (nohup), and the processes of a comparison leave theirs to their parent. The number
    of the signal is 0 while nobody wants to stop.
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
    """Within it, all signals to stop end what is done as Ctrl-C does: whoever has processes ends them, too.

    Signals that are ignored stay so (nohup). A `Wish` within it takes them over for its time.

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


@dataclass(frozen=True)
class ValidationPoint:
    """A pause of the training, in all its processes after the same update.

    Attributes:
        due: whether the recipe has a validation here; if not, a checkpoint is all that is wanted.
    """

    is_validation_step: bool
    shutdown: GracefulShutdown
    distributed: Distributed

    def should_stop(self, over: bool = False) -> bool:
        """Whether the training ends here, because it is over or because the first process shall stop."""
        return self.distributed.broadcast_object(over or bool(self.shutdown.signal))


def is_validation_step(update: int, recipe: "AnyTask") -> bool:
    """Whether the recipe has a validation after this update."""
    return update % recipe.validation.every == 0 or update == recipe.training.updates


def agree_on_pause(
    update: int, recipe: "AnyTask", distributed: Distributed, wish: GracefulShutdown, late: bool = False
) -> ValidationPoint | None:
    """The pause after an update, which a validation, or any process's wish to stop or to save, makes; None: no pause.

    Each process asks after each update.
    """
    signal_of_all, late_of_all = distributed.all_reduce_max(wish.signal, int(late))
    # one that comes in this moment stays
    wish.signal = wish.signal or signal_of_all
    validated = is_validation_step(update, recipe)
    return ValidationPoint(validated, wish, distributed) if validated or signal_of_all or late_of_all else None


@contextmanager
def print_resume_hint_on_exit(folder: Path, command: Sequence[str], stands: Callable[[], str]) -> Iterator[None]:
    """Within it, whoever stops, finds disk or memory full, or is left alone, is told how far it came and how to go on.

    Raises:
        Stopped: somebody wanted it.
        UserError: the disk is full, memory is, or another process of the training is lost.
    """
    try:
        yield
    except (KeyboardInterrupt, Stopped) as stop:
        again = f"go on: {shlex.join(command)}"
        raise Stopped(getattr(stop, "signal", signal.SIGINT), stands(), str(folder), again) from None
    except (PeerLostError, OutOfMemory) as lost:
        again = f"{lost.remedy}; go on: {shlex.join(command)}"
        raise type(lost)(f"{lost.what}; {stands()}", str(folder), again) from None
    except OSError as error:
        if not is_disk_full(error):
            raise
        raise explain_os_error(error, str(folder), f"go on: {shlex.join(command)}") from None
