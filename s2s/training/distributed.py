"""Distributed data-parallel training (DDP): process group and collectives.

Each rank computes the gradient of its share of a batch, divided by the number of items of all ranks. The all-reduce sum
is then the gradient of the optimizer step, as a single process would compute it. Numbers and objects are exchanged with
gloo between CPUs, so that no GPU is synchronized. Gradients are exchanged on their own device, on CUDA with nccl.
"""

import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import Tensor

from s2s.errors import UserError
from s2s.launch import TorchrunProcess

T = TypeVar("T")
Item = TypeVar("Item")

# Timeout of collectives: ranks wait this long for each other, as while rank 0 saves. A process that has ended is
# noticed at once.
_PATIENCE = timedelta(hours=2)
# Bytes of gradients in one all-reduce, as in torch's DistributedDataParallel.
_BUCKET = 25 * 2**20


class PeerLostError(UserError):
    """Error for a rank that has ended or does not answer."""


class Distributed:
    """Process group as seen by one rank; with one process every collective is a no-op.

    Attributes:
        rank: Number of this process, from 0 on.
        world_size: Number of processes.
        launch: torchrun's description of this process; None without torchrun.

    Example:
        >>> alone = Distributed()
        >>> alone.is_main_process, alone.all_reduce_sum(2, 3), alone.all_gather_object("a")
        (True, [2, 3], ['a'])
    """

    def __init__(self, rank: int = 0, size: int = 1, launch: TorchrunProcess | None = None) -> None:
        self.rank = rank
        self.world_size = size
        self.launch = launch

    @property
    def is_main_process(self) -> bool:
        """True for rank 0 (main process), which logs and saves for all."""
        return self.rank == 0

    def all_reduce_sum(self, *numbers: int | float) -> list[int | float]:
        """Sum each number over all ranks.

        Returns:
            The sums, on every rank; exact for integers up to 2⁵³, because numbers travel as fp64.
        """
        return self._all_reduce(numbers, dist.ReduceOp.SUM) if self.world_size > 1 else list(numbers)

    def all_reduce_max(self, *numbers: int) -> list[int]:
        """Return the maximum of each number over all ranks."""
        return [int(n) for n in self._all_reduce(numbers, dist.ReduceOp.MAX)] if self.world_size > 1 else list(numbers)

    def _all_reduce(self, numbers: Sequence[int | float], operation: "dist.ReduceOp.RedOpType") -> list[int | float]:
        tensor = torch.tensor(numbers, dtype=torch.float64)
        with _translate_errors():
            dist.all_reduce(tensor, operation)
        return tensor.tolist()

    def broadcast_object(self, what: T) -> T:
        """Broadcast a picklable object from rank 0; the arguments of other ranks are ignored."""
        if self.world_size == 1:
            return what
        objects: list[Any] = [what]
        with _translate_errors():
            dist.broadcast_object_list(objects, src=0)
        return objects[0]

    def all_gather_object(self, what: T) -> list[T]:
        """Gather a picklable object from each rank, in the order of ranks."""
        if self.world_size == 1:
            return [what]
        objects: list[Any] = [None] * self.world_size
        with _translate_errors():
            dist.all_gather_object(objects, what)
        return objects

    def map_sharded(self, work: Callable[[list[Item]], Sequence[T]], items: Sequence[Item]) -> list[T]:
        """Apply a function to items in parallel, with each rank working on its share.

        Args:
            work: Function from a list of items to as many results.
            items: All items, the same on each rank.

        Returns:
            The results of all items, in order, on every rank.
        """
        found: list[Any] = [None] * len(items)
        for rank, part in enumerate(self.all_gather_object(list(work(list(items[self.rank :: self.world_size]))))):
            found[rank :: self.world_size] = part
        return found

    def assert_equal_across_ranks(self, things: Callable[[], Mapping[str, str]]) -> None:
        """Check that values are equal on all ranks, such as versions and digests of files.

        Args:
            things: Function that returns values by name; not called with one process.

        Raises:
            UserError: A value differs.
        """
        if self.world_size == 1:
            return
        first, *others = self.all_gather_object((socket.gethostname(), dict(things())))
        for number, (host, theirs) in enumerate(others, start=1):
            if changed := [name for name in first[1] if theirs.get(name) != first[1][name]]:
                raise UserError(
                    f"{', '.join(changed)} of process {number} (on {host}) differs from process 0 (on {first[0]})",
                    remedy="use the same files, versions and devices for all processes",
                )

    def all_reduce_gradients(self, parameters: Sequence[Tensor], loss: Tensor) -> Tensor:
        """Sum gradients over all ranks, in place, and the loss (data-parallel training).

        A parameter without a gradient on this rank contributes zeros, so that all ranks issue the same collectives. A
        parameter without a gradient on any rank keeps none.

        Args:
            parameters: Parameters of the model.
            loss: Loss of this rank.

        Returns:
            The sum of the losses.
        """
        if self.world_size == 1:
            return loss
        # Whether a gradient exists is known to the CPU, without a wait for the GPU that computes it.
        anywhere = self.all_reduce_max(*(int(p.grad is not None) for p in parameters))
        learning = [p for p, learns in zip(parameters, anywhere, strict=True) if learns]
        parts = [loss.detach().view(1), *(p.grad if p.grad is not None else torch.zeros_like(p) for p in learning)]
        sums = [part for bucket in _buckets(parts) for part in _all_reduce_bucket(bucket)]
        for p, gradient in zip(learning, sums[1:], strict=True):
            p.grad = gradient
        return sums[0].view(())

    def broadcast_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Broadcast CPU tensors from rank 0; other ranks' arguments are ignored.

        Returns:
            The tensors by name, on the CPU.
        """
        if self.world_size == 1:
            return dict(tensors)
        likes = self.broadcast_object({name: (t.shape, t.dtype) for name, t in tensors.items()})
        given = {}
        for name, (shape, dtype) in likes.items():
            given[name] = (
                tensors[name].detach().cpu().contiguous() if self.is_main_process else torch.empty(shape, dtype=dtype)
            )
            with _translate_errors():
                dist.broadcast(given[name], src=0)
        return given


SINGLE_PROCESS = Distributed()
"""Process group of a single process."""


def _buckets(parts: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    bucket, size = [], 0
    for part in parts:
        if bucket and (size + part.nbytes > _BUCKET or part.dtype != bucket[0].dtype):
            yield bucket
            bucket, size = [], 0
        bucket.append(part)
        size += part.nbytes
    yield bucket


def _all_reduce_bucket(bucket: Sequence[Tensor]) -> Iterator[Tensor]:
    flat = torch.cat([part.flatten() for part in bucket])
    with _translate_errors():
        dist.all_reduce(flat)
    sizes = [part.numel() for part in bucket]
    return (chunk.view(part.shape) for chunk, part in zip(flat.split(sizes), bucket, strict=True))


def _first_sentence(error: Exception) -> str:
    """Return the first sentence of a gloo or nccl error, without the line of its source."""
    first = re.sub(r"^\[[^]]*\]\s*", "", str(error).strip()).split("\n")[0]
    return first.split(". ")[0][:200]


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Turn errors of collectives into `PeerLostError`, as a context manager."""
    try:
        yield
    except RuntimeError as error:
        raise PeerLostError(
            f"another process of this training has ended or does not answer ({_first_sentence(error)})",
            remedy="look at its output and at the system log (out of memory?)",
        ) from None


def _rendezvous_id(store: "dist.distributed_c10d.Store", rank: int, size: int) -> str:
    """Agree on a name for this start of the processes.

    torchrun keeps its store when it restarts the processes, and a rank that finds an address of the last start would
    wait for a process that has ended. The restart count cannot serve as a name, because torchruns on several machines
    count differently. Therefore rank 0 chooses a new name and answers each other rank with it, until all have received
    it.
    """
    me = uuid4().hex
    if rank:
        store.set(f"s2s/{rank}", me)
        found = store.get(f"s2s/{me}").decode()
        store.add(f"s2s/{found}", 1)
        return found
    while store.add(f"s2s/{me}", 0) < size - 1:
        for other in range(1, size):
            if store.check([f"s2s/{other}"]):
                store.set(f"s2s/{store.get(f's2s/{other}').decode()}", me)
        time.sleep(0.02)
    return me


@contextmanager
def init_distributed(launch: TorchrunProcess | None) -> Iterator[Distributed]:
    """Initialize the process group of torchrun's processes, as a context manager.

    Args:
        launch: torchrun's description of this process; None without torchrun.

    Yields:
        The process group.

    Raises:
        UserError: This build of torch has no gloo, or the processes cannot connect.
    """
    if launch is None or launch.world_size == 1:
        yield Distributed(launch=launch)
        return
    if not (dist.is_available() and dist.is_gloo_available()):
        raise UserError(
            f"torch {torch.__version__} was built without gloo, which connects the processes",
            remedy="install another build of torch, or train in one process, without torchrun",
        )
    # Imported here, because a torch build without distributed support can still train in one process.
    from torch.distributed import PrefixStore  # pyright: ignore[reportPrivateImportUsage]  as torch's pages do
    from torch.distributed.rendezvous import rendezvous

    here = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    rank, size = launch.rank, launch.world_size
    try:
        store, _, _ = next(rendezvous("env://", timeout=_PATIENCE))
        store = PrefixStore(_rendezvous_id(store, rank, size), store)
        dist.init_process_group(here, store=store, rank=rank, world_size=size, timeout=_PATIENCE)
    except (RuntimeError, ValueError) as error:
        where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        remedy = "check torchrun's --rdzv-endpoint, the firewall, and the network interface in GLOO_SOCKET_IFNAME"
        raise UserError(f"the processes cannot connect: {_first_sentence(error)}", where, remedy) from None
    yield Distributed(rank, size, launch)
    # Not after an error: other ranks may be waiting, and they notice when this process ends.
    dist.destroy_process_group()


def check_world_size(distributed: Distributed, sizes: Sequence[int], noise_scale: bool) -> None:
    """Check that a run can be trained with several processes.

    Args:
        distributed: Process group.
        sizes: Examples of each optimizer step of an epoch.
        noise_scale: True if the gradient noise scale is to be measured.

    Raises:
        UserError: Most steps have fewer examples than there are processes, or noise is to be measured.
    """
    if distributed.world_size == 1:
        return
    usual = sorted(sizes)[len(sizes) // 2] if sizes else 0
    if usual < distributed.world_size:
        raise UserError(
            f"an update usually has {usual} examples, which is fewer than {distributed.world_size} processes",
            where="training",
            remedy="use larger updates (training.tokens_per_update, training.examples_per_update or the batch size), "
            f"or start fewer processes: --nproc-per-node {max(1, usual)}",
        )
    if noise_scale:
        raise UserError(
            f"is measured with one process only, and torchrun started {distributed.world_size}",
            where="training.noise_scale",
            remedy="set training.noise_scale=false, or start it without torchrun",
        )
