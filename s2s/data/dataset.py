"""Datasets and batches: base classes, data-parallel sharding, prefetching.

A dataset (`Examples`) acts as its own batch sampler and collate function: `make_batches(seed, epoch)` says which rows
make each batch, and `collate(rows, seed)` builds one batch of tensors. The trainer groups batches into optimizer steps
(`group_into_steps`, gradient accumulation), gives each rank its share (`shard_batches`, data parallel) and loads them
with a `Prefetcher`, which takes the place of torch's `DataLoader`.
"""

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
C_co = TypeVar("C_co", bound="BaseBatch", covariant=True)


@dataclass(frozen=True)
class BaseBatch:
    """Base class of a batch; each task adds its own tensors."""

    # row of each example in the corpus, shape `(batch,)`, so that errors can name a bad batch. Stays on the CPU.
    indices: Int[Tensor, " batch"]
    # These are Python numbers, counted before the batch moves: reading them from a GPU tensor would block the CPU.
    count: int  # number by which the summed loss is divided, e.g. target tokens, examples or masked tokens
    tokens: int  # number of real (not padding) tokens, used to report training speed
    real_share: float  # share of real tokens among all positions, in (0, 1]

    def to(self: C, device: torch.device | str) -> C:
        """Return a copy with its tensors on a device (`indices` stay on the CPU)."""
        return self._map_tensors(lambda tensor: to_device(tensor, device))

    def pinned(self: C) -> C:
        """Return the batch in pinned memory, for asynchronous copies to a CUDA device."""
        return self._map_tensors(torch.Tensor.pin_memory)

    def _map_tensors(self: C, change: Callable[[Tensor], Tensor]) -> C:
        tensors = {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)}
        del tensors["indices"]
        return replace(self, **{name: change(tensor) for name, tensor in tensors.items()})


def to_device(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Copy a CPU tensor to a device; copies to CUDA are asynchronous (pinned memory)."""
    if torch.device(device).type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


class Examples(ABC, Generic[C_co]):
    """A training dataset with its batch sampler (`make_batches`) and `collate`.

    Batches of an epoch are a pure function of seed and epoch, and random choices in `collate` are a pure function of
    its seed. A run therefore resumes in the middle of an epoch from (epoch, position) alone, without saved sampler
    state.
    """

    item_name: ClassVar[str] = "examples"  # plural noun for the examples in messages
    num_skipped: int = 0  # number of examples that are in no batch, e.g. because they are too long

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of examples, including skipped ones."""

    @abstractmethod
    def make_batches(self, seed: int, epoch: int) -> Plan:
        """Group the examples of an epoch into batches (batch sampler).

        Returns:
            One array of corpus rows for each batch. Every example that is not skipped occurs once, or several times if
            the dataset repeats some (`number_repeats`).
        """

    def accumulation_steps(self, batches: Plan) -> int:
        """Return the number of micro-batches per step (gradient accumulation), from the batches of epoch 0."""
        return 1

    def manifest_counts(self) -> dict[str, int]:
        """Return numbers for the run's manifest, besides those of the splits."""
        return {}

    @abstractmethod
    def collate(self, rows: Int[np.ndarray, " batch"], seed: int) -> C_co:
        """Build the batch of these corpus rows.

        Args:
            rows: Corpus rows of the examples, shape `(batch,)`; numbers from `len(self)` are repeats.
            seed: Seed of random choices such as masks. In training it is the same for a whole epoch. The choices for an
                example should depend on seed and row only, not on the batch that the example is in.
        """


def number_repeats(rows: Int[np.ndarray, " examples"], size: int) -> Int[np.ndarray, " examples"]:
    """Add `size` to a row for each time that it occurred before.

    The random choices of an example depend on its number. With the same number, the copies of an example in one epoch
    would have the same noise. The remainder by `size` is the row.

    Example:
        >>> number_repeats(np.array([2, 0, 2, 2]), 10).tolist()
        [2, 0, 12, 22]
    """
    order = np.argsort(rows, kind="stable")
    ascending = rows[order]
    numbered = np.empty_like(rows)
    numbered[order] = ascending + size * (np.arange(len(rows)) - np.searchsorted(ascending, ascending))
    return numbered


def group_into_steps(batches: Plan, accumulation_steps: int) -> list[Plan]:
    """Group micro-batches into optimizer steps (gradient accumulation); the last may have fewer.

    Example:
        >>> [len(step) for step in group_into_steps([np.array([row]) for row in range(5)], 2)]
        [2, 2, 1]
    """
    return [batches[i : i + accumulation_steps] for i in range(0, len(batches), accumulation_steps)]


def batches_per_step(wanted: int, usual: float, item_name: str, key: str, remedy: str) -> int:
    """Compute how many batches, of `usual` items each, have about the wanted number of items together.

    Example:
        >>> batches_per_step(1000, 240.0, "tokens", "tokens_per_update", "")
        4
    """
    if wanted < usual / 2:
        what = f"an update of {wanted} {item_name} is less than a batch of {usual:.0f}"
        raise UserError(what, where=f"training.{key}", remedy=f"{remedy}, or set training.{key}={usual:.0f}")
    return max(1, round(wanted / usual)) if usual else 1


def shard_batches(batches: Plan, rank: int, size: int) -> Plan:
    """Return the share of one rank of the micro-batches of a step (data parallel).

    All ranks together process each row once. Whole batches are dealt out in turn while there is one for each rank. Each
    remaining batch is split: every rank takes every `size`-th row. So all ranks do about the same work, and no rank
    gets a batch larger than a single process would. A rank may get less than the others, or nothing.

    Example:
        >>> batches = [np.array([0, 1]), np.array([2, 3]), np.array([4, 5, 6])]
        >>> [rows.tolist() for rows in shard_batches(batches, 0, 2)]
        [[0, 1], [4, 6]]
        >>> [rows.tolist() for rows in shard_batches(batches, 1, 2)]
        [[2, 3], [5]]
    """
    if size == 1:
        return batches
    dealt = len(batches) - len(batches) % size
    parts = [rows[(rank - number) % size :: size] for number, rows in enumerate(batches[dealt:])]
    return [rows for rows in (*batches[rank:dealt:size], *parts) if len(rows)]


@dataclass(frozen=True)
class LabelledBatch(BaseBatch):
    """A batch of examples with class labels; the loss is divided by the examples."""

    source: Shaped[Tensor, "batch ..."]  # token ids or pixels, shape `(batch, ...)`
    source_valid: Bool[Tensor, "batch source"]  # padding mask, True at real positions, shape `(batch, source)`
    labels: Int[Tensor, " batch"]  # class number of each example, shape `(batch,)`


class LabelledExamples(Examples[LabelledBatch]):
    """A dataset of examples with class labels."""

    key: ClassVar[str]  # recipe key that sets the batch size, for messages
    labels: Int[np.ndarray, " examples"]  # class number of each example, shape `(examples,)`
    # examples per optimizer step (gradient accumulation); None means one batch per step
    examples_per_step: int | None = None
    # number of examples of which only the beginning is read; None if examples are read whole
    truncated: int | None = None
    balanced: bool = False  # each epoch has equally many examples of each class (`epoch_rows`)

    def __len__(self) -> int:
        return len(self.labels)

    def epoch_rows(self, seed: int, epoch: int) -> Int[np.ndarray, " examples"]:
        """Return the corpus row of each example of an epoch, shape `(examples,)`: all rows, unless balanced.

        Rows that a balanced epoch repeats are numbered (`number_repeats`).
        """
        if not self.balanced:
            return np.arange(len(self))
        rows = balanced_rows(self.labels, np.random.default_rng([seed % 2**64, epoch, 1]))
        return number_repeats(rows, len(self))

    @property
    def is_truncated(self) -> Bool[np.ndarray, " examples"]:
        """Mask of the examples that are truncated, shape `(examples,)`."""
        return np.zeros(len(self), dtype=bool)

    @abstractmethod
    def subset(self, rows: Int[np.ndarray, " chosen"]) -> "LabelledExamples":
        """Return a dataset of these rows, encoded as for inference."""

    @abstractmethod
    def read(self, rows: Int[np.ndarray, " batch"], seed: int) -> tuple[Shaped[Tensor, "batch ..."], Tensor]:
        """Return the encoder input, shape `(batch, ...)`, and its padding mask (True: real); see `collate`."""

    def mean_batch_size(self, batches: Plan) -> float:
        """Compute the mean number of examples per batch."""
        return len(self) / max(1, len(batches))

    def accumulation_steps(self, batches: Plan) -> int:
        if self.examples_per_step is None:
            return super().accumulation_steps(batches)
        name, remedy = self.item_name.removeprefix("training "), f"set {self.key}={self.examples_per_step}"
        usual = self.mean_batch_size(batches)
        return batches_per_step(self.examples_per_step, usual, name, "examples_per_update", remedy)

    def collate(self, rows: Int[np.ndarray, " batch"], seed: int) -> LabelledBatch:
        source, valid = self.read(rows, seed)
        rows = np.array(rows, dtype=np.int64) % len(self)
        tokens, labels = int(valid.sum()), torch.from_numpy(self.labels[rows].astype(np.int64))
        indices = torch.from_numpy(rows)
        return LabelledBatch(indices, len(rows), tokens, tokens / valid.numel(), source, valid, labels)


def balanced_rows(labels: Int[np.ndarray, " examples"], generator: np.random.Generator) -> Int[np.ndarray, " examples"]:
    """Draw as many rows as there are, equally many of each class (oversampling and undersampling).

    A class with too few examples is repeated as a whole, and the rest of its share is drawn without replacement; of a
    class with too many, a share is drawn without replacement.

    Args:
        labels: Class number of each example.

    Returns:
        The rows, ascending. Classes that have no examples have no share.

    Example:
        >>> labels = np.array([0, 0, 0, 0, 0, 0, 1, 1])
        >>> labels[balanced_rows(labels, np.random.default_rng(1))].tolist()
        [0, 0, 0, 0, 1, 1, 1, 1]
    """
    present = np.unique(labels)
    share, rest = divmod(len(labels), max(1, len(present)))
    chosen = [np.empty(0, dtype=np.int64)]
    for number, label in enumerate(present):
        rows = np.flatnonzero(labels == label)
        times, more = divmod(share + (number < rest), len(rows))
        chosen += [np.tile(rows, times), generator.permutation(rows)[:more]]
    return np.sort(np.concatenate(chosen))


def is_asynchronous(device: torch.device) -> bool:
    """Return True if a device runs asynchronously, so that work can be queued ahead.

    Apple GPUs (`mps`) count as synchronous, like CPUs, because Adam cannot skip a step on these devices.
    """
    return device.type not in ("cpu", "mps")


class Prefetcher(Generic[C]):
    """Prefetcher of micro-batches: collates one optimizer step ahead on a GPU.

    On an asynchronous device a thread collates the next step while the device computes the current one. On a CPU
    nothing is prefetched, because the thread would compete with the step for CPU time.

    Args:
        examples: Dataset to read.
        device: Device that computes. For CUDA, batches are put into pinned memory.
    """

    def __init__(self, examples: Examples[C], device: torch.device) -> None:
        self._examples = examples
        self._pinned = device.type == "cuda"
        self._thread = ThreadPoolExecutor(1, "collation") if is_asynchronous(device) else None
        self._next: tuple[Plan, int, Future[list[C]]] | None = None

    def batches(self, group: Plan, seed: int, following: Plan | None = None) -> list[C]:
        """Return the micro-batches of a step, on the CPU, and start to prefetch the next.

        Args:
            group: Rows of each micro-batch of this step.
            seed: Seed passed to `collate`.
            following: Rows of each micro-batch of the next step, collated with the same seed; None if there is none.
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


def iterate_batches(
    examples: Examples[C], device: torch.device, rank: int = 0, size: int = 1
) -> Iterator[tuple[np.ndarray, C]]:
    """Iterate over all examples of epoch 0 (seed 0), in batches on a device.

    Batches and random choices are the same on every call.
    """
    groups = [[rows] for rows in examples.make_batches(0, 0)[rank::size]]
    ahead = Prefetcher(examples, device)
    for group, following in zip_longest(groups, groups[1:]):
        yield group[0], ahead.batches(group, 0, following)[0].to(device)
