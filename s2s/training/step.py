"""Metrics of an optimizer step, read from the device when they are available, and the gradient noise scale.

The noise scale is that of McCandlish et al. 2018, "An Empirical Model of Large-Batch Training", appendix A. The
gradient of n items is the gradient of all items, G, plus noise. With independently drawn items its mean squared norm is
|G|² + S/n, where S is the trace of the covariance of one item's gradient. Both sides are known for the micro-batches of
a step and for the whole step, so |G|² and S have unbiased estimates. B_simple = S / |G|² is the number of items at
which noise and gradient have the same norm: much smaller batches are mostly noise, and much larger batches learn little
more.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Noise:
    """Unbiased noise estimates of one optimizer step; both may be negative.

    Attributes:
        spread: S, the trace of the covariance of one item's gradient.
        square: |G|², the squared norm of the gradient of all items.
    """

    spread: float
    square: float


def estimate_noise(counts: Sequence[int], squares: Sequence[float], whole: float) -> Noise:
    """Estimate the gradient noise from the micro-batches of one optimizer step.

    Args:
        counts: Items of each micro-batch; at least two micro-batches, none empty.
        squares: Squared norm of the mean gradient of each micro-batch.
        whole: Squared norm of the mean gradient over all items.

    Example:
        >>> estimate_noise(counts=[10, 10], squares=[3.0, 3.0], whole=2.0)
        Noise(spread=20.0, square=1.0)
    """
    inverse = sum(1 / count for count in counts) / len(counts)
    spread = (sum(squares) / len(squares) - whole) / (inverse - 1 / sum(counts))
    return Noise(spread, whole - spread / sum(counts))


def noise_scale(noises: Sequence[Noise]) -> float | None:
    """Compute the gradient noise scale B_simple of several steps.

    This is the ratio of the means of S and |G|², which has less noise than the mean of the ratios.

    Returns:
        The number of items; None if the mean of |G|² is not above zero, so that more steps are needed.

    Example:
        >>> noise_scale([Noise(spread=20.0, square=1.0), Noise(spread=40.0, square=2.0)])
        20.0
    """
    square = sum(noise.square for noise in noises)
    return sum(noise.spread for noise in noises) / square if square > 0 else None


class StepMetrics:
    """Loss and gradient norms of a step, transferred from the device without a sync.

    On CUDA the transfer is asynchronous; reading a number before it has arrived waits for it.

    Args:
        loss: Sum of the losses, without label smoothing.
        layer_norms: Gradient norm of each layer.
        part_norms: Gradient norm of each micro-batch, if measured.

    Example:
        >>> metrics = StepMetrics(torch.tensor(6.0), {"encoder": torch.tensor(0.5)})
        >>> metrics.loss, metrics.layer_norms, metrics.finite
        (6.0, {'encoder': 0.5}, True)
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
        """1 if a number is not finite, 0 otherwise, on the device; named as in torch.optim."""
        return (~self._on_device.isfinite()).any().float()

    @property
    def is_available(self) -> bool:
        """True if the numbers can be read without waiting."""
        return self._sent is None or self._sent.query()

    @cached_property
    def _values(self) -> list[float]:
        if self._sent is not None:
            self._sent.synchronize()
        return self._numbers.tolist()

    @property
    def finite(self) -> bool:
        """True if all numbers are finite."""
        return all(map(math.isfinite, self._values))

    @property
    def loss(self) -> float:
        """Sum of the losses, without label smoothing."""
        return self._values[0]

    @property
    def layer_norms(self) -> dict[str, float]:
        """Gradient norm of each layer."""
        return dict(zip(self._names, self._values[1:], strict=False))

    @property
    def part_norms(self) -> list[float]:
        """Gradient norm of each micro-batch; empty if not measured."""
        return self._values[1 + len(self._names) :]


@dataclass(frozen=True)
class StepResult:
    """Result of an optimizer step.

    Attributes:
        update: Number of the step, from 1 on.
        epoch: Epochs before it.
        count: Items that `loss` is the mean of.
        tokens: Real tokens that it learned from: target tokens in translation, read tokens in tasks that only read.
        seconds: Wall time; with a GPU, the CPU's time from one step to the next.
        cpu_seconds: CPU time of all threads of this process.
        learning_rate: Learning rate of this step.
        real_share: Share of real tokens in all positions of its batches.
        clip: Gradient clipping: largest norm; None for no clipping.
        measured: Loss and gradient norms; reading them may wait for the device.
        parts: Items of each micro-batch.
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

    def __repr__(self) -> str:
        numbers = f"loss={self.loss:.4g}, gradient_norm={self.gradient_norm:.4g}"
        usage = f"learning_rate={self.learning_rate:.4g}, tokens={self.tokens}, seconds={self.seconds:.4g}"
        return f"StepResult(update={self.update}, epoch={self.epoch}, {numbers}, {usage})"

    @property
    def is_available(self) -> bool:
        """True if the numbers below can be read; always False for a step that failed."""
        return self.measured.is_available and self.measured.finite

    @property
    def loss(self) -> float:
        """Mean loss before the step, without label smoothing, in nats per item.

        An item is a target token, an example or a masked token, by task.
        """
        return self.measured.loss / self.count

    @property
    def gradient_norm(self) -> float:
        """Norm of the whole gradient, before clipping."""
        return math.sqrt(sum(norm**2 for norm in self.measured.layer_norms.values()))

    @property
    def noise(self) -> Noise | None:
        """Gradient noise estimate of the micro-batches; None if not measured or possible."""
        norms = self.measured.part_norms
        if not norms or 0 in self.parts:
            return None
        # Gradients are divided by the items of the whole step; here each one must be divided by its micro-batch's
        # items.
        squares = [(norm * self.count / part) ** 2 for norm, part in zip(norms, self.parts, strict=True)]
        return estimate_noise(self.parts, squares, self.gradient_norm**2)

    @property
    def layer_norms(self) -> dict[str, float]:
        """Gradient norm of each layer."""
        return self.measured.layer_norms

    @property
    def clipped(self) -> bool:
        """True if gradient clipping was applied."""
        return self.clip is not None and self.gradient_norm > self.clip
