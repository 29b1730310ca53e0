"""Small trainings of an encoder with a linear head."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional

from s2s.errors import UserError
from s2s.models.base import Encoder
from s2s.recipe.installed import encoder_settings, module_of
from s2s.training.device import derive_seed

# one layer, one direction and no dropout, for models with these settings
_PLAIN = {
    "encoder_layers": 1,
    "dropout": 0.0,
    "bidirectional": False,
    "scale_embeddings": True,
    "heads": 2,
    "max_positions": 4096,
}

# draws the batch of an update: inputs and targets
Draw = Callable[[torch.Generator], tuple[Tensor, Tensor]]


# target at positions that are left out of the loss
UNASKED = -100


def over_places(said: Tensor, wanted: Tensor) -> Tensor:
    """Return the cross-entropy over the positions with a target, in nats per position."""
    return functional.cross_entropy(said.transpose(1, 2), wanted, ignore_index=UNASKED)


def first_and_noise(keys: int, kinds: int, shape: tuple[int, int], chance: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw texts that begin with a key, followed by noise tokens, and return them with the keys.

    Args:
        keys: Number of different keys.
        kinds: Number of different noise tokens.
        shape: Number of texts, and noise tokens in each.
        chance: Source of randomness.
    """
    key = torch.randint(keys, (shape[0], 1), generator=chance)
    return torch.cat((key, keys + torch.randint(kinds, shape, generator=chance)), dim=1), key[:, 0]


class TextClassifier(nn.Module):
    """An encoder with a linear head over each of its states, or over the last one.

    Args:
        encoder: The encoder; there is no padding.
        width: Width of its states.
        outputs: Outputs of the head.
        over: Whether the head reads every state or the last one.
    """

    def __init__(self, encoder: Encoder, width: int, outputs: int, over: Literal["states", "last"] = "states") -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(width, outputs)
        self.over = over

    def forward(self, source: Shaped[Tensor, "batch steps ..."]) -> Float[Tensor, "batch ... outputs"]:
        """Return the outputs at each position, or at the end."""
        memory = self.encoder(source, torch.ones(source.shape[:2], dtype=torch.bool))
        return self.head(memory.states if self.over == "states" else memory.states[:, -1])


def encoder_of(kind: str, pieces: int, seed: int, options: Mapping[str, object]) -> tuple[Encoder, int]:
    """Build an encoder of an installed model, with one layer and one direction, and return the width of its states.

    Args:
        kind: Kind of the model.
        pieces: Size of the vocabulary.
        seed: Seed of the weights.
        options: Settings of the model; those that it does not have are ignored.
    """
    section = encoder_settings(kind)
    settings = section(**{key: value for key, value in {**_PLAIN, **options}.items() if key in section.model_fields})
    torch.manual_seed(derive_seed(seed))
    # a module with EncoderSettings has this function
    return module_of(kind).build_encoder(settings, pieces)


@dataclass
class Schedule:
    """Learning curve of a training."""

    updates: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    ended: int | None = None


@dataclass(frozen=True)
class Budget:
    """Limits of a training."""

    updates: int  # at most
    rate: float  # constant learning rate of Adam
    every: int = 50  # updates between two points of the learning curve
    clip: float = 1.0  # gradient clipping


def train(
    model: nn.Module,
    draw: Draw,
    loss_of: Callable[[Tensor, Tensor], Tensor],
    budget: Budget,
    seed: int,
    enough: Callable[[float], bool] = lambda loss: False,
) -> Schedule:
    """Train until the mean loss is low enough or the budget is spent.

    Args:
        model: A `TextClassifier`, or any module that takes the inputs.
        draw: Draws a fresh batch for each update.
        loss_of: Loss of outputs and targets.
        budget: Limits of the training.
        seed: Seed of the batches.
        enough: True if the mean loss since the last point of the curve ends the training.

    Raises:
        UserError: The loss is not finite.
    """
    adam = torch.optim.Adam(model.parameters(), lr=budget.rate)
    chance = torch.Generator().manual_seed(derive_seed(seed, 1) % 2**63)
    course, since = Schedule(), []
    model.train()
    for update in range(1, budget.updates + 1):
        read, wanted = draw(chance)
        loss = loss_of(model(read), wanted)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), budget.clip)
        adam.step()
        since.append(loss.item())
        if update % budget.every == 0 or update == budget.updates:
            course.updates.append(update)
            course.losses.append(sum(since) / len(since))
            since = []
            if not math.isfinite(course.losses[-1]):
                raise UserError(f"the loss is not finite after {update} updates")
            if enough(course.losses[-1]):
                course.ended = update
                break
    model.eval()
    return course
