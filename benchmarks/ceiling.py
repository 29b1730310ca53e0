"""Compare an update with its own matrix products and LSTM layers alone.

    python -m benchmarks.ceiling --root DIR      # DIR holds Multi30k's files

The products of one update of s2s (`benchmarks/training.py`: forward, backward, all layers and the loss) are listed
with their shapes, their precision and how their matrices lie in memory, and so are the calls of `torch.nn.LSTM`. Then
updates, and these products and calls alone, on random numbers, take turns. The share is the time of the latter over
that of the update; their speed in GFLOP/s is what the machine reaches on this model at best. Attention in one kernel
(fp32) does products that are not in the list: the share is somewhat low there.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.contest import multi30k, seconds
from benchmarks.keeping import asked
from benchmarks.training import TOKENS, Precision, s2s_trainer
from s2s.data.tokenized import TokenizedDataset
from s2s.recipe.schema import DeviceSettings
from s2s.training.device import setup_process
from s2s.training.precision import benchmark_precision

Matrix = tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]
"""Precision, shape, and how far apart its numbers lie."""
Product = tuple[Matrix, Matrix]
LstmCall = tuple[tuple[int, int, int], int]
"""Steps, rows and inputs of a call of an LSTM layer, and its width."""

# by how many arguments come before the two matrices
_PRODUCTS = {torch.ops.aten.mm: 0, torch.ops.aten.bmm: 0, torch.ops.aten.addmm: 1, torch.ops.aten.baddbmm: 1}
_WARM = 2
# LSTM layers have no bf16 kernel on every processor
_CASES: tuple[tuple[str, Precision], ...] = (
    ("transformer", "fp32"),
    ("transformer", "bf16"),
    ("lstm", "fp32"),
    ("lstm-attention", "fp32"),
)


class Listed(TorchDispatchMode):
    """Context manager that counts matrix products and calls of fused LSTM layers."""

    def __init__(self) -> None:
        super().__init__()
        self.products: Counter[Product] = Counter()
        self.lstm_calls: Counter[LstmCall] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first = _PRODUCTS.get(func.overloadpacket)
        if first is not None:
            one, other = (_matrix(each) for each in args[first : first + 2])
            self.products[one, other] += 1
        elif func.overloadpacket is torch.ops.aten.mkldnn_rnn_layer:
            x, _, recurrent_weight = args[:3]
            self.lstm_calls[tuple(x.shape), recurrent_weight.shape[1]] += 1
        return func(*args, **(kwargs or {}))

    def flops(self) -> int:
        """Return the number of additions and multiplications, forward and backward."""
        products = sum(times * flops(product) for product, times in self.products.items())
        return products + sum(times * lstm_flops(call) for call, times in self.lstm_calls.items())


def _matrix(tensor: Tensor) -> Matrix:
    return tensor.dtype, tuple(tensor.shape), tensor.stride()


def flops(product: Product) -> int:
    """A multiplication and an addition for each pair of numbers that meet."""
    (_, one, _), (_, other, _) = product
    return 2 * math.prod(one) * other[-1]


def lstm_flops(call: LstmCall) -> int:
    """Return the operations of a call, forward and backward: four gates, and twice as much for the gradients."""
    (steps, rows, inputs), width = call
    return 3 * 2 * steps * rows * 4 * width * (inputs + width)


def alone(listed: Listed) -> Callable[[], None]:
    """Return a function that computes only these products and LSTM layers."""
    made = {product: tuple(_drawn(each) for each in product) for product in listed.products}
    layers = {
        call: (
            nn.LSTM(call[0][2], call[1]),
            torch.randn(call[0], requires_grad=True),
            torch.randn(*call[0][:2], call[1]),
        )
        for call in listed.lstm_calls
    }

    def compute() -> None:
        for product, times in listed.products.items():
            one, other = made[product]
            multiply = torch.mm if one.dim() == 2 else torch.bmm
            for _ in range(times):
                multiply(one, other)
        for call, times in listed.lstm_calls.items():
            layer, x, gradient = layers[call]
            for _ in range(times):
                torch.autograd.grad(layer(x)[0], [x, *layer.parameters()], gradient)

    return compute


def _drawn(matrix: Matrix) -> Tensor:
    precision, shape, strides = matrix
    return torch.empty_strided(shape, strides, dtype=precision).normal_()


def share(
    listing: Callable[[], object], update: Callable[[], object], rounds: int
) -> tuple[list[float], list[float], int]:
    """Return seconds of updates, and of their products and LSTM layers alone, in turns, and the mean of their FLOPs.

    Each update has its own batch, and so products of its own shapes. Listing them takes time, so that another trainer
    does it, who makes the same updates.
    """
    whole, bare, counted = [], [], []
    for turn in range(rounds + _WARM):
        with Listed() as listed:
            listing()
        took, compute = seconds(update), alone(listed)
        # whoever meets a shape for the first time waits for its kernel
        compute()
        again = seconds(compute)
        if turn >= _WARM:
            whole.append(took)
            bare.append(again)
            counted.append(listed.flops())
    return whole, bare, round(statistics.mean(counted))


def _is_bf16_faster(data: TokenizedDataset, size: int) -> bool:
    # In small batches: without bf16 instructions, an update of whole ones takes a minute.
    return benchmark_precision(s2s_trainer(data, size, "fp32", tokens=TOKENS // 16)).faster == torch.bfloat16


def main() -> None:
    """Measure models and precisions, and print a table."""
    parser = asked(__doc__)
    parser.add_argument("--root", type=Path, required=True, help="folder with Multi30k's files")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    setup_process(DeviceSettings(threads=given.threads))
    data, tokenizer = multi30k(given.root)
    print(f"{'':22}{'update, ms':>12}{'alone, ms':>12}{'share':>8}{'GFLOP/s':>10}")
    for kind, precision in _CASES:
        if precision == "bf16" and not _is_bf16_faster(data, tokenizer.size):
            print(f"{kind + ' ' + precision:22}slower than fp32 on this machine: left out")
            continue
        both = [s2s_trainer(data, tokenizer.size, precision, tokens=TOKENS, kind=kind) for _ in range(2)]
        listing, update = (partial(next, trainer.updates(10_000)) for trainer in both)
        whole, bare, operations = share(listing, update, given.rounds)
        ratio = statistics.median(one / other for one, other in zip(bare, whole, strict=True))
        middle = statistics.median(bare)
        times = f"{1e3 * statistics.median(whole):12.0f}{1e3 * middle:12.0f}"
        print(f"{kind + ' ' + precision:22}{times}{ratio:8.0%}{operations / middle / 1e9:10,.0f}")


if __name__ == "__main__":
    main()
