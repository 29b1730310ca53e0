"""What an experiment's measurements come to: its result, with a reason in each cell of the table that has no finding.

A model of which some seeds failed is not judged by those that are left: what diverges with two seeds of five might be
better than what never does, by the three that went well.
"""

import traceback
from collections.abc import Callable, Mapping

from s2s.experiments.contest import (
    MACHINE,
    Cell,
    Contest,
    Experiment,
    Measured,
)
from s2s.experiments.running import Kept
from s2s.files import COMPARISON, write_atomically
from s2s.results import Failure, Result, Verdict, read_summary

CONCLUSION, TRACE = "conclusion", "conclusion.txt"
"""What a result calls a conclusion that failed, and the file among the measurements that has its trace."""


def concluded(
    experiment: Experiment, contest: Contest, made: Mapping[Cell, Kept], print_fn: Callable[[str], None]
) -> Result:
    """The result of an experiment's measurements.

    Args:
        experiment: whose they are.
        contest: the models.
        made: all of them, also those that failed.
        print_fn: shows a line.
    """
    seconds = sum(each.seconds for each in made.values())
    broken = incomplete(made)
    # what fails always says more of a model than what fails sometimes
    by_weight = sorted(made.items(), key=lambda one: (one[0].model, one[0].part) in broken)
    reasons = {
        cell.model: broken.get((cell.model, cell.part), each.failed)
        for cell, each in reversed(by_weight)
        if each.failed
    }
    failures = [
        Failure(task=cell.key, model=cell.model, reason=each.failed) for cell, each in made.items() if each.failed
    ]
    summary = read_summary(contest.folder / COMPARISON)
    measured: dict[Cell, Measured] = {
        cell: each.measured | {MACHINE: each.machine}
        for cell, each in made.items()
        if each.measured is not None and (cell.model, cell.part) not in broken
    }
    try:
        result = experiment.result(contest, measured)
    except Exception as error:
        # its measurements are kept, and the other experiments are still worth making
        write_atomically(contest.cells_of(experiment.name) / TRACE, traceback.format_exc())
        reason = f"no conclusion could be drawn: {type(error).__name__}: {error}"
        print_fn(f"{experiment.name}: FAILED: {reason}")
        failures += [Failure(task=CONCLUSION, model=model, reason=reason) for model in contest.models]
        reasons = dict.fromkeys(contest.models, reason)
        names, seeds = contest.models, list(contest.seeds)
        result = Result(
            experiment=experiment.name, question=experiment.question, method="", models=names, seeds=seeds, findings=[]
        )
    machines = [each for each in dict.fromkeys(each.machine for each in made.values()) if each]
    codes = list(dict.fromkeys(each.code for each in made.values() if each.measured is not None))
    result = result.model_copy(update={"models": summary.models, "machines": machines, "codes": codes})
    changes = {"failures": failures, "seconds": seconds}
    return _completed(result, experiment, reasons).model_copy(update=changes)


def incomplete(made: Mapping[Cell, Kept]) -> dict[tuple[str, str], str]:
    """Models and parts of which some seeds failed and others did not, with the reason why they are not judged."""
    seeds: dict[tuple[str, str], list[Kept]] = {}
    for cell, each in made.items():
        if cell.seed is not None:
            seeds.setdefault((cell.model, cell.part), []).append(each)
    found = {}
    for key, all_of_them in seeds.items():
        failed = [each.failed for each in all_of_them if each.failed]
        if failed and len(failed) < len(all_of_them):
            left = "the others may be the lucky ones"
            found[key] = f"{len(failed)} of {len(all_of_them)} seeds failed, and {left}: {failed[0]}"
    return found


def _completed(result: Result, experiment: Experiment, reasons: Mapping[str, str]) -> Result:
    """The result with every cell of the experiment's rows: one without a finding says why there is none.

    Args:
        result: with the findings.
        experiment: whose rows.
        reasons: why a model has none, by its name.
    """
    there = {(finding.row, finding.model) for finding in result.findings}
    missing = [
        Verdict(row=row, model=model, failed=reasons.get(model, "was not measured"))
        for row in experiment.rows
        for model in result.models
        if (row, model) not in there
    ]
    return result.model_copy(update={"findings": [*result.findings, *missing]})
