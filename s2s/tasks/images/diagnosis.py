"""Data check of labelled images: problems found before training."""

from collections.abc import Iterator

import numpy as np

from s2s.data import data_check as look
from s2s.data.sources import Corpus, count_overlap, hashes
from s2s.tasks.data_check import CorpusInspection, Split, inspect_labels, some
from s2s.tasks.image_files import DAMAGED, pixel_statistics, plain
from s2s.tasks.images.data import Images, ImageSource
from s2s.tasks.images.recipe import ImageDataSettings, ImageRecipe

# In standard deviations of the training pixels: a mean further away makes all normalized pixels dark, or all bright.
_FAR = 1.0


def inspected(recipe: ImageRecipe) -> str:
    """Return a report on a recipe's images: statistics and suspicious examples.

    Returns:
        The report as text.
    """
    source = ImageSource(recipe.data)
    return str(inspect_images(source.load(), source))


def inspect_images(corpus: Corpus[Images], source: ImageSource) -> CorpusInspection:
    """Check labelled images."""
    train = corpus.train
    numbers = {name: corpus.row_numbers(name, len(part)) for name, part in corpus.splits().items()}
    rows = look.sample_rows(len(train), source.settings.seed)
    spots = [
        f"  {number:>9,}  {train.names[int(train.labels[row])]}: mean {train.pixels[row].mean() / 255:.2f} of white"
        for row, number in ((row, numbers["train"][row]) for row in rows)
    ]
    splits = {}
    for name, part in corpus.splits().items():
        found = inspect_labels(name, "images", hashes(source.keys(part)), part.labels, part.counts(), numbers[name])
        dull = [numbers[name][row - 1] for row in plain(part.pixels)]
        told = some(dull, f"images of {name}", after=DAMAGED)
        splits[name] = Split({**found.rows, "images of a single colour": len(dull)}, [*found.advice, *told])
    overlap = {"images": count_overlap(corpus, source.keys)}
    return CorpusInspection(splits, overlap, spots, own=tuple(_statistics(train, source.settings)), note=corpus.note)


def _statistics(train: Images, settings: ImageDataSettings) -> Iterator[str]:
    mean, deviation = pixel_statistics(train.pixels)
    if settings.mean and np.any(np.abs(mean - settings.mean) > _FAR * deviation):
        own, given = (", ".join(f"{number:.3f}" for number in numbers) for numbers in (mean, settings.mean))
        yield f"the mean of the training pixels is {own}, data.mean says {given}: shares of white, from 0 to 1?"
