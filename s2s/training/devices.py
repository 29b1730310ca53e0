"""What computes: device, precision, threads, and seeds that need no saved state."""

import ctypes
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from s2s.errors import UserError
from s2s.recipe.schema import DeviceSettings


@dataclass(frozen=True)
class Computer:
    """A chosen device and precision.

    Attributes:
        device: where tensors live.
        precision: of matrix products in training; weights and decoding are fp32 always.
        compile: whether the model is compiled for training.
        undecided: whether the precision is to be found by measuring (`s2s.training.precision`); fp32 until then.
    """

    device: torch.device
    precision: torch.dtype
    compile: bool = False
    undecided: bool = False

    @contextmanager
    def mixed_precision(self) -> Iterator[None]:
        """Within it, matrix products run in the chosen precision."""
        enabled = self.precision != torch.float32
        with torch.autocast(self.device.type, dtype=self.precision if enabled else None, enabled=enabled):
            yield

    def peak_memory(self) -> int:
        """Most memory held so far, in bytes: tensors on a GPU, and everything in this process elsewhere."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

    def __str__(self) -> str:
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type
        threads = f", {torch.get_num_threads()} threads" if self.device.type == "cpu" else ""
        precision = "" if self.undecided else f", {'bf16' if self.precision == torch.bfloat16 else 'fp32'}"
        return f"{name}{threads}{precision}"


def prepare_process(settings: DeviceSettings) -> None:
    """Makes this process one that computes as a recipe asks: its threads, its memory, and whether its bits are fixed.

    Called once by each command and each worker, before anything is computed; nothing else changes these.

    Args:
        settings: the recipe's `device` section; where `threads` is null, they stay as they are.
    """
    if settings.threads:
        torch.set_num_threads(settings.threads)
    if settings.deterministic:
        # read by cuBLAS when it is first used: without it, its products may differ from one call to the next
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if settings.deterministic != torch.are_deterministic_algorithms_enabled():
        # imports torch's compiler: a second that only those pay who ask
        torch.use_deterministic_algorithms(settings.deterministic)
    _keep_freed_memory()


def choose(settings: DeviceSettings) -> Computer:
    """The device and precision that a recipe asks for; changes nothing.

    Raises:
        UserError: the recipe asks for a device or a precision that is not here.
    """
    here = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    kind = next(k for k in ("cuda", "mps", "cpu") if here[k]) if settings.kind == "auto" else settings.kind
    if not here[kind]:
        raise UserError(f"device.kind is {kind}, but torch finds no such device", remedy="set device.kind: auto")
    auto = settings.precision == "auto"
    in_bf16 = torch.cuda.is_bf16_supported(including_emulation=False) if auto and kind == "cuda" else False
    precision = torch.bfloat16 if in_bf16 or settings.precision == "bf16" else torch.float32
    return Computer(torch.device(kind), precision, settings.compile, undecided=auto and kind == "cpu")


def _keep_freed_memory() -> None:
    """Tells the C library (glibc) to keep what is freed: each update asks for the same large tensors again.

    Left to itself it hands them back to the kernel, which must find and clear each page anew: a tenth to a half of the
    time of long texts. Other C libraries are left as they are.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
        mallopt(trim_threshold, -1)
        mallopt(mmap_threshold, 1 << 30)


def seed_for(seed: int, *path: int) -> int:
    """A seed for one place in a run, such as (rank, update), independent of all others.

    Every update's dropout is seeded by its own number, so there is no random state to save: resuming is arithmetic.
    """
    return int(np.random.SeedSequence([abs(seed), *path]).generate_state(1, np.uint64)[0] >> 1)
