"""From YAML and `section.key=value` to a checked recipe: all mistakes at once, each with its place and the remedy."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from s2s.errors import UserError
from s2s.recipe.installed import models, module_of
from s2s.recipe.messages import Location, explain
from s2s.recipe.schema import Recipe

COMMAND_LINE = "command line"


@dataclass(frozen=True)
class Override:
    """`section.key=value` from the command line."""

    path: tuple[str, ...]
    value: object
    text: str


def read(path: Path, overrides: Sequence[str] = ()) -> Recipe[Any]:
    """A checked recipe.

    Paths in the file are relative to its folder, those in overrides to the current folder; `run.dir` always to the
    current folder.

    Args:
        path: a YAML file.
        overrides: `section.key=value`; values are YAML.

    Raises:
        UserError: the file cannot be read, or the recipe has mistakes; all of them are listed.
    """
    tree = _load(path)
    parsed, problems = _parse_overrides(overrides)
    plain = _plain(tree)
    for override in parsed:
        problems += _apply(override, plain)
    places = _Places(path, tree, parsed)
    recipe = None
    try:
        recipe = _schema(plain).model_validate_json(json.dumps(plain))
    except ValidationError as error:
        problems += explain(error.errors(include_url=False), places.of, plain)
    except UserError as error:
        problems.append(f"{places.of(('model', 'kind'))}: {error.where}: {error.what}; {error.remedy}")
        problems += _mistakes_outside_the_model(plain, places)
    if problems or recipe is None:
        raise UserError("\n".join(dict.fromkeys(problems)))
    return _absolute(recipe, path.parent, parsed)


def recipe_path(path: Path) -> Path:
    """The recipe that a path names: a file, or `recipe.yaml` in a run's folder.

    Raises:
        UserError: there is no such file.
    """
    if path.is_dir():
        path = path / "recipe.yaml"
    if not path.is_file():
        raise UserError("no such recipe", where=str(path), remedy="`s2s recipe list` shows the recipes that come with s2s")
    return path


def write(recipe: Recipe[Any], path: Path) -> None:
    """Writes a recipe with every key; reading it gives the same recipe."""
    path.write_text(dump(recipe), encoding="utf-8", newline="\n")


def dump(recipe: Recipe[Any]) -> str:
    """A recipe as YAML, with every key."""
    yaml, text = YAML(), StringIO()
    yaml.width = 120
    yaml.dump(_flowing(recipe.model_dump(mode="json")), text)
    return text.getvalue()


def _flowing(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _flowing(v) for k, v in value.items()}
    if isinstance(value, list):
        sequence = CommentedSeq(value)
        sequence.fa.set_flow_style()
        return sequence
    return value


def _load(path: Path) -> CommentedMap:
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"is not UTF-8 text: byte {error.start}", where=str(path), remedy="save it as UTF-8") from None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path), remedy="name a recipe file") from None
    try:
        tree = YAML(typ="rt").load(text)
    except DuplicateKeyError as error:
        key = str(error.problem).split('"')[1] if '"' in str(error.problem) else "a key"
        raise UserError(f"{key} is written twice", where=_line(path, error), remedy="remove one of the two") from None
    except MarkedYAMLError as error:
        remedy = "indent with spaces, not tabs" if "\\t" in str(error.problem) else "see the YAML near this line"
        raise UserError(f"not YAML: {error.problem}", where=_line(path, error), remedy=remedy) from None
    except YAMLError as error:
        raise UserError(f"not YAML: {error}", where=str(path), remedy="remove the character") from None
    if not isinstance(tree, CommentedMap):
        raise UserError("a recipe is a mapping of sections", where=str(path), remedy="start from `s2s recipe copy translate`")
    return tree


def _line(path: Path, error: MarkedYAMLError) -> str:
    return f"{path}:{error.problem_mark.line + 1}" if error.problem_mark else str(path)


def _plain(value: Any) -> Any:
    """Plain Python values of a YAML tree, keys as text."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, bool) or value is None:
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return str(value)


def _parse_overrides(texts: Sequence[str]) -> tuple[list[Override], list[str]]:
    parsed, problems = [], []
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            problems.append(f"{COMMAND_LINE}: {text!r} is not an override; write section.key=value, e.g. training.updates=500")
            continue
        try:
            parsed.append(Override(tuple(key.strip().split(".")), _plain(YAML(typ="rt").load(value)), text))
        except YAMLError:
            problems.append(f"{COMMAND_LINE}: {text}: {value!r} is not a YAML value; quote it: '{key}=\"…\"'")
    return parsed, problems


def _apply(override: Override, tree: dict[str, Any]) -> list[str]:
    for i, part in enumerate(override.path[:-1]):
        tree = tree.setdefault(part, {})
        if not isinstance(tree, dict):
            inner = ".".join(override.path[: i + 1])
            return [f"{COMMAND_LINE}: {override.text}: {inner} is a value, not a section; write {inner}=VALUE"]
    tree[override.path[-1]] = override.value
    return []


def _schema(tree: dict[str, Any]) -> type[Recipe[Any]]:
    model = tree.get("model")
    kind = model.get("kind") if isinstance(model, dict) else None
    if kind is None and "transformer" in models():
        # a section without a kind is checked as the default model's, and its other mistakes are shown at once
        return Recipe[_with_required_kind()]
    return Recipe[module_of(str(kind)).Settings]


def _with_required_kind() -> type[BaseModel]:
    from pydantic import create_model

    settings = module_of("transformer").Settings
    return create_model("Model", __base__=settings, kind=(settings.model_fields["kind"].annotation, ...))


def _mistakes_outside_the_model(tree: dict[str, Any], places: "_Places") -> list[str]:
    from s2s.recipe.schema import Section

    try:
        Recipe[Section].model_validate_json(json.dumps(tree | {"model": {}}))
    except ValidationError as error:
        return explain(error.errors(include_url=False), places.of, tree)
    return []


class _Places:
    """Where each key was written."""

    def __init__(self, path: Path, tree: CommentedMap, overrides: list[Override]) -> None:
        self._path = path
        self._tree = tree
        self._overrides = {o.path: o for o in overrides}

    def of(self, location: Location) -> str:
        """`file:line` of a key, or of the section that should have held it; or the override that set it."""
        keys = tuple(str(part) for part in location)
        for length in range(len(keys), 0, -1):
            if keys[:length] in self._overrides:
                return f"{COMMAND_LINE}: {self._overrides[keys[:length]].text}"
        node, line = self._tree, 0
        for part in location:
            try:
                line = node.lc.key(part)[0] if isinstance(node, CommentedMap) else node.lc.item(part)[0]
                node = node[part]
            except (KeyError, IndexError, TypeError, AttributeError):
                break
        return f"{self._path}:{line + 1}"


def _absolute(recipe: Recipe[Any], folder: Path, overrides: list[Override]) -> Recipe[Any]:
    """The recipe with absolute paths to its data: a run's own recipe then works from anywhere."""
    given = {o.path for o in overrides}

    def base(key: str) -> Path:
        return Path.cwd() if ("data", key) in given else folder.absolute()

    data = recipe.data
    root = None if data.root is None else base("root") / Path(data.root).expanduser()
    changes: dict[str, Any] = {"root": None if root is None else str(root)}
    if data.corpus == "files":
        for key in ("train", "validation", "test"):
            value, start = getattr(data, key), root or base(key)
            if isinstance(value, str):
                changes[key] = str(start / Path(value).expanduser())
            elif isinstance(value, tuple):
                changes[key] = tuple(str(start / Path(file).expanduser()) for file in value)
    return recipe.model_copy(update={"data": data.model_copy(update=changes)})
