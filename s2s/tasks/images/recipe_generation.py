"""Generation of a recipe from the user's labelled images: folders or IDX files."""

from pathlib import Path

import numpy as np

from s2s.data.sources import ALIASES, Corpus
from s2s.errors import UserError
from s2s.tasks.image_files import ENDINGS, image_files, open_image
from s2s.tasks.images.data import Images, ImageSource, class_folders, idx_files, read_idx
from s2s.tasks.images.recipe import ImageDataSettings
from s2s.tasks.recipe_generation import (
    Files,
    Splits,
    absolute_paths,
    classes_metric,
    held_out_settings,
    render_recipe,
    rounded,
    training_length,
)

_LOOKED_AT = 200
_BATCH = 128


def generate_image_recipe(name: str, places: Splits[Path]) -> str:
    """Return an image recipe with sizes chosen from the data.

    A place is a folder with a subfolder of images for each class; a folder with such folders called `train`, `test` and
    `validation`; a folder with IDX files of the usual names; or an IDX file of images next to the file of its labels.

    Args:
        name: Name of the recipe and its run.
        places: Places of the user's images.

    Returns:
        The recipe as YAML.

    Raises:
        UserError: There are no images at a place, or too few.
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
    splits = Splits(train, _find_held_out_images(places, "validation"), _find_held_out_images(places, "test"))
    size, why_size, channels, why_channels = _looks(train)
    count = len(image_files(train)) if isinstance(train, Path) else len(read_idx(train[0], "images"))
    held = held_out_settings(splits, count, "images", places.train)
    settings = ImageDataSettings.model_validate(
        {"train": absolute_paths(train), "size": size, "channels": channels, **held}
    )
    looks = {"size": size, "why_size": why_size, "channels": channels, "why_channels": why_channels}
    return render_recipe("images", name, train, held, looks | _chosen(ImageSource(settings).load(), size))


def _find_held_out_images(places: Splits[Path], split: str) -> Files | None:
    """Return the user's held-out images, or those beside the training images."""
    given: Path | None = getattr(places, split)
    if given is None:
        return _split(places.train, split)
    return _split(given, split) or _split(given, "train") or given


def _split(place: Path, split: str) -> Files | None:
    """Return the images of a split: a folder of classes, or a pair of IDX files."""
    if place.is_file():
        labels = place.with_name(place.name.replace("images-idx3", "labels-idx1"))
        return (place, labels) if split == "train" else None
    if files := idx_files(place, split):
        return files
    for alias in ALIASES.get(split, (split,)):
        if class_folders(place / alias):
            return place / alias
    return place if split == "train" and class_folders(place) else None


def _looks(train: Files) -> tuple[int, str, int, str]:
    """Return size and channels with reasons, by a sample of the images."""
    if isinstance(train, tuple):
        height, width = read_idx(train[0], "images").shape[1:]
        side, channels, looked = min(height, width), 1, "IDX images are grey"
    else:
        sides, grey, files = [], True, image_files(train)
        for file in files[:: max(1, len(files) // _LOOKED_AT)]:
            with open_image(file, str(file)) as image:
                sides.append(min(image.size))
                # All modes of 16 bits are grey: I;16, I;16B, and I in a PGM file.
                grey = grey and (image.mode in ("1", "L", "LA") or image.mode.startswith("I"))
        if not sides:
            raise UserError(
                "holds no images", str(train.absolute()), f"there should be files with {', '.join(ENDINGS)}"
            )
        side, channels = int(np.median(sides)), 1 if grey else 3
        looked = f"{len(sides):,} images looked at are {'all grey' if grey else 'not all grey'}"
    # Whole patches of 4 pixels; much larger images are scaled down to what a small model can process.
    size = max(8, side // 4 * 4) if side <= 36 else 32 if side < 64 else 64
    return size, f"the images' own shorter side is {side} or so", channels, looked


def _chosen(corpus: Corpus[Images], size: int) -> dict[str, object]:
    examples = len(corpus.train)
    patch = 8 if size == 64 else 4
    patches = (size // patch) ** 2
    batch = _BATCH if examples > 2_000 else 32
    updates = rounded((9 if examples > 20_000 else 20) * examples / batch, 300, 20_000)
    return {
        "examples": examples,
        "classes": len(corpus.train.names),
        "shift": max(1, size // 14),
        "patch": patch,
        "patches": patches,
        "positions": patches + 1,
        "batch": batch,
        "dropout": 0.0 if examples > 20_000 else 0.1,
        **training_length(updates, batch, examples),
        "metric": classes_metric(corpus.train.counts().values()),
    }
