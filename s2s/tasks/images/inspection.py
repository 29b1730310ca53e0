"""What commonly spoils labelled images, found before training."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from s2s.data import inspection as look
from s2s.data.sources import Corpus
from s2s.tasks.images.data import Images, ImageSource
from s2s.tasks.images.recipe import ImageDataSettings, ImageRecipe
from s2s.tasks.labelled_inspection import LabelledFindings, LabelledInspection, repeated_and_contradictory
from s2s.tasks.pixels import pixel_statistics, plain

# in deviations of the training pixels: a mean further away than this leaves pixels that are all dark, or all bright
_FAR = 1.0


@dataclass(frozen=True)
class ImageFindings(LabelledFindings):
    """What one split holds, as far as its pixels go, too.

    Attributes:
        plain: rows whose image is of a single colour.
    """

    plain: list[int]

    def advice(self, name: str) -> Iterator[str]:
        """What should be mended, in plain words."""
        yield from super().advice(name)
        if self.plain:
            some = f"{len(self.plain):,} images of {name} ({look.some_rows(self.plain)})"
            yield f"{some} are of a single colour: damaged?"

    def rows(self) -> dict[str, int]:
        """Numbers by what they count."""
        return super().rows() | {"images of a single colour": len(self.plain)}


def inspected(recipe: ImageRecipe) -> str:
    """What a recipe's images hold, as they are read, and what is suspicious, as text."""
    source = ImageSource(recipe.data)
    return str(inspect_images(source.load(), source))


def inspect_images(corpus: Corpus[Images], source: ImageSource) -> LabelledInspection:
    """Looks through labelled images; some to be looked at are drawn by the recipe's seed."""
    train = corpus.train
    spots = [
        f"  {row + 1:>9,}  {train.names[int(train.labels[row])]}: mean {train.pixels[row].mean() / 255:.2f} of white"
        for row in look.drawn(len(train), source.settings.seed)
    ]
    splits = {}
    for name, part in corpus.parts().items():
        again, other = repeated_and_contradictory(look.hashes(source.keys(part)), part.labels)
        splits[name] = ImageFindings("images", part.counts(), again, other, plain(part.pixels))
    own = tuple(_statistics(train, source.settings))
    return LabelledInspection("images", splits, look.overlap(corpus, source.keys), spots, own)


def _statistics(train: Images, settings: ImageDataSettings) -> Iterator[str]:
    mean, deviation = pixel_statistics(train.pixels)
    if settings.mean and np.any(np.abs(mean - settings.mean) > _FAR * deviation):
        own, given = (", ".join(f"{number:.3f}" for number in numbers) for numbers in (mean, settings.mean))
        yield f"the mean of the training pixels is {own}, data.mean says {given}: shares of white, from 0 to 1?"
