"""What computes: device, precision, threads, and seeds that need no saved state.

Which precision is the faster one for a model on this processor is found by measuring, not by asking it: one may say
that it knows bf16 and be twice as slow in it. What counts is the unit that multiplies matrices (AMX, or eight times as
many lanes as in fp32), and no flag tells how fast that is.
"""

import ctypes
import os
import resource
import sys
import time
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from s2s.errors import UserError
from s2s.launch import Launch
from s2s.nn.precision import products_in
from s2s.recipe.schema import DeviceSettings
from s2s.training.ranks import ALONE, Ranks

# floating-point operations of one pass over all shapes: some hundredths of a second on a slow core
_WORK = 1e9
# of a larger matrix a part tells the same
_LARGEST = 2048
_ROUNDS = 3
_PATIENCE = 0.3

NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16"}
"""How a precision is written."""


@dataclass(frozen=True)
class Computer:
    """A chosen device and precision.

    Attributes:
        device: where tensors live.
        precision: of matrix products in training; weights are fp32 always, and searches as `decoding.precision` says.
        compile: whether the model is compiled for training.
        undecided: whether the precision is to be found by measuring (`measure`); fp32 until then.
        ranks: the processes that train together, each on a device of its own.
        shard: whether they split the model among them.
    """

    device: torch.device
    precision: torch.dtype
    compile: bool = False
    undecided: bool = False
    ranks: Ranks = ALONE
    shard: bool = False

    @property
    def begins_on(self) -> torch.device:
        """Where the model is made: on the processor where it is to be split, as it need not fit on the device."""
        return torch.device("cpu") if self.shard else self.device

    def mixed_precision(self) -> AbstractContextManager[None]:
        """Within it, matrix products run in the chosen precision."""
        return products_in(self.precision, self.device)

    def peak_memory(self) -> int:
        """Most memory held so far, in bytes: tensors on a GPU, and everything in this process elsewhere."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

    def __str__(self) -> str:
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type
        threads = f", {torch.get_num_threads()} threads" if self.device.type == "cpu" else ""
        precision = "" if self.undecided else f", {NAMES[self.precision]}"
        processes = f", {self.ranks.size} processes" if self.ranks.size > 1 else ""
        processes += ", sharded" if self.shard else ""
        return f"{name}{threads}{processes}{precision}"


def prepare_process(settings: DeviceSettings) -> None:
    """Makes this process one that computes as a recipe asks: its threads, its memory, and whether its bits are fixed.

    Called once by each command and each worker, before anything is computed; nothing else changes these. Where
    `threads` is null, they stay as they are.
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


def choose(settings: DeviceSettings, ranks: Ranks = ALONE) -> Computer:
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
    device = _own_device(kind, ranks.launch) if ranks.launch and ranks.size > 1 else torch.device(kind)
    shard = settings.shard and ranks.size > 1
    if shard and settings.compile:
        raise UserError(
            "is true, and so is device.shard: what is gathered while it is computed is not compiled here",
            where="device.compile",
            remedy="set device.compile=false or device.shard=false",
        )
    return Computer(device, precision, settings.compile, auto and kind == "cpu", ranks, shard)


def _own_device(kind: str, launch: Launch) -> torch.device:
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


def seed_for(seed: int, *path: int) -> int:
    """A seed for one place in a run, such as (rank, update), independent of all others.

    Every update's dropout is seeded by its own number, so there is no random state to save: resuming is arithmetic.
    """
    return int(np.random.SeedSequence([abs(seed), *path]).generate_state(1, np.uint64)[0] >> 1)


def seed_generators(seed: int, device: torch.device) -> None:
    """Seeds what draws at random on a device; on a processor alone in a hundredth of the time that torch takes.

    `torch.manual_seed` seeds every kind of device, and of one that is not there it notes who asked: the whole stack.
    """
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)


@dataclass(frozen=True)
class ProductTimes:
    """How long the products of a model's layers took, forward and backward, in seconds of the processor."""

    fp32: float
    bf16: float
    rows: int
    threads: int

    @property
    def faster(self) -> torch.dtype:
        """The precision that took less."""
        return torch.bfloat16 if self.bf16 < self.fp32 else torch.float32

    def __str__(self) -> str:
        fast, slow = sorted((self.fp32, self.bf16))
        name, other = ("bf16", "fp32") if self.bf16 < self.fp32 else ("fp32", "bf16")
        return f"{name}: its products take {fast / slow:.2f} of {other}'s time here"


def precision_of(computer: str) -> torch.dtype | None:
    """The precision that a written `Computer` names; None where it names none."""
    return next((dtype for dtype, name in NAMES.items() if computer.endswith(f", {name}")), None)


def measure(model: nn.Module, rows: int) -> ProductTimes:
    """Multiplies matrices of the model's shapes, forward and backward, in both precisions, in turn.

    It takes less than half a second on an idle machine, and touches neither weights nor gradients nor the state of any
    generator. The model is on a processor; fewer positions than the batch's are taken where that is too much work.
    """
    shapes = Counter((min(len(w), _LARGEST), min(w.shape[1], _LARGEST)) for w in _weights(model))
    work = sum(6 * out * into for out, into in shapes) or 1
    rows = max(16, min(rows, int(_WORK / work)))
    operands = [(count, torch.ones(rows, into), torch.ones(out, into)) for (out, into), count in shapes.items()]
    best, started = dict.fromkeys(NAMES, float("inf")), time.perf_counter()
    for done in range(_ROUNDS):
        # the first round compiles kernels; a second one is the least that tells
        if done > 1 and time.perf_counter() - started > _PATIENCE:
            break
        for dtype in NAMES:
            best[dtype] = min(best[dtype], sum(count * _seconds(x, weight, dtype) for count, x, weight in operands))
    return ProductTimes(best[torch.float32], best[torch.bfloat16], rows, torch.get_num_threads())


def _weights(model: nn.Module) -> list[Tensor]:
    """The matrices that states are multiplied with, once each; tables that are only looked up are none."""
    linear = [m.weight for m in model.modules() if isinstance(m, nn.Linear)]
    recurrent = [m for m in model.modules() if isinstance(m, nn.RNNBase)]
    return linear + [p for m in recurrent for p in m.parameters() if p.dim() == 2]


def _seconds(x: Tensor, weight: Tensor, dtype: torch.dtype) -> float:
    # of the processor, so that others who use the machine do not decide
    started = time.process_time()
    with torch.enable_grad(), torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        leaves = x.detach().requires_grad_(), weight.detach().requires_grad_()
        y = nn.functional.linear(*leaves)
        torch.autograd.grad(y, leaves, torch.ones_like(y))
    return time.process_time() - started
