"""Device, precision, threads, and stateless seeding."""

import ctypes
import os
import shutil
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist

from s2s.errors import UserError, counted
from s2s.launch import TorchrunProcess
from s2s.nn.precision import autocast_matmul
from s2s.process import peak_memory
from s2s.recipe.schema import DeviceSettings
from s2s.training.distributed import SINGLE_PROCESS, Distributed

PRECISION_NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16"}
"""Names of the precisions in recipes and logs."""
# Largest number of threads that is accepted on any machine, and for each core of a larger one.
_THREADS, _THREADS_OF_CORE = 64, 4
# Words in the out-of-memory errors of the CPU allocator, of CUDA, and of cuBLAS.
_NO_MEMORY = ("allocate memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


@dataclass(frozen=True)
class DeviceContext:
    """Device, precision and process group of a training.

    Attributes:
        device: Device of all tensors.
        precision: Precision of matrix products in training (mixed precision). Weights are always fp32; decoding has its
            own setting, `decoding.precision`.
        compile: True to compile the model for training (torch.compile).
        autoselect_precision: True until the faster precision has been measured (`s2s.training.precision`); until then
            `precision` is fp32 on a CPU and bf16 on a GPU.
        distributed: Process group of data-parallel training, one device for each process.
    """

    device: torch.device
    precision: torch.dtype
    compile: bool = False
    autoselect_precision: bool = False
    distributed: Distributed = SINGLE_PROCESS

    def mixed_precision(self) -> AbstractContextManager[None]:
        """Run matrix products in the chosen precision (autocast), as a context manager."""
        return autocast_matmul(self.precision, self.device)

    def peak_memory(self) -> int | None:
        """Return the peak memory in bytes: of tensors on a GPU, else of the process; None if it is not known."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return peak_memory()

    def __str__(self) -> str:
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type
        threads = f", {counted(torch.get_num_threads(), 'thread')}" if self.device.type == "cpu" else ""
        precision = "" if self.autoselect_precision else f", {PRECISION_NAMES[self.precision]}"
        processes = f", {self.distributed.world_size} processes" if self.distributed.world_size > 1 else ""
        return f"{name}{threads}{processes}{precision}"


def setup_process(settings: DeviceSettings) -> None:
    """Configure torch for this process: threads, memory, determinism, denormal numbers.

    Called once by each command and each worker, before any computation.

    Args:
        settings: Device settings of the recipe. `threads: null` keeps the number of threads.

    Raises:
        UserError: More threads are set than this machine can use. OpenMP ends the process at some thousand.
    """
    if settings.threads:
        most = max(_THREADS, _THREADS_OF_CORE * (os.cpu_count() or 1))
        if settings.threads > most:
            raise UserError(
                f"is {settings.threads:,}, but this machine has {os.cpu_count()} CPU cores",
                where="device.threads",
                remedy=f"set at most {most}, or leave it out to use all cores",
            )
        torch.set_num_threads(settings.threads)
    if settings.deterministic:
        # cuBLAS reads this when it is first used; without it, its products may differ from call to call.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if settings.deterministic != torch.are_deterministic_algorithms_enabled():
        # This imports torch's compiler, which takes a second, so it is skipped if nothing changes.
        torch.use_deterministic_algorithms(settings.deterministic)
    # cuDNN plans attention for every new shape, and few batches share a shape: 334 ms instead of 64 ms for a step
    # (docs/dev/log.md).
    torch.backends.cuda.enable_cudnn_sdp(False)
    _keep_freed_memory()
    _flush_denormals()


def select_device(settings: DeviceSettings, distributed: Distributed = SINGLE_PROCESS) -> DeviceContext:
    """Select the device and precision that a recipe sets.

    Changes no state, except for the current GPU of each process in data-parallel training.

    Args:
        settings: Device settings of the recipe.
        distributed: Process group.

    Raises:
        UserError: The device or precision is not available, or cannot be used by several processes.
    """
    here = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    kind = next(k for k in ("cuda", "mps", "cpu") if here[k]) if settings.kind == "auto" else settings.kind
    if not here[kind]:
        raise UserError(f"device.kind is {kind}, but torch finds no such device", remedy="set device.kind: auto")
    auto = settings.precision == "auto"
    in_bf16 = torch.cuda.is_bf16_supported(including_emulation=False) if auto and kind == "cuda" else False
    precision = torch.bfloat16 if in_bf16 or settings.precision == "bf16" else torch.float32
    device = (
        _own_device(kind, distributed.launch)
        if distributed.launch and distributed.world_size > 1
        else torch.device(kind)
    )
    if settings.compile and kind == "cpu" and not _has_compiler():
        raise UserError(
            "needs a C++ compiler, and none is installed (CXX, g++ or clang++)",
            where="device.compile",
            remedy="install g++, set the variable CXX to a compiler, or set device.compile=false",
        )
    # On a GPU a compiled model is not benchmarked, because it differs from the model that would be measured.
    measured = kind == "cpu" or (in_bf16 and not settings.compile)
    return DeviceContext(device, precision, settings.compile, auto and measured, distributed)


def _has_compiler() -> bool:
    """Return True if a C++ compiler for torch.compile is found; not checked on Windows."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++"]
    return sys.platform == "win32" or any(shutil.which(name) for name in names)


def _own_device(kind: str, launch: TorchrunProcess) -> torch.device:
    """Return the device of this process; the number of a GPU is the local rank."""
    if kind == "mps":
        raise UserError("several processes cannot train on mps", "device.kind", "set device.kind: cpu")
    if kind == "cpu":
        return torch.device(kind)
    if not dist.is_nccl_available():
        raise UserError(
            f"torch {torch.__version__} was built without NCCL, which sums gradients of GPUs (gloo would copy them to "
            "the CPU and back)",
            where="device.kind: cuda",
            remedy="install a build of torch with NCCL, or set device.kind: cpu",
        )
    if launch.local_rank >= torch.cuda.device_count():
        raise UserError(
            f"torchrun started {launch.local_size} processes on a machine with {torch.cuda.device_count()} GPUs",
            remedy=f"start it with --nproc-per-node {torch.cuda.device_count()}",
        )
    device = torch.device(kind, launch.local_rank)
    torch.cuda.set_device(device)
    return device


def _keep_freed_memory() -> None:
    """Make the C library (glibc) keep freed memory.

    Each step requests the same large tensors. By default glibc returns their memory to the kernel, which must then find
    and clear each page again: a tenth to a half of the time of a step with long texts. Other C libraries are not
    changed.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
        mallopt(trim_threshold, -1)
        mallopt(mmap_threshold, 1 << 30)


def _flush_denormals() -> None:
    """Flush numbers below the smallest normal one (1e-38 in fp32) to zero, in all threads.

    A CPU computes products with such numbers slowly, and vanishing gradients produce them: an LSTM with saturated gates
    took two to three times as long for each step as at the start (docs/dev/log.md).
    """
    if float(torch.full((), 1e-39) * 1.0) == 0:
        return
    # numpy determines the smallest number when its limits are first read, and warns if that is 0; so read them before.
    for kind in (np.float32, np.float64):
        np.finfo(kind)
    # Each thread has its own flag, inherited from the thread that starts it.
    if torch.set_flush_denormal(True) and sys.platform != "win32":
        stop_threads = getattr(ctypes.CDLL(None), "omp_pause_resource_all", None)
        if stop_threads is not None:
            stop_threads(2)  # omp_pause_hard of omp.h: OpenMP starts them anew when they are needed


def derive_seed(seed: int, *path: int) -> int:
    """Derive an independent seed from a run's seed and a path of numbers.

    Dropout of each step is seeded by the number of the step. So there is no random state to save, and resuming gives
    the same numbers.

    Args:
        seed: Seed of the run.
        path: Numbers that identify a use, such as (rank, step).

    Returns:
        A seed of 63 bits.

    Example:
        >>> derive_seed(1, 0, 7) == derive_seed(1, 0, 7), derive_seed(1, 0, 7) == derive_seed(1, 0, 8)
        (True, False)
    """
    return int(np.random.SeedSequence([abs(seed), *path]).generate_state(1, np.uint64)[0] >> 1)


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the random generators of the CPU and of the device.

    `torch.manual_seed` would seed every kind of device, and for a missing device it stores the call stack, at every
    step.

    Args:
        seed: Seed, for example from `derive_seed`.
        device: Device of the training.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


class OutOfMemory(UserError):
    """A training step ran out of memory."""


def is_out_of_memory(error: Exception) -> bool:
    """Return True if an exception reports a lack of memory.

    torch has an exception class for this, but only for its GPU allocator.

    Example:
        >>> is_out_of_memory(RuntimeError("CUDA error: out of memory")), is_out_of_memory(ValueError("no"))
        (True, False)
    """
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(w in str(error) for w in _NO_MEMORY)


def strip_source_locations(error: Exception) -> str:
    """Return the first line of a torch error without the location in torch's source."""
    return str(error).strip().partition("\n")[0].rpartition("Allocator: ")[2][:200] or type(error).__name__


def parse_precision(device_context: str) -> torch.dtype | None:
    """Parse the precision at the end of a `DeviceContext` string; None if there is none.

    Example:
        >>> parse_precision("cpu, 2 threads, bf16")
        torch.bfloat16
    """
    return next((dtype for dtype, name in PRECISION_NAMES.items() if device_context.endswith(f", {name}")), None)
