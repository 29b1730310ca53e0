"""YAML reader of recipes: plain values with the line number of every key.

YAML 1.2 as in ruamel.yaml: `1e-3` is a number, `no` is text. Duplicate keys are reported.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer, MaxDepthExceededError
from ruamel.yaml.error import MarkedYAMLError, StreamMark, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode
from ruamel.yaml.reader import ReaderError

from s2s.errors import UserError, check_regular

Location = tuple[str, ...]

# Limits for hostile YAML: aliases and nesting can expand 300 bytes to a billion values.
_MOST_BYTES = 1 << 20
_MOST_VALUES = 5_000
DEEPEST = 50
"""Maximum nesting depth, by indentation, by brackets or by the dots of an override."""
_LONGEST_NUMBER = 1_000  # bits
# YAML quotes can escape NUL and surrogates, but no file name contains NUL, and UTF-8 cannot encode surrogates.
_NO_TEXT = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True)
class Page:
    """Contents of a YAML file.

    Attributes:
        values: Values as plain Python objects.
        lines: Line number of each key, from 1.
        twice: Line numbers of duplicate keys.
    """

    values: dict[str, Any]
    lines: dict[Location, int]
    twice: dict[Location, int]


def read_page(path: Path) -> Page:
    """Read a YAML file whose top level is a mapping.

    Args:
        path: A regular file of at most 1 MiB.

    Returns:
        The values and the line numbers of the keys.

    Raises:
        UserError: The file cannot be read, is not UTF-8 or not YAML, or is not a mapping.
    """
    reader, text = _Reader(), ""
    try:
        check_regular(path, "name a recipe file")
        if (size := path.stat().st_size) > _MOST_BYTES:
            raise UserError(f"has {size:,} bytes, too many for a recipe", str(path), "name a recipe file")
        text = path.read_bytes().decode("utf-8")
        values = reader.read(text)
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        byte = error.object[error.start]
        raise UserError(
            f"byte 0x{byte:02x} is not UTF-8", where=f"{path}:{line}", remedy="save the file as UTF-8"
        ) from None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path), remedy="name a recipe file") from None
    except YAMLError as error:
        raise _not_yaml(path, text, error) from None
    if not isinstance(values, dict):
        found = "is empty" if values is None else f"is a {'list' if isinstance(values, list) else 'single value'}"
        raise UserError(
            f"{found}, expected a mapping of sections", where=str(path), remedy="start from `s2s recipe copy translate`"
        )
    return Page(values, reader.lines, reader.twice)


def read_value(text: str) -> object:
    """Parse a value from the command line.

    Raises:
        YAMLError: The text is not YAML.

    Example:
        >>> read_value("1e-3"), read_value("[a, 2]"), read_value("no")
        (0.001, ['a', 2], 'no')
    """
    return _Reader().read(text)


class LimitError(MarkedYAMLError):
    """YAML that is too large or too deep for a recipe, or has invalid characters."""


def _nested(place: StreamMark | None) -> LimitError:
    return LimitError(problem=f"more than {DEEPEST} nested brackets or indentations", problem_mark=place)


def _limit_error(place: StreamMark | None) -> LimitError:
    problem = f"more than {_MOST_VALUES:,} values (each use of an alias counts)"
    return LimitError(problem=problem, problem_mark=place)


class _CountingComposer(Composer):
    """Refuses a file with too many values while parsing, which may take half a minute."""

    nodes = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.nodes += 1
        # Mappings have a key node for each value node.
        if self.nodes > 2 * _MOST_VALUES:
            raise _limit_error(self.parser.peek_event().start_mark)
        return super().compose_node(parent, index)


# A command has a dozen overrides, and the recipe itself must not be forgotten for them.
@lru_cache(maxsize=64)
def _compose(text: str) -> Node | None:
    """Parse YAML; cached, because a run reads its recipe several times, and parsing takes a tenth of a second."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _CountingComposer
    yaml.max_depth = DEEPEST
    return yaml.compose(text)


class _Reader:
    def __init__(self) -> None:
        self.lines: dict[Location, int] = {}
        self.twice: dict[Location, int] = {}
        self._values = 0
        self._constructor = YAML(typ="safe", pure=True).constructor

    def read(self, text: str) -> object:
        try:
            node = _compose(text)
        except MaxDepthExceededError as error:
            raise _nested(error.problem_mark) from None
        return None if node is None else self._value(node, (), ())

    def _value(self, node: Node, location: Location, around: tuple[Node, ...]) -> object:
        if node in around:
            raise MarkedYAMLError(problem="an alias that contains itself", problem_mark=node.start_mark)
        self._values += 1
        if self._values > _MOST_VALUES:
            raise _limit_error(node.start_mark)
        if len(around) > DEEPEST:
            raise _nested(node.start_mark)
        around = (*around, node)
        if isinstance(node, MappingNode):
            return self._mapping(node, location, around)
        if isinstance(node, SequenceNode):
            return [self._value(item, (*location, str(i)), around) for i, item in enumerate(node.value)]
        return self._scalar(node)

    def _scalar(self, node: Node) -> bool | int | float | str | None:
        try:
            value = self._constructor.construct_object(node)
        except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError):
            # A text that looks like a number or a date but is invalid, such as 2026-13-01.
            value = node.value
        # Dates, other types that no key accepts, and huge numbers are kept as text.
        plain = value is None or isinstance(value, bool | float | str)
        if not plain and not (isinstance(value, int) and value.bit_length() <= _LONGEST_NUMBER):
            value = node.value
        if isinstance(value, str) and (found := _NO_TEXT.search(value)):
            problem = f"the character U+{ord(found[0]):04X} is not allowed in text"
            raise LimitError(problem=problem, problem_mark=node.start_mark)
        return value

    def _mapping(self, node: MappingNode, location: Location, around: tuple[Node, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node.value, str) or _NO_TEXT.search(key_node.value):
                raise MarkedYAMLError(problem="a key that is not a word", problem_mark=key_node.start_mark)
            key, line = (*location, key_node.value), key_node.start_mark.line + 1
            if key in self.lines:
                self.twice[key] = line
                continue
            self.lines[key] = line
            found[key_node.value] = self._value(value_node, key, around)
        return found


def _not_yaml(path: Path, text: str, error: YAMLError) -> UserError:
    if isinstance(error, ReaderError):
        where = f"{path}:{text.count(chr(10), 0, error.position) + 1}"
        return UserError(f"not YAML: character U+{ord(text[error.position]):04X} is not allowed", where, "remove it")
    if not isinstance(error, MarkedYAMLError) or error.problem is None:
        return UserError(f"not YAML: {error}", where=str(path), remedy="compare it with `s2s recipe show translate`")
    mark = error.problem_mark or error.context_mark
    remedy = "check the colons, quotes, brackets and indentation of this line and the one above"
    if "\\t" in error.problem:
        remedy = "indent with spaces, not tabs"
    elif "another document" in error.problem:
        remedy = "write one recipe per file: remove the line ---"
    elif "nested brackets" in error.problem or "an alias" in error.problem:
        remedy = "write plain sections of keys and values, as `s2s recipe show translate` does"
    elif error.problem.endswith("not allowed in text"):
        remedy = "remove it"
    return UserError(
        f"not YAML: {error.problem}", where=f"{path}:{mark.line + 1}" if mark else str(path), remedy=remedy
    )
