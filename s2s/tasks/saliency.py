"""Which words a classifier read: attention rolled out through the layers, or gradient times input for any model."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from s2s.data.tokenizers import EOS, SPECIALS, Tokenizer
from s2s.models.contract import Classifier

Method = Literal["attention", "gradient"]


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
    """What each source position adds to the score of a class: its vector times the gradient (Shrikumar et al. 2016).

    The score is that of the class less the mean of all classes' scores, since adding a number to all of them changes no
    probability. Of a classifier that is linear in its vectors, the sum over positions is that score, less what no
    position decides. The classifier is in evaluation mode; each row has its own class.

    Returns:
        Zero where a position is not real.
    """
    # cuDNN's recurrent layers know their gradients in training mode only
    plain = torch.backends.cudnn.flags(enabled=False) if source.device.type == "cuda" else nullcontext()
    with torch.enable_grad(), plain:
        vectors = classifier.encoder.embedding(source).detach().requires_grad_()
        scores = classifier.decide(classifier.encoder.read(vectors, valid))
        chosen = scores.gather(1, label.unsqueeze(1)).squeeze(1) - scores.mean(dim=1)
        # rows do not see each other, so the gradient of their sum is each one's own
        (gradient,) = torch.autograd.grad(chosen.sum(), vectors)
    return (gradient * vectors.detach()).sum(dim=2).masked_fill(~valid, 0.0)


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


def joined_to_words(
    tokenizer: Tokenizer, ids: Sequence[int], weights: Sequence[float]
) -> tuple[list[str], list[float]]:
    """Pieces joined to words, each with the sum of its pieces' weights.

    A word begins where a piece begins with a space, or is a piece, known or not; what stands for beginning, end and
    padding is a word of its own.
    """
    groups: list[list[int]] = []
    for place, (piece, shown) in enumerate(zip(ids, tokenizer.pieces(ids), strict=True)):
        alone = piece <= EOS or (place > 0 and ids[place - 1] <= EOS)
        if not groups or alone or tokenizer.kind == "word" or shown.startswith("▁"):
            groups.append([])
        groups[-1].append(place)
    words = []
    for group in groups:
        first = ids[group[0]]
        words.append(SPECIALS[first] if first <= EOS else tokenizer.decode([ids[i] for i in group]).strip())
    sums = [sum(weights[i] for i in group) for group in groups]
    # a space that is a piece of its own is no word, and weighs on its neighbour
    return _without_empty(words, sums)


def _without_empty(words: list[str], weights: list[float]) -> tuple[list[str], list[float]]:
    kept: list[str] = []
    sums: list[float] = []
    carried = 0.0
    for word, weight in zip(words, weights, strict=True):
        if word:
            kept.append(word)
            sums.append(weight + carried)
            carried = 0.0
        elif kept:
            sums[-1] += weight
        else:
            carried += weight
    return kept, sums
