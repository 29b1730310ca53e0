"""Which precision is the faster one for a training on this processor: found by computing its own gradient in both.

A processor may say that it knows bf16 and be twice as slow in it. Nor do matrix products alone tell: in bf16, weights
and states are cast from and to fp32 again and again, and of a small model that takes longer than its products, however
fast the unit is that multiplies matrices (AMX, or eight times as many lanes as in fp32).
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import torch

from s2s.training.devices import NAMES
from s2s.training.trainer import Trainer

_ROUNDS = 4
_PATIENCE = 1.0


@dataclass(frozen=True)
class GradientTimes:
    """How long a training's gradient of one batch took, in seconds of the processor, and with how many threads."""

    fp32: float
    bf16: float
    threads: int

    @property
    def faster(self) -> torch.dtype:
        """The precision that took less."""
        return torch.bfloat16 if self.bf16 < self.fp32 else torch.float32

    def __str__(self) -> str:
        fast, slow = sorted((self.fp32, self.bf16))
        name, other = ("bf16", "fp32") if self.bf16 < self.fp32 else ("fp32", "bf16")
        return f"{name}: a gradient takes {fast / slow:.2f} of {other}'s time here"


def measure(trainer: Trainer[Any, Any]) -> GradientTimes:
    """Computes the gradient of a trainer's first batch in both precisions, in turn, and gives the best times.

    Weights, gradients, the state of the generators and the place in the data stay as they were. The model is on a
    processor and not compiled for it. It takes about a second, and at least four gradients.
    """
    batch = trainer.examples.collate(trainer.groups[0][0], 0)
    best, started = dict.fromkeys(NAMES, float("inf")), time.perf_counter()
    trainer.model.train()
    with torch.random.fork_rng(devices=[]):
        for done in range(_ROUNDS):
            # the first round compiles kernels; a second one is the least that tells
            if done > 1 and time.perf_counter() - started > _PATIENCE:
                break
            for dtype in NAMES:
                best[dtype] = min(best[dtype], _seconds(trainer, batch, dtype))
    return GradientTimes(best[torch.float32], best[torch.bfloat16], torch.get_num_threads())


def _seconds(trainer: Trainer[Any, Any], batch: Any, dtype: torch.dtype) -> float:
    # of the processor, so that others who use the machine do not decide
    started = time.process_time()
    with replace(trainer.computer, precision=dtype).mixed_precision():
        wanted, _ = trainer.loss(trainer.model, batch)
    trainer.optimization.backward(wanted / max(1, batch.count))
    seconds = time.process_time() - started
    trainer.optimization.forget_gradients()
    return seconds
