"""Queries, keys and values of a trained model, taken from it while it reads, and attention walked through with them."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
    """One call of an `Attention`: what was asked, offered and read, split into heads, between the projections."""

    query: Query
    key: KeyValue
    value: KeyValue
    mask: Mask
    read: Query


def lookups(model: nn.Module, run: Callable[[], object]) -> list[Lookup]:
    """What each `Attention` of a network was asked while something ran, in the order of the calls."""
    found: list[Lookup] = []
    with torch.no_grad(), _noted(model, found):
        run()
    return found


@contextmanager
def _noted(model: nn.Module, found: list[Lookup]) -> Iterator[None]:
    modules = [module for module in model.modules() if isinstance(module, Attention)]

    def noting(module: Attention) -> Callable[[Tensor, Tensor, Tensor, Mask], Tensor]:
        """Wrap `attend` so that it records its arguments and its result."""
        read = module.attend

        def noted(query: Tensor, key: Tensor, value: Tensor, mask: Mask) -> Tensor:
            found.append(Lookup(query, key, value, mask, read(query, key, value, mask)))
            return found[-1].read

        return noted

    try:
        for module in modules:
            # found before the class's own
            module.__dict__["attend"] = noting(module)
        yield
    finally:
        for module in modules:
            module.__dict__.pop("attend", None)


def weights_of(lookup: Lookup) -> Float[Tensor, "head target source"]:
    """How much each position of a call's only row looked at each other: the softmax of `walked`, for all heads."""
    size = lookup.query.shape[-1]
    # several heads may share their keys
    keys = lookup.key[0].repeat_interleave(lookup.query.shape[1] // lookup.key.shape[1], dim=0)
    scores = lookup.query[0] @ keys.transpose(1, 2) / math.sqrt(size)
    if lookup.mask is not None:
        scores = scores + torch.stack([_added(lookup, head) for head in range(len(scores))]).to(scores)
    return scores.softmax(dim=2)


def compute_walk(lookup: Lookup, focus: tuple[int, int], word: Word, tokens: Sequence[str]) -> Walk:
    """Attention of a word's first piece, step by step: equation 1 of Vaswani et al. (2017), in double precision.

    Args:
        lookup: a call with a single row.
        focus: the layer that the call was of, and a head of it.
        word: one of those that asked.
        tokens: those that were offered.

    Raises:
        UserError: there is no such head.
    """
    (layer, head), place = focus, min(word.places)
    heads = lookup.query.shape[1]
    if head >= heads:
        raise UserError(f"there is no head {head}", "--head", f"0 to {heads - 1} are there")
    # several heads may share their keys and values
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
    return Walk(
        layer=layer,
        head=head,
        word=word.text,
        place=place,
        pieces=list(tokens),
        query=query.numpy(),
        keys=keys.numpy(),
        values=values.numpy(),
        dots=dots.numpy(),
        scaled=scaled.numpy(),
        weights=weights.numpy(),
        read=read.numpy(),
        difference=difference,
    )


def _added(lookup: Lookup, head: int) -> Tensor:
    """What the mask adds to the scores: nothing where a position may look, and minus infinity elsewhere."""
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
    """An input as an encoder reads it, in a batch of its own: tokens or pixels, and its pieces and words by name.

    Of an image, its pixels are there, too, and the words are its patches, row by row and so many `across`, after what
    else is read; of a text, `across` is 0.
    """

    read: Inputs
    valid: PaddingMask
    pieces: list[str]
    words: list[Word]
    image: UInt8[np.ndarray, "channels height width"] | None = None
    across: int = 0

    def walk(self, encoder: Encoder, focus: InspectionRequest, word: int) -> Walk | None:
        """A word's attention in the encoder; None where the encoder has no scaled dot products.

        Raises:
            UserError: there is no such layer or head.
        """
        found = lookups(encoder, lambda: encoder(self.read, self.valid))
        if not found:
            return None
        layer = focus.chosen_layer(len(found))
        return compute_walk(found[layer], (layer, focus.head), self.words[word], self.pieces)

    def looked(self, encoder: Encoder, word: int) -> list[list[tuple[str, float]]]:
        """The words that a word looks at most, layer by layer, heads averaged, with their shares."""
        with torch.no_grad():
            weights = encoder.attention_weights(self.read, self.valid)[0].mean(dim=1).cpu().double()
        layers = []
        for layer in weights:
            row = layer[list(self.words[word].places)].mean(dim=0)
            shares = [(each.text, float(row[list(each.places)].sum())) for each in self.words]
            layers.append(sorted(shares, key=lambda share: -share[1])[:_LOOKED])
        return layers

    def vectors(self, encoder: Encoder, word: int) -> list[Tensor]:
        """The mean of the vectors of a word's pieces, after each layer."""
        with torch.no_grad():
            layers = encoder.states_by_layer(encoder.embedding(self.read), self.valid)
        return [layer[0, list(self.words[word].places)].mean(dim=0).cpu().double() for layer in layers]


def chosen_words(encoder: Encoder, sources: Sequence[Source], wanted: str | None) -> list[int]:
    """Which word of each input is looked into: the wanted one, or else that which two inputs make most different.

    Of one input, it is the longest; of an image, the patch in the middle. Special pieces are no choice.

    Raises:
        UserError: the word is not in each input, or two have none in common.
    """
    if wanted is not None:
        return [find_word(source.words, wanted) for source in sources]
    if across := sources[0].across:
        middle = (across // 2) * (across + 1)
        return [len(image.words) - across * across + middle for image in sources]
    if len(sources) == 1:
        lengths = [len(word.bare) if not _special(word) else 0 for word in sources[0].words]
        return [lengths.index(max(lengths))]
    first, second = sources
    places = dict(_occurrences(second.words))
    pairs = [(place, places[named]) for named, place in _occurrences(first.words) if named in places]
    if not pairs:
        raise UserError("the two inputs have no word in common", "INPUT", "give two that share the word to look into")

    def alike(pair: tuple[int, int]) -> float:
        """The cosine of a word's last vectors."""
        ends = (source.vectors(encoder, place)[-1] for source, place in zip(sources, pair, strict=True))
        return float(functional.cosine_similarity(*ends, dim=0))

    return list(min(pairs, key=alike))


def _occurrences(words: Sequence[Word]) -> Iterator[tuple[tuple[str, int], int]]:
    """Each word and how often it stood before, and its place."""
    counts: Counter[str] = Counter()
    for place, word in enumerate(words):
        if word.bare and not _special(word):
            yield (word.bare, counts[word.bare]), place
            counts[word.bare] += 1


def _special(word: Word) -> bool:
    return word.text.startswith("<") and word.text.endswith(">")


def same_word(encoder: Encoder, sources: Sequence[Source], words: Sequence[int]) -> SameWord | None:
    """How one word differs between two inputs, layer by layer; None of a single input."""
    if len(sources) < 2:
        return None
    first, second = (source.vectors(encoder, word) for source, word in zip(sources, words, strict=True))
    cosines = [float(functional.cosine_similarity(a, b, dim=0)) for a, b in zip(first, second, strict=True)]
    looked = [source.looked(encoder, word) for source, word in zip(sources, words, strict=True)]
    names = ["embedding", *(f"layer {i}" for i in range(len(first) - 1))]
    if len(first) == 2:
        # of a model that does not tell its layers, the two ends are known
        names[-1] = "last layer"
    if 0 < len(looked[0]) < len(names) - 1:
        names[-1] = "last norm"
    return SameWord(sources[0].words[words[0]].text, names, cosines, looked)
