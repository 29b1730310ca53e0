"""Times in rounds: the machine is watched while they are measured, and models are compared round by round.

A round measures every model once, one after the other, and the next round begins when all had their turn: what slows
the machine for a minute falls on neighbours, and their ratio within a round keeps more of the truth than two times that
lie half an hour apart. So the unit of every interval and test is the round, not the repetition within it.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

import torch

from s2s.comparison.executor import load_result
from s2s.comparison.instruments import reference, rounded
from s2s.comparison.reporting import Column, Interval, table
from s2s.comparison.results import Table
from s2s.comparison.spec import Measured, Trial, Trials
from s2s.evaluation.differences import Difference, Pairwise, paired
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
from s2s.evaluation.inference import Estimate, mean
from s2s.training.device import DeviceContext

ROUNDS = 8
MARGIN = 0.05
"""Share by which two speeds may differ and be called equal."""
_TRIES = 3
# seconds of the reference product by round
References = Mapping[int, Sequence[float]]
# in whatever unit, by round
Speeds = Mapping[int, float]


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
    """One thread of the processor, and all that a comparison may use: the last is what it uses."""
    device, threads = device_context.device, torch.get_num_threads()
    if device.type != "cpu":
        alone = Place("1 thread", DeviceContext(torch.device("cpu"), torch.float32), 1)
        return [alone, Place(device.type.upper(), device_context, threads)]
    every = [Place("1 thread", device_context, 1), Place(f"{threads} threads", device_context, threads)]
    return every[:1] if threads == 1 else every


def measure_steadily(
    measure: Callable[[], Measured], where: Sequence[Place], folder: Path, trials: Sequence[Trial], trial: Trial
) -> Measured:
    """A measurement with the seconds of the reference product before and after it, at each place.

    It is made again, three times at most, where the machine has changed since its round began, or is slower than its
    clock explains; the steadiest is kept. As there may be half as many repetitions as cells, a machine that is never
    steady does not make a comparison much longer.

    Args:
        measure: what is to be measured.
        where: places that it uses.
        folder: of what was measured before.
        trials: all timed trials of the question.
        trial: the one that is measured now.
    """
    before = {each: own.measured for each in trials if (own := load_result(folder, each)) and own.measured}
    left = len(trials) // 2 - sum(own["tries"] - 1 for own in before.values())
    made: list[tuple[float, Measured]] = []
    while not made or (made[-1][0] > 0 and len(made) < min(_TRIES, 1 + left)):
        starts = _references(where)
        measured = measure()
        found = {name: [starts[name], end] for name, end in _references(where).items()}
        changed = max(_changed(name, own, before, trial) for name, own in found.items())
        made.append((changed, measured | {"references": found}))
    return min(made, key=lambda one: one[0])[1] | {"tries": len(made)}


def _changed(place: str, own: Sequence[float], before: Mapping[Trial, Measured], trial: Trial) -> float:
    """Excess change of the machine's speed at a placement, see `speed_changed`."""
    every = {each: one["references"].get(place, ()) for each, one in before.items()}
    this_round = [s for each, seconds in every.items() if each.part == trial.part for s in seconds]
    return speed_changed([*own, *this_round], min([*own, *chain.from_iterable(every.values())]))


def _references(where: Sequence[Place]) -> dict[str, float]:
    seconds = {}
    for place in where:
        with place.used():
            seconds[place.name] = rounded(reference(place.device_context))
    return seconds


def round_trials(models: Sequence[str], part: str = "round", rounds: int = ROUNDS) -> list[Trial]:
    """Trials of all candidates in turn, round by round."""
    return [Trial(model, f"{part}-{i + 1}", in_round=True) for i in range(rounds) for model in models]


def by_round(measured: Trials, model: str, part: str = "round") -> dict[int, Measured]:
    """A model's measurements by round."""
    own = {trial.part: one for trial, one in measured.items() if trial.model == model}
    rounds = {int(name.rpartition("-")[2]): one for name, one in own.items() if name.rpartition("-")[0] == part}
    return dict(sorted(rounds.items()))


def references(rounds: Mapping[int, Measured], place: str) -> References:
    """Seconds of the reference product at a place."""
    return {i: one["references"][place] for i, one in rounds.items() if place in one["references"]}


def over_rounds(values: Sequence[float]) -> Estimate:
    """The geometric mean of figures above 0, with Student's interval of their logarithms over rounds."""
    logs = mean([math.log(value) for value in values])
    ends = (None if end is None else math.exp(end) for end in (logs.low, logs.high))
    return Estimate(math.exp(logs.value), *ends)


def rivals(names: Sequence[str]) -> list[str]:
    """The places of which each model takes its fastest, of all `places`: numbers of threads, or the GPU alone."""
    return list(names) if names[-1].endswith("threads") else list(names[-1:])


def at_best(names: Sequence[str]) -> str:
    """`, with the number of threads that is fastest for it`; empty where there is no choice, of all `places`."""
    return ", with the number of threads that is fastest for it" if len(rivals(names)) > 1 else ""


def fastest_place(speeds: Mapping[str, Speeds], watched_at: Mapping[str, References]) -> str:
    """Placement with the highest mean speed over steady rounds; empty for none.

    Args:
        speeds: of one candidate, by placement.
        watched_at: reference products around it, by placement.
    """
    known = {place: own for place, own in speeds.items() if own}
    if not known:
        return ""
    both = set.intersection(*(set(own) for own in known.values()))
    used = _enough([i for i in steady_rounds(*(watched_at[place] for place in known)) if i in both], both)
    return max(known, key=lambda place: sum(math.log(known[place][i]) for i in used))


def _enough(steady: Sequence[int], every: Iterable[int]) -> list[int]:
    """The steady rounds; all, where they are too few for a verdict."""
    return list(steady) if len(steady) >= LEAST else sorted(every)


@dataclass(frozen=True)
class SpeedBenchmark:
    """Models' speeds, round by round, each at the place that is fastest for it; steady rounds alone count.

    Attributes:
        speeds: above 0, by model and round; the higher the better.
        references: seconds of the reference product around them, by model and by each place that it could have taken.
        places: which it took, by model.
    """

    speeds: Mapping[str, Speeds]
    references: Mapping[str, Mapping[str, References]]
    places: Mapping[str, str]

    @classmethod
    def between(
        cls, speeds: Mapping[str, Mapping[str, Speeds]], references: Mapping[str, Mapping[str, References]]
    ) -> "SpeedBenchmark":
        """Each model at its fastest place, from speeds by model and place; models without any are left out."""
        places = {model: fastest_place(own, references[model]) for model, own in speeds.items()}
        places = {model: place for model, place in places.items() if place}
        return cls({model: speeds[model][place] for model, place in places.items()}, references, places)

    def speed(self, model: str) -> Estimate:
        """Over the rounds of its verdict: those that are steady for it and for the fastest of the others."""
        return over_rounds(self.counted(model))

    def counted(self, model: str) -> list[float]:
        """The speeds of these rounds."""
        other = self.best_other(model)
        own, used = self.speeds[model], self._used(*filter(None, (model, other)))
        return [own[i] for i in used] or list(own.values())

    def _watched(self, *models: str) -> dict[str, dict[int, list[float]]]:
        """The reference products around these models, at the places that any took, by round that all of them have."""
        found = {}
        for place in dict.fromkeys(self.places[model] for model in models):
            every = [self.references[model][place] for model in models]
            found[place] = {i: [s for own in every for s in own[i]] for i in every[0] if all(i in own for own in every)}
        return found

    def _used(self, *models: str) -> list[int]:
        every = set.intersection(*(set(self.speeds[model]) for model in models))
        return _enough([i for i in steady_rounds(*self._watched(*models).values()) if i in every], every)

    @cached_property
    def pairs(self) -> Pairwise:
        """The logarithm of how many times as fast as the first the second of two models is."""
        return Pairwise.of(self.speeds, self._compared)

    def _compared(self, a: str, b: str) -> Difference | None:
        used = self._used(a, b)
        return paired(*([math.log(self.speeds[model][i]) for i in used] for model in (a, b)))

    def best_other(self, model: str) -> str | None:
        """The fastest of the others, over the rounds that are steady for all; None where there is none."""
        others = [name for name in self.speeds if name != model]
        return max(others, key=self._means.__getitem__) if others else None

    @cached_property
    def _means(self) -> dict[str, float]:
        """Mean log speed of each candidate."""
        used = set(self._used(*self.speeds))
        every = {model: [own[i] for i in own if i in used] or list(own.values()) for model, own in self.speeds.items()}
        return {model: statistics.fmean(map(math.log, own)) for model, own in every.items()}

    def steady(self, *models: str) -> Gate:
        """Validity check: the machine kept its speed in enough rounds, without drift."""
        times = {model: {i: 1 / speed for i, speed in self.speeds[model].items()} for model in models}
        return machine_steady(self._watched(*models), times)

    @cached_property
    def _ties(self) -> int:
        """Number of pairs that could be called a tie."""
        return sum(self.steady(*each).passed for each in self.pairs)

    def assess(self, model: str) -> Assessment:
        """Compare a model with the fastest of the others; p-values of all pairs are corrected together (Holm 1979)."""
        other = self.best_other(model)
        if other is None:
            return Assessment("not measurable", reasons=("no other model was measured",))
        steady = self.steady(model, other)
        where = {f"place of {name}": self.places[name] for name in (model, other) if len(self.references[name]) > 1}
        if not steady.passed:
            return Assessment("not measurable", other, reasons=(steady.sentence,), facts=where)
        difference, p = self.pairs.beside(model, other)
        if difference is None or p is None:
            return Assessment("not measurable", other, reasons=("one round, so no test over rounds",))
        margin = math.log1p(MARGIN)
        outcome = decide_outcome(difference, [steady], p, margin, self._ties)
        low, high = (math.exp(end) for end in difference.interval())
        ratio = Estimate(math.exp(difference.value), low, high)
        found = Assessment(outcome, other, ratio, "times as fast", p, "t-test over rounds, Holm", facts=where)
        if outcome == "tie":
            return replace(found, p=min(1.0, self._ties * difference.equivalence_p(margin)), test=EQUIVALENCE)
        if outcome == "undecided":
            seen = math.expm1(difference.detectable(level=self.pairs.level))
            return replace(
                found, reasons=(f"a difference of {seen:.0%} would have been seen in 80 % of such comparisons",)
            )
        return found

    def sign(self, model: str, other: str) -> int | None:
        """1 where it is faster by more than `MARGIN`, -1 where slower, 0 between; None where one was not measured."""
        if not {model, other} <= self.speeds.keys():
            return None
        used = self._used(model, other)
        ratios = [math.log(self.speeds[model][i] / self.speeds[other][i]) for i in used]
        return sign(math.exp(statistics.fmean(ratios))) if ratios else None

    def robustness(self, model: str, variations: Mapping[str, "SpeedBenchmark"]) -> dict[str, bool]:
        """In which variations it stands to the same other model as it does here; what is the same benchmark is none."""
        other = self.best_other(model)
        if other is None:
            return {}
        own = [self.speeds[model], self.speeds[other]]
        signs = {
            name: benchmark.sign(model, other)
            for name, benchmark in variations.items()
            if [benchmark.speeds.get(model), benchmark.speeds.get(other)] != own
        }
        return {name: each == self.sign(model, other) for name, each in signs.items() if each is not None}


def sign(ratio: float) -> int:
    """1 where it is above 1 by more than `MARGIN`, -1 where below, 0 between."""
    return 0 if abs(math.log(ratio)) <= math.log1p(MARGIN) else 1 if ratio > 1 else -1


def assess_count(
    model: str, figures: Mapping[str, float], variations: Mapping[str, Sequence[Mapping[str, float]]]
) -> Assessment:
    """Compare a counted figure with the highest of the others.

    Counts have no chance in them, so nothing is tested: a tie is a difference of no more than `MARGIN`.

    Args:
        model: the candidate.
        figures: by model, above 0; the higher the better.
        variations: other figures of the same kind; where there are several of one name, the outcome stays where all do.
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
    """Table of the ratios of speeds of all pairs, in each benchmark."""
    rows = []
    for what, benchmark in benchmarks.items():
        for (a, b), found in benchmark.pairs.items():
            ratio = Estimate(*(math.exp(each) for each in (found.value, *found.interval())))
            equal = found.equivalence_p(math.log1p(MARGIN))
            steady = benchmark.steady(a, b).passed
            # of too few rounds nothing is concluded, so nobody asks what they could have shown
            seen = 100 * math.expm1(found.detectable(level=benchmark.pairs.level)) if steady else None
            where = f"{benchmark.places[b]} / {benchmark.places[a]}"
            rows.append(
                (what, f"{b} / {a}", where, ratio, benchmark.pairs.p[a, b], equal, seen, "yes" if steady else "no")
            )
    columns = [
        "of",
        "models",
        "with",
        Interval("times as fast", lambda row: row[3], 3),
        Column("p (Holm)", lambda row: row[4], 4),
        Column(f"p (equal within {MARGIN:.0%})", lambda row: row[5], 4),
        Column("seen in 80 % (%)", lambda row: row[6], 1),
        Column("steady", lambda row: row[7]),
    ]
    return table("pairs", title, columns, rows)


def machine_table(rounds: Mapping[tuple[str, ...], Mapping[int, Measured]], heads: Sequence[str]) -> Table:
    """The reference product before and after each measurement, and how often it was made."""
    rows = (
        (*names, i, place, 1000 * seconds[0], 1000 * seconds[1], one["tries"])
        for names, own in rounds.items()
        for i, one in own.items()
        for place, seconds in one["references"].items()
    )
    title = "The machine: seconds of one and the same product of matrices before and after each measurement"
    return table("machine", title, (*heads, "round", "place", "before, ms", "after, ms", "measured so often"), rows)
