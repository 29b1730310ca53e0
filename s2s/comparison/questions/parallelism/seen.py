"""Measurements of each candidate: counts by length, times by length and round."""

from collections.abc import Mapping, Sequence

from s2s.comparison.spec import Measured
from s2s.comparison.speed_benchmark import References, SpeedBenchmark, fastest_place, over_rounds, references, rivals
from s2s.comparison.workload import AS_BUILT, UNFUSED
from s2s.evaluation.gates import Gate, device_busy, machine_steady, steady_rounds

TYPICAL = 32
"""The length of a usual sentence, at which models are ranked by speed."""

# seconds by length and by round
Times = Mapping[int, Mapping[int, float]]


class Seen:
    """Measurements of one candidate: counted operations (unless counting failed), and times by round."""

    def __init__(self, counts: Measured | None, rounds: Mapping[int, Measured]) -> None:
        self._counts = counts or {"points": []}
        self.rounds = rounds

    @property
    def places(self) -> list[str]:
        """Compute placements, one thread first."""
        return list(next(iter(self.rounds.values()))["references"]) if self.rounds else []

    def counted(self, form: str, what: str, key: str) -> dict[int, int]:
        """A count by length."""
        points = [point for point in self._counts["points"] if (point["form"], point["what"]) == (form, what)]
        return {point["n"]: point[key] for point in points}

    def parallelism(self) -> dict[int, float]:
        """Work over span of a training step, by length."""
        work, span = (self.counted(UNFUSED.name, "training", key) for key in ("work", "span"))
        return {n: work[n] / span[n] for n in work}

    def seconds(self, batch: str, place: str, form: str = AS_BUILT) -> dict[int, dict[int, float]]:
        """Seconds of a training step, by length and round."""
        times: dict[int, dict[int, float]] = {}
        for i, one in self.rounds.items():
            for point in one["points"]:
                if (point["form"], point["batch"], point["place"]) == (form, batch, place):
                    times.setdefault(point["n"], {})[i] = point["seconds"]
        return times

    def fastest(self, batch: str, form: str = AS_BUILT) -> dict[int, dict[int, float]]:
        """Seconds of a training step by length and by round, each length at the place that is fastest for it."""
        at = {place: self.seconds(batch, place, form) for place in (rivals(self.places) if self.places else [])}
        watched_at = {place: references(self.rounds, place) for place in at}
        found = {}
        for n in sorted({n for times in at.values() for n in times}):
            speeds = {place: {i: 1 / s for i, s in times.get(n, {}).items()} for place, times in at.items()}
            found[n] = at[fastest_place(speeds, watched_at)][n]
        return found

    def speeds(self, batch: str, place: str, n: int) -> dict[int, float]:
        """Target tokens a second as built, by round."""
        rows = self._rows(batch)
        return {i: rows[n] * n / seconds for i, seconds in self.seconds(batch, place).get(n, {}).items()}

    def _rows(self, batch: str) -> dict[int, int]:
        """Texts in a batch, by length."""
        return {p["n"]: p["rows"] for one in self.rounds.values() for p in one["points"] if p["batch"] == batch}

    def busy(self, place: str, n: int) -> Gate | None:
        """Validity check: the device is busy with such a batch; None where it was not measured."""
        alone, together = (self.seconds(batch, place).get(n, {}) for batch in ("pair", "tokens"))
        if not alone or not together:
            return None
        one, many = (over_rounds(list(own.values())).value for own in (alone, together))
        return device_busy(one, many, self._rows("tokens")[n])

    def gains(self, place: str) -> dict[int, dict[int, float]]:
        """Speed-up over one thread, by length and steady round."""
        alone, together = (self.seconds("pair", name) for name in (self.places[0], place))
        both = {n: alone[n].keys() & together[n].keys() for n in alone if n in together}
        steady = set(steady_rounds(*self._watched(place).values())) or set(self.rounds)
        return {n: {i: alone[n][i] / together[n][i] for i in sorted(rounds & steady)} for n, rounds in both.items()}

    def steady(self, place: str) -> Gate:
        """Validity check: the machine kept its speed during the measurements."""
        return machine_steady(self._watched(place))

    def _watched(self, place: str) -> dict[str, References]:
        return {name: references(self.rounds, name) for name in (self.places[0], place)}

    def processors(self, place: str) -> float:
        """Speed-up of large matrix products over one thread: p in Brent's bounds."""
        flops = next(iter(self.rounds.values()))["flops"]
        alone, there = (flops[name] / min(map(min, own.values())) for name, own in self._watched(place).items())
        return there / alone


Models = Mapping[str, Seen]


def brent(parallelism: float, processors: float) -> tuple[float, float]:
    """The least and the greatest speed-up of p processors over one (Brent 1974).

    With work W and span S, the time of p processors is at least max(W/p, S) and at most W/p + S; one needs W.
    """
    return 1 / (1 / processors + 1 / parallelism), min(processors, parallelism)


def benchmarks(models: Models) -> dict[str, SpeedBenchmark]:
    """Training speed as it is ranked, first, and all variations."""
    timed = {model: seen for model, seen in models.items() if seen.rounds}
    if not timed:
        return {}
    names = next(iter(timed.values())).places
    lengths = sorted({n for seen in timed.values() for n in seen.fastest("tokens")})
    every = rivals(names)

    def _benchmark(batch: str, n: int, places: Sequence[str]) -> SpeedBenchmark:
        speeds = {model: {place: seen.speeds(batch, place, n) for place in places} for model, seen in timed.items()}
        held = {model: {place: references(seen.rounds, place) for place in places} for model, seen in timed.items()}
        return SpeedBenchmark.between(speeds, held)

    found = {f"n = {TYPICAL}": _benchmark("tokens", TYPICAL, every)}
    found |= {f"n = {n:,}": _benchmark("tokens", n, every) for n in lengths if n != TYPICAL}
    found["one pair at a time"] = _benchmark("pair", TYPICAL, every)
    # everybody at the same place
    found |= {name: _benchmark("tokens", TYPICAL, [name]) for name in every if [name] != every}
    return found
