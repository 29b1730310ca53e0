"""Tables of `long_range`: tasks, trainings, settings, and differences between models."""

import statistics
from itertools import combinations

from s2s.evaluation.inference import holm
from s2s.experiments.long_range_trials import Sorted, difference_of, fisher, memory, of_task, success_rate
from s2s.results import Table

Row = list[str | float | int | None]


def summary(trials: Sorted) -> Table:
    """Tasks and models: seeds that succeed, accuracy, effective memory, updates."""
    rows: list[Row] = []
    for found in trials.values():
        trained, count = found.any["trained"], len(found.by_seed)
        rate = success_rate(found)
        longer = [percent(found.accuracy(place).value) for place in range(trained, len(found.any["distances"]))]
        rows.append(
            [
                found.name,
                found.model,
                f"{found.successes()} of {count} ({percent(rate.low):g} to {percent(rate.high):g} %)",
                percent(statistics.mean(found.inside())),
                *longer,
                percent(found.any["baseline"][trained - 1]),
                float(statistics.median(found.memories())),
                found.steps(),
            ]
        )
    return Table(
        name="tasks",
        title="Every task and model: solved seeds, accuracy, effective memory, and how soon it was learned",
        columns=[
            "task",
            "model",
            "seeds that succeed",
            "right as trained (%)",
            "at 2 × (%)",
            "at 4 × (%)",
            "without memory (%)",
            "effective memory (median)",
            "updates to 99 % (median)",
        ],
        rows=rows,
    )


def runs(trials: Sorted) -> Table:
    """Every training."""
    rows: list[Row] = []
    for found in trials.values():
        for seed, run in found.by_seed.items():
            tried = ", ".join(
                f"{rate}: {'failed' if loss is None else format(loss, '.3f')}" for rate, loss in run["losses"].items()
            )
            pieces = run["pieces"][: run["trained"]]
            rows.append(
                [
                    found.name,
                    found.model,
                    seed,
                    run["parameters"],
                    tried,
                    f"{run['rate']:g}",
                    run["updates"],
                    run["solved"],
                    round(run["loss"], 4),
                    percent(statistics.mean(pieces)),
                    memory(run),
                    round(run["seconds"], 1),
                    round(run["trial_seconds"], 1),
                ]
            )
    return Table(
        name="runs",
        title="Every training: what was tried, what was chosen, and what it cost",
        columns=[
            "task",
            "model",
            "seed",
            "parameters",
            "rates tried: loss on held-out examples",
            "rate chosen",
            "updates",
            "updates to 99 %",
            "loss at the end (nats per piece)",
            "right pieces as trained (%)",
            "effective memory",
            "seconds",
            "seconds for the other rates",
        ],
        rows=rows,
    )


def comparisons(trials: Sorted) -> Table:
    """Every pair of models, task by task."""
    rows, chances = [], []
    for name in dict.fromkeys(name for name, _ in trials):
        for first, second in combinations(of_task(trials, name), 2):
            place = first.any["trained"] - 1
            difference, p = difference_of(first, second, place)
            rows.append(
                [
                    name,
                    f"{second.model} − {first.model}",
                    first.any["distances"][place],
                    percent(difference.value),
                    percent(difference.low),
                    percent(difference.high),
                    p,
                ]
            )
            chances.append(fisher(first, second, place))
    return Table(
        name="comparisons",
        title="Differences between models at the longest trained distance",
        columns=[
            "task",
            "models",
            "distance",
            "difference (points)",
            "low",
            "high",
            "p over seeds (paired t-test)",
            "p over answers (Fisher's exact test, Holm)",
        ],
        rows=[[*row, p] for row, p in zip(rows, holm(chances), strict=True)],
    )


def percent(value: float | None) -> float | None:
    """A share in per cent, to a tenth."""
    return None if value is None else round(100 * value, 1)


def settings(trials: Sorted) -> Table:
    """Every model's settings, task by task: sizes of vocabularies differ, and so do widths of equal size."""
    rows: list[Row] = [
        [found.name, found.model, ", ".join(f"{key}: {value}" for key, value in found.any["settings"].items())]
        for found in trials.values()
    ]
    return Table(
        name="settings", title="Settings of the small models", columns=["task", "model", "settings"], rows=rows
    )
