"""`s2s doctor`: what the tests prove of the installed models, proven of one trained run on its own examples.

Each check computes the same thing in two ways. What is asked of a task stands in its contract: `read`,
`log_probabilities`, `stepped` and `rescored`; all else is the same for every task.
"""

from collections.abc import Callable

import numpy as np

from s2s.data.examples import Examples
from s2s.run.doctor.equalities import Patient, equalities
from s2s.run.doctor.findings import Examination
from s2s.run.doctor.gradients import gradients
from s2s.run.doctor.keeping import keeping, resuming
from s2s.run.folder import Opened
from s2s.run.loaded import part_to_score, ready
from s2s.run.tasks import task_of
from s2s.tasks.contract import Loaded

EXAMPLES = 24
"""That are looked at together: enough for several lengths, few enough for seconds."""


def examined(run: Opened, checkpoint: str | None, told: Callable[[str], object] = lambda line: None) -> Examination:
    """Looks a run over; `told` is given each finding as soon as it is there.

    Raises:
        UserError: the run has no checkpoint, or no examples that can be read.
    """
    loaded = ready(run, checkpoint)
    task = task_of(loaded.recipe)
    split, examples = held_out(run, loaded)
    patient = Patient(task, loaded, examples, np.arange(len(examples)))
    described = f"{len(examples)} examples of its {split} set"
    findings = []

    def steps():
        yield from equalities(patient)
        yield gradients(patient)
        yield from keeping(patient)
        yield resuming(run.path, loaded.recipe, task)

    for finding in steps():
        findings.append(finding)
        told(str(finding))
    return Examination(str(run.path), loaded.checkpoint.name, described, str(loaded.computer), findings)


def held_out(run: Opened, loaded: Loaded) -> tuple[str, Examples]:
    """Some examples that the run has not learned from: of its test set, or of its validation set where it has none."""
    split = "test" if loaded.recipe.data.test is not None else "validation"
    part = part_to_score(run, loaded.recipe, split)
    # evenly taken: a corpus may be sorted
    rows = np.unique(np.linspace(0, len(part) - 1, EXAMPLES).astype(int)) if len(part) else np.arange(0)
    return split, task_of(loaded.recipe).read(loaded, part.select(rows))
