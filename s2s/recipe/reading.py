"""Read recipes from YAML files and `section.key=value` overrides, and write them.

All mistakes are reported at once, each with file, line and remedy.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedSeq
from ruamel.yaml.error import YAMLError
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from s2s.arguments import check_utf8
from s2s.errors import UserError, check_regular
from s2s.files import write_atomically
from s2s.recipe.installed import models
from s2s.recipe.page import DEEPEST, LimitError, Location, Page, read_page, read_value
from s2s.recipe.schema import (
    OPTIMIZER_KEYS,
    TASK,
    FineTunedRecipe,
    OptimizationSettings,
    Section,
    SeedSettings,
    Tasks,
    TaskSchema,
    TrainRecipe,
)
from s2s.recipe.wording import cut, near_files, nearest, shown, suggestion

R = TypeVar("R", bound=TrainRecipe)

_KIND, _OPTIMIZER = ("model", "kind"), ("training", "optimizer")
_ON_HUB = "hf:"
_SPLITS = ("train", "validation", "test")
_SIDES = ("source", "target")
_MOST_OVERRIDES = 1_000
# Matches a key in a message, such as `batches.max_length`.
_DOTTED = re.compile(r"\b[a-z_]+(?:\.[a-z_]+)+\b")
_NUMBER = re.compile(r"[0-9.eE+-]+")
_LINE_ENDS = set("\r\x85\u2028\u2029\ufeff")


@dataclass(frozen=True)
class Override:
    """A `section.key=value` argument of the command line."""

    key: Location
    value: object
    text: str


def read(path: Path, overrides: Sequence[str], tasks: Tasks) -> TrainRecipe:
    """Read and validate a recipe.

    Relative paths of data become absolute: they start from the recipe's folder, those in overrides from the current
    folder, and files from `data.root` if it is set. `run.dir` and `init_from` stay relative to the current folder. A
    leading `~` is expanded in all of them.

    An override `seed=2` sets all keys of the section `seeds`. An override of `model.kind` replaces the model of the
    file: keys that only the old model has are dropped, and keys that both have keep their values where the new model
    accepts them (positions `relative` become the default of a model without them). An override of `training.optimizer`
    drops keys that only the file's optimizer uses, and defaults of keys that it does not use.

    Args:
        overrides: `section.key=value` arguments.
        tasks: Task schemas by name; the first is the default of recipes without `task`.

    Returns:
        The recipe, of its task's class.

    Raises:
        UserError: The file cannot be read, or the recipe has mistakes; the message lists all of them.
    """
    page = read_page(path)
    parsed, malformed, recipe, wrongs = _checked(page, overrides, tasks)
    again = "duplicate key, first in line"
    twice = [
        (line, f"{path}:{line}: {'.'.join(key)}: {again} {page.lines[key]}; remove one of them")
        for key, line in page.twice.items()
    ]
    wrong = [_locate(key, what, path, page, parsed) for key, what in wrongs.items()]
    # In file order; mistakes of the command line come last.
    mistakes = [text for _, text in sorted(twice + wrong, key=lambda mistake: mistake[0])] + malformed
    if mistakes or recipe is None:
        # Each mistake is one line, but a key or a file name may contain a line end.
        raise UserError("\n".join(mistake.replace("\n", "\\n") for mistake in mistakes))
    return _absolute(recipe, path.parent, {override.key for override in parsed})


def _checked(
    page: Page, overrides: Sequence[str], tasks: Tasks
) -> tuple[list[Override], list[str], TrainRecipe | None, dict[Location, str]]:
    parsed, malformed = _parse(overrides)
    tree: dict[str, Any] = json.loads(json.dumps(page.values))
    _leave_out_keys_of_another_model(tree, parsed, tasks)
    _leave_out_keys_of_another_optimizer(tree, parsed)
    for override in parsed:
        malformed += _apply(override, tree)
    return parsed, malformed, *_check(tree, tasks)


def split_sweep(path: Path, overrides: Sequence[str], tasks: Tasks) -> tuple[list[str], list[list[str]]]:
    """Separate overrides with one value from those with several, such as `training.learning_rate=0.002,0.004`.

    A text with commas that the key accepts, such as the name of a file, is one value, and so are lists in brackets and
    quoted texts.

    Args:
        path: The recipe file.
        overrides: `section.key=value` arguments.
        tasks: Task schemas by name.

    Returns:
        The overrides with one value; and for each key with several, an override for each value.

    Raises:
        UserError: The file cannot be read.
    """
    lists = {text: parts for text in overrides if len(parts := _split_values(text)) > 1}
    page = read_page(path) if lists else None

    def accepts(text: str, value: str) -> bool:
        # The other keys have their first value.
        words = [value if other == text else lists.get(other, [other])[0] for other in overrides]
        _, malformed, _, wrongs = _checked(page, words, tasks) if page else ([], [], None, {})
        keys = {override.key for override in _parse([value])[0]}
        return not malformed and not any(key[: len(each)] == each for key in wrongs for each in keys)

    def is_swept(text: str, values: Sequence[str]) -> bool:
        # `data.train` accepts the name of a file, but 300,600 is none.
        are_numbers = all(_NUMBER.fullmatch(value.partition("=")[2]) for value in values)
        return (are_numbers or not accepts(text, text)) and any(accepts(text, value) for value in values)

    swept = {text: values for text, values in lists.items() if is_swept(text, values)}
    return [text for text in overrides if text not in swept], list(swept.values())


def _split_values(text: str) -> list[str]:
    """Return an override for each value of `section.key=VALUE,VALUE`; empty if it is not such a list."""
    key, _, value = (part.strip() for part in text.partition("="))
    values = [each.strip() for each in value.split(",")]
    # Names of runs and tasks are no settings to compare.
    is_list = ("." in key or key == "seed") and value[:1] not in tuple("[{'\"") and all(values)
    return [f"{key}={each}" for each in values] if is_list else []


def model_mistakes(task: str, kind: str, own: Mapping[str, object], tasks: Tasks) -> dict[str, str]:
    """Validate settings of a model without a whole recipe.

    Each setting is checked on its own: conflicts between settings may depend on others that are not given.

    Args:
        tasks: Task schemas by name.

    Returns:
        Messages by key, in the words of recipe validation.

    Raises:
        UserError: The model is not installed, or does not support the task.
    """
    schema = tasks[task]
    tree = {"model": {"kind": kind, **own}}
    _, wrongs = _validate(schema, schema.settings(kind), tree, tasks)
    return {key[1]: what for key, what in wrongs.items() if key[0] == "model" and len(key) > 1}


def recipe_path(path: Path) -> Path:
    """Resolve the path of a recipe.

    Args:
        path: A file, a run's folder, or the name of a recipe that comes with s2s.

    Returns:
        The path of the YAML file.

    Raises:
        UserError: The file does not exist.
    """
    if path.is_dir():
        if not (path / "recipe.yaml").is_file():
            raise UserError(
                "is a folder without a recipe.yaml", where=str(path), remedy="name a recipe file or a run's folder"
            )
        return path / "recipe.yaml"
    if path.is_file():
        return path
    check_regular(path, "name a recipe file; save the output of a pipe to a file first")
    known = shipped()
    if str(path) in known:
        return known[str(path)]
    if path.stem in known:
        # The README uses the paths of the repository.
        remedy = f"a recipe of that name comes with s2s: write {path.stem}, as in `s2s train {path.stem}`"
        raise UserError("no such recipe", where=str(path), remedy=remedy)
    near = near_files(str(path), [*known, *(str(file) for file in path.parent.glob("*.y*ml"))])
    remedy = (f"did you mean {near[0]}? " if near else "") + "`s2s recipe list` shows the recipes that come with s2s"
    raise UserError("no such recipe", where=str(path), remedy=remedy)


def write(recipe: TrainRecipe, path: Path) -> None:
    """Write a recipe with every key; reading the file gives an equal recipe."""
    write_atomically(path, dump(recipe))


def dump(recipe: TrainRecipe) -> str:
    """Format a recipe as YAML with every key; its name and task come first."""
    yaml, text = YAML(), StringIO()
    # Folding a long text at two spaces or beside a tab would change it.
    yaml.width = 1 << 30
    tree = recipe.model_dump(mode="json")
    yaml.dump(_to_flow_style({key: tree.pop(key) for key in ("name", TASK)} | tree), text)
    return text.getvalue()


def _to_flow_style(value: object) -> object:
    if isinstance(value, dict):
        return {key: _to_flow_style(inner) for key, inner in value.items()}
    if isinstance(value, list):
        sequence = CommentedSeq([_to_flow_style(inner) for inner in value])
        sequence.fa.set_flow_style()
        return sequence
    # Other quoting styles lose characters that Unicode counts as line ends.
    return DoubleQuotedScalarString(value) if isinstance(value, str) and set(value) & _LINE_ENDS else value


def check_count(overrides: Sequence[str]) -> None:
    """Refuse more than 1,000 overrides, before they are parsed.

    Raises:
        UserError: There are too many.
    """
    if len(overrides) > _MOST_OVERRIDES:
        what = f"{len(overrides):,} overrides; at most {_MOST_OVERRIDES:,} are read"
        raise UserError(what, where="command line", remedy="write them into a recipe file")


def _parse(texts: Sequence[str]) -> tuple[list[Override], list[str]]:
    check_count(texts)
    parsed, malformed = [], []
    for text in texts:
        key, equals, value = text.partition("=")
        parts = tuple(key.strip().split("."))
        if not equals or not all(parts):
            malformed.append(
                f"command line: {shown(text)} is not an override; write section.key=value, e.g. training.updates=500"
            )
            continue
        if len(parts) > DEEPEST:
            malformed.append(f"command line: {cut(text)} has {len(parts):,} parts; write section.key=value")
            continue
        try:
            # `seed=2` sets all seeds of the section `seeds`.
            keys = [("seeds", name) for name in SeedSettings.model_fields] if parts == ("seed",) else [parts]
            parsed += [Override(key, read_value(value), text) for key in keys]
        except YAMLError as error:
            remedy = f"quote it: {cut(key)}='\"…\"'"
            if isinstance(error, LimitError):
                remedy = f"{error.problem}; write a plain value"
            malformed.append(f"command line: {cut(text)}: {shown(value)} is not a YAML value; {remedy}")
    return parsed, malformed


def _leave_out_keys_of_another_model(tree: dict[str, Any], overrides: Sequence[Override], tasks: Tasks) -> None:
    kinds = [override.value for override in overrides if override.key == _KIND]
    task, model = str(_task_of(tree, tasks)), tree.get("model")
    if not kinds or task not in tasks or not isinstance(model, dict):
        return
    own = {key: value for key, value in model.items() if key != "kind"}
    try:
        wrong, wrong_before = (model_mistakes(task, str(k), own, tasks) for k in (kinds[-1], model.get("kind")))
    except UserError:
        # Validation of the recipe reports it.
        return
    for key in wrong.keys() - wrong_before.keys():
        del model[key]


def _leave_out_keys_of_another_optimizer(tree: dict[str, Any], overrides: Sequence[Override]) -> None:
    training, fields = tree.get("training"), OptimizationSettings.model_fields
    names = [override.value for override in overrides if override.key == _OPTIMIZER]
    if not names or not isinstance(training, dict):
        return
    before = training.get("optimizer", fields["optimizer"].default)
    for key, readers in OPTIMIZER_KEYS.items():
        # A run's recipe has all keys, and the default of the new optimizer may be another one.
        is_unused = before not in readers and training.get(key) == fields[key].default
        if is_unused or (before in readers and names[-1] not in readers):
            training.pop(key, None)


def _apply(override: Override, tree: dict[str, Any]) -> list[str]:
    for depth, part in enumerate(override.key[:-1], start=1):
        # A section that is null or absent begins empty.
        if tree.get(part) is None:
            tree[part] = {}
        tree = tree[part]
        if not isinstance(tree, dict):
            above = ".".join(override.key[:depth])
            return [f"command line: {cut(override.text)}: {above} is a value, not a section; write {above}=VALUE"]
    tree[override.key[-1]] = override.value
    return []


def _task_of(tree: Mapping[str, Any], tasks: Tasks) -> object:
    return tree.get(TASK, next(iter(tasks)))


def _check(tree: dict[str, Any], tasks: Tasks) -> tuple[TrainRecipe | None, dict[Location, str]]:
    """Validate the values, and return the recipe or the message of each key."""
    task = _task_of(tree, tasks)
    if not isinstance(task, str) or task not in tasks:
        # The other keys cannot be checked, because the task determines them.
        return None, {(TASK,): f"is {shown(task)}; {suggestion(str(task), list(tasks))}"}
    schema, model = tasks[task], tree.get("model", {})
    if not isinstance(model, dict):
        return _validate(schema, Section, tree, tasks)
    try:
        return _validate(schema, _settings(schema, model), tree, tasks)
    except UserError as error:
        return None, _without_kind(schema, tree, model, tasks) | {_KIND: f"{error.what}; {error.remedy}"}


def _without_kind(
    schema: TaskSchema, tree: dict[str, Any], model: Mapping[str, Any], tasks: Tasks
) -> dict[Location, str]:
    """Validate a recipe with an unknown model kind.

    The model's keys are checked against the most similar kind or, if none is similar, against the keys of all
    models.
    """
    meant = nearest(str(model.get("kind", "")), models())
    try:
        settings = _settings(schema, {"kind": meant})
    except UserError:
        _, wrongs = _validate(schema, Section, tree | {"model": {}}, tasks)
        from s2s.recipe.messages import known_keys

        known = known_keys(schema.settings)
        return wrongs | {
            ("model", key): f"unknown key; {suggestion(key, known)}" for key in model if key not in {*known, "kind"}
        }
    return _validate(schema, settings, tree | {"model": {**model, "kind": meant}}, tasks)[1]


def _settings(schema: TaskSchema, model: Mapping[str, Any]) -> type[Section]:
    if "kind" not in model:
        raise UserError("is missing", remedy=f"expected one of {', '.join(models())}")
    if not isinstance(model["kind"], str):
        raise UserError(f"is {shown(model['kind'])}", remedy=f"expected one of {', '.join(models())}")
    return schema.settings(model["kind"])


def _validate(
    schema: TaskSchema, settings: type[Section], tree: dict[str, Any], tasks: Tasks
) -> tuple[TrainRecipe | None, dict[Location, str]]:
    whole = schema.recipe_class(settings)
    try:
        # Validated as JSON: strict mode accepts a list for a tuple only there, and still refuses true for 1.
        return whole.model_validate_json(json.dumps(tree)), {}
    except ValidationError as error:
        from s2s.recipe.messages import explain

        return None, explain(error.errors(include_url=False), whole, tree, schema.settings, tasks)


def _locate(key: Location, what: str, path: Path, page: Page, overrides: Sequence[Override]) -> tuple[float, str]:
    """Return the sort position and text of a mistake, with its override or line.

    The place is the override that caused the mistake, else the line of the key or of its section.
    """
    words = f"{'.'.join(key)}: {what}" if key else what
    if not key:
        # A mistake that involves several sections names their keys.
        named = [tuple(name.split(".")) for name in _DOTTED.findall(what)]
        for override in reversed(overrides):
            if any(name[: len(override.key)] == override.key for name in named):
                return float("inf"), f"command line: {cut(override.text)}: {words}"
        line = next((page.lines[name] for name in named if name in page.lines), 1)
        return line, f"{path}:{line}: {words}"
    for depth in range(len(key), 0, -1):
        above = key[:depth]
        within = [o for o in overrides if o.key[:depth] == above or above[: len(o.key)] == o.key]
        if within and (depth == len(key) or above not in page.lines):
            return float("inf"), f"command line: {cut(within[-1].text)}: {words}"
        if above in page.lines:
            return page.lines[above], f"{path}:{page.lines[above]}: {words}"
    return 1, f"{path}:1: {words}"


def _absolute(recipe: TrainRecipe, folder: Path, given: set[Location]) -> TrainRecipe:
    """Return the recipe with absolute paths of data, tokenizers and vectors.

    A run's recipe then works from any folder.
    """
    data: Section = recipe.data
    several: dict[str, dict[str, Section]] = {}
    for where, section in data_sections(data):
        if where == ("data",):
            data = _absolute_data(data, where, folder, given)
        else:
            several.setdefault(where[1], {})[where[2]] = _absolute_data(section, where, folder, given)
    changes: dict[str, object] = {"data": data.model_copy(update=several)}
    if recipe.run.dir:
        changes["run"] = recipe.run.model_copy(update={"dir": _from_home(recipe.run.dir)})
    if tokenizer := getattr(recipe, "tokenizer", None):
        sides: dict[str, Section] = {}
        for side in _SIDES:
            if own := getattr(tokenizer, side, None):
                # A side without a model of its own has that of both.
                where = ("tokenizer",) if own.model == tokenizer.model else ("tokenizer", side)
                sides[side] = _absolute_files(own, where, ("model",), folder, given)
        tokenizer = tokenizer.model_copy(update=sides)
        changes["tokenizer"] = _absolute_files(tokenizer, ("tokenizer",), ("model",), folder, given)
    if isinstance(recipe, FineTunedRecipe) and recipe.init_from:
        changes["init_from"] = _from_home(recipe.init_from)
    if isinstance(recipe, FineTunedRecipe) and recipe.vectors:
        changes["vectors"] = _absolute_files(recipe.vectors, ("vectors",), _SIDES, folder, given)
    return recipe.model_copy(update=changes)


def _absolute_files(
    section: Section, where: Location, keys: tuple[str, ...], folder: Path, given: set[Location]
) -> Section:
    """Return a section with absolute paths of single files."""
    named = {key: getattr(section, key) for key in keys}
    changes = {
        key: _utf8(_start((*where, key), folder, given) / _from_home(file), (*where, key))
        for key, file in named.items()
        if file is not None
    }
    return section.model_copy(update=changes)


def _start(key: Location, folder: Path, given: set[Location]) -> Path:
    """Return the folder from which a path starts: the current one if it was given on the command line."""
    above = {key[:depth] for depth in range(1, len(key) + 1)}
    return Path.cwd() if above & given else folder.absolute()


def _utf8(path: Path, key: Location) -> str:
    return check_utf8(str(path), ".".join(key), "rename the file or folder")


def _absolute_data(section: Section, where: Location, folder: Path, given: set[Location]) -> Section:
    """Return a data section with absolute paths; files start from its root, if set."""
    changes: dict[str, str | tuple[str, ...]] = {}
    for key, named in _paths(section):
        start = _start((*where, key), folder, given)
        if key in _SPLITS and "root" in changes:
            start = Path(str(changes["root"]))
        files = tuple(_utf8(start / _from_home(file), (*where, key)) for file in named)
        changes[key] = files[0] if isinstance(getattr(section, key), str) else files
    return section.model_copy(update=changes)


def _from_home(path: str) -> str:
    # Path.expanduser fails for the ~ of an unknown user.
    return os.path.expanduser(path)  # noqa: PTH111


def data_sections(data: Section) -> Iterator[tuple[Location, Section]]:
    """Yield the location and section of each data source.

    These are `data`, or the entries of `data.corpora`; and the entries of `data.more`.
    """
    if not hasattr(data, "corpora"):
        yield ("data",), data
    for group in ("corpora", "more"):
        for name, each in getattr(data, group, {}).items():
            yield ("data", group, name), each


def _paths(section: Section) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the keys of a data section that name local files, and their values.

    The root comes first.
    """
    values = dict(section)
    if values["root"] is not None:
        yield "root", (values["root"],)
    for key in _SPLITS if values["corpus"] == "files" else ():
        split = values.get(key)
        if isinstance(split, str | tuple):
            yield key, (split,) if isinstance(split, str) else split


def local_paths(recipe: TrainRecipe) -> list[tuple[str, Path]]:
    """List the local folders, runs and files that a recipe names.

    Returns:
        Pairs of key and path, such as `("data.root", Path(…))`.
    """
    sections = [(".".join(where), section) for where, section in data_sections(recipe.data)]
    named = [(f"{place}.{key}", f) for place, section in sections for key, files in _paths(section) for f in files]
    if isinstance(recipe, FineTunedRecipe) and recipe.init_from and not recipe.init_from.startswith(_ON_HUB):
        named.append(("init_from", recipe.init_from))
    tokenizer = getattr(recipe, "tokenizer", None)
    for where, section in (
        ("tokenizer", tokenizer),
        *((f"tokenizer.{s}", getattr(tokenizer, s, None)) for s in _SIDES),
    ):
        if section is not None and section.model is not None:
            named.append((f"{where}.model", section.model))
    if isinstance(recipe, FineTunedRecipe) and recipe.vectors is not None:
        found = ((side, getattr(recipe.vectors, side)) for side in _SIDES)
        named += [(f"vectors.{side}", file) for side, file in found if file is not None]
    return [(key, Path(file)) for key, file in named]


def without_folders(recipe: R) -> R:
    """Return a recipe in which absolute paths of local files are file names, for others to read."""
    names = {str(path): path.name for _, path in local_paths(recipe) if path.is_absolute()}
    tree = _replace_texts(recipe.model_dump(mode="json"), names)
    return type(recipe).model_validate_json(json.dumps(tree))


def _replace_texts(value: object, texts: Mapping[str, str]) -> object:
    if isinstance(value, dict):
        return {key: _replace_texts(inner, texts) for key, inner in value.items()}
    if isinstance(value, list):
        return [_replace_texts(inner, texts) for inner in value]
    return texts.get(value, value) if isinstance(value, str) else value


def shipped() -> dict[str, Path]:
    """Return the recipes that come with s2s.

    Returns:
        Paths by name, in the installed package or in `recipes/` of the source tree.

    Example:
        >>> "translate" in shipped()
        True
    """
    package = Path(__file__).parents[1]
    folder = package / "recipes"
    if not folder.is_dir():
        folder = package.parent / "recipes"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}
