"""Error messages of recipe validation: key, value, expected value and suggestion."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from s2s.errors import UserError
from s2s.recipe.installed import models
from s2s.recipe.page import Location
from s2s.recipe.schema import TASK, Section, Tasks
from s2s.recipe.wording import choices, expected, named_section_of, nearest, section_of, shown, suggestion

SettingsOf = Callable[[str], type[Section]]
_NAMED = "NAME"
# Similarity from which a key of another section is suggested before a less similar one of the same section.
_ALIKE = 0.8
REMOVED = {
    ("device", "shard"): "is a removed key: a model must fit on one device, and several processes share its batches",
    ("data", "more", _NAMED, "back_translated_by"): (
        "is a removed key: write the sources with `s2s translate` and name both files in train "
        "(docs/several-corpora.md)"
    ),
}
"""Removed keys and their replacements; `NAME` matches any name that the recipe defines."""


def explain(
    errors: Sequence[Mapping[str, Any]],
    schema: type[BaseModel],
    tree: Mapping[str, Any],
    settings: SettingsOf,
    tasks: Tasks,
) -> dict[Location, str]:
    """Turn pydantic's errors into one message per key.

    A key gets one message, even if several alternatives of its type or several items of its list failed.

    Args:
        settings: Function from a model kind to its section class.
        tasks: All tasks, for suggestions.

    Returns:
        The messages by key, such as `is 0, expected a whole number above 0`.
    """
    found: dict[Location, str] = {}
    for error in errors:
        key, field = _field_at(tuple(str(part) for part in error["loc"]), schema)
        unknown = bool(key) and field is None and error["type"] != "value_error"
        if unknown:
            removed = next((what for known, what in REMOVED.items() if _same_key(known, key)), None)
            words = removed or f"unknown key; {_suggest(key, schema, settings, tasks)}"
        else:
            words = _describe(error, key, field, tree)
        found.setdefault(key, words)
    return found


def _field_at(location: Location, schema: type[BaseModel]) -> tuple[Location, FieldInfo | None]:
    """Return the key that an error is about and its field (None: unknown key).

    List items and union alternatives that pydantic appends to the location are removed.
    """
    section: type[BaseModel] | None = schema
    field: FieldInfo | None = None
    named: type[BaseModel] | None = None
    for depth, part in enumerate(location):
        if named is not None:
            # A name that the recipe defines; its section follows.
            section, named = named, None
            continue
        if section is None:
            return location[:depth], field
        field = section.model_fields.get(part)
        if field is None:
            return location[: depth + 1], None
        section, named = section_of(field), named_section_of(field)
    return location, field


def _describe(error: Mapping[str, Any], key: Location, field: FieldInfo | None, tree: Mapping[str, Any]) -> str:
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    if field is None:
        return error["msg"]
    if error["type"] == "missing" and key == error["loc"]:
        return f"is missing, expected {expected(field)}".replace("`", "")
    value = _value_at(key, tree)
    near = nearest(str(value), choices(field))
    words = expected(field).replace("`", "")
    if isinstance(value, float) and shown(value).endswith((".inf", ".nan")):
        words = words.replace("a number", "a finite number")
    found = "empty" if value == "" else shown(value)
    if isinstance(value, str) and len(value) > 60:
        found += f" ({len(value):,} characters)"
    return f"is {found}, expected {words}" + (f"; did you mean {near}?" if near else "")


def _value_at(location: Location, tree: Mapping[str, Any]) -> object:
    value: Any = tree
    for part in location:
        value = value[part]
    return value


def _suggest(key: Location, schema: type[BaseModel], settings: SettingsOf, tasks: Tasks) -> str:
    """Suggest a key: from other models or tasks, a similar one, or all of the section."""
    if key[:-1] == ("model",) and (kinds := [kind for kind, keys in _keys_of_kinds(settings) if key[-1] in keys]):
        return f"it is a key of {', '.join(kinds)}"
    recipes = {name: _keys_of(other.recipe) for name, other in tasks.items()}  # pyright: ignore[reportArgumentType]
    if owners := [name for name, keys in recipes.items() if key in keys]:
        task, *_ = choices(schema.model_fields[TASK])
        return f"it is a key of task {' or '.join(owners)}, and this recipe has task {task}"
    everywhere = _keys_of(schema)
    siblings = [name[-1] for name in everywhere if _same_key(name[:-1], key[:-1])]
    # With a lower cutoff, most words resemble one of the hundreds of keys of other sections.
    if nearest(key[-1], siblings, cutoff=_ALIKE):
        return suggestion(key[-1], siblings)
    elsewhere = {name[-1]: ".".join(name) for name in reversed(everywhere)}
    if near := nearest(key[-1], elsewhere, cutoff=_ALIKE):
        return f"did you mean {elsewhere[near]}?"
    return suggestion(key[-1], siblings)


def _same_key(known: Location, given: Location) -> bool:
    """Return True if two paths are equal, except for names that the recipe defines."""
    return len(known) == len(given) and all(one in (_NAMED, two) for one, two in zip(known, given, strict=True))


def known_keys(settings: SettingsOf) -> list[str]:
    """Return the keys of all installed models, without duplicates."""
    return list(dict.fromkeys(key for _, keys in _keys_of_kinds(settings) for key in keys))


def keys_named(name: str, tasks: Tasks) -> list[str]:
    """Return the keys of the recipes of all tasks whose last part is `name`.

    Keys below a name that the recipe defines are left out.
    """
    found = [key for task in tasks.values() for key in _keys_of(task.recipe)]  # pyright: ignore[reportArgumentType]
    found += [("model", key) for task in tasks.values() for key in known_keys(task.settings)]
    return list(dict.fromkeys(".".join(key) for key in found if key[-1] == name and _NAMED not in key))


def _keys_of_kinds(settings: SettingsOf) -> Iterator[tuple[str, Collection[str]]]:
    for kind in models():
        try:
            yield kind, settings(kind).model_fields
        except UserError:
            # Its error is shown when a recipe uses it.
            continue


@lru_cache(maxsize=64)
def _keys_of(schema: type[BaseModel]) -> tuple[Location, ...]:
    """Return all keys of a recipe; a page of unknown keys asks for them once for each."""
    return tuple(_keys(schema, ()))


def _keys(section: type[BaseModel], above: Location) -> Iterator[Location]:
    for name, field in section.model_fields.items():
        yield (*above, name)
        if inner := section_of(field):
            yield from _keys(inner, (*above, name))
        elif inner := named_section_of(field):
            yield from _keys(inner, (*above, name, _NAMED))
