"""Position embeddings, and baselines for saliency."""

from collections.abc import Sequence

import torch
from jaxtyping import UInt8
from torch import Tensor, nn

from s2s.inspection.inspection import Positions
from s2s.nn.embeddings import Embedding, sinusoids

_LENGTH = 64


def position_vectors(embedding: nn.Module | None, length: int) -> Tensor | None:
    """Return the embeddings of the first positions."""
    if not isinstance(embedding, Embedding):
        return None
    if embedding.positions is not None:
        return embedding.positions.weight.detach()[:length]
    return sinusoids(length, embedding.width) if embedding.kind == "sinusoidal" else None


def positions_of(name: str, embedding: nn.Module | None, wanted: int, least: int = _LENGTH) -> list[Positions]:
    """Return the first position embeddings of an encoder or decoder.

    Args:
        name: `encoder` or `decoder`.
        least: Minimum number of positions.
    """
    vectors = position_vectors(embedding, max(wanted, least))
    if vectors is None or not isinstance(embedding, Embedding):
        return []
    vectors = vectors.cpu().double()
    return [Positions(name, embedding.kind, vectors.numpy(), (vectors @ vectors.T).numpy())]


def without_words(embedding: nn.Module, vectors: Tensor) -> Tensor:
    """Return the saliency baseline of a text: positions without tokens.

    It is zero if the embedding adds no positions.

    Args:
        vectors: Embeddings of the input, `(batch, source, width)`.
    """
    places = position_vectors(embedding, vectors.shape[1])
    nothing = torch.zeros_like(vectors) if places is None else places.to(vectors).expand_as(vectors).clone()
    norm = getattr(embedding, "norm", None)
    if norm is None:
        return nothing
    with torch.no_grad():
        return norm(nothing)


def even_grey(images: UInt8[Tensor, "batch channels rows columns"], mean: Sequence[float] | None) -> Tensor:
    """Return the saliency baseline of images: the mean training color, or gray.

    Args:
        images: Images, which give the shape.
        mean: Mean of each channel, from 0 to 1; None: gray.
    """
    return torch.tensor(mean or (0.5,)).mul(255).round().to(images).view(1, -1, 1, 1).expand_as(images)
