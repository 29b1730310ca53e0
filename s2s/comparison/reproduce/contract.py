"""Base class of reproductions: a published finding, tolerance bands, trials, and the numbers they give."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Trial, Trials
from s2s.errors import UserError

# numbers of a finding, by the key of their band and by seed
Numbers = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Reproduction(ABC):
    """A published finding and its measurement; the fields of subclasses are sizes.

    Attributes:
        name: Name on the command line.
        finding: The finding, in one sentence.
        source: Publication; says "not verified" where a number was written down from memory.
        method: What is measured here, and how that differs from the publication.
        bands: Expected numbers; docs/reproductions.md lists those that were changed after a measurement.
        seconds: Least and most CPU seconds of a run with the usual seeds.
        usual_seeds: Default number of seeds.
        published: False for a finding that was only derived.
    """

    name: ClassVar[str]
    finding: ClassVar[str]
    source: ClassVar[str]
    method: ClassVar[str]
    bands: ClassVar[tuple[Band, ...]]
    seconds: ClassVar[tuple[float, float]]
    usual_seeds: ClassVar[int] = 3
    published: ClassVar[bool] = True

    def asked(self, settings: Sequence[str], folder: Path) -> "Reproduction":
        """Return the reproduction with settings of the command line.

        Args:
            settings: Settings of a recipe, as `section.key=value`.
            folder: Folder in which it may store runs.

        Raises:
            UserError: It takes no settings, or one is wrong.
        """
        if settings:
            raise UserError(f"{self.name} takes no settings: {settings[0]!r:.60}", remedy="leave them out")
        return self

    @abstractmethod
    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        """Return all trials; each result is stored in a file."""

    @abstractmethod
    def measure(self, trial: Trial) -> object:
        """Run a trial in one thread, and return a JSON object or a dataclass of JSON values.

        Raises:
            UserError: A training failed.
        """

    @abstractmethod
    def numbers(self, measured: Trials) -> Numbers:
        """Return the numbers of the bands, by seed."""

    def intervals(self, measured: Trials) -> Mapping[str, tuple[float, float]]:
        """Return the 95 % intervals of the medians, by the key of their band."""
        return {}

    def figures(self, measured: Trials) -> list[Figure]:
        """Return the figures."""
        return []


def by_seed(measured: Trials, key: str, model: str, part: str = "") -> list[Any]:
    """Return the values under a key of a model's trials of a part, by ascending seed."""
    return list(_own(measured, key, (model, part)).values())


def pairs(measured: Trials, key: str, first: tuple[str, str], second: tuple[str, str]) -> list[tuple[Any, Any]]:
    """Return pairs of values under a key of two kinds of trials (model and part), at their common seeds."""
    one, two = _own(measured, key, first), _own(measured, key, second)
    return [(one[seed], two[seed]) for seed in one if seed in two]


def _own(measured: Trials, key: str, kind: tuple[str, str]) -> dict[int, Any]:
    own = {trial.seed or 0: m[key] for trial, m in measured.items() if (trial.model, trial.part) == kind}
    return dict(sorted(own.items()))
