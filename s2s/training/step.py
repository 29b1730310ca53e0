"""What one update did, and what the device found at it, which is read when it is there."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from s2s.training.noise import Noise, estimate_noise


class StepMetrics:
    """The loss of an update, and the norms of its gradient: read when they are asked for.

    A CUDA device sends them by itself, and only who asks too early waits.
    """

    def __init__(self, loss: Tensor, layer_norms: Mapping[str, Tensor], part_norms: Sequence[Tensor] = ()) -> None:
        self._names = list(layer_norms)
        self._on_device = torch.cat([number.view(1) for number in (loss, *layer_norms.values(), *part_norms)])
        self._numbers = self._on_device
        self._sent: torch.cuda.Event | None = None
        if self._on_device.device.type == "cuda":
            self._numbers = torch.empty(self._on_device.shape, dtype=self._on_device.dtype, pin_memory=True)
            self._numbers.copy_(self._on_device, non_blocking=True)
            self._sent = torch.cuda.Event()
            self._sent.record()

    @property
    def found_inf(self) -> Tensor:
        """1 where one of them is not finite, 0 otherwise, on the device; named as in torch.optim."""
        return (~self._on_device.isfinite()).any().float()

    @property
    def is_available(self) -> bool:
        """Whether to ask for the numbers is not to wait."""
        return self._sent is None or self._sent.query()

    @cached_property
    def _values(self) -> list[float]:
        if self._sent is not None:
            self._sent.synchronize()
        return self._numbers.tolist()

    @property
    def finite(self) -> bool:
        """Whether all of them are finite."""
        return all(map(math.isfinite, self._values))

    @property
    def loss(self) -> float:
        """The plain loss, summed."""
        return self._values[0]

    @property
    def layer_norms(self) -> dict[str, float]:
        """The gradient's norm, layer by layer."""
        return dict(zip(self._names, self._values[1:], strict=False))

    @property
    def part_norms(self) -> list[float]:
        """The norm of what each micro-batch gave to the gradient, where it was asked for."""
        return self._values[1 + len(self._names) :]


@dataclass(frozen=True)
class StepResult:
    """What one update did.

    Attributes:
        update: its number, from 1 on.
        epoch: passes over the data before it.
        count: items that `loss` is the mean of.
        tokens: real tokens it learned from: target tokens in translation, those read in tasks that only read.
        seconds: how long it took; where a GPU computes, the processor's time from one update to the next.
        cpu_seconds: of all processor threads of this process together.
        learning_rate: of this step.
        real_share: real tokens among all positions of its batches.
        clip: the longest gradient allowed; None where any is.
        measured: what the device found; to ask for it is to wait for the device.
        parts: items of each micro-batch.
    """

    update: int
    epoch: int
    count: int
    tokens: int
    seconds: float
    cpu_seconds: float
    learning_rate: float
    real_share: float
    clip: float | None
    measured: StepMetrics
    parts: tuple[int, ...] = ()

    @property
    def is_available(self) -> bool:
        """Whether the numbers below are there; those of an update that fails never are."""
        return self.measured.is_available and self.measured.finite

    @property
    def loss(self) -> float:
        """The plain loss, in nats per item (target token, example or masked token, by task), before the step."""
        return self.measured.loss / self.count

    @property
    def gradient_norm(self) -> float:
        """Of the whole gradient, before clipping."""
        return math.sqrt(sum(norm**2 for norm in self.layer_norms.values()))

    @property
    def layer_norms(self) -> dict[str, float]:
        """The gradient's norm, layer by layer."""
        return self.measured.layer_norms

    @property
    def noise(self) -> Noise | None:
        """What the micro-batches say of the gradient's noise; None where it is not measured, or cannot be."""
        norms = self.measured.part_norms
        if not norms or 0 in self.parts:
            return None
        # the gradient is divided by the items of the update, and here each micro-batch's by its own
        squares = [(norm * self.count / part) ** 2 for norm, part in zip(norms, self.parts, strict=True)]
        return estimate_noise(self.parts, squares, self.gradient_norm**2)

    @property
    def clipped(self) -> bool:
        """Whether the gradient was longer than allowed."""
        return self.clip is not None and self.gradient_norm > self.clip
