"""The processes that train one model together, and all that they say to each other.

Each adds up the gradient of its share of an update, divided by the items of all of them; the sum over the processes is
then the gradient of the update, as one process has it. Numbers travel by gloo from processor to processor, so that no
GPU is waited for; gradients travel as their device does, on CUDA by nccl.
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

# The others wait so long for the first while it validates, and nobody waits longer for one that does not answer; one
# that has ended is noticed at once.
_PATIENCE = timedelta(hours=2)
# bytes of gradients that are sent together, as many as in torch's DistributedDataParallel
_BUCKET = 25 * 2**20


class PeerLostError(UserError):
    """Another process of the training has ended, or does not answer."""


class Distributed:
    """The processes that train together, as one of them sees them; alone, it says nothing and hears itself."""

    def __init__(self, rank: int = 0, size: int = 1, launch: TorchrunProcess | None = None) -> None:
        self.rank = rank
        self.world_size = size
        self.launch = launch

    @property
    def is_main_process(self) -> bool:
        """Whether this is the first, which decides and writes for all."""
        return self.rank == 0

    def all_reduce_sum(self, *numbers: int | float) -> list[int | float]:
        """Of each number, the sum over all processes."""
        return self._all_reduce(numbers, dist.ReduceOp.SUM) if self.world_size > 1 else list(numbers)

    def all_reduce_max(self, *numbers: int) -> list[int]:
        """Of each number, the largest of all processes."""
        return [int(n) for n in self._all_reduce(numbers, dist.ReduceOp.MAX)] if self.world_size > 1 else list(numbers)

    def _all_reduce(self, numbers: Sequence[int | float], operation: "dist.ReduceOp.RedOpType") -> list[int | float]:
        tensor = torch.tensor(numbers, dtype=torch.float64)
        with translate_collective_errors():
            dist.all_reduce(tensor, operation)
        return tensor.tolist()

    def broadcast_object(self, what: T) -> T:
        """What the first process says, whatever the others do; anything that can be pickled."""
        if self.world_size == 1:
            return what
        said: list[Any] = [what]
        with translate_collective_errors():
            dist.broadcast_object_list(said, src=0)
        return said[0]

    def all_gather_object(self, what: T) -> list[T]:
        """What each process says, the first one's first; anything that can be pickled."""
        if self.world_size == 1:
            return [what]
        said: list[Any] = [None] * self.world_size
        with translate_collective_errors():
            dist.all_gather_object(said, what)
        return said

    def map_sharded(self, work: Callable[[list[Item]], Sequence[T]], items: Sequence[Item]) -> list[T]:
        """What `work` gives for each item, in their order; each process works on its share, and all have all of it."""
        found: list[Any] = [None] * len(items)
        for rank, part in enumerate(self.all_gather_object(list(work(list(items[self.rank :: self.world_size]))))):
            found[rank :: self.world_size] = part
        return found

    def assert_equal_across_ranks(self, things: Callable[[], Mapping[str, str]]) -> None:
        """Refuses what is not the same in all processes; one alone does not even look.

        Raises:
            UserError: one of the things differs.
        """
        if self.world_size == 1:
            return
        first, *others = self.all_gather_object((socket.gethostname(), dict(things())))
        for number, (host, theirs) in enumerate(others, start=1):
            if changed := [name for name in first[1] if theirs.get(name) != first[1][name]]:
                raise UserError(
                    f"{', '.join(changed)} of process {number} (on {host}) is not that of process 0 (on {first[0]})",
                    remedy="let all of them read the same files and have the same versions and devices",
                )

    def all_reduce_gradients(self, parameters: Sequence[Tensor], loss: Tensor) -> Tensor:
        """Gives each process the sum of all gradients, and that of the losses.

        What has no gradient anywhere still has none.
        """
        if self.world_size == 1:
            return loss
        # known to the processor, and not by gradients that a GPU is still at
        anywhere = self.all_reduce_max(*(int(p.grad is not None) for p in parameters))
        learning = [p for p, learns in zip(parameters, anywhere, strict=True) if learns]
        parts = [loss.detach().view(1), *(p.grad if p.grad is not None else torch.zeros_like(p) for p in learning)]
        sums = [part for bucket in _buckets(parts) for part in _all_reduce_bucket(bucket)]
        for p, gradient in zip(learning, sums[1:], strict=True):
            p.grad = gradient
        return sums[0].view(())

    def broadcast_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The first process's tensors, on the processor; what the others give says nothing."""
        if self.world_size == 1:
            return dict(tensors)
        likes = self.broadcast_object({name: (t.shape, t.dtype) for name, t in tensors.items()})
        given = {}
        for name, (shape, dtype) in likes.items():
            given[name] = (
                tensors[name].detach().cpu().contiguous() if self.is_main_process else torch.empty(shape, dtype=dtype)
            )
            with translate_collective_errors():
                dist.broadcast(given[name], src=0)
        return given


SINGLE_PROCESS = Distributed()
"""One process, which nobody has started with others."""


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
    with translate_collective_errors():
        dist.all_reduce(flat)
    tokens = flat.split([part.numel() for part in bucket])
    return (piece.view(part.shape) for piece, part in zip(tokens, bucket, strict=True))


def _first_sentence(error: Exception) -> str:
    """The first sentence of what gloo or nccl says, without the line of its own source."""
    first = re.sub(r"^\[[^]]*\]\s*", "", str(error).strip()).split("\n")[0]
    return first.split(". ")[0][:200]


@contextmanager
def translate_collective_errors() -> Iterator[None]:
    """Within it, an error means that another process is lost."""
    try:
        yield
    except RuntimeError as error:
        raise PeerLostError(
            f"another process of this training has ended, or does not answer ({_first_sentence(error)})",
            remedy="look at what it said, and at what the system says of it (memory?)",
        ) from None


def _rendezvous_id(store: "dist.distributed_c10d.Store", rank: int, size: int) -> str:
    """A name that only those processes know that were started together.

    torchrun keeps its store when it starts them again, and who finds another's address of last time in it waits for the
    dead. How often that was is no name: torchruns on several machines count differently. So the first process answers
    whoever asks under a name of its own, until all have heard.
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
    """Within it, the processes that torchrun has started know each other.

    Raises:
        UserError: this torch cannot, or they do not find each other.
    """
    if launch is None or launch.world_size == 1:
        yield Distributed(launch=launch)
        return
    if not (dist.is_available() and dist.is_gloo_available()):
        raise UserError(
            f"torch {torch.__version__} was built without gloo, by which processes speak",
            remedy="install another build of torch, or train in one process: leave torchrun out",
        )
    # not at the top: a torch without them trains in one process
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
        remedy = "look at torchrun's --rdzv-endpoint, the firewall, and GLOO_SOCKET_IFNAME for the network to take"
        raise UserError(f"the processes do not find each other: {_first_sentence(error)}", where, remedy) from None
    yield Distributed(rank, size, launch)
    # not after an error: the others may be waiting, and hear of it by our end
    dist.destroy_process_group()


def check_world_size(distributed: Distributed, sizes: Sequence[int], noise_scale: bool) -> None:
    """Refuses what several processes cannot do together.

    Args:
        distributed: the processes.
        sizes: examples of each update of an epoch.
        noise_scale: whether the noise of the gradient shall be measured.

    Raises:
        UserError: most updates have fewer examples than there are processes, or noise shall be measured.
    """
    if distributed.world_size == 1:
        return
    usual = sorted(sizes)[len(sizes) // 2] if sizes else 0
    if usual < distributed.world_size:
        raise UserError(
            f"{distributed.world_size} processes share an update, but it usually has {usual} examples: "
            "some would only wait",
            where="training",
            remedy="let an update learn from more (training.tokens_per_update, training.examples_per_update, or what "
            f"gives a batch its size), or start {max(1, usual)} with --nproc-per-node",
        )
    if noise_scale:
        raise UserError(
            f"is measured in one process, and torchrun started {distributed.world_size}",
            where="training.noise_scale",
            remedy="set training.noise_scale=false, or leave torchrun out",
        )
