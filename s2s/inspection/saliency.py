"""What words weigh for an answer: attention rolled out through the layers, or gradients of the answer's score.

A `Score` is what is explained: a number for each row, of the vectors that an encoder's `embedding` makes. Where answers
exclude each other, it is the score of one less the mean of all, since adding a number to all changes no probability.
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
# points of the way from the baseline to the input: as many of these as it takes to come this near
_POINTS = (16, 32, 64, 128, 256)
_NEAR = 0.005


@dataclass(frozen=True)
class Reading:
    """A classified text and what each of its words weighed.

    Attributes:
        method: `attention`: weights are shares that sum to one, 0 for what was not looked at. `gradient`: above zero, a
            word speaks for the predicted class, below zero against it; the unit is that of scores (nats).
        words: as the model saw them; special pieces stand as themselves.
        weights: one for each word.
        title: what was predicted.
    """

    method: Method
    words: list[str]
    weights: list[float]
    title: str = ""

    def __str__(self) -> str:
        """The heaviest words, each with its weight."""
        order = sorted(range(len(self.words)), key=lambda i: -abs(self.weights[i]))[:8]
        return " · ".join(f"{self.words[i]} {self.weights[i]:+.2f}" for i in order)


def gradient_times_input(
    classifier: Classifier,
    source: Shaped[Tensor, "batch ..."],
    valid: Bool[Tensor, "batch source"],
    label: Int[Tensor, " batch"],
) -> Float[Tensor, "batch source"]:
    """What each source position adds to the score of a class, less the mean of all classes' scores; see `times_input`.

    Of a classifier that is linear in its vectors, the sum over positions is that score, less what no
    position decides. The classifier is in evaluation mode; each row has its own class.

    Returns:
        Zero where a position is not real.
    """
    vectors = classifier.encoder.embedding(source).detach()
    return times_input(lambda read: _class_score(classifier, read, valid, label), vectors).masked_fill(~valid, 0.0)


def _class_score(
    classifier: Classifier, vectors: States, valid: Bool[Tensor, "batch source"], label: Int[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    scores = classifier.classify(classifier.encoder.read(vectors, valid))
    return scores.gather(1, label.unsqueeze(1)).squeeze(1) - scores.mean(dim=1)


def score_of_class(classifier: Classifier, valid: Bool[Tensor, "1 source"], label: int) -> Score:
    """The score of a class, for any number of rows that are all of one example."""

    def score(vectors: States) -> Float[Tensor, " batch"]:
        """Less the mean of all classes' scores."""
        labels = torch.full((len(vectors),), label, device=vectors.device)
        return _class_score(classifier, vectors, valid.expand(len(vectors), -1), labels)

    return score


def slopes(score: Score, vectors: States) -> States:
    """The gradient of each row's score with respect to its vectors; no row may have a part in another's score."""
    # cuDNN's recurrent layers know their gradients in training mode only
    plain = torch.backends.cudnn.flags(enabled=False) if vectors.device.type == "cuda" else nullcontext()
    with torch.enable_grad(), plain:
        vectors = vectors.detach().requires_grad_()
        # rows do not see each other, so the gradient of their sum is each one's own
        (gradient,) = torch.autograd.grad(score(vectors).sum(), vectors)
    return gradient


def times_input(score: Score, vectors: States) -> Float[Tensor, "batch source"]:
    """What each position's vector adds to its row's score: gradient times input (Shrikumar et al. 2016)."""
    return (slopes(score, vectors) * vectors.detach()).sum(dim=2)


def integrated_gradients(
    score: Score, vectors: Float[Tensor, "1 source width"], baseline: Float[Tensor, "1 source width"]
) -> tuple[Float[Tensor, " source"], float]:
    """What each position adds to the score on the straight way from a baseline (Sundararajan et al. 2017, section 3).

    That is (x - b) times the mean gradient between b and x. By the theorem of line integrals the sum over positions is
    score(x) - score(b). The mean is taken by Gauss and Legendre's rule, with more points until the sum is within half a
    per cent of that.

    Returns:
        The positions' shares, and by how much their sum differs from what it should be.
    """
    change = (vectors - baseline).detach()
    with torch.no_grad():
        ends = score(torch.cat((baseline, vectors))).tolist()
    due, found, difference = ends[1] - ends[0], change[0, :, 0], float("inf")
    for points in _POINTS:
        nodes, shares = np.polynomial.legendre.leggauss(points)
        # the rule is of the way from -1 to 1
        along, shares = (torch.from_numpy(each).to(change) for each in ((nodes + 1) / 2, shares / 2))
        gradients = slopes(score, baseline.detach() + along[:, None, None] * change)
        found = ((shares[:, None, None] * gradients).sum(dim=0) * change[0]).sum(dim=1)
        difference = abs(float(found.sum()) - due)
        if difference <= _NEAR * abs(due):
            break
    return found, difference


def explain_classes(
    answers: Sequence[str],
    scores: Sequence[Score],
    ways: tuple[Float[Tensor, "1 source width"], Float[Tensor, "1 source width"]],
    words: Sequence[Word],
    reached: Float[Tensor, "answer source"] | None,
) -> list[Saliency]:
    """What words weigh for each answer, by all methods.

    Args:
        answers: by name.
        scores: of each.
        ways: the vectors of the input, and those of an input with nothing in it.
        words: of the input.
        reached: how much of each position reached each answer, see `rollout`; None without attention.
    """
    vectors, baseline = ways
    gradients = torch.stack([times_input(score, vectors)[0] for score in scores])
    integrated = [integrated_gradients(score, vectors, baseline) for score in scores]
    shares, difference = torch.stack([each for each, _ in integrated]), max(gap for _, gap in integrated)
    found = [
        on_words("gradient x input", answers, words, gradients),
        on_words("integrated gradients", answers, words, shares, difference),
    ]
    return found if reached is None else [*found, on_words("attention rollout", answers, words, reached)]


def rollout(weights: Float[Tensor, "batch layer head source source"]) -> Float[Tensor, "batch source source"]:
    """How much of each source position reached each state through all layers (Abnar & Zuidema 2020, section 3).

    A layer passes on half of what it was given, through its residual connection, and mixes half by its heads' mean
    attention: A = (W + I) / 2; layers multiply. Rows sum to one.
    """
    size = weights.shape[-1]
    reached = torch.eye(size, dtype=weights.dtype, device=weights.device).expand(len(weights), size, size)
    for layer in weights.mean(dim=2).unbind(dim=1):
        reached = (layer @ reached + reached) / 2
    return reached


def attention_on_words(
    classifier: Classifier, source: Shaped[Tensor, "batch ..."], valid: Bool[Tensor, "batch source"]
) -> Float[Tensor, "batch source"] | None:
    """How much of each source position reached what the head reads; None where the encoder has no attention.

    Attention is rolled out through the layers, and the states' shares are mixed as the classifier pools them.

    Returns:
        Shares that sum to one in each row.
    """
    with torch.no_grad():
        weights = classifier.encoder.attention_weights(source, valid)
        if not weights.shape[1]:
            return None
        pooled = classifier.pooling_weights(classifier.encoder(source, valid))
    return (pooled.unsqueeze(1) @ rollout(weights)).squeeze(1)


def weighed(
    classifier: Classifier, source: Shaped[Tensor, "1 ..."], valid: Bool[Tensor, "1 source"], label: int
) -> tuple[Float[Tensor, "1 source"], Method]:
    """What each position of one example weighed for a class, and how that was found: by attention, if there is any."""
    looked = attention_on_words(classifier, source, valid)
    if looked is not None:
        return looked, "attention"
    return gradient_times_input(classifier, source, valid, torch.tensor([label], device=valid.device)), "gradient"


def on_words(
    method: str,
    answers: Sequence[str],
    words: Sequence[Word],
    weights: Float[Tensor, "answer source"],
    difference: float | None = None,
) -> Saliency:
    """What positions weigh for each answer as what words do: the sums."""
    numbers = weights.cpu().double().numpy()
    sums = np.stack([numbers[:, list(word.places)].sum(axis=1) for word in words], axis=1)
    return Saliency(method, list(answers), [word.text for word in words], sums, difference)
