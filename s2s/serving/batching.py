"""One thread that computes, and batches made of what waits for it."""

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

Compute = Callable[[Any, list[str]], Sequence[Any]]
"""From what is asked and lines to an answer for each line."""


class Full(Exception):
    """So many requests wait that no more are taken."""


@dataclass(frozen=True)
class Job:
    """Lines of one request; those of equal `asked` can be computed together."""

    asked: Hashable
    lines: list[str]
    answers: "Future[list[Any]]" = field(default_factory=Future)


class ModelThread:
    """Computes jobs in one thread, so that models need no locks, the oldest first, each with all that fit to it.

    A batch never waits for others to come: while one is computed, the next ones gather. Requests of a loaded server are
    so computed together, and one that comes alone is computed at once.

    Args:
        compute: called in the thread; what it raises is raised by the job's future.
        most: lines of a batch of several jobs.
        waiting: jobs that wait at most.
        observe: told how many lines each batch has.
    """

    def __init__(
        self, compute: Compute, most: int, waiting: int, observe: Callable[[int], object] = lambda lines: None
    ) -> None:
        self._compute, self._most, self._waiting, self._observe = compute, most, waiting, observe
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """Jobs that wait."""
        with self._changed:
            return sum(not job.answers.cancelled() for job in self._jobs)

    def submit(self, asked: Hashable, lines: list[str]) -> "Future[list[Any]]":
        """Hands in a job; its answers come as a future, which may be cancelled while it waits.

        Raises:
            Full: too many wait, or the thread is stopping.
        """
        job = Job(asked, lines)
        with self._changed:
            # whoever has gone, as after a time-out, takes nobody's place
            self._jobs = deque(each for each in self._jobs if not each.answers.cancelled())
            if self._stopping or len(self._jobs) >= self._waiting:
                raise Full
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
            # whoever has gone in the meantime needs no answer
            self._answer([job for job in batch if job.answers.set_running_or_notify_cancel()])

    def _next(self) -> list[Job]:
        """The oldest job and those that can be computed with it; none when all is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._stopping)
            batch: list[Job] = []
            lines, kept = 0, deque[Job]()
            for job in self._jobs:
                fits = not batch or (job.asked == batch[0].asked and lines + len(job.lines) <= self._most)
                (batch if fits else kept).append(job)
                lines += len(job.lines) if fits else 0
            self._jobs = kept
            return batch

    def _answer(self, batch: list[Job]) -> None:
        if not batch:
            return
        lines = [line for job in batch for line in job.lines]
        try:
            answers = iter(self._compute(batch[0].asked, lines))
        except BaseException as error:
            if isinstance(error, Exception) and len(batch) > 1:
                # one of them asks for what cannot be, or for too much: the others shall not feel it
                for job in batch:
                    self._answer([job])
                return
            for job in batch:
                job.answers.set_exception(error)
            return
        self._observe(len(lines))
        for job in batch:
            job.answers.set_result([next(answers) for _ in job.lines])
