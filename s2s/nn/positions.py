"""Positions inside self-attention: as a rotation of queries and keys, or as what is added to the scores.

Each knows where the newest targets stand, so that a target fed token by token gets what it gets at once. Attention
between decoder and encoder has none of them: a place in the target is at no distance from one in the source.
"""

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from s2s.nn.embeddings import Embedding, extend_sinusoids, sinusoids

Rotated = Float[Tensor, "batch head steps size"]
Bias = Float[Tensor, "head target source"]
"""What is added to the scores of each head, before the softmax."""
Side = Literal["encoder", "decoder"]

# Raffel et al. (2020), section 2.1: so many buckets, the last of which holds all distances from there on
_BUCKETS = 32
MAX_DISTANCE = 128


class Rotary(nn.Module):
    """Turns each pair of numbers of a query or key by an angle that grows with its position (Su et al. 2021).

    Pair i of a vector of that many numbers, an even number, turns by 10,000^(-2i/size) a position: equation 15. The dot
    product of a query and a key then depends on their distance, not on where they stand.
    """

    table: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        # derived from the size alone, so it is neither saved nor trained
        self.register_buffer("table", sinusoids(256, size), persistent=False)

    def forward(self, x: Rotated, first: int) -> Rotated:
        """The vectors, turned; the first of them stands at position `first`."""
        last = first + x.shape[2]
        table = self.table
        if last > len(table):
            self.table = table = extend_sinusoids(table, last)
        sine, cosine = table[first:last].unflatten(1, (-1, 2)).unbind(-1)
        # angles are exact to more digits than bf16 has: products are rounded once, at the end
        left, right = x.unflatten(-1, (-1, 2)).unbind(-1)
        turned = torch.stack((left * cosine - right * sine, left * sine + right * cosine), dim=-1)
        return turned.flatten(-2).to(x.dtype)


def extend_positions(model: nn.Module, positions: int) -> int:
    """Gives all tables of sinusoids in a model that many positions at least: what is made of it may not grow them.

    Returns:
        How many tables there are.
    """
    places = [module for module in model.modules() if isinstance(module, Embedding | Rotary)]
    having = [module for module in places if module.table is not None]
    for module in having:
        if len(module.table) < positions:
            module.table = sinusoids(positions, module.table.shape[1]).to(module.table)
    return len(having)


class PositionBias(nn.Module, ABC):
    """What distances add to the scores of self-attention; one for all layers of an encoder or a decoder."""

    @abstractmethod
    def forward(self, new: int, length: int) -> Bias:
        """For the newest `new` of `length` positions as targets, and all of them as sources."""


class Alibi(PositionBias):
    """Minus the distance times a slope of each head, which nobody learns (Press et al. 2022).

    The paper has decoders, which only look back. An encoder that had the same slope ahead could not tell a text from
    its mirror image; so ahead the heads have the slopes in the reverse order: who looks far back looks ahead nearby.
    """

    slopes: Tensor

    def __init__(self, heads: int, side: Side) -> None:
        super().__init__()
        behind = alibi_slopes(heads)
        ahead = behind[::-1] if side == "encoder" else behind
        self.register_buffer("slopes", torch.tensor([behind, ahead], device="cpu"), persistent=False)

    def forward(self, new: int, length: int) -> Bias:
        """Zero where a target stands, and less and less the farther a source is."""
        distances = _distances(new, length, self.slopes.device)
        behind, ahead = self.slopes[:, :, None, None]
        return behind * distances.clamp(max=0) - ahead * distances.clamp(min=0)


def alibi_slopes(heads: int) -> list[float]:
    """The slope of each head: 2^(-8/n), its square, its cube … where n, the number of heads, is a power of two.

    Otherwise those of the next lower power of two, and then every other one of those of twice as many heads, as in the
    authors' code.
    """
    whole = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * i / whole) for i in range(1, whole + 1)]
    between = [2 ** (-8 * i / (2 * whole)) for i in range(1, 2 * whole + 1, 2)]
    return slopes + between[: heads - whole]


class RelativeBuckets(PositionBias):
    """A learned number for each head and each bucket of distances (Raffel et al. 2020, T5).

    Near distances have a bucket each, farther ones share buckets that grow with the logarithm. An encoder has half of
    the buckets for each direction; a decoder, which only looks back, has them all.
    """

    def __init__(self, heads: int, width: int, side: Side) -> None:
        super().__init__()
        self.both = side == "encoder"
        self.values = nn.Embedding(_BUCKETS, heads)
        nn.init.normal_(self.values.weight, std=width**-0.5)

    def forward(self, new: int, length: int) -> Bias:
        """What was learned for each distance."""
        found = distance_buckets(_distances(new, length, self.values.weight.device), self.both)
        return self.values(found).permute(2, 0, 1)


def distance_buckets(distances: Int[Tensor, "*shape"], both: bool) -> Int[Tensor, "*shape"]:
    """The bucket of each distance, source minus target, as in T5's code; sources ahead share bucket 0 unless `both`."""
    count = _BUCKETS // 2 if both else _BUCKETS
    ahead = (distances > 0) * count if both else torch.zeros_like(distances)
    far = distances.abs() if both else (-distances).clamp(min=0)
    near = count // 2
    share = (far.clamp(min=1).float() / near).log() / math.log(MAX_DISTANCE / near)
    grown = (near + (share * (count - near)).long()).clamp(max=count - 1)
    return ahead + torch.where(far < near, far, grown)


def _distances(new: int, length: int, device: torch.device) -> Int[Tensor, "target source"]:
    """Where a source stands, seen from a target: below zero behind it, above zero ahead."""
    places = torch.arange(length, device=device)
    return places - places[length - new :, None]
