"""Mixed precision (autocast), and fallbacks for kernels that a CPU lacks."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from s2s.errors import UserError

# Words in the errors of oneDNN, of torch's own kernels (two wordings), and of cuDNN and cuBLAS.
_UNSUPPORTED = ("primitive", "bfloat16", "bf16", "not_supported")


class PrecisionError(UserError):
    """Error for an operation that the device does not implement in bf16."""

    def __init__(self, error: Exception, device: torch.device) -> None:
        first_line = str(error).strip().partition("\n")[0]
        super().__init__(
            f"this model cannot be computed in bf16 on this device: {first_line[:200]}",
            where=device.type,
            remedy="set device.precision=fp32 for training, decoding.precision=fp32 (`--precision fp32`) for decoding",
        )


@contextmanager
def autocast_matmul(precision: torch.dtype, device: torch.device) -> Iterator[None]:
    """Run matrix products in a precision (mixed precision); weights and sums stay in fp32.

    Use as a context manager. Autocast casts weights once and keeps them. In torch's inference mode it would cast them
    for each product, so there gradients are switched off by no_grad instead. On a CPU without a bf16 LSTM kernel, LSTM
    layers run in fp32.

    Args:
        precision: Data type of matrix products; `torch.float32` switches autocast off.
        device: Device of the computation.

    Raises:
        PrecisionError: An operation is not implemented in bf16 on this device.

    Example:
        >>> with autocast_matmul(torch.bfloat16, torch.device("cpu")):
        ...     nn.Linear(4, 4)(torch.ones(1, 4)).dtype
        torch.bfloat16
    """
    reduced = precision != torch.float32
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            if reduced:
                stack.enter_context(torch.inference_mode(False))
                stack.enter_context(torch.no_grad())
            elif device.type == "cpu" and slow_in_fp32():
                stack.enter_context(UseOneDNNForLinear())
        stack.enter_context(torch.autocast(device.type, precision if reduced else None, enabled=reduced))
        if not reduced:
            yield
            return
        if device.type == "cpu" and not has_bf16_lstm():
            stack.enter_context(LSTMInFP32())
        try:
            yield
        except RuntimeError as error:
            if not any(words in str(error).lower() for words in _UNSUPPORTED):
                raise
            raise PrecisionError(error, device) from error


class LSTMInFP32(TorchFunctionMode):
    """Run LSTM layers outside of autocast, in fp32, on the current thread.

    For CPUs without a bf16 LSTM kernel. Measured on two cores with `ONEDNN_MAX_CPU_ISA=AVX2`: oneDNN's fp32 LSTM takes
    a tenth (training) to a fifth (inference) of the time of torch's bf16 implementation without oneDNN, except for a
    single step of a single row.
    """

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call `func`; if it is `torch.lstm`, with fp32 tensors and without autocast."""
        if func is torch.lstm:
            with torch.autocast("cpu", enabled=False):
                return func(*_in_fp32(args), **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _in_fp32(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(map(_in_fp32, value))
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value


@cache
def has_bf16_lstm() -> bool:
    """Return True if this CPU computes an LSTM in bf16, forward and backward.

    oneDNN has no such kernel for a CPU without AVX-512, and torch calls it nevertheless (pytorch/pytorch#187334).
    Therefore one step is tried.
    """
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cpu", torch.bfloat16):
        x, state = torch.zeros(1, 1, 2), torch.zeros(1, 1, 2)
        weights = [torch.zeros(shape, requires_grad=True) for shape in ((8, 2), (8, 2), (8,), (8,))]
        try:
            outputs, _, _ = torch.lstm(x, (state, state), weights, True, 1, 0.0, True, False, True)
            outputs.float().sum().backward()
        except RuntimeError:
            return False
    return True


def fp32_layers(model: nn.Module, precisions: Collection[torch.dtype], device: torch.device) -> str:
    """Return a line that names layers which run in fp32 although bf16 is set.

    Args:
        model: Model on any device.
        precisions: Precisions of training, decoding, or both.
        device: Device of the computation.

    Returns:
        The line; empty if there are no such layers.
    """
    if torch.bfloat16 not in precisions or device.type != "cpu":
        return ""
    if has_bf16_lstm() or not any(isinstance(module, nn.LSTM) for module in model.modules()):
        return ""
    return "bf16: LSTM layers run in fp32, because this processor has no bf16 LSTM kernel"


class UseOneDNNForLinear(TorchFunctionMode):
    """Compute fp32 linear layers on a CPU with oneDNN, without gradients."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call `func`, or oneDNN's kernel if `func` is `functional.linear`."""
        if func is functional.linear and len(args) == 3:
            x, weight, bias = args
            if x.dtype == weight.dtype == torch.float32:
                return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return func(*args, **(kwargs or {}))


@cache
def slow_in_fp32() -> bool:
    """Return True if torch's fp32 matrix products use half of this CPU at most.

    They come from MKL, which has no AVX-512 for AMD CPUs. Measured with torch 2.13 on an EPYC of 2024, on two cores:
    215 GFLOP/s, with oneDNN 480. The vendor name decides, not a measurement: results of a search may differ in the last
    digit between both kernels, and must not differ from run to run.
    """
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
