"""Dynamic batching: one model thread, and batches of the waiting requests."""

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

Compute = Callable[[Any, list[str], Callable[[], None]], Sequence[Any]]
"""Function from a request's options, its lines and `before_step` to an answer per line.

The function calls `before_step` often; it raises `Abandoned` when no client waits for the answers any more."""


class QueueFull(Exception):
    """The request is not accepted: the queue is full, or the thread is stopping."""


class Abandoned(Exception):
    """All clients of a computation have disconnected."""


@dataclass(frozen=True)
class Job:
    """Lines of one request; jobs with equal `asked` can share a batch."""

    asked: Hashable
    lines: list[str]
    width: int
    answers: "Future[list[Any]]" = field(default_factory=Future)


class ModelThread:
    """Computes jobs in one thread, oldest first, batched with compatible waiting jobs.

    A single thread means that models need no locks. A batch never waits for more jobs: jobs gather while the previous
    batch is computed, so a busy server forms batches and an idle one answers at once. A batch whose jobs were all
    cancelled ends at the next decoder step.

    Args:
        compute: Called in the thread; its exceptions are raised by the job's future.
        most: Maximum number of lines in a batch of several jobs.
        positions: Maximum size of a batch of several jobs: number of lines times the largest `width`.
        waiting: Maximum number of waiting jobs.
        observe: Called with the number of lines of each batch.

    Example:
        >>> thread = ModelThread(lambda asked, lines, before_step: [line.upper() for line in lines], 8, 100, 8)
        >>> thread.submit(None, ["a", "b"], 1).result()
        ['A', 'B']
        >>> thread.stop()
    """

    def __init__(
        self,
        compute: Compute,
        most: int,
        positions: int,
        waiting: int,
        observe: Callable[[int], object] = lambda lines: None,
    ) -> None:
        self._compute, self._most, self._positions, self._waiting = compute, most, positions, waiting
        self._observe = observe
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        # A daemon thread does not keep the process alive.
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """Return the number of waiting jobs."""
        with self._changed:
            return sum(not job.answers.cancelled() for job in self._jobs)

    def submit(self, asked: Hashable, lines: list[str], width: int) -> "Future[list[Any]]":
        """Add a job to the queue.

        Raises:
            QueueFull: The queue is full, or the thread is stopping.
        """
        job = Job(asked, lines, width)
        with self._changed:
            # Cancelled jobs do not count.
            self._jobs = deque(each for each in self._jobs if not each.answers.cancelled())
            if self._stopping or len(self._jobs) >= self._waiting:
                raise QueueFull
            self._jobs.append(job)
            self._changed.notify()
        return job.answers

    def stop(self) -> None:
        """Refuse new jobs, answer the waiting ones, and end the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """True while the thread runs."""
        return self._thread.is_alive()

    def _work(self) -> None:
        while batch := self._next():
            self._answer([job for job in batch if not job.answers.cancelled()])

    def _next(self) -> list[Job]:
        """Return the oldest job with all jobs that fit its batch; empty at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._stopping)
            batch: list[Job] = []
            lines, width, kept = 0, 0, deque[Job]()
            for job in self._jobs:
                count, widest = lines + len(job.lines), max(width, job.width)
                fits = not batch or (
                    job.asked == batch[0].asked and count <= self._most and count * widest <= self._positions
                )
                (batch if fits else kept).append(job)
                lines, width = (count, widest) if fits else (lines, width)
            self._jobs = kept
            return batch

    def _answer(self, batch: list[Job]) -> None:
        if not batch:
            return
        lines = [line for job in batch for line in job.lines]

        def before_step() -> None:
            if all(job.answers.cancelled() for job in batch):
                raise Abandoned

        try:
            answers = iter(self._compute(batch[0].asked, lines, before_step))
        except Abandoned:
            return
        except BaseException as error:
            if isinstance(error, Exception) and len(batch) > 1:
                # One job may cause the error, so each is computed alone.
                for job in batch:
                    self._answer([job] if not job.answers.cancelled() else [])
                return
            for job in batch:
                if job.answers.set_running_or_notify_cancel():
                    job.answers.set_exception(error)
            return
        self._observe(len(lines))
        for job in batch:
            found = [next(answers) for _ in job.lines]
            # After this the future cannot be cancelled.
            if job.answers.set_running_or_notify_cancel():
                job.answers.set_result(found)
