"""`s2s doctor`: what the tests prove of the installed models, proven of one trained run on its own examples.

Each check computes the same thing in two ways. What is asked of a task stands in its contract: `read`,
`log_probabilities`, `stepped` and `rescored`; all else is the same for every task.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from s2s.data.examples import Examples
from s2s.errors import UserError
from s2s.run.doctor import gradients, keeping
from s2s.run.doctor.equalities import Patient, alone, padding, rescoring, stepping
from s2s.run.doctor.findings import Examination, Finding
from s2s.run.folder import Opened
from s2s.run.loaded import evenly, part_to_score, ready, usual_split
from s2s.run.manifest import trained_on
from s2s.run.tasks import task_of
from s2s.tasks.contract import Loaded, Say

EXAMPLES = 24
"""That are looked at together: enough for several lengths, few enough for seconds."""

CHECKS: dict[str, Callable[[str, Patient], Finding]] = {
    "stepping = teacher forcing": stepping,
    "a selected state goes on": partial(stepping, turned=True),
    "search score = rescoring": rescoring,
    "a batch = its rows": alone,
    "padding changes nothing": padding,
    "gradients = finite differences": gradients.slopes,
    "weights are finite": keeping.finite,
    "saving = loading": keeping.saving,
    "a checkpoint is the whole model": keeping.another_seed,
    "resume = never stopped": keeping.resuming,
}
"""All checks, in the order in which they are told."""


def examined(run: Opened, checkpoint: str | None, say: Say = lambda line: None) -> Examination:
    """Looks a run over, and says what takes long.

    Raises:
        UserError: the run has no checkpoint, or no examples that can be read.
    """
    loaded = ready(run, checkpoint)
    split, examples = held_out(run, loaded)
    # a long document is read through many windows
    # some may be longer than what the model knows
    fitting = np.unique(np.concatenate(examples.plan(0, 0)))
    rows = fitting[evenly(len(fitting), EXAMPLES)]
    patient = Patient(task_of(loaded.recipe), loaded, examples, rows, say)
    findings = [_finding(name, check, patient) for name, check in CHECKS.items()]
    described = f"{len(patient.rows)} examples of its {split} set"
    return Examination(str(run.path), loaded.checkpoint.name, described, _computer(loaded), findings)


def _computer(loaded: Loaded[Any, Any]) -> str:
    """What computes here and, where that is another device, on what the run was trained."""
    here, before = str(loaded.computer), trained_on(loaded.path).partition(",")[0]
    return f"{here}, trained on {before}" if before not in ("", here.partition(",")[0]) else here


def _finding(name: str, check: Callable[[str, Patient], Finding], patient: Patient) -> Finding:
    try:
        return check(name, patient)
    except UserError:
        raise
    except Exception as error:
        # a model that is broken in one way may well be shown by an error: the other checks go on
        return Finding(name, "FAIL", f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}")


def held_out(run: Opened, loaded: Loaded[Any, Any]) -> tuple[str, Examples[Any]]:
    """Some examples that the run has not learned from: of its test set, or of its validation set where it has none."""
    split = usual_split(loaded)
    part = part_to_score(run, loaded.recipe, split)
    if not len(part):
        raise UserError(f"the {split} set is empty", where=str(run.path), remedy=f"name another one: data.{split}=NAME")
    return split, task_of(loaded.recipe).read(loaded, part.select(evenly(len(part), EXAMPLES)))
