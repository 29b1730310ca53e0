"""The vectors that tell a model where a token stands."""

from collections.abc import Sequence

import torch
from jaxtyping import UInt8
from torch import Tensor, nn

from s2s.inspection.inspection import Positions
from s2s.nn.embeddings import Embedding, sinusoids

_LENGTH = 64


def position_vectors(embedding: nn.Module | None, length: int) -> Tensor | None:
    """The first so many vectors that an `Embedding` adds to those of tokens, or fewer; None where it adds none."""
    if not isinstance(embedding, Embedding):
        return None
    if embedding.positions is not None:
        return embedding.positions.weight.detach()[:length]
    return sinusoids(length, embedding.width) if embedding.kind == "sinusoidal" else None


def positions_of(name: str, embedding: nn.Module | None, wanted: int, least: int = _LENGTH) -> list[Positions]:
    """The vectors of an encoder's or a decoder's first positions, as many as are wanted and at least so many.

    Returns:
        One, or none where positions are not told by vectors.
    """
    vectors = position_vectors(embedding, max(wanted, least))
    if vectors is None or not isinstance(embedding, Embedding):
        return []
    vectors = vectors.cpu().double()
    return [Positions(name, embedding.kind, vectors.numpy(), (vectors @ vectors.T).numpy())]


def without_words(embedding: nn.Module, vectors: Tensor) -> Tensor:
    """The baseline of an input: no word anywhere, each place known as before; zeros where places are not told apart."""
    places = position_vectors(embedding, vectors.shape[1])
    nothing = torch.zeros_like(vectors) if places is None else places.to(vectors).expand_as(vectors).clone()
    norm = getattr(embedding, "norm", None)
    if norm is None:
        return nothing
    with torch.no_grad():
        return norm(nothing)


def even_grey(images: UInt8[Tensor, "batch channels rows columns"], mean: Sequence[float] | None) -> Tensor:
    """The baseline of images: as many with nothing in them, of the training images' mean colour, or grey without."""
    return torch.tensor(mean or (0.5,)).mul(255).round().to(images).view(1, -1, 1, 1).expand_as(images)
