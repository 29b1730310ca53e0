"""Saliency: attention rollout, gradient × input and integrated gradients.

A `Score` maps embeddings of an encoder to the number that is explained, one per row. For exclusive answers it is the
score of one answer minus the mean of all, because adding a constant to all scores changes no probability.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from s2s.inspection.inspection import Saliency
from s2s.inspection.words import Word
from s2s.models.base import Classifier
from s2s.nn.layers import States

Method = Literal["attention", "gradient"]
Score = Callable[[States], Float[Tensor, " batch"]]
# Numbers of integration points, tried in this order until the relative error of the sum is below `_NEAR`, and no
# position changes by more than `_SETTLED` of the largest: the sum alone can be right by chance.
_POINTS = (16, 32, 64, 128, 256)
_NEAR = 0.005
_SETTLED = 0.02


@dataclass(frozen=True)
class Reading:
    """A classified text with the weight of each word.

    Attributes:
        method: `attention`: weights are shares that sum to 1. `gradient`: positive if a word supports the predicted
            class; the unit is that of scores (nats).
        words: Words as the model sees them; special tokens are separate.
    """

    method: Method
    words: list[str]
    weights: list[float]
    title: str = ""

    def __str__(self) -> str:
        """Return the words with the largest weights."""
        order = sorted(range(len(self.words)), key=lambda i: -abs(self.weights[i]))[:8]
        return " · ".join(f"{self.words[i]} {self.weights[i]:+.2f}" for i in order)


def gradient_times_input(
    classifier: Classifier,
    source: Shaped[Tensor, "batch ..."],
    valid: Bool[Tensor, "batch source"],
    label: Int[Tensor, " batch"],
) -> Float[Tensor, "batch source"]:
    """Compute gradient × input for a class score minus the mean of all class scores.

    For a classifier that is linear in its embeddings, the sum over positions is this score without its constant term.
    """

    def score(vectors: States) -> Float[Tensor, " batch"]:
        scores = classifier.classify(classifier.encoder.read(vectors, valid))
        return scores.gather(1, label.unsqueeze(1)).squeeze(1) - scores.mean(dim=1)

    return _times_input(score, classifier.encoder.embedding(source).detach()).masked_fill(~valid, 0.0)


def contrast(scores: Float[Tensor, "batch answers"], answer: int) -> Float[Tensor, " batch"]:
    """Return the score of an answer minus the mean score of all answers."""
    return scores[:, answer] - scores.mean(dim=1)


def score_of_class(classifier: Classifier, valid: Bool[Tensor, "1 source"], label: int) -> Score:
    """Return the score function of a class, for any number of rows of one example."""
    return lambda vectors: contrast(
        classifier.classify(classifier.encoder.read(vectors, valid.expand(len(vectors), -1))), label
    )


def _slopes(score: Score, vectors: States) -> States:
    """Compute the gradient of each row's score with respect to its embeddings; rows must be independent."""
    # cuDNN's recurrent layers compute gradients only in training mode.
    plain = torch.backends.cudnn.flags(enabled=False) if vectors.device.type == "cuda" else nullcontext()
    with torch.enable_grad(), plain:
        vectors = vectors.detach().requires_grad_()
        # Rows are independent, so the gradient of the sum is the gradient of each row.
        (gradient,) = torch.autograd.grad(score(vectors).sum(), vectors)
    return gradient


def _times_input(score: Score, vectors: States) -> Float[Tensor, "batch source"]:
    """Compute gradient × input (Shrikumar et al. 2016) for each position."""
    return (_slopes(score, vectors) * vectors.detach()).sum(dim=2)


def integrated_gradients(
    score: Score, vectors: Float[Tensor, "1 source width"], baseline: Float[Tensor, "1 source width"]
) -> tuple[Float[Tensor, " source"], float]:
    """Compute integrated gradients (Sundararajan et al. 2017, section 3).

    The value is (x − b) times the mean gradient on the straight line from the baseline b to the input x. By
    completeness the sum over positions is score(x) − score(b). The mean uses Gauss-Legendre quadrature in the cube root
    of the distance from b, with increasing numbers of points, until the sum is within 0.5 % of that difference and the
    values no longer change.
    """
    change = (vectors - baseline).detach()
    with torch.no_grad():
        ends = score(torch.cat((baseline, vectors))).tolist()
    due, found, difference = ends[1] - ends[0], torch.full_like(change[0, :, 0], float("nan")), float("inf")
    for points in _POINTS:
        nodes, shares = np.polynomial.legendre.leggauss(points)
        # The quadrature is defined on [-1, 1].
        roots = (nodes + 1) / 2
        # Most points are near the baseline. Where it is zero, as without position embeddings, a norm of the embeddings
        # takes nearly its final value within about √ε of it, and the score changes most there.
        along, shares = (torch.from_numpy(each).to(change) for each in (roots**3, 3 * roots**2 * shares / 2))
        gradients = _slopes(score, baseline.detach() + along[:, None, None] * change)
        before, found = found, ((shares[:, None, None] * gradients).sum(dim=0) * change[0]).sum(dim=1)
        difference = abs(float(found.sum()) - due)
        moved = float((found - before).abs().max())
        if difference <= _NEAR * abs(due) and moved <= _SETTLED * float(found.abs().max()):
            break
    return found, difference


def explain_classes(
    answers: Sequence[str],
    scores: Sequence[Score],
    ways: tuple[Float[Tensor, "1 source width"], Float[Tensor, "1 source width"]],
    words: Sequence[Word],
    reached: Float[Tensor, "answer source"] | None,
) -> list[Saliency]:
    """Compute the saliency of words for each answer, by all methods.

    Args:
        scores: Score function of each answer.
        ways: Embeddings of the input and of the baseline.
        reached: Attention rollout from each position to each answer, see `rollout`; None without attention.
    """
    vectors, baseline = ways
    gradients = torch.stack([_times_input(score, vectors)[0] for score in scores])
    integrated = [integrated_gradients(score, vectors, baseline) for score in scores]
    shares, difference = max(integrated, key=lambda found: found[1])
    error = (difference, float(shares.sum()))
    found = [
        on_words("gradient x input", answers, words, gradients),
        on_words("integrated gradients", answers, words, torch.stack([each for each, _ in integrated]), error),
    ]
    return found if reached is None else [*found, on_words("attention rollout", answers, words, reached)]


def rollout(weights: Float[Tensor, "batch layer head source source"]) -> Float[Tensor, "batch source source"]:
    """Compute attention rollout through all layers (Abnar & Zuidema 2020, section 3).

    A layer passes half of its input through the residual connection and half through its heads' mean attention:
    A = (W + I) / 2. The matrices of all layers are multiplied.

    Args:
        weights: Self-attention weights of all layers.

    Example:
        >>> rollout(torch.full((1, 1, 1, 2, 2), 0.5)).tolist()
        [[[0.75, 0.25], [0.25, 0.75]]]
    """
    size = weights.shape[-1]
    reached = torch.eye(size, dtype=weights.dtype, device=weights.device).expand(len(weights), size, size)
    for layer in weights.mean(dim=2).unbind(dim=1):
        reached = (layer @ reached + reached) / 2
    return reached


def attention_on_words(
    classifier: Classifier, source: Shaped[Tensor, "batch ..."], valid: Bool[Tensor, "batch source"]
) -> Float[Tensor, "batch source"] | None:
    """Compute the attention rollout from source positions to the pooled vector.

    The states' rollout is weighted as the classifier pools them.
    """
    with torch.no_grad():
        weights = classifier.encoder.self_attention_weights(source, valid)
        if not weights.shape[1]:
            return None
        pooled = classifier.pooling_weights(classifier.encoder(source, valid))
    return (pooled.unsqueeze(1) @ rollout(weights)).squeeze(1)


def weighed(
    classifier: Classifier, source: Shaped[Tensor, "1 ..."], valid: Bool[Tensor, "1 source"], label: int
) -> tuple[Float[Tensor, "1 source"], Method]:
    """Compute the saliency of one example for a class.

    Uses attention rollout if the encoder has attention, else gradient × input.

    Args:
        source: Input of the encoder, one row.
    """
    looked = attention_on_words(classifier, source, valid)
    if looked is not None:
        return looked, "attention"
    return gradient_times_input(classifier, source, valid, torch.tensor([label], device=valid.device)), "gradient"


def on_words(
    method: str,
    answers: Sequence[str],
    words: Sequence[Word],
    weights: Float[Tensor, "answer source"],
    error: tuple[float | None, float | None] = (None, None),
) -> Saliency:
    """Sum the saliency of positions over words.

    Args:
        method: Name of the method.
        answers: Names of the answers.
        words: Words, with their positions.
        weights: Saliency of each position for each answer.
        error: The largest completeness error, and the sum of the answer that has it.
    """
    numbers = weights.cpu().double().numpy()
    sums = np.stack([numbers[:, list(word.places)].sum(axis=1) for word in words], axis=1)
    return Saliency(method, list(answers), [word.text for word in words], sums, *error)
