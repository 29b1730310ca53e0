"""Times in rounds: the machine is watched while they are measured, and models are compared round by round.

A round measures every model once, one after the other, and the next round begins when all had their turn: what slows
the machine for a minute falls on neighbours, and their ratio within a round keeps more of the truth than two times that
lie half an hour apart. So the unit of every interval and test is the round, not the repetition within it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

import torch

from s2s.evaluation.differences import Difference, Pairwise, paired
from s2s.evaluation.gates import Gate, Judgement, machine_steady, speed_changed, standing, steady_rounds
from s2s.evaluation.inference import Estimate, mean
from s2s.experiments.contest import Cell, Cells, Measured
from s2s.experiments.instruments import reference, rounded
from s2s.experiments.presenting import Column, Interval, table
from s2s.experiments.running import kept
from s2s.results import Table
from s2s.training.devices import Computer

ROUNDS = 8
MARGIN = 0.05
"""Share by which two speeds may differ and be called equal."""
_TRIES = 3
# seconds of the reference product by round
References = Mapping[int, Sequence[float]]


@dataclass(frozen=True)
class Place:
    """What computes: so many threads of a processor, or a GPU."""

    name: str
    computer: Computer
    threads: int

    @contextmanager
    def used(self) -> Iterator[None]:
        """Within it, torch computes with its threads."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def places(computer: Computer) -> list[Place]:
    """One thread of the processor, and all that a comparison may use: the last is what it uses."""
    device, threads = computer.device, torch.get_num_threads()
    if device.type != "cpu":
        alone = Place("1 thread", Computer(torch.device("cpu"), torch.float32), 1)
        return [alone, Place(device.type.upper(), computer, threads)]
    every = [Place("1 thread", computer, 1), Place(f"{threads} threads", computer, threads)]
    return every[:1] if threads == 1 else every


def watched(
    measure: Callable[[], Measured], where: Sequence[Place], folder: Path, cells: Sequence[Cell], cell: Cell
) -> Measured:
    """A measurement with the seconds of the reference product before and after it, at each place.

    It is made again, three times at most, where the machine has changed since its round began, or is slower than its
    clock explains; the steadiest is kept. As there may be half as many repetitions as cells, a machine that is never
    steady does not make a comparison much longer.

    Args:
        measure: what is to be measured.
        where: places that it uses.
        folder: of what was measured before.
        cells: all of the experiment that are measured so.
        cell: the one that is measured now.
    """
    before = {each: own.measured for each in cells if (own := kept(folder, each)) and own.measured}
    left = len(cells) // 2 - sum(own["tries"] - 1 for own in before.values())
    made: list[tuple[float, Measured]] = []
    while not made or (made[-1][0] > 0 and len(made) < min(_TRIES, 1 + left)):
        starts = _references(where)
        measured = measure()
        found = {name: [starts[name], end] for name, end in _references(where).items()}
        changed = max(_changed(name, own, before, cell) for name, own in found.items())
        made.append((changed, measured | {"references": found}))
    return min(made, key=lambda one: one[0])[1] | {"tries": len(made)}


def _changed(place: str, own: Sequence[float], before: Mapping[Cell, Measured], cell: Cell) -> float:
    """By how much the machine changed too much at a place, see `speed_changed`."""
    every = {each: one["references"].get(place, ()) for each, one in before.items()}
    this_round = [s for each, seconds in every.items() if each.part == cell.part for s in seconds]
    return speed_changed([*own, *this_round], min([*own, *chain.from_iterable(every.values())]))


def _references(where: Sequence[Place]) -> dict[str, float]:
    seconds = {}
    for place in where:
        with place.used():
            seconds[place.name] = rounded(reference(place.computer))
    return seconds


def round_cells(models: Sequence[str], seconds: float, part: str = "round", rounds: int = ROUNDS) -> list[Cell]:
    """All models in turn, round by round."""
    return [Cell(model, f"{part}-{i + 1}", seconds=seconds) for i in range(rounds) for model in models]


def by_round(measured: Cells, model: str, part: str = "round") -> dict[int, Measured]:
    """A model's measurements by round."""
    own = {cell.part: one for cell, one in measured.items() if cell.model == model}
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


@dataclass(frozen=True)
class Race:
    """Models' speeds, round by round; rounds in which the machine changed do not count.

    Attributes:
        speeds: above 0, by model and round; the higher the better.
        references: seconds of the reference product around them, by model.
    """

    speeds: Mapping[str, Mapping[int, float]]
    references: Mapping[str, References]

    def speed(self, model: str) -> Estimate:
        """Over the steady rounds of all models; over all of its own where there is none."""
        own = self.speeds[model]
        return over_rounds([own[i] for i in self._held(*self.references) if i in own] or list(own.values()))

    def _watched(self, *models: str) -> dict[int, list[float]]:
        """The reference products around these models, by round that all of them have."""
        every = [self.references[model] for model in models]
        return {i: [s for own in every for s in own[i]] for i in every[0] if all(i in own for own in every)}

    def _held(self, *models: str) -> list[int]:
        return steady_rounds(self._watched(*models))

    @cached_property
    def pairs(self) -> Pairwise:
        """The logarithm of how many times as fast as the first the second of two models is."""
        return Pairwise.of([model for model, own in self.speeds.items() if own], self._compared)

    def _compared(self, a: str, b: str) -> Difference | None:
        both = [i for i in self._held(a, b) if i in self.speeds[a] and i in self.speeds[b]]
        return paired(*([math.log(self.speeds[model][i]) for i in both] for model in (a, b)))

    def best_other(self, model: str) -> str | None:
        """The fastest of the others; None where there is none."""
        others = [name for name, own in self.speeds.items() if own and name != model]
        return max(others, key=lambda name: self.speed(name).value) if others else None

    def steady(self, *models: str) -> Gate:
        """Whether the machine kept its speed in enough rounds of these."""
        return machine_steady(self._watched(*models))

    def judged(self, model: str) -> Judgement:
        """How a model stands to the fastest of the others; p-values of all pairs are corrected together (Holm 1979)."""
        other = self.best_other(model)
        if other is None:
            return Judgement("not measurable", "no other model was measured")
        steady = self.steady(model, other)
        if not steady.passed:
            said = f"the machine changed while it and {other} were measured: {steady.sentence}"
            return Judgement("not measurable", f"not measurable: {said}")
        difference, p = self.pairs.beside(model, other)
        if difference is None or p is None:
            return Judgement("not measurable", f"one round says nothing of how it stands to {other}")
        ties = sum(self.steady(*each).passed for each in self.pairs)
        said = standing(difference, [steady], p, math.log1p(MARGIN), ties)
        low, high = (math.exp(end) for end in difference.interval())
        times = f"{math.exp(difference.value):.2f} times ({low:.2f} to {high:.2f}) as fast as {other}"
        if said == "tie":
            return Judgement(said, f"as fast as {other} within {MARGIN:.0%}: {times}")
        if said != "not measurable":
            return Judgement(said, f"{said}: {times}, the fastest of the others, p = {p:.2g}")
        seen = math.expm1(difference.detectable(level=self.pairs.level))
        return Judgement(
            said,
            f"no difference from {other} to be seen: {times}, p = {p:.2g}; one of {seen:.0%} would have been seen in "
            "80 % of such comparisons",
        )

    def sign(self, model: str, other: str) -> int | None:
        """1 where it is faster by more than `MARGIN`, -1 where slower, 0 between; None where one was not measured."""
        both = [self.speeds.get(name) for name in (model, other)]
        if not all(both):
            return None
        return sign(self.speed(model).value / self.speed(other).value)

    def kept(self, model: str, variations: Mapping[str, "Race"]) -> dict[str, bool]:
        """In which variations it stands to the same other model as it does here."""
        other = self.best_other(model)
        if other is None:
            return {}
        signs = {name: race.sign(model, other) for name, race in variations.items()}
        return {name: each == self.sign(model, other) for name, each in signs.items() if each is not None}


def sign(ratio: float) -> int:
    """1 where it is above 1 by more than `MARGIN`, -1 where below, 0 between."""
    return 0 if abs(math.log(ratio)) <= math.log1p(MARGIN) else 1 if ratio > 1 else -1


def counted_standing(
    model: str, verdict: str, figures: Mapping[str, float], variations: Mapping[str, Mapping[str, float]]
) -> Judgement:
    """How a figure that is counted stands to the highest of the others, and whether it does so in each variation.

    Without chance there is nothing to test: a tie is what differs by no more than `MARGIN`.

    Args:
        model: whose.
        verdict: what is said of it.
        figures: by model, above 0; the higher the better.
        variations: other figures of the same kind.
    """
    others = [name for name in figures if name != model]
    if not others:
        return Judgement("", verdict)
    other = max(others, key=lambda name: figures[name])
    here = sign(figures[model] / figures[other])
    known = {name: own for name, own in variations.items() if model in own and other in own}
    kept = {name: sign(own[model] / own[other]) == here for name, own in known.items()}
    return Judgement("tie" if not here else "better" if here > 0 else "worse", verdict, kept)


def pairs_table(title: str, races: Mapping[str, Race]) -> Table:
    """How many times as fast as one another models are, in each of the races."""
    rows = []
    for what, race in races.items():
        for (a, b), found in race.pairs.items():
            ratio = Estimate(*(math.exp(each) for each in (found.value, *found.interval())))
            equal = found.equivalence_p(math.log1p(MARGIN))
            steady = race.steady(a, b).passed
            # of too few rounds nothing is concluded, so nobody asks what they could have shown
            seen = 100 * math.expm1(found.detectable(level=race.pairs.level)) if steady else None
            rows.append((what, f"{b} / {a}", ratio, race.pairs.p[a, b], equal, seen, "yes" if steady else "no"))
    columns = [
        "of",
        "models",
        Interval("times as fast", lambda row: row[2], 3),
        Column("p (Holm)", lambda row: row[3], 4),
        Column(f"p (equal within {MARGIN:.0%})", lambda row: row[4], 4),
        Column("seen in 80 % (%)", lambda row: row[5], 1),
        Column("machine steady", lambda row: row[6]),
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
