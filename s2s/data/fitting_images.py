"""A recipe fitted to the user's own labelled images: their folders or IDX files are found, read and measured."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from s2s.data.fitting import held_out, quoted, recipe_name, rounded, split_line
from s2s.data.idx import read_idx_images
from s2s.data.images import ALIASES, ENDINGS, ImageCorpus, class_folders, idx_files, load_images
from s2s.errors import UserError
from s2s.recipe.images import ImageDataSettings

_LOOKED_AT = 200
_BATCH = 128
_IMBALANCE = 10

_PAGE = """# Made by `s2s new images` for {examples:,} images of {classes} classes. All keys: s2s recipe reference
name: {name}
task: images
data:
  corpus: files
  train: {train}
{splits}
  size: {size} # {why_size}
  channels: {channels} # {why_channels}
augmentation:
  shift: {shift}
  flip: false # true for things that look alike from both sides; digits and letters do not
patches:
  size: {patch} # {patches} of them
batches:
  images: {batch}
model:
  kind: transformer
  width: 64
  heads: 4
  feedforward: 128
  encoder_layers: 4
  encoder_positions: learned
  max_positions: {positions}
  activation: gelu
  dropout: {dropout} # the fewer the images, the more
head:
  pooling: first
training:
  updates: {updates} # {passes:.0f} passes over the images or so
  optimizer: adamw
  learning_rate: 0.002
  schedule: cosine
  warmup: 0.1 # a share of the updates: a shorter training warms up as much sooner
  weight_decay: 0.05
  ema: 0.995
validation:
  every: {every}
  metric: {metric}
"""

Place = str | tuple[str, str]


@dataclass(frozen=True)
class Places:
    """The user's images: folders, or IDX files of images; held out of `train`, or found beside it, where None."""

    train: Path
    validation: Path | None = None
    test: Path | None = None


def fitted_images(name: str, places: Places) -> str:
    """A recipe for the user's own images.

    Args:
        name: of the run; what a name may not hold becomes `-`.
        places: a folder with one folder of images for each class; one with such folders called `train`, `test` and
            `validation`; one with IDX files of the usual names; or an IDX file of images, beside that of their labels.

    Raises:
        UserError: nothing of the kind is there, or there is too little to learn from.
    """
    train = _split(places.train, "train")
    if train is None:
        raise UserError(
            "has no folders of classes and no IDX files"
            if places.train.is_dir()
            else "there is no such folder or IDX file",
            where=str(places.train),
            remedy="put the images of each class into a folder of the class's name: train/cat/1.png",
        )
    found: dict[str, Place | None] = {}
    for split, given in (("validation", places.validation), ("test", places.test)):
        found[split] = _split(given or places.train, split)
        if given is not None and found[split] is None:
            found[split] = _split(given, "train") or str(given.absolute())
    size, why_size, channels, why_channels = _looks(train)
    held = held_out(_count(train), None not in found.values(), places.train, "images")
    parts = {split: place or held for split, place in found.items()}
    settings = ImageDataSettings.model_validate({"train": train, "size": size, "channels": channels, **parts})
    return _PAGE.format(
        name=recipe_name(name, "images"),
        train=quoted(train),
        splits="\n".join(split_line(split, place) for split, place in parts.items()),
        size=size,
        why_size=why_size,
        channels=channels,
        why_channels=why_channels,
        **_chosen(load_images(settings), size),
    )


def _split(place: Path, split: str) -> Place | None:
    """Where the images of a split are: a folder of classes or a pair of IDX files."""
    if place.is_file():
        labels = place.with_name(place.name.replace("images-idx3", "labels-idx1"))
        return (str(place.absolute()), str(labels.absolute())) if split == "train" else None
    if files := idx_files(place, split):
        return str(files[0].absolute()), str(files[1].absolute())
    for alias in ALIASES.get(split, (split,)):
        if class_folders(place / alias):
            return str((place / alias).absolute())
    whole = split == "train" and class_folders(place)
    return str(place.absolute()) if whole else None


def _files(folder: str) -> list[Path]:
    return sorted(path for path in Path(folder).rglob("*") if path.suffix.lower() in ENDINGS)


def _count(train: Place) -> int:
    return len(_files(train)) if isinstance(train, str) else len(read_idx_images(Path(train[0])))


def _looks(train: Place) -> tuple[int, str, int, str]:
    """Size and channels, and why, by what some of the images are."""
    if isinstance(train, tuple):
        height, width = read_idx_images(Path(train[0])).shape[1:]
        side, channels, looked = min(height, width), 1, "IDX images are grey"
    else:
        from PIL import Image, UnidentifiedImageError

        sides, grey, files = [], True, _files(train)
        for file in files[:: max(1, len(files) // _LOOKED_AT)]:
            try:
                with Image.open(file) as image:
                    sides.append(min(image.size))
                    grey = grey and image.mode in ("1", "L", "LA", "I;16")
            except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
                raise UserError(f"cannot be read: {error}", str(file), "remove or replace the file") from None
        if not sides:
            raise UserError("holds no images", where=train, remedy=f"there should be files with {', '.join(ENDINGS)}")
        side, channels = int(np.median(sides)), 1 if grey else 3
        looked = f"{len(sides):,} images looked at are {'all grey' if grey else 'not all grey'}"
    # whole patches of 4 pixels; what is much larger is scaled down to what a small model can read
    size = max(8, side // 4 * 4) if side <= 36 else 32 if side < 64 else 64
    return size, f"the images' own shorter side is {side} or so", channels, looked


def _chosen(corpus: ImageCorpus, size: int) -> dict[str, object]:
    examples, counts = len(corpus.train), corpus.train.counts().values()
    patch = 8 if size == 64 else 4
    patches = (size // patch) ** 2
    batch = _BATCH if examples > 2_000 else 32
    updates = rounded((9 if examples > 20_000 else 20) * examples / batch, 300, 20_000)
    uneven = max(counts) > _IMBALANCE * min(counts)
    return {
        "examples": examples,
        "classes": len(corpus.train.names),
        "shift": max(1, size // 14),
        "patch": patch,
        "patches": patches,
        "positions": patches + 1,
        "batch": batch,
        "dropout": 0.0 if examples > 20_000 else 0.1,
        "updates": updates,
        "passes": updates * batch / examples,
        "every": max(1, updates // 8),
        "metric": "macro_f1 # the classes are uneven" if uneven else "accuracy",
    }
