"""What commonly spoils images with captions, found before training."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from s2s.data import inspection as look
from s2s.data.encoding import learned
from s2s.data.piece_inspection import Cutting, cutting
from s2s.data.sources import Corpus
from s2s.tasks.captioning.data import Captioned, CaptionSource
from s2s.tasks.captioning.recipe import CaptionRecipe
from s2s.tasks.pixels import plain


@dataclass(frozen=True)
class CaptionFindings:
    """What one split holds. Rows count its images from 1, in the order of the split.

    Attributes:
        images: how many there are.
        captions: of all of them; and the fewest and the most that one has.
        words: white-space separated words of the shortest, the middle and the longest caption.
        repeated: rows whose image, as it is read, stands in an earlier row, too.
        plain: rows whose image is of a single colour.
        said_before: captions that an earlier image has, too.
        suspicious: rows with a caption that has one of the `SUSPICIOUS` characters, by its name.
        altered: captions that the tokenizer's normalization changes, in words.
    """

    images: int
    captions: tuple[int, int, int]
    words: tuple[int, int, int]
    repeated: list[int]
    plain: list[int]
    said_before: int
    suspicious: dict[str, list[int]]
    altered: str


@dataclass(frozen=True)
class CaptionInspection:
    """What a corpus of captioned images holds, and what is suspicious.

    By split, how many images are in train, too, and how many captions; images of train drawn at random with a caption,
    to look at with one's own eyes; and how captions are cut, where that was looked at.
    """

    splits: dict[str, CaptionFindings]
    images_in_train: dict[str, int]
    captions_in_train: dict[str, int]
    spots: list[tuple[str, str]]
    cut: Cutting | None = None

    def __str__(self) -> str:
        spots = [f"  {look.visible(name)}: {look.visible(caption)}" for name, caption in self.spots]
        drawn = [f"train: {len(spots)} images drawn at random", *spots]
        return look.findings([self._summary(), drawn], self.advice())

    def advice(self) -> Iterator[str]:
        """What should be mended, in plain words."""
        for name, found in self.splits.items():
            if found.repeated:
                some = f"{len(found.repeated):,} images of {name} ({look.some_rows(found.repeated)})"
                yield f"{some} equal an earlier one as they are read: the same image, or data.size is too small"
            if found.plain:
                some = f"{len(found.plain):,} images of {name} ({look.some_rows(found.plain)})"
                yield f"{some} are of a single colour: damaged?"
            if found.altered:
                yield f"the tokenizer changes {found.altered} ({name}): such captions can never be written as they are"
            for kind, rows in found.suspicious.items():
                some = f"captions of {len(rows):,} images of {name} with a {kind} ({look.some_rows(rows)})"
                yield f"{some}: wanted, or a conversion gone wrong?"
        for name, count in self.images_in_train.items():
            if count:
                yield f"{count:,} images of {name} also occur in train: scores will flatter"
        yield from self.cut.advice() if self.cut else ()

    def _summary(self) -> list[str]:
        splits = list(self.splits.values())
        rows: dict[str, list[float | None]] = {"images": [found.images for found in splits]}
        for place, words in enumerate(("captions", "  fewest of an image", "  most of an image")):
            rows[words] = [found.captions[place] for found in splits]
        for place, words in enumerate(("words of the shortest caption", "  of the middle one", "  of the longest")):
            rows[words] = [found.words[place] for found in splits]
        rows["captions said before"] = [found.said_before for found in splits]
        rows["repeated images"] = [len(found.repeated) for found in splits]
        rows["images of a single colour"] = [len(found.plain) for found in splits]
        rows["images also in train"] = [self.images_in_train.get(name) for name in self.splits]
        rows["captions also in train"] = [self.captions_in_train.get(name) for name in self.splits]
        return look.table(self.splits, rows | (self.cut.rows() if self.cut else {}))


def inspected(recipe: CaptionRecipe) -> str:
    """What a recipe's images and captions hold, and what is suspicious, as text."""
    source, tokenizer = CaptionSource(recipe.data), recipe.tokenizer
    corpus = source.load()
    captions = {name: list(part.texts()) for name, part in corpus.parts().items()}
    found = inspect_captions(corpus, source, tokenizer.normalization, recipe.data.seed)
    cut = cutting(captions, lambda: learned(captions["train"], tokenizer), recipe.batches.max_length)
    return str(replace(found, cut=cut))


def inspect_captions(
    corpus: Corpus[Captioned], source: CaptionSource, normalization: str, seed: int
) -> CaptionInspection:
    """Looks through images and captions; some to be looked at are drawn by a seed."""
    train = corpus.train
    spots = [(train.names[row], train.captions[row][0]) for row in look.drawn(len(train), seed)]
    splits = {name: _findings(part, source, normalization) for name, part in corpus.parts().items()}
    captions = look.overlap(corpus, lambda part: part.texts())
    return CaptionInspection(splits, look.overlap(corpus, source.keys), captions, spots)


def _findings(part: Captioned, source: CaptionSource, normalization: str) -> CaptionFindings:
    counts = np.array([len(several) for several in part.captions])
    words = np.array([len(caption.split()) for caption in part.texts()])
    suspicious: dict[str, list[int]] = {}
    for row, several in enumerate(part.captions, start=1):
        look.note_suspicious(suspicious, row, *several)
    return CaptionFindings(
        images=len(part),
        captions=(int(counts.sum()), int(counts.min()), int(counts.max())),
        words=(int(words.min()), int(np.median(words)), int(words.max())),
        repeated=(look.repeated(look.hashes(source.keys(part))) + 1).tolist(),
        plain=plain(part.pixels),
        said_before=len(look.repeated(look.hashes(part.texts()))),
        suspicious=suspicious,
        altered=look.altered(part.texts(), normalization),
    )
