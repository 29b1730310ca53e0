"""Generated reference: Markdown tables of all keys, and the JSON schema."""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic.json_schema import models_json_schema

from s2s.errors import UserError
from s2s.recipe.installed import encoder_settings, language_settings, models, module_of
from s2s.recipe.messages import Tasks
from s2s.recipe.schema import Section, TaskSchema
from s2s.recipe.wording import expected, named_section_of, section_of

_INTRODUCTION = """# The recipe

A recipe is one page of YAML (1.2). Every key is listed here; a key that is not is refused. On the command line,
`section.key=value` overrides a key; `model.kind=lstm` takes another model, and keys of the recipe that only its own
model has are then left out. The key `task` says what is learned, and with it which keys there are. This page is made
by `s2s recipe reference`.
"""


def reference(tasks: Tasks) -> str:
    """Generate the Markdown reference of all sections and keys (`docs/recipe.md`).

    Args:
        tasks: Task schemas by name.

    Returns:
        Markdown with type, limits, default and meaning of each key.
    """
    parts: list[str] = [_INTRODUCTION]
    shown: list[tuple[str, type[BaseModel]]] = []
    for task, schema in tasks.items():
        parts.append(_table(f"Task `{task}`", schema.recipe))
        sections = list(_sections(schema.recipe, ""))
        of_task = f" of task `{task}`" if shown else ""
        parts += [_table(title + of_task, section) for title, section in sections if (title, section) not in shown]
        if again := [title for title, section in sections if (title, section) in shown]:
            parts.append(f"As above: {', '.join(again)}.\n")
        shown += sections
    for kind in models():
        settings = module_of(kind).Settings
        for title, section in ((f"`model` of kind `{kind}`", settings), *_sections(settings, "model.")):
            parts.append(_table(title, section))
        parts += _for_encoders_alone(kind, settings)
        parts += _for_language_models(kind)
    return "\n".join(parts)


def _for_encoders_alone(kind: str, settings: type[Section]) -> list[str]:
    """Describe the keys of a model that tasks without a decoder do not have."""
    try:
        known = encoder_settings(kind).model_fields
    except UserError:
        return ["This model only translates.\n"]
    missing = [f"`{name}`" for name in settings.model_fields if name not in known]
    return [f"Tasks that only read know all of these but {', '.join(missing)}.\n"] if missing else []


def _for_language_models(kind: str) -> list[str]:
    try:
        settings = language_settings(kind)
    except UserError:
        return ["This model is no language model.\n"]
    return [_table(f"`model` of kind `{kind}` in task `language-model`", settings)]


def json_schema(tasks: Tasks, kinds: list[str] | None = None) -> str:
    """Generate the JSON schema of recipes.

    Args:
        tasks: Task schemas by name.
        kinds: Model kinds to include; None: all installed models.

    Returns:
        The schema as JSON text.

    Raises:
        UserError: A model is not installed.
    """
    wholes = {task: schema.recipe_class(Section) for task, schema in tasks.items()}
    made, top = models_json_schema([(whole, "validation") for whole in wholes.values()])
    definitions = top["$defs"]
    for task, whole in wholes.items():
        part = _resolved(made[whole, "validation"], definitions)
        alternatives = [{"$ref": _model(kind, tasks[task], definitions)} for kind in _kinds(kinds, tasks[task])]
        part["properties"]["model"] = {"description": part["properties"]["model"]["description"], "oneOf": alternatives}
    del definitions["Section"]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "s2s recipe"}
    recipes = [made[whole, "validation"] for whole in wholes.values()]
    return json.dumps(head | {"oneOf": recipes, "$defs": definitions}, indent=1, ensure_ascii=False)


def _resolved(reference: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    return definitions[reference["$ref"].removeprefix("#/$defs/")]


def _kinds(wanted: list[str] | None, task: TaskSchema) -> Iterator[str]:
    for kind in models() if wanted is None else wanted:
        try:
            task.settings(kind)
        except UserError:
            # A model that only translates is no error here, but an unknown model is.
            module_of(kind)
            continue
        yield kind


def _model(kind: str, task: TaskSchema, definitions: dict[str, Any]) -> str:
    """Return the reference to a model's section, and add it to the definitions."""
    settings = task.settings(kind)
    module = module_of(kind)
    part = "language" if settings is getattr(module, "LanguageSettings", None) else "encoder"
    name = f"model_{kind}" if settings is module.Settings else f"{part}_{kind}"
    if name not in definitions:
        # The inner sections of two packages may have the same names.
        schema = settings.model_json_schema(ref_template=f"#/$defs/{kind}.{{model}}")
        definitions.update({f"{kind}.{inner}": part for inner, part in schema.pop("$defs", {}).items()})
        definitions[name] = schema | {"required": sorted({"kind", *schema.get("required", [])})}
    return f"#/$defs/{name}"


def _sections(section: type[BaseModel], above: str) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in section.model_fields.items():
        inner = section_of(field)
        if inner is not None and not _may_be_absent(field):
            yield f"`{above}{name}`", inner
            yield from _sections(inner, f"{above}{name}.")
        elif named := named_section_of(field):
            yield f"`{above}{name}.NAME`", named
            yield from _sections(named, f"{above}{name}.NAME.")


def _table(title: str, section: type[BaseModel]) -> str:
    rows = [_row(name, field) for name, field in section.model_fields.items() if _is_row(field)]
    words = (section.__doc__ or "").strip().split("\n")[0]
    return "\n".join(
        [f"\n## {title}\n", words, "", "| key | value | default | meaning |", "|---|---|---|---|", *rows, ""]
    )


def _may_be_absent(field: FieldInfo) -> bool:
    return not field.is_required() and field.default is None


def _is_row(field: FieldInfo) -> bool:
    # An optional section repeats the keys around it, so that a table would be redundant.
    return not section_of(field) or _may_be_absent(field)


def _row(name: str, field: FieldInfo) -> str:
    # The model section is a type variable; its contents follow in separate tables.
    value = "a section" if name == "model" else expected(field)
    default = "(required)" if field.is_required() else f"`{_default(field)}`"
    meaning = " ".join((field.description or "").split())
    cells = [f"`{name}`", value, default, meaning]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(field: FieldInfo) -> str:
    return json.dumps(field.get_default(call_default_factory=True), ensure_ascii=False)
