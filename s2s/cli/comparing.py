"""What `s2s compare` does with the words it is given: mistakes are answered before anything heavy is loaded."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from s2s.errors import UserError
from s2s.recipe.installed import models
from s2s.recipe.page import read_value
from s2s.recipe.reading import read, recipe_path
from s2s.recipe.schema import Recipe
from s2s.recipe.wording import suggestion
from s2s.results import ROWS, Summary

EXPERIMENTS = tuple(dict.fromkeys(experiment for _, experiment in ROWS.values()))
_RECIPES = {"quick": "compare", "standard": "compare_multi30k"}
_SEEDS = 3


@dataclass(frozen=True)
class Order:
    """The command line as it was given; None where an option is absent."""

    words: tuple[str, ...]
    profile: str | None
    seeds: int | None
    match: str | None
    experiments: tuple[str, ...]
    recipe: Path | None
    out: Path | None


@dataclass(frozen=True)
class Planned:
    """A comparison that can begin.

    Attributes:
        folder: where it will be kept.
        base: the translation task.
        summary: what is compared.
    """

    folder: Path
    base: Recipe[Any]
    summary: Summary


def check_lone(asked: Order) -> None:
    """Refuses `--resume` with anything that it would ignore.

    Raises:
        UserError: there is something.
    """
    if any((asked.words, asked.profile, asked.seeds, asked.match, asked.experiments, asked.recipe, asked.out)):
        raise UserError(
            "--resume goes on with a comparison as it was begun", remedy="leave out everything but --resume DIR"
        )


def order(asked: Order) -> Planned:
    """What a command line asks for, checked.

    Raises:
        UserError: a model or an experiment is unknown, or named twice, or a setting is wrong.
    """
    names = _models([word for word in asked.words if "=" not in word])
    experiments = _experiments(asked.experiments)
    profile = cast(Literal["quick", "standard"], asked.profile or "quick")
    overrides = [word for word in asked.words if "=" in word]
    own = [word for word in overrides if word.partition(".")[0] in models()]
    _check_owners(own, names)
    base = read(recipe_path(asked.recipe or Path(_RECIPES[profile])), [word for word in overrides if word not in own])
    if base.task != "translation":
        raise UserError(f"models are compared on translation, and the recipe's task is {base.task}", where="--recipe")
    seeds = asked.seeds or _SEEDS
    folder = asked.out or Path("runs") / f"compare-{'-'.join(names)}"
    summary = Summary(
        command=_command(asked),
        profile=profile,
        match=cast(Literal["parameters", "time"], asked.match or "parameters"),
        models=names,
        own=_own(own),
        seeds=list(range(1, seeds + 1)),
        experiments=experiments,
        contenders=[],
        machine={},
        seconds=0,
    )
    return Planned(folder, base, summary)


def begin(planned: Planned) -> Path:
    """Makes the comparison's folder."""
    from s2s.experiments import comparison

    comparison.begin(planned.folder, planned.base, planned.summary)
    return planned.folder


def _models(words: Sequence[str]) -> list[str]:
    known = models()
    for word in words:
        if word not in known:
            raise UserError(f"{word!r} is not an installed model", remedy=suggestion(word, list(known)))
    if len(words) < 2 or len(set(words)) < len(words):
        raise UserError(
            f"a comparison needs two different models or more; given: {', '.join(words) or 'none'}",
            remedy="s2s compare rnn transformer; `s2s models` lists what is installed",
        )
    return list(words)


def _experiments(words: Sequence[str]) -> list[str]:
    for word in words:
        if word not in EXPERIMENTS:
            raise UserError(f"{word!r} is no experiment", where="--experiment", remedy=suggestion(word, EXPERIMENTS))
    return [name for name in EXPERIMENTS if name in words or not words]


def _check_owners(own: Sequence[str], names: Sequence[str]) -> None:
    for word in own:
        kind = word.partition(".")[0]
        if kind not in names:
            raise UserError(f"{kind} is not compared, so {word!r} says nothing", remedy=f"name {kind}, or leave it out")


def _own(words: Sequence[str]) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for word in words:
        key, _, value = word.partition("=")
        kind, _, name = key.partition(".")
        found.setdefault(kind, {})[name] = read_value(value)
    return found


def _command(asked: Order) -> str:
    options = {
        "--profile": asked.profile,
        "--seeds": asked.seeds,
        "--match": asked.match,
        "--recipe": asked.recipe,
    }
    words = ["s2s", "compare", *asked.words]
    words += [text for name, value in options.items() if value is not None for text in (name, str(value))]
    words += [text for name in asked.experiments for text in ("--experiment", name)]
    return shlex.join(words)
