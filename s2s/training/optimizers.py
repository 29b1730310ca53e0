"""Optimizers of torch.optim, built from a recipe."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from s2s.recipe.schema import OptimizationSettings

_CLASSES = {
    name.lower(): found
    for name, found in vars(torch.optim).items()
    if isinstance(found, type) and issubclass(found, Optimizer)
}
# Optimizers with a fused kernel, which changes nothing if `found_inf` is 1; for others the host decides.
_FUSED = ("adam", "adamw", "sgd")
# Recipe key: torch's argument.
_ARGUMENTS = {"betas": "betas", "epsilon": "eps", "momentum": "momentum", "nesterov": "nesterov"}

Named = tuple[str, nn.Parameter]
Group = dict[str, Any]


def _skip_compiler() -> None:
    """Keep `Optimizer.add_param_group` from importing torch._dynamo.

    The import takes as long as importing torch.
    """
    added = inspect.unwrap(Optimizer.add_param_group)
    vars(added).setdefault("__dynamo_disable", added)


def build_optimizers(settings: OptimizationSettings, groups: Sequence[Group], matrices: set[int]) -> list[Optimizer]:
    """Build the optimizer of a recipe; with Muon, a second one for other parameters.

    Args:
        settings: Optimization settings of the recipe. The caller sets the learning rate of each step.
        groups: Parameter groups of torch.optim, with named parameters.
        matrices: `id` of each parameter that Muon orthogonalizes; used by Muon only.

    Returns:
        One optimizer, or two. Groups keep their further keys.
    """
    if settings.optimizer != "muon":
        return [_build(settings.optimizer, settings, groups)]
    hidden = [_select(group, lambda p: id(p) in matrices) for group in groups]
    others = [_select(group, lambda p: id(p) not in matrices) for group in groups]
    parts = (("muon", hidden), ("adamw", others))
    return [_build(name, settings, filled) for name, part in parts if (filled := [g for g in part if g["params"]])]


def _select(group: Group, wanted: Callable[[nn.Parameter], bool]) -> Group:
    return group | {"params": [(name, p) for name, p in group["params"] if wanted(p)]}


def _build(name: str, settings: OptimizationSettings, groups: Sequence[Group]) -> Optimizer:
    _skip_compiler()
    known = inspect.signature(_CLASSES[name]).parameters
    arguments: dict[str, Any] = {
        theirs: getattr(settings, ours)
        for ours, theirs in _ARGUMENTS.items()
        # Adafactor's eps is a pair, and Muon's eps guards another quantity than Adam's.
        if theirs in known and not (theirs == "eps" and name in ("adafactor", "muon"))
    }
    if name in _FUSED:
        arguments["fused"] = True
    if name == "muon":
        # Steps as large as AdamW's, so that both optimizers have the same learning rate (Liu et al. 2025).
        arguments["adjust_lr_fn"] = "match_rms_adamw"
    return _CLASSES[name](list(groups), lr=settings.learning_rate, **arguments)  # pyright: ignore[reportCallIssue]


def skips_on_device(optimizer: Optimizer) -> bool:
    """Return True if the optimizer changes nothing when `found_inf` is 1, without a sync."""
    return bool(optimizer.defaults.get("fused"))


@torch.no_grad()
def step(optimizer: Optimizer, found_inf: Tensor | None = None) -> None:
    """Update all parameters that have a gradient.

    Args:
        optimizer: Optimizer with the learning rate of this step in its groups.
        found_inf: 1 if the gradient is not finite, 0 otherwise, on the device; only if `skips_on_device`.
    """
    if isinstance(optimizer, torch.optim.SGD) and optimizer.defaults["momentum"]:
        # torch's fused SGD cannot start the momentum of some parameters later than that of others.
        for _, p in named_parameters(optimizer):
            if p.grad is not None and p not in optimizer.state:
                optimizer.state[p] = {"momentum_buffer": torch.zeros_like(p)}
    optimizer.found_inf = found_inf  # type: ignore[attr-defined]
    # The wrappers of `step` serve compiled optimizers and import torch._dynamo.
    inspect.unwrap(type(optimizer).step)(optimizer)


def named_parameters(optimizer: Optimizer) -> Iterator[Named]:
    """Yield the names and parameters of all groups."""
    for group in optimizer.param_groups:
        yield from zip(group["param_names"], group["params"], strict=True)


class SavedState:
    """State of optimizers as in a checkpoint: tensors named `adam.exp_avg.NAME`.

    Args:
        optimizers: Optimizers of a run.
    """

    def __init__(self, optimizers: Sequence[Optimizer]) -> None:
        self._optimizers = optimizers
        self._initial: dict[tuple[str, torch.Size, torch.dtype], dict[str, Tensor]] = {}

    def tensors(self) -> dict[str, Tensor]:
        """Return the state of all parameters that have one."""
        return {
            key(optimizer, part, name): tensor
            for optimizer in self._optimizers
            for name, p in named_parameters(optimizer)
            for part, tensor in optimizer.state.get(p, {}).items()
            if isinstance(tensor, Tensor)
        }

    def expected(self, saved: set[str]) -> tuple[dict[str, Tensor], set[str]]:
        """Describe the state that a checkpoint must contain.

        Args:
            saved: Names of the tensors in the checkpoint.

        Returns:
            Tensors with the right names, shapes and data types, and the names that may be missing, because their
            parameter never had a gradient.
        """
        wanted: dict[str, Tensor] = {}
        optional: set[str] = set()
        for optimizer in self._optimizers:
            for name, p in named_parameters(optimizer):
                own = {key(optimizer, part, name): like for part, like in self._initial_state(optimizer, p).items()}
                optional |= set() if own.keys() & saved else own.keys()
                wanted |= own
        return wanted, optional

    def load(self, saved: dict[str, Tensor]) -> None:
        """Replace the state by that of a checkpoint, on the device of each parameter."""
        for optimizer in self._optimizers:
            optimizer.state.clear()
            for name, p in named_parameters(optimizer):
                parts = {part: key(optimizer, part, name) for part in self._initial_state(optimizer, p)}
                if found := {part: saved[k].to(p.device) for part, k in parts.items() if k in saved}:
                    optimizer.state[p] = found

    def _initial_state(self, optimizer: Optimizer, p: Tensor) -> dict[str, Tensor]:
        """Return the shapes of a parameter's state, from a first step of a parameter of zeros."""
        place = (type(optimizer).__name__, p.shape, p.dtype)
        if place not in self._initial:
            like = nn.Parameter(torch.zeros(p.shape, dtype=p.dtype))
            like.grad = torch.zeros_like(like)
            defaults = {name: value for name, value in optimizer.defaults.items() if name in _arguments(optimizer)}
            alone = type(optimizer)([("", like)], **defaults)
            step(alone)
            self._initial[place] = {part: t.to("meta") for part, t in alone.state[like].items() if _is_tensor(t)}
        return self._initial[place]


def _is_tensor(value: object) -> bool:
    return isinstance(value, Tensor)


def _arguments(optimizer: Optimizer) -> list[str]:
    return list(inspect.signature(type(optimizer)).parameters)


def key(optimizer: Optimizer, part: str, name: str) -> str:
    """Return the name of a state tensor in a checkpoint; AdamW has the names of Adam.

    Args:
        optimizer: Optimizer of the parameter.
        part: Name of the tensor in the optimizer's state.
        name: Name of the parameter.

    Example:
        >>> key(torch.optim.AdamW([torch.zeros(1)]), "exp_avg", "projection.weight")
        'adam.exp_avg.projection.weight'
    """
    kind = "adam" if isinstance(optimizer, torch.optim.Adam) else type(optimizer).__name__.lower()
    return f"{kind}.{part}.{name}"
