"""Chains of operations counted a second time: every operation is written down with the very numbers that it touches.

The product follows stretches of memory while a model computes. Here each single number has an owner, who waits for whom
is a graph, and the longest way through it is sought when all is over, from its end.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}
SUMS = {"sum", "mean", "amax", "max", "argmax", "all", "any"}
ROWS = {
    "_softmax",
    "_safe_softmax",
    "_softmax_backward_data",
    "native_layer_norm",
    "native_layer_norm_backward",
    "cumsum",
}
# they change how memory is looked at, and no number in it
VIEWS = {"transpose_", "t_", "squeeze_", "unsqueeze_", "as_strided_"}


@dataclass(frozen=True)
class Step:
    """An operation: for whom it waits, its FLOPs, and how many of these follow each other at least."""

    waits: frozenset[int]
    work: int
    path: int


@dataclass
class Record(TorchDispatchMode):
    """Writes down, within its `with`, what torch computes."""

    steps: list[Step] = field(default_factory=list)
    owners: dict[int, np.ndarray] = field(default_factory=dict)
    kept: list[torch.UntypedStorage] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def _numbers(self, tensor: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Who wrote what lies in the tensor's memory, and where its own numbers are there."""
        memory = tensor.untyped_storage()
        size = memory.nbytes() // tensor.element_size()
        owner = self.owners.setdefault(memory.data_ptr(), np.full(size, -1))
        if len(owner) < size:
            raise AssertionError("one memory, read as numbers of two sizes")
        places = np.array(tensor.storage_offset())
        for count, stride in zip(tensor.shape, tensor.stride(), strict=True):
            places = places[..., None] + stride * np.arange(count)
        return owner, places.ravel()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        read = [leaf for leaf in tree_leaves((args, kwargs or {})) if isinstance(leaf, Tensor)]
        made = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        name = func.overloadpacket.__name__
        # what is given back is given out again, to somebody else; kept as a tensor, a gradient would be copied
        self.kept += [tensor.untyped_storage() for tensor in made]
        changes = func._schema.is_mutable and name not in VIEWS
        seen = {tensor.untyped_storage().data_ptr() for tensor in read}
        fresh = [tensor for tensor in made if tensor.untyped_storage().data_ptr() not in seen]
        if not made or name.startswith(("empty", "new_empty")) or not (changes or fresh):
            return out
        waits: set[int] = set()
        for tensor in read:
            owner, places = self._numbers(tensor)
            waits |= set(np.unique(owner[places]).tolist())
        self.steps.append(Step(frozenset(waits - {-1}), *_flops(name, read, made)))
        for tensor in made:
            owner, places = self._numbers(tensor)
            owner[places] = len(self.steps) - 1
        return out

    def longest(self, weights: list[int]) -> int:
        """The heaviest way through the graph: from each operation on to the last, beginning with the last."""
        beyond = [0] * len(self.steps)
        for i in reversed(range(len(self.steps))):
            here = weights[i] + beyond[i]
            for before in self.steps[i].waits:
                beyond[before] = max(beyond[before], here)
        return max(weights[i] + each for i, each in enumerate(beyond))

    @property
    def counts(self) -> dict[str, int]:
        """What a point of the experiment has, by the same names."""
        work = [step.work for step in self.steps]
        return {
            "depth": self.longest([1] * len(self.steps)),
            "count": len(self.steps),
            "work": sum(work),
            "span": self.longest([step.path for step in self.steps]),
            "undivided": self.longest(work),
        }


def _flops(name: str, read: list[Tensor], made: list[Tensor]) -> tuple[int, int]:
    """FLOPs of an operation, and of the longest chain within it."""
    written = max(tensor.numel() for tensor in made)
    if name in PRODUCTS:
        # rows of the first times columns of the second, each a sum of products
        work = 2 * written * read[PRODUCTS[name]].shape[-1]
    elif name in SUMS:
        work = max(tensor.numel() for tensor in read)
    else:
        work = written
    each = work / written * (made[0].shape[-1] if name in ROWS else 1) if written else 1
    return work, max(1, math.ceil(math.log2(each)))


@contextmanager
def _without_recurrent_kernels() -> Iterator[None]:
    was = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(was)


def recounted(
    model: Any, read: tuple[int, ...], written: tuple[int, ...], words: Tensor
) -> dict[tuple[str, int], dict]:
    """What a model does with one pair, by kind and length: forward, forward and backward, and in greedy generation.

    Args:
        model: fresh.
        read: lengths at which it reads and learns.
        written: lengths at which it generates.
        words: of source and target, `(2, 1, at least the longest)`.
    """
    counts = {}
    # tables of positions grow once
    model(words[0], torch.ones_like(words[0], dtype=torch.bool), words[1])
    with sdpa_kernel(SDPBackend.MATH), _without_recurrent_kernels():
        for n in read:
            source, target = words[:, :, :n]
            valid = torch.ones_like(source, dtype=torch.bool)
            model.zero_grad()
            with torch.autograd.set_multithreading_enabled(False), Record() as record:
                states = model(source, valid, target)
                counts["forward", n] = record.counts
                states.sum().backward()
            counts["training", n] = record.counts
        for n in written:
            source, token = words[0, :, :n], words[1, :, :1]
            valid = torch.ones_like(source, dtype=torch.bool)
            with torch.no_grad(), Record() as record:
                context, state = model.decoder.start(model.encoder(source, valid), n)
                for _ in range(n):
                    output, state = model.decoder(context, state, token)
                    token = model.projection(output[:, -1]).argmax(dim=1, keepdim=True)
            counts["generating", n] = record.counts
    return counts
