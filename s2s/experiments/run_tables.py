"""Whole runs by model and seed as figures and tables show them, whatever their task."""

import statistics
from collections.abc import Callable, Iterator, Mapping

from s2s.evaluation.inference import Estimate, mean
from s2s.experiments.contest import BySeed, Measured
from s2s.experiments.presenting import axis, figure, series
from s2s.results import Axis, Figure

Runs = Mapping[str, BySeed]


def first_runs(runs: Runs) -> dict[str, Measured]:
    """Each model's run of its first seed."""
    return {model: next(iter(own.values())) for model, own in runs.items()}


def every_run(runs: Runs) -> Iterator[Measured]:
    """All runs, each with its model and its seed."""
    return ({"model": model, "seed": seed, **run} for model, own in runs.items() for seed, run in own.items())


def every_model(runs: Runs) -> Iterator[Measured]:
    """All models: their number of seeds, their runs, and what the first of them left behind."""
    return ({**run, "model": model, "seeds": len(runs[model])} for model, run in first_runs(runs).items())


def over_seeds(runs: Runs, value: Callable[[Measured], float | None]) -> Callable[[Measured], float | None]:
    """Gives the mean over the seeds of a row's model for which something is known; None where nothing is."""

    def _averaged(row: Measured) -> float | None:
        values = [known for run in runs[row["model"]].values() if (known := value(run)) is not None]
        return statistics.mean(values) if values else None

    return _averaged


def score_bars(title: str, scores: Mapping[str, Callable[[BySeed], Estimate]], runs: Runs, caption: str) -> Figure:
    """A group of bars for each score, in percent, of a model's runs."""
    shown = [series(m, m, list(scores), [score(own) for score in scores.values()]) for m, own in runs.items()]
    return figure("scores", title, (axis("metric"), axis("score", "%")), shown, caption, "bars")


def curves(runs: Runs, name: str, title: str, x: tuple[str, str, Axis], y: tuple[str, Axis]) -> Figure:
    """A curve for each model: means over seeds.

    Args:
        runs: with a list of numbers, one for each validation, under the keys of both axes, and `updates`.
        name: of the figure, but for what it is drawn against.
        title: likewise.
        x: key, words and axis of what was learned from.
        y: key and axis of what was measured.
    """
    shown = []
    for model, own in runs.items():
        # a run that lost patience has fewer validations
        count = min(len(run["updates"]) for run in own.values())
        values = [mean([run[y[0]][i] for run in own.values()]) for i in range(count)]
        places = [statistics.mean(run[x[0]][i] for run in own.values()) for i in range(count)]
        shown.append(series(model, model, places, values, intervals=len(own) > 2))
    caption = "Means over seeds; intervals (95 %): Student's, from three seeds on."
    return figure(f"{name}-{x[0]}", f"{title} against {x[1]}", (x[2], y[1]), shown, caption)
