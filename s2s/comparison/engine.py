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
from s2s.comparison.analysis import CONCLUSION, TRACE, analyse_trials
from s2s.comparison.cluster import Cluster, RayWorkers, versions
from s2s.comparison.cost import Cost, disk_bytes, estimate_cost, expected_seconds, format_costs, missing_trials
from s2s.comparison.executor import Progress, StoredResult, Workers, load_result, number_for
from s2s.comparison.plans import TABLES, plan_of, settling
from s2s.comparison.results import RESULT, CandidateSummary, Summary, read_result, read_summary
from s2s.comparison.results import write as write_part
from s2s.comparison.runs import is_trained
from s2s.comparison.scheduler import AnyWorkers, run_trials
from s2s.comparison.setup import check_data, finalize_task, load_summary, load_task, save_summary
from s2s.comparison.spec import CELLS, Candidate, ComparedRecipe, Comparison, Experiment, Trial
from s2s.comparison.tasks import model_spec
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
    return {each: known[each] for name in names for each in (known[name].depends_on, name) if each}


EXPERIMENTS = all_experiments()
"""By the name that is typed after `--experiment`, in the order in which they run."""


def resume(folder: Path, console: Console, cluster: Cluster | None = None, summary: Summary | None = None) -> None:
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
    load_summary(folder)
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
        asked = summary or load_summary(folder)
        # nothing is written for what cannot be measured
        task = load_task(folder)
        candidates.entries_of(task, asked)
        check_data(folder, task)
        save_summary(folder, asked)
        _run_questions(folder, console, cluster, check)


def check_concluded(folder: Path) -> None:
    """Refuses a comparison that has measurements of which no conclusion could be drawn.

    Raises:
        UserError: it has.
    """
    for name in load_summary(folder).experiments:
        path = folder / name / RESULT
        for failure in read_result(path).failures if path.exists() else ():
            if failure.task == CONCLUSION:
                trials = folder / CELLS / name
                raise UserError(
                    f"{name}: {failure.reason}",
                    where=str(trials / TRACE),
                    remedy=f"if a file of {trials} was changed by hand, remove it and measure it again: "
                    f"s2s compare --resume {quote_path(folder)}; if none was, report this trace: it is a bug of s2s",
                )


def describe_costs(folder: Path, summary: Summary, base: "TrainRecipe | None", cluster: Cluster | None = None) -> str:
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
        recipe = load_task(folder)
    else:
        # what another comparison has measured in its folder is not this one's
        recipe, folder = finalize_task(base), folder / "not begun"
    # what was measured with other threads counts for nothing, and so many measure beside each other
    setup_process(recipe.device)
    comparison = _comparison(folder, summary, recipe)
    return _describe_costs(comparison, summary, _workers(comparison, recipe, cluster).number)


def _workers(comparison: Comparison, base: ComparedRecipe, cluster: Cluster | None) -> AnyWorkers:
    if cluster:
        return RayWorkers(comparison.folder, comparison.device_context, base.device)
    return Workers(number_for(comparison.device_context), base.device)


def _comparison(folder: Path, summary: Summary, base: ComparedRecipe) -> Comparison:
    """The comparison before rates and depths are chosen."""
    entries = candidates.entries_of(base, summary)
    planned = []
    for model, recipe in entries.items():
        own = summary.own.get(model, {})
        parameters = model_spec(recipe).parameters(recipe.model.kind, recipe.model)
        depths, settled = tuning.depths_of(recipe, own), tuning.settled(recipe, own)
        planned.append(Candidate(model, recipe, depths, parameters, settled))
    device_context = select_device(base.device)
    sized_for = summary.sized_for or device_context.device.type
    return Comparison(folder, summary.profile, tuple(planned), tuple(summary.seeds), device_context, sized_for)


def _questions(summary: Summary) -> list[Experiment]:
    return [experiment for name, experiment in EXPERIMENTS.items() if name in summary.experiments]


def _needs_choice(comparison: Comparison, summary: Summary) -> bool:
    """Return True if any trial depends on tuning: a learning rate, or a depth that the command leaves open."""
    needed = {experiment.tuning_level for experiment in _questions(summary)}
    open_depth = any(each.depths for each in comparison.candidates)
    return summary.match == "time" or "rate" in needed or ("depth" in needed and open_depth)


def _costs(comparison: Comparison, summary: Summary, processes: int) -> list[Cost]:
    """The cost of each question, and of models that only other questions look at."""
    found, needed = [], dict[str, set[tuple[str, int | None]]]()
    for one in _questions(summary):
        trials = one.trials(comparison)
        found.append(estimate_cost(one, comparison, trials, processes))
        if one.depends_on not in ("", *summary.experiments) and one.depends_on in EXPERIMENTS:
            reading = [
                trial for trial in missing_trials(one, comparison, trials) if one.depends_on_part in ("", trial.part)
            ]
            needed.setdefault(one.depends_on, set()).update((trial.model, trial.seed) for trial in reading)
    for name, wanted in needed.items():
        trains = EXPERIMENTS[name]
        runs = [run for run in trains.trials(comparison) if (run.model, run.seed) in wanted]
        new = [run for run in runs if not is_trained(comparison.folder, run.model, run.seed)]
        seconds = sum(expected_seconds(trains, comparison, run, processes) for run in new)
        found.append(Cost(f"trained models (as for {name})", len(new), len(runs) - len(new), seconds, False))
    return found


def _describe_costs(comparison: Comparison, summary: Summary, processes: int) -> str:
    trials = tuning.foreseen(comparison) if _needs_choice(comparison, summary) else []
    each = [estimate_cost(TUNING, comparison, trials, processes), *_costs(comparison, summary, processes)]
    # the models that others look at are kept as whole runs
    whole = {one.depends_on for one in EXPERIMENTS.values()} - {""}
    runs = disk_bytes(comparison) if any({one.name, one.depends_on} & whole for one in _questions(summary)) else 0
    lines = [format_costs(each, runs, processes)]
    plan = plan_of(summary.task, summary.profile)
    if beyond := plan.beyond(summary.experiments):
        lines.append(f"too short for {', '.join(beyond)}: {plan.why}; --profile {settling(beyond)} settles it")
    return "\n".join(lines)


def _run_questions(folder: Path, console: Console, cluster: Cluster | None, check: Callable[[], None]) -> None:
    summary, base = read_summary(folder / COMPARISON), load_task(folder)
    setup_process(base.device)
    untuned = _comparison(folder, summary, base)
    workers = _workers(untuned, base, cluster)
    with Progress(0.0, console, check) as progress, workers:
        progress.print(_describe_costs(untuned, summary, workers.number))
        comparison, seconds = _tune(untuned, summary, progress, workers)
        summary = read_summary(folder / COMPARISON)
        for each in summary.contenders:
            width = each.settings.get("width", "unknown")
            rate = f", learning rate {each.learning_rate:g}" if each.rates else ""
            progress.print(f"{each.model}: {each.parameters:,} parameters, width {width}{rate}")
        chosen = _questions(summary)
        by = machine(untuned.device_context, workers, any(experiment.exclusive for experiment in chosen))
        # a comparison may be gone on with elsewhere: its results say what else measured them
        first = summary.machine.get("processor", by["processor"]) == by["processor"]
        for experiment in chosen:
            progress.expect(sum(each.seconds for each in _costs(comparison, summary, workers.number)))
            made = run_trials(experiment, comparison, experiment.trials(comparison), progress, workers)
            make_folder(folder / experiment.name)
            write_part(analyse_trials(experiment, comparison, made, progress.print), folder / experiment.name / RESULT)
            # what is there so far can be drawn and kept
            seconds += sum(each.seconds for each in made.values())
            changes = {"seconds": seconds, "machine": by if first else summary.machine}
            save_summary(folder, summary.model_copy(update=changes))


def machine(device_context: DeviceContext, workers: AnyWorkers, exclusive: bool) -> dict[str, str]:
    """Describe the machine: processor, device, versions, commit, and number of processes."""
    exception = ", but one where time or memory is measured" if exclusive else ""
    return {
        "processor": processor_name(),
        "device": str(device_context),
        "processes": f"{workers}{exception}",
        "date": time.strftime("%Y-%m-%d"),
        **versions(),
    }


def _tune(
    comparison: Comparison, summary: Summary, progress: Progress, workers: AnyWorkers
) -> tuple[Comparison, float]:
    """The comparison with each model's learning rate and depth, and the seconds that choosing them took.

    As it was, where nothing that is measured depends on them.
    """
    if not _needs_choice(comparison, summary):
        if {each.model for each in summary.contenders} != {*comparison.models}:
            untried = [tuning.summarize(each, tuning.tried({}, each.name)) for each in comparison.candidates]
            save_summary(comparison.folder, summary.model_copy(update={"contenders": untried}))
        return comparison, 0.0
    before = {each.model: each for each in summary.contenders if each.rates}
    later = sum(each.seconds for each in _costs(comparison, summary, workers.number))
    trials = _run_tuning(comparison, {*before}, progress, workers, later)
    tried = {model: tuning.tried(trials, model) for model in comparison.models}
    if warning := tuning.warn_unconverged(tried):
        progress.print(warning)
    updates: Mapping[str, int] = {}
    if summary.match == "time":
        updates = candidates.equal_time(
            {each.name: each.recipe for each in comparison.candidates},
            {m: t.seconds_per_update for m, t in tried.items() if t.seconds_per_update},
        )
    chosen = tuple(tuning.tuned(c, tried[c.name], updates.get(c.name)) for c in comparison.candidates)
    described = [tuning.summarize(each, tried[each.name]) for each in chosen]
    _check_choice(comparison.folder, before, described)
    save_summary(comparison.folder, summary.model_copy(update={"contenders": described}))
    return replace(comparison, candidates=chosen), sum(each.seconds for each in trials.values())


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


def _run_tuning(
    comparison: Comparison, settled: set[str], progress: Progress, workers: AnyWorkers, later: float
) -> dict[Trial, StoredResult]:
    """Run the trials of all models that are not stored yet, and return all.

    Failed trials of models that are `settled` are not retried: their measurements depend on the choice. `later` are the
    expected seconds of all that follows.
    """
    folder = comparison.results_folder(TUNING.name)
    trials = {
        trial: one
        for trial in TUNING.trials(comparison)
        if trial.model in settled and (one := load_result(folder, trial)) is not None
    }
    asked = {*trials}

    def untried(model: str = "") -> list[Trial]:
        new = [trial for trial in TUNING.trials(comparison) if trial not in asked and model in ("", trial.model)]
        asked.update(new)
        foreseen = missing_trials(TUNING, comparison, tuning.foreseen(comparison))
        progress.expect(later + sum(expected_seconds(TUNING, comparison, trial, workers.number) for trial in foreseen))
        return new

    # what is tried next depends on what the model's trials before it were like, and on no other's
    while new := untried():
        trials |= run_trials(TUNING, comparison, new, progress, workers, untried)
    return trials
