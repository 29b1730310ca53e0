"""Learning-rate schedule, gradient clipping, optimizer step and EMA weights."""

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
    """Compute the learning rate of a step: linear warm-up, then the schedule.

    Schedules: inverse square root (Vaswani et al. 2017, section 5.3, scaled so that the peak is `learning_rate`), half
        a
    cosine (Loshchilov & Hutter 2017), linear decay, or constant.

    Args:
        update: Number of the step, from 1 on.
        settings: `learning_rate` (peak), `warmup` (steps), `schedule`, and `updates` (steps of the run).

    Example:
        Warm-up over 4 steps to the peak, then a linear decay:

        >>> settings = OptimizationSettings(learning_rate=1.0, warmup=4, updates=9, schedule="linear")
        >>> [round(learning_rate(update, settings), 2) for update in range(1, 10)]
        [0.25, 0.5, 0.75, 1.0, 0.83, 0.67, 0.5, 0.33, 0.17]
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
    """Return the layer of a parameter: its name up to the first number.

    Example:
        >>> layer_name("encoder.layers.0.attention.query.weight"), layer_name("projection.weight")
        ('encoder.layers.0', 'projection.weight')
    """
    numbered = re.match(r"(.*?\.\d+)\.", name)
    return numbered[1] if numbered else ".".join(name.split(".")[:2])


# Output layers of all models. AdamW optimizes them and the embeddings, if the other parameters have Muon.
_OUTPUT_LAYERS = ("projection.weight", "head.weight")


class OptimizerWrapper:
    """Optimizer of a model, with gradient clipping, L1 penalty and EMA weights.

    Weight decay and L1 penalty apply to matrices other than embeddings.

    Args:
        model: Model in training; frozen parameters are not included.
        settings: Optimization settings of the recipe.
        scales: Factor of the learning rate by parameter name; 1 for names that are missing.

    Attributes:
        parameters: Trained parameters.
        average: EMA weights of these parameters; None without EMA.

    Example:
        An optimizer step on a quadratic loss:

        >>> _ = torch.manual_seed(0)
        >>> model = nn.Linear(2, 1)
        >>> optimization = OptimizerWrapper(model, OptimizationSettings(learning_rate=0.01, warmup=0))
        >>> before = model(torch.ones(2)).square()
        >>> before.sum().backward()
        >>> norm, norms_by_layer = optimization.measure_gradient_norms()
        >>> optimization.step(1, norm)
        >>> bool(model(torch.ones(2)).square() < before)
        True
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
        """Compute the gradient norms: of the whole gradient, and of each layer.

        Clipping itself is done in `step`.

        Returns:
            Norms as tensors on the device (the whole one), and by layer name.
        """
        groups: dict[str, list[Tensor]] = {}
        for name, p in zip(self.names, self.parameters, strict=True):
            if p.grad is not None:
                groups.setdefault(layer_name(name), []).append(p.grad)
        norms = torch.stack([nn.utils.get_total_norm(gradients) for gradients in groups.values()])
        # On a CPU the norms are read without a wait, and are summed in fp64.
        at_once = norms.device.type == "cpu"
        whole = (
            torch.tensor(math.sqrt(sum(n**2 for n in norms.tolist()))) if at_once else torch.linalg.vector_norm(norms)
        )
        return whole, dict(zip(groups, norms.unbind(), strict=True))

    @property
    def skips_on_device(self) -> bool:
        """True if `step` can skip a non-finite gradient on the device (`found_inf`).

        The host then does not wait for the device.
        """
        return all(map(skips_on_device, self.optimizers))

    def step(self, update: int, norm: Tensor, found_inf: Tensor | None = None) -> None:
        """Clip the gradient, update the weights, clear the gradient, update the EMA weights.

        Args:
            update: Number of this step, from 1 on.
            norm: Norm of the whole gradient, before clipping.
            found_inf: 1 if the gradient is not finite; the weights then stay unchanged. Only if `skips_on_device`.
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
            # A smaller decay for the first steps; otherwise the average would contain the initial weights for long.
            decay = min(self.settings.ema, (1 + update) / (10 + update))
            get_ema_multi_avg_fn(decay)(self.average, [p.detach() for p in self.parameters], update)

    def zero_grad(self) -> None:
        """Clear the gradients."""
        for p in self.parameters:
            p.grad = None

    def per_microbatch_grad_norms(self, losses: Iterable[Tensor], norms: list[Tensor]) -> Iterator[Tensor]:
        """Measure the gradient norm of each micro-batch during gradient accumulation.

        Args:
            losses: Iterator that computes the gradient of a micro-batch before it yields its loss.
            norms: List to which the norm of each micro-batch is appended.

        Yields:
            The losses. At the end, the parameters have the accumulated gradient.
        """
        whole = list[Tensor | None]()
        for loss in losses:
            own = [p.grad for p in self.parameters]
            norms.append(nn.utils.get_total_norm([part for part in own if part is not None]))
            # Summed in the order of autograd.
            whole = [_sum(before, part) for before, part in zip(whole, own, strict=True)] if whole else own
            self.zero_grad()
            yield loss
        for p, gradient in zip(self.parameters, whole, strict=True):
            p.grad = gradient

    @contextmanager
    def use_ema_weights(self) -> Iterator[None]:
        """Use the EMA weights in the model, as a context manager; no effect without EMA."""
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
        # cuDNN needs the weights of a recurrent layer in contiguous memory.
        for layer in self._recurrent:
            layer.flatten_parameters()

    def state(self) -> dict[str, Tensor]:
        """Return the state of the optimizers and the EMA weights, by parameter name."""
        return self._saved.tensors() | self._averages()

    def _averages(self) -> dict[str, Tensor]:
        # Detached, so that these tensors remain the EMA weights inside of `use_ema_weights`.
        return {f"average.{name}": a.detach() for name, a in zip(self.names, self.average or [], strict=False)}

    def expected(self, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], set[str]]:
        """Describe the state that a checkpoint must contain.

        Args:
            tensors: Tensors of the checkpoint.

        Returns:
            Tensors with the names, shapes and data types of `state`, and the names that may be missing, because their
            parameter never had a gradient.
        """
        wanted, may = self._saved.expected(set(tensors))
        return wanted | self._averages(), may

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state that `state` returned."""
        self._saved.load(dict(tensors))
        for name, a in self._averages().items():
            a.copy_(tensors[name])


def _sum(before: Tensor | None, part: Tensor | None) -> Tensor | None:
    return part if before is None else before if part is None else before.add_(part)


@torch.no_grad()
def _add_signs(parameters: Iterable[Tensor], l1: float) -> None:
    """Add the gradient of the L1 penalty: `l1` times the sign of each weight."""
    for p in parameters:
        if p.grad is not None:
            p.grad.add_(p.sign(), alpha=l1)


@torch.no_grad()
def _shrink(parameters: Iterable[Tensor], limit: float, found_inf: Tensor | None) -> None:
    """Move each weight towards zero by at most the limit, unless `found_inf` is 1."""
    for p in parameters:
        if p.grad is not None:
            least = p.new_tensor(limit) if found_inf is None else limit * (1 - found_inf)
            p.copy_(p.sign() * (p.abs() - least).clamp(min=0))
