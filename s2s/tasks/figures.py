"""Figures of tasks: confusion matrix, calibration, curves, lengths, words, images."""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int, UInt8

from s2s.evaluation.classification import Calibration, shortened
from s2s.training.figures import diverging, new_figure, show_image

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    from s2s.inspection.saliency import Reading

# Colors that color-blind readers can distinguish (Okabe & Ito 2008), as in the reports of comparisons.
_BLUE, _ORANGE, _GREY = "#0072b2", "#d55e00", "#737373"
_SMALL = 8
# Up to this number of classes, the cells of the confusion matrix show counts.
_WRITTEN_CLASSES = 20
# Up to this number of classes, every class has a label. With more, only some have: a figure of a thousand labelled
# classes would take 16 GB.
_NAMED_CLASSES = 100
# Characters in a line of text, and the size of a character of DejaVu Sans Mono at `_SMALL` points, in inches.
_COLUMNS = 100
_LETTER_WIDTH, _LINE_HEIGHT = 0.602 * _SMALL / 72, 1.75 * _SMALL / 72


@dataclass(frozen=True)
class Curve:
    """Learning curve of one split.

    Attributes:
        updates: Optimizer steps of the measurements.
        loss: Loss in nats at each of them.
        accuracy: Accuracy in percent at each of them; empty if not measured.
    """

    label: str
    updates: Sequence[int]
    loss: Sequence[float]
    accuracy: Sequence[float] = ()


def confusion_picture(matrix: Int[np.ndarray, "truth predicted"], names: Sequence[str]) -> "Figure":
    """Draw a confusion matrix.

    Rows are true classes, columns predicted classes. Dark cells have a large share of the true class.
    """
    # Space for the names beside the matrix.
    room = 0.09 * max(len(shortened(name)) for name in names)
    side = 0.42 * min(len(names), _NAMED_CLASSES)
    figure = new_figure(2.0 + room + side, 1.0 + room + side)
    panel = figure.subplots()
    shares = matrix / np.maximum(1, matrix.sum(axis=1, keepdims=True))
    image = panel.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    places = _named(len(names))
    labels = [shortened(names[place]) for place in places]
    panel.set_xticks(places, labels, rotation=90, fontsize=_SMALL, parse_math=False)
    panel.set_yticks(places, labels, fontsize=_SMALL, parse_math=False)
    panel.set_xlabel("predicted", fontsize=9)
    panel.set_ylabel("true", fontsize=9)
    if len(names) <= _WRITTEN_CLASSES:
        for (row, column), count in np.ndenumerate(matrix):
            colour = "white" if shares[row, column] > 0.5 else "black"
            panel.text(column, row, f"{count:,}", ha="center", va="center", fontsize=6, color=colour)
    bar = figure.colorbar(image, ax=panel, fraction=0.046)
    bar.set_label("share of the true class", fontsize=9)
    bar.ax.tick_params(labelsize=_SMALL)
    return figure


def reliability_picture(calibration: Calibration) -> "Figure":
    """Draw a reliability diagram above a histogram of confidence.

    Error bars are Wilson intervals. A calibrated model is on the diagonal; an overconfident model is below it.
    """
    figure = new_figure(4.4, 5.2)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    upper.plot((0, 100), (0, 100), color=_GREY, linestyle="--", linewidth=1, label="calibrated")
    confidence = [each.confidence for each in calibration.bins]
    accuracy = [each.accuracy.value for each in calibration.bins]
    upper.vlines(
        confidence,
        [each.accuracy.low for each in calibration.bins],
        [each.accuracy.high for each in calibration.bins],
        color=_BLUE,
        linewidth=1,
    )
    upper.plot(confidence, accuracy, color=_BLUE, marker="o", markersize=4, linewidth=1.2, label="measured")
    upper.set(ylim=(0, 100), ylabel="accuracy (%)")
    upper.set_title(f"expected calibration error {calibration.error:.2f} %, {calibration}", fontsize=_SMALL)
    upper.legend(frameon=False, fontsize=_SMALL, loc="upper left")
    starts = [100 * each.low for each in calibration.bins]
    # A bin with equal confidences has no width, and would be invisible.
    widths = [max(0.3, 100 * (each.high - each.low)) for each in calibration.bins]
    counts = [each.count for each in calibration.bins]
    lower.bar(starts, counts, widths, align="edge", color=_BLUE, edgecolor="white", linewidth=0.5)
    lower.set(xlim=(0, 100), ylabel="examples", xlabel="confidence (%)")
    _bare(upper, lower)
    return figure


def curves_picture(curves: Sequence[Curve]) -> "Figure":
    """Draw loss and, if measured, accuracy against optimizer steps."""
    with_accuracy = any(len(curve.accuracy) for curve in curves)
    figure = new_figure(8.0 if with_accuracy else 4.4, 3.3)
    panels = figure.subplots(1, 2 if with_accuracy else 1, squeeze=False)[0]
    for curve, colour, line in zip(curves, (_BLUE, _ORANGE, _GREY), ("-", "--", ":"), strict=False):
        look = {"color": colour, "linestyle": line, "linewidth": 1.3, "label": curve.label}
        # Markers show the measurements if there are only a few.
        look |= {"marker": "o", "markersize": 3} if len(curve.updates) <= 30 else {}
        panels[0].plot(curve.updates, curve.loss, **look)
        if len(curve.accuracy):
            panels[1].plot(curve.updates, curve.accuracy, **look)
    panels[0].set_ylabel("loss (nats per example)")
    if with_accuracy:
        panels[1].set_ylabel("accuracy (%)")
    for panel in panels:
        panel.set_xlabel("updates")
        panel.legend(frameon=False, fontsize=_SMALL)
    _bare(*panels)
    return figure


def lengths_picture(lengths: Int[np.ndarray, " examples"], max_length: int | None = None) -> "Figure":
    """Draw a histogram of lengths in tokens."""
    figure = new_figure(5.2, 3.0)
    panel = figure.subplots()
    longest = int(lengths.max(initial=1))
    # Bins of whole numbers, so that each bin covers equally many lengths.
    step = max(1, -(-longest // 60))
    panel.hist(lengths, bins=np.arange(0, longest + step + 1, step).tolist(), color=_BLUE)
    panel.set(xlabel="length (tokens)", ylabel="examples")
    title = f"{len(lengths):,} examples, median {np.median(lengths) if len(lengths) else 0:.0f}, longest {longest:,}"
    if max_length is not None:
        longer = int((lengths > max_length).sum())
        panel.axvline(max_length, color=_ORANGE, linestyle="--", linewidth=1.2)
        title += f"; {longer:,} longer than {max_length:,}"
    panel.set_title(title, fontsize=_SMALL)
    _bare(panel)
    return figure


def class_counts_picture(counts: Mapping[str, int]) -> "Figure":
    """Draw the number of examples of each class as bars."""
    from matplotlib.ticker import MaxNLocator

    figure = new_figure(5.2, 1.0 + 0.24 * min(len(counts), _NAMED_CLASSES))
    panel = figure.subplots()
    panel.barh(range(len(counts)), list(counts.values()), color=_BLUE)
    names, places = list(counts), _named(len(counts))
    panel.set_yticks(places, [shortened(names[place]) for place in places], fontsize=_SMALL, parse_math=False)
    panel.invert_yaxis()
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set_xlabel("examples")
    _bare(panel)
    return figure


def words_picture(readings: Sequence["Reading"]) -> "Figure":
    """Draw texts with each word's background colored by its weight.

    Blue words support the predicted class, orange words oppose it; attention weights are never negative.
    """
    lines: list[list[tuple[int, str, float]]] = []
    titles: dict[int, str] = {}
    for reading in readings:
        titles[len(lines)] = reading.title
        heaviest = max((abs(weight) for weight in reading.weights), default=0.0) or 1.0
        lines += [[], *_lines(reading.words, [weight / heaviest for weight in reading.weights]), []]
    figure = new_figure((_COLUMNS + 2) * _LETTER_WIDTH, (len(lines) + 1) * _LINE_HEIGHT)
    # The layout is fixed: every character has its position already.
    figure.set_layout_engine("none")
    panel = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    panel.set_axis_off()
    panel.set(xlim=(-1, _COLUMNS + 1), ylim=(len(lines) + 0.5, -0.5))
    for row, line in enumerate(lines):
        if row in titles:
            panel.text(0, row, titles[row], va="center", fontsize=_SMALL, fontweight="bold", parse_math=False)
        for start, word, weight in line:
            colour = _BLUE if weight >= 0 else _ORANGE
            # Light enough that black text stays readable.
            strength = 0.6 * min(1.0, abs(weight))
            panel.add_patch(_ground(start, row, _columns(word), (colour, strength)))
            panel.text(start, row, word, va="center", fontsize=_SMALL, family="DejaVu Sans Mono", parse_math=False)
    return figure


def images_picture(
    images: UInt8[np.ndarray, "images channels height width"], captions: Sequence[str], across: int = 8
) -> "Figure":
    """Draw images in a grid, each with a caption."""
    down = max(1, -(-len(images) // across))
    figure = new_figure(1.3 * min(across, max(1, len(images))), 1.55 * down)
    panels = list(figure.subplots(down, min(across, max(1, len(images))), squeeze=False).flat)
    for panel in panels:
        panel.set_axis_off()
    for panel, image, caption in zip(panels, images, captions, strict=False):
        show_image(panel, image)
        panel.set_title(caption, fontsize=7, y=-0.22, parse_math=False)
    return figure


def seen_picture(
    images: UInt8[np.ndarray, "images channels height width"],
    maps: Sequence[Float[np.ndarray, "rows columns"]],
    captions: Sequence[str],
) -> "Figure":
    """Draw images above maps of their patches' weights.

    Blue patches support the predicted class, orange patches oppose it.
    """
    count = max(1, len(images))
    figure = new_figure(1.7 * count, 3.6)
    panels = figure.subplots(2, count, squeeze=False)
    for panel in panels.flat:
        panel.set_axis_off()
    for column, (image, weights, caption) in enumerate(zip(images, maps, captions, strict=True)):
        show_image(panels[0, column], image)
        panels[0, column].set_title(caption, fontsize=7, parse_math=False)
        end = float(np.abs(weights).max()) or 1.0
        panels[1, column].imshow(weights, cmap=diverging(), vmin=-end, vmax=end)
    return figure


def by_place_picture(spans: Sequence[tuple[int, int, float]]) -> "Figure":
    """Draw the loss by position in a document."""
    figure = new_figure(5.2, 3.2)
    panel = figure.subplots()
    for first, last, loss in spans:
        # Positions are counted from 1 here, because the axis is logarithmic.
        panel.plot((first + 1, last + 2), (loss, loss), color=_BLUE, linewidth=2, solid_capstyle="butt")
    panel.set_xscale("log", base=2)
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    panel.set(xlabel="position in the document, from 1", ylabel="nats per token", ylim=(0, None))
    panel.spines[["top", "right"]].set_visible(False)
    return figure


def recall_picture(first: Sequence[float], second: Sequence[float], guessing: float) -> "Figure":
    """Draw the loss of random tokens by position, at first and when repeated."""
    figure = new_figure(5.6, 3.4)
    panel = figure.subplots()
    places = range(1, len(first) + 1)
    panel.axhline(guessing, color=_GREY, linestyle=":", linewidth=1, label="guessing")
    panel.plot(places, first, color=_ORANGE, marker="o", markersize=3, linewidth=1.2, label="the first time")
    panel.plot(places, second, color=_BLUE, marker="o", markersize=3, linewidth=1.2, label="repeated")
    panel.set(xlabel="position in the sequence", ylabel="nats per token", ylim=(0, None))
    panel.legend(frameon=False, fontsize=8)
    panel.spines[["top", "right"]].set_visible(False)
    return figure


def _lines(words: Sequence[str], weights: Sequence[float]) -> Iterator[list[tuple[int, str, float]]]:
    """Yield lines of words with their column and weight."""
    line: list[tuple[int, str, float]] = []
    column = 0
    for whole, weight in zip(words, weights, strict=True):
        word = whole if _columns(whole) <= _COLUMNS else whole[: _COLUMNS // 2] + "…"
        if line and column + _columns(word) > _COLUMNS:
            yield line
            line, column = [], 0
        line.append((column, word, weight))
        column += _columns(word) + 1
    yield line


def _columns(word: str) -> int:
    # East Asian wide characters take two columns.
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in word)


def _ground(start: float, row: int, columns: int, colour: tuple[str, float]) -> "Rectangle":
    from matplotlib.patches import Rectangle

    return Rectangle((start - 0.3, row - 0.45), columns + 0.6, 0.9, facecolor=colour, linewidth=0)


def _named(classes: int) -> range:
    """Return the indices of labelled classes: all, or every second, third and so on."""
    return range(0, classes, max(1, -(-classes // _NAMED_CLASSES)))


def _bare(*panels: "Axes") -> None:
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=_SMALL)
        panel.xaxis.label.set_fontsize(9)
        panel.yaxis.label.set_fontsize(9)
