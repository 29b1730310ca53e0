"""Models on the meta device: shapes without numbers, to count parameters at no cost."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


class _Undrawn(TorchFunctionMode):
    """Skip `nn.init.normal_` and `Tensor.normal_`, which other initializations call.

    On the meta device torch would import a compiler for them, which takes a second.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        if func is torch.Tensor.normal_ and args[0].is_meta:
            return args[0]
        return named["tensor"] if func is nn.init.normal_ else func(*args, **named)


@contextmanager
def on_meta_device() -> Iterator[None]:
    """Create tensors on the meta device: shapes without numbers.

    Use as a context manager.

    Raises:
        NotImplementedError, RuntimeError, TypeError, ValueError: A model reads a number while it is built.

    Example:
        >>> with on_meta_device():
        ...     layer = nn.Linear(100_000, 100_000)
        >>> sum(p.numel() for p in layer.parameters())
        10000100000
    """
    with torch.device("meta"), _Undrawn():
        yield
