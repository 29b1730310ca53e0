"""Capture queries, keys and values of a model, and recompute attention from them."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional

from s2s.errors import UserError
from s2s.inspection.inspection import InspectionRequest, SameWord, Walk
from s2s.inspection.words import Word, find_word
from s2s.models.base import Encoder
from s2s.nn.attention import Attention, KeyValue, Mask, Query, causal_mask
from s2s.nn.layers import Inputs, PaddingMask

_LOOKED = 3


@dataclass(frozen=True)
class Lookup:
    """Tensors of one `Attention` call, split into heads, between the projections.

    Attributes:
        read: Output before the output projection.
    """

    query: Query
    key: KeyValue
    value: KeyValue
    mask: Mask
    read: Query


def lookups(model: nn.Module, run: Callable[[], object]) -> list[Lookup]:
    """Capture the tensors of all `Attention` calls while a function runs."""
    found: list[Lookup] = []
    modules = [module for module in model.modules() if isinstance(module, Attention)]

    def recording(attend: Callable[[Tensor, Tensor, Tensor, Mask], Tensor]) -> Callable[..., Tensor]:
        def recorded(query: Tensor, key: Tensor, value: Tensor, mask: Mask) -> Tensor:
            found.append(Lookup(query, key, value, mask, attend(query, key, value, mask)))
            return found[-1].read

        return recorded

    try:
        for module in modules:
            # An instance attribute takes precedence over the class's method.
            module.__dict__["attend"] = recording(module.attend)
        with torch.no_grad():
            run()
    finally:
        for module in modules:
            module.__dict__.pop("attend", None)
    return found


def weights_of(lookup: Lookup) -> Float[Tensor, "head target source"]:
    """Compute the attention weights of a single row, for all heads."""
    size = lookup.query.shape[-1]
    # Grouped-query attention: several heads may share keys.
    keys = lookup.key[0].repeat_interleave(lookup.query.shape[1] // lookup.key.shape[1], dim=0)
    scores = lookup.query[0] @ keys.transpose(1, 2) / math.sqrt(size)
    if lookup.mask is not None:
        scores = scores + torch.stack([_added(lookup, head) for head in range(len(scores))]).to(scores)
    return scores.softmax(dim=2)


def compute_walk(lookup: Lookup, focus: tuple[int, int], word: Word, tokens: Sequence[str]) -> Walk:
    """Compute attention of a word's first token step by step, in fp64.

    Equation 1 of Vaswani et al. (2017).
    """
    (layer, head), place = focus, min(word.places)
    heads = lookup.query.shape[1]
    if head >= heads:
        raise UserError(f"there is no head {head}", "--head", f"choose 0 to {heads - 1}")
    # Grouped-query attention: several heads may share keys and values.
    shared = head * lookup.key.shape[1] // heads
    query, keys, values = (
        each.cpu().double() for each in (lookup.query[0, head, place], lookup.key[0, shared], lookup.value[0, shared])
    )
    dots = keys @ query
    scaled = dots / math.sqrt(len(query))
    if lookup.mask is not None:
        scaled = scaled + _added(lookup, head)[place]
    weights = scaled.softmax(dim=0)
    read = weights @ values
    difference = float((read - lookup.read[0, head, place].cpu().double()).abs().max())
    q, k, v, *steps = (each.numpy() for each in (query, keys, values, dots, scaled, weights, read))
    return Walk(
        layer, head, word.text, place, list(tokens), q, k, v, steps[0], steps[1], steps[2], steps[3], difference
    )


def _added(lookup: Lookup, head: int) -> Tensor:
    """Return what the attention mask adds to the scores: 0, -inf or a bias."""
    targets, sources = lookup.query.shape[2], lookup.key.shape[2]
    mask = lookup.mask
    if not isinstance(mask, Tensor):
        mask = causal_mask(targets, sources, lookup.query.device)[None, None]
    mask = mask.expand(1, lookup.query.shape[1], targets, sources)[0, head].cpu()
    if mask.dtype != torch.bool:
        return mask.cpu().double()
    return torch.zeros(mask.shape, dtype=torch.float64).masked_fill_(~mask, float("-inf"))


@dataclass(frozen=True)
class Source:
    """Encoder input of a single example.

    Attributes:
        read: Token ids or pixels.
        pieces: Names of the tokens or patches.
        words: Words of a text; patches of an image, row by row, after other inputs.
        image: Pixels of an image; None for a text.
        across: Patches per image row; 0 for a text.
        prefix_words: Number of words at the start that are the prefix of a task.
    """

    read: Inputs
    valid: PaddingMask
    pieces: list[str]
    words: list[Word]
    image: UInt8[np.ndarray, "channels height width"] | None = None
    across: int = 0
    prefix_words: int = 0

    def walk(self, encoder: Encoder, focus: InspectionRequest, word: int) -> Walk | None:
        """Compute a word's attention in the encoder step by step; None without scaled dot-product attention."""
        found = lookups(encoder, lambda: encoder(self.read, self.valid))
        if not found:
            return None
        layer = focus.chosen_layer(len(found))
        return compute_walk(found[layer], (layer, focus.head), self.words[word], self.pieces)

    def looked(self, encoder: Encoder, word: int) -> list[list[tuple[str, float]]]:
        """Return for each layer the three most attended words of a word, with their weights (mean over heads)."""
        with torch.no_grad():
            weights = encoder.self_attention_weights(self.read, self.valid)[0].mean(dim=1).cpu().double()
        layers = []
        for layer in weights:
            row = layer[list(self.words[word].places)].mean(dim=0)
            shares = [(each.text, float(row[list(each.places)].sum())) for each in self.words]
            layers.append(sorted(shares, key=lambda share: -share[1])[:_LOOKED])
        return layers

    def vectors(self, encoder: Encoder, word: int) -> list[Tensor]:
        """Return the mean vector of a word's tokens after the embedding and after each layer."""
        with torch.no_grad():
            layers = encoder.states_by_layer(encoder.embedding(self.read), self.valid)
        return [layer[0, list(self.words[word].places)].mean(dim=0).cpu().double() for layer in layers]


def chosen_words(encoder: Encoder, sources: Sequence[Source], wanted: str | None) -> list[int]:
    """Select the word to inspect in each input.

    Args:
        sources: One input, or two.
        wanted: The word; None: for one input the longest word, or the middle patch of an image; for two inputs the
            common word whose vectors differ most. Special tokens and the words of a prefix are not selected.
    """
    if wanted is not None:
        return [find_word(source.words, wanted) for source in sources]
    if across := sources[0].across:
        middle = (across // 2) * (across + 1)
        return [len(image.words) - across * across + middle for image in sources]
    if len(sources) == 1:
        candidates = dict(_occurrences(sources[0])).values()
        return [max(candidates, key=lambda place: len(sources[0].words[place].bare), default=0)]
    first, second = sources
    places = dict(_occurrences(second))
    pairs = [(place, places[named]) for named, place in _occurrences(first) if named in places]
    if not pairs:
        raise UserError("the two inputs have no common word", "INPUT", "give two inputs with a common word")

    def alike(pair: tuple[int, int]) -> float:
        """Return the cosine similarity of the word's last vectors."""
        ends = (source.vectors(encoder, place)[-1] for source, place in zip(sources, pair, strict=True))
        return float(functional.cosine_similarity(*ends, dim=0))

    return list(min(pairs, key=alike))


def _occurrences(source: Source) -> Iterator[tuple[tuple[str, int], int]]:
    """Yield each word with the number of its earlier occurrences, and its index; no special tokens and no prefix."""
    counts: Counter[str] = Counter()
    for place, word in enumerate(source.words):
        if place >= source.prefix_words and word.bare and not _special(word):
            yield (word.bare, counts[word.bare]), place
            counts[word.bare] += 1


def _special(word: Word) -> bool:
    return word.text.startswith("<") and word.text.endswith(">")


def same_word(encoder: Encoder, sources: Sequence[Source], words: Sequence[int]) -> SameWord | None:
    """Compare a word in two inputs, layer by layer.

    Args:
        words: Index of the word in each input.
    """
    if len(sources) < 2:
        return None
    first, second = (source.vectors(encoder, word) for source, word in zip(sources, words, strict=True))
    cosines = [float(functional.cosine_similarity(a, b, dim=0)) for a, b in zip(first, second, strict=True)]
    looked = [source.looked(encoder, word) for source, word in zip(sources, words, strict=True)]
    names = ["embedding", *(f"layer {i}" for i in range(len(first) - 1))]
    if len(first) == 2:
        # A model that does not expose its layers has only the embedding and the output.
        names[-1] = "last layer"
    if 0 < len(looked[0]) < len(names) - 1:
        names[-1] = "last norm"
    return SameWord(sources[0].words[words[0]].text, names, cosines, looked)
