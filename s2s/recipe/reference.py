"""The page of all keys, and the JSON schema for editors: both made from the schema."""

import json
from collections.abc import Iterator

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from s2s.recipe.installed import models, module_of
from s2s.recipe.schema import Recipe, Section
from s2s.recipe.wording import expected, section_of

_INTRODUCTION = """# The recipe

A recipe is one page of YAML (1.2). Every key is listed here; a key that is not is refused. On the command line,
`section.key=value` overrides a key. This page is made by `s2s recipe reference`.
"""


def reference() -> str:
    """Every section and key as Markdown: type, limits, default and meaning."""
    sections = [("Top level", Recipe), *_sections(Recipe, "")]
    for kind in models():
        settings = module_of(kind).Settings
        sections += [(f"`model` of kind `{kind}`", settings), *_sections(settings, "model.")]
    return "\n".join([_INTRODUCTION, *(_table(title, section) for title, section in sections)])


def json_schema(kinds: list[str] | None = None) -> str:
    """The JSON schema of a recipe.

    Args:
        kinds: models that the recipe may name; all installed ones when None.

    Raises:
        UserError: there is no such model.
    """
    schema = Recipe[Section].model_json_schema()
    definitions = schema["$defs"]
    alternatives = []
    for kind in models() if kinds is None else kinds:
        # two packages may name their inner sections alike
        settings = module_of(kind).Settings.model_json_schema(ref_template=f"#/$defs/{kind}.{{model}}")
        definitions.update({f"{kind}.{name}": part for name, part in settings.pop("$defs", {}).items()})
        required = sorted({"kind", *settings.get("required", [])})
        definitions[f"model_{kind}"] = settings | {"required": required}
        alternatives.append({"$ref": f"#/$defs/model_{kind}"})
    description = schema["properties"]["model"]["description"]
    schema["properties"]["model"] = {"description": description, "oneOf": alternatives}
    del definitions["Section"]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(head | schema | {"title": "s2s recipe"}, indent=1, ensure_ascii=False)


def _sections(section: type[BaseModel], above: str) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in section.model_fields.items():
        inner = section_of(field)
        if inner is not None:
            yield f"`{above}{name}`", inner
            yield from _sections(inner, f"{above}{name}.")


def _table(title: str, section: type[BaseModel]) -> str:
    rows = [_row(name, field) for name, field in section.model_fields.items() if not section_of(field)]
    words = (section.__doc__ or "").strip().split("\n")[0]
    return "\n".join(
        [f"\n## {title}\n", words, "", "| key | value | default | meaning |", "|---|---|---|---|", *rows, ""]
    )


def _row(name: str, field: FieldInfo) -> str:
    # the model's section is a type variable; what it holds follows in tables of its own
    value = "a section" if name == "model" else expected(field)
    default = "(required)" if field.is_required() else f"`{_default(field)}`"
    meaning = " ".join((field.description or "").split())
    cells = [f"`{name}`", value, default, meaning]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(field: FieldInfo) -> str:
    return json.dumps(field.get_default(call_default_factory=True), ensure_ascii=False)
