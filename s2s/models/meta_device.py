"""Models of tensors that have shapes and no numbers: enough to be counted, and made in no time and memory."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


class _Undrawn(TorchFunctionMode):
    """Within it, normal numbers are not drawn: to draw none, torch imports a compiler, which takes a second."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        return named["tensor"] if func is nn.init.normal_ else func(*args, **named)


@contextmanager
def on_meta_device() -> Iterator[None]:
    """Within it, tensors that are made have shapes and no numbers.

    Raises:
        NotImplementedError, RuntimeError, TypeError, ValueError: from a model that asks for a number while it is made.
    """
    with torch.device("meta"), _Undrawn():
        yield
