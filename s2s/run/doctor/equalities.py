"""Two ways of computing the same: whatever is fed at once, alone, in a batch or beside padding, the same comes out.

All are computed in fp32, where the order of a sum changes its last digits. How much is allowed grows with what is
summed: scores of size s that went through layers of sums differ by some roundings of s, each 2⁻²³ of it.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from s2s.data.examples import Collated, Examples
from s2s.run.doctor.findings import Finding, held, not_applicable
from s2s.tasks.contract import Loaded, Say, Task

EPSILON = 2.0**-23
"""Of fp32: the next number after 1 is so much larger."""
ROUNDINGS = 64
"""Roundings that are allowed: five runs of four kinds of models were measured to need three or fewer."""
_COLUMNS = 7


@dataclass(frozen=True)
class Patient:
    """A trained model and some of the examples that it has not learned from, in one batch of several lengths."""

    task: Task[Any, Any, Any]
    run: Loaded[Any, Any]
    examples: Examples[Any]
    rows: np.ndarray
    say: Say = lambda line: None

    @cached_property
    def whole(self) -> Collated:
        """All of the examples."""
        return self.batch(self.rows)

    @cached_property
    def right(self) -> Tensor:
        """The answers to all of them: what everything else is held against."""
        return self.answers(self.whole)

    def batch(self, rows: np.ndarray) -> Collated:
        """Examples by their rows, on the model's device."""
        return self.examples.collate(rows, 0).to(self.run.computer.device)

    @torch.no_grad()
    def answers(self, batch: Collated) -> Tensor:
        """Log probabilities of the batch's items; where the task has none, the loss."""
        found = self.task.log_probabilities(self.run.model, batch)
        return self.task.loss(self.run.recipe)(self.run.model, batch)[1].view(1, 1) if found is None else found

    def told(self, answers: Tensor) -> str:
        """What the answers are, with their number."""
        return f"{answers.numel():,} log-probabilities" if answers.numel() > 1 else "the loss"


def apart(one: Tensor, other: Tensor) -> float:
    """The largest difference; not a number where one is none, or where they have not the same shape."""
    if one.shape != other.shape:
        return float("nan")
    difference = (one.cpu().double() - other.cpu().double()).abs()
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


@torch.no_grad()
def stepping(name: str, patient: Patient, turned: bool = False) -> Finding:
    """Piece by piece against all at once; rows exchanged before each step where they are to be turned round."""
    found = patient.task.stepped(patient.run.model, patient.whole, turned)
    if found is None:
        return not_applicable(name, "nothing is written piece by piece")
    how = "fed piece by piece, rows exchanged before each" if turned else "fed piece by piece"
    return held(
        name,
        f"{patient.told(found)}: {how}, and all at once",
        apart(found, patient.right),
        *allowed(patient.right),
    )


@torch.no_grad()
def rescoring(name: str, patient: Patient) -> Finding:
    """What a search reports against feeding what it found."""
    found = patient.task.rescored(patient.run, patient.whole)
    if found is None:
        return not_applicable(name, "nothing is searched for")
    said = f"log-probabilities of {len(found.reported)} hypotheses: as searched, and by teacher forcing"
    return held(name, said, apart(found.reported, found.again), *allowed(patient.right, found.longest))


def alone(name: str, patient: Patient) -> Finding:
    """A batch against its examples one by one."""
    each = [patient.answers(patient.batch(patient.rows[i : i + 1])) for i in range(len(patient.rows))]
    found, right = torch.cat(each), patient.right
    if len(found) != len(right):
        # of a task that chooses nothing there is one loss for the batch
        found = found.sum(dim=0, keepdim=True)
    said = f"{patient.told(right)} of {len(each)} examples: together, and one by one"
    return held(name, said, apart(found, right), *allowed(right))


def padding(name: str, patient: Patient) -> Finding:
    """Without and with more columns of padding."""
    whole, right = patient.whole, patient.right
    columns = min(_COLUMNS, _room(patient.run.model, whole))
    wider = whole.padded(max(1, columns))
    if wider is None:
        return not_applicable(name, "its batches have no padding")
    if columns < 1:
        return not_applicable(name, "the batch already has all positions that the model knows")
    said = f"{patient.told(right)}: without, and with {columns} more columns of padding"
    return held(name, said, apart(patient.answers(wider), right), *allowed(right))


def _room(model: torch.nn.Module, batch: Collated) -> int:
    """How many more positions the model knows than the batch has."""
    known = [getattr(module, "longest", None) for module in model.modules()]
    limits = [longest for longest in known if isinstance(longest, int)]
    widths = [value.shape[1] for value in vars(batch).values() if isinstance(value, Tensor) and value.dim() == 2]
    return min(limits, default=10**9) - max(widths, default=0)
