"""Inspection of text and image classifiers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from s2s.inspection.inspection import AttentionMaps, InspectedExample, InspectionRequest, Positions, SameWord
from s2s.inspection.positions import positions_of
from s2s.inspection.saliency import attention_on_words, explain_classes, score_of_class
from s2s.inspection.walk import Source, chosen_words, same_word
from s2s.models.base import Classifier


@dataclass(frozen=True)
class Read:
    """An example for a classifier.

    Attributes:
        text: Text, or name of the image.
        baseline: Embeddings of an empty example, `(1, source, width)`.
    """

    source: Source
    text: str
    baseline: Float[Tensor, "1 source width"]


def inspection_of(
    model: Classifier, read: Sequence[Read], classes: Sequence[str], focus: InspectionRequest, truth: str | None
) -> tuple[list[InspectedExample], SameWord | None, list[Positions]]:
    """Inspect one example, or two with a common word.

    Args:
        focus: Selected word, layer and head.
        truth: True class; None if unknown.
    """
    sources, encoder = [each.source for each in read], model.encoder
    words = chosen_words(encoder, sources, focus.word)
    examples = [_inspected(model, each, word, (classes, truth), focus) for each, word in zip(read, words, strict=True)]
    longest = max(len(source.pieces) for source in sources)
    # The number of positions of an image is its number of patches.
    positions = positions_of("encoder", encoder.embedding, longest, *([0] if sources[0].across else []))
    return examples, same_word(encoder, sources, words), positions


def _inspected(
    model: Classifier, read: Read, word: int, named: tuple[Sequence[str], str | None], focus: InspectionRequest
) -> InspectedExample:
    source, encoder, (classes, truth) = read.source, model.encoder, named
    with torch.no_grad():
        shares = model(source.read, source.valid)[0].cpu().double().softmax(dim=0).tolist()
        weights = encoder.self_attention_weights(source.read, source.valid)[0].cpu().double().numpy()
        vectors = encoder.embedding(source.read)
    label = int(np.argmax(shares))
    score, answer = score_of_class(model, source.valid, label), [classes[label]]
    looked = attention_on_words(model, source.read, source.valid)
    found = explain_classes(answer, [score], (vectors, read.baseline), source.words, looked)
    likely = sorted(zip(shares, classes, strict=True), reverse=True)[:4]
    remark = " · ".join(f"{name} {share:.3f}" for share, name in likely) + (f"; true class: {truth}" if truth else "")
    maps = [AttentionMaps("encoder", weights, source.pieces, source.pieces)] if len(weights) else []
    walk = source.walk(encoder, focus, word)
    return InspectedExample(read.text, classes[label], remark, maps, found, walk, source.image, source.across)
