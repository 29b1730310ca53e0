"""Whole runs by model and seed as figures and tables show them, whatever their task."""

import statistics
from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from typing import TypeVar

from s2s.evaluation.inference import Estimate, mean
from s2s.experiments.contest import BySeed, Measured
from s2s.experiments.presenting import Column, axis, figure, series
from s2s.results import Axis, Figure

Runs = Mapping[str, BySeed]
P = TypeVar("P")


class SeedMean(Column):
    """A column of `every_model`: the mean over the seeds for which something is known; empty where nothing is."""

    def of(self, row: Measured) -> float | None:
        """The mean of what the column's value is in each of a model's runs."""
        known = [value for run in row["runs"].values() if (value := Column.of(self, run)) is not None]
        return statistics.mean(known) if known else None


def each_pair(runs: Runs, compared: Callable[[BySeed, BySeed], P | None]) -> dict[tuple[str, str], P]:
    """How the second of two models differs from the first, for all pairs that can be `compared`."""
    return {(a, b): pair for a, b in combinations(runs, 2) if (pair := compared(runs[a], runs[b]))}


def first_runs(runs: Runs) -> dict[str, Measured]:
    """Each model's run of its first seed."""
    return {model: next(iter(own.values())) for model, own in runs.items()}


def every_run(runs: Runs) -> Iterator[Measured]:
    """All runs, each with its model and its seed."""
    return ({"model": model, "seed": seed, **run} for model, own in runs.items() for seed, run in own.items())


def every_model(runs: Runs) -> Iterator[Measured]:
    """All models: their number of seeds, their runs by seed, and what the first of them left behind."""
    firsts = first_runs(runs)
    return ({**firsts[model], "model": model, "seeds": len(own), "runs": own} for model, own in runs.items())


def score_bars(scores: Mapping[str, Callable[[BySeed], Estimate]], runs: Runs, caption: str) -> Figure:
    """A group of bars for each score, in percent, of a model's runs."""
    shown = [series(m, m, list(scores), [score(own) for score in scores.values()]) for m, own in runs.items()]
    return figure("scores", "Scores on the test set", (axis("metric"), axis("score", "%")), shown, caption, "bars")


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
