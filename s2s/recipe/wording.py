"""Descriptions of schema types in words, for error messages and the reference."""

import difflib
import json
import math
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from s2s.recipe.schema import NAME_PATTERN

_NAMES = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "`true` or `false`",
    "null": "`null`",
}
_LIMITS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """Return the section class of a key; None for a plain value."""
    kinds = [kind for kind in get_args(field.annotation) or (field.annotation,) if kind is not type(None)]
    kind = kinds[0] if len(kinds) == 1 else None
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def named_section_of(field: FieldInfo) -> type[BaseModel] | None:
    """Return the section class of a key that maps names to sections, or None."""
    kinds = get_args(field.annotation)
    named = get_origin(field.annotation) is dict and isinstance(kinds[1], type) and issubclass(kinds[1], BaseModel)
    return kinds[1] if named else None


def expected(field: FieldInfo) -> str:
    """Describe the values that a key accepts: `a whole number above 0 or null`."""
    if section_of(field):
        return "a section: `key: value` lines, indented"
    if named_section_of(field):
        return "named sections"
    return " or ".join(dict.fromkeys(_words(_json_schema(field))))


def choices(field: FieldInfo) -> list[str]:
    """Return the words that a key accepts; empty if it accepts any."""
    schema = _json_schema(field)
    parts = schema.get("anyOf", [schema])
    return [str(word) for part in parts for word in part.get("enum", [part["const"]] if "const" in part else [])]


def shown(value: object) -> str:
    """Format a value as YAML would write it, shortened to 60 characters.

    Example:
        >>> shown("a"), shown(True), shown(float("inf"))
        ("'a'", 'true', '.inf')
    """
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else f"{'-' if value < 0 else ''}.inf"
    return cut(repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def cut(text: str) -> str:
    """Shorten a text to 60 characters."""
    return text if len(text) <= 60 else text[:57] + "..."


def nearest(word: str, known: Collection[str], cutoff: float = 0.6) -> str | None:
    """Return the most similar known word, or None if none is similar.

    Upper and lower case are equal.

    Args:
        cutoff: Smallest similarity, from 0 to 1 (`difflib.SequenceMatcher.ratio`).

    Example:
        >>> nearest("trainig", ["training", "decoding"])
        'training'
        >>> nearest("AdamW", ["adam", "adamw"])
        'adamw'
    """
    lowered = {each.lower(): each for each in reversed(list(known))}
    near = difflib.get_close_matches(word.lower(), list(lowered), n=1, cutoff=cutoff)
    return lowered[near[0]] if near else None


def near_files(name: str, there: Iterable[str], most: int = 1) -> list[str]:
    """Find file names that are similar to a wrong one.

    Args:
        there: Existing names; the common ending .yaml does not count.
        most: Maximum number of results.

    Returns:
        Similar names, best first.
    """
    alike = [other for other in there if nearest(Path(name).stem, [Path(other).stem])]
    return difflib.get_close_matches(name, alike, n=most, cutoff=0.4)


def suggestion(word: str, known: Collection[str]) -> str:
    """Return `did you mean …?`, or the list of choices.

    Example:
        >>> suggestion("x", ["training", "decoding"])
        'expected one of training, decoding'
    """
    near = nearest(word, known)
    return f"did you mean {near}?" if near else f"expected one of {', '.join(known)}"


def _json_schema(field: FieldInfo) -> dict[str, Any]:
    kind: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    return TypeAdapter(kind).json_schema()


def _words(schema: dict[str, Any]) -> Iterator[str]:
    if "anyOf" in schema:
        for option in schema["anyOf"]:
            yield from _words(option)
    elif "enum" in schema or "const" in schema:
        words = [f"`{value}`" for value in schema.get("enum", [schema.get("const")])]
        yield "one of " * (len(words) > 1) + ", ".join(words)
    elif "prefixItems" in schema:
        yield f"[{', '.join(' or '.join(_words(item)) for item in schema['prefixItems'])}]"
    elif schema.get("type") == "array":
        least = schema.get("minItems", 0)
        several = f" ({least} or more)" if least > 1 else ""
        yield f"a list{several} of {' or '.join(_words(schema.get('items', {})))}"
    elif schema.get("pattern") == NAME_PATTERN:
        yield f"letters, digits, `.`, `_` and `-`, the first a letter or digit, {schema['maxLength']} at most"
    elif "pattern" in schema:
        yield f"text like {schema['pattern']}"
    else:
        limits = [f"{word} {schema[key]:,.12g}" for key, word in _LIMITS.items() if key in schema]
        yield " ".join([_NAMES.get(schema.get("type", ""), "a value"), " and ".join(limits)]).strip()
