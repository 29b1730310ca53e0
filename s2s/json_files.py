"""Validated JSON: files that s2s wrote earlier, or that come with published weights.

Any of them may have been damaged, edited or made by somebody else. Each is read against a type, with limits on its
size and its depth, so that a wrong file gives one message and never an exception deep inside its reader.
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
    """Read a JSON file as a value of a type.

    Args:
        path: a regular file.
        kind: a pydantic model, a dataclass, or a type such as `dict[str, int]`. Types are not converted: `"1"` is no
            integer.
        remedy: what to do if the file is missing or wrong.
        max_bytes: a larger file is refused.

    Returns:
        The validated value.

    Raises:
        UserError: the file is missing, cannot be read, is no JSON, or holds something else.
    """
    try:
        content = read_file(path, remedy, max_bytes)
    except OSError as error:
        what = "there is no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        raise UserError(what, str(path), remedy) from None
    return parse_json(content, kind, str(path), remedy, lines=True)


def parse_json(content: bytes | str, kind: type[T] | GenericAlias, where: str, remedy: str, lines: bool = False) -> T:
    """Read JSON text as a value of a type; see `read_json`.

    Args:
        content: the text, in UTF-8.
        kind: the type.
        where: file, line or key that an error names.
        remedy: what to do if the text is wrong.
        lines: append the line of a syntax error to `where`.

    Returns:
        The validated value.

    Raises:
        UserError: it is no JSON, nested too deeply, or holds something else.
    """
    try:
        # the parser itself bounds the depth, at about 200
        return _adapter(kind).validate_json(content, strict=True)
    except ValidationError as error:
        what, line = _described(error)
    raise UserError(what, f"{where}:{line}" if lines and line else where, remedy)


@lru_cache(maxsize=64)
def _adapter(kind: type[T] | GenericAlias) -> TypeAdapter[T]:
    return TypeAdapter(cast("type[T]", kind))


def _described(error: ValidationError) -> tuple[str, str]:
    """The first mistake, and its line where the text is no JSON at all."""
    first = error.errors(include_url=False)[0]
    if first["type"] == "json_invalid":
        message = str(first.get("ctx", {}).get("error", first["msg"]))
        place, message = _PLACE.search(message), _PLACE.sub("", message)
        message = "nested too deeply" if message == "recursion limit exceeded" else message
        return f"not JSON: {message}", place[1] if place else ""
    key, message = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    value = "" if first["type"] in ("missing", "value_error") else f", not {first['input']!r:.{_LONGEST_VALUE}}"
    return f"{f'{key}: ' if key else ''}{message[:1].lower()}{message[1:]}{value}", ""
