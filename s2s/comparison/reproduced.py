"""Result of a reproduction, as JSON: published number, our number, and tolerance band."""

import math
from pathlib import Path
from typing import Literal

from pydantic import Field

from s2s.comparison import results
from s2s.comparison.results import Failure, Figure, Part

RESULT = "reproduction.json"
FORMAT = 1


class Band(Part):
    """A number of a finding, and within what ours counts as the same."""

    key: str
    """What it is called among the measurements."""
    what: str
    """What is measured, with its unit."""
    published: str
    """As it was published, or derived."""
    low: float | None = None
    """Lowest value that counts as reproduced; None where there is no lower end."""
    high: float | None = None
    """Highest; None where there is no upper end."""
    derived: float | None = None
    """What a theory says; None where what was published is measured."""

    def holds(self, value: float) -> bool:
        """True if a value lies within the band."""
        above = self.low is None or value >= self.low
        return math.isfinite(value) and above and (self.high is None or value <= self.high)

    def __str__(self) -> str:
        if self.low is None:
            return f"≤ {self.high:.5g}"
        return f"≥ {self.low:.5g}" if self.high is None else f"{self.low:.5g} to {self.high:.5g}"


class Check(Part):
    """A band, and what was measured."""

    band: Band
    """What was expected."""
    ours: float | None
    """The median over seeds; None where nothing was measured."""
    by_seed: list[float]
    """Each seed's."""
    inside: bool
    """Return True if the median lies in the band."""
    interval: tuple[float, float] | None = None
    """Ends of the median's 95 % interval; None where none was computed."""

    @property
    def excluded(self) -> bool:
        """True if the interval excludes the theoretical value."""
        if self.band.derived is None or self.interval is None:
            return False
        low, high = self.interval
        return not low <= self.band.derived <= high

    @property
    def seeds_outside(self) -> int:
        """Number of seeds outside a band that the median is in."""
        return sum(not self.band.holds(each) for each in self.by_seed) if self.inside else 0

    @property
    def state(self) -> str:
        """In words: where the median lies, which seeds do not, and whether what was derived is excluded."""
        where = "inside" if self.inside else "outside"
        if self.seeds_outside:
            where += f", {self.seeds_outside} of {len(self.by_seed)} seeds outside"
        return f"{where}, but the derived {self.band.derived:g} is excluded" if self.excluded else where


class Reproduced(Part):
    """A finding of the literature, measured again."""

    format: Literal[1] = FORMAT
    """Version of this file's fields."""
    name: str
    """Its name on the command line."""
    finding: str
    """What was found, in one sentence."""
    source: str
    """Where it was published, and whether the numbers were compared with the publication."""
    method: str
    """What is measured here, and where that differs from the publication."""
    expected: tuple[float, float]
    """Seconds that it takes of one core where nothing else runs: the least and the most."""
    checks: list[Check]
    """What was expected and what came out."""
    seeds: list[int]
    """Of the repetitions."""
    command: str
    """What measures it again."""
    seconds: float
    """That its measurements took by the clock, added up."""
    core_seconds: float
    """That they took of a core: about what they take by the clock where nothing else runs."""
    machine: dict[str, str]
    """Processor, device, versions, commit, date."""
    failures: list[Failure] = Field(default_factory=list)
    """Measurements that did not succeed."""
    figures: list[Figure] = Field(default_factory=list)
    """Pictures."""

    @property
    def inside(self) -> bool:
        """True if all medians lie in their bands."""
        return all(check.inside for check in self.checks)

    @property
    def by_every_seed(self) -> bool:
        """True if each seed alone reproduces the finding."""
        return self.inside and not any(check.seeds_outside for check in self.checks)

    @property
    def verdict(self) -> str:
        """In words."""
        missed = sum(not check.inside for check in self.checks)
        if missed:
            return f"not reproduced: {missed} of {len(self.checks)} outside their bands"
        away = [f"the derived {each.band.what} = {each.band.derived:g}" for each in self.checks if each.excluded]
        if away:
            return f"inside its bands, but {' and '.join(away)} is excluded"
        return "reproduced" if self.by_every_seed else "reproduced by the medians, not by every seed"


def read(path: Path) -> Reproduced:
    """Reads the file of a reproduction.

    Raises:
        UserError: it is damaged, or of another version.
    """
    return results.read(path, Reproduced, "reproduction", "measure it again with s2s reproduce")
