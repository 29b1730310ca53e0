"""Figures of whole runs, whatever their task: scores as bars, and curves over what was learned from."""

import statistics
from collections.abc import Mapping, Sequence

from s2s.evaluation.inference import Estimate, mean
from s2s.experiments.verdicts import BySeed, line
from s2s.results import Axis, Figure, Series


def score_bars(title: str, names: Sequence[str], scores: Mapping[str, Sequence[Estimate]], caption: str) -> Figure:
    """A group of bars for each score.

    Args:
        title: what the scores are of.
        names: of the scores.
        scores: each model's, in percent, in the order of the names.
        caption: what the intervals are.
    """
    series = [
        Series(
            label=model,
            model=model,
            x=list(names),
            y=[each.value for each in found],
            low=[each.low for each in found],
            high=[each.high for each in found],
        )
        for model, found in scores.items()
    ]
    return Figure(
        name="scores",
        title=title,
        kind="bars",
        x=Axis(label="metric"),
        y=Axis(label="score", unit="%"),
        series=series,
        caption=caption,
    )


def curves(runs: Mapping[str, BySeed], name: str, title: str, x: tuple[str, Axis], y: tuple[str, Axis]) -> Figure:
    """A curve for each model: means over seeds.

    Args:
        runs: with a list of numbers, one for each validation, under the keys of both axes, and `updates`.
        name: of the figure.
        title: of the figure.
        x: key and axis of what was learned from.
        y: key and axis of what was measured.
    """
    series = []
    for model, own in runs.items():
        # a run that lost patience has fewer validations
        count = min(len(run["updates"]) for run in own.values())
        found = [mean([run[y[0]][i] for run in own.values()]) for i in range(count)]
        places = [statistics.mean(run[x[0]][i] for run in own.values()) for i in range(count)]
        series.append(line(model, model, places, found, intervals=len(own) > 2))
    caption = "Means over seeds; intervals (95 %): Student's, from three seeds on."
    return Figure(name=name, title=title, x=x[1], y=y[1], series=series, caption=caption)
