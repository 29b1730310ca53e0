"""One model thread, and batches made of the requests that wait for it."""

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

Compute = Callable[[Any, list[str], Callable[[], None]], Sequence[Any]]
"""From a request's options, its lines and a `before_step` to an answer for each line. `before_step` is called often: it
raises `Abandoned` when nobody waits for the answers any more."""


class QueueFull(Exception):
    """No more requests are accepted: too many wait, or the thread is stopping."""


class Abandoned(Exception):
    """Raised inside a computation when all its clients have gone."""


@dataclass(frozen=True)
class Job:
    """Lines of one request; jobs of equal `asked` can be computed together.

    Attributes:
        asked: Options of the request.
        lines: Its texts.
        width: Positions that the longest line takes in a batch.
        answers: Stays cancellable while it is computed.
    """

    asked: Hashable
    lines: list[str]
    width: int
    answers: "Future[list[Any]]" = field(default_factory=Future)


class ModelThread:
    """Computes jobs in one thread, so that models need no locks, the oldest first, each with all that fit to it.

    A batch never waits for others to come: while one is computed, the next ones gather. Requests of a loaded server are
    so computed together, and one that comes alone is computed at once. A batch whose jobs have all been cancelled ends
    at the next step of the decoder.

    Args:
        compute: called in the thread; what it raises is raised by the job's future.
        most: lines of a batch of several jobs.
        positions: of a batch of several jobs: its lines times its largest `width`.
        waiting: jobs that wait at most.
        observe: told how many lines each batch has.
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
        # a daemon: a process that ends does not wait for it
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """Jobs that wait."""
        with self._changed:
            return sum(not job.answers.cancelled() for job in self._jobs)

    def submit(self, asked: Hashable, lines: list[str], width: int) -> "Future[list[Any]]":
        """Add a job to the queue.

        Args:
            asked: Options of the request; jobs of equal options share batches.
            lines: The texts.
            width: Positions that the longest of them takes in a batch.

        Returns:
            The answers. Cancelling the future removes the job from the queue, or ends its computation.

        Raises:
            Full: too many wait, or the thread is stopping.
        """
        job = Job(asked, lines, width)
        with self._changed:
            # cancelled jobs take no place
            self._jobs = deque(each for each in self._jobs if not each.answers.cancelled())
            if self._stopping or len(self._jobs) >= self._waiting:
                raise QueueFull
            self._jobs.append(job)
            self._changed.notify()
        return job.answers

    def stop(self) -> None:
        """Takes no more jobs, answers those that it has, and ends."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether it computes."""
        return self._thread.is_alive()

    def _work(self) -> None:
        while batch := self._next():
            self._answer([job for job in batch if not job.answers.cancelled()])

    def _next(self) -> list[Job]:
        """The oldest job and those that can be computed with it; none when all is over."""
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
                # one of them asks for what cannot be, or for too much: the others shall not feel it
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
            # from here on it cannot be cancelled
            if job.answers.set_running_or_notify_cancel():
                job.answers.set_result(found)
