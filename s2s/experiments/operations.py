"""Operations of a computation as it really runs: how many there are, and how many of them must wait for each other."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import FlopCounterMode

# memory without numbers: nothing is computed, so nothing has to be waited for
_ALLOCATIONS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}


class Operations(TorchDispatchMode):
    """Counts, within its `with`, the operations that torch sends to its kernels, and follows who waits for whom.

    An operation waits for all that wrote into the memory that it reads; its depth is one more than the largest of
    theirs. Memory is followed in stretches, from a tensor's first number to its last: quarters of a row are told apart,
    every other row of a matrix from the rows between is not. An operation in place waits for what stood there before.
    Views, allocations and questions about a shape are no operations. Backward passes are followed, too, if they run in
    this thread, as they do on a processor.

    Attributes:
        count: operations so far; a fused kernel is one of them, whatever goes on inside it.
        depth: the longest chain of operations of which each waits for the one before.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.depth = 0
        # of each piece of memory, the stretches that were written: first byte, end, depth
        self._written: dict[int, list[tuple[int, int, int]]] = {}
        # an address is given out again when its owner is gone, so owners are kept
        self._kept: dict[int, Any] = {}

    def depth_of(self, tensor: Tensor) -> int:
        """The longest chain that led to the tensor; 0 for what was there before."""
        first, end = _stretch(tensor)
        known = self._written.get(_address(tensor), ())
        return max((depth for start, stop, depth in known if start < end and first < stop), default=0)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Runs the operation and takes note of it."""
        given = dict(kwargs or {})
        out = func(*args, **given)
        read, made = _tensors((args, given)), _tensors(out)
        written = _written(func, args, given)
        if not written and _is_free(func, read, made):
            return out
        self.count += 1
        depth = 1 + max((self.depth_of(tensor) for tensor in read), default=0)
        self.depth = max(self.depth, depth)
        for tensor in (*made, *written):
            self._write(tensor, depth)
        return out

    def _write(self, tensor: Tensor, depth: int) -> None:
        address, (first, end) = _address(tensor), _stretch(tensor)
        self._kept[address] = tensor.untyped_storage()
        # it was read before, so it is deeper than all that it covers
        left = [old for old in self._written.get(address, ()) if old[0] < first or end < old[1]]
        self._written[address] = [*left, (first, end, depth)]


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


def _is_free(func: Any, read: list[Tensor], made: list[Tensor]) -> bool:
    """Whether nothing was computed: a view, an allocation, a question."""
    known = {_address(tensor) for tensor in read}
    return func.overloadpacket.__name__ in _ALLOCATIONS or all(_address(tensor) in known for tensor in made)


@contextmanager
def unfused() -> Iterator[None]:
    """Within it, recurrent layers run step by step out of small operations, not as one kernel with a loop inside."""
    with ExitStack() as stack:
        with warnings.catch_warnings():
            # leaving TF32 as it is warns of its old setting
            warnings.simplefilter("ignore")
            stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
            stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        try:
            yield
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                stack.close()


@contextmanager
def counted_flops() -> Iterator[FlopCounterMode]:
    """Counts the floating-point operations of matrix products; a multiplication with an addition is two."""
    with FlopCounterMode(display=False) as flops:
        yield flops


def continued(lengths: Sequence[int], counts: Sequence[float], n: int) -> float:
    """A count at a length that was not counted, by the parabola through the last three that were.

    Matrix products of layers grow with the length and those of attention with its square, so nothing is lost.

    Args:
        lengths: at least three, rising.
        counts: at each of them.
        n: any length.
    """
    known = dict(zip(lengths, counts, strict=True))
    if n in known:
        return float(known[n])
    total = 0.0
    last = lengths[-3:]
    for here in last:
        others = [other for other in last if other != here]
        share = 1.0
        for other in others:
            share *= (n - other) / (here - other)
        total += share * known[here]
    return total
