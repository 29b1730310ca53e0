"""Positions within self-attention: rotary, ALiBi, and relative position bias (T5).

`Rotary` rotates queries and keys; a `PositionBias` is added to the attention scores. Both take the position of the
newest targets, so decoding token by token gives the same numbers as decoding all tokens at once. Cross-attention has
no such positions: a position of the target has no distance to a position of the source.
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
"""Numbers that are added to the attention scores of each head, before the softmax."""
Side = Literal["encoder", "decoder"]

# Raffel et al. (2020), section 2.1: 32 buckets; all distances of 128 and more share the last one.
_BUCKETS = 32
_MAX_DISTANCE = 128


class Rotary(nn.Module):
    """Rotary position embedding (RoPE; Su et al. 2021, equation 15).

    Pair i of the numbers of a query or key at position p is rotated by the angle p · 10,000^(-2i / size). The dot
    product of a query and a key then depends on their distance, not on their positions.

    Args:
        size: Numbers of a query or key of one head, an even number.

    Example:
        The score of a query and a key is the same at positions 3 and 1 as at positions 12 and 10:

        >>> _ = torch.manual_seed(0)
        >>> rotary, query, key = Rotary(8), torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)
        >>> near = (rotary(query, 3) * rotary(key, 1)).sum()
        >>> far = (rotary(query, 12) * rotary(key, 10)).sum()
        >>> bool(torch.isclose(near, far))
        True
    """

    table: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        # The table follows from the size, so it is neither saved nor trained.
        self.register_buffer("table", sinusoids(256, size), persistent=False)

    def forward(self, x: Rotated, first: int) -> Rotated:
        """Rotate queries or keys.

        Args:
            x: Queries or keys, `(batch, head, steps, size)`.
            first: Position of the first step.

        Returns:
            The rotated vectors, of the same shape.
        """
        last = first + x.shape[2]
        table = self.table
        if last > len(table):
            self.table = table = extend_sinusoids(table, last)
        sine, cosine = table[first:last].unflatten(1, (-1, 2)).unbind(-1)
        # Sines and cosines are fp32, and the products are rounded to the data type of x once, at the end.
        left, right = x.unflatten(-1, (-1, 2)).unbind(-1)
        turned = torch.stack((left * cosine - right * sine, left * sine + right * cosine), dim=-1)
        return turned.flatten(-2).to(x.dtype)


def extend_positions(model: nn.Module, positions: int) -> int:
    """Extend all sinusoidal tables of a model to at least `positions` rows.

    For example before export, because an exported graph cannot extend a table.

    Returns:
        Number of sinusoidal tables in the model.

    Example:
        >>> rotary = Rotary(8)
        >>> extend_positions(nn.ModuleList([rotary]), 1000), len(rotary.table)
        (1, 1000)
    """
    places = [module for module in model.modules() if isinstance(module, Embedding | Rotary)]
    having = [module for module in places if module.table is not None]
    for module in having:
        if len(module.table) < positions:
            module.table = sinusoids(positions, module.table.shape[1]).to(module.table)
    return len(having)


class PositionBias(nn.Module, ABC):
    """Position bias on self-attention scores, by distance.

    All layers of an encoder or decoder share one.
    """

    @abstractmethod
    def forward(self, new: int, length: int) -> Bias:
        """Return the bias of the newest targets.

        Args:
            new: Number of target positions, the newest ones.
            length: Number of positions so far, all of which are sources.

        Returns:
            Bias, `(head, new, length)`.
        """


class Alibi(PositionBias):
    """ALiBi: a penalty that grows linearly with the distance (Press et al. 2022).

    The bias on a score is −slope · |distance|, with a fixed slope for each head. The paper has decoders, which only
    attend to earlier positions. An encoder with the same slope in both directions could not tell a text from its
    reverse. Therefore the slopes for later positions are in reverse order: a head that attends far back attends to near
    positions ahead.

    Args:
        heads: Number of query heads.
        side: `"encoder"` for both directions, `"decoder"` for earlier positions only.

    Example:
        >>> Alibi(heads=2, side="decoder")(new=2, length=3)[0]
        tensor([[-0.0625,  0.0000, -0.0625],
                [-0.1250, -0.0625,  0.0000]])

        The value above the diagonal has no effect, because the causal mask hides that position.
    """

    slopes: Tensor

    def __init__(self, heads: int, side: Side) -> None:
        super().__init__()
        behind = alibi_slopes(heads)
        ahead = behind[::-1] if side == "encoder" else behind
        self.register_buffer("slopes", torch.tensor([behind, ahead], device="cpu"), persistent=False)

    def forward(self, new: int, length: int) -> Bias:
        """Return the bias, which is zero at distance zero and falls with the distance."""
        distances = _distances(new, length, self.slopes.device)
        behind, ahead = self.slopes[:, :, None, None]
        return behind * distances.clamp(max=0) - ahead * distances.clamp(min=0)


def alibi_slopes(heads: int) -> list[float]:
    """Compute the ALiBi slope of each head (Press et al. 2022, section 3).

    For n heads, a power of two, the slopes are 2^(-8/n), 2^(-16/n), … 2^(-8). For other numbers they are the slopes of
    the next lower power of two, then every second slope of twice that power, as in the authors' code.

    Example:
        >>> alibi_slopes(4)
        [0.25, 0.0625, 0.015625, 0.00390625]
        >>> alibi_slopes(3)
        [0.0625, 0.00390625, 0.25]
    """
    whole = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * i / whole) for i in range(1, whole + 1)]
    between = [2 ** (-8 * i / (2 * whole)) for i in range(1, 2 * whole + 1, 2)]
    return slopes + between[: heads - whole]


class RelativeBuckets(PositionBias):
    """Learned relative position bias of T5 (Raffel et al. 2020, section 2.1).

    Each head has one number for each bucket of distances. Small distances have a bucket each; larger distances share
    buckets whose size grows with the logarithm. An encoder has half of the 32 buckets for each direction. A decoder
    attends to earlier positions only and uses all of them.

    Args:
        heads: Number of query heads.
        width: Size of the model, for the standard deviation of the initial values, 1 / √width.
        side: `"encoder"` or `"decoder"`.
        max_distance: Distance from which on all share the last bucket, 17 or more.

    Example:
        >>> RelativeBuckets(heads=4, width=16, side="encoder")(new=2, length=6).shape
        torch.Size([4, 2, 6])
    """

    def __init__(self, heads: int, width: int, side: Side, max_distance: int = _MAX_DISTANCE) -> None:
        super().__init__()
        self.both = side == "encoder"
        self.max_distance = max_distance
        self.values = nn.Embedding(_BUCKETS, heads)
        nn.init.normal_(self.values.weight, std=width**-0.5)

    def forward(self, new: int, length: int) -> Bias:
        """Return the learned bias of each distance."""
        found = distance_buckets(_distances(new, length, self.values.weight.device), self.both, self.max_distance)
        return self.values(found).permute(2, 0, 1)


def distance_buckets(
    distances: Int[Tensor, "*shape"], both: bool, max_distance: int = _MAX_DISTANCE
) -> Int[Tensor, "*shape"]:
    """Map distances to buckets, as T5's code does.

    Args:
        distances: Source position minus target position.
        both: True to distinguish directions (encoder). False gives bucket 0 to all later sources (decoder).
        max_distance: Distance from which on all share the last bucket.

    Returns:
        Bucket numbers from 0 to 31, of the same shape.

    Example:
        >>> distance_buckets(torch.tensor([0, -1, -2, -20, -500, 1]), both=False)
        tensor([ 0,  1,  2, 17, 31,  0])
        >>> distance_buckets(torch.tensor([0, -1, -500, 1, 500]), both=True)
        tensor([ 0,  1, 15, 17, 31])
    """
    count = _BUCKETS // 2 if both else _BUCKETS
    ahead = (distances > 0) * count if both else torch.zeros_like(distances)
    far = distances.abs() if both else (-distances).clamp(min=0)
    near = count // 2
    share = (far.clamp(min=1).float() / near).log() / math.log(max_distance / near)
    grown = (near + (share * (count - near)).long()).clamp(max=count - 1)
    return ahead + torch.where(far < near, far, grown)


def _distances(new: int, length: int, device: torch.device) -> Int[Tensor, "target source"]:
    """Return source position minus target position; negative for earlier sources."""
    places = torch.arange(length, device=device)
    return places - places[length - new :, None]
