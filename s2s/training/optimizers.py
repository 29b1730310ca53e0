"""Adam and SGD as functions of torch's: what moves parameters by their gradients, and what it keeps of each.

The functions and not torch's classes: those import a compiler, which takes as long as importing torch.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from s2s.recipe.schema import OptimizationSettings

Group = Sequence[tuple[str, Tensor]]
"""Parameters that move alike, with their names."""


class Optimizer(ABC):
    """Moves parameters that have gradients, and keeps tensors of them by name.

    Attributes:
        name: what its tensors are called by in a checkpoint.
    """

    name: ClassVar[str]

    def __init__(self, settings: OptimizationSettings) -> None:
        self.settings = settings
        self.kept: dict[str, dict[str, Tensor]] = {}

    @abstractmethod
    def begun(self, p: Tensor) -> dict[str, Tensor]:
        """What is kept of a parameter that has its first gradient."""

    @abstractmethod
    def moving(self, kept: Sequence[Mapping[str, Tensor]]) -> Callable[..., object]:
        """What of torch moves parameters of which this is kept, as the settings say; what all take is left open."""

    @torch.no_grad()
    def move(self, group: Group, rate: float, decay: float, broken: Tensor | None) -> None:
        """Moves those of a group that have a gradient, unless `broken` is 1."""
        there = [(name, p, p.grad) for name, p in group if p.grad is not None]
        for name, p, _ in there:
            if not self.kept.get(name):
                self.kept[name] = self.begun(p)
        if there:
            self.moving([self.kept[name] for name, _, _ in there])(
                [p for _, p, _ in there],
                [gradient for _, _, gradient in there],
                lr=rate,
                weight_decay=decay,
                fused=True,
                found_inf=broken,
                maximize=False,
            )

    def _likes(self, p: Tensor) -> dict[str, Tensor]:
        """What is kept of a parameter, in shapes and kinds alone."""
        return self.begun(p.detach().to("meta"))

    def key(self, part: str, name: str) -> str:
        """What a tensor that is kept of a parameter is called in a checkpoint."""
        return f"{self.name}.{part}.{name}"

    def state(self, names: Sequence[str]) -> dict[str, Tensor]:
        """What is kept of these parameters."""
        return {self.key(part, name): t for name in names for part, t in self.kept.get(name, {}).items()}

    def expected(self, group: Group, there: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], set[str]]:
        """What `state` gives, in shapes and kinds, and which names may be missing: of what never had a gradient."""
        wanted, may = {}, set()
        for name, p in group:
            own = {self.key(part, name): like for part, like in self._likes(p).items()}
            may |= set() if own.keys() & there.keys() else own.keys()
            wanted |= own
        return wanted, may

    def load(self, group: Group, tensors: Mapping[str, Tensor]) -> None:
        """Takes over what `state` gave."""
        for name, p in group:
            saved = {part: tensors.get(self.key(part, name)) for part in self._likes(p)}
            self.kept[name] = {part: tensor.to(p.device) for part, tensor in saved.items() if tensor is not None}


class Adam(Optimizer):
    """Adam (Kingma & Ba 2015), or with weight decay decoupled from the gradient (Loshchilov & Hutter 2019)."""

    name = "adam"

    def begun(self, p: Tensor) -> dict[str, Tensor]:
        """How many gradients it had, their mean and that of their squares."""
        return {
            "step": p.new_zeros((), dtype=torch.float32),
            "exp_avg": torch.zeros_like(p),
            "exp_avg_sq": torch.zeros_like(p),
        }

    def moving(self, kept: Sequence[Mapping[str, Tensor]]) -> Callable[..., object]:
        """By the mean over the root of the mean square."""
        return partial(
            adam,
            exp_avgs=[moments["exp_avg"] for moments in kept],
            exp_avg_sqs=[moments["exp_avg_sq"] for moments in kept],
            max_exp_avg_sqs=[],
            state_steps=[moments["step"] for moments in kept],
            decoupled_weight_decay=self.settings.optimizer == "adamw",
            amsgrad=False,
            beta1=self.settings.betas[0],
            beta2=self.settings.betas[1],
            eps=self.settings.epsilon,
        )


class Sgd(Optimizer):
    """Stochastic gradient descent, with momentum (Polyak 1964) or Nesterov's (Sutskever et al. 2013).

    Momentum v becomes μ v + g, and the parameter moves by rate · v; Nesterov's by rate · (g + μ v).
    """

    name = "sgd"

    def begun(self, p: Tensor) -> dict[str, Tensor]:
        """The momentum, zero before the first gradient; nothing where there is none."""
        return {"momentum": torch.zeros_like(p)} if self.settings.momentum else {}

    def moving(self, kept: Sequence[Mapping[str, Tensor]]) -> Callable[..., object]:
        """By the gradient, or by the momentum."""
        return partial(
            sgd,
            momentum_buffer_list=[moments.get("momentum") for moments in kept],
            momentum=self.settings.momentum,
            dampening=0.0,
            nesterov=self.settings.nesterov,
        )


def optimizer_of(settings: OptimizationSettings) -> Optimizer:
    """The optimiser that a recipe names."""
    return Sgd(settings) if settings.optimizer == "sgd" else Adam(settings)
