"""Which precision is the faster one for a model on this machine: found by measuring, not by asking the processor.

A processor may say that it knows bf16 and be twice as slow in it: what counts is the unit that multiplies matrices
(AMX, or eight times as many lanes as in fp32), and no flag tells how fast that is.
"""

import time
from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor, nn

# floating-point operations of one pass over all shapes: some hundredths of a second on a slow core
_WORK = 1e9
# of a larger matrix a part tells the same
_LARGEST = 2048
_ROUNDS = 3
_PATIENCE = 0.3

NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16"}
"""How a precision is written."""


@dataclass(frozen=True)
class ProductTimes:
    """How long the products of a model's layers took, forward and backward, in seconds of the processor.

    Attributes:
        fp32: in single precision.
        bf16: under autocast, with its casts.
        rows: positions at a time.
        threads: of the processor.
    """

    fp32: float
    bf16: float
    rows: int
    threads: int

    @property
    def faster(self) -> torch.dtype:
        """The precision that took less."""
        return torch.bfloat16 if self.bf16 < self.fp32 else torch.float32

    def __str__(self) -> str:
        fast, slow = sorted((self.fp32, self.bf16))
        name, other = ("bf16", "fp32") if self.bf16 < self.fp32 else ("fp32", "bf16")
        return f"{name}: its products take {fast / slow:.2f} of {other}'s time here"


def precision_of(computer: str) -> torch.dtype | None:
    """The precision that a written `Computer` names; None where it names none."""
    return next((dtype for dtype, name in NAMES.items() if computer.endswith(f", {name}")), None)


def measure(model: nn.Module, rows: int) -> ProductTimes:
    """Multiplies matrices of the model's shapes, forward and backward, in both precisions, in turn.

    It takes less than half a second on an idle machine, and touches neither weights nor gradients nor the state of any
    generator.

    Args:
        model: on a processor.
        rows: positions of a batch; fewer are taken where that is too much work.
    """
    shapes = Counter((min(len(w), _LARGEST), min(w.shape[1], _LARGEST)) for w in _weights(model))
    work = sum(6 * out * into for out, into in shapes) or 1
    rows = max(16, min(rows, int(_WORK / work)))
    operands = [(count, torch.ones(rows, into), torch.ones(out, into)) for (out, into), count in shapes.items()]
    best, started = dict.fromkeys(NAMES, float("inf")), time.perf_counter()
    for done in range(_ROUNDS):
        # the first round compiles kernels; a second one is the least that tells
        if done > 1 and time.perf_counter() - started > _PATIENCE:
            break
        for dtype in NAMES:
            best[dtype] = min(best[dtype], sum(count * _seconds(x, weight, dtype) for count, x, weight in operands))
    return ProductTimes(best[torch.float32], best[torch.bfloat16], rows, torch.get_num_threads())


def _weights(model: nn.Module) -> list[Tensor]:
    """The matrices that states are multiplied with, once each; tables that are only looked up are none."""
    linear = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]
    recurrent = [m for m in model.modules() if isinstance(m, nn.RNNBase)]
    return linear + [p for m in recurrent for p in m.parameters() if p.dim() == 2]


def _seconds(x: Tensor, weight: Tensor, dtype: torch.dtype) -> float:
    # of the processor, so that others who use the machine do not decide
    started = time.process_time()
    with torch.enable_grad(), torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        leaves = x.detach().requires_grad_(), weight.detach().requires_grad_()
        y = nn.functional.linear(*leaves)
        torch.autograd.grad(y, leaves, torch.ones_like(y))
    return time.process_time() - started
