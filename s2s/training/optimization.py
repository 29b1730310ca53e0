"""Optimizers of torch.optim built from a recipe, learning-rate schedule, gradient clipping, L1 penalty and EMA."""

import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.optim import Optimizer
from torch.optim.swa_utils import get_ema_multi_avg_fn

from s2s.errors import UserError
from s2s.recipe.schema import OptimizationSettings, OptimizerName, ScheduleName
from s2s.recipe.wording import suggestion
from s2s.training.muon import Muon


@dataclass(frozen=True)
class _Optimizer:
    """An optimizer of the recipe.

    Attributes:
        kind: Its class.
        arguments: Key of the recipe by argument of the class, besides `lr` and `weight_decay`.
        fixed: Arguments that are the same for all recipes. A fused kernel skips the update on the device if `found_inf`
            is 1. For the others, the CPU has to wait for the result and skip it.
        decoupled: The L1 penalty is applied after the step instead of in the gradient, as is the class's weight decay.
        others: Optimizer of all parameters except the matrices of hidden layers; None: this one.
    """

    kind: type[Optimizer]
    arguments: Mapping[str, str]
    fixed: Mapping[str, object] = field(default_factory=dict)
    decoupled: bool = False
    others: OptimizerName | None = None


_ADAM = {"betas": "betas", "eps": "epsilon"}
_EPSILON = {"eps": "epsilon"}
_MOMENTUM = {"momentum": "momentum", "nesterov": "nesterov"}
_FUSED = {"fused": True}
# Steps as large as AdamW's, so that both optimizers have the same learning rate (Liu et al. 2025).
_AS_LARGE_AS_ADAMW = {"adjust_lr_fn": "match_rms_adamw"}
# `s2s.recipe.schema` lists the optimizers that use a key.
_OPTIMIZERS: dict[OptimizerName, _Optimizer] = {
    "adam": _Optimizer(optim.Adam, _ADAM, _FUSED),
    "adamw": _Optimizer(optim.AdamW, _ADAM, _FUSED, decoupled=True),
    "sgd": _Optimizer(optim.SGD, _MOMENTUM, _FUSED),
    "muon": _Optimizer(Muon, _MOMENTUM, _AS_LARGE_AS_ADAMW, decoupled=True, others="adamw"),
    "adadelta": _Optimizer(optim.Adadelta, _EPSILON),
    "adafactor": _Optimizer(optim.Adafactor, {}, decoupled=True),
    "adagrad": _Optimizer(optim.Adagrad, _EPSILON),
    "adamax": _Optimizer(optim.Adamax, _ADAM),
    "asgd": _Optimizer(optim.ASGD, {}),
    "nadam": _Optimizer(optim.NAdam, _ADAM),
    "radam": _Optimizer(optim.RAdam, _ADAM),
    "rmsprop": _Optimizer(optim.RMSprop, {"eps": "epsilon", "momentum": "momentum"}),
    "rprop": _Optimizer(optim.Rprop, {}),
}
# Output layers of all models.
_OUTPUT_LAYERS = ("projection.weight", "head.weight")


def learning_rate(update: int, settings: OptimizationSettings) -> float:
    """Compute the learning rate of a step: linear warm-up, then the learning-rate schedule.

    Schedules: inverse square root (Vaswani et al. 2017, section 5.3, scaled so that the peak is `learning_rate`), half
    a cosine (Loshchilov & Hutter 2017), linear decay, or constant.

    Args:
        update: Number of the step, from 1 on.
        settings: `learning_rate` (peak), `warmup` (steps), `schedule`, and `updates` (steps of the run).

    Example:
        Warm-up over 4 steps to the peak, then a linear decay:

        >>> settings = OptimizationSettings(learning_rate=1.0, warmup=4, updates=9, schedule="linear")
        >>> [round(learning_rate(update, settings), 2) for update in range(1, 10)]
        [0.25, 0.5, 0.75, 1.0, 0.83, 0.67, 0.5, 0.33, 0.17]
    """
    if update <= settings.warmup:
        return settings.learning_rate * update / settings.warmup
    return settings.learning_rate * _SCHEDULES[settings.schedule](update, settings)


def _decayed(update: int, settings: OptimizationSettings) -> float:
    """Return the share of the decay that is done: 0 at the end of the warm-up, 1 at the step after the last one."""
    return min(1.0, (update - settings.warmup) / (settings.updates - settings.warmup + 1))


# Share of the peak learning rate at a step after the warm-up. Schedules that read `updates` also belong to
# `OptimizationSettings.depends_on_updates`.
_SCHEDULES: dict[ScheduleName, Callable[[int, OptimizationSettings], float]] = {
    "inverse-sqrt": lambda update, settings: math.sqrt(max(settings.warmup, 1) / update),
    "cosine": lambda update, settings: 0.5 * (1 + math.cos(math.pi * _decayed(update, settings))),
    "linear": lambda update, settings: 1 - _decayed(update, settings),
    "constant": lambda update, settings: 1.0,
}


def layer_name(name: str) -> str:
    """Return the layer of a parameter: its name up to the first number, or its first two parts without a number.

    Example:
        >>> layer_name("encoder.layers.0.attention.query.weight")
        'encoder.layers.0'
        >>> layer_name("decoder.embedding.tokens.weight"), layer_name("projection.weight")
        ('decoder.embedding', 'projection.weight')
    """
    numbered = re.match(r"(.*?\.\d+)\.", name)
    return numbered[1] if numbered else ".".join(name.split(".")[:2])


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Exclude parameters from training by their names (`training.freeze`).

    Args:
        model: Model whose parameters are frozen, in place.
        patterns: Names of parameters or modules with `*` as a wildcard: `encoder.layers.0`, `*.embedding`, `*.bias`. A
            module's name freezes all its parameters. A tied tensor has several names, and any of them freezes it.

    Raises:
        UserError: A pattern matches nothing, or no parameter remains to train.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        >>> freeze(model, ["0", "*.bias"])
        >>> [name for name, p in model.named_parameters() if p.requires_grad]
        ['1.weight']
    """
    named = list(model.named_parameters(remove_duplicate=False))
    for pattern in patterns:
        found = []
        for name, p in named:
            parts = name.split(".")
            if any(fnmatchcase(".".join(parts[:depth]), pattern) for depth in range(1, len(parts) + 1)):
                found.append(p)
        if not found:
            groups = list(dict.fromkeys(layer_name(name) for name, _ in named))
            raise UserError(
                f"{pattern!r} matches no parameter of the model", "training.freeze", suggestion(pattern, groups)
            )
        for p in found:
            p.requires_grad_(False)
    if patterns and not any(p.requires_grad for _, p in named):
        raise UserError("all parameters are frozen", "training.freeze", "remove one of its patterns")


class OptimizerWrapper:
    """Optimizer of a model, with gradient clipping, L1 penalty and EMA weights.

    Weight decay and L1 penalty apply to matrices other than embeddings. With `optimizer: muon` there are two
    optimizers: Muon for the matrices of hidden layers, AdamW for all other parameters.

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
        # Parameters of a group share optimizer, weight decay and scale of the learning rate. torch keeps the additional
        # keys `scale` and `l1`, which `step` reads.
        others = _OPTIMIZERS[settings.optimizer].others or settings.optimizer
        groups: dict[OptimizerName, dict[tuple[bool, float], list[tuple[str, nn.Parameter]]]]
        groups = {settings.optimizer: {}, others: {}}
        for name, p in zip(self.names, self.parameters, strict=True):
            is_hidden_matrix = p.dim() == 2 and id(p) not in embeddings and name not in _OUTPUT_LAYERS
            kind = settings.optimizer if is_hidden_matrix else others
            decays = bool(settings.weight_decay or settings.l1) and p.dim() > 1 and id(p) not in embeddings
            groups[kind].setdefault((decays, (scales or {}).get(name, 1.0)), []).append((name, p))
        self.optimizers = [
            _build(
                kind,
                settings,
                [
                    {
                        "params": named,
                        "scale": scale,
                        "weight_decay": settings.weight_decay * decays,
                        "l1": settings.l1 * decays,
                    }
                    for (decays, scale), named in own.items()
                ],
            )
            for kind, own in groups.items()
            if own
        ]
        self._initial_states: dict[tuple[str, torch.Size, torch.dtype], dict[str, Tensor]] = {}
        self._recurrent = [module for module in model.modules() if isinstance(module, nn.RNNBase)]
        self.average = [p.detach().clone() for p in self.parameters] if settings.ema else None

    def measure_gradient_norms(self) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the norm of the whole gradient, which `step` clips, and of each layer's, on the device."""
        groups: dict[str, list[Tensor]] = {}
        for name, p in zip(self.names, self.parameters, strict=True):
            if p.grad is not None:
                groups.setdefault(layer_name(name), []).append(p.grad)
        norms = torch.stack([nn.utils.get_total_norm(gradients) for gradients in groups.values()])
        if norms.device.type == "cpu":
            # Summed in fp64, as Python numbers. On a GPU, reading them would wait until they are computed.
            whole = torch.tensor(math.sqrt(sum(n**2 for n in norms.tolist())))
        else:
            whole = torch.linalg.vector_norm(norms)
        return whole, dict(zip(groups, norms.unbind(), strict=True))

    @property
    def skips_on_device(self) -> bool:
        """True if `step` can skip a non-finite gradient on the device (`found_inf`), so that the CPU need not wait."""
        return all(optimizer.defaults.get("fused") for optimizer in self.optimizers)

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
        decoupled = _OPTIMIZERS[self.settings.optimizer].decoupled
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["scale"] * learning_rate(update, self.settings)
                if group["l1"] and not decoupled:
                    _add_signs(group["params"], group["l1"])
            _step(optimizer, found_inf)
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

    def gradient_norm(self) -> Tensor:
        """Compute the norm of the whole gradient, of one micro-batch for example, on the device."""
        return nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None])

    def take_gradients(self) -> list[Tensor | None]:
        """Return the gradients of the parameters, and clear them; None for a parameter without a gradient."""
        gradients = [p.grad for p in self.parameters]
        self.zero_grad()
        return gradients

    def add_gradients(self, gradients: Sequence[Tensor | None]) -> None:
        """Add to the gradients of the parameters: `earlier + present`, the order in which autograd sums.

        Args:
            gradients: Gradients of earlier micro-batches, from `take_gradients`; they are overwritten.
        """
        for p, earlier in zip(self.parameters, gradients, strict=True):
            if earlier is not None:
                p.grad = earlier if p.grad is None else earlier.add_(p.grad)

    @contextmanager
    def use_ema_weights(self) -> Iterator[None]:
        """Use the EMA weights in the model, as a context manager; no effect without EMA."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        if self.average is None:
            return
        for p, a in zip(self.parameters, self.average, strict=True):
            p.data, a.data = a.data, p.data
        # cuDNN needs the weights of a recurrent layer in contiguous memory.
        for layer in self._recurrent:
            layer.flatten_parameters()

    def state(self) -> dict[str, Tensor]:
        """Return the state of the optimizers and the EMA weights, by parameter name.

        Names are `adam.exp_avg.NAME`. AdamW has the names of Adam, because both have the same state: they differ in
        how weight decay is applied, which is a setting. The recipe of a run prevents that it resumes with the other.
        """
        states = {
            f"{kind}.{part}.{name}": tensor
            for optimizer, kind, name, p in self._named()
            for part, tensor in optimizer.state.get(p, {}).items()
            if isinstance(tensor, Tensor)
        }
        return states | self._averages()

    def _named(self) -> Iterator[tuple[Optimizer, str, str, nn.Parameter]]:
        """Yield the optimizer, its name in checkpoints, the name and the tensor of each parameter."""
        for optimizer in self.optimizers:
            kind = "adam" if isinstance(optimizer, torch.optim.Adam) else type(optimizer).__name__.lower()
            for group in optimizer.param_groups:
                for name, p in zip(group["param_names"], group["params"], strict=True):
                    yield optimizer, kind, name, p

    def _averages(self) -> dict[str, Tensor]:
        if self.average is None:
            return {}
        # Detached, so that these tensors remain the EMA weights inside of `use_ema_weights`.
        return {f"average.{name}": a.detach() for name, a in zip(self.names, self.average, strict=True)}

    def expected(self, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], set[str]]:
        """Describe the state that a checkpoint must contain.

        Args:
            tensors: Tensors of the checkpoint.

        Returns:
            Tensors with the names, shapes and data types of `state`, and the names that may be missing, because their
            parameter never had a gradient.
        """
        wanted, optional = self._averages(), set[str]()
        for optimizer, kind, name, p in self._named():
            own = {f"{kind}.{part}.{name}": like for part, like in self._initial_state(optimizer, p).items()}
            if not own.keys() & tensors.keys():
                optional |= own.keys()
            wanted |= own
        return wanted, optional

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state that `state` returned."""
        for optimizer in self.optimizers:
            optimizer.state.clear()
        for optimizer, kind, name, p in self._named():
            parts = {part: f"{kind}.{part}.{name}" for part in self._initial_state(optimizer, p)}
            if found := {part: tensors[key].to(p.device) for part, key in parts.items() if key in tensors}:
                optimizer.state[p] = found
        for name, a in self._averages().items():
            a.copy_(tensors[name])

    def _initial_state(self, optimizer: Optimizer, p: Tensor) -> dict[str, Tensor]:
        """Return the names, shapes and data types of a parameter's optimizer state, as meta tensors.

        torch creates the state in the first step, so a new optimizer makes a step with a parameter of zeros.
        """
        key = (type(optimizer).__name__, p.shape, p.dtype)
        if key not in self._initial_states:
            zeros = nn.Parameter(torch.zeros(p.shape, dtype=p.dtype))
            zeros.grad = torch.zeros_like(zeros)
            known = inspect.signature(type(optimizer)).parameters
            probe = type(optimizer)([("", zeros)], **{k: v for k, v in optimizer.defaults.items() if k in known})
            _step(probe)
            state = {part: t.to("meta") for part, t in probe.state[zeros].items() if isinstance(t, Tensor)}
            self._initial_states[key] = state
        return self._initial_states[key]


def _build(name: OptimizerName, settings: OptimizationSettings, groups: Sequence[dict[str, Any]]) -> Optimizer:
    # Keep `Optimizer.add_param_group` from importing torch._dynamo, which takes as long as importing torch.
    added = inspect.unwrap(Optimizer.add_param_group)
    vars(added).setdefault("__dynamo_disable", added)
    found = _OPTIMIZERS[name]
    arguments: dict[str, Any] = {argument: getattr(settings, key) for argument, key in found.arguments.items()}
    arguments |= found.fixed
    return found.kind(list(groups), lr=settings.learning_rate, **arguments)  # pyright: ignore[reportCallIssue]


@torch.no_grad()
def _step(optimizer: Optimizer, found_inf: Tensor | None = None) -> None:
    """Update all parameters that have a gradient, unless `found_inf` is 1."""
    if isinstance(optimizer, torch.optim.SGD) and optimizer.defaults["momentum"]:
        # torch's fused SGD cannot start the momentum of some parameters later than that of others.
        for p in (p for group in optimizer.param_groups for p in group["params"]):
            if p.grad is not None and p not in optimizer.state:
                optimizer.state[p] = {"momentum_buffer": torch.zeros_like(p)}
    optimizer.found_inf = found_inf  # type: ignore[attr-defined]
    # The wrappers of `step` serve compiled optimizers and import torch._dynamo.
    inspect.unwrap(type(optimizer).step)(optimizer)


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
