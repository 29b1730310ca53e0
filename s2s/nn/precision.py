"""The precision of matrix products, and who computes them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

# others, such as what a split model has, know what to do themselves
_PLAIN = {Tensor, nn.Parameter}


@contextmanager
def products_in(precision: torch.dtype, device: torch.device) -> Iterator[None]:
    """Within it, matrix products run in a precision; weights and sums stay in fp32.

    Weights are cast once. In torch's inference mode they would be cast again for each product: it keeps nothing, so no
    gradients are computed in another way there.
    """
    reduced = precision != torch.float32
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            if reduced:
                stack.enter_context(torch.inference_mode(False))
                stack.enter_context(torch.no_grad())
            elif device.type == "cpu" and slow_in_fp32():
                stack.enter_context(ByOneDNN())
        stack.enter_context(torch.autocast(device.type, precision if reduced else None, enabled=reduced))
        yield


class ByOneDNN(TorchFunctionMode):
    """Within it, linear layers in fp32 on a processor are computed by oneDNN, without gradients."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """What torch would do, but for `functional.linear`."""
        if func is functional.linear and len(args) == 3 and {type(each) for each in args[:2]} <= _PLAIN:
            x, weight, bias = args
            if x.dtype == weight.dtype == torch.float32:
                return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return func(*args, **(kwargs or {}))


@cache
def slow_in_fp32() -> bool:
    """Whether torch's own products in fp32 leave half of this processor unused.

    They are MKL's, which has no AVX-512 for AMD's processors (measured with torch 2.13 on an EPYC of 2024: 215 GFLOP/s
    on two cores, of oneDNN 480). By the maker's name, not by a measurement: what a search finds may differ in the last
    digit, and must not differ from one run to the next.
    """
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
