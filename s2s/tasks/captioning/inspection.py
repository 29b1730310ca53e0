"""Inspection of a captioning model: cross-attention, and saliency of patches."""

from pathlib import Path

import numpy as np
import torch

from s2s.data.dataset import to_device
from s2s.data.tokenizers import EOS
from s2s.decoding.generate import Generator
from s2s.inspection.inspection import Inspection, InspectionRequest
from s2s.inspection.positions import even_grey
from s2s.inspection.seq2seq import Pair, inspection_of
from s2s.inspection.walk import Source
from s2s.inspection.words import patches
from s2s.models.base import Seq2Seq
from s2s.tasks.base import LoadedModel
from s2s.tasks.captioning.data import as_read, positions_of
from s2s.tasks.captioning.generation import write
from s2s.tasks.captioning.recipe import CaptionRecipe
from s2s.tasks.image_files import Pixels, read_all

CaptionRun = LoadedModel[CaptionRecipe, Seq2Seq]


def insides(run: CaptionRun, focus: InspectionRequest) -> Inspection:
    """Inspect one image or two, with generated captions (`s2s inspect`).

    Args:
        focus: Image files, and the patch, layer and head to inspect.

    Returns:
        Attention, saliency and hidden states.

    Raises:
        UserError: A file is missing or not an image; or the patch, layer or head does not exist.
    """
    if focus.inputs:
        pixels, names = read_all([Path(name) for name in focus.inputs], run.recipe.data), list(focus.inputs)
    else:
        example = focus.example
        pixels, names = example.pixels, [f"{example.names[0]}: {example.captions[0][0]}"]
    pairs = [_pair(run, image[None], name) for image, name in zip(pixels, names, strict=True)]
    return Inspection(str(run.path), run.checkpoint.name, run.recipe.task, *inspection_of(run.model, pairs, focus))


def _pair(run: CaptionRun, pixels: Pixels, name: str) -> Pair:
    recipe, (tokenizer,), encoder = run.recipe, run.tokenizers, run.model.encoder
    (caption,) = write(recipe, Generator(run.model, tokenizer, recipe.decoding), pixels)
    written = list(caption.candidates[0].hypothesis.tokens) if caption.candidates else []
    read, valid = (to_device(each, run.device_context.device) for each in as_read(pixels, positions_of(recipe)))
    across = recipe.data.size // recipe.stem.size
    words = patches(across)
    with torch.no_grad():
        nothing = encoder.embedding(even_grey(read, recipe.data.mean))
    source = Source(read, valid, [word.text for word in words], words, np.asarray(pixels[0]), across)
    return Pair(source, written, (name, caption.text), tokenizer.tokens([*written, EOS]), nothing)
