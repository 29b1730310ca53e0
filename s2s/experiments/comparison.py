"""`s2s compare`: models under equal budgets, experiment by experiment, kept in one folder.

The folder holds `recipe.yaml` (the task), `comparison.json` (a `Summary`), `cells/<experiment>/` (each
measurement), `runs/` (trained models) and `<experiment>/result.json` (a `Result`).
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from s2s.errors import UserError, quote_path
from s2s.experiments import contenders, tuning
from s2s.experiments.beginning import begun, check_data, note, resolved, task_of
from s2s.experiments.choice import rechosen, reshaped, set_aside
from s2s.experiments.cluster import Cluster, Nodes, versions
from s2s.experiments.concluding import CONCLUSION, TRACE, concluded
from s2s.experiments.contest import (
    CELLS,
    Cell,
    ComparedRecipe,
    Contest,
    Contestant,
    Experiment,
)
from s2s.experiments.cost import Run, about, ahead, cost, disk, expected, timed, told
from s2s.experiments.disciplines import discipline_of
from s2s.experiments.measuring import AnyWorkers, all_kept
from s2s.experiments.running import Kept, Late, Watch, Workers, number_for
from s2s.experiments.tuning import TUNING
from s2s.files import check_unlinked, make_folder, remove_unfinished
from s2s.folders import COMPARISON
from s2s.questions import TABLES, plan_of, settling
from s2s.results import RESULT, Summary, read_result, read_summary
from s2s.results import write as write_part
from s2s.run.folder import MEASURED, run_lock
from s2s.run.manifest import code_version, processor_name
from s2s.run.shutdown import interrupt_immediately, print_resume_hint_on_exit
from s2s.training.device import DeviceContext, select_device, setup_process

if TYPE_CHECKING:
    from s2s.run.tasks import AnyTask


def all_experiments() -> dict[str, Experiment]:
    """All that the tables name, in their order, but each after the one whose trained models it looks at.

    Each is the `EXPERIMENT` of the folder of its name.
    """
    names = dict.fromkeys(row.experiment for table in TABLES.values() for row in table.values())
    known = {name: import_module(f"s2s.experiments.{name.replace('-', '_')}").EXPERIMENT for name in names}
    return {each: known[each] for name in names for each in (known[name].reads, name) if each}


EXPERIMENTS = all_experiments()
"""By the name that is typed after `--experiment`, in the order in which they run."""


def go_on(
    folder: Path,
    console: Console,
    cluster: Cluster | None = None,
    summary: Summary | None = None,
    limit: float = math.inf,
) -> None:
    """Makes every measurement that is not there yet, and concludes each experiment of a comparison that was begun.

    Args:
        folder: of the comparison.
        console: where it is shown.
        cluster: the one whose nodes measure, connected; other processes of this machine when None.
        summary: what it is asked from now on; what it was asked when None.
        limit: seconds that it takes at most: an experiment that does not fit by the pace so far is left for later.

    Raises:
        UserError: it is none, or its task has changed, or a model that is new cannot be compared, or the cluster's
            nodes cannot measure it.
    """
    begun(folder)
    code_version()
    command = ["s2s", "compare", "--resume", str(folder), *(["--cluster", cluster.address] if cluster else [])]
    stands = "stopped; every finished measurement is kept"
    with (
        print_resume_hint_on_exit(folder, command, lambda: stands),
        interrupt_immediately() as check,
        run_lock(folder, MEASURED),
    ):
        check_unlinked(folder)
        remove_unfinished(folder)
        asked = summary or begun(folder)
        # nothing is written for what cannot be measured
        task = task_of(folder)
        contenders.entries_of(task, asked)
        check_data(folder, task)
        note(folder, asked)
        _go_on(folder, console, cluster, check, limit)


def check_concluded(folder: Path) -> None:
    """Refuses a comparison that has measurements of which no conclusion could be drawn.

    Raises:
        UserError: it has.
    """
    for name in begun(folder).experiments:
        path = folder / name / RESULT
        for failure in read_result(path).failures if path.exists() else ():
            if failure.task == CONCLUSION:
                cells = folder / CELLS / name
                raise UserError(
                    f"{name}: {failure.reason}",
                    where=str(cells / TRACE),
                    remedy=f"if a file of {cells} was changed by hand, remove it and measure it again: "
                    f"s2s compare --resume {quote_path(folder)}; if none was, this is a mistake of s2s: "
                    "report the trace",
                )


def costs(
    folder: Path,
    summary: Summary,
    base: "AnyTask | None",
    cluster: Cluster | None = None,
    limit: float = math.inf,
) -> str:
    """What is still to be done of a comparison, in words; nothing is begun.

    Args:
        folder: of the comparison.
        summary: what it is asked.
        base: for one that was not begun, its task.
        cluster: see `go_on`.
        limit: likewise.

    Raises:
        UserError: no model can take part.
    """
    if base is None:
        recipe = task_of(folder)
    else:
        # what another comparison has measured in its folder is not this one's
        recipe, folder = resolved(base), folder / "not begun"
    # what was measured with other threads counts for nothing, and so many measure beside each other
    setup_process(recipe.device)
    entrants = _planned(folder, summary, recipe)
    return _told(entrants, summary, _workers(entrants, recipe, cluster).number, limit)[0]


def _workers(entrants: Contest, base: ComparedRecipe, cluster: Cluster | None) -> AnyWorkers:
    if cluster:
        return Nodes(entrants.folder, entrants.device_context, base.device)
    return Workers(number_for(entrants.device_context), base.device)


def _planned(folder: Path, summary: Summary, base: ComparedRecipe) -> Contest:
    """The contest as it is before rates and depths are chosen."""
    entries = contenders.entries_of(base, summary)
    contestants = tuple(_entrant(model, recipe, summary.own.get(model, {})) for model, recipe in entries.items())
    # as comparisons were called whose sizes are those of `definitive`
    profile = "definitive" if summary.profile == "standard" else summary.profile
    return Contest(folder, profile, contestants, tuple(summary.seeds), select_device(base.device), summary.sized_for)


def _entrant(model: str, recipe: ComparedRecipe, own: Mapping[str, object]) -> Contestant:
    parameters = discipline_of(recipe).blueprint(recipe).parameters(recipe.model.kind, recipe.model)
    return Contestant(model, recipe, tuning.depths_of(recipe, own), parameters, tuning.settled(recipe, own))


def _chosen(summary: Summary) -> list[Experiment]:
    return [experiment for name, experiment in EXPERIMENTS.items() if name in summary.experiments]


def _trains(experiment: Experiment, summary: Summary) -> Experiment | None:
    """The experiment whose models this one looks at, and trains itself where that one is not asked for."""
    return None if experiment.reads in summary.experiments else EXPERIMENTS.get(experiment.reads)


def _needs_choice(entrants: Contest, summary: Summary) -> bool:
    """Whether any measurement depends on what trials choose; a depth that the command gives is none of it."""
    needed = {experiment.chosen for experiment in _chosen(summary)}
    open_depth = any(each.depths for each in entrants.contestants)
    return summary.match == "time" or "rate" in needed or ("depth" in needed and open_depth)


def _told(entrants: Contest, summary: Summary, beside: int, limit: float) -> tuple[str, float]:
    """What is still to be done, in words, and the seconds that it takes."""
    each = [cost(TUNING, entrants, tuning.foreseen(entrants) if _needs_choice(entrants, summary) else [], beside)]
    counted = set[Run]()
    for one in _chosen(summary):
        each.append(cost(one, entrants, one.cells(entrants), beside, _trains(one, summary), counted))
    # the models that others look at are kept as whole runs
    whole = {one.reads for one in EXPERIMENTS.values()} - {""}
    runs = disk(entrants) if any({one.name, one.reads} & whole for one in _chosen(summary)) else 0
    lines, seconds = [told(each, runs, beside)], sum(one.seconds for one in each)
    if seconds > limit:
        lines.append(f"it is to take {about(limit)} at most: what does not fit is left for later")
    plan = plan_of(summary.task, summary.profile)
    if beyond := plan.beyond(summary.experiments):
        lines.append(f"too short for {', '.join(beyond)}: {plan.why}; --profile {settling(beyond)} settles it")
    return "\n".join(lines), seconds


def _go_on(folder: Path, console: Console, cluster: Cluster | None, check: Callable[[], None], limit: float) -> None:
    summary, base = read_summary(folder / COMPARISON), task_of(folder)
    setup_process(base.device)
    if not summary.sized_for:
        # gone on with on another device, it asks the same; what an older version began says in words on which one
        began, here = summary.machine.get("device", ""), select_device(base.device).device.type
        words = {"cpu": "cpu", "mps": "mps", "": here}
        summary = summary.model_copy(update={"sized_for": words.get(began.split(",")[0], "cuda")})
        note(folder, summary)
    entrants = _planned(folder, summary, base)
    workers = _workers(entrants, base, cluster)
    text, seconds = _told(entrants, summary, workers.number, limit)
    with Watch(seconds, console, check, limit) as watch, workers:
        watch.print_fn(text)
        try:
            contest, seconds = _contest(entrants, summary, watch, workers)
        except Late:
            watch.print_fn(_left(folder, ["the rest of choosing rates and depths, and all measurements"], limit))
            return
        for each in read_summary(folder / COMPARISON).contenders:
            width = each.settings.get("width", "unknown")
            rate = f", learning rate {each.learning_rate:g}" if each.rates else ""
            watch.print_fn(f"{each.model}: {each.parameters:,} parameters, width {width}{rate}")
        later = _measure_all(entrants, contest, watch, workers, limit, seconds)
        if later:
            watch.print_fn(_left(folder, [f"{name} ({long})" for name, long in later.items()], limit))


def _left(folder: Path, what: Sequence[str], limit: float) -> str:
    """What is left for later, in words."""
    more = f"s2s compare --resume {quote_path(folder)} measures what is left"
    return f"left for later, as all is to take {about(limit)} at most: {', '.join(what)}; {more}"


def _measure_all(
    entrants: Contest, contest: Contest, watch: Watch, workers: AnyWorkers, limit: float, seconds: float
) -> dict[str, str]:
    """Makes the measurements of all experiments that fit, and writes their results.

    Args:
        entrants: the contest before anything was chosen.
        contest: the contest.
        watch: shows how far it is.
        workers: who makes them.
        limit: seconds that all may take.
        seconds: that choosing took.

    Returns:
        The experiments that are left for later, each with how long it would take.
    """
    summary = read_summary(contest.folder / COMPARISON)
    chosen, beside = _chosen(summary), workers.number

    def needed(experiment: Experiment, counted: set[Run] | None = None) -> float:
        return ahead(experiment, contest, beside, _trains(experiment, summary), counted)

    counted, known = set[Run](), dict[str, float]()
    # what trials chose, and how long they took, says better what is ahead
    watch.expect(-watch.ahead())
    for one in chosen:
        known[one.name] = needed(one, counted)
        watch.expect(known[one.name], timed(one, contest))
    by = machine(entrants.device_context, workers, any(experiment.alone for experiment in chosen))
    later: dict[str, str] = {}
    for experiment in chosen:
        new = needed(experiment)
        # it trains what another one would have trained that is left for later
        by_trials = timed(experiment, contest)
        others = watch.ahead(by_trials) - known[experiment.name]
        watch.expect(new - known[experiment.name], by_trials)
        takes = watch.takes(new, by_trials)
        try:
            if new and (watch.spent + takes > limit or experiment.reads in later):
                raise Late
            seconds += _measure(experiment, contest, watch, workers, _trains(experiment, summary))
        except Late:
            left = needed(experiment)
            later[experiment.name] = about(watch.takes(left, by_trials))
            watch.expect(others - watch.ahead(by_trials), by_trials)
            continue
        # what is there so far can be drawn and kept
        summary = read_summary(contest.folder / COMPARISON)
        # a comparison may be gone on with elsewhere: its results say what else measured them
        first = summary.machine.get("processor", by["processor"]) == by["processor"]
        changes = {"seconds": seconds, "machine": by if first else summary.machine}
        note(contest.folder, summary.model_copy(update=changes))
    return later


def machine(device_context: DeviceContext, workers: AnyWorkers, alone: bool) -> dict[str, str]:
    """What measured: processor, device, versions, commit; and whether anything was measured `alone`."""
    exception = ", but one where time or memory is measured" if alone else ""
    return {
        "processor": processor_name(),
        "device": str(device_context),
        "processes": f"{workers}{exception}",
        "date": time.strftime("%Y-%m-%d"),
        **versions(),
    }


def _contest(entrants: Contest, summary: Summary, watch: Watch, workers: AnyWorkers) -> tuple[Contest, float]:
    """The contest with each model's learning rate and depth, and the seconds that choosing them took.

    As it was, where nothing that is measured depends on them.
    """
    if not _needs_choice(entrants, summary):
        if {each.model for each in summary.contenders} != {*entrants.models}:
            untried = [tuning.described(each, tuning.tried({}, each.name)) for each in entrants.contestants]
            note(entrants.folder, summary.model_copy(update={"contenders": untried}))
        return entrants, 0.0
    trials = _trials(entrants, watch, workers)
    tried = {model: tuning.tried(trials, model) for model in entrants.models}
    if warning := tuning.unfinished(tried):
        watch.print_fn(warning)
    updates: Mapping[str, int] = {}
    if summary.match == "time":
        updates = contenders.equal_time(
            {each.name: each.recipe for each in entrants.contestants},
            {m: t.seconds_per_update for m, t in tried.items() if t.seconds_per_update},
        )
    contestants = tuple(tuning.chosen(c, tried[c.name], updates.get(c.name)) for c in entrants.contestants)
    described = [tuning.described(each, tried[each.name]) for each in contestants]
    if others := rechosen(summary.contenders, described):
        # equal times are those of all models together
        models = others if summary.match == "parameters" else entrants.models
        aside = set_aside(entrants.folder, models, reshaped(others), EXPERIMENTS.values())
        there = f"; what was measured before lies in {aside}, and is measured again" if aside else ""
        for model, differing in others.items():
            choices = ", ".join(f"{key} {said}" for key, said in differing.items())
            watch.print_fn(f"{model}: its trials choose {choices}{there}")
    note(entrants.folder, summary.model_copy(update={"contenders": described}))
    return replace(entrants, contestants=contestants), sum(each.seconds for each in trials.values())


def _trials(entrants: Contest, watch: Watch, workers: AnyWorkers) -> dict[Cell, Kept]:
    """All trials of all models; those that are not there yet are made."""
    foreseen, asked, trials = set(tuning.foreseen(entrants)), set[Cell](), dict[Cell, Kept]()

    def untried(model: str = "") -> list[Cell]:
        new = [cell for cell in TUNING.cells(entrants) if cell not in asked and model in ("", cell.model)]
        asked.update(new)
        watch.expect(sum(expected(TUNING, cell, workers.number) for cell in new if cell not in foreseen))
        return new

    # what is tried next depends on what the model's trials before it were like, and on no other's
    while new := untried():
        trials |= all_kept(TUNING, entrants, new, watch, workers, untried)
    return trials


def _measure(
    experiment: Experiment, contest: Contest, watch: Watch, workers: AnyWorkers, trains: Experiment | None
) -> float:
    """Makes an experiment's measurements and writes its result; gives the seconds that the measurements took."""
    made = all_kept(experiment, contest, experiment.cells(contest), watch, workers, trains=trains)
    folder = contest.folder / experiment.name
    make_folder(folder)
    write_part(concluded(experiment, contest, made, watch.print_fn), folder / RESULT)
    return sum(each.seconds for each in made.values())
