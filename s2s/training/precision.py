"""Benchmark of fp32 against bf16 for a training on this device (`precision: auto`).

The benchmark computes gradients of the training's own batches in both precisions. Simpler tests mislead: a CPU may
support bf16 and be twice as slow with it. Matrix products alone do not decide, because in bf16 weights and states are
cast from and to fp32 repeatedly, which for a small model takes longer than its products, however fast the matrix unit
is (AMX, tensor cores, or eight times as many lanes as in fp32). A single batch does not decide either, because bf16
kernels are compiled for shapes that were not used recently, and few batches share a shape.
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

# Gradients in each precision after the first one, and their minimum number if they are slow.
_BATCHES, _LEAST = 24, 2
_PATIENCE = 1.0
# Largest share of a GPU's memory for a gradient in fp32; the optimizer's moments, as large as weights and gradient,
# are not allocated yet.
_SHARE = 0.5
# Ratio of the times above which other work on the machine may decide which precision is the faster one.
_CLOSE = 0.8


@dataclass(frozen=True)
class PrecisionBenchmark:
    """Result of the benchmark: mean time of a batch's gradient, in seconds.

    Attributes:
        fp32: Time in fp32; None if it takes so much of a GPU's memory that training might not fit.
        bf16: Time in bf16; None if the device cannot compute the model in bf16.
        threads: CPU threads.
        bf16_error: Reason why `bf16` is None.

    Example:
        >>> result = PrecisionBenchmark(fp32=0.2, bf16=0.1, threads=2)
        >>> result.faster
        torch.bfloat16
        >>> print(result)
        precision: bf16 (a gradient takes 0.50 times as long as in fp32 on this device)
    """

    fp32: float | None
    bf16: float | None
    threads: int
    bf16_error: str = ""

    @property
    def faster(self) -> torch.dtype:
        """Faster precision of those that work."""
        if self.bf16 is None:
            return torch.float32
        return torch.bfloat16 if self.fp32 is None or self.bf16 < self.fp32 else torch.float32

    def __str__(self) -> str:
        if self.bf16 is None:
            return f"precision: fp32 (bf16 does not work for this model on this device: {self.bf16_error})"
        if self.fp32 is None:
            reason = "in fp32 a gradient needs more than half of the device's memory, or more than is free"
            return f"precision: bf16 ({reason})"
        fast, slow = sorted((self.fp32, self.bf16))
        name, other = ("bf16", "fp32") if self.bf16 < self.fp32 else ("fp32", "bf16")
        close = "; another start may choose the other, --precision-of RUN this one" if fast / slow > _CLOSE else ""
        return (
            f"precision: {name} (a gradient takes {fast / slow:.2f} times as long as in {other} on this device{close})"
        )


def benchmark_precision(trainer: Trainer[Any, Any]) -> PrecisionBenchmark:
    """Measure gradients of the first batches in both precisions, alternately.

    Takes about a second, and at least six gradients. Weights, gradients, random state and position in the data are
    unchanged. The peak memory statistics of a GPU are reset.

    Args:
        trainer: Trainer whose model is on its device and not compiled.

    Returns:
        Mean times. The first gradient in each precision is not counted.
    """
    device = trainer.device_context.device
    first, *others = (
        partial(trainer.examples.collate, batches[0], 0) for batches in islice(cycle(trainer.groups), 1 + _BATCHES)
    )
    with _unchanged(trainer):
        batch = first().to(device)
        dtypes = list(PRECISION_NAMES) if device.type != "cuda" or _fits_in_fp32(trainer, batch) else [torch.bfloat16]
        taken = {dtype: list[float]() for dtype in dtypes}
        # The first gradient is not counted: it includes one-time preparations.
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
    """Check that the device computes the model in bf16, if training or decoding uses bf16.

    One gradient is computed in the precision of training, one loss in that of decoding. The trainer's state is
    unchanged.

    Args:
        trainer: Trainer whose precision is selected.
        decoding: Precision of decoding.

    Raises:
        PrecisionError: This device cannot compute the model in bf16.
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
    """Restore the random state afterwards, and clear gradients."""
    device = trainer.device_context.device
    trainer.model.train()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            trainer.optimization.zero_grad()


def _add_times(trainer: Trainer[Any, Any], batch: Any, taken: dict[torch.dtype, list[float]]) -> str:
    """Time a gradient in each precision; if bf16 fails, remove it and return the reason."""
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
    # Memory peaks of earlier work in this process must not count.
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
    # CPU time on a CPU, so that other processes on the machine have no influence; wall time for a GPU, because the CPU
    # waits meanwhile.
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
