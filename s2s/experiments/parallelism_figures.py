"""The figures of `parallelism`."""

from collections.abc import Callable, Mapping, Sequence

from s2s.experiments.parallelism_findings import BATCHES, Found, Repeated
from s2s.experiments.timing import median
from s2s.experiments.workload import AS_BUILT
from s2s.results import Axis, Figure, Series

_LENGTH = Axis(label="length n", unit="tokens", log=True)
_TIME = Axis(label="time", unit="ms", log=True)
_INTERVALS = "Intervals of medians, 95 %."
_CAPTIONS = {
    "tokens": "Every batch has as many tokens: longer texts are fewer. A model that is parallel over time hardly "
    "minds; a recurrent one has fewer texts to fill the machine with.",
    "rows": "Every batch has as many texts, so the work grows with n at least.",
}


def figures(found: Mapping[str, Found]) -> list[Figure]:
    """All figures that have a point."""
    drawn = [*_count_figures(found), *_time_figures(found), _share_figure(found)]
    return [figure for figure in drawn if figure.series]


def _count_figures(found: Mapping[str, Found]) -> list[Figure]:
    def lines(form: str, what: str, key: str, label: str) -> list[Series]:
        curves = [(model, *its.counted(form, what, key)) for model, its in found.items()]
        return [Series(label=label.format(model), model=model, x=[*x], y=[*y]) for model, x, y in curves if x]

    chain = Axis(label="longest chain of dependent operations", log=True)
    return [
        Figure(
            name="depth",
            title="How many operations of a training step must wait for each other",
            x=_LENGTH,
            y=chain,
            series=lines("unfused", "training", "depth", "{}"),
            caption="Forward and backward pass of one pair, counted without fused kernels. A level line: all positions "
            "are computed at once. A line that doubles with n: each waits for the one before.",
        ),
        Figure(
            name="depth-generating",
            title="How many must wait when each token is chosen after the one before: sequential for every model",
            x=_LENGTH,
            y=chain,
            series=lines("unfused", "generating", "depth", "{}"),
            caption="Greedy generation of n tokens from n tokens.",
        ),
        Figure(
            name="operations",
            title="Operations launched in a training step",
            x=_LENGTH,
            y=Axis(label="operations", log=True),
            series=lines("unfused", "training", "operations", "{}, unfused")
            + lines(AS_BUILT, "training", "operations", "{}, as built"),
            caption="As built, a fused kernel is one operation, whatever goes on inside it: it hides its own loop.",
        ),
    ]


def _time_figures(found: Mapping[str, Found]) -> list[Figure]:
    by_batch = [
        Figure(
            name=f"time-{batch}",
            title=f"Time of a training step at {words}",
            x=_LENGTH,
            y=_TIME,
            series=_curves(found, batch, lambda form: f", {form}", lambda repeated: repeated.step),
            caption=f"Forward and backward pass. {_CAPTIONS[batch]} {_INTERVALS}",
        )
        for batch, words in BATCHES.items()
    ]

    def only(part: str) -> Callable[[str], str]:
        return lambda form: f", {part}" if form == AS_BUILT else ""

    passes = Figure(
        name="passes",
        title="Forward and backward pass apart, at fixed batch, as built",
        x=_LENGTH,
        y=_TIME,
        series=_curves(found, "rows", only("forward"), lambda repeated: repeated.forward)
        + _curves(found, "rows", only("backward"), lambda repeated: repeated.backward),
        caption=_INTERVALS,
    )
    steps = {model: its.steps() for model, its in found.items()}
    decoding = Figure(
        name="decoding-step",
        title="Time of one decoding step after n tokens, at fixed batch",
        x=_LENGTH,
        y=_TIME,
        series=[_line(model, model, its, 1000) for model, its in steps.items() if its],
        caption="A recurrent state is as large after a thousand tokens as after one; a cache of keys and values is "
        f"read whole at each step. {_INTERVALS}",
    )
    return [*by_batch, passes, decoding]


def _curves(
    found: Mapping[str, Found],
    batch: str,
    label: Callable[[str], str],
    seconds: Callable[[Repeated], Sequence[float]],
) -> list[Series]:
    """One for each model and form that has a label."""
    return [
        _line(f"{model}{label(form)}", model, {n: seconds(repeated) for n, repeated in points.items()}, 1000)
        for model, its in found.items()
        for (form, kind), points in its.points.items()
        if kind == batch and label(form)
    ]


def _line(label: str, model: str, values: Mapping[int, Sequence[float]], scale: float) -> Series:
    """Medians with their intervals, by length."""
    middle = [median([scale * value for value in repeated]) for repeated in values.values()]
    return Series(
        label=label,
        model=model,
        x=[float(n) for n in values],
        y=[m.value for m in middle],
        low=[m.low for m in middle],
        high=[m.high for m in middle],
    )


def _share_figure(found: Mapping[str, Found]) -> Figure:
    shares = {model: its.shares() for model, its in found.items()}
    return Figure(
        name="share",
        title="Share of the machine's measured peak in training, at fixed tokens",
        x=_LENGTH,
        y=Axis(label="share of peak", unit="%", log=True),
        series=[_line(model, model, its, 1) for model, its in shares.items() if its],
        caption="Matrix products per second over the rate of the fastest large product. Large batches of short texts "
        f"(left) hide recurrence. {_INTERVALS}",
    )
