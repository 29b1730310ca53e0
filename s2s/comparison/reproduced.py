"""Result of a reproduction as JSON, and the rule that decides whether a published number is reproduced.

Per number, with seeds that pass its validity checks ("voting seeds"):

- reproduced: the 95 % confidence interval lies inside the band that was written down before the measurement;
- not reproduced: the interval lies outside the band;
- undecided: the interval crosses an end of the band, or fewer than 3 seeds vote.

A finding is reproduced if all its numbers are, and not reproduced if one of them is not.
"""

import math
from pathlib import Path
from typing import Literal

from pydantic import Field

from s2s.comparison import results
from s2s.comparison.results import Failure, Figure, Part

RESULT = "reproduction.json"
FORMAT = 1
FEWEST_SEEDS = 3
"""Voting seeds without which a number with chance in it is undecided."""

Outcome = Literal["reproduced", "not reproduced", "undecided"]


class Band(Part):
    """Tolerance band of a published number, or of a validity check."""

    key: str
    """Name among the measurements."""
    what: str
    """Quantity, with its unit."""
    published: str
    """Published or derived value."""
    low: float | None = None
    """Lowest value inside the band; None without a lower end."""
    high: float | None = None
    """Highest value inside the band; None without an upper end."""
    derived: float | None = None
    """Value of the theory; None if the published value is measured."""
    validity: bool = False
    """True for a validity check, which decides which seeds vote and is no part of the verdict."""
    valid_if: tuple[str, ...] = ()
    """Keys of the validity checks that a seed must pass to vote on this number."""
    deterministic: bool = False
    """True for a number without chance, such as a count: one seed decides."""

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
    mean: float | None
    """Mean over the voting seeds; None if no seed votes."""
    interval: tuple[float, float] | None
    """Ends of the 95 % confidence interval of the mean; None with fewer than two voting seeds."""
    by_seed: dict[int, float]
    """Value of each seed."""
    voters: list[int]
    """Seeds that pass the validity checks of this number."""

    @property
    def outcome(self) -> Outcome:
        """Outcome of this number under the rule of this module."""
        enough = self.band.deterministic or len(self.voters) >= FEWEST_SEEDS
        if self.interval is None or not enough:
            return "undecided"
        low, high = self.interval
        if self.band.holds(low) and self.band.holds(high):
            return "reproduced"
        below = self.band.low is not None and high < self.band.low
        above = self.band.high is not None and low > self.band.high
        return "not reproduced" if below or above else "undecided"

    def __str__(self) -> str:
        if self.mean is None:
            return "no valid seed" if self.by_seed else "not measured"
        interval = self.interval
        ends = f" (95 %: {interval[0]:.4g} to {interval[1]:.4g})" if interval and interval[0] < interval[1] else ""
        return f"{self.mean:.4g}{ends}"

    @property
    def excluded(self) -> bool:
        """True if the interval excludes the theoretical value."""
        if self.band.derived is None or self.interval is None:
            return False
        low, high = self.interval
        return not low <= self.band.derived <= high

    @property
    def state(self) -> str:
        """Describe the outcome, with the reason if it is undecided; of a validity check, the seeds that pass."""
        if self.band.validity:
            passed = sum(self.band.holds(value) for value in self.by_seed.values())
            return f"validity check: {passed} of {len(self.by_seed)} seeds pass"
        reason = ""
        if self.outcome == "undecided":
            few = not self.band.deterministic and len(self.voters) < FEWEST_SEEDS
            why = (
                f"{len(self.voters)} voting seeds of at least {FEWEST_SEEDS}"
                if few
                else "the interval crosses the band"
            )
            reason = f": {why}"
        theory = f"; the derived {self.band.derived:g} is excluded" if self.excluded else ""
        return f"{self.outcome}{reason}{theory}"


class Reproduced(Part):
    """Result of a reproduction: `reproduction.json`."""

    format: Literal[1] = FORMAT
    """Version of this file's fields."""
    name: str
    """Name on the command line."""
    finding: str
    """The finding, in one sentence."""
    source: str
    """Publication, with table or page; "not verified" marks numbers that were not compared with it."""
    method: str
    """Method, and how it differs from the publication."""
    setting: str = ""
    """Difference from the publication that the verdict depends on; empty without one."""
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
    def numbers(self) -> list[Check]:
        """The checks that decide: all but the validity checks."""
        return [check for check in self.checks if not check.band.validity]

    @property
    def outcome(self) -> Outcome:
        """Outcome of the finding: reproduced if all numbers are, not reproduced if one of them is not."""
        outcomes = {check.outcome for check in self.numbers}
        if "not reproduced" in outcomes:
            return "not reproduced"
        return "reproduced" if outcomes == {"reproduced"} else "undecided"

    @property
    def verdict(self) -> str:
        """Outcome in words, with the setting that it depends on."""
        parts = [f"{self.outcome} {self.setting}".strip()]
        reproduced = sum(check.outcome == "reproduced" for check in self.numbers)
        if self.outcome != "reproduced":
            parts.append(f"{reproduced} of {len(self.numbers)} numbers reproduced")
        parts += [
            f"the derived {each.band.what} = {each.band.derived:g} is excluded"
            for each in self.numbers
            if each.excluded
        ]
        return "; ".join(parts)


def read(path: Path) -> Reproduced:
    """Read a `reproduction.json`.

    Raises:
        UserError: The file is damaged, or of another version.
    """
    return results.read(path, Reproduced, "reproduction", "measure it again with s2s reproduce")
