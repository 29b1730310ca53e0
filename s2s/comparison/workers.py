"""Pool of worker processes for the trials of a comparison."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import TypeVar

import torch
from tqdm import tqdm

from s2s.process import INTERRUPTIONS, block_interruptions
from s2s.recipe.schema import DeviceSettings
from s2s.run.manifest import code_version
from s2s.training import cpu_affinity
from s2s.training.device import DeviceContext, setup_process

Item = TypeVar("Item")
Given = TypeVar("Given")
# Each worker holds a model, its optimizer and a corpus.
_MOST = 8
# GPU memory of each worker: CUDA itself, and the logits of a batch.
_BYTES_EACH = 4 * 2**30


def number_for(device_context: DeviceContext) -> int:
    """Return the number of trials that run at the same time: one for each thread of torch, at most 8.

    A GPU is shared by as many if each has 4 GiB of its memory: eight trainings took no longer than one
    (docs/dev/log.md). Other devices run one at a time.
    """
    if device_context.device.type not in ("cpu", "cuda"):
        return 1
    number = min(_MOST, torch.get_num_threads())
    if device_context.device.type == "cuda":
        memory = torch.cuda.get_device_properties(device_context.device).total_memory
        number = max(1, min(number, memory // _BYTES_EACH))
    return number


class Workers:
    """Pool of processes that live until the end of the context; a pool of one worker is this process itself.

    Args:
        number: Number of workers.
        device: Device settings of each worker; each has one thread.
    """

    def __init__(self, number: int, device: DeviceSettings | None = None) -> None:
        self.number = number
        self._device = (device or DeviceSettings()).model_copy(update={"threads": 1})
        self._pool: ProcessPoolExecutor | None = None
        self._processes: set[BaseProcess] = set()

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None and kind:
            # After an interruption their results are not needed. Other child processes of the caller continue.
            for process in self._processes.intersection(multiprocessing.active_children()):
                process.terminate()
        self._end()

    def __str__(self) -> str:
        return f"{self.number} in parallel"

    @contextmanager
    def exclusive(self) -> Iterator["Workers"]:
        """Stop the other processes, and yield a pool that runs calls in this process, for timing and memory."""
        self._end()
        yield Workers(1)

    def _end(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)

    def map_unordered(
        self, call: Callable[[Item], Given], items: Sequence[Item]
    ) -> Generator[tuple[Item, Given | None]]:
        """Call a function for each item, in parallel.

        Args:
            call: The function; with more than one worker it must be picklable, as must the items.
            items: The items; items appended meanwhile are included.

        Yields:
            Each item with the result, in the order in which calls end; None if the process died, for example because it
            ran out of memory.
        """
        if self.number == 1:
            # A generator over the list includes items that are appended meanwhile.
            yield from ((item, call(item)) for item in items)
            return
        over: set[int] = set()
        try:
            for place, given in self._run_in_pool(call, items):
                over.add(place)
                yield items[place], given
        except BrokenProcessPool:
            # The death of one process breaks the pool. Run one call at a time to find the one that kills its process.
            for place, item in enumerate(items):
                if place in over:
                    continue
                self._pool = None
                try:
                    yield item, next(self._run_in_pool(call, [item]))[1]
                except BrokenProcessPool:
                    yield item, None
            self._pool = None

    def _run_in_pool(self, call: Callable[[Item], Given], items: Sequence[Item]) -> Iterator[tuple[int, Given]]:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(
                self.number, mp_context=context, initializer=_prepare, initargs=(self._device,)
            )
        waiting: dict[Future[Given], int] = {}
        submitted = 0
        while waiting or submitted < len(items):
            # Processes start when calls are submitted, and inherit blocked signals. They import for a second before
            # they can ignore an interruption, which is the parent's to handle.
            others = set(multiprocessing.active_children()) - self._processes
            try:
                with block_interruptions(), cpu_affinity.unpin_children():
                    # A submitted call cannot be cancelled, so only as many are submitted as there are workers.
                    for item in items[submitted : submitted + self.number - len(waiting)]:
                        waiting[self._pool.submit(call, item)] = submitted
                        submitted += 1
            finally:
                self._processes = set(multiprocessing.active_children()) - others
            over, _ = wait(waiting, return_when=FIRST_COMPLETED)
            yield from ((waiting.pop(future), future.result()) for future in over)


def _prepare(device: DeviceSettings) -> None:
    """Set up a worker: it ignores interruptions, which the parent handles, and ends with the parent."""
    cpu_affinity.restore_affinity()
    setup_process(device)
    code_version()
    for number in INTERRUPTIONS:
        signal.signal(number, signal.SIG_IGN)
    # tqdm's shared lock would outlive a terminated process, and Python warns about leaked semaphores.
    tqdm.set_lock(threading.RLock())
    parent = multiprocessing.parent_process()

    def exit_with_parent() -> None:
        if parent:
            parent.join()
            os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()
