"""What a trainer learns from, whatever the task: examples that become batches."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from itertools import zip_longest
from typing import ClassVar, Generic, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from s2s.errors import UserError

Plan = list[np.ndarray]
C = TypeVar("C", bound="BaseBatch")


@dataclass(frozen=True)
class BaseBatch:
    """Some examples as tensors; each task adds its own.

    Attributes:
        indices: the corpus row of each example, so that a bad batch can be named; they stay on the CPU.
        count: what the sum of the losses is divided by, e.g. target tokens, examples or masked tokens.
        tokens: real tokens, by which speed is told.
        real_share: real tokens among all positions, in (0, 1].
    """

    indices: Int[Tensor, " batch"]
    # plain numbers, counted before the batch moves: to ask a GPU would make the processor wait for it
    count: int
    tokens: int
    real_share: float

    def to(self: C, device: torch.device | str) -> C:
        """The batch on a device."""
        return self._map_tensors(lambda tensor: to_device(tensor, device))

    def pinned(self: C) -> C:
        """The batch in memory that a CUDA device reads by itself."""
        return self._map_tensors(torch.Tensor.pin_memory)

    def _map_tensors(self: C, change: Callable[[Tensor], Tensor]) -> C:
        tensors = {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)}
        del tensors["indices"]
        return replace(self, **{name: change(tensor) for name, tensor in tensors.items()})


def to_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """A processor's tensor on a device; to CUDA, without waiting for what the device has yet to do."""
    if torch.device(device).type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


class Examples(ABC, Generic[C]):
    """A corpus that a trainer can learn from: which examples make which batch, and what a batch holds.

    The plan of an epoch is a pure function of seed and epoch, and so is what collation draws at random of its seed:
    to resume in the middle of an epoch is to look up where one was.

    Attributes:
        noun: what the examples are called in messages, in the plural.
        left_out: examples that no plan holds, e.g. for their length.
    """

    item_name: ClassVar[str] = "examples"
    num_skipped: int = 0

    @abstractmethod
    def __len__(self) -> int:
        """The number of examples, those that are left out included."""

    @abstractmethod
    def make_batches(self, seed: int, epoch: int) -> Plan:
        """The corpus rows of each batch of an epoch, from 0 on: every example once, but for those left out."""

    def accumulation_steps(self, batches: Plan) -> int:
        """How many batches (micro-batches) make an update, in all epochs, by the plan of epoch 0.

        Each batch is an update, unless a task joins several.
        """
        return 1

    @abstractmethod
    def collate(self, rows: Int[np.ndarray, " batch"], seed: int) -> C:
        """The batch of these corpus rows.

        Args:
            rows: indices of the examples.
            seed: of what is drawn at random for them, such as masks; in training the same for a whole epoch. What is
                drawn for an example should depend on seed and row alone, not on the batch it is in.
        """


def group_into_steps(batches: Plan, together: int) -> list[Plan]:
    """The batches of each update of an epoch: so many that follow each other, and in the last one what remains."""
    return [batches[i : i + together] for i in range(0, len(batches), together)]


def batches_per_step(wanted: int, usual: float, noun: str, key: str, remedy: str) -> int:
    """How many batches have about as many items together as wanted.

    A batch has `usual` items, none where there is no batch; `key` of the recipe's `training` says how many are wanted.

    Raises:
        UserError: one batch has more than twice as many.
    """
    if wanted < usual / 2:
        raise UserError(
            f"an update should learn from {wanted} {noun}, but a batch has {usual:.0f}",
            where=f"training.{key}",
            remedy=f"{remedy}, or set training.{key}={usual:.0f}",
        )
    return max(1, round(wanted / usual)) if usual else 1


def shard_batches(batches: Plan, rank: int, size: int) -> Plan:
    """What the process of that rank takes of the batches of an update; together, `size` processes take each row once.

    Batches are dealt out whole while there is one for each, and of each that is left over every process takes every
    size-th row: so they do about as much, and nothing is too large for one of them that was not for one alone. A
    process may get less than the others, or nothing.
    """
    if size == 1:
        return batches
    dealt = len(batches) - len(batches) % size
    parts = [rows[(rank - number) % size :: size] for number, rows in enumerate(batches[dealt:])]
    return [rows for rows in (*batches[rank:dealt:size], *parts) if len(rows)]


@dataclass(frozen=True)
class LabelledBatch(BaseBatch):
    """Examples, as pieces or pixels, and the numbers of their classes; the loss is divided by the examples."""

    source: Shaped[Tensor, "batch ..."]
    source_valid: Bool[Tensor, "batch source"]
    labels: Int[Tensor, " batch"]


class LabelledExamples(Examples[LabelledBatch]):
    """Examples that have classes.

    A recipe's `key` says how many a batch has, and an update learns from the `wanted`, or from those of a batch. Of
    truncated ones only the beginning is read; None where all are read whole.
    """

    key: ClassVar[str]
    labels: Int[np.ndarray, " examples"]
    examples_per_step: int | None = None
    truncated: int | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def is_truncated(self) -> Bool[np.ndarray, " examples"]:
        """True for each example of which only the beginning is read."""
        return np.zeros(len(self), dtype=bool)

    @abstractmethod
    def subset(self, rows: Int[np.ndarray, " chosen"]) -> "LabelledExamples":
        """The chosen examples alone, as a model reads them when it is asked."""

    @abstractmethod
    def read(self, rows: Int[np.ndarray, " batch"], seed: int) -> tuple[Shaped[Tensor, "batch ..."], Tensor]:
        """What an encoder reads of these examples, and where its positions are real; see `collate`."""

    def mean_batch_size(self, batches: Plan) -> float:
        """Examples of a batch."""
        return len(self) / max(1, len(batches))

    def accumulation_steps(self, batches: Plan) -> int:
        if self.examples_per_step is None:
            return super().accumulation_steps(batches)
        noun, remedy = self.item_name.removeprefix("training "), f"set {self.key}={self.examples_per_step}"
        return batches_per_step(
            self.examples_per_step, self.mean_batch_size(batches), noun, "examples_per_update", remedy
        )

    def collate(self, rows: Int[np.ndarray, " batch"], seed: int) -> LabelledBatch:
        source, valid = self.read(rows, seed)
        tokens, labels = int(valid.sum()), torch.from_numpy(self.labels[rows].astype(np.int64))
        indices = torch.from_numpy(np.array(rows, dtype=np.int64))
        return LabelledBatch(indices, len(rows), tokens, tokens / valid.numel(), source, valid, labels)


C = TypeVar("C", bound=BaseBatch)


def is_asynchronous(device: torch.device) -> bool:
    """Whether the processor may ask a device for more before it has done what it was asked for.

    Apple's GPUs are treated as processors are: there, Adam cannot be told on the device to leave the weights alone.
    """
    return device.type not in ("cpu", "mps")


class Prefetcher(Generic[C]):
    """Makes the batches of updates; for a device that runs by itself, a thread makes those of the next one meanwhile.

    On a processor nothing is made ahead: the thread would take its time from the update.
    """

    def __init__(self, examples: Examples[C], device: torch.device) -> None:
        self._examples = examples
        self._pinned = device.type == "cuda"
        self._thread = ThreadPoolExecutor(1, "collation") if is_asynchronous(device) else None
        self._next: tuple[Plan, int, Future[list[C]]] | None = None

    def batches(self, group: Plan, seed: int, following: Plan | None = None) -> list[C]:
        """The batches of an update, in the processor's memory; the following one will have the same seed."""
        ahead, self._next = self._next, None
        known = ahead is not None and ahead[0] is group and ahead[1] == seed
        batches = ahead[2].result() if ahead is not None and known else self._collate(group, seed)
        if self._thread is not None and following is not None:
            self._next = following, seed, self._thread.submit(self._collate, following, seed)
        return batches

    def _collate(self, group: Plan, seed: int) -> list[C]:
        batches = [self._examples.collate(rows, seed) for rows in group]
        return [batch.pinned() for batch in batches] if self._pinned else batches


def iterate_batches(
    examples: Examples[C], device: torch.device, rank: int = 0, size: int = 1
) -> Iterator[tuple[np.ndarray, C]]:
    """All examples in batches on a device, with the rows of each; the same ones, drawn the same, each time.

    Of `size` processes, that of this rank has every size-th batch.
    """
    groups = [[rows] for rows in examples.make_batches(0, 0)[rank::size]]
    ahead = Prefetcher(examples, device)
    for group, following in zip_longest(groups, groups[1:]):
        yield group[0], ahead.batches(group, 0, following)[0].to(device)
