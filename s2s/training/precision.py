"""Which precision is the faster one for a training on this device: found by computing its own gradient in both.

A processor may say that it knows bf16 and be twice as slow in it. Nor do matrix products alone tell: in bf16, weights
and states are cast from and to fp32 again and again, and of a small model that takes longer than its products, however
fast the unit is that multiplies matrices (AMX, a GPU's tensor cores, or eight times as many lanes as in fp32).
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import torch

from s2s.training.devices import NAMES, out_of_memory
from s2s.training.trainer import Trainer

_ROUNDS = 4
_PATIENCE = 1.0
# of a GPU's memory, for a gradient in fp32: the optimiser's moments, as large as weights and gradient, are yet to come
_SHARE = 0.5


@dataclass(frozen=True)
class GradientTimes:
    """How long a training's gradient of one batch took, in seconds, and with how many threads.

    Attributes:
        fp32: None where it takes so much of a GPU's memory that a training might not fit.
        bf16: in the other precision.
        threads: of the processor.
    """

    fp32: float | None
    bf16: float
    threads: int

    @property
    def faster(self) -> torch.dtype:
        """The precision that took less."""
        return torch.bfloat16 if self.fp32 is None or self.bf16 < self.fp32 else torch.float32

    def __str__(self) -> str:
        if self.fp32 is None:
            return "bf16: in fp32 a gradient takes more than half of the device's memory, or more than is free"
        fast, slow = sorted((self.fp32, self.bf16))
        name, other = ("bf16", "fp32") if self.bf16 < self.fp32 else ("fp32", "bf16")
        return f"{name}: a gradient takes {fast / slow:.2f} of {other}'s time here"


def measure(trainer: Trainer[Any, Any]) -> GradientTimes:
    """Computes the gradient of a trainer's first batch in both precisions, in turn, and gives the best times.

    Weights, gradients, the state of the generators and the place in the data stay as they were, and what a GPU says of
    its peak memory counts from here. The model is on the trainer's device and not compiled for it. It takes about a
    second, and at least four gradients.
    """
    device = trainer.computer.device
    batch = trainer.examples.collate(trainer.groups[0][0], 0).to(device)
    trainer.model.train()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        dtypes = NAMES if device.type != "cuda" or _leaves_room(trainer, batch) else [torch.bfloat16]
        best, started = dict.fromkeys(dtypes, float("inf")), time.perf_counter()
        for done in range(_ROUNDS):
            # the first round compiles kernels; a second one is the least that tells
            if done > 1 and time.perf_counter() - started > _PATIENCE:
                break
            for dtype in best:
                best[dtype] = min(best[dtype], _seconds(trainer, batch, dtype))
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    return GradientTimes(best.get(torch.float32), best[torch.bfloat16], torch.get_num_threads())


def _leaves_room(trainer: Trainer[Any, Any], batch: Any) -> bool:
    device = trainer.computer.device
    # what ran before in this process is over
    torch.cuda.reset_peak_memory_stats(device)
    try:
        _seconds(trainer, batch, torch.float32)
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
        trainer.optimization.forget_gradients()
        torch.cuda.empty_cache()
        return False
    return torch.cuda.max_memory_allocated(device) <= _SHARE * torch.cuda.mem_get_info(device)[1]


def _seconds(trainer: Trainer[Any, Any], batch: Any, dtype: torch.dtype) -> float:
    device = trainer.computer.device
    # of the processor, so that others who use the machine do not decide; a GPU works while the processor waits
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    _wait(device)
    started = clock()
    with replace(trainer.computer, precision=dtype).mixed_precision():
        wanted, _ = trainer.loss(trainer.model, batch)
    trainer.optimization.backward(wanted / max(1, batch.count))
    _wait(device)
    seconds = clock() - started
    trainer.optimization.forget_gradients()
    return seconds


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
