"""Times of two models as rounds would have given them."""

from s2s.comparison.spec import Trial
from s2s.comparison.speed_benchmark import round_trials


def times(seconds, gain=1.0, factor=1.0, reference=0.001):
    """What a round would have given: seconds of a step on two threads, and `gain` times as many on one."""
    points = [
        {"form": "as built", "batch": batch, "place": place, "n": n, "rows": rows, "seconds": factor * s * times}
        for batch, rows in (("tokens", 2), ("pair", 1))
        for place, times in (("1 thread", gain), ("2 threads", 1.0))
        for n, s in seconds.items()
    ]
    references = {"1 thread": [2 * reference] * 2, "2 threads": [reference] * 2}
    flops = dict.fromkeys(references, 1000)
    return {"points": points, "notes": [], "flops": flops, "references": references, "tries": 1}


def operations():
    kinds = {"depth": 10, "count": 10, "span": 100, "undivided": 1000}
    points = [
        {"form": "unfused", "what": what, "n": n, "work": 50 * n, **kinds}
        for what in ("forward", "training", "generating")
        for n in (16, 32, 256)
    ]
    return {"points": points}


SLOW = (1.3, 1.0, 1.7, 1.1, 1.5, 1.2, 1.6, 1.4)


def planted(reference=0.001, of_rnn=1.0):
    found = {}
    for model, gain, seconds in (
        ("rnn", of_rnn, {16: 0.001, 32: 0.004, 256: 0.016}),
        ("transformer", 1.5, {16: 0.002, 32: 0.002, 256: 0.002}),
    ):
        found[Trial(model, "work")] = operations()
        for i, cell in enumerate(round_trials([model])):
            # rounds are fast and slow for both models alike, in no order that is a trend
            factor = SLOW[i] * (1 + i * (model == "rnn") / 1000)
            found[cell] = times(seconds, gain, factor, reference if i else 0.001)
    return found
