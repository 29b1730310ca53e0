"""How near training comes to what the machine can do: an update beside its own matrix products alone.

    python -m benchmarks.ceiling --root DIR      # DIR holds Multi30k's files

The products of one update of s2s (`benchmarks/training.py`: forward, backward, all layers and the loss) are listed
with their shapes, their precision and how their matrices lie in memory. Then updates, and all of these products
alone, on random numbers, take turns. The share is the time of the products over that of the update; their speed in
GFLOP/s is what the machine reaches on this model at best. Attention in one kernel (fp32) does products that are not
in the list: the share is somewhat low there.
"""

import math
import statistics
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.contest import multi30k, seconds
from benchmarks.keeping import asked
from benchmarks.training import TOKENS, Precision, s2s_trainer
from s2s.recipe.schema import DeviceSettings
from s2s.training.device import setup_process

Matrix = tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]
"""Precision, shape, and how far apart its numbers lie."""
Product = tuple[Matrix, Matrix]

# by how many arguments come before the two matrices
_PRODUCTS = {torch.ops.aten.mm: 0, torch.ops.aten.bmm: 0, torch.ops.aten.addmm: 1, torch.ops.aten.baddbmm: 1}
_WARM = 2


class Listed(TorchDispatchMode):
    """Within it, all matrix products are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.products: Counter[Product] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first = _PRODUCTS.get(func.overloadpacket)
        if first is not None:
            one, other = (_matrix(each) for each in args[first : first + 2])
            self.products[one, other] += 1
        return func(*args, **(kwargs or {}))


def _matrix(tensor: Tensor) -> Matrix:
    return tensor.dtype, tuple(tensor.shape), tensor.stride()


def flops(product: Product) -> int:
    """A multiplication and an addition for each pair of numbers that meet."""
    (_, one, _), (_, other, _) = product
    return 2 * math.prod(one) * other[-1]


def alone(products: Counter[Product]) -> Callable[[], None]:
    """What computes all of the products, and nothing else."""
    made = {product: tuple(_drawn(each) for each in product) for product in products}

    def compute() -> None:
        for product, times in products.items():
            one, other = made[product]
            multiply = torch.mm if one.dim() == 2 else torch.bmm
            for _ in range(times):
                multiply(one, other)

    return compute


def _drawn(matrix: Matrix) -> Tensor:
    precision, shape, strides = matrix
    return torch.empty_strided(shape, strides, dtype=precision).normal_()


def share(
    listing: Callable[[], object], update: Callable[[], object], rounds: int
) -> tuple[list[float], list[float], int]:
    """Seconds of updates, and of their products alone, in turns; and the products' operations in an update, on average.

    Each update has its own batch, and so products of its own shapes. Listing them takes time, so that another trainer
    does it, who makes the same updates.
    """
    whole, bare, counted = [], [], []
    for turn in range(rounds + _WARM):
        with Listed() as listed:
            listing()
        took, compute = seconds(update), alone(listed.products)
        # whoever meets a shape for the first time waits for its kernel
        compute()
        again = seconds(compute)
        if turn >= _WARM:
            whole.append(took)
            bare.append(again)
            counted.append(sum(times * flops(product) for product, times in listed.products.items()))
    return whole, bare, round(statistics.mean(counted))


def main() -> None:
    """Measures both precisions and prints a table."""
    parser = asked(__doc__)
    parser.add_argument("--root", type=Path, required=True, help="folder with Multi30k's files")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    setup_process(DeviceSettings(threads=given.threads))
    data, tokenizer = multi30k(given.root)
    print(f"{'':6}{'update, ms':>12}{'products, ms':>14}{'share':>8}{'GFLOP/s of the products':>26}")
    for precision in ("fp32", "bf16"):
        both = [s2s_trainer(data, tokenizer.size, cast(Precision, precision), tokens=TOKENS) for _ in range(2)]
        listing, update = (partial(next, trainer.updates(10_000)) for trainer in both)
        whole, bare, operations = share(listing, update, given.rounds)
        ratio = statistics.median(one / other for one, other in zip(bare, whole, strict=True))
        middle = statistics.median(bare)
        speed = operations / middle / 1e9
        print(f"{precision:6}{1e3 * statistics.median(whole):12.0f}{1e3 * middle:14.0f}{ratio:8.0%}{speed:26,.0f}")


if __name__ == "__main__":
    main()
