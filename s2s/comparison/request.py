"""Request for a comparison, from the command line or from Python: validate it before anything heavy is loaded.

A candidate is an installed model (`transformer`) or one with settings (`transformer:norm=post,activation=gelu`).
`order` and `extended` turn a request into the plan that is measured.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, cast, get_args

from ruamel.yaml.error import YAMLError

from s2s.arguments import check_unique
from s2s.comparison.candidate_names import file_name, kind_of, settings_in
from s2s.comparison.plans import TABLES, Plan, Profile, Task, experiments_of, plan_of
from s2s.comparison.results import Summary
from s2s.errors import UserError, quote_path
from s2s.recipe.installed import models
from s2s.recipe.page import read_value
from s2s.recipe.reading import check_count, model_mistakes, recipe_path
from s2s.recipe.schema import FineTunedRecipe, TrainRecipe
from s2s.recipe.wording import cut, shown, suggestion
from s2s.run.tasks import read, schemas

MATCHES = ("parameters", "time")
"""Quantities that can be made equal for all candidates."""
# Option that names the recipe of a task.
_OPTION = {"translation": "--recipe", "classification": "--task"}
# Keys of a recipe that a comparison sets itself, and how.
_SET_ITSELF = {
    "training.learning_rate": "rates are searched for, for each model",
    "seeds": "--seeds gives their number",
    "run": "--out names the folder",
}
_EXAMPLE = "transformer:encoder_positions=rope,decoder_positions=rope"


@dataclass(frozen=True)
class Order:
    """Arguments of `s2s compare`; None for absent options."""

    words: tuple[str, ...] = ()
    profile: str | None = None
    seeds: int | None = None
    match: str | None = None
    experiments: tuple[str, ...] = ()
    recipe: Path | None = None
    out: Path | None = None
    task: Path | None = None


@dataclass(frozen=True)
class Planned:
    """A validated comparison: its folder, the recipe of its task, and its plan."""

    folder: Path
    base: TrainRecipe
    summary: Summary


def order(asked: Order) -> Planned:
    """Validate a request and return the plan.

    Raises:
        UserError: A model or an experiment is unknown or named twice, or a setting is wrong.
    """
    names = _check_candidates([word for word in asked.words if _is_candidate(word)])
    task: Task = "classification" if asked.task else "translation"
    _check_options(asked)
    profile = cast(Profile, asked.profile or "quick")
    plan = plan_of(task, profile)
    experiments = _experiments(asked.experiments, task, plan)
    overrides = [word for word in asked.words if not _is_candidate(word)]
    check_count(overrides)
    of_models = [word for word in overrides if word.partition(".")[0] in models()]
    of_all = [word for word in overrides if word not in of_models]
    check_unique(of_all)
    _check_effect(of_all)
    own = _own_settings(names, of_models, task)
    named = asked.task or asked.recipe
    base = read(recipe_path(named or Path(plan.recipe)), of_all)
    _check_recipe(base, task, named)
    folder = asked.out
    if folder is None:
        name = "-".join(["compare", *map(file_name, names), *([base.name] if asked.task else [])])
        # A file system allows names of 255 bytes.
        folder = Path("runs") / (name if len(name) <= 200 else file_name(f"compare:{name}"))
    summary = Summary(
        command=_command(asked),
        task=task,
        profile=profile,
        match=cast(Literal["parameters", "time"], asked.match or "parameters"),
        models=names,
        own=own,
        seeds=list(range(1, (asked.seeds or plan.seeds) + 1)),
        experiments=experiments,
        contenders=[],
        machine={},
        seconds=0,
    )
    return Planned(folder, base, summary)


def _check_effect(overrides: Sequence[str]) -> None:
    """Refuse settings of the recipe that a comparison sets itself."""
    for word in overrides:
        key = word.partition("=")[0].strip()
        instead = next((found for start, found in _SET_ITSELF.items() if f"{key}.".startswith(f"{start}.")), None)
        if instead:
            raise UserError(f"{key} has no effect: {instead}", f"command line: {cut(word)}", "leave it out")


def extended(summary: Summary, asked: Order) -> Summary:
    """Extend the plan of a comparison by further models, seeds and experiments.

    Raises:
        UserError: A model or an experiment is unknown, a model is compared already, or a setting is wrong.
    """
    if not (asked.words or asked.seeds or asked.experiments):
        return summary
    summary = _with_models(summary, asked.words)
    if asked.seeds and asked.seeds < len(summary.seeds):
        raise UserError(
            f"--seeds {asked.seeds}: the comparison already has {len(summary.seeds)} seeds",
            where="command line",
            remedy=f"set {len(summary.seeds)} or more, or start another comparison with --out",
        )
    plan = plan_of(summary.task, summary.profile)
    new = _experiments(asked.experiments, summary.task, plan) if asked.experiments else []
    # The existing seeds come first: those of a stored comparison may not begin with 1.
    seeds = list(range(summary.seeds[0], summary.seeds[0] + asked.seeds)) if asked.seeds else summary.seeds
    experiments = [name for name in experiments_of(summary.task) if name in {*summary.experiments, *new}]
    words = shlex.split(summary.command)
    for option in ("--seeds", "--experiment"):
        while option in words:
            place = words.index(option)
            del words[place : place + 2]
    words += ["--seeds", str(len(seeds))] if len(seeds) != plan.seeds else []
    if experiments != [name for name in experiments_of(summary.task) if name in plan.experiments]:
        words += [word for name in experiments for word in ("--experiment", name)]
    return summary.model_copy(update={"command": shlex.join(words), "seeds": seeds, "experiments": experiments})


def _with_models(summary: Summary, words: Sequence[str]) -> Summary:
    if not words:
        return summary
    if there := [word for word in words if word in summary.models]:
        raise UserError(f"{', '.join(there)}: already compared", remedy="leave it out, or give it settings")
    if summary.match == "time":
        raise UserError(
            f"{', '.join(words)} would change the training time of all others, because of --match time",
            where="command line",
            remedy="start another comparison of all of them",
        )
    names, kinds = _check_candidates([*summary.models, *words]), [kind_of(word) for word in words]
    command = shlex.split(summary.command)
    # Settings of all candidates of a model hold for new candidates, too.
    of_models = [word for word in command if not _is_candidate(word) and word.partition(".")[0] in kinds]
    own = _own_settings(words, of_models, summary.task)
    place = max(n for n, word in enumerate(command) if n < 2 or word in summary.models) + 1
    command[place:place] = words
    return summary.model_copy(update={"command": shlex.join(command), "models": names, "own": summary.own | own})


def check_resumes(asked: Order) -> None:
    """Refuse `--resume` with options that it would ignore."""
    ignored = [word for word in asked.words if not _is_candidate(word)]
    options = replace(asked, words=(), seeds=None, experiments=())
    ignored += [f"--{each.name}" for each in fields(options) if getattr(options, each.name)]
    if ignored:
        raise UserError(
            f"--resume uses the settings of the comparison, so {', '.join(ignored)} would be ignored",
            remedy="use --resume DIR only with further models, as in transformer:norm=post, --seeds, --experiment, "
            "--cluster and --cost",
        )


def check_cluster(address: str | None) -> None:
    """Refuse the address of a cluster if Ray is not installed."""
    if address and find_spec("ray") is None:
        raise UserError(
            "a cluster needs Ray", "--cluster", "in the repository: pip install -c constraints.txt -e '.[cluster]'"
        )


def _is_candidate(word: str) -> bool:
    """Return True if a word names a candidate, not a setting."""
    return "=" not in word or ":" in word.partition("=")[0]


def _check_candidates(words: Sequence[str]) -> list[str]:
    """Check that the candidates are different and of installed models."""
    known = models()
    for word in words:
        kind = kind_of(word)
        if kind not in known:
            setting = "write a setting with its value, as in training.updates=200" if "." in kind else ""
            raise UserError(f"{kind!r} is not an installed model", remedy=setting or suggestion(kind, list(known)))
        if ":" in word and not all("=" in text for text in (settings_in(word) or [""])):
            raise UserError(f"{shown(word)} is not a model with settings", remedy=f"write it as {_EXAMPLE}")
    different = {(kind_of(word), tuple(sorted(_settings(word).items(), key=str))) for word in words}
    if len(words) < 2:
        raise UserError(
            f"a comparison needs at least two models; given: {', '.join(words) or 'none'}",
            remedy="s2s compare rnn transformer; `s2s recipe models` lists the installed models",
        )
    if len(different) < len(words):
        raise UserError(
            f"a comparison needs different models; one is given twice: {', '.join(words)}",
            remedy=f"leave one out, or give it other settings: {_EXAMPLE}",
        )
    return list(words)


def _own_settings(names: Sequence[str], of_models: Sequence[str], task: str) -> dict[str, dict[str, object]]:
    """Return the settings of each candidate: its own before those of its model (`lstm.bidirectional=false`).

    Raises:
        UserError: A model is not compared, or settings are wrong; all wrong settings are listed.
    """
    by_kind: dict[str, dict[str, object]] = {}
    for word in of_models:
        kind, _, setting = word.partition(".")
        if kind not in map(kind_of, names):
            what = f"{kind} is not compared, so {word!r} has no effect"
            raise UserError(what, remedy=f"add {kind} to the models, or leave it out")
        key, value = _read_setting(setting, word)
        if key in by_kind.get(kind, {}):
            raise _repeated_key_error(f"{kind}.{key}", word)
        by_kind.setdefault(kind, {})[key] = value
    own = {name: by_kind.get(kind_of(name), {}) | _settings(name) for name in names}
    mistakes: list[str] = []
    for name in names:
        try:
            found = model_mistakes(task, kind_of(name), own[name], schemas())
        except UserError:
            # A model that cannot take part is reported in its cells of the table.
            continue
        mistakes += [f"command line: {cut(name)}: {key}: {what}" for key, what in found.items()]
    if mistakes:
        raise UserError("\n".join(dict.fromkeys(mistakes)))
    return {name: settings for name, settings in own.items() if settings}


def _settings(name: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for text in settings_in(name):
        key, value = _read_setting(text, name)
        if key in found:
            raise _repeated_key_error(key, name)
        found[key] = value
    return found


def _repeated_key_error(key: str, words: str) -> UserError:
    return UserError(f"{key} is set twice", f"command line: {cut(words)}", "leave one of them out")


def _read_setting(setting: str, word: str) -> tuple[str, object]:
    key, _, value = setting.partition("=")
    try:
        return key.strip(), read_value(value)
    except YAMLError:
        remedy = "write a plain word or number"
        raise UserError(f"{shown(value)} is not a YAML value", f"command line: {cut(word)}", remedy) from None


def _experiments(words: Sequence[str], task: Task, plan: Plan) -> list[str]:
    known = experiments_of(task)
    for word in words:
        if word in known:
            continue
        others = [other for other in TABLES if word in experiments_of(other)]
        what = f"{word!r} is an experiment on {others[0]}, not on {task}" if others else f"no experiment {word!r}"
        remedy = f"experiments on {task}: {', '.join(known)}" if others else suggestion(word, known)
        raise UserError(what, where="--experiment", remedy=remedy)
    return [name for name in known if name in (words or plan.experiments)]


def _check_options(asked: Order) -> None:
    for option, word, known in (("--profile", asked.profile, get_args(Profile)), ("--match", asked.match, MATCHES)):
        if word is not None and word not in known:
            raise UserError(f"unknown value {word!r}", where=option, remedy=suggestion(word, known))
    if asked.seeds is not None and asked.seeds < 1:
        raise UserError(f"is {asked.seeds}", where="--seeds", remedy="set 1 or more")
    if asked.task and asked.recipe:
        raise UserError(
            f"--task {asked.task} and --recipe {asked.recipe} exclude each other",
            remedy="leave one of them out: --task takes a recipe of classification, --recipe one of translation",
        )
    if asked.task and asked.profile:
        raise UserError(
            f"--profile {asked.profile} has no effect with --task, which sets the sizes",
            remedy="leave out --profile; change sizes with section.key=value",
        )


def _check_recipe(base: TrainRecipe, task: Task, named: Path | None) -> None:
    if base.task != task:
        other = _OPTION.get(base.task)
        raise UserError(
            f"{named} is a recipe of task {base.task}, not {task}",
            where=_OPTION[task],
            remedy=f"name it with {other} {quote_path(named or Path())}"
            if other
            else "models are compared on translation (--recipe) and on classification (--task)",
        )
    if isinstance(base, FineTunedRecipe) and base.init_from is not None:
        raise UserError(
            "compared models are trained from scratch, and their widths are chosen; the recipe has init_from",
            where=_OPTION[task],
            remedy="leave it out: init_from=null",
        )


def _command(asked: Order) -> str:
    options = {
        "--profile": asked.profile,
        "--seeds": asked.seeds,
        "--match": asked.match,
        "--recipe": asked.recipe,
        "--task": asked.task,
    }
    words = ["s2s", "compare", *asked.words]
    words += [text for name, value in options.items() if value is not None for text in (name, str(value))]
    words += [text for name in asked.experiments for text in ("--experiment", name)]
    return shlex.join(words)
