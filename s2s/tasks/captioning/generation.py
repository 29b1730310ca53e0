"""A model of images and captions: how it is built, how it writes, and where it looks for each word."""

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
from s2s.recipe.installed import module_of
from s2s.tasks.captioning.data import as_read, positions_of
from s2s.tasks.captioning.recipe import CaptionRecipe
from s2s.tasks.image_files import Pixels
from s2s.training.device import derive_seed

_SPACE = "▁"


def build_model(recipe: CaptionRecipe, target_size: int) -> Seq2Seq:
    """The encoder and decoder of a kind, with what reads images in the place of the encoder's table.

    Raises:
        UserError: the encoder learns fewer positions than an image has, or the decoder writes a piece for each of them.
    """
    torch.default_generator.manual_seed(derive_seed(recipe.seeds.initialization))
    data, stem = recipe.data, recipe.stem
    # a table of one piece, which is replaced at once
    model: Seq2Seq = module_of(recipe.model.kind).build(recipe.model, 1, target_size)
    if model.decoder.is_one_to_one:
        raise UserError(
            f"a model of kind {recipe.model.kind} writes one piece for each that it reads, and a caption has as many "
            "as it takes",
            where="model.kind",
            remedy="take another model, such as lstm-attention",
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
    """A caption for each image, by the recipe's limits; `advance` is told how many were written, batch by batch."""
    written: list[Translation] = []
    for first in range(0, len(pixels), recipe.decoding.batch):
        part = pixels[first : first + recipe.decoding.batch]
        limits = np.full(len(part), recipe.decoding.max_length)
        written += writer.write(*as_read(part, positions_of(recipe)), limits)
        advance(len(part))
    return written


def length_settings(model: Seq2Seq) -> tuple[str, ...]:
    """Settings that limit the length of a caption."""
    return ("decoding.max_length", *(() if model.decoder.max_positions is None else ("model.max_positions",)))


@dataclass(frozen=True)
class Look:
    """Where a model looked while it wrote the words of a caption.

    Attributes:
        name: of the image.
        words: of the caption.
        maps: for each word, the share of its attention that each square of the image had, row by row: that of the last
            layer, the mean of its heads and of the word's pieces.
        pixels: of the image as it was read, from 0 to 255.
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
    """Where a model looked for each word of what it wrote; nothing where it has no attention."""
    tokens = [list(each.candidates[0].hypothesis.tokens) for each in written]
    weights = attention(model, pixels, tokens, positions_of(recipe))
    if weights is None:
        return []
    across = recipe.data.size // recipe.stem.size
    found = []
    for name, image, row, seen in zip(names, pixels, tokens, weights, strict=True):
        words, of_word = _words(tokenizer.tokens(row))
        maps = [seen[of].mean(axis=0).reshape(across, across).round(6).tolist() for of in of_word]
        found.append(Look(name, words, maps, image.tolist()))
    return found


def attention(
    model: Seq2Seq,
    pixels: UInt8[np.ndarray, "images channels height width"],
    tokens: Sequence[list[int]],
    positions: int,
) -> Float[np.ndarray, "images target source"] | None:
    """The shares of each position for each piece and the end, in the last layer, the mean of its heads.

    None where the decoder has no attention.
    """
    device = next(model.parameters()).device
    batch = collate([[]] * len(tokens), tokens, range(len(tokens)))
    source, valid = (to_device(tensor, device) for tensor in as_read(pixels, positions))
    with torch.no_grad():
        memory = model.encoder(source, valid)
        weights = model.decoder.attention_weights(memory, to_device(batch.target_in, device))
    return weights[:, -1].mean(dim=1).cpu().double().numpy() if weights.shape[1] else None


def _words(tokens: Sequence[str]) -> tuple[list[str], list[list[int]]]:
    """The words that pieces make, and the places of the pieces of each."""
    words: list[str] = []
    of_word: list[list[int]] = []
    for place, piece in enumerate(tokens):
        if piece.startswith(_SPACE) or not words:
            words.append("")
            of_word.append([])
        words[-1] += piece.removeprefix(_SPACE)
        of_word[-1].append(place)
    return words, of_word
