"""Reading of images from files and data sets, as arrays of bytes.

Images are scaled and converted to grey or RGB. Pixels are stored as bytes, which takes a quarter of the memory of fp32.
Images may come from anywhere, so that only plain image formats are accepted, and only up to a maximum number of pixels.
"""

import difflib
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from s2s.data.tables import hub_split
from s2s.errors import UserError, check_regular
from s2s.recipe.schema import PixelSettings, SourceSettings

if TYPE_CHECKING:
    import datasets
    from PIL.Image import Image

Pixels = UInt8[np.ndarray, "images channels height width"]
Picture = UInt8[np.ndarray, "channels height width"]

# Pillow may open only these formats, whatever the file claims to be: no PostScript, which is handed to a program.
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
# A file of 50 KB may unpack to a gigabyte.
_MOST_PIXELS = 2**26
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".pgm", ".ppm", ".tif", ".tiff", ".webp")


def image_files(folder: Path) -> list[Path]:
    """Return the images in a folder and its subfolders, by file extension, sorted."""
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in ENDINGS)


def read_image(file: Path, wanted: PixelSettings, where: str = "") -> Picture:
    """Read one image, scaled and converted."""
    if not where:
        check_regular(file, "remove or replace it")
    return _read(file, where or str(file), wanted)


def _read(file: Path | io.BytesIO, where: str, wanted: PixelSettings) -> Picture:
    with open_image(file, where) as image:
        return pixels_of(image, wanted)


@contextmanager
def open_image(file: Path | io.BytesIO, where: str) -> "Iterator[Image]":
    """Open an image; only its header is read."""
    from PIL import Image, UnidentifiedImageError

    # `_MOST_PIXELS` is the limit; below it, Pillow would print a warning that users do not understand.
    Image.MAX_IMAGE_PIXELS = None
    # Pillow warns of unreadable metadata; unreadable pixels are an error anyway.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
    try:
        with Image.open(file, formats=_FORMATS) as image:
            if image.width * image.height > _MOST_PIXELS:
                raise ValueError(f"it has {image.width:,} x {image.height:,} pixels; {_MOST_PIXELS:,} are the most")
            yield image
            return
    except FileNotFoundError:
        why = "there is no such file"
    except UnidentifiedImageError:
        why = f"it is no whole image of the kinds {', '.join(_FORMATS)}"
    except Exception as error:
        # Each format's reader fails on damaged bytes in its own way: struct.error, KeyError, zlib.error …
        why = str(error) or type(error).__name__
    raise UserError(f"cannot be read: {why}", where=where, remedy="remove or replace the file")


def pixels_of(image: "Image", wanted: PixelSettings) -> Picture:
    """Scale and convert an opened image."""
    from PIL.Image import Resampling, fromarray
    from PIL.ImageOps import exif_transpose

    kind = image.format
    # Errors of damaged pixels are raised here, and not again by later calls.
    image.load()
    # A damaged note of the camera says nothing about its orientation; Pillow raises all kinds of errors.
    with suppress(Exception):
        image = exif_transpose(image)
    if image.has_transparency_data and image.convert("RGBA").getchannel("A").getextrema()[0] < 255:  # type: ignore[operator]
        raise ValueError("parts of it are transparent, and nothing says what is behind them")
    # Pillow reads 16 bits of a PGM file into 32; its older versions do so with PNG files, too.
    if image.mode.startswith("I;16") or (image.mode == "I" and kind in ("PPM", "PNG")):
        # Pillow would clip values above 255.
        image = fromarray((np.asarray(image).astype(np.uint32) // 257).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise ValueError("a pixel has 32 bits, and nothing says what is white; 8 or 16 are read")
    converted = image.convert("L" if wanted.channels == 1 else "RGB")
    if converted.size != (wanted.size, wanted.size):
        converted = converted.resize((wanted.size, wanted.size), Resampling.BILINEAR)
    found = np.asarray(converted, dtype=np.uint8)
    return found[None] if found.ndim == 2 else found.transpose(2, 0, 1)


def read_all(files: Sequence[Path], wanted: PixelSettings, places: Sequence[str] | None = None) -> Pixels:
    """Read images from files, in parallel; see `read_image`."""
    with ThreadPoolExecutor() as pool:
        return np.stack(
            list(pool.map(lambda file, where: read_image(file, wanted, where), files, places or [""] * len(files)))
        )


def read_some(files: Sequence[Path], wanted: PixelSettings) -> tuple[dict[int, Picture], dict[int, UserError]]:
    """Read images from files in parallel, and collect the errors."""

    def read(file: Path) -> Picture | UserError:
        """Return an image, or the error."""
        try:
            return read_image(file, wanted)
        except UserError as error:
            return error

    with ThreadPoolExecutor() as pool:
        found = dict(enumerate(pool.map(read, files)))
    images = {row: each for row, each in found.items() if not isinstance(each, UserError)}
    return images, {row: each for row, each in found.items() if isinstance(each, UserError)}


def hub_images(
    settings: SourceSettings, split: str, folder: Path | None, columns: Sequence[tuple[str, str]]
) -> tuple["datasets.Dataset", str]:
    """Load a split of a data set with a column of images."""
    import pyarrow
    from datasets import Image

    where, found = f"{folder or settings.corpus} {split}", hub_split(settings, split, folder)
    for key, column in columns:
        if column not in found.column_names:
            near = difflib.get_close_matches(column, found.column_names, n=1)
            raise UserError(
                f"data.{key} is {column!r}, but the columns are {', '.join(found.column_names)}",
                where=where,
                remedy=f"did you mean {near[0]}?" if near else f"set data.{key} to one of them",
            )
    # Cells stay bytes or paths: `open_image` checks the size before an image is unpacked.
    key, column = columns[0]
    try:
        if isinstance(kind := found.features[column], dict) and not kind.keys() & {"bytes", "path"}:
            raise TypeError(column)
        return found.cast_column(column, Image(decode=False)), where
    except (pyarrow.ArrowException, TypeError, ValueError):
        raise UserError(
            f"data.{key} is {column!r}, which holds {found.features[column]} and no images",
            where=where,
            remedy=f"set data.{key} to the column of the images",
        ) from None


def read_cell(cell: Mapping[str, Any] | None, where: str, wanted: PixelSettings) -> Picture:
    """Read the image in a cell of a data set."""
    if cell is None or cell["bytes"] is cell["path"] is None:
        raise UserError("has no image", where=where, remedy="remove the row")
    return _read(Path(cell["path"]) if cell["bytes"] is None else io.BytesIO(cell["bytes"]), where, wanted)


def statistics_for(settings: PixelSettings, pixels: Pixels) -> dict[str, tuple[float, ...]]:
    """Return `mean` and `deviation` for the resolved recipe."""
    statistics = pixel_statistics(pixels)
    mean, deviation = (tuple(round(float(number), 6) for number in part) for part in statistics)
    return {
        "mean": settings.mean or mean,
        # A deviation that rounds to 0 is a rounding error, not a property of the images.
        "deviation": settings.deviation or tuple(number or 1.0 for number in deviation),
    }


def pixel_statistics(pixels: Pixels) -> tuple[Float[np.ndarray, " channels"], Float[np.ndarray, " channels"]]:
    """Compute mean and standard deviation of each channel.

    The sums are computed from exact counts of the 256 pixel values. If all pixels of a channel are equal, the deviation
    is 1, to avoid a division by zero.

    Example:
        >>> import numpy as np
        >>> mean, deviation = pixel_statistics(np.array([[[[0, 255]]]], dtype=np.uint8))
        >>> mean.tolist(), deviation.tolist()
        ([0.5], [0.5])
    """
    counts = np.stack([_histogram(pixels[:, channel]) for channel in range(pixels.shape[1])])
    values, total = np.arange(256) / 255, counts.sum(axis=1)
    mean = counts @ values / total
    deviation = np.sqrt((counts * (values - mean[:, None]) ** 2).sum(axis=1) / total)
    return mean, np.where(deviation > 0, deviation, 1.0)


DAMAGED = " is of a single colour: damaged?", " are of a single colour: damaged?"
"""Warning about the images that `plain` returns."""


def plain(pixels: Pixels) -> list[int]:
    """Return the rows, from 1, of images with a single color.

    Example:
        >>> import numpy as np
        >>> plain(np.array([[[[7, 7]]], [[[1, 2]]]], dtype=np.uint8))
        [1]
    """
    flat = pixels.reshape(len(pixels), pixels.shape[1], -1)
    return (np.flatnonzero((flat == flat[:, :, :1]).all(axis=(1, 2))) + 1).tolist()


def _histogram(values: UInt8[np.ndarray, "images height width"]) -> Int[np.ndarray, "256"]:
    # A few thousand images at a time, because bincount converts bytes to 64-bit numbers.
    parts = (values[first : first + 4096] for first in range(0, len(values), 4096))
    return sum((np.bincount(part.ravel(), minlength=256) for part in parts), start=np.zeros(256, dtype=np.int64))
