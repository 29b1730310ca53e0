"""Two ways of computing the same: whatever is fed at once, alone, in a batch or beside padding, the same comes out.

All are computed in fp32, where the order of a sum changes its last digits. How much is allowed grows with what is
summed: scores of size s that went through layers of sums differ by some roundings of s, each 2⁻²³ of it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from s2s.data.examples import Examples
from s2s.run.doctor.findings import Finding, held, not_applicable
from s2s.tasks.contract import Loaded, Task

EPSILON = 2.0**-23
"""Of fp32: the next number after 1 is so much larger."""
ROUNDINGS = 64
"""Roundings that are allowed: the installed models were measured to need ten or fewer, and faults make thousands."""
_COLUMNS = 7


@dataclass(frozen=True)
class Patient:
    """A trained model and some of the examples that it has not learned from, in one batch of several lengths."""

    task: Task[Any, Any, Any]
    run: Loaded[Any, Any]
    examples: Examples[Any]
    rows: np.ndarray

    def batch(self, rows: np.ndarray) -> Any:
        """Examples by their rows, on the model's device."""
        return self.examples.collate(rows, 0).to(self.run.computer.device)

    def answers(self, batch: Any) -> Tensor:
        """Log probabilities of the batch's items; where the task has none, the loss."""
        found = self.task.log_probabilities(self.run.model, batch)
        return self.task.loss(self.run.recipe)(self.run.model, batch)[1].view(1, 1) if found is None else found

    def told(self, answers: Tensor) -> str:
        """What the answers are, with their number."""
        return f"{answers.numel():,} log-probabilities" if answers.numel() > 1 else "the loss"


@torch.no_grad()
def equalities(patient: Patient) -> Iterator[Finding]:
    """All of them, one after the other."""
    patient.run.model.eval()
    whole = patient.batch(patient.rows)
    answers = patient.answers(whole)
    yield _stepping(patient, whole, answers, turned=False)
    yield _stepping(patient, whole, answers, turned=True)
    yield _rescoring(patient, whole, answers)
    yield _alone(patient, answers)
    yield _padding(patient, whole, answers)


def apart(one: Tensor, other: Tensor) -> float:
    """The largest difference; not a number where one is none, or where they have not the same shape."""
    if one.shape != other.shape:
        return float("nan")
    difference = (one.double() - other.double()).abs()
    # both may say that something is impossible
    return float(torch.where(one == other, 0.0, difference).max()) if one.numel() else 0.0


def allowed(answers: Tensor, terms: int = 1) -> tuple[float, str]:
    """The tolerance for sums of so many of these numbers, and its reason."""
    finite = answers[answers.isfinite()]
    size = float(finite.abs().max()) if finite.numel() else 1.0
    # errors of either sign add up as a random walk does
    tolerance = ROUNDINGS * EPSILON * max(1.0, size) * math.sqrt(terms)
    sums = f" × √{terms}, of so many summed" if terms > 1 else ""
    return tolerance, f"allowed: {ROUNDINGS} roundings of fp32 (2⁻²³ each) of the largest number, {size:.3g}{sums}"


def _stepping(patient: Patient, whole: Any, answers: Tensor, turned: bool) -> Finding:
    name = "a selected state goes on" if turned else "stepping = teacher forcing"
    found = patient.task.stepped(patient.run.model, whole, turned)
    if found is None:
        return not_applicable(name, "nothing is written piece by piece")
    how = "piece by piece, rows exchanged before each" if turned else "piece by piece, and the target at once"
    return held(name, f"{patient.told(answers)}, {how}", apart(found, answers), *allowed(answers))


def _rescoring(patient: Patient, whole: Any, answers: Tensor) -> Finding:
    name = "search score = rescoring"
    found = patient.task.rescored(patient.run, whole)
    if found is None:
        return not_applicable(name, "nothing is searched for")
    said = f"log-probabilities of {len(found.reported)} hypotheses, as searched and by teacher forcing"
    return held(name, said, apart(found.reported, found.again), *allowed(answers, found.longest))


def _alone(patient: Patient, answers: Tensor) -> Finding:
    each = [patient.answers(patient.batch(patient.rows[i : i + 1])) for i in range(len(patient.rows))]
    alone = torch.cat(each)
    if alone.shape[0] != answers.shape[0]:
        # of a task that chooses nothing there is one loss for the batch
        alone = alone.sum(dim=0, keepdim=True)
    said = f"{patient.told(answers)} of {len(each)} examples together, and one by one"
    return held("a batch = its rows", said, apart(alone, answers), *allowed(answers))


def _padding(patient: Patient, whole: Any, answers: Tensor) -> Finding:
    name = "padding changes nothing"
    if whole.padded(1) is None:
        return not_applicable(name, "all examples have the same positions: there is no padding")
    columns = min(_COLUMNS, _room(patient.run.model, whole))
    if columns < 1:
        return not_applicable(name, "the batch already has all positions that the model knows")
    said = f"{patient.told(answers)}, without and with {columns} more columns of padding"
    padded = patient.answers(whole.padded(columns))
    return held(name, said, apart(padded, answers), *allowed(answers))


def _room(model: torch.nn.Module, batch: Any) -> int:
    """How many more positions the model knows than the batch has."""
    known = [getattr(module, "longest", None) for module in model.modules()]
    limits = [longest for longest in known if isinstance(longest, int)]
    widths = [value.shape[1] for value in vars(batch).values() if isinstance(value, Tensor) and value.dim() == 2]
    return min(limits, default=10**9) - max(widths, default=0)
