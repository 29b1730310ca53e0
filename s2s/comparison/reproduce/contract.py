"""Base class of reproductions: a published finding, tolerance bands, trials, and the numbers they give."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, TypeVar, get_type_hints

from pydantic import TypeAdapter

from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Trial
from s2s.errors import UserError

M = TypeVar("M")
"""Measurement of a trial: a frozen dataclass of JSON values, or a union of several."""
BySeed = Mapping[int, float]
"""A number of each seed."""
Numbers = Mapping[str, BySeed]
"""Numbers of a finding, by the key of their band."""


@dataclass(frozen=True)
class Reproduction(ABC, Generic[M]):
    """A published finding and its measurement; the fields of subclasses are sizes.

    Attributes:
        name: Name on the command line.
        finding: The finding, in one sentence.
        source: Publication, with table or page. Numbers that were not compared with it are marked "not verified".
        method: What is measured here, and how that differs from the publication.
        setting: Difference from the publication that the outcome may depend on; printed with it. May be empty.
        bands: Expected numbers; docs/reproductions.md lists those that were changed after a measurement.
        seconds: Least and most CPU seconds of a run with the usual seeds.
        usual_seeds: Default number of seeds.
        published: False for a finding without a publication.
    """

    name: ClassVar[str]
    finding: ClassVar[str]
    source: ClassVar[str]
    method: ClassVar[str]
    setting: ClassVar[str] = ""
    bands: ClassVar[tuple[Band, ...]]
    seconds: ClassVar[tuple[float, float]]
    usual_seeds: ClassVar[int] = 3
    published: ClassVar[bool] = True

    def asked(self, settings: Sequence[str], folder: Path) -> "Reproduction[M]":
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
    def measure(self, trial: Trial) -> M:
        """Run a trial in one thread.

        Subclasses annotate the type of what they return: stored measurements are read as that type.

        Raises:
            UserError: A training failed.
        """

    def read_measurement(self, stored: object) -> M:
        """Read a stored measurement, a JSON value, as the type that `measure` returns."""
        return TypeAdapter(get_type_hints(type(self).measure)["return"]).validate_python(stored)

    @abstractmethod
    def numbers(self, measured: Mapping[Trial, M]) -> Numbers:
        """Return the numbers of the bands, by seed."""

    def intervals(self, measured: Mapping[Trial, M]) -> Mapping[str, tuple[float, float]]:
        """Return 95 % intervals, by the key of their band, that replace Student's interval over seeds."""
        return {}

    def figures(self, measured: Mapping[Trial, M]) -> list[Figure]:
        """Return the figures."""
        return []


def by_seed(measured: Mapping[Trial, M], of: Callable[[M], float], model: str, part: str = "") -> dict[int, float]:
    """Return a number of each trial of a model and a part, by ascending seed."""
    own = {trial.seed or 0: of(one) for trial, one in measured.items() if (trial.model, trial.part) == (model, part)}
    return dict(sorted(own.items()))


def paired(first: BySeed, second: BySeed, of: Callable[[float, float], float]) -> dict[int, float]:
    """Combine two numbers of the same seed, for the seeds that both have.

    Example:
        >>> from operator import sub
        >>> paired({1: 5.0, 2: 7.0}, {2: 4.0, 3: 1.0}, sub)
        {2: 3.0}
    """
    return {seed: of(value, second[seed]) for seed, value in first.items() if seed in second}
