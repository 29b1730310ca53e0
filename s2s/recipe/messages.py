"""Pydantic's findings in plain words: the key, what came, what was expected, and the nearest right word."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel

from s2s.recipe.installed import models, module_of, suggestion
from s2s.recipe.schema import Recipe

Location = tuple[str | int, ...]

_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "string_too_short": "text that is not empty",
    "tuple_type": "a list",
    "model_type": "a section with keys of its own",
    "model_attributes_type": "a section with keys of its own",
}
_LIMITS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}


def explain(errors: Sequence[Mapping[str, Any]], place: Callable[[Location], str], tree: Mapping[str, Any]) -> list[str]:
    """One line for each mistake: `file:line: section.key: …`.

    Args:
        errors: pydantic's errors.
        place: where a key was written.
        tree: the recipe as it was read, for the keys that exist beside an unknown one.
    """
    found: dict[str, list[str]] = {}
    for error in errors:
        location = tuple(part for part in error["loc"] if not _is_alternative(part))
        key = ".".join(str(part) for part in location) or "the recipe"
        found.setdefault(f"{place(location)}: {key}: ", []).append(_what(error, location, tree))
    return [start + _joined(whats) for start, whats in found.items()]


def _joined(whats: list[str]) -> str:
    # a key that may be one of several kinds of value has a complaint from each of them
    first, *others = dict.fromkeys(whats)
    return " or ".join([first, *(what.partition(", expected ")[2] or what for what in others)])


def _is_alternative(part: str | int) -> bool:
    # pydantic names the members of a union in the location; no key of ours looks like that
    return isinstance(part, str) and (part in ("int", "str", "float") or part.startswith(("constrained-", "tuple[")) or "(" in part)


def _what(error: Mapping[str, Any], location: Location, tree: Mapping[str, Any]) -> str:
    kind, value, context = error["type"], _shown(error.get("input")), error.get("ctx", {})
    if kind == "extra_forbidden":
        known = known_keys([str(part) for part in location[:-1]], tree)
        if str(location[-1]) in known:
            return "is set twice"
        return f"unknown key; did you mean {suggestion(str(location[-1]), known)}?"
    if kind == "missing":
        return f"is missing; write {location[-1]}: VALUE"
    if kind == "literal_error":
        choices = [c.strip("' ") for c in context["expected"].replace(" or ", ", ").split(",")]
        return f"is {value}, expected one of {', '.join(choices)}; did you mean {suggestion(str(error['input']), choices)}?"
    if kind in _LIMITS:
        limit, words = _LIMITS[kind]
        return f"is {value}, expected a number {words} {context[limit]}"
    if kind == "string_pattern_mismatch":
        return f"is {value}, expected letters, digits, '.', '_' and '-', the first a letter or digit"
    if kind in ("too_short", "too_long", "missing_argument"):
        return f"is {value}, expected {context.get('min_length', context.get('max_length'))} values"
    if kind == "value_error":
        return str(context["error"])
    return f"is {value}, expected {_EXPECTED.get(kind) or error['msg']}"


def _shown(value: object) -> str:
    return {None: "null", True: "true", False: "false"}.get(value, repr(value)) if not isinstance(value, list | dict) else str(value)


def known_keys(section: list[str], tree: Mapping[str, Any]) -> list[str]:
    """The keys that a section knows.

    Args:
        section: the section's own keys from the top, e.g. `["data", "filters"]`.
        tree: the recipe as it was read, for the kind of its model.
    """
    schema: Any = Recipe
    for part in section:
        if part == "model":
            model = tree.get("model")
            kind = model.get("kind", "transformer") if isinstance(model, Mapping) else "transformer"
            schema = module_of(str(kind)).Settings if str(kind) in models() else None
        else:
            field = schema.model_fields.get(part) if schema else None
            schema = _section_in(field.annotation) if field else None
    return list(schema.model_fields) if schema else []


def _section_in(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None
