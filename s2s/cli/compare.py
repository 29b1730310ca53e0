"""`s2s compare`, and `s2s report`, which draws again: mistakes are answered before anything heavy is loaded."""

import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, get_args

import click

from s2s.cli import options
from s2s.cli.candidates import (
    check_candidates,
    folder_of,
    is_candidate,
    is_of_a_model,
    own_settings,
)
from s2s.comparison.candidate_names import kind_of
from s2s.comparison.plans import (
    TABLES,
    Plan,
    Profile,
    Task,
    experiments_of,
    plan_of,
)
from s2s.comparison.results import Summary
from s2s.errors import UserError, quote_path
from s2s.recipe.reading import check_count, recipe_path
from s2s.recipe.schema import FineTunedRecipe
from s2s.recipe.wording import suggestion
from s2s.run.tasks import read
from s2s.training import cpu_affinity

if TYPE_CHECKING:
    from s2s.recipe.schema import TrainRecipe

_FILE = click.Path(path_type=Path)
# where the recipes of a task are named
_NAMED_BY = {"translation": "--recipe", "classification": "--task"}
_MATCHES = ("parameters", "time")
_ONLY = f"Only this one; may be repeated. Of translators: {', '.join(experiments_of('translation'))}."


@dataclass(frozen=True)
class Order:
    """The command line as it was given; None where an option is absent."""

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
    """A comparison that can begin: in a folder, by the recipe of its task."""

    folder: Path
    base: "TrainRecipe"
    summary: Summary


@options.command()
@click.argument("words", nargs=-1, metavar="MODEL... [key=value]...")
@click.option("--task", type=_FILE, metavar="RECIPE", help="A classification task, such as ag_news.")
@click.option("--profile", type=click.Choice(get_args(Profile)), help="Questions and sizes; quick when absent.")
@click.option("--seeds", type=click.IntRange(1, 100), help="Repetitions; by profile when absent: 3, 5, 5.")
@click.option("--match", type=click.Choice(_MATCHES), help="What is made equal; parameters when absent.")
@click.option("--experiment", "experiments", multiple=True, metavar="NAME", help=_ONLY)
@click.option("--recipe", type=_FILE, help="A translation task; the profile's own when absent.")
@click.option("--out", type=_FILE, help="Folder; runs/compare-MODEL-MODEL when absent.")
@click.option("--resume", type=_FILE, metavar="DIR", help="Go on; with MODEL, --seeds or --experiment, extend it.")
@click.option(
    "--cluster", metavar="ADDRESS", help="Measure on the nodes of a Ray cluster: auto, HOST:PORT or ray://HOST."
)
@click.option("--cost", is_flag=True, help="Say what it will cost, and begin nothing.")
def compare(
    words: tuple[str, ...],
    task: Path | None,
    profile: str | None,
    seeds: int | None,
    match: str | None,
    experiments: tuple[str, ...],
    recipe: Path | None,
    out: Path | None,
    resume: Path | None,
    cluster: str | None,
    cost: bool,
) -> None:
    """Compare models: `s2s compare rnn transformer` answers the questions of the `quick` profile.

    MODEL is an installed model (`s2s recipe models`), or one with settings: `transformer:norm=post,activation=gelu`.
    `section.key=value` changes the task that all share, and `MODEL.key=value` a setting of all candidates of that
    model. With --task, the models name classes of texts instead of translating.
    What is found is in DIR/report.html.
    """
    asked = Order(words, profile, seeds, match, experiments, recipe, out, task)
    planned = None if resume else order(asked)
    if resume:
        check_resumes(asked)
    check_cluster(cluster)
    # before torch is loaded
    with cpu_affinity.save_affinity():
        _measure(planned, resume or Path(), asked, cluster, cost)


def _measure(planned: Planned | None, resumed: Path, asked: Order, cluster: str | None, cost: bool) -> None:
    """Begins what is planned, or goes on with what was begun, and draws what is found; or only says what it costs."""
    from rich.console import Console

    from s2s.comparison.cluster import Cluster
    from s2s.comparison.engine import check_concluded, describe_costs, resume
    from s2s.comparison.report.drawing import draw
    from s2s.comparison.setup import create, load_summary

    folder = planned.folder if planned else resumed
    summary = planned.summary if planned else extended(load_summary(folder), asked)
    # before anything is written
    with Cluster(cluster) if cluster else nullcontext() as connected:
        if cost:
            click.echo(describe_costs(folder, summary, planned and planned.base, connected))
            return
        if planned:
            create(folder, planned.base, summary, click.echo)
        resume(folder, Console(), connected, summary)
    click.echo(f"report:  {draw(folder)}\ncurves:  tensorboard --logdir {quote_path(folder)}")
    check_concluded(folder)


@options.command()
@click.argument("folder", type=_FILE)
def report(folder: Path) -> None:
    """Draw the report of the comparison in FOLDER again, from its saved files."""
    from s2s.comparison.report.drawing import draw

    click.echo(draw(folder))


def check_cluster(address: str | None) -> None:
    """Refuses the address of a cluster where nothing is installed that could reach one.

    Raises:
        UserError: that is so.
    """
    if address and find_spec("ray") is None:
        raise UserError(
            "a cluster needs ray", where="--cluster", remedy="in the repository: pip install -e '.[cluster]'"
        )


def check_resumes(asked: Order) -> None:
    """Refuses `--resume` with anything that it would ignore.

    Raises:
        UserError: there is something.
    """
    ignored = [word for word in asked.words if not is_candidate(word)]
    options = replace(asked, words=(), seeds=None, experiments=())
    ignored += [f"--{each.name}" for each in fields(options) if getattr(options, each.name)]
    if ignored:
        raise UserError(
            f"--resume goes on with a comparison as it was begun, so {', '.join(ignored)} would be ignored",
            remedy="leave out everything but --resume DIR, further models, as in transformer:norm=post, --seeds, "
            "--experiment, --cluster and --cost",
        )


def extended(summary: Summary, asked: Order) -> Summary:
    """Extend the plan of a comparison by further models, seeds and experiments.

    Raises:
        UserError: there is no such model or experiment, or a model is compared already, or a setting is wrong.
    """
    if not (asked.words or asked.seeds or asked.experiments):
        return summary
    summary = _with_models(summary, asked.words)
    if asked.seeds and asked.seeds < len(summary.seeds):
        raise UserError(
            f"--seeds {asked.seeds}: it has {len(summary.seeds)}, and what is measured stays",
            where="command line",
            remedy=f"give {len(summary.seeds)} or more, or begin another comparison with --out",
        )
    plan = plan_of(summary.task, summary.profile)
    new = _experiments(asked.experiments, summary.task, plan) if asked.experiments else []
    # those that it has come first: a kept comparison may not begin with 1
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
    """The comparison with these further models."""
    if not words:
        return summary
    if there := [word for word in words if word in summary.models]:
        raise UserError(f"{', '.join(there)}: compared there already", remedy="leave it out, or give it settings")
    if summary.match == "time":
        raise UserError(
            f"{', '.join(words)} would change how long all others may learn, which --match time makes equal",
            where="command line",
            remedy="begin another comparison of all of them",
        )
    names, kinds = check_candidates([*summary.models, *words]), [kind_of(word) for word in words]
    command = shlex.split(summary.command)
    # what the command says of all candidates of a model holds for new ones, too
    of_models = [word for word in command if not is_candidate(word) and word.partition(".")[0] in kinds]
    own = own_settings(words, of_models, summary.task)
    place = max(n for n, word in enumerate(command) if n < 2 or word in summary.models) + 1
    command[place:place] = words
    return summary.model_copy(update={"command": shlex.join(command), "models": names, "own": summary.own | own})


def order(asked: Order) -> Planned:
    """Check the arguments of the command and return the plan.

    Raises:
        UserError: a model or an experiment is unknown, or named twice, or a setting is wrong.
    """
    names = check_candidates([word for word in asked.words if is_candidate(word)])
    task: Task = "classification" if asked.task else "translation"
    _check_options(asked)
    profile = cast(Profile, asked.profile or "quick")
    plan = plan_of(task, profile)
    experiments = _experiments(asked.experiments, task, plan)
    overrides = [word for word in asked.words if not is_candidate(word)]
    check_count(overrides)
    of_models = [word for word in overrides if is_of_a_model(word)]
    own = own_settings(names, of_models, task)
    named = asked.task or asked.recipe
    base = read(recipe_path(named or Path(plan.recipe)), [word for word in overrides if word not in of_models])
    _check_recipe(base, task, named)
    seeds = asked.seeds or plan.seeds
    folder = asked.out or folder_of(names, base.name if asked.task else "")
    summary = Summary(
        command=_command(asked),
        task=task,
        profile=profile,
        match=cast(Literal["parameters", "time"], asked.match or "parameters"),
        models=names,
        own=own,
        seeds=list(range(1, seeds + 1)),
        experiments=experiments,
        contenders=[],
        machine={},
        seconds=0,
    )
    return Planned(folder, base, summary)


def _experiments(words: Sequence[str], task: Task, plan: Plan) -> list[str]:
    known = experiments_of(task)
    for word in words:
        if word in known:
            continue
        others = [other for other in TABLES if word in experiments_of(other)]
        what = f"{word!r} is an experiment on {others[0]}, not on {task}" if others else f"{word!r} is no experiment"
        remedy = f"on {task} there are {', '.join(known)}" if others else suggestion(word, known)
        raise UserError(what, where="--experiment", remedy=remedy)
    return [name for name in known if name in (words or plan.experiments)]


def _check_options(asked: Order) -> None:
    for option, word, known in (("--profile", asked.profile, get_args(Profile)), ("--match", asked.match, _MATCHES)):
        if word is not None and word not in known:
            raise UserError(f"there is no {word!r}", where=option, remedy=suggestion(word, known))
    if asked.seeds is not None and asked.seeds < 1:
        raise UserError(f"{asked.seeds} seeds measure nothing", where="--seeds", remedy="ask for 1 and more")
    if asked.task and asked.recipe:
        raise UserError(
            f"--task {asked.task} and --recipe {asked.recipe} both say what models are compared on",
            remedy="leave out one of them: --task takes a recipe of classification, --recipe one of translation",
        )
    if asked.task and asked.profile:
        raise UserError(
            f"--profile {asked.profile} says nothing with --task: its recipe gives the sizes",
            remedy="leave out --profile; change sizes by section.key=value",
        )


def _check_recipe(base: "TrainRecipe", task: Task, named: Path | None) -> None:
    if base.task != task:
        other = _NAMED_BY.get(base.task)
        raise UserError(
            f"{named} is a recipe of task {base.task}, not {task}",
            where=_NAMED_BY[task],
            remedy=f"name it with {other} {quote_path(named or Path())}"
            if other
            else "models are compared on translation (--recipe) and on classification (--task)",
        )
    if isinstance(base, FineTunedRecipe) and base.init_from is not None:
        raise UserError(
            "compared models begin with nothing learned, and widths are solved for; the recipe has init_from",
            where=_NAMED_BY[task],
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
