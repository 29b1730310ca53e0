"""The page of all keys, and the JSON schema for editors: both made from the schema."""

import json
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from s2s.recipe.installed import models, module_of
from s2s.recipe.schema import Recipe, Section

_INTRODUCTION = """# The recipe

A recipe is one page of YAML (1.2). Every key is listed here; a key that is not is refused. On the command line,
`section.key=value` overrides a key. This page is made by `s2s recipe reference`.
"""


def reference() -> str:
    """Every section and key as Markdown: meaning, type, limits and default."""
    parts = [_INTRODUCTION]
    sections: list[tuple[str, type[BaseModel]]] = []
    top = [_row(name, field) for name, field in Recipe.model_fields.items() if not _section(field)]
    parts.append(_table("Top level", Recipe, top))
    for name, field in Recipe.model_fields.items():
        if (section := _section(field)) and name != "model":
            sections += [(name, section), *((f"{name}.{n}", s) for n, f in section.model_fields.items() if (s := _section(f)))]
    sections += [(f"model, kind: {kind}", module_of(kind).Settings) for kind in models()]
    for title, section in sections:
        rows = [_row(name, field) for name, field in section.model_fields.items() if not _section(field)]
        parts.append(_table(f"`{title}`", section, rows))
    return "\n".join(parts)


def json_schema() -> str:
    """The JSON schema of a recipe whose model is any of the installed ones."""
    kinds = [module_of(kind).Settings for kind in models()]
    schema = Recipe[Section].model_json_schema()
    definitions = schema.setdefault("$defs", {})
    for settings in kinds:
        found = settings.model_json_schema(ref_template="#/$defs/{model}")
        definitions.update(found.pop("$defs", {}))
        definitions[f"model_{settings.model_fields['kind'].default}"] = found | {"required": ["kind"]}
    schema["properties"]["model"] = {"oneOf": [{"$ref": f"#/$defs/model_{kind}"} for kind in models()]}
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema, indent=1)


def _section(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _table(title: str, section: type[BaseModel], rows: list[str]) -> str:
    words = (section.__doc__ or "").strip().split("\n")[0]
    return "\n".join([f"\n## {title}\n", words, "", "| key | value | default | meaning |", "|---|---|---|---|", *rows, ""])


def _row(name: str, field: FieldInfo) -> str:
    default = "(required)" if field.is_required() else f"`{json.dumps(field.default)}`"
    meaning = " ".join((field.description or "").split()).replace("|", "\\|")
    return f"| `{name}` | {_type(field).replace('|', chr(92) + '|')} | {default} | {meaning} |"


def _type(field: FieldInfo) -> str:
    schema = _type_schema(field.annotation, field.metadata)
    return " or ".join(dict.fromkeys(_words(schema)))


def _type_schema(annotation: Any, metadata: list[Any]) -> dict[str, Any]:
    return TypeAdapter(Annotated[(annotation, *metadata)] if metadata else annotation).json_schema()


def _words(schema: dict[str, Any]) -> Iterator[str]:
    if "anyOf" in schema:
        for option in schema["anyOf"]:
            yield from _words(option)
        return
    if "enum" in schema or "const" in schema:
        yield ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
        return
    names = {"integer": "whole number", "number": "number", "string": "text", "boolean": "`true`, `false`", "null": "`null`"}
    limits = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    if schema.get("type") == "array":
        inner = [" or ".join(_words(item)) for item in schema.get("prefixItems", [])]
        yield f"[{', '.join(inner)}]"
        return
    found = [f"{sign} {schema[key]:g}" for key, sign in limits.items() if key in schema]
    yield " ".join([names.get(schema.get("type", ""), "section"), ", ".join(found)]).strip()
