"""What happens to gradients and weights while a small model learns to translate."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor, nn

from s2s.errors import UserError
from s2s.experiments.gradients.paths import brief
from s2s.experiments.translating import sizes_of, trainer_for, weights_of
from s2s.experiments.whole_runs import seeds_of
from s2s.models.contract import Seq2Seq
from s2s.tasks.translation.prepared import Prepared
from s2s.tasks.translation.recipe import Recipe
from s2s.tasks.translation.task import build_model
from s2s.training.devices import Computer
from s2s.training.optimization import group_of
from s2s.training.trainer import Trainer

# the name under which all weights together go
ALL = "all"


@dataclass(frozen=True)
class Schooling:
    """How a small model learns."""

    pairs: int  # that it learns from, where the recipe's corpus can be made smaller
    updates: int  # how many
    tokens: int  # of a batch, padding included
    # updates during which the rate rises; None: as in the recipe, but at most a fifth of them
    warmup: int | None = None
    every: int = 5  # updates between two looks at the weights


@dataclass
class Dynamics:
    """A training as it went; lists have one entry for each update."""

    losses: list[float] = field(default_factory=list)  # in nats per token, before the update
    norms: list[float] = field(default_factory=list)  # of the gradient, before clipping
    clipped: list[int] = field(default_factory=list)  # 1 where the gradient was shortened
    layers: dict[str, list[float]] = field(default_factory=dict)  # the gradient's norm by layer
    looks: list[int] = field(default_factory=list)  # updates whose step was measured
    # ‖Δw‖ / ‖w‖ of these steps, by layer, and of all weights together under the name `all`
    ratios: dict[str, list[float]] = field(default_factory=dict)
    failed: str = ""  # why it stopped early; empty where it did not

    @property
    def start(self) -> float | None:
        """The loss before the first update."""
        return self.losses[0] if self.losses else None

    @property
    def end(self) -> float | None:
        """The mean loss of the last tenth of the updates; None where training failed."""
        last = self.losses[-max(1, len(self.losses) // 10) :]
        return None if self.failed or not last else sum(last) / len(last)


def fresh(recipe: Recipe[Any], data: Prepared, seed: int) -> Seq2Seq:
    """A recipe's model as it is before training, on the processor."""
    return build_model(recipe.model_copy(update={"seeds": seeds_of(seed)}), *sizes_of(data))


def school(
    recipe: Recipe[Any], data: Prepared, schooling: Schooling, seed: int, computer: Computer
) -> tuple[Seq2Seq, Dynamics]:
    """Trains a fresh model as the schooling says, with the recipe's optimisation, and watches how it learns."""
    updates = schooling.updates
    warmup = min(recipe.training.warmup, updates // 5) if schooling.warmup is None else schooling.warmup
    changes = {"updates": updates, "warmup": warmup, "tokens_per_update": None, "ema": None, "average_last": None}
    longest = min(recipe.batches.max_length, schooling.tokens)
    sections = {
        "training": recipe.training.model_copy(update=changes),
        "batches": recipe.batches.model_copy(update={"tokens": schooling.tokens, "max_length": longest}),
    }
    trainer = trainer_for(recipe.model_copy(update=sections), sizes_of(data), data.train, seed, computer)
    return trainer.model, watch(trainer, updates, schooling.every)


def watch(trainer: Trainer, updates: int, every: int) -> Dynamics:
    """Trains until there were so many updates; how far weights move is seen `every` so many, and at the first."""
    seen = Dynamics()
    before = _weights(trainer.model)
    try:
        for update in trainer.updates(updates):
            seen.losses.append(update.loss)
            seen.norms.append(update.gradient_norm)
            seen.clipped.append(int(update.clipped))
            for layer, norm in update.layer_norms.items():
                # a layer may have no gradient in one update and one in the next
                known = seen.layers.setdefault(layer, [])
                known += [0.0] * (update.update - 1 - len(known)) + [norm]
            if before:
                seen.looks.append(update.update)
                _note(seen.ratios, before, _weights(trainer.model))
            before = _weights(trainer.model) if (update.update + 1) % every == 0 else {}
    except UserError as error:
        seen.failed = error.what
    return seen


def report(seen: Dynamics) -> dict[str, Any]:
    """The training as JSON says it, with numbers of six digits."""
    by_layer = {key: {name: [*map(brief, v)] for name, v in getattr(seen, key).items()} for key in ("layers", "ratios")}
    return asdict(seen) | {key: [*map(brief, getattr(seen, key))] for key in ("losses", "norms")} | by_layer


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: p for name, p in weights_of(model).items() if model.get_parameter(name).requires_grad}


def _note(ratios: dict[str, list[float]], before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> None:
    groups: dict[str, list[str]] = {ALL: list(before)}
    for name in before:
        groups.setdefault(group_of(name), []).append(name)
    for group, names in groups.items():
        moved = _length([after[name] - before[name] for name in names])
        size = _length([before[name] for name in names])
        ratios.setdefault(group, []).append(moved / size if size else 0.0)


def _length(parts: Sequence[Tensor]) -> float:
    return math.sqrt(sum(float(part.cpu().double().square().sum()) for part in parts))
