"""Measured gradients sorted by model, and their figures."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from s2s.comparison.paired_tests import listed
from s2s.comparison.questions.gradients.paths import Fit, brief, factor_of
from s2s.comparison.questions.gradients.sweep import VALUES, WORDS, Kind
from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.results import Figure, Heatmap
from s2s.comparison.spec import Measured, Trial, Trials
from s2s.evaluation.inference import Estimate, mean

SWEPT = "gradient-sweep"
_BAND = "Lines are medians over texts, bands the middle 95 % of them (at initialisation: of texts and initialisations)."
_PATHS = {"whole": "whole", "attention": "through attention alone", "summary": "through the summary alone"}
# of a curve, each of the first distances is drawn, and so many of those beyond
_NEAR = 32
_FAR = 32
_STAGES = (("own", "", "at initialisation"), ("learned", "-trained", "after training"))
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
        "source",
        "source",
        "‖∂(w·summary)/∂x‖",
        "Gradient of the encoder's summary with respect to source pieces",
        "w is a random direction. A bidirectional encoder has both ends of the source near its summary, and "
        "a mean over positions has all of them near.",
    ),
)


@dataclass(frozen=True)
class Turned:
    """A model's fits at every value of what can be turned in its initialisation.

    Attributes:
        kind: what is turned.
        own: its value in the model's own initialisation.
        fits: of all sets of weights, by value.
    """

    kind: Kind
    own: float
    fits: dict[float, list[Fit]]


@dataclass(frozen=True)
class Seen:
    """The trials of the question, by candidate and part."""

    models: Sequence[str]  # in the order of the command
    measured: Trials  # cell by cell

    def taken(self, model: str, part: str) -> list[Measured]:
        """A model's measurements of one kind, by seed."""
        trials = [trial for trial in self.measured if trial.model == model and trial.part == part]
        return [self.measured[trial] for trial in sorted(trials, key=lambda trial: trial.seed or 0)]

    def weights(self, model: str, part: str) -> list[dict[str, Any]]:
        """Measurements of each initialization."""
        return [weights for one in self.taken(model, part) for weights in one.get("weights", [])]

    def fits(self, model: str, part: str, of: str) -> list[Fit]:
        """The fits of one kind of gradient, one for each set of weights."""
        return [weights[of] for weights in self.weights(model, part) if weights[of] is not None]

    def maps(self, model: str) -> list[dict[str, Any]]:
        """The paths to the source after training, by seed."""
        return [one["maps"] for one in self.taken(model, "learned")]

    def turned(self, model: str) -> Turned | None:
        """Its initialisations, from vanishing to exploding; None where none were measured."""
        own = [one["knob"] for one in self.taken(model, "own") if one["knob"] is not None]
        for kind in VALUES:
            runs = self.taken(model, f"by-{kind}")
            if runs and own:
                fits = {
                    value: [
                        fit for one in runs for each in one["values"] if each["value"] == value for fit in each["fits"]
                    ]
                    for value in VALUES[kind]
                }
                return Turned(kind, sum(own) / len(own), fits)
        return None

    def deep(self, model: str) -> dict[Trial, Measured]:
        """A model's trainings with either normalisation."""
        return {trial: one for trial, one in self.measured.items() if trial.model == model and "-warmup-" in trial.part}


def average(values: Sequence[float | None]) -> float | None:
    """The mean of those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def figures(seen: Seen) -> list[Figure]:
    """All figures; some may be empty."""
    return [*_sweeps(seen), *_against_distance(seen), _paths(seen), _deep(seen)]


def _sweeps(seen: Seen) -> Iterator[Figure]:
    """Factors against what is turned, beside the models' own initialisation."""
    for kind, words in WORDS.items():
        shown = []
        for model in seen.models:
            turned = seen.turned(model)
            if turned is None or turned.kind != kind:
                continue
            own = factor_of(seen.fits(model, "own", "inputs"))
            shown.append(series(model, model, list(turned.fits), [factor_of(fits) for fits in turned.fits.values()]))
            shown.append(series(f"{model}, its own initialisation", model, [turned.own], [own]))
        ends = [min(VALUES[kind]), max(VALUES[kind])]
        if shown:
            shown.append(series("neither vanishing nor exploding", "", ends, [1.0, 1.0], reference=True))
        without = [model for model in seen.models if model not in {each.model for each in shown}]
        title = f"A gradient's factor per step against the {words}, untrained"
        note = "Below 1 gradients vanish, above they explode. Intervals (95 %): Student's, over initialisations."
        note += f" Not in it, as they have no {words}: {listed(without)}." if without else ""
        yield figure(f"{SWEPT}-{kind}", title, (axis(words), axis("factor per step")), shown, note)


def _against_distance(seen: Seen) -> Iterator[Figure]:
    for kind, name, symbol, title, note in _KINDS:
        distance = axis("distance from the end" if kind == "source" else "distance from the loss", "steps")
        for part, ending, when in _STAGES:
            curves = [curve for model in seen.models if (curve := _curve(seen.taken(model, part), kind, model))]
            axes = (distance, axis(symbol, log=True))
            yield figure(f"{name}-gradients{ending}", f"{title}, {when}", axes, curves, f"{_BAND} {note}")


def _curve(measured: Sequence[Measured], kind: str, model: str) -> Any:
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


def _deep(seen: Seen) -> Figure:
    shown, unigrams, last = [], None, 0
    for model in seen.models:
        runs = seen.deep(model)
        for part in dict.fromkeys(trial.part for trial in runs):
            own = [one for trial, one in runs.items() if trial.part == part]
            losses = [mean(values) for values in zip(*(one["losses"] for one in own), strict=True)]
            shown.append(series(f"{model}, {part.replace('-', ' ')}", part, own[0]["updates"], losses))
            unigrams, last = own[0]["unigrams"], max(last, own[0]["updates"][-1])
    if unigrams is not None:
        shown.append(series("frequencies of pieces alone", "", [0.0, last], [unigrams] * 2, reference=True))
    return figure(
        "norm",
        "Learning with normalisation before and after each block, with and without warm-up",
        (axis("updates"), axis("validation loss", "nats per token")),
        shown,
        "Means over seeds; intervals (95 %): Student's.",
    )
