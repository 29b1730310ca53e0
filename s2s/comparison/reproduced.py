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
    """Tolerance band of a published number."""

    key: str
    """Name among the measurements."""
    what: str
    """Quantity, with its unit."""
    published: str
    """Published or derived value."""
    low: float | None = None
    """Lowest value that counts as reproduced; None without a lower end."""
    high: float | None = None
    """Highest value; None without an upper end."""
    derived: float | None = None
    """Value of the theory; None if the published value is measured."""

    def holds(self, value: float) -> bool:
        """True if a value lies within the band."""
        above = self.low is None or value >= self.low
        return math.isfinite(value) and above and (self.high is None or value <= self.high)

    def __str__(self) -> str:
        if self.low is None:
            return f"≤ {self.high:.5g}"
        return f"≥ {self.low:.5g}" if self.high is None else f"{self.low:.5g} to {self.high:.5g}"


class Check(Part):
    """A band and our measurement."""

    band: Band
    """Tolerance band."""
    ours: float | None
    """Median over seeds; None if nothing was measured."""
    by_seed: list[float]
    """Value of each seed."""
    inside: bool
    """True if the median is inside the band."""
    interval: tuple[float, float] | None = None
    """Ends of the 95 % confidence interval of the median; None if none was computed."""

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
        """Describe where the median and the seeds are, and whether the derived value is excluded."""
        where = "inside" if self.inside else "outside"
        if self.seeds_outside:
            where += f", {self.seeds_outside} of {len(self.by_seed)} seeds outside"
        return f"{where}, but the derived {self.band.derived:g} is excluded" if self.excluded else where


class Reproduced(Part):
    """Result of a reproduction: `reproduction.json`."""

    format: Literal[1] = FORMAT
    """Version of this file's fields."""
    name: str
    """Name on the command line."""
    finding: str
    """The finding, in one sentence."""
    source: str
    """Publication, and whether the numbers were compared with it."""
    method: str
    """Method, and how it differs from the publication."""
    expected: tuple[float, float]
    """Expected seconds of one core: least and most."""
    checks: list[Check]
    """Bands and measurements."""
    seeds: list[int]
    """Seeds of the repetitions."""
    command: str
    """Command that measures it again."""
    seconds: float
    """Wall-clock seconds of all measurements together."""
    core_seconds: float
    """CPU seconds: about the wall-clock seconds on an idle core."""
    machine: dict[str, str]
    """Processor, device, versions, commit, date."""
    failures: list[Failure] = Field(default_factory=list)
    """Failed measurements."""
    figures: list[Figure] = Field(default_factory=list)
    """Figures."""

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
        """Verdict in words."""
        missed = sum(not check.inside for check in self.checks)
        if missed:
            return f"not reproduced: {missed} of {len(self.checks)} outside their bands"
        away = [f"the derived {each.band.what} = {each.band.derived:g}" for each in self.checks if each.excluded]
        if away:
            return f"inside its bands, but {' and '.join(away)} is excluded"
        return "reproduced" if self.by_every_seed else "reproduced by the medians, not by every seed"


def read(path: Path) -> Reproduced:
    """Read a `reproduction.json`.

    Raises:
        UserError: The file is damaged, or of another version.
    """
    return results.read(path, Reproduced, "reproduction", "measure it again with s2s reproduce")
