"""What computes: device, precision, threads, and seeds that need no saved state."""

import ctypes
import os
import resource
import shutil
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist

from s2s.errors import UserError
from s2s.launch import TorchrunProcess
from s2s.nn.precision import autocast_matmul
from s2s.recipe.schema import DeviceSettings
from s2s.training.distributed import SINGLE_PROCESS, Distributed

PRECISION_NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16"}
"""How a precision is written."""
# threads that are accepted on any machine, and for each core of a larger one
_THREADS, _THREADS_OF_CORE = 64, 4
# what a processor's allocator says, CUDA itself, and its library of matrix products
_NO_MEMORY = ("allocate memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


@dataclass(frozen=True)
class DeviceContext:
    """A chosen device and precision.

    Attributes:
        device: where tensors live.
        precision: of matrix products in training; weights are fp32 always, and searches as `decoding.precision` says.
        compile: whether the model is compiled for training.
        undecided: whether the precision is to be found by measuring (`s2s.training.precision`); until then it is fp32
            on a processor and bf16 on a GPU.
        ranks: the processes that train together, each on a device of its own.
    """

    device: torch.device
    precision: torch.dtype
    compile: bool = False
    autoselect_precision: bool = False
    distributed: Distributed = SINGLE_PROCESS

    def mixed_precision(self) -> AbstractContextManager[None]:
        """Within it, matrix products run in the chosen precision."""
        return autocast_matmul(self.precision, self.device)

    def peak_memory(self) -> int:
        """Most memory held so far, in bytes: tensors on a GPU, and everything in this process elsewhere."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

    def __str__(self) -> str:
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type
        threads = f", {torch.get_num_threads()} threads" if self.device.type == "cpu" else ""
        precision = "" if self.autoselect_precision else f", {PRECISION_NAMES[self.precision]}"
        processes = f", {self.distributed.world_size} processes" if self.distributed.world_size > 1 else ""
        return f"{name}{threads}{processes}{precision}"


def setup_process(settings: DeviceSettings) -> None:
    """Makes this process one that computes as a recipe asks: its threads, its memory, and whether its bits are fixed.

    On a GPU torch's own kernels compute attention, not cuDNN's. Numbers too small to be normal are 0 from then on.

    Called once by each command and each worker, before anything is computed; nothing else changes these. Where
    `threads` is null, they stay as they are.

    Raises:
        UserError: More threads are asked for than this machine can use; OpenMP ends the process at some thousand.
    """
    if settings.threads:
        most = max(_THREADS, _THREADS_OF_CORE * (os.cpu_count() or 1))
        if settings.threads > most:
            raise UserError(
                f"is {settings.threads:,}, but this machine has {os.cpu_count()} processor cores",
                where="device.threads",
                remedy=f"set a number up to {most}, or leave it out to use all cores",
            )
        torch.set_num_threads(settings.threads)
    if settings.deterministic:
        # read by cuBLAS when it is first used: without it, its products may differ from one call to the next
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if settings.deterministic != torch.are_deterministic_algorithms_enabled():
        # imports torch's compiler: a second that only those pay who ask
        torch.use_deterministic_algorithms(settings.deterministic)
    # cuDNN plans attention anew for every shape, and hardly two batches share one: 334 ms a step instead of 64
    # (docs/dev/log.md)
    torch.backends.cuda.enable_cudnn_sdp(False)
    _keep_freed_memory()
    _flush_denormals()


def select_device(settings: DeviceSettings, distributed: Distributed = SINGLE_PROCESS) -> DeviceContext:
    """The device and precision that a recipe asks for; changes nothing, but which GPU is one of several processes' own.

    Raises:
        UserError: the recipe asks for a device or a precision that is not here, or several processes cannot use it.
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
            "is true, but no C++ compiler is installed (CXX, g++ or clang++)",
            where="device.compile",
            remedy="install g++, name a compiler in the variable CXX, or set device.compile=false",
        )
    # a compiled model is not measured on a GPU: it is another one
    measured = kind == "cpu" or (in_bf16 and not settings.compile)
    return DeviceContext(device, precision, settings.compile, auto and measured, distributed)


def _has_compiler() -> bool:
    """Check for what torch.compile needs on a CPU; Windows has another one."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++"]
    return sys.platform == "win32" or any(shutil.which(name) for name in names)


def _own_device(kind: str, launch: TorchrunProcess) -> torch.device:
    """That of one of several processes: of GPUs, each takes the one of its number on its machine."""
    if kind == "mps":
        raise UserError("several processes cannot train on mps", "device.kind", "set device.kind: cpu")
    if kind == "cpu":
        return torch.device(kind)
    if not dist.is_nccl_available():
        raise UserError(
            f"torch {torch.__version__} was built without nccl, by which GPUs add up gradients (gloo would copy each "
            "to the processor and back)",
            where="device.kind: cuda",
            remedy="install a build of torch with nccl, or set device.kind: cpu",
        )
    if launch.local_rank >= torch.cuda.device_count():
        raise UserError(
            f"torchrun started {launch.local_size} processes on a machine with {torch.cuda.device_count()} GPUs",
            remedy=f"--nproc-per-node {torch.cuda.device_count()}",
        )
    device = torch.device(kind, launch.local_rank)
    torch.cuda.set_device(device)
    return device


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


def _flush_denormals() -> None:
    """Makes numbers below the smallest normal one (1e-38 in fp32) zeros, in all threads.

    A processor takes its slow path for a product with one of them, and gradients that vanish become such numbers: an
    LSTM whose gates were saturated took twice to three times as long for each step as it did at first
    (docs/dev/log.md).
    """
    if float(torch.full((), 1e-39) * 1.0) == 0:
        return
    # numpy looks for the smallest number when first asked for its limits, and warns where it is 0
    for kind in (np.float32, np.float64):
        np.finfo(kind)
    # each thread has a switch of its own, and takes over that of the thread which starts it
    if torch.set_flush_denormal(True) and sys.platform != "win32":
        stop_threads = getattr(ctypes.CDLL(None), "omp_pause_resource_all", None)
        if stop_threads is not None:
            stop_threads(2)  # omp_pause_hard of omp.h: OpenMP starts them anew when they are needed


def derive_seed(seed: int, *path: int) -> int:
    """A seed for one place in a run, such as (rank, update), independent of all others.

    Every update's dropout is seeded by its own number, so there is no random state to save: resuming is arithmetic.
    """
    return int(np.random.SeedSequence([abs(seed), *path]).generate_state(1, np.uint64)[0] >> 1)


def seed_generators(seed: int, device: torch.device) -> None:
    """Seeds what draws at random on a device: the processor's generator, and the device's own where it has one.

    `torch.manual_seed` seeds every kind of device, and of one that is not there it notes who asked: the whole stack,
    at every update, and keeps it.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


def is_out_of_memory(error: Exception) -> bool:
    """Whether it says that memory has run out; torch has a class of its own for its GPU allocator's alone."""
    said = str(error)
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(words in said for words in _NO_MEMORY)


def strip_source_locations(error: Exception) -> str:
    """What such an error says to a user: its first line, without the place in torch where it was found."""
    return str(error).strip().partition("\n")[0].rpartition("Allocator: ")[2][:200] or type(error).__name__


def parse_precision(device_context: str) -> torch.dtype | None:
    """The precision that a written `Computer` names; None where it names none."""
    return next((dtype for dtype, name in PRECISION_NAMES.items() if device_context.endswith(f", {name}")), None)
