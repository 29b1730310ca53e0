"""Candidates of a comparison: recipes of models with equal numbers of parameters, and equal training time."""

import statistics
from collections.abc import Mapping
from itertools import combinations
from typing import cast

from pydantic import ValidationError

from s2s.comparison import tasks
from s2s.comparison.candidate_names import file_name, kind_of
from s2s.comparison.matching import ModelSpec, match_parameters, non_width_settings, settings_of
from s2s.comparison.results import Summary
from s2s.comparison.spec import ComparedRecipe
from s2s.errors import UserError
from s2s.run.tasks import schema_of

# Settings that a model of another kind takes over from the base recipe's model.
_SHARED = ("encoder_layers", "decoder_layers", "dropout", "tie")


def candidate_recipe(name: str, base: ComparedRecipe, own: Mapping[str, object]) -> ComparedRecipe:
    """Return a candidate's recipe, with as many parameters as the base recipe's model.

    Args:
        name: Name of the candidate; begins with the kind of an installed model.
        base: Finalized recipe of the task; its model is the reference for size, layers and dropout.
        own: Settings of this candidate alone, which override the reference's.

    Returns:
        The recipe, with the candidate's name and the settings of its model.

    Raises:
        UserError: A setting is wrong, or no width gives about as many parameters.
    """
    kind, reference, model_spec = kind_of(name), base.model, tasks.model_spec(base)
    # Recurrent translators learn faster with scaled embeddings if all tokens are frequent, as in the built-in grammar;
    # on natural text their final loss is higher (docs/dev/log.md).
    usual = {"scale_embeddings": base.task == "translation" and base.data.corpus == "built-in"}
    given = non_width_settings(reference)
    names = given if kind == reference.kind else (*_SHARED, "feedforward_ratio")
    shared = usual | {name: given[name] for name in names if name in given}
    options = shared | {"max_positions": base.batches.max_length} | dict(own)
    _check(name, own, options, model_spec)
    if own or kind != reference.kind:
        parameters = model_spec.parameters(reference.kind, reference)
        reference = match_parameters(kind, model_spec, parameters, options)
    # The recipe class of the candidate's model keeps settings that only this model has.
    recipe_class = schema_of(base).recipe_class(type(reference))
    return cast(ComparedRecipe, recipe_class.model_validate(dict(base) | {"name": file_name(name), "model": reference}))


def _check(name: str, own: Mapping[str, object], options: Mapping[str, object], model_spec: ModelSpec) -> None:
    kind = kind_of(name)
    known = model_spec.section(kind).model_fields
    for key, value in own.items():
        where = f"command line: {name}" if name != kind else f"command line: {kind}.{key}={value}"
        if key not in known:
            settings = ", ".join(sorted(known.keys() - {"kind", "width"}))
            raise UserError(f"{kind} has no setting {key!r}", where=where, remedy=f"its settings are {settings}")
        if key in ("kind", "width"):
            remedy = "widths are computed, so that all models have as many parameters"
            raise UserError(f"{key} cannot be set", where=where, remedy=remedy)
    try:
        settings_of(kind, options, model_spec.section)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"])
        remedy = "correct its setting, or leave the model out"
        raise UserError(f"{place}: {first['msg']}", where=f"command line: {name}", remedy=remedy) from error


def check_kinds(base: ComparedRecipe, summary: Summary) -> None:
    """Check that all models of a comparison can do its task.

    Raises:
        NotForThisModel: A model cannot.
    """
    for model in summary.models:
        tasks.check_kind(base, kind_of(model))


def entries_of(base: ComparedRecipe, summary: Summary) -> dict[str, ComparedRecipe]:
    """Return the recipe of each candidate.

    Args:
        base: Finalized recipe of the task.
        summary: Plan of the comparison.

    Raises:
        NotForThisModel: A model cannot do the task.
        UserError: A setting is wrong, or two candidates are the same model.
    """
    check_kinds(base, summary)
    entries = {model: candidate_recipe(model, base, summary.own.get(model, {})) for model in summary.models}
    # Two names are the same model if a setting equals the default.
    for one, other in combinations(entries, 2):
        keys = {"kind", *summary.own.get(one, {}), *summary.own.get(other, {})}
        first, second = entries[one].model, entries[other].model
        if all(getattr(first, key, None) == getattr(second, key, None) for key in keys):
            remedy = "give one of them another setting, or leave it out"
            raise UserError(f"{one} and {other} are the same model", where="command line", remedy=remedy)
    return entries


def equal_time(recipes: Mapping[str, ComparedRecipe], seconds: Mapping[str, float]) -> dict[str, int]:
    """Return the number of updates of each candidate such that all train for the median training time.

    Args:
        seconds: Seconds per update of each candidate.

    Returns:
        Number of updates by candidate, at least 2.
    """
    if not seconds:
        return {}
    budget = statistics.median(seconds[name] * recipes[name].training.updates for name in seconds)
    return {name: max(2, round(budget / pace)) for name, pace in seconds.items()}
