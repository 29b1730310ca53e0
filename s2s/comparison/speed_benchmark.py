"""Speed benchmarks in rounds, with a reference that detects changes of the machine's speed.

A round measures every candidate once, one after the other; the next round starts when all are measured. A disturbance
of a minute then affects neighbouring measurements alike, and their ratio within a round is more accurate than that of
two times half an hour apart. Therefore the unit of intervals and tests is the round, not the repetition. A longer
disturbance affects a whole measurement: figures are medians over rounds, and tests trim the extreme rounds.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain as joined
from pathlib import Path
from typing import Literal, TypeVar

import torch

from s2s.comparison.executor import load_result
from s2s.comparison.instruments import CHAIN, PRODUCT, chain, rounded
from s2s.comparison.reporting import Column, Interval, table
from s2s.comparison.results import Table
from s2s.comparison.spec import Trial
from s2s.evaluation.differences import Difference, Pairwise, trimmed
from s2s.evaluation.gates import (
    EQUIVALENCE,
    Assessment,
    Gate,
    decide_outcome,
    machine_steady,
    speed_changed,
    steady_rounds,
)
from s2s.evaluation.gates import ROUNDS as LEAST
from s2s.evaluation.inference import Estimate, long_slope, median
from s2s.training.device import DeviceContext

ROUNDS = 8
MARGIN = 0.05
"""Relative difference up to which two speeds count as equal."""
TEST = "trimmed t-test over rounds, Holm"
"""Name of the test of two speeds, see `s2s.evaluation.differences.trimmed`."""
TYPICAL = 32
"""Length of a usual sentence, at which candidates are ranked by speed."""
EQUAL_DEPTH = "equal depth"
"""Variation in which every candidate has the recipe's number of layers instead of the tuned one."""
EQUAL_DEPTH_PART = "equal-depth-round"
"""Prefix of the part of its trials."""
_TRIES = 3

Reference = Literal["product", "chain"]
"""Reference work that detects changes of the machine's speed: one large matrix product, or many small operations."""
_REFERENCES: dict[Reference, str] = {"product": PRODUCT, "chain": CHAIN}
References = Mapping[int, Sequence[float]]
"""Seconds of the reference by round."""
Speeds = Mapping[int, float]
"""Speed by round, in any unit."""
Times = Mapping[int, Mapping[int, float]]
"""Seconds by length and round."""


@dataclass(frozen=True, kw_only=True)
class TimedMeasurement:
    """Base of measurements that `measure_steadily` makes.

    Attributes:
        references: Seconds of the reference before and after the measurement, by place.
        reference: Kind of reference.
        tries: Number of measurements; more than one if the machine's speed changed.
    """

    references: dict[str, list[float]] = field(default_factory=dict)
    reference: Reference = "product"
    tries: int = 1


T = TypeVar("T", bound=TimedMeasurement)


@dataclass(frozen=True)
class Place:
    """Compute placement: a number of CPU threads, or a GPU."""

    name: str
    device_context: DeviceContext
    threads: int

    @contextmanager
    def used(self) -> Iterator[None]:
        """Context manager that sets the number of threads."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def places(device_context: DeviceContext) -> list[Place]:
    """Return the compute placements to measure: one CPU thread, and the placement of the comparison."""
    device, threads = device_context.device, torch.get_num_threads()
    if device.type != "cpu":
        alone = Place("1 thread", DeviceContext(torch.device("cpu"), torch.float32), 1)
        return [alone, Place(device.type.upper(), device_context, threads)]
    every = [Place("1 thread", device_context, 1), Place(f"{threads} threads", device_context, threads)]
    return every[:1] if threads == 1 else every


def measure_steadily(
    measure: Callable[[], T], where: Sequence[Place], folder: Path, trials: Sequence[Trial], trial: Trial
) -> T:
    """Measure between two runs of the reference at each place, and repeat if the machine's speed changed.

    A measurement is made up to three times if the speed changed since its round began, or is lower than the clock
    explains; the steadiest is kept. The number of repetitions is at most half the number of trials, so an unsteady
    machine does not make a comparison much longer.

    Args:
        measure: Makes the measurement.
        where: Places that it uses.
        folder: Stored results of the question.
        trials: All timed trials of the question.
        trial: The trial that is measured now.

    Returns:
        The steadiest measurement, with `references`, `reference` and `tries`.
    """
    before = {each: own.measured for each in trials if (own := load_result(folder, each)) and own.measured}
    left = len(trials) // 2 - sum(own["tries"] - 1 for own in before.values())

    def excess(place: str, own: Sequence[float]) -> float:
        """Return the change of the machine's speed beyond the allowed one."""
        alike = {each: one for each, one in before.items() if one.get("reference") == "chain"}
        every = {each: one["references"].get(place, ()) for each, one in alike.items()}
        this_round = [s for each, seconds in every.items() if each.part == trial.part for s in seconds]
        return speed_changed([*own, *this_round], min([*own, *joined.from_iterable(every.values())]))

    made: list[tuple[float, T]] = []
    while not made or (made[-1][0] > 0 and len(made) < min(_TRIES, 1 + left)):
        starts = _references(where)
        measured = measure()
        found = {name: [starts[name], end] for name, end in _references(where).items()}
        referenced = replace(measured, references=found, reference="chain")
        made.append((max(excess(name, own) for name, own in found.items()), referenced))
    return replace(min(made, key=lambda one: one[0])[1], tries=len(made))


def _references(where: Sequence[Place]) -> dict[str, float]:
    seconds = {}
    for place in where:
        with place.used():
            seconds[place.name] = rounded(chain(place.device_context))
    return seconds


def round_trials(models: Sequence[str], part: str = "round", rounds: int = ROUNDS) -> list[Trial]:
    """Return the trials of all candidates in turn, round by round."""
    return [Trial(model, f"{part}-{i + 1}", in_round=True) for i in range(rounds) for model in models]


def by_round(measured: Mapping[Trial, T], model: str, part: str = "round") -> dict[int, T]:
    """Return the measurements of a candidate by round."""
    own = [(trial.part.rpartition("-"), one) for trial, one in measured.items() if trial.model == model]
    return dict(sorted((int(i), one) for (name, _, i), one in own if name == part))


def references(rounds: Mapping[int, TimedMeasurement], place: str) -> References:
    """Return the seconds of the reference at a place, by round."""
    return {i: one.references[place] for i, one in rounds.items() if place in one.references}


def rivals(names: Sequence[str]) -> list[str]:
    """Return the places of which each candidate uses its fastest: all numbers of threads, or only the GPU."""
    return list(names) if not names or names[-1].endswith("threads") else list(names[-1:])


def at_best(names: Sequence[str]) -> str:
    """Return `, with the number of threads that is fastest for it`; empty without a choice of places."""
    return ", with the number of threads that is fastest for it" if len(rivals(names)) > 1 else ""


def fastest_place(speeds: Mapping[str, Speeds], references_at: Mapping[str, References]) -> str:
    """Return the place with the highest median speed over steady rounds; empty if there is none.

    Args:
        speeds: Speeds of one candidate, by place.
        references_at: Seconds of the reference around the measurements, by place.
    """
    known = {place: own for place, own in speeds.items() if own}
    if not known:
        return ""
    both = set.intersection(*(set(own) for own in known.values()))
    used = _enough([i for i in steady_rounds(*(references_at[place] for place in known)) if i in both], both)
    return max(known, key=lambda place: statistics.median(known[place][i] for i in used))


def fastest_times(at: Mapping[str, Times], rounds: Mapping[int, TimedMeasurement]) -> Times:
    """Return the times of one candidate, each length at its fastest place.

    Args:
        at: Times by place.
        rounds: Measurements by round.
    """
    references_at = {place: references(rounds, place) for place in at}
    found = {}
    for n in sorted({n for times in at.values() for n in times}):
        speeds = {place: {i: 1 / s for i, s in times.get(n, {}).items()} for place, times in at.items()}
        found[n] = at[fastest_place(speeds, references_at)][n]
    return found


def exponent_over_rounds(times: Times) -> tuple[float, float, Estimate] | None:
    """Fit the exponent of time against length in each round that has all lengths.

    Returns:
        First and last length of the fit, and the median exponent; None below three lengths.
    """
    rounds = dict.fromkeys(i for own in times.values() for i in own)
    complete = [i for i in rounds if all(i in own for own in times.values())]
    slopes = [long_slope(list(times), [own[i] for own in times.values()]) for i in complete]
    found = [slope for slope in slopes if slope]
    return (found[0].first, found[0].last, median([s.exponent for s in found])) if found else None


def _enough(steady: Sequence[int], every: Iterable[int]) -> list[int]:
    """Return the steady rounds, or all rounds if the steady ones are too few for a verdict."""
    return list(steady) if len(steady) >= LEAST else sorted(every)


@dataclass(frozen=True)
class SpeedBenchmark:
    """Speeds of candidates by round, each at its fastest place.

    Estimates and tests use the rounds in which the machine was steady.

    Attributes:
        speeds: Positive speeds by model and round; the higher the better.
        references: Seconds of the reference around the measurements, by model and every place that it could choose.
        places: The chosen place by model.
    """

    speeds: Mapping[str, Speeds]
    references: Mapping[str, Mapping[str, References]]
    places: Mapping[str, str]

    @classmethod
    def between(
        cls,
        rounds: Mapping[str, Mapping[int, TimedMeasurement]],
        places: Sequence[str],
        speeds: Callable[[str, str], Speeds],
    ) -> "SpeedBenchmark":
        """Build the benchmark of the candidates that have speeds.

        Args:
            rounds: Measurements by model and round.
            places: Places of which each candidate uses its fastest.
            speeds: Speeds of a model at a place.
        """
        held = {model: {place: references(own, place) for place in places} for model, own in rounds.items()}
        known = {model: {place: speeds(model, place) for place in places} for model in rounds}
        chosen = {model: fastest_place(own, held[model]) for model, own in known.items()}
        chosen = {model: place for model, place in chosen.items() if place}
        return cls({model: known[model][place] for model, place in chosen.items()}, held, chosen)

    def speed(self, model: str) -> Estimate:
        """Return the median speed over the rounds of `counted`."""
        return median(self.counted(model))

    def counted(self, model: str) -> list[float]:
        """Return the speeds in the rounds of its verdict: those that are steady for it and for its rival."""
        other = self.best_other(model)
        own, used = self.speeds[model], self._used(*filter(None, (model, other)))
        return [own[i] for i in used] or list(own.values())

    def _references_of(self, *models: str) -> dict[str, dict[int, list[float]]]:
        """Return the references around all of these models, by places that any chose and rounds that all have."""
        found = {}
        for place in dict.fromkeys(self.places[model] for model in models):
            every = [self.references[model][place] for model in models]
            found[place] = {i: [s for own in every for s in own[i]] for i in every[0] if all(i in own for own in every)}
        return found

    def _used(self, *models: str) -> list[int]:
        every = set.intersection(*(set(self.speeds[model]) for model in models))
        return _enough([i for i in steady_rounds(*self._references_of(*models).values()) if i in every], every)

    @cached_property
    def pairs(self) -> Pairwise:
        """Trimmed means of the paired log speed ratios of all pairs: second over first."""

        def compared(a: str, b: str) -> Difference | None:
            used = self._used(a, b)
            first, second = ([math.log(self.speeds[model][i]) for i in used] for model in (a, b))
            return trimmed(first, second)

        return Pairwise.of(self.speeds, compared)

    @cached_property
    def _medians(self) -> dict[str, float]:
        """Median speed of each candidate over the rounds that are steady for all."""
        used = set(self._used(*self.speeds))
        every = {model: [own[i] for i in own if i in used] or list(own.values()) for model, own in self.speeds.items()}
        return {model: statistics.median(own) for model, own in every.items()}

    def best_other(self, model: str) -> str | None:
        """Return the fastest of the other candidates; None without others."""
        return max((name for name in self.speeds if name != model), key=self._medians.__getitem__, default=None)

    def steady(self, *models: str) -> Gate:
        """Check that the machine kept its speed in enough rounds, without drift."""
        times = {model: {i: 1 / speed for i, speed in self.speeds[model].items()} for model in models}
        return machine_steady(self._references_of(*models), times)

    @cached_property
    def _ties(self) -> int:
        """Number of pairs that may be a tie."""
        return sum(self.steady(*each).passed for each in self.pairs)

    def assess(self, model: str) -> Assessment:
        """Compare a candidate with the fastest of the others; p-values of all pairs are Holm-corrected together."""
        other = self.best_other(model)
        if other is None:
            return Assessment("not measurable", reasons=("no other model was measured",))
        steady = self.steady(model, other)
        where = {f"{name} ran on": self.places[name] for name in (model, other) if len(self.references[name]) > 1}
        if not steady.passed:
            return Assessment("not measurable", other, reasons=(steady.sentence,), facts=where)
        difference, p = self.pairs.compare(model, other)
        if difference is None or p is None:
            return Assessment("not measurable", other, reasons=("one round, so no test over rounds",))
        margin = math.log1p(MARGIN)
        outcome = decide_outcome(difference, [steady], p, margin, self._ties)
        ratio = Estimate(*(math.exp(each) for each in (difference.value, *difference.interval())))
        found = Assessment(outcome, other, ratio, "times as fast", p, TEST, facts=where)
        if outcome == "tie":
            return replace(found, p=min(1.0, self._ties * difference.equivalence_p(margin)), test=EQUIVALENCE)
        if outcome == "undecided":
            seen = math.expm1(difference.detectable(level=self.pairs.level))
            return replace(
                found, reasons=(f"a difference of {seen:.0%} would be detected in 80 % of such comparisons",)
            )
        return found

    def sign(self, model: str, other: str) -> int | None:
        """Return the `sign` of the speed ratio of two candidates; None if one was not measured."""
        if not {model, other} <= self.speeds.keys():
            return None
        used = self._used(model, other)
        ratios = [self.speeds[model][i] / self.speeds[other][i] for i in used]
        return sign(statistics.median(ratios)) if ratios else None

    def robustness(self, model: str, variations: Mapping[str, "SpeedBenchmark"]) -> dict[str, bool]:
        """Return by variation whether the outcome against the rival stays the same; skip identical benchmarks."""
        other = self.best_other(model)
        if other is None:
            return {}
        here, own = self.sign(model, other), [self.speeds[model], self.speeds[other]]
        signs = {
            name: benchmark.sign(model, other)
            for name, benchmark in variations.items()
            if [benchmark.speeds.get(model), benchmark.speeds.get(other)] != own
        }
        return {name: each == here for name, each in signs.items() if each is not None}


def sign(ratio: float) -> int:
    """Return 1 for a ratio above 1 by more than `MARGIN`, -1 for one below, 0 between."""
    return 0 if abs(math.log(ratio)) <= math.log1p(MARGIN) else 1 if ratio > 1 else -1


def assess_count(
    model: str, figures: Mapping[str, float], variations: Mapping[str, Sequence[Mapping[str, float]]]
) -> Assessment:
    """Compare a counted figure with the highest of the others.

    Counts are not random, so nothing is tested: a tie is a difference of at most `MARGIN`.

    Args:
        model: The candidate.
        figures: Positive figures by model; the higher the better.
        variations: Figures of other choices, by name; the outcome must hold in all figures of a name.
    """
    others = [name for name in figures if name != model]
    if not others:
        return Assessment("")
    other = max(others, key=lambda name: figures[name])
    here = sign(figures[model] / figures[other])
    known = {name: [own for own in several if model in own and other in own] for name, several in variations.items()}
    kept = {name: all(sign(own[model] / own[other]) == here for own in each) for name, each in known.items() if each}
    outcome = "tie" if not here else "better" if here > 0 else "worse"
    return Assessment(outcome, other, variations=kept)


def pairs_table(title: str, benchmarks: Mapping[str, SpeedBenchmark]) -> Table:
    """Build the table of the speed ratios of all pairs in each benchmark."""
    rows = []
    for what, benchmark in benchmarks.items():
        for (a, b), found in benchmark.pairs.items():
            ratio = Estimate(*(math.exp(each) for each in (found.value, *found.interval())))
            equal = found.equivalence_p(math.log1p(MARGIN))
            steady = benchmark.steady(a, b).passed
            # with too few rounds there is no verdict, so the power does not matter
            seen = 100 * math.expm1(found.detectable(level=benchmark.pairs.level)) if steady else None
            where = f"{benchmark.places[b]} / {benchmark.places[a]}"
            p = benchmark.pairs.p[a, b]
            rows.append((what, f"{b} / {a}", where, ratio, p, equal, seen, "yes" if steady else "no"))
    columns = [
        "benchmark",
        "models",
        "places",
        Interval("times as fast", lambda row: row[3], 3),
        Column("p (Holm)", lambda row: row[4], 4),
        Column(f"p (equal within {MARGIN:.0%})", lambda row: row[5], 4),
        Column("detectable with 80 % power (%)", lambda row: row[6], 1),
        "steady",
    ]
    return table("pairs", title, columns, rows)


def machine_table(rounds: Mapping[tuple[str, ...], Mapping[int, TimedMeasurement]], heads: Sequence[str]) -> Table:
    """Build the table of the seconds of the reference before and after each measurement.

    Args:
        rounds: Measurements by names and round.
        heads: Column heads of the names.
    """
    rows = (
        (*names, i, place, _REFERENCES[one.reference], 1000 * seconds[0], 1000 * seconds[1], one.tries)
        for names, own in rounds.items()
        for i, one in own.items()
        for place, seconds in one.references.items()
    )
    title = "Machine speed: time of the reference before and after each measurement"
    columns = (*heads, "round", "place", "reference", "before (ms)", "after (ms)", "number of measurements")
    return table("machine", title, columns, rows)
