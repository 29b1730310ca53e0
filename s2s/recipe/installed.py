"""Installed models, tasks and metrics: plug-ins of the entry-point groups `s2s.models`, `s2s.tasks`, `s2s.metrics`."""

import functools
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeVar

from s2s.errors import UserError
from s2s.recipe.schema import Section, TaskSchema
from s2s.recipe.wording import shown, suggestion

MODELS, TASKS, METRICS = "s2s.models", "s2s.tasks", "s2s.metrics"
"""Entry-point groups."""
# Not in pyproject.toml, because installed metadata has no order: the first task is the default of recipes without
# `task`, and docs/recipe.md has them in this order.
_BUILT_IN_TASKS = (
    *("translation", "classification", "masked-lm", "images", "captioning", "language-model", "text-to-text"),
)


Loaded = TypeVar("Loaded")


class Model(Protocol):
    """Interface of a model plug-in: a module, or an object in one, with these names.

    Optional names are `EncoderSettings`, the section of the encoder alone; and, for a model that can be a language
    model, `LanguageSettings` and `build_language_model(settings, size)`, which returns a newly initialized
    `LanguageModel`.

    Attributes:
        Settings: Class of the model's recipe section.
    """

    Settings: type[Section]

    def build(self, settings: Any, source_size: int, target_size: int) -> Any:
        """Build a newly initialized encoder-decoder model.

        Args:
            settings: Model section of the recipe.
            source_size: Vocabulary size of the source.
            target_size: Vocabulary size of the target.

        Returns:
            A `Seq2Seq`.
        """
        ...

    def build_encoder(self, settings: Any, source_size: int) -> Any:
        """Build a newly initialized encoder; optional.

        Returns:
            The encoder and the width of its summary.
        """
        ...


@functools.cache
def models() -> dict[str, EntryPoint]:
    """Return the installed models by kind, sorted.

    Raises:
        UserError: Two packages offer a model with the same name.

    Example:
        >>> "transformer" in models()
        True
    """
    return _installed(MODELS, "models")


@functools.cache
def tasks() -> dict[str, EntryPoint]:
    """Return the tasks by name: those of s2s, then those of other packages, sorted.

    An entry point of a task names a package with two modules: `recipe`, which defines `SCHEMA` and needs no torch, and
    `task`, which defines `TASK`. The module `data_check`, which defines the data check `inspected`, is optional.

    Raises:
        UserError: Two packages offer a task with the same name.

    Example:
        >>> next(iter(tasks()))
        'translation'
    """
    own = [EntryPoint(name, f"s2s.tasks.{name.replace('-', '_')}", TASKS) for name in _BUILT_IN_TASKS]
    return _installed(TASKS, "tasks", own)


@functools.cache
def metrics() -> dict[str, EntryPoint]:
    """Return the metrics of `s2s evaluate` that are loaded by name: those of s2s, then those of other packages, sorted.

    Raises:
        UserError: Two packages offer a metric with the same name.

    Example:
        >>> [name for name in metrics() if name in ("comet", "bertscore")]
        ['comet', 'bertscore']
    """
    own = [EntryPoint(name, f"s2s.evaluation.metric_plugins:{name}", METRICS) for name in ("comet", "bertscore")]
    return _installed(METRICS, "metrics", own)


def load_metric(name: str) -> Any:
    """Load the function of an installed metric.

    Returns:
        A `s2s.evaluation.metric_plugins.SentenceMetric`.

    Raises:
        UserError: The metric is not installed, cannot be loaded, or is not a function.
    """
    if name not in metrics():
        raise UserError(f"{shown(name)} is not a metric", "--metric", suggestion(name, list(metrics())))
    function = _load(metrics()[name], metrics()[name].load, "--metric")
    if not callable(function):
        what = f"{name!r} is incomplete: {metrics()[name].value} is not a function"
        raise UserError(what, "--metric", "an entry point names a function of translations, references and sources")
    return function


def _installed(group: str, what: str, built_in: Sequence[EntryPoint] = ()) -> dict[str, EntryPoint]:
    found = {point.name: point for point in built_in}
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        other = found.get(point.name)
        # An editable install may list its own metadata twice.
        if other is not None and other.value != point.value:
            raise UserError(
                f"two installed {what} have the name {point.name!r}: {other.value} ({package_of(other)}) and "
                f"{point.value} ({package_of(point)})",
                remedy="uninstall one of the packages",
            )
        found[point.name] = point
    return found


def package_of(point: EntryPoint) -> str:
    """Return the name of the package that offers a model or a task."""
    return point.dist.name if point.dist else "s2s" if point.module.startswith("s2s.") else "unknown package"


def module_of(kind: str) -> Model:
    """Load the module (or object) of a model, with `Settings` and `build`.

    Args:
        kind: Name of the model, as in `model.kind`.

    Returns:
        The module, checked for completeness.

    Raises:
        UserError: The model is not installed, cannot be loaded, or lacks a part.
    """
    known = models()
    if not known:
        raise UserError(
            "no models are installed",
            where="model.kind",
            remedy=f"entry points ({MODELS}) are read from installed metadata: pip install -e .",
        )
    if kind not in known:
        raise UserError(
            f"{shown(kind)} is not an installed model", where="model.kind", remedy=suggestion(kind, list(known))
        )
    module = _load(known[kind], known[kind].load, "model.kind")
    missing = [name for name in ("Settings", "build") if not callable(getattr(module, name, None))]
    if missing:
        raise UserError(
            f"{kind!r} is incomplete: {known[kind].value} has no {' and no '.join(missing)}",
            where="model.kind",
            remedy="a model's module offers Settings (a recipe section) and build(settings, source_size, target_size)",
        )
    if not (issubclass(module.Settings, Section) and "kind" in module.Settings.model_fields):
        raise UserError(
            f"{kind!r} is incomplete: Settings of {known[kind].value} is not a recipe section with a kind",
            where="model.kind",
            remedy=f"class Settings(s2s.recipe.schema.Section) with kind: Literal[{kind!r}] = {kind!r}",
        )
    return module


def task_module(task: str, name: str) -> ModuleType:
    """Import a module of a task's package.

    Args:
        name: Name of the module, such as `recipe`.

    Raises:
        UserError: It does not load.
    """
    point = tasks()[task]
    return _load(point, lambda: import_module(f"{point.value}.{name}"), "task")


def task_schema(task: str) -> TaskSchema:
    """Return the schema of a task's recipes.

    Raises:
        UserError: The task's module does not load, or its recipe lacks a key that all tasks have.
    """
    schema = getattr(task_module(task, "recipe"), "SCHEMA", None)
    known = schema.recipe.model_fields if isinstance(schema, TaskSchema) else {}
    missing = [key for key in ("task", "data", "batches", "training", "validation") if key not in known]
    if missing or not isinstance(schema, TaskSchema):
        raise UserError(
            f"{task!r} is incomplete: SCHEMA of {tasks()[task].value}.recipe has no {', '.join(missing)}",
            where="task",
            remedy="SCHEMA is a s2s.recipe.schema.TaskSchema of a TrainRecipe with these keys (docs/adding-a-task.md)",
        )
    return schema


def _load(point: EntryPoint, load: Callable[[], Loaded], where: str) -> Loaded:
    try:
        return load()
    except Exception as error:
        mine = package_of(point)
        if place := _find_shadowing_package(point):
            top = point.module.partition(".")[0]
            raise UserError(
                f"{point.name!r} cannot be loaded: {point.value} belongs to {mine}, but another package named {top} "
                f"hides it: {place}",
                where=where,
                remedy=f"change to a folder without a file or folder {top}, or uninstall the other package and "
                f"reinstall {mine}",
            ) from error
        raise UserError(
            f"{point.name!r} cannot be loaded: {point.value}: {type(error).__name__}: {error}",
            where=where,
            remedy=f"fix or reinstall {mine}",
        ) from error


def _find_shadowing_package(point: EntryPoint) -> str:
    """Return the path of a package that shadows an entry point's own; empty: none."""
    top, *below = point.module.split(".")
    found = find_spec(top)
    if found is None or not below:
        return ""
    places = [str(place) for place in found.submodule_search_locations or [found.origin]]
    files = Path(*below[:-1]), (f"{below[-1]}.py", f"{below[-1]}/__init__.py")
    own = any((Path(place) / files[0] / name).is_file() for place in places for name in files[1])
    return "" if own else ", ".join(places)


def translator_settings(kind: str) -> type[Section]:
    """Return the section class of a translation model."""
    return module_of(kind).Settings


def encoder_settings(kind: str) -> type[Section]:
    """Return the section class of a model's encoder.

    Returns:
        `EncoderSettings` of the model's module; `Settings` if it has none.

    Raises:
        UserError: See `module_of`; or the module has no `build_encoder`.
    """
    module = module_of(kind)
    if not callable(getattr(module, "build_encoder", None)):
        raise UserError(
            f"{kind!r} can only translate: {models()[kind].value} has no build_encoder",
            where="model.kind",
            remedy="a module whose encoder can be used alone offers build_encoder(settings, source_size)",
        )
    return getattr(module, "EncoderSettings", module.Settings)


def language_settings(kind: str) -> type[Section]:
    """Return the section class of a language model, `LanguageSettings` of its module.

    Raises:
        UserError: See `module_of`; or the module has no `LanguageSettings` or no `build_language_model`.
    """
    module = module_of(kind)
    missing = [
        name for name in ("LanguageSettings", "build_language_model") if not callable(getattr(module, name, None))
    ]
    if missing:
        able = [other for other in models() if callable(getattr(module_of(other), "build_language_model", None))]
        raise UserError(
            f"{kind!r} is not a language model: {models()[kind].value} has no {' and no '.join(missing)}",
            where="model.kind",
            remedy=f"choose a language model: {', '.join(able)}",
        )
    return getattr(module, "LanguageSettings")  # noqa: B009  the attribute is optional


def build_language_model(settings: Any, size: int) -> Any:
    """Build a newly initialized language model.

    Args:
        settings: Model section; its `kind` names the model.

    Returns:
        A `LanguageModel`.
    """
    return getattr(module_of(settings.kind), "build_language_model")(settings, size)  # noqa: B009
