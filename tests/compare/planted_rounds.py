"""Planted counts and rounds of two models for the question `parallelism`."""

from s2s.comparison.questions.parallelism.analyse import Count, Counts, StepTime, StepTimes
from s2s.comparison.spec import Trial
from s2s.comparison.speed_benchmark import round_trials


def times(seconds, gain=1.0, factor=1.0, reference=0.001):
    """A planted round: seconds of a step on two threads, and `gain` times as many on one."""
    points = [
        StepTime("as built", batch, place, n, rows, factor * s * times)
        for batch, rows in (("tokens", 2), ("pair", 1))
        for place, times in (("1 thread", gain), ("2 threads", 1.0))
        for n, s in seconds.items()
    ]
    references = {"1 thread": [2 * reference] * 2, "2 threads": [reference] * 2}
    return StepTimes(points=points, notes=[], flops=dict.fromkeys(references, 1000), references=references)


def counts(depth=lambda n: 10):
    return Counts(
        [
            Count("unfused", what, n, depth(n), count=10, work=50 * n, span=100, undivided=1000)
            for what in ("forward", "training", "generating")
            for n in (16, 32, 256)
        ]
    )


SLOW = (1.3, 1.0, 1.7, 1.1, 1.5, 1.2, 1.6, 1.4)


def planted(reference=0.001, of_rnn=1.0):
    found = {}
    for model, gain, seconds in (
        ("rnn", of_rnn, {16: 0.001, 32: 0.004, 256: 0.016}),
        ("transformer", 1.5, {16: 0.002, 32: 0.002, 256: 0.002}),
    ):
        found[Trial(model, "work")] = counts()
        for i, cell in enumerate(round_trials([model])):
            # rounds are fast and slow for both models alike, in no order that is a trend
            factor = SLOW[i] * (1 + i * (model == "rnn") / 1000)
            found[cell] = times(seconds, gain, factor, reference if i else 0.001)
    return found
