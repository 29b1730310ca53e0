"""Small trainings of an encoder with a linear head: the plainest form in which a task can be learned."""

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

# one layer that reads in one direction and drops nothing, as far as a model has these settings
_PLAIN = {
    "encoder_layers": 1,
    "dropout": 0.0,
    "bidirectional": False,
    "scale_embeddings": True,
    "heads": 2,
    "max_positions": 4096,
}

# what a task gives for an update: what is read, and what the head should say
Draw = Callable[[torch.Generator], tuple[Tensor, Tensor]]


# what stands at a place that nothing is asked about
UNASKED = -100


def over_places(said: Tensor, wanted: Tensor) -> Tensor:
    """Cross-entropy of what is said at each place that is asked about, in nats per place."""
    return functional.cross_entropy(said.transpose(1, 2), wanted, ignore_index=UNASKED)


def first_and_noise(keys: int, kinds: int, shape: tuple[int, int], chance: torch.Generator) -> tuple[Tensor, Tensor]:
    """Texts that begin with one of so many keys, with noise of so many kinds behind it, and the keys.

    The shape is how many texts there are, and pieces of noise in each.
    """
    key = torch.randint(keys, (shape[0], 1), generator=chance)
    return torch.cat((key, keys + torch.randint(kinds, shape, generator=chance)), dim=1), key[:, 0]


class TextClassifier(nn.Module):
    """An encoder and a linear head over each of its states, or over the last one.

    Args:
        encoder: reads; every position is real.
        width: of its states.
        outputs: numbers that the head gives.
        over: whether the head reads every state, or the one after the last position.
    """

    def __init__(self, encoder: Encoder, width: int, outputs: int, over: Literal["states", "last"] = "states") -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(width, outputs)
        self.over = over

    def forward(self, source: Shaped[Tensor, "batch steps ..."]) -> Float[Tensor, "batch ... outputs"]:
        """Outputs at each position, or at the end."""
        memory = self.encoder(source, torch.ones(source.shape[:2], dtype=torch.bool))
        return self.head(memory.states if self.over == "states" else memory.states[:, -1])


def encoder_of(kind: str, pieces: int, seed: int, options: Mapping[str, object]) -> tuple[Encoder, int]:
    """A fresh encoder of an installed model and the width of its states: one layer that reads in one direction.

    Args:
        kind: the model's.
        pieces: of its vocabulary.
        seed: of its weights.
        options: of its section of a recipe; those that it does not have are left out.
    """
    section = encoder_settings(kind)
    settings = section(**{key: value for key, value in {**_PLAIN, **options}.items() if key in section.model_fields})
    torch.manual_seed(derive_seed(seed))
    # whoever has EncoderSettings has the function
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

    updates: int  # at most so many
    rate: float  # of Adam, constant
    every: int = 50  # updates between two looks
    clip: float = 1.0  # the largest norm of a gradient


def train(
    model: nn.Module,
    draw: Draw,
    loss_of: Callable[[Tensor, Tensor], Tensor],
    budget: Budget,
    seed: int,
    enough: Callable[[float], bool] = lambda loss: False,
) -> Schedule:
    """Trains until a look finds that it is enough, or the budget is spent.

    Args:
        model: a `TextClassifier`, or whatever reads what is drawn.
        draw: a fresh batch for each update: nothing is seen twice.
        loss_of: the loss of what the model says, and what it should.
        budget: how long.
        seed: of what is drawn.
        enough: whether the mean loss since the last look is low enough.

    Raises:
        UserError: the loss is no number any more.
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
                raise UserError(f"the loss is no number after {update} updates")
            if enough(course.losses[-1]):
                course.ended = update
                break
    model.eval()
    return course
