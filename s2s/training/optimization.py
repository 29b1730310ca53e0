"""Optimiser, learning-rate schedule, clipping and the average of the weights."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from s2s.recipe.schema import OptimizationSettings
from s2s.training.optimizers import Group, optimizer_of


def learning_rate(update: int, settings: OptimizationSettings) -> float:
    """The rate of an update, whose number counts from 1.

    A linear warm-up, then the schedule: inverse square root (Vaswani et al. 2017, section 5.3, scaled so that the peak
    is `learning_rate`), half a cosine (Loshchilov & Hutter 2017), a line, or a constant.
    """
    warmup, peak = settings.warmup, settings.learning_rate
    if update <= warmup:
        return peak * update / warmup
    if settings.schedule == "inverse-sqrt":
        return peak * math.sqrt(max(warmup, 1) / update)
    if settings.schedule == "constant":
        return peak
    done = min(1.0, (update - warmup) / (settings.updates - warmup + 1))
    return peak * (0.5 * (1 + math.cos(math.pi * done)) if settings.schedule == "cosine" else 1 - done)


def group_of(name: str) -> str:
    """The layer that a parameter belongs to: its name up to the first number, e.g. `encoder.layers.0`."""
    numbered = re.match(r"(.*?\.\d+)\.", name)
    return numbered[1] if numbered else ".".join(name.split(".")[:2])


class Optimization:
    """An optimiser over a model's parameters, with everything that happens between gradient and new weights.

    The rate of a parameter is multiplied by its factor in `scales`, 1 where it has none.
    """

    def __init__(
        self, model: nn.Module, settings: OptimizationSettings, scales: Mapping[str, float] | None = None
    ) -> None:
        self.settings = settings
        self.names = [name for name, p in model.named_parameters() if p.requires_grad]
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
        self._groups: dict[tuple[bool, float], list[tuple[str, Tensor]]] = {}
        for name, p in zip(self.names, self.parameters, strict=True):
            shrinks = bool(settings.weight_decay or settings.l1) and p.dim() > 1 and id(p) not in embeddings
            self._groups.setdefault((shrinks, (scales or {}).get(name, 1.0)), []).append((name, p))
        self._optimizer = optimizer_of(settings)
        self._recurrent = [module for module in model.modules() if isinstance(module, nn.RNNBase)]
        self.average = [p.detach().clone() for p in self.parameters] if settings.ema else None

    def gradient_norms(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The norm of the whole gradient, and of each layer's part of it; they stay on the device."""
        groups: dict[str, list[Tensor]] = {}
        for name, p in zip(self.names, self.parameters, strict=True):
            if p.grad is not None:
                groups.setdefault(group_of(name), []).append(p.grad)
        norms = torch.stack([nn.utils.get_total_norm(gradients) for gradients in groups.values()])
        # a processor can look at them without waiting, and add them up in float64
        at_once = norms.device.type == "cpu"
        whole = (
            torch.tensor(math.sqrt(sum(n**2 for n in norms.tolist()))) if at_once else torch.linalg.vector_norm(norms)
        )
        return whole, dict(zip(groups, norms.unbind(), strict=True))

    def step(self, update: int, norm: Tensor, broken: Tensor | None = None) -> None:
        """Clips the gradient of this norm, moves the weights unless `broken` is 1, forgets the gradient."""
        clip = self.settings.clip
        if clip is not None:
            nn.utils.clip_grads_with_norm_(self.parameters, clip, norm)
        for (shrinks, scale), group in self._groups.items():
            rate = scale * learning_rate(update, self.settings)
            decay, l1 = (self.settings.weight_decay, self.settings.l1) if shrinks else (0.0, 0.0)
            decoupled = self.settings.optimizer == "adamw"
            if l1 and not decoupled:
                _add_signs(group, l1)
            self._optimizer.move(group, rate, decay, broken)
            if l1 and decoupled:
                _shrink(group, rate * l1, broken)
        self.forget_gradients()
        if self.average is not None and self.settings.ema:
            # a young average trusts the newest weights more: without this it would remember the initial ones
            decay = min(self.settings.ema, (1 + update) / (10 + update))
            get_ema_multi_avg_fn(decay)(self.average, [p.detach() for p in self.parameters], update)

    def forget_gradients(self) -> None:
        """The next gradient begins at nothing."""
        for p in self.parameters:
            p.grad = None

    def apart(self, losses: Iterable[Tensor], norms: list[Tensor]) -> Iterator[Tensor]:
        """The losses, each of which adds to the gradient as it comes; notes the norm of what each gave."""
        whole = list[Tensor | None]()
        for loss in losses:
            own = [p.grad for p in self.parameters]
            norms.append(nn.utils.get_total_norm([part for part in own if part is not None]))
            # added up as autograd would have done
            whole = [_sum(before, part) for before, part in zip(whole, own, strict=True)] if whole else own
            self.forget_gradients()
            yield loss
        for p, gradient in zip(self.parameters, whole, strict=True):
            p.grad = gradient

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Within it, the model has the averaged weights, where an average is kept."""
        if self.average is None:
            yield
            return
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for p, a in zip(self.parameters, self.average or (), strict=True):
            p.data, a.data = a.data, p.data
        # cuDNN wants the weights of a recurrent layer in one piece of memory, and made them so
        for layer in self._recurrent:
            layer.flatten_parameters()

    def state(self) -> dict[str, Tensor]:
        """What the optimiser keeps and the average, by parameter name."""
        return self._optimizer.state(self.names) | self._averages()

    def _averages(self) -> dict[str, Tensor]:
        # detached: within `averaged`, what is told here stays the average
        return {f"average.{name}": a.detach() for name, a in zip(self.names, self.average or [], strict=False)}

    @property
    def _named(self) -> Group:
        return list(zip(self.names, self.parameters, strict=True))

    def expected(self, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], set[str]]:
        """What `state` gives, in shapes and kinds, and which names may be missing: of what never had a gradient."""
        wanted, may = self._optimizer.expected(self._named, tensors)
        return wanted | self._averages(), may

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes over what `state` gave."""
        self._optimizer.load(self._named, tensors)
        for name, a in self._averages().items():
            a.copy_(tensors[name])


def _sum(before: Tensor | None, part: Tensor | None) -> Tensor | None:
    return part if before is None else before if part is None else before.add_(part)


@torch.no_grad()
def _add_signs(group: Group, l1: float) -> None:
    """Adds to each gradient that of `l1` times the sum of the absolute values."""
    for _, p in group:
        if p.grad is not None:
            p.grad.add_(p.sign(), alpha=l1)


@torch.no_grad()
def _shrink(group: Group, limit: float, broken: Tensor | None) -> None:
    """Brings each number nearer to zero by the limit, and to zero where it is less, unless `broken` is 1."""
    for _, p in group:
        if p.grad is not None:
            least = p.new_tensor(limit) if broken is None else limit * (1 - broken)
            p.copy_(p.sign() * (p.abs() - least).clamp(min=0))
