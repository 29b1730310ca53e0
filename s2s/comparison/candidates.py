"""The candidates of a comparison: recipes of models with equal numbers of parameters, and equal training time."""

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

# What a model takes over from the reference, where it has it under the same name.
_SHARED = ("encoder_layers", "decoder_layers", "dropout", "tie")


def candidate_recipe(name: str, base: ComparedRecipe, own: Mapping[str, object]) -> ComparedRecipe:
    """A candidate's recipe: the base recipe's, with as many parameters as the base recipe's model.

    Args:
        name: of the candidate; begins with the kind of an installed model.
        base: the task, resolved; its model is the reference for size, layers and dropout.
        own: settings of this candidate alone, which come before the reference's.

    Raises:
        UserError: an own setting is wrong, or no width gives the size.
    """
    kind, reference, model_spec = kind_of(name), base.model, tasks.model_spec(base)
    # recurrent translators learn sooner from vectors as large as states where all pieces are frequent, as those of a
    # grammar are; of natural text they learn less in the end (docs/dev/log.md)
    usual = {"scale_embeddings": base.task == "translation" and base.data.corpus == "built-in"}
    given = non_width_settings(reference)
    names = given if kind == reference.kind else (*_SHARED, "feedforward_ratio")
    shared = usual | {name: given[name] for name in names if name in given}
    options = shared | {"max_positions": base.batches.max_length} | dict(own)
    _check(name, own, options, model_spec)
    if own or kind != reference.kind:
        parameters = model_spec.parameters(reference.kind, reference)
        reference = match_parameters(kind, model_spec, parameters, options)
    # of its own model's make: what only that model knows is not lost where a recipe is written down
    whole = schema_of(base).recipe_class(type(reference))
    return cast(ComparedRecipe, whole.model_validate(dict(base) | {"name": file_name(name), "model": reference}))


def _check(name: str, own: Mapping[str, object], options: Mapping[str, object], model_spec: ModelSpec) -> None:
    kind = kind_of(name)
    known = model_spec.section(kind).model_fields
    for key, value in own.items():
        if key not in known or key in ("kind", "width"):
            raise UserError(
                f"{kind} has no setting {key!r} that can be chosen" if key not in known else f"{key} is not free",
                where=f"command line: {name}" if name != kind else f"command line: {kind}.{key}={value}",
                remedy="widths are solved for, so that all models have as many parameters"
                if key in known
                else f"its settings are {', '.join(sorted(known.keys() - {'kind', 'width'}))}",
            )
    try:
        settings_of(kind, options, model_spec.section)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"])
        raise UserError(
            f"{place}: {first['msg']}", where=f"command line: {name}", remedy="mend its setting, or leave it out"
        ) from error


def check_kinds(base: ComparedRecipe, summary: Summary) -> None:
    """Refuses a comparison with a kind of model that cannot do its task.

    Raises:
        NotForThisModel: there is such a kind.
    """
    for model in summary.models:
        tasks.check_kind(base, kind_of(model))


def entries_of(base: ComparedRecipe, summary: Summary) -> dict[str, ComparedRecipe]:
    """The recipe of each model that a comparison names.

    Args:
        base: the task, resolved.
        summary: what is asked.

    Raises:
        NotForThisModel: a model cannot do the task.
        UserError: a setting is wrong, or two models are the same.
    """
    check_kinds(base, summary)
    entries = {model: candidate_recipe(model, base, summary.own.get(model, {})) for model in summary.models}
    _check_different(entries, summary.own)
    return entries


def _check_different(entries: Mapping[str, ComparedRecipe], own: Mapping[str, Mapping[str, object]]) -> None:
    """Refuses contenders of other names that are the same model, as where a setting is what it is anyhow."""
    models = {name: each.model for name, each in entries.items()}
    for one, other in combinations(models, 2):
        named = {"kind", *own.get(one, {}), *own.get(other, {})}
        if all(getattr(models[one], key, None) == getattr(models[other], key, None) for key in named):
            raise UserError(
                f"{one} and {other} are the same model",
                where="command line",
                remedy="give one of them another setting, or leave it out",
            )


def equal_time(recipes: Mapping[str, ComparedRecipe], seconds: Mapping[str, float]) -> dict[str, int]:
    """Number of updates of each candidate such that all train for the median training time."""
    if not seconds:
        return {}
    budget = statistics.median(seconds[name] * recipes[name].training.updates for name in seconds)
    return {name: max(2, round(budget / pace)) for name, pace in seconds.items()}
