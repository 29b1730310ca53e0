"""Who is compared: models of equal size, each with the learning rate that suits it best among the same few."""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from s2s.errors import UserError
from s2s.experiments.contest import Cell, Conclusion, Contest, Contestant, Experiment, Measured
from s2s.experiments.disciplines import discipline_of
from s2s.experiments.matching import Blueprint, beside_width, settings_of, solved
from s2s.experiments.running import Kept
from s2s.experiments.whole_runs import seconds_for, shortened
from s2s.recipe.reading import dump
from s2s.recipe.schema import Section
from s2s.results import Contender
from s2s.run.tasks import schema_of
from s2s.training.devices import Computer

# The same rates are tried for every model, with a quarter of the updates that training will have.
RATES = (0.001, 0.002, 0.004, 0.008)
TUNING_SHARE = 0.25
# What a model takes over from the reference, where it has it under the same name.
_SHARED = ("encoder_layers", "decoder_layers", "dropout", "tie")


def entered(kind: str, base: Any, own: Mapping[str, object]) -> Any:
    """A model's recipe: the base recipe's, with as many parameters as the base recipe's model.

    Args:
        kind: an installed model.
        base: the task, resolved; its model is the reference for size, layers and dropout.
        own: settings of this model alone, which come before the reference's.

    Raises:
        NotForThisModel: the model cannot take part.
        UserError: an own setting is wrong, or no width gives the size.
    """
    discipline, reference = discipline_of(base), base.model
    discipline.check(kind)
    blueprint = discipline.blueprint(base)
    # short trainings, and exercises of few pieces: recurrent translators learn sooner from vectors as large as states
    usual = {"scale_embeddings": base.task == "translation"}
    shared = usual | _options(reference, same_kind=kind == reference.kind)
    options = shared | {"max_positions": base.batches.max_length} | dict(own)
    _check(kind, own, options, blueprint)
    if own or kind != reference.kind:
        parameters = blueprint.parameters(reference.kind, reference)
        reference = solved(kind, blueprint, parameters, options)
    # of its own model's make: what only that model knows is not lost where a recipe is written down
    whole = schema_of(base).whole(type(reference))
    return whole.model_validate(dict(base) | {"name": kind, "model": reference})


def _options(reference: Section, same_kind: bool) -> dict[str, object]:
    given = beside_width(reference)
    names = given if same_kind else (*_SHARED, "feedforward_ratio")
    return {name: given[name] for name in names if name in given}


def _check(kind: str, own: Mapping[str, object], options: Mapping[str, object], blueprint: Blueprint) -> None:
    known = blueprint.section(kind).model_fields
    for key, value in own.items():
        if key not in known or key in ("kind", "width"):
            raise UserError(
                f"{kind} has no setting {key!r} that can be chosen" if key not in known else f"{key} is not free",
                where=f"command line: {kind}.{key}={value}",
                remedy="widths are solved for, so that all models have as many parameters"
                if key in known
                else f"its settings are {', '.join(sorted(known.keys() - {'kind', 'width'}))}",
            )
    try:
        settings_of(kind, options, blueprint.section)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"])
        raise UserError(
            f"{place}: {first['msg']}", where=f"command line: {kind}", remedy="mend its setting, or leave it out"
        ) from error


def tuned(recipe: Any, rate: float) -> Any:
    """The recipe of a short training that tries a learning rate; its schedule ends when it does."""
    short = shortened(recipe, TUNING_SHARE)
    return short.model_copy(update={"training": short.training.model_copy(update={"learning_rate": rate})})


def short_training(recipe: Any, seed: int, computer: Computer) -> tuple[float, float]:
    """Trains a model as its recipe says, without checkpoints and tests.

    Returns:
        The validation loss afterwards, in nats, and the seconds that the updates took.

    Raises:
        NotForThisModel: the model cannot take part.
        UserError: the training failed.
    """
    discipline = discipline_of(recipe)
    trainer = discipline.trainer(recipe, seed, computer)
    began = time.perf_counter()
    for _ in trainer.updates(recipe.training.updates):
        pass
    seconds = time.perf_counter() - began
    with trainer.optimization.averaged():
        return discipline.validation_loss(trainer, recipe), seconds


class Tuning(Experiment):
    """Not an experiment of its own: its measurements choose each model's rate before the others begin."""

    name = "tuning"
    question = "Which learning rate suits each model?"
    conclusion = staticmethod(lambda contest, measured: Conclusion())

    def cells(self, contest: Contest) -> list[Cell]:
        """A short training for each model and rate."""
        return [
            Cell(each.name, part=f"rate-{i}", seconds=seconds_for(each.recipe, TUNING_SHARE))
            for each in contest.contestants
            for i in range(len(RATES))
        ]

    def measure(self, contest: Contest, cell: Cell) -> Measured:
        """The validation loss after a short training at one rate."""
        rate = RATES[int(cell.part.removeprefix("rate-"))]
        recipe = tuned(contest.contestant(cell.model).recipe, rate)
        loss, seconds = short_training(recipe, contest.seeds[0], contest.computer)
        return {"rate": rate, "loss": loss, "seconds": seconds, "updates": recipe.training.updates}


TUNING = Tuning()


@dataclass(frozen=True)
class Tried:
    """What tuning measured of a model."""

    losses: dict[float, float | None]  # validation loss by rate; None where training failed
    seconds: float  # what it cost
    seconds_per_update: float | None  # of training; None where it failed


def tried(kept: Mapping[Cell, Kept], model: str) -> Tried:
    """What the measurements of `Tuning` say of a model."""
    mine = {RATES[int(cell.part.removeprefix("rate-"))]: each for cell, each in kept.items() if cell.model == model}
    good = [each.measured for each in mine.values() if each.measured]
    return Tried(
        losses={rate: each.measured["loss"] if each.measured else None for rate, each in mine.items()},
        seconds=sum(each.seconds for each in mine.values()),
        seconds_per_update=min((m["seconds"] / m["updates"] for m in good), default=None),
    )


def chosen(recipe: Any, losses: Mapping[float, float | None], updates: int | None) -> Contestant:
    """The contestant with the rate of the lowest validation loss; with the recipe's, where it learned at none.

    Args:
        recipe: its recipe.
        losses: validation loss by rate; None where training failed.
        updates: how many it may have; None: as many as its recipe says.
    """
    good = {rate: loss for rate, loss in losses.items() if loss is not None}
    changes: dict[str, object] = {}
    if good:
        changes["learning_rate"] = min(good, key=lambda rate: good[rate])
    if updates is not None:
        changes |= {"updates": updates, "warmup": min(recipe.training.warmup, updates // 5)}
    return Contestant(recipe.name, recipe.model_copy(update={"training": recipe.training.model_copy(update=changes)}))


def equal_time(recipes: Sequence[Any], seconds: Mapping[str, float]) -> dict[str, int]:
    """How many updates each model may have, so that all train as long as the middle one does with its recipe's number.

    Args:
        recipes: of all models.
        seconds: that an update of each takes, by name; models without are left out.
    """
    timed = [recipe for recipe in recipes if recipe.name in seconds]
    if not timed:
        return {}
    budget = statistics.median(seconds[recipe.name] * recipe.training.updates for recipe in timed)
    return {recipe.name: max(2, round(budget / seconds[recipe.name])) for recipe in timed}


def described(contestant: Contestant, losses: Mapping[float, float | None], seconds: float) -> Contender:
    """What the report says of a contestant."""
    recipe = contestant.recipe
    blueprint = discipline_of(recipe).blueprint(recipe)
    return Contender(
        model=contestant.name,
        settings=contestant.settings.model_dump(mode="json"),
        parameters=blueprint.parameters(contestant.name, contestant.settings),
        learning_rate=contestant.learning_rate,
        rates={f"{rate:g}": loss for rate, loss in losses.items()},
        tuning_seconds=seconds,
        recipe=dump(recipe),
    )
