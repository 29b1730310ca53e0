"""A counter of operations, followed on the real computation: how many, how much work, and how much of it must wait.

Work and span are those of the theory of parallel computing (Brent 1974; Blelloch 1996): what one processor has to do,
and what remains with as many as one likes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import flop_registry

# memory without numbers: nothing is computed, so nothing has to be waited for
_ALLOCATIONS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
# each number that these write depends on a whole row of what they read
_OF_ROWS = {
    "_softmax",
    "_safe_softmax",
    "_log_softmax",
    "_softmax_backward_data",
    "_log_softmax_backward_data",
    "native_layer_norm",
    "native_layer_norm_backward",
    "cumsum",
    "cumprod",
}

# of a chain: its operations, its FLOPs where operations are split, its FLOPs where they are not
Chain = tuple[int, int, int]
_NOTHING: Chain = (0, 0, 0)


class Operations(TorchDispatchMode):
    """Counts, within its `with`, the operations that torch sends to its kernels, and follows who waits for whom.

    An operation waits for all that wrote into the memory that it reads; its depth is one more than the largest of
    theirs. Memory is followed in stretches, from a tensor's first number to its last: quarters of a row are told apart,
    every other row of a matrix from the rows between is not. An operation in place waits for what stood there before.
    Views, allocations and questions about a shape are no operations. Backward passes are followed, too, if they run in
    this thread, as they do on a processor. What a fused kernel does inside is not seen, and its work is that of its
    results alone, unless torch has a formula for it.

    Attributes:
        count: operations so far; a fused kernel is one of them, whatever goes on inside it.
        depth: the longest chain of operations of which each waits for the one before.
        work: floating-point operations (FLOPs) so far: those of products by torch's own formulae, a multiplication with
            an addition being two; of sums, one for each number read; of all others, copies included, one for each
            number of the largest tensor written.
        span: FLOPs of the longest chain where every operation is itself done by as many processors as it can use: a
            number that takes f FLOPs has a chain of ⌈log₂ f⌉, at least 1, since sums are made two by two.
        undivided: FLOPs of the longest chain where no operation is split.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.work = 0
        self._longest = _NOTHING
        # of each piece of memory, the stretches that were written: first byte, end, and the chain that led there
        self._written: dict[int, list[tuple[int, int, Chain]]] = {}
        # an address is given out again when its owner is gone, so owners are kept
        self._kept: dict[int, Any] = {}

    @property
    def depth(self) -> int:
        """See the attributes."""
        return self._longest[0]

    @property
    def span(self) -> int:
        """See the attributes."""
        return self._longest[1]

    @property
    def undivided(self) -> int:
        """See the attributes."""
        return self._longest[2]

    def _chain(self, tensor: Tensor) -> Chain:
        first, end = _stretch(tensor)
        known = self._written.get(_address(tensor), ())
        return _longest([chain for start, stop, chain in known if start < end and first < stop])

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Runs the operation and takes note of it."""
        given = dict(kwargs or {})
        out = func(*args, **given)
        read, made = _tensors((args, given)), _tensors(out)
        written = _written(func, args, given)
        known = {_address(tensor) for tensor in read}
        views = func.overloadpacket.__name__ in _ALLOCATIONS or all(_address(tensor) in known for tensor in made)
        if not written and views:
            return out
        work = _work(func, (args, given, out), read, made or written)
        before = _longest([self._chain(tensor) for tensor in read])
        chain = (before[0] + 1, before[1] + _path(func, work, made or written), before[2] + work)
        self.count += 1
        self.work += work
        self._longest = _longest([self._longest, chain])
        for tensor in (*made, *written):
            address, (first, end) = _address(tensor), _stretch(tensor)
            self._kept[address] = tensor.untyped_storage()
            # it was read before, so it is deeper than all that it covers
            left = [old for old in self._written.get(address, ()) if old[0] < first or end < old[1]]
            self._written[address] = [*left, (first, end, chain)]
        return out


def _longest(chains: Sequence[Chain]) -> Chain:
    if len(chains) < 2:
        return chains[0] if chains else _NOTHING
    operations, split, undivided = zip(*chains, strict=True)
    return max(operations), max(split), max(undivided)


def _work(func: Any, call: tuple[tuple, dict, Any], read: Sequence[Tensor], results: Sequence[Tensor]) -> int:
    """FLOPs of an operation, see `Operations`."""
    formula = flop_registry.get(func.overloadpacket)
    if formula is not None:
        args, given, out = call
        return int(formula(*args, **given, out_val=out))
    counted = read if torch.Tag.reduction in func.tags else results
    return max((tensor.numel() for tensor in counted), default=0)


def _path(func: Any, work: int, results: Sequence[Tensor]) -> int:
    """FLOPs of the longest chain within an operation: a tree of as many leaves as a number takes FLOPs."""
    numbers = max((tensor.numel() for tensor in results), default=0)
    if func.overloadpacket.__name__ in _OF_ROWS and results[0].dim():
        work *= results[0].shape[-1]
    # the logarithm rounded up, without rounding errors
    return max(1, (-(-work // numbers) - 1).bit_length()) if numbers else 1


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _stretch(tensor: Tensor) -> tuple[int, int]:
    """The tensor's first byte in its memory, and the one after its last."""
    first, size = int(tensor.storage_offset()), tensor.element_size()
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    length = 1 + sum((count - 1) * stride for count, stride in steps) if tensor.numel() else 0
    return first * size, (first + length) * size


def _tensors(tree: object) -> list[Tensor]:
    return [leaf for leaf in tree_iter(tree) if isinstance(leaf, Tensor)]


def _written(func: Any, args: tuple, given: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that an operation changes in place."""
    if not func._schema.is_mutable or torch.Tag.inplace_view in func.tags:
        return []
    named = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | dict(given)
    changed = (a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write)
    return [tensor for name in changed for tensor in _tensors(named.get(name))]
