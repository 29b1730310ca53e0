"""Run a comparison: tune each candidate, run the trials of each question, and analyse them.

A comparison has one folder:

    recipe.yaml                 the task
    comparison.json             the plan and the candidates (`Summary`)
    cells/<question>/*.json     one file per trial
    cells/tuning/*.json         trials that choose learning rates and depths
    runs/                       full training runs of candidates
    <question>/result.json      verdicts, figures and tables (`Result`)
    report.html                 the report, drawn from the results
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
from s2s.comparison.candidate_names import kind_of
from s2s.comparison.cluster import Cluster, RayWorkers, versions
from s2s.comparison.cost import Cost, disk_bytes, expected_seconds, format_costs
from s2s.comparison.executor import (
    AnyWorkers,
    StoredResult,
    load_result,
    missing_trials,
    observed_pace,
    run_questions,
    run_trials,
)
from s2s.comparison.plans import TABLES, plan_of, settling
from s2s.comparison.progress import Progress
from s2s.comparison.results import RESULT, CandidateSummary, Summary, read_result, read_summary
from s2s.comparison.results import write as write_part
from s2s.comparison.runs import is_trained
from s2s.comparison.setup import check_data, finalize_task, load_summary, load_task, save_summary
from s2s.comparison.spec import CELLS, Candidate, ComparedRecipe, Comparison, Experiment, Trial
from s2s.comparison.tasks import model_spec
from s2s.comparison.tuning import TUNING
from s2s.comparison.workers import Workers, number_for
from s2s.errors import UserError, quote_path
from s2s.files import COMPARISON, check_unlinked, make_folder, remove_unfinished
from s2s.run.folder import MEASURED, run_lock
from s2s.run.manifest import code_version, processor_name
from s2s.training.device import DeviceContext, select_device, setup_process
from s2s.training.shutdown import interrupt_immediately, print_resume_hint_on_exit

if TYPE_CHECKING:
    from s2s.recipe.schema import TrainRecipe


def all_experiments() -> dict[str, Experiment]:
    """Return all questions in the order of the tables; a question follows the one that it depends on."""
    names = dict.fromkeys(row.experiment for table in TABLES.values() for row in table.values())
    modules = {name: f"s2s.comparison.questions.{name.replace('-', '_')}.measure" for name in names}
    known = {name: import_module(module).EXPERIMENT for name, module in modules.items()}
    return {each: known[each] for name in names for each in (known[name].depends_on, name) if each}


EXPERIMENTS = all_experiments()
"""Questions by name, in the order in which they run."""


def resume(folder: Path, console: Console, cluster: Cluster | None = None, summary: Summary | None = None) -> None:
    """Run the missing trials of a comparison, and analyse each question.

    Args:
        folder: Folder that `s2s.comparison.setup.create` made.
        cluster: Connected Ray cluster; None runs trials in processes of this machine.
        summary: New plan of an extended comparison; None keeps the plan.

    Raises:
        UserError: The folder has no comparison, its task or data changed, a new model cannot be compared, or the
            nodes of the cluster do not fit.
    """
    load_summary(folder)
    code_version()
    command = ["s2s", "compare", "--resume", str(folder), *(["--cluster", cluster.address] if cluster else [])]
    status = "stopped; every finished trial is saved"
    with (
        print_resume_hint_on_exit(folder, command, lambda: status),
        interrupt_immediately() as check,
        run_lock(folder, MEASURED),
    ):
        check_unlinked(folder)
        remove_unfinished(folder)
        summary = summary or load_summary(folder)
        # All checks come before the first write.
        task = load_task(folder)
        candidates.entries_of(task, summary)
        check_data(folder, task)
        save_summary(folder, summary)
        _run_questions(folder, console, cluster, check)


def _run_questions(folder: Path, console: Console, cluster: Cluster | None, check: Callable[[], None]) -> None:
    summary, task = read_summary(folder / COMPARISON), load_task(folder)
    setup_process(task.device)
    untuned = _comparison(folder, summary, task)
    workers = _workers(untuned, task, cluster)
    with Progress(0.0, console, check) as progress, workers:
        progress.print(_describe_costs(untuned, summary, workers.number))

        # 1. Choose the learning rate and the depth of each candidate.
        comparison, seconds = _tune(untuned, summary, progress, workers)
        summary = read_summary(folder / COMPARISON)
        for each in summary.contenders:
            width = each.settings.get("width", "unknown")
            rate = f", learning rate {each.learning_rate:g}" if each.rates else ""
            progress.print(f"{each.model}: {each.parameters:,} parameters, width {width}{rate}")
        questions = _questions(summary)
        here = machine(untuned.device_context, workers, any(question.exclusive for question in questions))
        # The summary has the first machine; each result has the machines that ran its trials.
        if summary.machine.get("processor", here["processor"]) == here["processor"]:
            summary = summary.model_copy(update={"machine": here})

        # 2. Run the missing trials of each question, and analyse all of them.
        def analyse(question: Experiment, results: Mapping[Trial, StoredResult]) -> None:
            nonlocal seconds
            make_folder(folder / question.name)
            result = analyse_trials(question, comparison, results, progress.print)
            write_part(result, folder / question.name / RESULT)
            # Save after each question, so that a report of the finished ones can be drawn.
            seconds += sum(each.seconds for each in results.values())
            save_summary(folder, summary.model_copy(update={"seconds": seconds}))

        for group in group_questions(questions):
            progress.expect(sum(cost.seconds for cost in _costs(comparison, summary, workers.number)))
            trials = [(question, question.trials(comparison)) for question in group]
            run_questions(trials, comparison, progress, workers, analyse)


def group_questions(questions: Sequence[Experiment]) -> list[list[Experiment]]:
    """Group consecutive questions whose trials can run in parallel.

    An exclusive question is a separate group. A question that uses trained models comes after the question that trains
    them. If the latter is not selected, only one question of a group may train these models.
    """
    names = {question.name for question in questions}

    def conflict(one: Experiment, other: Experiment) -> bool:
        same_source = one.depends_on == other.depends_on != "" and one.depends_on not in names
        return one.exclusive or other.exclusive or other.depends_on == one.name or same_source

    groups: list[list[Experiment]] = []
    for question in questions:
        if groups and not any(conflict(each, question) for each in groups[-1]):
            groups[-1].append(question)
        else:
            groups.append([question])
    return groups


def reanalyse(folder: Path) -> None:
    """Analyse the stored trials of a comparison again, without measuring, and write each `result.json`.

    Args:
        folder: Folder of the comparison, with its trials; missing ones stay missing.

    Raises:
        UserError: The folder has no comparison, or an analysis failed.
    """
    summary, task = load_summary(folder), load_task(folder)
    comparison = _comparison(folder, summary, task)
    for question in _questions(summary):
        stored = {
            trial: each
            for trial in question.trials(comparison)
            if (each := load_result(comparison.results_folder(question.name), trial))
        }
        if stored:
            make_folder(folder / question.name)
            write_part(analyse_trials(question, comparison, stored, print), folder / question.name / RESULT)
    check_concluded(folder)


def check_concluded(folder: Path) -> None:
    """Check that the analysis of every question succeeded.

    Raises:
        UserError: An analysis failed, although trials succeeded.
    """
    for name in load_summary(folder).experiments:
        path = folder / name / RESULT
        for failure in read_result(path).failures if path.exists() else ():
            if failure.task == CONCLUSION:
                trials = folder / CELLS / name
                raise UserError(
                    f"{name}: {failure.reason}",
                    where=str(trials / TRACE),
                    remedy=f"if you changed a file of {trials}, remove it and measure it again: "
                    f"s2s compare --resume {quote_path(folder)}; otherwise this is a bug of s2s: report this trace",
                )


def describe_costs(folder: Path, summary: Summary, base: "TrainRecipe | None", cluster: Cluster | None = None) -> str:
    """Describe the missing trials of a comparison, without starting it.

    Args:
        base: Recipe of the task of a new comparison; None for a comparison in the folder.

    Returns:
        Number of trials and estimated time of each question, one per line.

    Raises:
        UserError: A model cannot be compared.
    """
    if base is None:
        recipe = load_task(folder)
    else:
        # A new comparison has no stored results, even if the folder has some of another one.
        recipe, folder = finalize_task(base), folder / "not begun"
    # The thread count decides which results are comparable, and how many trials run at the same time.
    setup_process(recipe.device)
    comparison = _comparison(folder, summary, recipe)
    return _describe_costs(comparison, summary, _workers(comparison, recipe, cluster).number)


def machine(device_context: DeviceContext, workers: AnyWorkers, exclusive: bool) -> dict[str, str]:
    """Describe the machine: processor, device, versions, commit, and number of processes."""
    exception = ", but 1 for measurements of time or memory" if exclusive else ""
    return {
        "processor": processor_name(),
        "device": str(device_context),
        "processes": f"{workers}{exception}",
        "date": time.strftime("%Y-%m-%d"),
        **versions(),
    }


def _workers(comparison: Comparison, task: ComparedRecipe, cluster: Cluster | None) -> AnyWorkers:
    if cluster:
        return RayWorkers(comparison.folder, comparison.device_context, task.device)
    return Workers(number_for(comparison.device_context), task.device)


def _comparison(folder: Path, summary: Summary, task: ComparedRecipe) -> Comparison:
    """Return the comparison before tuning."""
    planned = []
    for model, recipe in candidates.entries_of(task, summary).items():
        own = summary.own.get(model, {})
        parameters = model_spec(recipe).parameters(recipe.model.kind, recipe.model)
        depths, settled = tuning.depths_of(recipe, own), tuning.settled(recipe, own)
        planned.append(Candidate(model, recipe, depths, parameters, settled))
    device_context = select_device(task.device)
    sized_for = summary.sized_for or device_context.device.type
    comparison = Comparison(folder, summary.profile, tuple(planned), tuple(summary.seeds), device_context, sized_for)
    trials = [(question, question.trials(comparison)) for question in _questions(summary)]
    trials.append((TUNING, tuning.foreseen(comparison)))
    return replace(comparison, paces={each.name: observed_pace(each, comparison, own) for each, own in trials})


def _questions(summary: Summary) -> list[Experiment]:
    return [question for name, question in EXPERIMENTS.items() if name in summary.experiments]


def _needs_tuning(comparison: Comparison, summary: Summary) -> bool:
    """Return True if any trial depends on a learning rate, or on a depth that the command does not set."""
    open_depth = any(candidate.depths for candidate in comparison.candidates)
    return _needs_rates(summary) or (open_depth and any(each.tuning_level == "depth" for each in _questions(summary)))


def _needs_rates(summary: Summary) -> bool:
    """Return True if any trial depends on a learning rate."""
    return summary.match == "time" or any(question.tuning_level == "rate" for question in _questions(summary))


def _cost(question: Experiment, comparison: Comparison, trials: Sequence[Trial], processes: int) -> Cost:
    new = missing_trials(question, comparison, trials)
    seconds = sum(expected_seconds(question, comparison, trial, processes) for trial in new)
    return Cost(question.name, len(new), len(trials) - len(new), seconds, question.exclusive)


def _costs(comparison: Comparison, summary: Summary, processes: int) -> list[Cost]:
    """Estimate the cost of each question, and of trained models that only other questions need."""
    costs, needed = [], dict[str, set[tuple[str, int | None]]]()
    for question in _questions(summary):
        trials = question.trials(comparison)
        costs.append(_cost(question, comparison, trials, processes))
        if question.depends_on and question.depends_on not in summary.experiments:
            new = missing_trials(question, comparison, trials)
            needed.setdefault(question.depends_on, set()).update(
                (trial.model, trial.seed) for trial in new if question.depends_on_part in ("", trial.part)
            )
    for name, wanted in needed.items():
        if (question := EXPERIMENTS.get(name)) is None:
            continue
        runs = [trial for trial in question.trials(comparison) if (trial.model, trial.seed) in wanted]
        new = [trial for trial in runs if not is_trained(comparison.folder, trial.model, trial.seed)]
        seconds = sum(expected_seconds(question, comparison, trial, processes) for trial in new)
        costs.append(Cost(f"trained models (as for {name})", len(new), len(runs) - len(new), seconds, False))
    return costs


def _describe_costs(comparison: Comparison, summary: Summary, processes: int) -> str:
    trials = tuning.foreseen(comparison) if _needs_tuning(comparison, summary) else []
    costs = [_cost(TUNING, comparison, trials, processes), *_costs(comparison, summary, processes)]
    # Trained models that a question depends on stay on disk.
    kept = {question.depends_on for question in EXPERIMENTS.values()} - {""}
    keeps = any({question.name, question.depends_on} & kept for question in _questions(summary))
    lines = [format_costs(costs, disk_bytes(comparison) if keeps else 0, processes)]
    if trials and not _needs_rates(summary):
        depths = {kind_of(each.name): each.depths[0] for each in comparison.candidates if each.depths}
        layers = " ".join(f"{kind}.encoder_layers={depth}" for kind, depth in depths.items())
        lines.append(f"tuning selects the number of layers; to skip it, set: {layers}")
    plan = plan_of(summary.task, summary.profile)
    if beyond := plan.beyond(summary.experiments):
        lines.append(f"profile too short for {', '.join(beyond)}: {plan.why}; use --profile {settling(beyond)}")
    return "\n".join(lines)


def _tune(
    comparison: Comparison, summary: Summary, progress: Progress, workers: AnyWorkers
) -> tuple[Comparison, float]:
    """Return the comparison with tuned candidates, and the seconds that tuning took.

    Nothing is tuned if no trial depends on it.
    """
    if not _needs_tuning(comparison, summary):
        if {each.model for each in summary.contenders} != {*comparison.models}:
            untried = [tuning.summarize(each, tuning.tried({}, each.name)) for each in comparison.candidates]
            save_summary(comparison.folder, summary.model_copy(update={"contenders": untried}))
        return comparison, 0.0
    before = {each.model: each for each in summary.contenders if each.rates}
    later = sum(cost.seconds for cost in _costs(comparison, summary, workers.number))
    results = _run_tuning(comparison, {*before}, progress, workers, later)
    tried = {model: tuning.tried(results, model) for model in comparison.models}
    if warning := tuning.warn_unconverged(tried):
        progress.print(warning)
    updates: Mapping[str, int] = {}
    if summary.match == "time":
        recipes = {candidate.name: candidate.recipe for candidate in comparison.candidates}
        paces = {model: each.seconds_per_update for model, each in tried.items() if each.seconds_per_update}
        updates = candidates.equal_time(recipes, paces)
    tuned = tuple(tuning.tuned(c, tried[c.name], updates.get(c.name)) for c in comparison.candidates)
    summaries = [tuning.summarize(candidate, tried[candidate.name]) for candidate in tuned]
    _check_choice(comparison.folder, before, summaries)
    save_summary(comparison.folder, summary.model_copy(update={"contenders": summaries}))
    return replace(comparison, candidates=tuned), sum(each.seconds for each in results.values())


def _check_choice(folder: Path, before: Mapping[str, CandidateSummary], now: Sequence[CandidateSummary]) -> None:
    """Refuse to mix trials of a model with different learning rates or depths."""
    for each in now:
        old = before.get(each.model, each)
        was, chosen = ({"learning_rate": one.learning_rate} | one.settings for one in (old, each))
        if differing := [f"{k} {chosen[k]} (was {was[k]})" for k in chosen if k in was and chosen[k] != was[k]]:
            raise UserError(
                f"{each.model}: the tuning trials now select {', '.join(differing)}, but it was measured before",
                where=str(folder / CELLS / TUNING.name),
                remedy="restore the trials, or start another comparison with --out",
            )


def _run_tuning(
    comparison: Comparison, settled: set[str], progress: Progress, workers: AnyWorkers, later: float
) -> dict[Trial, StoredResult]:
    """Return the tuning trials of all models, running those that are not stored yet.

    Args:
        settled: Models that were measured already; their failed trials are not retried.
        later: Expected seconds of everything that follows tuning.
    """
    folder = comparison.results_folder(TUNING.name)
    stored = {trial: load_result(folder, trial) for trial in TUNING.trials(comparison) if trial.model in settled}
    results = {trial: result for trial, result in stored.items() if result is not None}
    asked = {*results}

    def untried(model: str = "") -> list[Trial]:
        new = [trial for trial in TUNING.trials(comparison) if trial not in asked and model in ("", trial.model)]
        asked.update(new)
        foreseen = missing_trials(TUNING, comparison, tuning.foreseen(comparison))
        progress.expect(later + sum(expected_seconds(TUNING, comparison, trial, workers.number) for trial in foreseen))
        return new

    # The next trials of a model depend on its own earlier ones, and on no other model's.
    while new := untried():
        results |= run_trials(TUNING, comparison, new, progress, workers, untried)
    return results
