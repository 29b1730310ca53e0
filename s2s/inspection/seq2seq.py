"""Inspection of encoder-decoder models: attention, and saliency of output tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from s2s.data.tokenizers import BOS, EOS, Tokenizer
from s2s.inspection.inspection import AttentionMaps, InspectedExample, InspectionRequest, Positions, Saliency, SameWord
from s2s.inspection.positions import positions_of, without_words
from s2s.inspection.saliency import Score, contrast, explain_classes, rollout
from s2s.inspection.walk import Source, chosen_words, same_word
from s2s.inspection.words import words_of
from s2s.models.base import Seq2Seq
from s2s.nn.layers import Inputs, PaddingMask, States


@dataclass(frozen=True)
class Pair:
    """An input with its output, for inspection.

    Attributes:
        written: Tokens of the output, without the end.
        texts: Text or name of the input, and text of the output.
        target: Names of the output's tokens and of its end.
        baseline: Embeddings of an empty input; None: positions without tokens.
    """

    source: Source
    written: Sequence[int]
    texts: tuple[str, str]
    target: Sequence[str]
    baseline: Float[Tensor, "1 source width"] | None = None
    remark: str = ""

    def inspected(self, model: Seq2Seq, focus: InspectionRequest, word: int) -> InspectedExample:
        """Inspect this pair, with a walk through the word of this index."""
        walk = self.source.walk(model.encoder, focus, word)
        maps, weights = self._attention(model), list(self._saliency(model))
        return InspectedExample(*self.texts, self.remark, maps, weights, walk, self.source.image, self.source.across)

    def _fed(self) -> Tensor:
        return torch.tensor([[BOS, *self.written]], device=self.source.valid.device)

    def _attention(self, model: Seq2Seq) -> list[AttentionMaps]:
        read, fed = self.source.pieces, self._fed()
        with torch.no_grad():
            memory = model.encoder(self.source.read, self.source.valid)
            encoder = model.encoder.self_attention_weights(self.source.read, self.source.valid)[0]
            decoder = model.decoder.self_attention_weights(memory, fed)[0]
            cross = model.decoder.cross_attention_weights(memory, fed)[0]
        found = (
            AttentionMaps("encoder", _numbers(encoder), read, read),
            AttentionMaps("decoder", _numbers(decoder), self.target, ["<s>", *self.target[:-1]]),
            AttentionMaps("cross", _numbers(cross), self.target, read),
        )
        return [maps for maps in found if len(maps.weights)]

    def _saliency(self, model: Seq2Seq) -> list[Saliency]:
        source = self.source
        with torch.no_grad():
            vectors = model.encoder.embedding(source.read)
            memory = model.encoder(source.read, source.valid)
            cross = model.decoder.cross_attention_weights(memory, self._fed())[0]
            mixed = model.encoder.self_attention_weights(source.read, source.valid)
        baseline = without_words(model.encoder.embedding, vectors) if self.baseline is None else self.baseline
        scores = [self._score(model, place) for place in range(len(self.target))]
        # Rollout to each encoder state, weighted by the cross-attention of the last layer.
        reached = cross[-1].mean(dim=0) @ rollout(mixed)[0] if len(cross) else None
        return explain_classes(self.target, scores, (vectors, baseline), source.words, reached)

    def _score(self, model: Seq2Seq, place: int) -> Score:
        """Return the score of the token at a position, minus the mean score of all tokens."""
        due, all_fed = [*self.written, EOS][place], self._fed()

        def score(vectors: States) -> Tensor:
            """Score any number of rows of this pair."""
            rows = len(vectors)
            memory = model.encoder.read(vectors, self.source.valid.expand(rows, -1))
            context, state = model.decoder.start(memory, place + 1)
            scores = model.projection(model.decoder(context, state, all_fed[:, : place + 1].expand(rows, -1))[0][:, -1])
            return contrast(scores, due)

        return score


def inspection_of(
    model: Seq2Seq, pairs: Sequence[Pair], focus: InspectionRequest
) -> tuple[list[InspectedExample], SameWord | None, list[Positions]]:
    """Inspect one input, or two with a common word.

    Args:
        focus: Selected word, layer and head.
    """
    sources, encoder = [pair.source for pair in pairs], model.encoder
    words = chosen_words(encoder, sources, focus.word)
    examples = [pair.inspected(model, focus, word) for pair, word in zip(pairs, words, strict=True)]
    read, written = (max(map(len, lengths)) for lengths in ([s.pieces for s in sources], [p.target for p in pairs]))
    longest = max(read, written)
    # The number of positions of an image is its number of patches.
    of_encoder = (read, 0) if sources[0].across else (longest,)
    positions = positions_of("encoder", encoder.embedding, *of_encoder)
    positions += positions_of("decoder", getattr(model.decoder, "embedding", None), longest)
    return examples, same_word(encoder, sources, words), positions


def source_of(tokenizer: Tokenizer, tokens: Sequence[int], read: Inputs, valid: PaddingMask) -> Source:
    """Return the encoder input of a text, with its end token.

    Args:
        tokens: Token ids without the end.
        read: Input tensor of the encoder.
    """
    ids = [*tokens, EOS]
    return Source(read, valid, tokenizer.tokens(ids), words_of(tokenizer, ids))


def _numbers(weights: Tensor) -> np.ndarray:
    return weights.cpu().double().numpy()
