"""Captioning model: construction, caption generation and attention maps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, UInt8

from s2s.data.batches import collate
from s2s.data.dataset import to_device
from s2s.data.tokenizers import Tokenizer
from s2s.decoding.generate import Generator, Translation
from s2s.errors import UserError
from s2s.models.base import Seq2Seq
from s2s.models.feature_map import FeatureMap
from s2s.models.patches import ImageShape, PatchTable, read_vectors, width_of
from s2s.tasks.captioning.data import as_read, positions_of
from s2s.tasks.captioning.recipe import CaptionRecipe
from s2s.tasks.image_files import Pixels
from s2s.tasks.seq2seq import build_model as build_seq2seq


def build_model(recipe: CaptionRecipe, target_size: int) -> Seq2Seq:
    """Build the recipe's model, on the CPU, with a stem for images instead of source embeddings.

    Raises:
        UserError: The encoder has fewer positions than an image needs, or the decoder is one-to-one.
    """
    data, stem = recipe.data, recipe.stem
    # An embedding table of one token, which is replaced at once.
    model = build_seq2seq(recipe, 1, target_size)
    if model.decoder.is_one_to_one:
        raise UserError(
            f"a model of kind {recipe.model.kind} generates one token for each vector of the image, but captions "
            "differ in length",
            where="model.kind",
            remedy="use another model, such as lstm-attention",
        )
    shape = ImageShape(data.channels, data.size, data.mean or (), data.deviation or ())
    width = width_of(model.encoder)
    patches = stem.kind == "patches"
    table = PatchTable(shape, stem.size, width, first=False) if patches else FeatureMap(shape, stem.size, width)
    read_vectors(model.encoder, table)
    return model


def write(
    recipe: CaptionRecipe, writer: Generator, pixels: Pixels, advance: Callable[[int], object] = lambda count: None
) -> list[Translation]:
    """Generate captions for images, with the recipe's batch size and length limit.

    Args:
        advance: Called after each batch with its number of images.
    """
    written: list[Translation] = []
    for first in range(0, len(pixels), recipe.decoding.batch):
        part = pixels[first : first + recipe.decoding.batch]
        limits = np.full(len(part), recipe.decoding.max_length)
        written += writer.write(*as_read(part, positions_of(recipe)), limits)
        advance(len(part))
    return written


def length_settings(model: Seq2Seq) -> tuple[str, ...]:
    """Return the settings that limit the length of a caption."""
    return ("decoding.max_length", *(() if model.decoder.max_positions is None else ("model.max_positions",)))


@dataclass(frozen=True)
class Look:
    """Attention of a model for each word of a generated caption.

    Attributes:
        maps: Attention weight of each square of the image, row by row, for each word: last layer, mean over heads and
            over the word's tokens.
        pixels: Pixels of the image as it was read, 0 to 255.
    """

    name: str
    words: list[str]
    maps: list[list[list[float]]]
    pixels: list[list[list[int]]]


def looks(
    recipe: CaptionRecipe,
    model: Seq2Seq,
    tokenizer: Tokenizer,
    pixels: Pixels,
    written: Sequence[Translation],
    names: Sequence[str],
) -> list[Look]:
    """Return the attention maps of generated captions; empty if the model has no attention."""
    tokens = [list(each.candidates[0].hypothesis.tokens) for each in written]
    weights = attention(model, pixels, tokens, positions_of(recipe))
    if weights is None:
        return []
    across = recipe.data.size // recipe.stem.size
    found = []
    for name, image, row, seen in zip(names, pixels, tokens, weights, strict=True):
        words: list[str] = []
        places: list[list[int]] = []
        for place, token in enumerate(tokenizer.tokens(row)):
            if token.startswith("▁") or not words:
                words.append("")
                places.append([])
            words[-1] += token.removeprefix("▁")
            places[-1].append(place)
        maps = [seen[of_word].mean(axis=0).reshape(across, across).round(6).tolist() for of_word in places]
        found.append(Look(name, words, maps, image.tolist()))
    return found


def attention(
    model: Seq2Seq,
    pixels: UInt8[np.ndarray, "images channels height width"],
    tokens: Sequence[list[int]],
    positions: int,
) -> Float[np.ndarray, "images target source"] | None:
    """Compute the cross-attention of the last layer, averaged over heads; None if the decoder has no attention.

    Args:
        tokens: Tokens of each caption, without `EOS`.
        positions: Number of positions of an image.

    Returns:
        Weights (images, target, source), `EOS` included.
    """
    device = next(model.parameters()).device
    batch = collate([[]] * len(tokens), tokens, range(len(tokens)))
    source, valid = (to_device(tensor, device) for tensor in as_read(pixels, positions))
    with torch.no_grad():
        memory = model.encoder(source, valid)
        weights = model.decoder.cross_attention_weights(memory, to_device(batch.target_in, device))
    return weights[:, -1].mean(dim=1).cpu().double().numpy() if weights.shape[1] else None
