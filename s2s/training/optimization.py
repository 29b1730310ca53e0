"""Optimiser, learning-rate schedule, clipping and the average of the weights."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from s2s.recipe.schema import OptimizationSettings
from s2s.training.optimizers import SavedState, build_optimizers, skips_on_device, step


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


def layer_name(name: str) -> str:
    """The layer that a parameter belongs to: its name up to the first number, e.g. `encoder.layers.0`."""
    numbered = re.match(r"(.*?\.\d+)\.", name)
    return numbered[1] if numbered else ".".join(name.split(".")[:2])


# names of the output layers of all models: Muon leaves them, as it leaves embeddings, to AdamW
_OUTPUT_LAYERS = ("projection.weight", "head.weight")


class OptimizerWrapper:
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
        groups: dict[tuple[bool, float], list[tuple[str, nn.Parameter]]] = {}
        for name, p in zip(self.names, self.parameters, strict=True):
            shrinks = bool(settings.weight_decay or settings.l1) and p.dim() > 1 and id(p) not in embeddings
            groups.setdefault((shrinks, (scales or {}).get(name, 1.0)), []).append((name, p))
        matrices = {
            id(p)
            for name, p in zip(self.names, self.parameters, strict=True)
            if p.dim() == 2 and id(p) not in embeddings and name not in _OUTPUT_LAYERS
        }
        decay, l1 = settings.weight_decay, settings.l1
        self.optimizers = build_optimizers(
            settings,
            [
                {"params": named, "scale": scale, "weight_decay": decay * shrinks, "l1": l1 * shrinks}
                for (shrinks, scale), named in groups.items()
            ],
            matrices,
        )
        self._saved = SavedState(self.optimizers)
        self._recurrent = [module for module in model.modules() if isinstance(module, nn.RNNBase)]
        self.average = [p.detach().clone() for p in self.parameters] if settings.ema else None

    def measure_gradient_norms(self) -> tuple[Tensor, dict[str, Tensor]]:
        """The norm of the whole gradient, and of each layer's part of it; they stay on the device."""
        groups: dict[str, list[Tensor]] = {}
        for name, p in zip(self.names, self.parameters, strict=True):
            if p.grad is not None:
                groups.setdefault(layer_name(name), []).append(p.grad)
        norms = torch.stack([nn.utils.get_total_norm(gradients) for gradients in groups.values()])
        # a processor can look at them without waiting, and add them up in float64
        at_once = norms.device.type == "cpu"
        whole = (
            torch.tensor(math.sqrt(sum(n**2 for n in norms.tolist()))) if at_once else torch.linalg.vector_norm(norms)
        )
        return whole, dict(zip(groups, norms.unbind(), strict=True))

    @property
    def skips_on_device(self) -> bool:
        """Return whether `step` can leave the weights unchanged without waiting for the device; see `found_inf`."""
        return all(map(skips_on_device, self.optimizers))

    def step(self, update: int, norm: Tensor, found_inf: Tensor | None = None) -> None:
        """Clip the gradient, move the weights, drop the gradient, and update the EMA weights.

        Args:
            update: number of this step, from 1 on.
            norm: of the whole gradient, before clipping.
            found_inf: 1 where the gradient is not finite: the weights then stay; only if `skips_on_device`.
        """
        clip = self.settings.clip
        if clip is not None:
            nn.utils.clip_grads_with_norm_(self.parameters, clip, norm)
        decoupled = self.settings.optimizer in ("adamw", "muon")
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["scale"] * learning_rate(update, self.settings)
                if group["l1"] and not decoupled:
                    _add_signs(group["params"], group["l1"])
            step(optimizer, found_inf)
            for group in optimizer.param_groups:
                if group["l1"] and decoupled:
                    _shrink(group["params"], group["lr"] * group["l1"], found_inf)
        self.zero_grad()
        if self.average is not None and self.settings.ema:
            # a young average trusts the newest weights more: without this it would remember the initial ones
            decay = min(self.settings.ema, (1 + update) / (10 + update))
            get_ema_multi_avg_fn(decay)(self.average, [p.detach() for p in self.parameters], update)

    def zero_grad(self) -> None:
        """The next gradient begins at nothing."""
        for p in self.parameters:
            p.grad = None

    def per_microbatch_grad_norms(self, losses: Iterable[Tensor], norms: list[Tensor]) -> Iterator[Tensor]:
        """The losses, each of which adds to the gradient as it comes; notes the norm of what each gave."""
        whole = list[Tensor | None]()
        for loss in losses:
            own = [p.grad for p in self.parameters]
            norms.append(nn.utils.get_total_norm([part for part in own if part is not None]))
            # added up as autograd would have done
            whole = [_sum(before, part) for before, part in zip(whole, own, strict=True)] if whole else own
            self.zero_grad()
            yield loss
        for p, gradient in zip(self.parameters, whole, strict=True):
            p.grad = gradient

    @contextmanager
    def use_ema_weights(self) -> Iterator[None]:
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
        """State of the optimizers and EMA weights, by parameter name."""
        return self._saved.tensors() | self._averages()

    def _averages(self) -> dict[str, Tensor]:
        # detached: within `averaged`, what is told here stays the average
        return {f"average.{name}": a.detach() for name, a in zip(self.names, self.average or [], strict=False)}

    def expected(self, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], set[str]]:
        """What `state` gives, in shapes and kinds, and which names may be missing: of what never had a gradient."""
        wanted, may = self._saved.expected(set(tensors))
        return wanted | self._averages(), may

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes over what `state` gave."""
        self._saved.load(dict(tensors))
        for name, a in self._averages().items():
            a.copy_(tensors[name])


def _sum(before: Tensor | None, part: Tensor | None) -> Tensor | None:
    return part if before is None else before if part is None else before.add_(part)


@torch.no_grad()
def _add_signs(parameters: Iterable[Tensor], l1: float) -> None:
    """Adds to each gradient that of `l1` times the sum of the absolute values."""
    for p in parameters:
        if p.grad is not None:
            p.grad.add_(p.sign(), alpha=l1)


@torch.no_grad()
def _shrink(parameters: Iterable[Tensor], limit: float, found_inf: Tensor | None) -> None:
    """Brings each number nearer to zero by the limit, and to zero where it is less, unless `found_inf` is 1."""
    for p in parameters:
        if p.grad is not None:
            least = p.new_tensor(limit) if found_inf is None else limit * (1 - found_inf)
            p.copy_(p.sign() * (p.abs() - least).clamp(min=0))
