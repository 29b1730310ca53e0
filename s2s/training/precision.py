"""Which precision is the faster one for a training on this device: found by computing its own gradients in both.

A processor may say that it knows bf16 and be twice as slow in it. Nor do matrix products alone tell: in bf16, weights
and states are cast from and to fp32 again and again, and of a small model that takes longer than its products, however
fast the unit is that multiplies matrices (AMX, a GPU's tensor cores, or eight times as many lanes as in fp32). Nor does
one batch: in bf16 kernels are compiled for shapes that were not there lately, which hardly two batches have in common.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from typing import Any

import torch

from s2s.nn.precision import PrecisionError, autocast_matmul
from s2s.training.device import PRECISION_NAMES, is_out_of_memory
from s2s.training.trainer import Trainer

# gradients in each precision after the first; of slow ones, the least that tell
_BATCHES, _LEAST = 24, 2
_PATIENCE = 1.0
# of a GPU's memory, for a gradient in fp32: the optimiser's moments, as large as weights and gradient, are yet to come
_SHARE = 0.5


@dataclass(frozen=True)
class PrecisionBenchmark:
    """How long a training's gradient of a batch takes on average, in seconds, and with how many threads.

    Attributes:
        fp32: None where it takes so much of a GPU's memory that a training might not fit.
        bf16: in the other precision; None where the device cannot compute the model in it.
        threads: of the processor.
        bf16_error: why `bf16` is None.
    """

    fp32: float | None
    bf16: float | None
    threads: int
    bf16_error: str = ""

    @property
    def faster(self) -> torch.dtype:
        """The precision that took less, among those that work."""
        if self.bf16 is None:
            return torch.float32
        return torch.bfloat16 if self.fp32 is None or self.bf16 < self.fp32 else torch.float32

    def __str__(self) -> str:
        if self.bf16 is None:
            return f"precision: fp32 (bf16 does not work for this model on this device: {self.bf16_error})"
        if self.fp32 is None:
            return "bf16: in fp32 a gradient takes more than half of the device's memory, or more than is free"
        fast, slow = sorted((self.fp32, self.bf16))
        name, other = ("bf16", "fp32") if self.bf16 < self.fp32 else ("fp32", "bf16")
        return f"{name}: a gradient takes {fast / slow:.2f} of {other}'s time here"


def benchmark_precision(trainer: Trainer[Any, Any]) -> PrecisionBenchmark:
    """Computes gradients of a trainer's first batches in both precisions, in turn, and gives the mean times.

    Weights, gradients, the state of the generators and the place in the data stay as they were, and what a GPU says of
    its peak memory counts from here. The model is on the trainer's device and not compiled for it. It takes about a
    second, and at least six gradients.
    """
    device = trainer.device_context.device
    first, *others = (
        partial(trainer.examples.collate, batches[0], 0) for batches in islice(cycle(trainer.groups), 1 + _BATCHES)
    )
    with _unchanged(trainer):
        batch = first().to(device)
        dtypes = list(PRECISION_NAMES) if device.type != "cuda" or _fits_in_fp32(trainer, batch) else [torch.bfloat16]
        taken = {dtype: list[float]() for dtype in dtypes}
        # what is prepared once for all of a training is not counted
        bf16_error = _add_times(trainer, batch, taken)
        for own in taken.values():
            own.clear()
        started = time.perf_counter()
        for done, collate in enumerate(others):
            if done >= _LEAST and time.perf_counter() - started > _PATIENCE:
                break
            bf16_error += _add_times(trainer, collate().to(device), taken)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    means = {dtype: sum(own) / len(own) for dtype, own in taken.items()}
    threads = torch.get_num_threads()
    return PrecisionBenchmark(means.get(torch.float32), means.get(torch.bfloat16), threads, bf16_error)


def check_precision(trainer: Trainer[Any, Any], decoding: torch.dtype = torch.float32) -> None:
    """Compute one gradient in the trainer's precision, and one loss in that of decoding, if these are bf16.

    The trainer's state stays as it was.

    Args:
        trainer: with a precision that is decided.
        decoding: the precision of searches.

    Raises:
        PrecisionError: this device cannot compute the model in bf16.
    """
    device_context = trainer.device_context
    if torch.bfloat16 not in (device_context.precision, decoding):
        return
    with _unchanged(trainer):
        batch = trainer.examples.collate(trainer.groups[0][0], 0).to(device_context.device)
        try:
            if device_context.precision == torch.bfloat16:
                _seconds(trainer, batch, torch.bfloat16)
            if decoding == torch.bfloat16:
                with torch.no_grad(), autocast_matmul(decoding, device_context.device):
                    trainer.loss(trainer.model.eval(), batch)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            raise PrecisionError(error, device_context.device) from None


@contextmanager
def _unchanged(trainer: Trainer[Any, Any]) -> Iterator[None]:
    """Restore the random state afterwards, and drop gradients."""
    device = trainer.device_context.device
    trainer.model.train()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            trainer.optimization.zero_grad()


def _add_times(trainer: Trainer[Any, Any], batch: Any, taken: dict[torch.dtype, list[float]]) -> str:
    """Time a batch's gradient in each precision; remove bf16 if it raises, and return the reason."""
    for dtype, own in list(taken.items()):
        try:
            own.append(_seconds(trainer, batch, dtype))
        except (RuntimeError, PrecisionError) as error:
            if dtype == torch.float32 or is_out_of_memory(error):
                raise
            trainer.optimization.zero_grad()
            del taken[dtype]
            return str(error.__cause__ or error).strip().partition("\n")[0][:200]
    return ""


def _fits_in_fp32(trainer: Trainer[Any, Any], batch: Any) -> bool:
    device = trainer.device_context.device
    # what ran before in this process is over
    torch.cuda.reset_peak_memory_stats(device)
    try:
        _seconds(trainer, batch, torch.float32)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        trainer.optimization.zero_grad()
        torch.cuda.empty_cache()
        return False
    return torch.cuda.max_memory_allocated(device) <= _SHARE * torch.cuda.mem_get_info(device)[1]


def _seconds(trainer: Trainer[Any, Any], batch: Any, dtype: torch.dtype) -> float:
    device = trainer.device_context.device
    # of the processor, so that others who use the machine do not decide; a GPU works while the processor waits
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    _wait(device)
    started = clock()
    with replace(trainer.device_context, precision=dtype).mixed_precision():
        wanted, _ = trainer.loss(trainer.model, batch)
    (wanted / max(1, batch.count)).backward()
    _wait(device)
    seconds = clock() - started
    trainer.optimization.zero_grad()
    return seconds


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
