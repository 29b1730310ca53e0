"""`s2s compare`: models under equal budgets, experiment by experiment, kept in one folder.

The folder holds `recipe.yaml` (the task), `comparison.json` (a `Summary`), `cells/<experiment>/` (each
measurement), `runs/` (trained models) and `<experiment>/result.json` (a `Result`).
"""

import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console

from s2s.errors import UserError, quoted
from s2s.experiments import contenders, tuning
from s2s.experiments.cluster import Cluster, Nodes, versions
from s2s.experiments.contest import (
    Cell,
    ComparedRecipe,
    Contest,
    Contestant,
    Experiment,
    NotForThisModel,
    comparable,
)
from s2s.experiments.cost import cost, disk, expected, missing, told
from s2s.experiments.disciplines import discipline_of
from s2s.experiments.running import Kept, Watch, Workers, died, forget, keep, kept, number_for
from s2s.experiments.tuning import TUNING
from s2s.files import sweep, write_atomically
from s2s.questions import TABLES, plan_of, settling
from s2s.recipe.reading import dump, write
from s2s.results import COMPARISON, RESULT, Contender, Failure, Finding, Result, Summary, read_summary
from s2s.results import write as write_part
from s2s.run.folder import RECIPE, alone, untouched
from s2s.run.manifest import processor
from s2s.run.stopping import resumable
from s2s.run.tasks import read
from s2s.training.devices import NAMES, Computer, choose, prepare_process
from s2s.training.precision import GradientTimes, measure

if TYPE_CHECKING:
    from s2s.run.tasks import AnyTask

AnyWorkers = Workers | Nodes
"""What makes measurements beside each other."""
# each model's recipe; for a model that cannot take part at all, why
Entries = dict[str, ComparedRecipe | NotForThisModel]


def all_experiments() -> dict[str, Experiment]:
    """All that the tables name, in their order, but each after the one whose trained models it looks at.

    Each is the `EXPERIMENT` of the folder of its name.
    """
    names = dict.fromkeys(row.experiment for table in TABLES.values() for row in table.values())
    known = {name: import_module(f"s2s.experiments.{name.replace('-', '_')}").EXPERIMENT for name in names}
    return {each: known[each] for name in names for each in (known[name].reads, name) if each}


EXPERIMENTS = all_experiments()
"""By the name that is typed after `--experiment`, in the order in which they run."""


def begin(folder: Path, base: "AnyTask", summary: Summary) -> None:
    """Makes the folder of a new comparison of the task `base`, when all its models are found good.

    Raises:
        UserError: the folder is taken, a setting is wrong, or no model can take part.
    """
    base = _resolved(base)
    entries = _entries(base, summary)
    if choose(base.device).undecided:
        # all models are to have the same, always
        faster = NAMES[_gradient_times([each for each in entries.values() if not isinstance(each, UserError)]).faster]
        base = base.model_copy(update={"device": base.device.model_copy(update={"precision": faster})})
    _check_free(folder, base)
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder):
        _check_free(folder, base)
        write(base, folder / RECIPE)
        write_part(summary, folder / COMPARISON)


def _gradient_times(recipes: Sequence[ComparedRecipe]) -> GradientTimes:
    """How long the gradients of all these models take together, on one thread, as each will learn."""
    times, threads = [], torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for recipe in recipes:
            with suppress(NotForThisModel):
                times.append(measure(discipline_of(recipe).trainer(recipe, 1, choose(recipe.device))))
    finally:
        torch.set_num_threads(threads)
    return GradientTimes(sum(each.fp32 for each in times), sum(each.bf16 for each in times), threads=1)


def _resolved(base: "AnyTask") -> ComparedRecipe:
    recipe = comparable(base)
    return discipline_of(recipe).resolved(recipe)


def _check_free(folder: Path, base: ComparedRecipe) -> None:
    if not folder.exists() or (folder.is_dir() and untouched(folder)):
        return
    # the last file that a start writes makes it a comparison; the one before may be there, and is the same again
    if folder.is_dir() and untouched(folder, RECIPE) and (folder / RECIPE).read_text(encoding="utf-8") == dump(base):
        return
    again = f"continue it with `s2s compare --resume {quoted(folder)}`, or " if (folder / COMPARISON).exists() else ""
    raise UserError("is there already", where=str(folder), remedy=f"{again}name another folder with --out")


def begun(folder: Path) -> Summary:
    """What a comparison that was begun is asked.

    Raises:
        UserError: there is none in the folder.
    """
    if not (folder / COMPARISON).exists():
        raise UserError(
            "is no comparison, or one that did not begin",
            where=str(folder),
            remedy="repeat the command that was to begin it, or name a folder such as runs/compare-rnn-transformer",
        )
    return read_summary(folder / COMPARISON)


def go_on(folder: Path, console: Console, cluster: Cluster | None = None, summary: Summary | None = None) -> None:
    """Makes every measurement that is not there yet, and concludes each experiment of a comparison that was begun.

    Args:
        folder: of the comparison.
        console: where it is shown.
        cluster: the one whose nodes measure, connected; other processes of this machine when None.
        summary: what it is asked from now on; what it was asked when None.

    Raises:
        UserError: it is none, or the cluster's nodes cannot measure it.
    """
    begun(folder)
    command = ["s2s", "compare", "--resume", str(folder), *(["--cluster", cluster.address] if cluster else [])]
    with resumable(folder, command, lambda: "stopped; every finished measurement is kept"), alone(folder):
        sweep(folder)
        if summary:
            write_part(summary, folder / COMPARISON)
        _go_on(folder, console, cluster)


def costs(folder: Path, summary: Summary, base: "AnyTask | None", cluster: Cluster | None = None) -> str:
    """What is still to be done of a comparison, in words; nothing is begun.

    Args:
        folder: of the comparison.
        summary: what it is asked.
        base: for one that was not begun, its task.
        cluster: see `go_on`.

    Raises:
        UserError: no model can take part.
    """
    if base is None:
        recipe = comparable(read(folder / RECIPE))
    else:
        # what another comparison has measured in its folder is not this one's
        recipe, folder = _resolved(base), folder / "not begun"
    entrants = _planned(folder, summary, recipe)
    return _told(entrants, summary, _workers(entrants, recipe, cluster).number)[0]


def _workers(entrants: Contest, base: ComparedRecipe, cluster: Cluster | None) -> AnyWorkers:
    if cluster:
        return Nodes(entrants.folder, entrants.computer, base.device)
    return Workers(number_for(entrants.computer), base.device)


def _planned(folder: Path, summary: Summary, base: ComparedRecipe) -> Contest:
    """The contest as it is before rates and depths are chosen."""
    entries = _entries(base, summary)
    absent = {model: each.what for model, each in entries.items() if isinstance(each, NotForThisModel)}
    contestants = tuple(
        Contestant(model, recipe, tuning.depths_of(recipe, summary.own.get(model, {})), _parameters(recipe))
        for model, recipe in entries.items()
        if not isinstance(recipe, NotForThisModel)
    )
    # as comparisons were called whose sizes are those of `definitive`
    profile = "definitive" if summary.profile == "standard" else summary.profile
    return Contest(folder, profile, contestants, tuple(summary.seeds), choose(base.device), absent)


def _parameters(recipe: ComparedRecipe) -> int:
    return discipline_of(recipe).blueprint(recipe).parameters(recipe.model.kind, recipe.model)


def _chosen(summary: Summary) -> list[Experiment]:
    return [experiment for name, experiment in EXPERIMENTS.items() if name in summary.experiments]


def _told(entrants: Contest, summary: Summary, beside: int) -> tuple[str, float]:
    """What is still to be done, in words, and the seconds that it takes."""
    each = [cost(TUNING, entrants, _open(entrants, summary, tuning.foreseen(entrants)), beside)]
    each += [cost(experiment, entrants, experiment.cells(entrants), beside) for experiment in _chosen(summary)]
    # the models that others look at are kept as whole runs
    whole = {one.reads for one in EXPERIMENTS.values()} - {""}
    runs = disk(entrants) if any({one.name, one.reads} & whole for one in _chosen(summary)) else 0
    lines = [told(each, runs, beside)]
    plan = plan_of(summary.task, summary.profile)
    if beyond := plan.beyond(summary.experiments):
        lines.append(f"too short for {', '.join(beyond)}: {plan.why}; --profile {settling(beyond)} settles it")
    return "\n".join(lines), sum(one.seconds for one in each)


def _go_on(folder: Path, console: Console, cluster: Cluster | None) -> None:
    summary, base = read_summary(folder / COMPARISON), comparable(read(folder / RECIPE))
    prepare_process(base.device)
    entrants = _planned(folder, summary, base)
    chosen = _chosen(summary)
    workers = _workers(entrants, base, cluster)
    text, ahead = _told(entrants, summary, workers.number)
    with Watch(ahead, console) as watch, workers:
        watch.say(text)
        contest, seconds = _contest(entrants, summary, watch, workers)
        watch.say(
            "\n".join(
                f"{each.model}: {each.parameters:,} parameters, width {each.settings.get('width', 'unknown')}, "
                f"learning rate {each.learning_rate:g}"
                for each in read_summary(folder / COMPARISON).contenders
            )
        )
        by = machine(entrants.computer, workers, any(experiment.alone for experiment in chosen))
        for experiment in chosen:
            seconds += _measure(experiment, contest, watch, workers)
            # what is there so far can be drawn and kept
            summary = read_summary(folder / COMPARISON)
            # a comparison may be gone on with elsewhere: its results say what else measured them
            first = summary.machine.get("processor", by["processor"]) == by["processor"]
            changes = {"seconds": seconds, "machine": by if first else summary.machine}
            write_part(summary.model_copy(update=changes), folder / COMPARISON)


def machine(computer: Computer, workers: AnyWorkers, alone: bool) -> dict[str, str]:
    """What measured: processor, device, versions, commit; and whether anything was measured `alone`."""
    exception = ", but one where time or memory is measured" if alone else ""
    return {
        "processor": processor(),
        "device": str(computer),
        "processes": f"{workers}{exception}",
        "date": time.strftime("%Y-%m-%d"),
        **versions(),
    }


def _entries(base: ComparedRecipe, summary: Summary) -> Entries:
    """Each model's recipe; for a model that cannot take part at all, why."""
    entries: Entries = {}
    for model in summary.models:
        try:
            entries[model] = contenders.entered(model, base, summary.own.get(model, {}))
        except NotForThisModel as error:
            entries[model] = error
    _check_different(entries, summary.own)
    refused = [error for error in entries.values() if isinstance(error, NotForThisModel)]
    if len(refused) == len(entries):
        raise refused[0]
    return entries


def _check_different(entries: Entries, own: Mapping[str, Mapping[str, object]]) -> None:
    """Refuses contenders of other names that are the same model, as where a setting is what it is anyhow."""
    models = {name: each.model for name, each in entries.items() if not isinstance(each, NotForThisModel)}
    for one, other in combinations(models, 2):
        named = {"kind", *own.get(one, {}), *own.get(other, {})}
        if all(getattr(models[one], key, None) == getattr(models[other], key, None) for key in named):
            raise UserError(
                f"{one} and {other} are the same model",
                where="command line",
                remedy="give one of them another setting, or leave it out",
            )


def _contest(entrants: Contest, summary: Summary, watch: Watch, workers: AnyWorkers) -> tuple[Contest, float]:
    """The contest with each model's learning rate and depth, and the seconds that choosing them took."""
    trials: dict[Cell, Kept] = {}
    foreseen = set(tuning.foreseen(entrants))
    # what is tried next depends on what the trials before it were like
    while new := [cell for cell in _open(entrants, summary, TUNING.cells(entrants)) if cell not in trials]:
        watch.expect(sum(expected(TUNING, cell, workers.number) for cell in new if cell not in foreseen))
        trials |= _all_kept(TUNING, entrants, new, watch, workers)
    tried = {model: tuning.tried(trials, model) for model in entrants.models}
    if warning := tuning.unfinished(tried):
        watch.say(warning)
    updates: Mapping[str, int] = {}
    if summary.match == "time":
        updates = contenders.equal_time(
            {each.name: each.recipe for each in entrants.contestants},
            {m: t.seconds_per_update for m, t in tried.items() if t.seconds_per_update},
        )
    contestants = tuple(tuning.chosen(c, tried[c.name].losses, updates.get(c.name)) for c in entrants.contestants)
    described = [tuning.described(each, tried[each.name]) for each in contestants]
    _check_choice(entrants.cells_of(TUNING.name), summary.contenders, described)
    write_part(summary.model_copy(update={"contenders": described}), entrants.folder / COMPARISON)
    return replace(entrants, contestants=contestants), sum(each.seconds for each in trials.values())


def _check_choice(folder: Path, before: Sequence[Contender], now: Sequence[Contender]) -> None:
    """Refuses trials that say something else than when all other measurements were made by what they said."""
    after = {each.model: each for each in now}
    for each in before:
        new = after.get(each.model)
        if new is None or (new.learning_rate, new.parameters) == (each.learning_rate, each.parameters):
            continue
        raise UserError(
            f"the trials of {each.model} have changed since it was given the rate {each.learning_rate:g}: they choose "
            f"{new.learning_rate:g} and {new.parameters:,} parameters now, beside {each.parameters:,}",
            where=str(folder),
            remedy="restore its files there, or begin another comparison",
        )


def _open(entrants: Contest, summary: Summary, trials: Sequence[Cell]) -> list[Cell]:
    """The trials that count: once rates and depths are chosen, and others learn by them, those that were made."""
    folder = entrants.cells_of(TUNING.name)
    return [cell for cell in trials if not summary.contenders or kept(folder, cell)]


def _all_kept(
    experiment: Experiment, contest: Contest, cells: Sequence[Cell], watch: Watch, workers: AnyWorkers
) -> dict[Cell, Kept]:
    """These measurements of an experiment; those that are not there yet are made."""
    folder = contest.cells_of(experiment.name)
    folder.mkdir(parents=True, exist_ok=True)
    new = missing(experiment, contest, cells)
    if others := forget(folder, new):
        watch.say(f"{experiment.name}: what {' and '.join(others)} measured is measured again on this machine")
    beside, made = workers.number, dict[Cell, Kept]()
    watch.begins(experiment.name, new)
    with workers.alone() if experiment.alone and new else nullcontext(workers) as measuring:
        precision = NAMES[contest.computer.precision]
        one = partial(keep, folder, partial(experiment.measure, contest), precision=precision)
        for cell, given in measuring.each(one, new):
            made[cell] = given or died(folder, cell)
            watch.ends(experiment.name, cell, made[cell], expected(experiment, cell, beside))
    # what another machine wrote a moment ago may not be seen from here yet
    return {cell: one for cell in cells if (one := made.get(cell) or kept(folder, cell))}


def _measure(experiment: Experiment, contest: Contest, watch: Watch, workers: AnyWorkers) -> float:
    """Makes an experiment's measurements and writes its result; gives the seconds that the measurements took."""
    made = _all_kept(experiment, contest, experiment.cells(contest), watch, workers)
    seconds = sum(each.seconds for each in made.values())
    failures = [
        Failure(task=cell.key, model=cell.model, reason=each.failed) for cell, each in made.items() if each.failed
    ] + [Failure(task="", model=model, reason=reason) for model, reason in contest.absent.items()]
    try:
        result = experiment.conclude(
            contest, {cell: each.measured for cell, each in made.items() if each.measured is not None}
        )
    except Exception as error:
        # its measurements are kept, and the other experiments are still worth making
        write_atomically(contest.cells_of(experiment.name) / "conclusion.txt", traceback.format_exc())
        reason = f"no conclusion could be drawn: {type(error).__name__}: {error}"
        watch.say(f"{experiment.name}: FAILED: {reason}")
        failures += [Failure(task="conclusion", model=model, reason=reason) for model in contest.models]
        names, seeds = contest.models, list(contest.seeds)
        result = Result(
            experiment=experiment.name, question=experiment.question, method="", models=names, seeds=seeds, findings=[]
        )
    folder = contest.folder / experiment.name
    folder.mkdir(exist_ok=True)
    summary = read_summary(contest.folder / COMPARISON)
    # which older measurements do not tell
    began = "{} ({})".format(*summary.began_on) if summary.began_on else ""
    machines = dict.fromkeys(each.machine or began for each in made.values())
    result = result.model_copy(update={"models": summary.models, "machines": [each for each in machines if each]})
    write_part(completed(result, experiment, failures, seconds), folder / RESULT)
    return seconds


def completed(result: Result, experiment: Experiment, failures: Sequence[Failure], seconds: float) -> Result:
    """The result with every cell of the experiment's rows: one without a finding says why there is none."""
    there = {(finding.row, finding.model) for finding in result.findings}
    missing = [
        Finding(
            row=row,
            model=model,
            failed=next((failure.reason for failure in failures if failure.model == model), "was not measured"),
        )
        for row in experiment.rows
        for model in result.models
        if (row, model) not in there
    ]
    changes = {"findings": [*result.findings, *missing], "failures": list(failures), "seconds": seconds}
    return result.model_copy(update=changes)
