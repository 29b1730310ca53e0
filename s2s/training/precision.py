"""Which precision is the faster one for a training on this device: found by computing its own gradients in both.

A processor may say that it knows bf16 and be twice as slow in it. Nor do matrix products alone tell: in bf16, weights
and states are cast from and to fp32 again and again, and of a small model that takes longer than its products, however
fast the unit is that multiplies matrices (AMX, a GPU's tensor cores, or eight times as many lanes as in fp32). Nor does
one batch: in bf16 kernels are compiled for shapes that were not there lately, which hardly two batches have in common.
"""

import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from typing import Any

import torch

from s2s.training.devices import NAMES, out_of_memory
from s2s.training.trainer import Trainer

# gradients in each precision after the first; of slow ones, the least that tell
_BATCHES, _LEAST = 24, 2
_PATIENCE = 1.0
# of a GPU's memory, for a gradient in fp32: the optimiser's moments, as large as weights and gradient, are yet to come
_SHARE = 0.5


@dataclass(frozen=True)
class GradientTimes:
    """How long a training's gradient of a batch takes on average, in seconds, and with how many threads.

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
    """Computes gradients of a trainer's first batches in both precisions, in turn, and gives the mean times.

    Weights, gradients, the state of the generators and the place in the data stay as they were, and what a GPU says of
    its peak memory counts from here. The model is on the trainer's device and not compiled for it. It takes about a
    second, and at least six gradients.
    """
    device = trainer.computer.device
    first, *others = (
        partial(trainer.examples.collate, batches[0], 0) for batches in islice(cycle(trainer.groups), 1 + _BATCHES)
    )
    trainer.model.train()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        batch = first().to(device)
        dtypes = list(NAMES) if device.type != "cuda" or _leaves_room(trainer, batch) else [torch.bfloat16]
        # what is prepared once for all of a training is not counted
        for dtype in dtypes:
            _seconds(trainer, batch, dtype)
        taken, started = {dtype: list[float]() for dtype in dtypes}, time.perf_counter()
        for done, collate in enumerate(others):
            if done >= _LEAST and time.perf_counter() - started > _PATIENCE:
                break
            batch = collate().to(device)
            for dtype, own in taken.items():
                own.append(_seconds(trainer, batch, dtype))
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    means = {dtype: sum(own) / len(own) for dtype, own in taken.items()}
    return GradientTimes(means.get(torch.float32), means[torch.bfloat16], torch.get_num_threads())


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
