"""What a GPU is given before it needs it: the processor runs ahead, so that the GPU never stands still."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import zip_longest
from typing import Generic, TypeVar

import numpy as np
import torch

from s2s.data.examples import Collated, Examples, Plan

C = TypeVar("C", bound=Collated)


def runs_ahead(device: torch.device) -> bool:
    """Whether the processor may ask a device for more before it has done what it was asked for.

    Apple's GPUs are treated as processors are: there, Adam cannot be told on the device to leave the weights alone.
    """
    return device.type not in ("cpu", "mps")


class Ahead(Generic[C]):
    """Makes the batches of updates; for a device that runs by itself, a thread makes those of the next one meanwhile.

    On a processor nothing is made ahead: the thread would take its time from the update.

    Args:
        examples: what batches are made of.
        device: that they are for.
    """

    def __init__(self, examples: Examples[C], device: torch.device) -> None:
        self._examples = examples
        self._pinned = device.type == "cuda"
        self._thread = ThreadPoolExecutor(1, "collation") if runs_ahead(device) else None
        self._next: tuple[Plan, int, Future[list[C]]] | None = None

    def batches(self, group: Plan, seed: int, following: Plan | None = None) -> list[C]:
        """The batches of an update, in the processor's memory.

        Args:
            group: the rows of each.
            seed: of what is drawn for the examples.
            following: the group that will be asked for next, with the same seed.
        """
        ahead, self._next = self._next, None
        known = ahead is not None and ahead[0] is group and ahead[1] == seed
        batches = ahead[2].result() if ahead is not None and known else self._collate(group, seed)
        if self._thread is not None and following is not None:
            self._next = following, seed, self._thread.submit(self._collate, following, seed)
        return batches

    def _collate(self, group: Plan, seed: int) -> list[C]:
        batches = [self._examples.collate(rows, seed) for rows in group]
        return [batch.pinned() for batch in batches] if self._pinned else batches


def batches_on(examples: Examples[C], device: torch.device) -> Iterator[tuple[np.ndarray, C]]:
    """All examples in batches on a device, with the rows of each; the same ones, drawn the same, each time."""
    groups = [[rows] for rows in examples.plan(0, 0)]
    ahead = Ahead(examples, device)
    for group, following in zip_longest(groups, groups[1:]):
        yield group[0], ahead.batches(group, 0, following)[0].to(device)
