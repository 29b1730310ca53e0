"""Attention's two implementations against each other, by length and precision: where `auto` should change over.

    python -m benchmarks.attention [--threads 1]

8,192 positions at each length, four heads of 32, the last positions of one row padding, forward and backward, and
forward alone as in evaluation. Both compute the same, which is checked, and take turns, so that a noisy machine is
noisy for both; medians.
"""

import statistics
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from benchmarks.contest import in_turns, seconds
from benchmarks.keeping import asked
from s2s.nn.attention import Attention, Implementation
from s2s.recipe.schema import DeviceSettings
from s2s.training.device import select_device, setup_process

POSITIONS, HEADS, SIZE = 8192, 4, 32
LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
WAYS: tuple[Implementation, ...] = ("explicit", "fused")
TURNS = 7


def of_both(length: int, precision: torch.dtype) -> dict[Implementation, Callable[[], Tensor]]:
    """What each implementation does with the same states at one length, projections left out."""
    rows = max(1, POSITIONS // length)
    torch.manual_seed(1)
    heads = [torch.randn(rows, length, HEADS, SIZE, dtype=precision).transpose(1, 2) for _ in range(3)]
    query, key, value = (each.requires_grad_() for each in heads)
    mask = torch.ones(rows, 1, 1, length, dtype=torch.bool)
    mask[0, ..., -length // 4 :] = False

    def reading(way: Implementation) -> Callable[[], Tensor]:
        attention = Attention(HEADS * SIZE, HEADS, 0.0, way)
        return lambda: attention.attend(query, key, value, mask)

    return {way: reading(way) for way in WAYS}


def milliseconds(read: Callable[[], Tensor], learning: bool) -> float:
    """Of one reading, with the way back where something is to be learned."""
    with torch.set_grad_enabled(learning):
        return 1000 * seconds(lambda: read().sum().backward() if learning else read())


def measured(length: int, precision: torch.dtype) -> dict[tuple[Implementation, bool], float]:
    """Median milliseconds of each implementation, with the way back and without."""
    reads = of_both(length, precision)
    torch.testing.assert_close(reads["explicit"](), reads["fused"](), atol=2e-2, rtol=2e-2)
    both = ((way, learning) for way in WAYS for learning in (True, False))
    times = in_turns({(way, learns): partial(milliseconds, reads[way], learns) for way, learns in both}, TURNS, warm=1)
    return {key: statistics.median(values) for key, values in times.items()}


def main() -> None:
    """Prints a row for each precision and length."""
    parser = asked(__doc__)
    parser.add_argument("--threads", type=int, default=1)
    settings = DeviceSettings(kind="cpu", threads=parser.parse_args().threads)
    setup_process(settings)
    device_context = select_device(settings)
    print(device_context)
    print("| precision | length | explicit | fused | | explicit, forward | fused, forward | |")
    print("|---|---|---|---|---|---|---|---|")
    for name, precision in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        for length in LENGTHS:
            found, cells = measured(length, precision), []
            for learning in (True, False):
                explicit, fused = found["explicit", learning], found["fused", learning]
                cells.append(f"{explicit:.1f} | {fused:.1f} | {fused / explicit:.2f}×")
            print(f"| {name} | {length:,} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
