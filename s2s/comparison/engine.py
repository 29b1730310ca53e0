"""`s2s compare`: models under equal budgets, experiment by experiment, kept in one folder.

The folder holds `recipe.yaml` (the task), `comparison.json` (a `Summary`), `cells/<experiment>/` (each
measurement), `runs/` (trained models) and `<experiment>/result.json` (a `Result`).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from s2s.comparison import candidates, tuning
from s2s.comparison.analysis import CONCLUSION, TRACE, concluded
from s2s.comparison.cluster import Cluster, Nodes, versions
from s2s.comparison.cost import Cost, cost, disk, expected, missing, told
from s2s.comparison.executor import Progress, StoredResult, Workers, kept, number_for
from s2s.comparison.plans import TABLES, plan_of, settling
from s2s.comparison.results import RESULT, CandidateSummary, Summary, read_result, read_summary
from s2s.comparison.results import write as write_part
from s2s.comparison.runs import is_there
from s2s.comparison.scheduler import AnyWorkers, all_kept
from s2s.comparison.setup import begun, check_data, note, resolved, task_of
from s2s.comparison.spec import CELLS, Candidate, ComparedRecipe, Comparison, Experiment, Trial
from s2s.comparison.tasks import comparable_task_of
from s2s.comparison.tuning import TUNING
from s2s.errors import UserError, quote_path
from s2s.files import COMPARISON, check_unlinked, make_folder, remove_unfinished
from s2s.run.folder import MEASURED, run_lock
from s2s.run.manifest import code_version, processor_name
from s2s.training.device import DeviceContext, select_device, setup_process
from s2s.training.shutdown import interrupt_immediately, print_resume_hint_on_exit

if TYPE_CHECKING:
    from s2s.recipe.schema import TrainRecipe


def all_experiments() -> dict[str, Experiment]:
    """Return all questions in the order of the tables; a question follows the one that it reads."""
    names = dict.fromkeys(row.experiment for table in TABLES.values() for row in table.values())
    known = {
        name: import_module(f"s2s.comparison.questions.{name.replace('-', '_')}.measure").EXPERIMENT for name in names
    }
    return {each: known[each] for name in names for each in (known[name].reads, name) if each}


EXPERIMENTS = all_experiments()
"""By the name that is typed after `--experiment`, in the order in which they run."""


def go_on(folder: Path, console: Console, cluster: Cluster | None = None, summary: Summary | None = None) -> None:
    """Makes every measurement that is not there yet, and concludes each experiment of a comparison that was begun.

    Args:
        folder: of the comparison.
        console: where it is shown.
        cluster: the one whose nodes measure, connected; other processes of this machine when None.
        summary: what it is asked from now on; what it was asked when None.

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
        candidates.entries_of(task, asked)
        check_data(folder, task)
        note(folder, asked)
        _go_on(folder, console, cluster, check)


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
                    f"s2s compare --resume {quote_path(folder)}; if none was, report this trace: it is a bug of s2s",
                )


def costs(folder: Path, summary: Summary, base: "TrainRecipe | None", cluster: Cluster | None = None) -> str:
    """Describe what is still to be done of a comparison; nothing is begun.

    Args:
        folder: of the comparison.
        summary: what it is asked.
        base: for one that was not begun, its task.
        cluster: see `go_on`.

    Returns:
        The trials of each question and their estimated time, one a line.

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
    return _told(entrants, summary, _workers(entrants, recipe, cluster).number)


def _workers(entrants: Comparison, base: ComparedRecipe, cluster: Cluster | None) -> AnyWorkers:
    if cluster:
        return Nodes(entrants.folder, entrants.device_context, base.device)
    return Workers(number_for(entrants.device_context), base.device)


def _planned(folder: Path, summary: Summary, base: ComparedRecipe) -> Comparison:
    """The comparison before rates and depths are chosen."""
    entries = candidates.entries_of(base, summary)
    planned = []
    for model, recipe in entries.items():
        own = summary.own.get(model, {})
        parameters = comparable_task_of(recipe).blueprint(recipe).parameters(recipe.model.kind, recipe.model)
        depths, settled = tuning.depths_of(recipe, own), tuning.settled(recipe, own)
        planned.append(Candidate(model, recipe, depths, parameters, settled))
    device_context = select_device(base.device)
    sized_for = summary.sized_for or device_context.device.type
    return Comparison(folder, summary.profile, tuple(planned), tuple(summary.seeds), device_context, sized_for)


def _chosen(summary: Summary) -> list[Experiment]:
    return [experiment for name, experiment in EXPERIMENTS.items() if name in summary.experiments]


def _needs_choice(entrants: Comparison, summary: Summary) -> bool:
    """Whether any trial depends on tuning: a learning rate, or a depth that the command leaves open."""
    needed = {experiment.chosen for experiment in _chosen(summary)}
    open_depth = any(each.depths for each in entrants.candidates)
    return summary.match == "time" or "rate" in needed or ("depth" in needed and open_depth)


def _costs(comparison: Comparison, summary: Summary, processes: int) -> list[Cost]:
    """The cost of each question, and of models that only other questions look at."""
    found, needed = [], dict[str, set[tuple[str, int | None]]]()
    for one in _chosen(summary):
        cells = one.cells(comparison)
        found.append(cost(one, comparison, cells, processes))
        if one.reads not in ("", *summary.experiments) and one.reads in EXPERIMENTS:
            reading = [cell for cell in missing(one, comparison, cells) if one.reading in ("", cell.part)]
            needed.setdefault(one.reads, set()).update((cell.model, cell.seed) for cell in reading)
    for name, wanted in needed.items():
        trains = EXPERIMENTS[name]
        runs = [run for run in trains.cells(comparison) if (run.model, run.seed) in wanted]
        new = [run for run in runs if not is_there(comparison.folder, run.model, run.seed)]
        seconds = sum(expected(trains, comparison, run, processes) for run in new)
        found.append(Cost(f"trained models (as for {name})", len(new), len(runs) - len(new), seconds, False))
    return found


def _told(entrants: Comparison, summary: Summary, processes: int) -> str:
    trials = tuning.foreseen(entrants) if _needs_choice(entrants, summary) else []
    each = [cost(TUNING, entrants, trials, processes), *_costs(entrants, summary, processes)]
    # the models that others look at are kept as whole runs
    whole = {one.reads for one in EXPERIMENTS.values()} - {""}
    runs = disk(entrants) if any({one.name, one.reads} & whole for one in _chosen(summary)) else 0
    lines = [told(each, runs, processes)]
    plan = plan_of(summary.task, summary.profile)
    if beyond := plan.beyond(summary.experiments):
        lines.append(f"too short for {', '.join(beyond)}: {plan.why}; --profile {settling(beyond)} settles it")
    return "\n".join(lines)


def _go_on(folder: Path, console: Console, cluster: Cluster | None, check: Callable[[], None]) -> None:
    summary, base = read_summary(folder / COMPARISON), task_of(folder)
    setup_process(base.device)
    entrants = _planned(folder, summary, base)
    workers = _workers(entrants, base, cluster)
    with Progress(0.0, console, check) as progress, workers:
        progress.print(_told(entrants, summary, workers.number))
        comparison, seconds = _contest(entrants, summary, progress, workers)
        summary = read_summary(folder / COMPARISON)
        for each in summary.contenders:
            width = each.settings.get("width", "unknown")
            rate = f", learning rate {each.learning_rate:g}" if each.rates else ""
            progress.print(f"{each.model}: {each.parameters:,} parameters, width {width}{rate}")
        chosen = _chosen(summary)
        by = machine(entrants.device_context, workers, any(experiment.alone for experiment in chosen))
        # a comparison may be gone on with elsewhere: its results say what else measured them
        first = summary.machine.get("processor", by["processor"]) == by["processor"]
        for experiment in chosen:
            progress.expect(sum(each.seconds for each in _costs(comparison, summary, workers.number)))
            made = all_kept(experiment, comparison, experiment.cells(comparison), progress, workers)
            make_folder(folder / experiment.name)
            write_part(concluded(experiment, comparison, made, progress.print), folder / experiment.name / RESULT)
            # what is there so far can be drawn and kept
            seconds += sum(each.seconds for each in made.values())
            changes = {"seconds": seconds, "machine": by if first else summary.machine}
            note(folder, summary.model_copy(update=changes))


def machine(device_context: DeviceContext, workers: AnyWorkers, alone: bool) -> dict[str, str]:
    """Describe the machine: processor, device, versions, commit, and number of processes."""
    exception = ", but one where time or memory is measured" if alone else ""
    return {
        "processor": processor_name(),
        "device": str(device_context),
        "processes": f"{workers}{exception}",
        "date": time.strftime("%Y-%m-%d"),
        **versions(),
    }


def _contest(
    entrants: Comparison, summary: Summary, progress: Progress, workers: AnyWorkers
) -> tuple[Comparison, float]:
    """The comparison with each model's learning rate and depth, and the seconds that choosing them took.

    As it was, where nothing that is measured depends on them.
    """
    if not _needs_choice(entrants, summary):
        if {each.model for each in summary.contenders} != {*entrants.models}:
            untried = [tuning.described(each, tuning.tried({}, each.name)) for each in entrants.candidates]
            note(entrants.folder, summary.model_copy(update={"contenders": untried}))
        return entrants, 0.0
    before = {each.model: each for each in summary.contenders if each.rates}
    later = sum(each.seconds for each in _costs(entrants, summary, workers.number))
    trials = _trials(entrants, {*before}, progress, workers, later)
    tried = {model: tuning.tried(trials, model) for model in entrants.models}
    if warning := tuning.unfinished(tried):
        progress.print(warning)
    updates: Mapping[str, int] = {}
    if summary.match == "time":
        updates = candidates.equal_time(
            {each.name: each.recipe for each in entrants.candidates},
            {m: t.seconds_per_update for m, t in tried.items() if t.seconds_per_update},
        )
    chosen = tuple(tuning.chosen(c, tried[c.name], updates.get(c.name)) for c in entrants.candidates)
    described = [tuning.described(each, tried[each.name]) for each in chosen]
    _check_choice(entrants.folder, before, described)
    note(entrants.folder, summary.model_copy(update={"contenders": described}))
    return replace(entrants, candidates=chosen), sum(each.seconds for each in trials.values())


def _check_choice(folder: Path, before: Mapping[str, CandidateSummary], now: Sequence[CandidateSummary]) -> None:
    """Refuse to mix measurements of a model at two learning rates or with two depths."""
    for each in now:
        old = before.get(each.model, each)
        was, chosen = ({"learning_rate": one.learning_rate} | one.settings for one in (old, each))
        if differing := [f"{k} {chosen[k]} (was {was[k]})" for k in chosen if k in was and chosen[k] != was[k]]:
            raise UserError(
                f"{each.model}: its trials now choose {', '.join(differing)}, but it was measured as it was",
                where=str(folder / CELLS / TUNING.name),
                remedy="bring the trials back as they were, or begin another comparison with --out",
            )


def _trials(
    entrants: Comparison, settled: set[str], progress: Progress, workers: AnyWorkers, later: float
) -> dict[Trial, StoredResult]:
    """Run the trials of all models that are not stored yet, and return all.

    Failed trials of models that are `settled` are not retried: their measurements depend on the choice. `later` are the
    expected seconds of all that follows.
    """
    folder = entrants.results_folder(TUNING.name)
    trials = {
        cell: one
        for cell in TUNING.cells(entrants)
        if cell.model in settled and (one := kept(folder, cell)) is not None
    }
    asked = {*trials}

    def untried(model: str = "") -> list[Trial]:
        new = [cell for cell in TUNING.cells(entrants) if cell not in asked and model in ("", cell.model)]
        asked.update(new)
        foreseen = missing(TUNING, entrants, tuning.foreseen(entrants))
        progress.expect(later + sum(expected(TUNING, entrants, cell, workers.number) for cell in foreseen))
        return new

    # what is tried next depends on what the model's trials before it were like, and on no other's
    while new := untried():
        trials |= all_kept(TUNING, entrants, new, progress, workers, untried)
    return trials
