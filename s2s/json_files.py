"""Validated JSON: files of s2s, or files that come with published weights.

Such a file may be damaged, edited or made by another program. It is validated against a type, with limits on size and
depth, so that a wrong file gives one error message instead of an exception deep inside the reader.
"""

import re
from functools import lru_cache
from pathlib import Path
from types import GenericAlias
from typing import TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from s2s.errors import UserError
from s2s.files import MAX_BYTES, RESTORE, read_file

T = TypeVar("T")

_LONGEST_VALUE = 60
_PLACE = re.compile(r" at line (\d+) column \d+$")


def read_json(path: Path, kind: type[T] | GenericAlias, remedy: str = RESTORE, max_bytes: int = MAX_BYTES) -> T:
    """Read a JSON file and validate it against a type, such as a pydantic model or `dict[str, int]`, strictly."""
    try:
        content = read_file(path, remedy, max_bytes)
    except OSError as error:
        what = "there is no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        raise UserError(what, str(path), remedy) from None
    return parse_json(content, kind, str(path), remedy, lines=True)


def parse_json(content: bytes | str, kind: type[T] | GenericAlias, where: str, remedy: str, lines: bool = False) -> T:
    """Parse JSON text and validate it against a type, strictly: `"1"` is not an integer.

    With `lines`, the line of a syntax error is appended to `where`.

    Example:
        >>> parse_json('{"a": 1}', dict[str, int], "file.json", "restore it")
        {'a': 1}
    """
    try:
        # The parser limits the nesting depth to about 200.
        return _adapter(kind).validate_json(content, strict=True)
    except ValidationError as error:
        what, line = _described(error)
    raise UserError(what, f"{where}:{line}" if lines and line else where, remedy)


@lru_cache(maxsize=64)
def _adapter(kind: type[T] | GenericAlias) -> TypeAdapter[T]:
    return TypeAdapter(cast("type[T]", kind))


def _described(error: ValidationError) -> tuple[str, str]:
    """Describe the first error, with its line if the text is not JSON."""
    first = error.errors(include_url=False)[0]
    if first["type"] == "json_invalid":
        message = str(first.get("ctx", {}).get("error", first["msg"]))
        place, message = _PLACE.search(message), _PLACE.sub("", message)
        message = "nested too deeply" if message == "recursion limit exceeded" else message
        return f"not JSON: {message}", place[1] if place else ""
    key, message = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    value = "" if first["type"] in ("missing", "value_error") else f", not {first['input']!r:.{_LONGEST_VALUE}}"
    return f"{f'{key}: ' if key else ''}{message[:1].lower()}{message[1:]}{value}", ""
