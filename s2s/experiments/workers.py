"""Processes that make measurements beside each other, one processor thread in each.

Models of a comparison's size gain little from a second thread, and trainings beside each other do not slow each other
down much. Each has one thread however many processes there are, so their number does not change what is measured.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import TypeVar

import torch

from s2s.recipe.schema import DeviceSettings
from s2s.training.devices import Computer, prepare_process

Item = TypeVar("Item")
Found = TypeVar("Found")
# each holds a model, its optimiser and a corpus
_MOST = 8


def number_for(computer: Computer) -> int:
    """How many processes measure beside each other: as many as torch has threads, at most 8; one on a GPU.

    Args:
        computer: what computes.
    """
    return min(_MOST, torch.get_num_threads()) if computer.device.type == "cpu" else 1


class Workers:
    """Makes calls in other processes, which live until the end of the context; one worker is this process itself.

    Args:
        number: of processes.
        device: how each other process is prepared, but for its threads; None: as by default.
    """

    def __init__(self, number: int, device: DeviceSettings | None = None) -> None:
        self._number = number
        self._device = (device or DeviceSettings()).model_copy(update={"threads": 1})
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            # after an interruption nobody waits for what they do
            for process in multiprocessing.active_children() if kind else []:
                process.terminate()
            self._pool.shutdown(cancel_futures=True)

    def each(self, call: Callable[[Item], Found], items: Sequence[Item]) -> Iterator[tuple[Item, Found | None]]:
        """Makes a call for each item.

        Args:
            call: and the items can be pickled, where there is more than one worker.
            items: of one kind.

        Yields:
            An item and what the call gave, in the order in which they end; None where its process died, as it does when
            the system takes it down for its memory.
        """
        if self._number == 1:
            yield from ((item, call(item)) for item in items)
            return
        over: set[int] = set()
        try:
            for place, found in self._beside(call, items):
                over.add(place)
                yield items[place], found
        except BrokenProcessPool:
            # all calls end with one process; made one at a time, they tell which of them it was
            for place in sorted(set(range(len(items))) - over):
                self._pool = None
                try:
                    yield items[place], next(self._beside(call, items[place : place + 1]))[1]
                except BrokenProcessPool:
                    yield items[place], None
            self._pool = None

    def _beside(self, call: Callable[[Item], Found], items: Sequence[Item]) -> Iterator[tuple[int, Found]]:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(
                self._number, mp_context=context, initializer=_prepare, initargs=(self._device,)
            )
        places = {self._pool.submit(call, item): place for place, item in enumerate(items)}
        yield from ((places[future], future.result()) for future in as_completed(places))


def _prepare(device: DeviceSettings) -> None:
    """An interruption is the parent's to handle, and nothing outlives the parent."""
    prepare_process(device)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
