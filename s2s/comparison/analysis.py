"""Turn the trials of a question into its result, with a reason in each cell of the table that has no estimate."""

import traceback
from collections.abc import Callable, Mapping

from s2s.comparison.executor import StoredResult
from s2s.comparison.results import Failure, Result, Verdict, read_summary
from s2s.comparison.spec import MACHINE, Comparison, Experiment, Trial
from s2s.files import COMPARISON, write_atomically

CONCLUSION, TRACE = "conclusion", "conclusion.txt"
"""Name of a failed analysis in `Result.failures`, and the file of its traceback in the question's trials."""


def analyse_trials(
    experiment: Experiment,
    comparison: Comparison,
    results: Mapping[Trial, StoredResult],
    print_fn: Callable[[str], None],
) -> Result:
    """Analyse the trials of a question.

    A candidate gets no verdict if some of its seeds failed: the others are a biased sample. A failed analysis is
    recorded in the result, because the trials are kept and other questions can still be measured.

    Args:
        results: All trials, including failed ones.
        print_fn: Prints a line.

    Returns:
        The result, with a verdict or a reason in each cell of the question's rows.
    """
    broken = partly_failed(results)
    failed = {trial: each for trial, each in results.items() if each.failed}
    # The reason of a cell: a part that always fails says more about a model than one that fails for some seeds.
    reasons: dict[str, str] = {}
    inapplicable: set[str] = set()
    for trial in sorted(failed, key=lambda trial: (trial.model, trial.part) in broken):
        if trial.model not in reasons:
            reasons[trial.model] = broken.get((trial.model, trial.part), failed[trial].failed)
            inapplicable |= set() if failed[trial].applicable else {trial.model}
    failures = [
        Failure(task=trial.key, model=trial.model, reason=each.failed, applicable=each.applicable)
        for trial, each in failed.items()
    ]
    measured = {
        trial: each.measured | {MACHINE: each.machine}
        for trial, each in results.items()
        if each.measured is not None and (trial.model, trial.part) not in broken
    }
    try:
        result = experiment.result(comparison, measured)
    except Exception as error:
        write_atomically(comparison.results_folder(experiment.name) / TRACE, traceback.format_exc())
        reason = f"the analysis failed: {type(error).__name__}: {error}"
        print_fn(f"{experiment.name}: FAILED: {reason}")
        failures += [Failure(task=CONCLUSION, model=model, reason=reason) for model in comparison.models]
        reasons, inapplicable = dict.fromkeys(comparison.models, reason), set()
        result = Result(
            experiment=experiment.name,
            question=experiment.question,
            method="",
            models=comparison.models,
            seeds=list(comparison.seeds),
            findings=[],
        )
    models = read_summary(comparison.folder / COMPARISON).models
    there = {(verdict.row, verdict.model) for verdict in result.findings}
    missing = [
        Verdict(
            row=row,
            model=model,
            standing="not applicable" if model in inapplicable else "",
            failed=reasons.get(model, "not measured"),
        )
        for row in experiment.rows
        for model in models
        if (row, model) not in there
    ]
    return result.model_copy(
        update={
            "models": models,
            "findings": [*result.findings, *missing],
            "machines": list(dict.fromkeys(each.machine for each in results.values() if each.machine)),
            "codes": list(dict.fromkeys(each.code for each in results.values() if each.code and not each.failed)),
            "failures": failures,
            "seconds": sum(each.seconds for each in results.values()),
        }
    )


def partly_failed(results: Mapping[Trial, StoredResult]) -> dict[tuple[str, str], str]:
    """Return the reason for no verdict by model and part, if some seeds failed and others did not."""
    seeds: dict[tuple[str, str], list[StoredResult]] = {}
    for trial, each in results.items():
        if trial.seed is not None:
            seeds.setdefault((trial.model, trial.part), []).append(each)
    found = {}
    for key, of_seeds in seeds.items():
        failed = [each.failed for each in of_seeds if each.failed]
        if failed and len(failed) < len(of_seeds):
            found[key] = f"{len(failed)} of {len(of_seeds)} seeds failed, so the others are biased: {failed[0]}"
    return found
