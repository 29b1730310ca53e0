"""Count operations, work and span of a computation while torch runs it.

Work and span are those of the theory of parallel computing (Brent 1974; Blelloch 1996): the FLOPs of one processor,
and the FLOPs of the longest dependent chain, which remain with any number of processors.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import flop_registry

# allocations compute nothing
_ALLOCATIONS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
# each output element depends on a whole row of the input
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

Chain = tuple[int, int, int]
"""Length of a chain: operations, FLOPs if operations are split among processors, FLOPs if they are not."""
_NOTHING: Chain = (0, 0, 0)


class Operations(TorchDispatchMode):
    """Context manager that counts dispatched torch operations and tracks their dependencies.

    An operation depends on all operations that wrote into the memory that it reads; its depth is one more than the
    largest of theirs. Memory is tracked in ranges from a tensor's first element to its last: quarters of a row are
    distinguished, alternating rows of a matrix are not. An in-place operation depends on the previous content. Views,
    allocations and shape queries are not operations. Backward passes are tracked if they run in this thread, as they do
    on a CPU. A fused kernel is one operation, and its work is that of its results alone unless torch has a formula.

    Attributes:
        count: Operations so far.
        depth: Longest chain of dependent operations.
        work: FLOPs so far: of products by torch's formulas, a multiply-add counting as two; of reductions, one for each
            element read; of all others, copies included, one for each element of the largest tensor written.
        span: FLOPs of the longest chain if every operation uses as many processors as it can: an element that takes f
            FLOPs has a chain of ⌈log₂ f⌉, at least 1, because sums are computed as trees.
        undivided: FLOPs of the longest chain if no operation is split.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # nothing is compiled in this mode; to hide the mode from the compiler, torch would import the compiler
        return False

    def __init__(self) -> None:
        super().__init__()
        self.count = self.depth = self.work = self.span = self.undivided = 0
        # written ranges by storage: first byte, end, and the chain of the write
        self._written: dict[int, list[tuple[int, int, Chain]]] = {}
        # addresses of freed storages are reused, so storages are kept alive
        self._kept: dict[int, Any] = {}

    def _chain(self, tensor: Tensor) -> Chain:
        first, end = _stretch(tensor)
        known = self._written.get(_address(tensor), ())
        return _longest([chain for start, stop, chain in known if start < end and first < stop])

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run the operation and record it."""
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
        self.depth, self.span, self.undivided = _longest([(self.depth, self.span, self.undivided), chain])
        for tensor in (*made, *written):
            address, (first, end) = _address(tensor), _stretch(tensor)
            self._kept[address] = tensor.untyped_storage()
            # the new range replaces the ranges that it covers, because its chain is longer
            left = [old for old in self._written.get(address, ()) if old[0] < first or end < old[1]]
            self._written[address] = [*left, (first, end, chain)]
        return out


def _longest(chains: Sequence[Chain]) -> Chain:
    if len(chains) < 2:
        return chains[0] if chains else _NOTHING
    operations, split, undivided = zip(*chains, strict=True)
    return max(operations), max(split), max(undivided)


def _work(func: Any, call: tuple[tuple, dict, Any], read: Sequence[Tensor], results: Sequence[Tensor]) -> int:
    """Return the FLOPs of an operation; see `Operations`."""
    formula = flop_registry.get(func.overloadpacket)
    if formula is not None:
        args, given, out = call
        return int(formula(*args, **given, out_val=out))
    counted = read if torch.Tag.reduction in func.tags else results
    return max((tensor.numel() for tensor in counted), default=0)


def _path(func: Any, work: int, results: Sequence[Tensor]) -> int:
    """Return the FLOPs of the longest chain in an operation: depth of a tree with a leaf per FLOP of an element."""
    numbers = max((tensor.numel() for tensor in results), default=0)
    if func.overloadpacket.__name__ in _OF_ROWS and results[0].dim():
        work *= results[0].shape[-1]
    # ⌈log₂⌉ in integer arithmetic
    return max(1, (-(-work // numbers) - 1).bit_length()) if numbers else 1


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _stretch(tensor: Tensor) -> tuple[int, int]:
    """Return the byte range of a tensor in its storage: first byte and end (exclusive)."""
    first, size = int(tensor.storage_offset()), tensor.element_size()
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    length = 1 + sum((count - 1) * stride for count, stride in steps) if tensor.numel() else 0
    return first * size, (first + length) * size


def _tensors(tree: object) -> list[Tensor]:
    return [leaf for leaf in tree_iter(tree) if isinstance(leaf, Tensor)]


def _written(func: Any, args: tuple, given: Mapping[str, Any]) -> list[Tensor]:
    """Return the tensors that an operation changes in place."""
    if not func._schema.is_mutable or torch.Tag.inplace_view in func.tags:
        return []
    named = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | dict(given)
    changed = (a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write)
    return [tensor for name in changed for tensor in _tensors(named.get(name))]
