"""Figures of the measured gradients, as data."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from s2s.evaluation.inference import mean
from s2s.experiments.contest import Measured, Task
from s2s.experiments.gradient_decay import brief
from s2s.experiments.gradient_tables import cells, normalised, taken
from s2s.experiments.training_dynamics import ALL
from s2s.results import Axis, Figure, Heatmap, Series

_BAND = "Lines are medians over texts, bands the middle 95 % of them (at initialisation: of texts and initialisations)."
_PATHS = {"whole": "whole", "attention": "through attention alone", "summary": "through the summary alone"}
_WINDOWS = 20
# of a curve, each of the first distances is drawn, and so many of those beyond
_NEAR = 32
_FAR = 32
_STAGES = (("initial", "", "at initialisation"), ("trained", "-trained", "after training"))


def figures(models: Sequence[str], measured: Mapping[Task, Measured]) -> list[Figure]:
    """All figures that have something to show."""
    found = [*_against_distance(models, measured), _paths(models, measured), _layer_norms(models, measured)]
    found += _training(models, measured)
    found += [_depth(models, measured), _by_layer(models, measured)]
    return [figure for figure in found if figure.series or figure.heatmaps]


def _against_distance(models: Sequence[str], measured: Mapping[Task, Measured]) -> Iterator[Figure]:
    kinds = (
        ("inputs", "input", "‖∂L/∂x‖", "Gradient of the last token's loss with respect to earlier inputs"),
        ("states", "state", "‖∂L/∂s‖", "Gradient of the last token's loss with respect to earlier states"),
        ("source", "source", "‖∂(w·summary)/∂x‖", "Gradient of the encoder's summary with respect to source pieces"),
    )
    notes = {
        "inputs": "A straight line here is a factor per step. A gradient of nought is not drawn.",
        "states": "The state is all that a decoder hands on: fixed-size for a recurrence, growing for a cache of keys "
        "and values, which is why its gradient may rise with the tokens it holds.",
        "source": "w is a random direction. A bidirectional encoder has both ends of the source near its summary, and "
        "a mean over positions has all of them near.",
    }
    for kind, name, symbol, title in kinds:
        for part, ending, when in _STAGES:
            series = [one for model in models if (one := _curve(taken(measured, model, part), kind, model))]
            yield Figure(
                name=f"{name}-gradients{ending}",
                title=f"{title}, {when}",
                x=Axis(label="distance from the end" if kind == "source" else "distance from the loss", unit="steps"),
                y=Axis(label=symbol, log=True),
                series=series,
                caption=f"{_BAND} {notes[kind]}",
            )


def _curve(measured: Sequence[Measured], kind: str, model: str) -> Series | None:
    curves = [one["curves"][kind] for one in measured if one.get("curves") and one["curves"][kind]]
    if not curves:
        return None
    shortest = min((each["distance"] for each in curves), key=len)
    drawn = _drawn(len(shortest))
    lines: dict[str, list[float | None]] = {
        name: [_together([each[name][i] for each in curves]) for i in drawn] for name in ("median", "low", "high")
    }
    places = [shortest[i] for i in drawn]
    return Series(label=model, model=model, x=places, y=lines["median"], low=lines["low"], high=lines["high"])


def _drawn(count: int) -> list[int]:
    """Which of so many points are drawn: all near ones, and beyond them so many that a line shows no more with all."""
    step = max(1, math.ceil((count - _NEAR) / _FAR))
    return [*range(min(_NEAR, count)), *range(_NEAR, count, step)]


def _together(values: Sequence[float | None]) -> float | None:
    """The geometric mean over seeds; None where one of them has none, or nought."""
    there = [value for value in values if value]
    if not values or len(there) < len(values):
        return None
    return brief(math.exp(sum(math.log(value) for value in there) / len(there)))


def _paths(models: Sequence[str], measured: Mapping[Task, Measured]) -> Figure:
    maps: list[list[Heatmap]] = []
    for model in models:
        maps.append([])
        kept = [one["maps"] for one in taken(measured, model, "trained") if "maps" in one]
        largest = max((value for row in kept[0]["paths"]["whole"] for value in row), default=0.0) if kept else 0.0
        for path, norms in kept[0]["paths"].items() if largest else ():
            values = [[brief(100 * value / largest) for value in row] for row in norms]
            words = _PATHS[path] if len(kept[0]["paths"]) > 1 else "whole (it has no attention)"
            rows, columns = kept[0]["target"], kept[0]["source"]
            one = Heatmap(label=f"{model}: {words}", model=model, rows=rows, columns=columns, values=values)
            maps[-1].append(one)
    return Figure(
        name="paths",
        title="Where the score of each written piece gets its gradient from, after training",
        kind="heatmaps",
        x=Axis(label="source piece"),
        y=Axis(label="‖∂ score / ∂ source vector‖, of the model's largest", unit="%"),
        # those with several paths first, so that each begins a line
        heatmaps=[one for own in sorted(maps, key=len, reverse=True) for one in own],
        caption="Rows are written pieces, columns source pieces; one sentence, the first seed. The whole is the "
        "sum, as vectors, of the other two. A map of noughts says that the decoder does not take that path.",
    )


def _dynamics(models: Sequence[str], measured: Mapping[Task, Measured]) -> dict[str, list[dict[str, Any]]]:
    found = {model: [one["dynamics"] for one in taken(measured, model, "trained")] for model in models}
    there = {model: [one for one in kept if one["losses"]] for model, kept in found.items()}
    return {model: kept for model, kept in there.items() if kept}


def _layer_norms(models: Sequence[str], measured: Mapping[Task, Measured]) -> Figure:
    maps = []
    for model, kept in _dynamics(models, measured).items():
        layers = kept[0]["layers"]
        windows = list(_windows(len(kept[0]["losses"])))
        maps.append(
            Heatmap(
                label=model,
                model=model,
                rows=_short(list(layers)),
                columns=[str(window.stop) for window in windows],
                values=[[_middle(norms[window]) for window in windows] for norms in layers.values()],
            )
        )
    return Figure(
        name="layer-norms",
        title="Gradient norm of each layer while learning to translate",
        kind="heatmaps",
        x=Axis(label="update"),
        y=Axis(label="gradient norm", log=True),
        heatmaps=maps,
        caption="Before clipping; medians over successive updates, the first seed.",
    )


def _short(layers: list[str]) -> list[str]:
    """Names of layers without what stands between their first and their last two words, where that is unique."""
    parts = [layer.split(".") for layer in layers]
    short = [".".join(p) if len(p) < 4 else f"{p[0]}…{'.'.join(p[-2:])}" for p in parts]
    return short if len(set(short)) == len(short) else layers


def _training(models: Sequence[str], measured: Mapping[Task, Measured]) -> Iterator[Figure]:
    kept = _dynamics(models, measured)
    update = Axis(label="update")
    yield Figure(
        name="gradient-norm",
        title="Norm of the whole gradient while learning to translate",
        x=update,
        y=Axis(label="gradient norm", log=True),
        series=[_windowed(model, [one["norms"] for one in runs], 1.0) for model, runs in kept.items()],
        caption="Before clipping; medians over successive updates, mean over seeds.",
    )
    yield Figure(
        name="clip-rate",
        title="How often the gradient is clipped",
        x=update,
        y=Axis(label="clipped updates", unit="%"),
        series=[_windowed(model, [one["clipped"] for one in runs], 100.0) for model, runs in kept.items()],
        caption="Share of successive updates whose gradient was longer than the recipe allows, mean over seeds.",
    )
    series = []
    for model, runs in kept.items():
        looks = min((one["looks"] for one in runs), key=len)
        values = [_mean([one["ratios"][ALL][i] for one in runs]) for i in range(len(looks))]
        series.append(Series(label=model, model=model, x=[float(look) for look in looks], y=values))
    yield Figure(
        name="update-ratio",
        title="How far an update moves the weights",
        x=update,
        y=Axis(label="‖Δw‖ / ‖w‖", log=True),
        series=series,
        caption="All weights together, mean over seeds; the rate's warm-up and schedule are part of it.",
    )


def _windows(updates: int) -> Iterator[slice]:
    size = max(1, math.ceil(updates / _WINDOWS))
    return (slice(first, min(first + size, updates)) for first in range(0, updates, size))


def _windowed(model: str, runs: Sequence[Sequence[float]], scale: float) -> Series:
    """Values by update, in windows: medians of what is measured, means of what is counted."""
    windows = list(_windows(min(len(run) for run in runs)))
    within = _middle if scale == 1.0 else _mean
    values = [_mean([within(run[window]) for run in runs]) for window in windows]
    ends = [float(window.stop) for window in windows]
    return Series(label=model, model=model, x=ends, y=[None if v is None else brief(scale * v) for v in values])


def _middle(values: Sequence[float | None]) -> float | None:
    there = sorted(value for value in values if value is not None)
    return there[len(there) // 2] if there else None


def _mean(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return brief(sum(there) / len(there)) if there else None


def _depth(models: Sequence[str], measured: Mapping[Task, Measured]) -> Figure:
    series = []
    for model in models:
        found = normalised(measured, model)
        for norm in dict.fromkeys(one["norm"] for one in found):
            names, estimates = [], []
            for (_, depth, warmup), runs in cells([one for one in found if one["norm"] == norm]):
                names.append(f"{depth} layers, {f'warm-up {warmup}' if warmup else 'no warm-up'}")
                good = [one["end"] for one in runs if one["end"] is not None]
                estimates.append(mean(good) if good else None)
            series.append(
                Series(
                    label=f"{model}, {norm}-norm",
                    model=model,
                    x=names,
                    y=[each and brief(each.value) for each in estimates],
                    low=[each and each.low for each in estimates],
                    high=[each and each.high for each in estimates],
                )
            )
    return Figure(
        name="norm-depth",
        title="Loss at the end of a short training, with normalisation before or after each block",
        kind="bars",
        x=Axis(label="layers of encoder and decoder, updates of warm-up"),
        y=Axis(label="loss", unit="nats per token"),
        series=series,
        caption="Mean of the last tenth of the updates. A missing bar is a training whose loss was not finite. "
        "Intervals over seeds where there are several.",
    )


def _by_layer(models: Sequence[str], measured: Mapping[Task, Measured]) -> Figure:
    series = []
    for model in models:
        found = normalised(measured, model)
        deepest = max((one["depth"] for one in found), default=0)
        for norm in dict.fromkeys(one["norm"] for one in found):
            runs = [one for one in found if one["norm"] == norm and one["depth"] == deepest]
            layers = list(runs[0]["layers"]) if runs else []
            values = [_mean([one["layers"].get(layer) for one in runs]) for layer in layers]
            series.append(Series(label=f"{model}, {norm}-norm", model=model, x=_short(layers), y=values))
    return Figure(
        name="norm-layers",
        title="Gradient norm of each layer at initialisation, with normalisation before or after each block",
        kind="bars",
        x=Axis(label="layer of the deepest model"),
        y=Axis(label="gradient norm", log=True),
        series=series,
        caption="Of the first batch. With post-norm, gradients are expected to be larger near the output, which is why "
        "it needs a warm-up (Xiong et al. 2020).",
    )
