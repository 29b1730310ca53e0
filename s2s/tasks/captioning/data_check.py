"""Data check of images with captions: problems found before training."""

from dataclasses import replace

import numpy as np

from s2s.data import data_check as look
from s2s.data.data_check import cutting
from s2s.data.scripts import is_unspaced, split_words, unit_name
from s2s.data.sources import Corpus, count_overlap, hashes, repeated
from s2s.data.tokenized import learned
from s2s.tasks.captioning.data import Captioned, CaptionSource
from s2s.tasks.captioning.recipe import CaptionRecipe
from s2s.tasks.data_check import CorpusInspection, Split, conversions, some
from s2s.tasks.image_files import DAMAGED, plain


def inspected(recipe: CaptionRecipe) -> str:
    """Return a report on a recipe's images and captions.

    Args:
        recipe: Resolved recipe.

    Returns:
        Statistics and suspicious examples as text.
    """
    source, tokenizer = CaptionSource(recipe.data), recipe.tokenizer
    corpus = source.load()
    captions = {name: list(part.texts()) for name, part in corpus.parts().items()}
    found = inspect_captions(corpus, source, tokenizer.normalization, recipe.data.seed)
    cut = cutting(captions, lambda: learned(captions["train"], tokenizer), recipe.batches.max_length)
    return str(replace(found, cut=cut))


def inspect_captions(
    corpus: Corpus[Captioned], source: CaptionSource, normalization: str, seed: int
) -> CorpusInspection:
    """Check images and captions.

    Args:
        corpus: Images with captions.
        source: Source of the corpus.
        normalization: Normalization of the tokenizer.
        seed: Seed for the sample of training images.

    Returns:
        Statistics and advice.
    """
    train = corpus.train
    drawn = [(train.names[row], train.captions[row][0]) for row in look.sample_rows(len(train), seed)]
    spots = [f"  {look.escape_invisible(name)}: {look.escape_invisible(caption)}" for name, caption in drawn]
    splits = {name: _split(name, part, source, normalization) for name, part in corpus.parts().items()}
    in_train = {
        "images": count_overlap(corpus, source.keys),
        "captions": count_overlap(corpus, lambda part: part.texts()),
    }
    return CorpusInspection(splits, in_train, spots)


def _split(name: str, part: Captioned, source: CaptionSource, normalization: str) -> Split:
    counts = np.array([len(several) for several in part.captions])
    unspaced = is_unspaced(part.texts())
    words = np.array([len(split_words(caption, unspaced)) for caption in part.texts()])
    again, dull = (repeated(hashes(source.keys(part))) + 1).tolist(), plain(part.pixels)
    changed, suspicious = look.altered(part.texts(), normalization), dict[str, list[int]]()
    for row, several in enumerate(part.captions, start=1):
        look.note_suspicious(suspicious, row, *several)
    rows = {
        "images": len(part),
        "captions": int(counts.sum()),
        "  fewest of an image": int(counts.min()),
        "  most of an image": int(counts.max()),
        f"{unit_name(unspaced)} of the shortest caption": int(words.min()),
        "  of the middle one": int(np.median(words)),
        "  of the longest": int(words.max()),
        "captions said before": len(repeated(hashes(part.texts()))),
        "repeated images": len(again),
        "images of a single colour": len(dull),
    }
    which, spelt = f"images of {name}", f"the tokenizer changes {changed} ({name})"
    advice = [
        *some(again, which, " equal an earlier one as they are read: the same image, or data.size is too small"),
        *some(dull, which, DAMAGED),
        *([f"{spelt}: such captions can never be written as they are"] if changed else []),
        *(f"captions of {words}" for words in conversions(suspicious, which)),
    ]
    return Split(rows, advice)
