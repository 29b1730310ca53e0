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

# each number of a finding by its band's key: one value for each seed
Numbers = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Reproduction(ABC):
    """A finding of the literature, and how it is measured here; its fields are sizes.

    Attributes:
        name: as typed.
        finding: what was found, in one sentence.
        source: where it was published; says "not verified" where a number was written down from memory.
        method: what is measured here, and where that differs from the publication.
        bands: what is expected; one that is changed after a measurement is told in docs/reproductions.md.
        seconds: that a run with the usual seeds takes of one core: the least and the most that was seen, or that follow
            from the time of an update.
        usual_seeds: how many repetitions there are where nothing is said.
        published: whether somebody found it before, or it was only derived.
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
        """This one with settings of the command, as `section.key=value`, in a folder where it may keep whole runs.

        Raises:
            UserError: it takes none.
        """
        if settings:
            raise UserError(f"{self.name} takes no settings: {settings[0]!r:.60}", remedy="leave them out")
        return self

    @abstractmethod
    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        """All trials; each result is stored in a file."""

    @abstractmethod
    def measure(self, trial: Trial) -> object:
        """Makes one measurement, in one thread: a JSON object, or a dataclass of JSON values.

        Raises:
            UserError: a training failed.
        """

    @abstractmethod
    def numbers(self, measured: Trials) -> Numbers:
        """Numbers of the bands, seed by seed."""

    def intervals(self, measured: Trials) -> Mapping[str, tuple[float, float]]:
        """The ends of 95 % intervals of the medians that bands speak of, by their keys, where there are any."""
        return {}

    def figures(self, measured: Trials) -> list[Figure]:
        """Pictures of it."""
        return []


def by_seed(measured: Trials, key: str, model: str, part: str = "") -> list[Any]:
    """Values under a key of all trials of a model and part, by seed."""
    return list(_own(measured, key, (model, part)).values())


def pairs(measured: Trials, key: str, first: tuple[str, str], second: tuple[str, str]) -> list[tuple[Any, Any]]:
    """Pairs of values under a key of two kinds of trials (model and part), at the seeds that both have."""
    one, two = _own(measured, key, first), _own(measured, key, second)
    return [(one[seed], two[seed]) for seed in one if seed in two]


def _own(measured: Trials, key: str, kind: tuple[str, str]) -> dict[int, Any]:
    own = {trial.seed or 0: m[key] for trial, m in measured.items() if (trial.model, trial.part) == kind}
    return dict(sorted(own.items()))
