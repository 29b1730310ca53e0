"""What `s2s doctor` says: one finding for each equality, with its number and the tolerance that it is held against."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

Status = Literal["pass", "FAIL", "does not apply"]
_NAME, _NUMBER = 32, 9


@dataclass(frozen=True)
class Finding:
    """One thing that must be true of a run.

    Attributes:
        name: what must be true, in a few words.
        status: whether it is.
        computed: what was computed; where the check does not apply, why.
        number: what came out; None where nothing was computed.
        tolerance: the largest number that passes; 0 where bits must be equal.
        reason: why that much is allowed.
    """

    name: str
    status: Status
    computed: str
    number: float | None = None
    tolerance: float | None = None
    reason: str = ""

    def __str__(self) -> str:
        if self.number is None or self.tolerance is None:
            mark = self.status if self.status == "FAIL" else "–"
            said = self.computed if self.status == "FAIL" else f"{self.status}: {self.computed}"
            return f"  {mark:4}  {self.name:{_NAME}}  {said}"
        sign = "≤" if self.number <= self.tolerance else ">"
        held = f"{self.number:{_NUMBER}.2g} {sign} {self.tolerance:.2g}"
        return "\n        ".join([f"  {self.status:4}  {self.name:{_NAME}}  {held}", self.computed, self.reason])


def held(name: str, computed: str, number: float, tolerance: float, reason: str) -> Finding:
    """A finding that passes where the number is not above the tolerance; what is no number fails."""
    return Finding(name, "pass" if number <= tolerance else "FAIL", computed, number, tolerance, reason)


def not_applicable(name: str, reason: str) -> Finding:
    """A finding of a check that says nothing to this run."""
    return Finding(name, "does not apply", reason)


@dataclass(frozen=True)
class Examination:
    """All findings of a run, by its folder and the checkpoint that was looked at."""

    run: str
    checkpoint: str
    examples: str
    computer: str
    findings: Sequence[Finding]

    @property
    def sound(self) -> bool:
        """Whether nothing failed."""
        return all(finding.status != "FAIL" for finding in self.findings)

    def __str__(self) -> str:
        counts = [sum(each.status == status for each in self.findings) for status in ("pass", "FAIL", "does not apply")]
        said = " · ".join(
            f"{count} {words}" for count, words in zip(counts, ("pass", "FAIL", "do not apply"), strict=True) if count
        )
        head = f"{self.run}, checkpoint {self.checkpoint}, {self.examples}, {self.computer}"
        return "\n".join([head, *map(str, self.findings), said])

    def to_json(self) -> str:
        """Everything."""
        findings = [asdict(each) | {"number": _finite(each.number)} for each in self.findings]
        found = {"sound": self.sound, **asdict(self), "findings": findings}
        return json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(number: float | None) -> float | None:
    # JSON has no word for what is no number
    return None if number is None or not math.isfinite(number) else number
