"""Precision of matrix products, and fallbacks for kernels that a processor lacks."""

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

# oneDNN, torch's own kernels (two wordings), cuDNN and cuBLAS
_UNSUPPORTED = ("primitive", "bfloat16", "bf16", "not_supported")


class PrecisionError(UserError):
    """An operation of a model that this device cannot compute in a precision."""

    def __init__(self, error: Exception, device: torch.device) -> None:
        first_line = str(error).strip().partition("\n")[0]
        super().__init__(
            f"this model cannot be computed in bf16 on this device: {first_line[:200]}",
            where=device.type,
            remedy="set device.precision=fp32 for training, decoding.precision=fp32 (--precision fp32) for decoding",
        )


@contextmanager
def autocast_matmul(precision: torch.dtype, device: torch.device) -> Iterator[None]:
    """Within it, matrix products run in a precision; weights and sums stay in fp32.

    Weights are cast once. In torch's inference mode they would be cast again for each product: it keeps nothing, so no
    gradients are computed in another way there. On a processor without a bf16 LSTM kernel, LSTM layers run in fp32.

    Raises:
        PrecisionError: an operation is not implemented in bf16 on this device.
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
    """Runs LSTM layers outside of autocast, in fp32, on the current thread.

    For processors without a bf16 LSTM kernel. Measured on two cores with `ONEDNN_MAX_CPU_ISA=AVX2`: oneDNN's fp32 LSTM
    takes a tenth (training) to a fifth (inference) of the time of torch's bf16 implementation without oneDNN, except
    for a single step of a single row.
    """

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call `func`, with fp32 tensors and without autocast if it is `torch.lstm`."""
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
    """Return whether this processor computes an LSTM in bf16, forward and backward.

    oneDNN has no such kernel for a processor without AVX-512, and torch calls it all the same
    (pytorch/pytorch#187334). The answer comes from a trial with one step.
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
    """Return a line that names the layers which run in fp32 where bf16 is asked for; empty if there are none.

    Args:
        model: on any device.
        precisions: of training, of decoding, or both.
        device: where it is computed.
    """
    if torch.bfloat16 not in precisions or device.type != "cpu":
        return ""
    if has_bf16_lstm() or not any(isinstance(module, nn.LSTM) for module in model.modules()):
        return ""
    return "bf16: LSTM layers run in fp32, because this processor has no bf16 LSTM kernel"


class UseOneDNNForLinear(TorchFunctionMode):
    """Within it, linear layers in fp32 on a processor are computed by oneDNN, without gradients."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """What torch would do, but for `functional.linear`."""
        if func is functional.linear and len(args) == 3:
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
