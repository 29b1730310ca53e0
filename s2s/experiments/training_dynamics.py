"""What happens to gradients and weights while a small model learns to translate."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from torch import Tensor

from s2s.errors import UserError
from s2s.experiments.gradient_decay import brief
from s2s.models.contract import Seq2Seq
from s2s.recipe.schema import DataSettings, Recipe, Section, SeedSettings, TokenizerSettings
from s2s.run.loading import build_model
from s2s.run.preparing import Prepared, prepare
from s2s.training.devices import Computer
from s2s.training.optimization import group_of
from s2s.training.trainer import Trainer
from s2s.training.translation import translation_trainer

_VALIDATION = 40
# the name under which all weights together go
ALL = "all"


@dataclass(frozen=True)
class Schooling:
    """How a small model learns.

    Attributes:
        pairs: that it learns from, where the recipe's corpus can be made smaller.
        updates: how many.
        tokens: of a batch, padding included.
        warmup: updates during which the rate rises; None: as in the recipe, but at most a fifth of them.
        every: updates between two looks at the weights.
    """

    pairs: int
    updates: int
    tokens: int
    warmup: int | None = None
    every: int = 5


@dataclass
class Dynamics:
    """A training as it went; lists have one entry for each update.

    Attributes:
        losses: in nats per token, before the update.
        norms: of the gradient, before clipping.
        clipped: 1 where the gradient was shortened.
        layers: the gradient's norm by layer.
        looks: updates whose step was measured.
        ratios: ‖Δw‖ / ‖w‖ of these steps, by layer, and of all weights together under the name `all`.
        failed: why it stopped early; empty where it did not.
    """

    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    clipped: list[int] = field(default_factory=list)
    layers: dict[str, list[float]] = field(default_factory=dict)
    looks: list[int] = field(default_factory=list)
    ratios: dict[str, list[float]] = field(default_factory=dict)
    failed: str = ""

    @property
    def start(self) -> float | None:
        """The loss before the first update."""
        return self.losses[0] if self.losses else None

    @property
    def end(self) -> float | None:
        """The mean loss of the last tenth of the updates; None where training failed."""
        last = self.losses[-max(1, len(self.losses) // 10) :]
        return None if self.failed or not last else sum(last) / len(last)


def corpus(recipe: Recipe[Any], pairs: int) -> Prepared:
    """The recipe's corpus as pieces, the built-in one with about so many training pairs, but enough for its pieces.

    It is prepared once for all models of a comparison.
    """
    data, few = recipe.data, max(pairs, 2 * max(recipe.tokenizer.sizes))
    changes: dict[str, object] = {"test": None}
    if isinstance(data.train, int):
        changes |= {"train": min(few, data.train), "validation": _VALIDATION}
    return _prepared(data.model_copy(update=changes).model_dump_json(), recipe.tokenizer.model_dump_json())


@cache
def _prepared(data: str, tokenizer: str) -> Prepared:
    # of a recipe, only these two sections say how a corpus becomes pieces
    sections = DataSettings.model_validate_json(data), TokenizerSettings.model_validate_json(tokenizer)
    recipe = Recipe(name="corpus", data=sections[0], tokenizer=sections[1], model=Section())
    return prepare(recipe, None, lambda line: None)


def fresh(recipe: Recipe[Any], pieces: tuple[int, int], seed: int) -> Seq2Seq:
    """A model as it is before training, on the processor.

    Args:
        recipe: whose model.
        pieces: sizes of the vocabularies of source and target.
        seed: of its weights.
    """
    return build_model(recipe.model_copy(update={"seeds": _seeds(seed)}), *pieces)


def school(
    recipe: Recipe[Any], prepared: Prepared, schooling: Schooling, seed: int, computer: Computer
) -> tuple[Seq2Seq, Dynamics]:
    """Trains a fresh model and watches.

    Args:
        recipe: the model and its optimisation; the number of updates and the batches are the schooling's.
        prepared: the corpus.
        schooling: how long.
        seed: of weights, order and dropout.
        computer: device and precision.

    Returns:
        The model, and how it learned.
    """
    model = fresh(recipe, (prepared.source_tokenizer.size, prepared.target_tokenizer.size), seed).to(computer.device)
    updates = schooling.updates
    warmup = min(recipe.training.warmup, updates // 5) if schooling.warmup is None else schooling.warmup
    changes = {"updates": updates, "warmup": warmup, "tokens_per_update": None, "ema": None, "average_last": None}
    training = recipe.training.model_copy(update=changes)
    longest = min(recipe.batches.max_length, schooling.tokens)
    batches = recipe.batches.model_copy(update={"tokens": schooling.tokens, "max_length": longest})
    trainer = translation_trainer(model, prepared.train, training, batches, _seeds(seed), computer)
    return model, watch(trainer, updates, schooling.every)


def watch(trainer: Trainer, updates: int, every: int) -> Dynamics:
    """Trains until there were so many updates, and notes what happens.

    Args:
        trainer: that has done nothing yet.
        updates: how many.
        every: updates between two looks at how far the weights moved; the first update is looked at, too.
    """
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
    """The training as JSON says it."""
    return {
        "losses": _brief(seen.losses),
        "norms": _brief(seen.norms),
        "clipped": seen.clipped,
        "layers": {layer: _brief(values) for layer, values in seen.layers.items()},
        "looks": seen.looks,
        "ratios": {layer: _brief(values) for layer, values in seen.ratios.items()},
        "failed": seen.failed,
    }


def _seeds(seed: int) -> SeedSettings:
    return SeedSettings(initialization=seed, data=seed, dropout=seed)


def _weights(model: Seq2Seq) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}


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


def _brief(values: Sequence[float]) -> list[float | None]:
    return [brief(value) for value in values]
