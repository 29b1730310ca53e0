"""Measured gradients sorted by model, and their figures."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from s2s.evaluation.inference import Estimate, mean
from s2s.experiments.contest import Cells, Measured
from s2s.experiments.gradients.dynamics import ALL
from s2s.experiments.gradients.paths import brief
from s2s.experiments.presenting import axis, figure, series
from s2s.results import Figure, Heatmap, Series

_BAND = "Lines are medians over texts, bands the middle 95 % of them (at initialisation: of texts and initialisations)."
_PATHS = {"whole": "whole", "attention": "through attention alone", "summary": "through the summary alone"}
_WINDOWS = 20
# of a curve, each of the first distances is drawn, and so many of those beyond
_NEAR = 32
_FAR = 32
_STAGES = (("initial", "", "at initialisation"), ("trained", "-trained", "after training"))
# kind, name of its figure, symbol, title, what to look for
_KINDS = (
    (
        "inputs",
        "input",
        "‖∂L/∂x‖",
        "Gradient of the last token's loss with respect to earlier inputs",
        "A straight line here is a factor per step. A gradient of nought is not drawn.",
    ),
    (
        "states",
        "state",
        "‖∂L/∂s‖",
        "Gradient of the last token's loss with respect to earlier states",
        "The state is all that a decoder hands on: fixed-size for a recurrence, growing for a cache of keys "
        "and values, which is why its gradient may rise with the tokens it holds.",
    ),
    (
        "source",
        "source",
        "‖∂(w·summary)/∂x‖",
        "Gradient of the encoder's summary with respect to source pieces",
        "w is a random direction. A bidirectional encoder has both ends of the source near its summary, and "
        "a mean over positions has all of them near.",
    ),
)


@dataclass(frozen=True)
class Seen:
    """All that was measured."""

    models: Sequence[str]  # in the order of the command
    measured: Cells  # cell by cell

    def taken(self, model: str, part: str) -> list[Measured]:
        """A model's measurements of one kind, by seed."""
        cells = [cell for cell in self.measured if cell.model == model and cell.part == part]
        return [self.measured[cell] for cell in sorted(cells, key=lambda cell: cell.seed or 0)]

    def weights(self, model: str, part: str) -> list[dict[str, Any]]:
        """What was seen of each set of weights."""
        return [weights for one in self.taken(model, part) for weights in one.get("weights", [])]

    def fits(self, model: str, part: str, of: str) -> list[dict[str, Any]]:
        """The fits of one kind of gradient, one for each set of weights."""
        return [weights[of] for weights in self.weights(model, part) if weights[of] is not None]

    def maps(self, model: str) -> list[dict[str, Any]]:
        """The paths to the source after training, by seed."""
        return [one["maps"] for one in self.taken(model, "trained") if "maps" in one]

    def dynamics(self) -> dict[str, list[dict[str, Any]]]:
        """Each model's trainings in which anything was learned from."""
        runs = {model: [one["dynamics"] for one in self.taken(model, "trained")] for model in self.models}
        there = {model: [one for one in own if one["losses"]] for model, own in runs.items()}
        return {model: own for model, own in there.items() if own}

    def normalised(self, model: str) -> list[Measured]:
        """A model's trainings with either normalisation, by kind, depth and warm-up."""
        runs = [one for cell, one in self.measured.items() if cell.model == model and cell.part.startswith("norm-")]
        return sorted(runs, key=lambda one: (one["norm"] == "post", one["depth"], one["warmup"]))


def alike(runs: Sequence[Measured]) -> Iterator[tuple[tuple[str, int, int], list[Measured]]]:
    """Trainings with either normalisation by kind, depth and warm-up, the seeds of each together."""
    kinds = [(one["norm"], one["depth"], one["warmup"]) for one in runs]
    for kind in dict.fromkeys(kinds):
        yield kind, [one for one, own in zip(runs, kinds, strict=True) if own == kind]


def average(values: Sequence[float | None]) -> float | None:
    """The mean of those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def middle(values: Sequence[float | None]) -> float | None:
    """The middle one of those that are known; None where none is."""
    known = sorted(value for value in values if value is not None)
    return known[len(known) // 2] if known else None


def figures(seen: Seen) -> list[Figure]:
    """All figures; some may have nothing to show."""
    return [*_against_distance(seen), _paths(seen), _layer_norms(seen), *_training(seen), _depth(seen), _by_layer(seen)]


def _against_distance(seen: Seen) -> Iterator[Figure]:
    for kind, name, symbol, title, note in _KINDS:
        distance = axis("distance from the end" if kind == "source" else "distance from the loss", "steps")
        for part, ending, when in _STAGES:
            curves = [curve for model in seen.models if (curve := _curve(seen.taken(model, part), kind, model))]
            axes = (distance, axis(symbol, log=True))
            yield figure(f"{name}-gradients{ending}", f"{title}, {when}", axes, curves, f"{_BAND} {note}")


def _curve(measured: Sequence[Measured], kind: str, model: str) -> Series | None:
    curves = [one["curves"][kind] for one in measured if one.get("curves") and one["curves"][kind]]
    if not curves:
        return None
    shortest = min((each["distance"] for each in curves), key=len)
    # all near points, and beyond them so many that a line shows no more with all
    step = max(1, math.ceil((len(shortest) - _NEAR) / _FAR))
    drawn = [*range(min(_NEAR, len(shortest))), *range(_NEAR, len(shortest), step)]

    def together(name: str, i: int) -> float | None:
        # the geometric mean over seeds; none where one of them has none, or nought
        values = [each[name][i] for each in curves]
        return brief(math.exp(sum(map(math.log, values)) / len(values))) if all(values) else None

    ends = [[together(name, i) for name in ("median", "low", "high")] for i in drawn]
    return series(model, model, [shortest[i] for i in drawn], [Estimate(*each) for each in ends])  # pyright: ignore[reportArgumentType]


def _paths(seen: Seen) -> Figure:
    maps: list[list[Heatmap]] = []
    for model, first in ((model, kept[0]) for model in seen.models if (kept := seen.maps(model))):
        largest = max((value for row in first["paths"]["whole"] for value in row), default=0.0)
        words = _PATHS if len(first["paths"]) > 1 else {"whole": "whole (it has no attention)"}
        maps.append(
            [
                Heatmap(
                    label=f"{model}: {words[path]}",
                    model=model,
                    rows=first["target"],
                    columns=first["source"],
                    values=[[brief(100 * value / largest) for value in row] for row in norms],
                )
                for path, norms in first["paths"].items()
                if largest
            ]
        )
    return Figure(
        name="paths",
        title="Where the score of each written piece gets its gradient from, after training",
        kind="heatmaps",
        x=axis("source piece"),
        y=axis("‖∂ score / ∂ source vector‖, of the model's largest", "%"),
        # those with several paths first, so that each begins a line
        heatmaps=[one for own in sorted(maps, key=len, reverse=True) for one in own],
        caption="Rows are written pieces, columns source pieces; one sentence, the first seed. The whole is the "
        "sum, as vectors, of the other two. A map of noughts says that the decoder does not take that path.",
    )


def _layer_norms(seen: Seen) -> Figure:
    maps = []
    for model, runs in seen.dynamics().items():
        layers, windows = runs[0]["layers"], _windows(len(runs[0]["losses"]))
        maps.append(
            Heatmap(
                label=model,
                model=model,
                rows=_short(list(layers)),
                columns=[str(window.stop) for window in windows],
                values=[[middle(norms[window]) for window in windows] for norms in layers.values()],
            )
        )
    return Figure(
        name="layer-norms",
        title="Gradient norm of each layer while learning to translate",
        kind="heatmaps",
        x=axis("update"),
        y=axis("gradient norm", log=True),
        heatmaps=maps,
        caption="Before clipping; medians over successive updates, the first seed.",
    )


def _short(layers: list[str]) -> list[str]:
    """Names of layers without what stands between their first and their last two words, where that is unique."""
    parts = [layer.split(".") for layer in layers]
    short = [".".join(p) if len(p) < 4 else f"{p[0]}…{'.'.join(p[-2:])}" for p in parts]
    return short if len(set(short)) == len(short) else layers


def _training(seen: Seen) -> list[Figure]:
    moved = []
    for model, runs in seen.dynamics().items():
        looks = min((one["looks"] for one in runs), key=len)
        ratios = [brief(average([one["ratios"][ALL][i] for one in runs])) for i in range(len(looks))]
        moved.append(series(model, model, looks, ratios))
    update = axis("update")
    return [
        figure(
            "gradient-norm",
            "Norm of the whole gradient while learning to translate",
            (update, axis("gradient norm", log=True)),
            _windowed(seen, "norms", middle, 1.0),
            "Before clipping; medians over successive updates, mean over seeds.",
        ),
        figure(
            "clip-rate",
            "How often the gradient is clipped",
            (update, axis("clipped updates", "%")),
            _windowed(seen, "clipped", average, 100.0),
            "Share of successive updates whose gradient was longer than the recipe allows, mean over seeds.",
        ),
        figure(
            "update-ratio",
            "How far an update moves the weights",
            (update, axis("‖Δw‖ / ‖w‖", log=True)),
            moved,
            "All weights together, mean over seeds; the rate's warm-up and schedule are part of it.",
        ),
    ]


def _windows(updates: int) -> list[slice]:
    size = max(1, math.ceil(updates / _WINDOWS))
    return [slice(first, min(first + size, updates)) for first in range(0, updates, size)]


def _windowed(seen: Seen, key: str, within: Callable[..., float | None], scale: float) -> list[Series]:
    """Values by update, in windows: medians of what is measured, means of what is counted."""
    shown = []
    for model, runs in seen.dynamics().items():
        windows = _windows(min(len(one[key]) for one in runs))
        values = [brief(average([brief(within(one[key][window])) for one in runs])) for window in windows]
        ends = [float(window.stop) for window in windows]
        shown.append(series(model, model, ends, [v if v is None else brief(scale * v) for v in values]))
    return shown


def _depth(seen: Seen) -> Figure:
    shown = []
    for model, norm, runs in _by_norm(seen):
        names, ends = [], []
        for (_, depth, warmup), of_kind in alike(runs):
            names.append(f"{depth} layers, {f'warm-up {warmup}' if warmup else 'no warm-up'}")
            good = [one["end"] for one in of_kind if one["end"] is not None]
            ends.append(replace(end, value=brief(end.value)) if (end := mean(good) if good else None) else None)
        shown.append(series(f"{model}, {norm}-norm", model, names, ends, intervals=True))
    return figure(
        "norm-depth",
        "Loss at the end of a short training, with normalisation before or after each block",
        (axis("layers of encoder and decoder, updates of warm-up"), axis("loss", "nats per token")),
        shown,
        "Mean of the last tenth of the updates. A missing bar is a training whose loss was not finite. "
        "Intervals over seeds where there are several.",
        "bars",
    )


def _by_norm(seen: Seen) -> Iterator[tuple[str, str, list[Measured]]]:
    """Each model's trainings with one normalisation."""
    for model in seen.models:
        runs = seen.normalised(model)
        for norm in dict.fromkeys(one["norm"] for one in runs):
            yield model, norm, [one for one in runs if one["norm"] == norm]


def _by_layer(seen: Seen) -> Figure:
    shown = []
    for model, norm, runs in _by_norm(seen):
        deepest = max(one["depth"] for one in seen.normalised(model))
        deep = [one for one in runs if one["depth"] == deepest]
        layers = list(deep[0]["layers"]) if deep else []
        values = [brief(average([one["layers"].get(layer) for one in deep])) for layer in layers]
        shown.append(series(f"{model}, {norm}-norm", model, _short(layers), values))
    return figure(
        "norm-layers",
        "Gradient norm of each layer at initialisation, with normalisation before or after each block",
        (axis("layer of the deepest model"), axis("gradient norm", log=True)),
        shown,
        "Of the first batch. With post-norm, gradients are expected to be larger near the output, which is why "
        "it needs a warm-up (Xiong et al. 2020).",
        "bars",
    )
