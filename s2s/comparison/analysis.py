"""Turn the trials of a question into its result, with a reason in each cell of the table that has no estimate.

A candidate is not judged where some of its seeds failed: the other seeds may be the lucky ones.
"""

import traceback
from collections.abc import Callable, Mapping

from s2s.comparison.executor import StoredResult
from s2s.comparison.results import Failure, Result, Verdict, read_summary
from s2s.comparison.spec import MACHINE, Comparison, Experiment, Measured, Trial
from s2s.files import COMPARISON, write_atomically

CONCLUSION, TRACE = "conclusion", "conclusion.txt"
"""What a result calls a conclusion that failed, and the file among the measurements that has its trace."""


def analyse_trials(
    experiment: Experiment, comparison: Comparison, made: Mapping[Trial, StoredResult], print_fn: Callable[[str], None]
) -> Result:
    """The result of an experiment's measurements.

    Args:
        experiment: whose they are.
        comparison: the models.
        made: all of them, also those that failed.
        print_fn: shows a line.
    """
    seconds = sum(each.seconds for each in made.values())
    broken = partly_failed(made)
    # what fails always says more of a model than what fails sometimes
    by_weight = sorted(made.items(), key=lambda one: (one[0].model, one[0].part) in broken)
    reasons = {
        trial.model: broken.get((trial.model, trial.part), each.failed)
        for trial, each in reversed(by_weight)
        if each.failed
    }
    failures = [
        Failure(task=trial.key, model=trial.model, reason=each.failed) for trial, each in made.items() if each.failed
    ]
    summary = read_summary(comparison.folder / COMPARISON)
    measured: dict[Trial, Measured] = {
        trial: each.measured | {MACHINE: each.machine}
        for trial, each in made.items()
        if each.measured is not None and (trial.model, trial.part) not in broken
    }
    try:
        result = experiment.result(comparison, measured)
    except Exception as error:
        # its measurements are kept, and the other experiments are still worth making
        write_atomically(comparison.results_folder(experiment.name) / TRACE, traceback.format_exc())
        reason = f"no conclusion could be drawn: {type(error).__name__}: {error}"
        print_fn(f"{experiment.name}: FAILED: {reason}")
        failures += [Failure(task=CONCLUSION, model=model, reason=reason) for model in comparison.models]
        reasons = dict.fromkeys(comparison.models, reason)
        names, seeds = comparison.models, list(comparison.seeds)
        result = Result(
            experiment=experiment.name, question=experiment.question, method="", models=names, seeds=seeds, findings=[]
        )
    machines = [each for each in dict.fromkeys(each.machine for each in made.values()) if each]
    codes = list(dict.fromkeys(each.code for each in made.values() if each.measured is not None))
    result = result.model_copy(update={"models": summary.models, "machines": machines, "codes": codes})
    changes = {"failures": failures, "seconds": seconds}
    return _completed(result, experiment, reasons).model_copy(update=changes)


def partly_failed(made: Mapping[Trial, StoredResult]) -> dict[tuple[str, str], str]:
    """Models and parts of which some seeds failed and others did not, with the reason why they are not judged."""
    seeds: dict[tuple[str, str], list[StoredResult]] = {}
    for trial, each in made.items():
        if trial.seed is not None:
            seeds.setdefault((trial.model, trial.part), []).append(each)
    found = {}
    for key, all_of_them in seeds.items():
        failed = [each.failed for each in all_of_them if each.failed]
        if failed and len(failed) < len(all_of_them):
            left = "the others may be the lucky ones"
            found[key] = f"{len(failed)} of {len(all_of_them)} seeds failed, and {left}: {failed[0]}"
    return found


def _completed(result: Result, experiment: Experiment, reasons: Mapping[str, str]) -> Result:
    """The result with every cell of the experiment's rows: one without a finding says why there is none."""
    there = {(finding.row, finding.model) for finding in result.findings}
    missing = [
        Verdict(row=row, model=model, failed=reasons.get(model, "was not measured"))
        for row in experiment.rows
        for model in result.models
        if (row, model) not in there
    ]
    return result.model_copy(update={"findings": [*result.findings, *missing]})
