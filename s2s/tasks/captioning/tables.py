"""Tables of captions: Flickr8k's formats, COCO's, csv, tsv, jsonl and parquet.

Each row names an image; an image in several rows has several captions. Errors name the place of the mistake.

- `image,caption` in the first line: a csv, whatever the file's extension; Flickr8k's `captions.txt` is one.
- `1000268201.jpg#0` TAB caption: Flickr8k's `Flickr8k.token.txt`, which numbers the captions of an image.
- COCO's json: `images` with `id` and `file_name`, and `annotations` with `image_id` and `caption`.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from s2s.data import text_files
from s2s.data.text_files import Columns, check_there
from s2s.errors import UserError
from s2s.recipe.wording import near_files
from s2s.tasks.captioning.recipe import CaptionDataSettings

_NUMBERED = re.compile(r"(.+)#\d+")
_KEYS = "data.image and data.caption"


@dataclass(frozen=True)
class Row:
    """A caption and its place in the file, for error messages."""

    caption: str
    where: str


Table = dict[str, list[Row]]
"""Captions by name of the image, in the order of the images' first rows."""


def captions_of(path: Path, settings: CaptionDataSettings) -> Table:
    """Read the captions of a table.

    Args:
        settings: Names of the columns, and quoting.

    Raises:
        UserError: The file is missing, damaged or of an unknown format, or a row has no image or no caption.
    """
    check_there(path)
    table: Table = {}
    for name, caption, where in _rows(path, settings):
        if not name.strip():
            raise UserError("names no image", where=where, remedy="mend or remove the row")
        if not caption.strip():
            raise UserError(f"{name} has no caption", where=where, remedy="mend or remove the row")
        table.setdefault(name, []).append(Row(caption, where))
    return table


def listed(table: Table, names: Path, path: Path) -> Table:
    """Select the images of a list.

    Args:
        names: Text file with one image name a line.
        path: Path of the table, for error messages.

    Returns:
        Captions of the listed images, in the order of the list.

    Raises:
        UserError: The list is missing, or has an image twice or an unknown image.
    """
    check_there(names)
    found: Table = {}
    for number, line in enumerate(text_files.lines(names), start=1):
        name, where = line.strip(), f"{names}:{number}"
        if not name:
            continue
        if name not in table:
            near = near_files(name, list(table))
            remedy = f"did you mean {near[0]}?" if near else "remove the line, or name another table"
            raise UserError(f"{name!r} has no caption in {path}", where=where, remedy=remedy)
        if name in found:
            raise UserError(f"{name!r} is named a second time", where=where, remedy="remove the line")
        found[name] = table[name]
    return found


def _rows(path: Path, settings: CaptionDataSettings) -> Iterator[tuple[str, str, str]]:
    """Yield image, caption and place of each row."""
    if path.suffix == ".json":
        yield from _coco(path)
        return
    kind = text_files.table_kind(path)
    if kind is None:
        raise UserError(
            "is no table of captions",
            where=str(path),
            remedy=f"name one of {', '.join(text_files.TABLES)} (plain, .gz or .xz), or COCO's .json",
        )
    if kind == ".txt" and "\t" in next(text_files.lines(path), ""):
        yield from _numbered(path)
        return
    captions = (settings.caption,) if isinstance(settings.caption, str) else settings.caption
    read = text_files.comma_cells if kind == ".txt" else text_files.table_cells
    for number, (name, *texts) in read(path, Columns((settings.image, *captions), _KEYS, quoting=settings.quoting)):
        for text in texts:
            yield name, text, text_files.place(path, number)


def _numbered(path: Path) -> Iterator[tuple[str, str, str]]:
    for number, line in enumerate(text_files.lines(path), start=1):
        name, tab, caption = line.removesuffix("\r").partition("\t")
        image = _NUMBERED.fullmatch(name)
        if not tab or image is None:
            what = f"is {line[:40]!r}, expected image.jpg#0, a tab and a caption"
            raise UserError(what, where=f"{path}:{number}", remedy="mend the line, or remove it")
        yield image[1], caption, f"{path}:{number}"


def _coco(path: Path) -> Iterator[tuple[str, str, str]]:
    whole = _json(path)
    names: dict[Any, str] = {}
    for number, image in enumerate(_list(whole, "images", path), start=1):
        where = f"{path} image {number}"
        identity, name = _entry(image, ("id", "file_name"), where)
        if identity in names:
            raise UserError(f"has the id {identity!r:.40}, as {names[identity]} has", where, "mend the file")
        names[identity] = str(name)
    for number, annotation in enumerate(_list(whole, "annotations", path), start=1):
        where = f"{path} annotation {number}"
        identity, caption = _entry(annotation, ("image_id", "caption"), where)
        if identity not in names:
            raise UserError(f"is of image {identity!r:.40}, which `images` does not have", where, "mend or remove it")
        # Some of COCO's captions contain line ends.
        yield names[identity], " ".join(str(caption).split()), where


def _json(path: Path) -> Any:
    text = text_files.text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"not JSON: {error}", where=str(path), remedy="fetch it again") from None


def _list(whole: Any, key: str, path: Path) -> list[Any]:
    found = whole.get(key) if isinstance(whole, dict) else None
    if not isinstance(found, list):
        raise UserError(
            f"has no list `{key}`", where=str(path), remedy="name COCO's captions_train2017.json or the like"
        )
    return found


def _entry(entry: Any, keys: tuple[str, str], where: str) -> list[Any]:
    values = [entry.get(key) if isinstance(entry, dict) else None for key in keys]
    for key, value in zip(keys, values, strict=True):
        wanted = (str,) if key in ("file_name", "caption") else (int, str)
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise UserError(f"has no {key}: {entry!r:.60}", where=where, remedy="mend the file")
    return values
