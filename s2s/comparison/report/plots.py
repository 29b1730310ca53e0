"""Draw lines, points, bars and heat-maps on matplotlib axes.

A candidate has its colour, marker and hatch in every figure; all can be distinguished without colour.
"""

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch
from matplotlib.ticker import FixedFormatter, FixedLocator, LogLocator, MaxNLocator, NullLocator

from s2s.comparison.report.numbers import (
    brief,
    fixed,
    interval,
    number,
    places,
    power_of_ten,
    titled,
    with_unit,
)
from s2s.comparison.results import Figure, Heatmap, Series

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#b5518a", "#a17200", "#332288", "#882255")
"""Colours of candidates, safe for colour-blind readers: Okabe and Ito (2008), Tol (2021), darkened."""
INK, GREY, GRID, PAGE = "#1c1c1c", "#737373", "#e2e2e2", "#ffffff"
MARKS = ("●", "■", "◆", "✚", "★", "⬟", "✖", "◀", "▶")
"""Markers as characters, printed before a candidate's name; ▲ and ▼ are reserved for outcomes."""
# seven colours and nine markers: the first 63 candidates differ
_MARKERS = ("o", "s", "D", "P", "*", "p", "X", "<", ">")
_LINES = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1, 1, 1, 1, 1)), (0, (9, 3)))
# straight lines only: circles make SVG files a hundred times as large
_HATCHES = ("", "///", "\\\\\\", "xxx", "--", "||", "++")

# curves of more points get a band and few markers, shorter ones a bar at each point
_SPARSE = 12
# widths, of the distance between two groups: all bars of a group, one bar at most, and one of several points
_GROUP, _WIDEST, _APART = 0.8, 0.28, 0.16
# number of bars up to which values are written above them
_WRITTEN = 14
# characters in a line of the legend and of a group's name, and number of names
_LEGEND_WIDTH, _NAME_WIDTH, _MOST_NAMES = 26, 16, 36

_MOST_TICKS = 9

# heat-maps: width in inches, panels in a line, characters under all panels of a line
_WIDTH, _PANELS_A_LINE, _LINE_LETTERS = 7.2, 3, 75
# size up to which values are written into the cells
_WRITTEN_COLUMNS, _WRITTEN_ROWS = 6, 12
# characters of a column's and of a row's name
_NAMES, _ROW_NAMES = 16, 22
# colour of missing values; neither end of the colour map
_UNKNOWN = "#b8b8b8"


@dataclass(frozen=True)
class Style:
    """Style of a series."""

    colour: str
    marker: str  # empty for references
    line: str | tuple[float, tuple[float, ...]]  # a line style of matplotlib
    filled: bool  # whether the markers are
    hatch: str  # of bars
    strength: float  # opacity of bars, 0 to 1
    place: int  # of the candidate in the comparison; -1 for none


def styles(series: Sequence[Series], models: Sequence[str]) -> list[Style]:
    """Return one style for each series of a figure.

    A candidate has its colour, marker and hatch by its position in the comparison; others follow. Several series of
    one candidate differ by line style, by filled and open markers, and by the strength of bars.
    """
    known = list(models)
    seen: dict[tuple[str, bool], int] = {}
    found = []
    for one in series:
        if one.model and one.model not in known:
            known.append(one.model)
        variant = seen.get((one.model, one.reference), 0)
        seen[one.model, one.reference] = variant + 1
        place = known.index(one.model) if one.model else -1
        strength, colour = (1.0, 0.55, 0.3)[variant % 3], PALETTE[place % len(PALETTE)]
        line, filled = _LINES[variant % len(_LINES)], variant % 2 == 0
        if one.reference:
            # never solid
            line = _LINES[1 + variant % (len(_LINES) - 1)]
            found.append(Style(GREY if place < 0 else colour, "", line, False, "", strength, place))
        elif place < 0:
            found.append(Style(INK, "h", line, filled, "", strength, len(_MARKERS) - 1))
        else:
            marker, hatch = _MARKERS[place % len(_MARKERS)], _HATCHES[place % len(_HATCHES)]
            found.append(Style(colour, marker, line, filled, hatch, strength, place))
    return found


class Plot:
    """Plot of a figure of series.

    Args:
        figure: Its data.
        models: Candidates, whose order gives colours and markers.
        linear: True to draw logarithmic axes as linear ones.

    Attributes:
        drawn: Artists for the legend, after `draw`.
    """

    def __init__(self, figure: Figure, models: Sequence[str], linear: bool) -> None:
        self.figure = figure
        self.styles = styles(figure.series, models)
        self.drawn: list[Artist] = []
        there = places(figure.series)
        grouped = figure.kind == "bars" or any(isinstance(x, str) for x in there)
        # names of groups; none where the horizontal axis has numbers
        self.names = list(dict.fromkeys(map(_name, there))) if grouped else []
        self.width = 0.0
        self.places = self._positions()
        xs = [] if self.names else [float(x) for own in self.places for x in own]
        ys = [v for one in figure.series for v in (*one.y, *(one.low or ()), *(one.high or ())) if v is not None]
        # an axis without a positive value cannot be logarithmic
        self.log_x = figure.x.log and not linear and any(x > 0 for x in xs)
        self.log_y = figure.y.log and not linear and any(y > 0 for y in ys)
        # marks beyond the data are shown, too
        xs += [float(mark.at) for mark in figure.marks if xs and not isinstance(mark.at, str)]
        self.xs = [x for x in xs if x > 0 or not self.log_x]
        self.ys = [y for y in ys if y > 0 or not self.log_y]

    def _positions(self) -> list[np.ndarray]:
        """Horizontal positions of each series; points and bars of one group are side by side unless they are joined."""
        if not self.names:
            return [np.array([float(x) for x in one.x]) for one in self.figure.series]
        beside = [not one.reference and self.figure.kind != "lines" for one in self.figure.series]
        there = [[self.names.index(_name(x)) for x in one.x] for one in self.figure.series]
        counts = [sum(i in group for group, b in zip(there, beside, strict=True) if b) for i in range(len(self.names))]
        widest = _APART if self.figure.kind == "points" else _WIDEST
        self.width = min(widest, _GROUP / max(1, *counts))
        ranks = [0] * len(self.names)
        found = []
        for group, side in zip(there, beside, strict=True):
            offsets = [(ranks[i] - (counts[i] - 1) / 2) * self.width if side else 0.0 for i in group]
            found.append(np.array([i + offset for i, offset in zip(group, offsets, strict=True)], dtype=float))
            for i in set(group) if side else ():
                ranks[i] += 1
        return found

    def draw(self, axes: Axes) -> None:
        """Draw on empty axes."""
        figure = self.figure
        if not self.ys or not (self.names or self.xs):
            axes.text(0.5, 0.5, "no measurements", transform=axes.transAxes, ha="center", color=INK)
            axes.set_axis_off()
            return
        bars = figure.kind == "bars"
        bottom, top = _limits([*self.ys, 0.0] if bars and not self.log_y else self.ys, self.log_y, 0.05)
        if bars and not self.log_y:
            bottom, top = (0.0 if min(self.ys) >= 0 else bottom), (0.0 if max(self.ys) <= 0 else top * 1.04)
            # for bars that are all zero
            top = top if top > bottom else 1.0
        axes.set_yscale("log" if self.log_y else "linear")
        axes.set_ylim(bottom, top)
        set_ticks(axes.yaxis, [], self.log_y, (bottom, top))
        self._draw_x_axis(axes)
        together = zip(figure.series, self.styles, self.places, strict=True)
        self.drawn = [self._draw_series(axes, *each) for each in together]
        if bars:
            axes.axhline(0.0 if not self.log_y else bottom, color=INK, linewidth=0.7)
        self._draw_marks(axes)
        axes.set_title(titled(figure.y.label, figure.y.unit), loc="left", fontsize=9, pad=9, color=INK)
        axes.set_xlabel(titled(figure.x.label, figure.x.unit))

    def _draw_x_axis(self, axes: Axes) -> None:
        if not self.names:
            left, right = _limits(self.xs, self.log_x, 0.03)
            axes.set_xscale("log" if self.log_x else "linear")
            axes.set_xlim(left, right)
            set_ticks(axes.xaxis, self.xs, self.log_x, (left, right))
            return
        names = ["\n".join(textwrap.wrap(name, _NAME_WIDTH)) or " " for name in self.names]
        axes.set_xlim(-0.5 - 0.1 * (len(names) < 3), len(names) - 0.5 + 0.1 * (len(names) < 3))
        turned = max(len(line) for name in names for line in name.split("\n")) * len(names) > 76
        shown = range(0, len(names), -(-len(names) // _MOST_NAMES))
        axes.set_xticks(
            shown,
            [names[i] for i in shown],
            rotation=35 if turned else 0,
            ha="right" if turned else "center",
            rotation_mode="anchor" if turned else "default",
        )
        axes.tick_params(axis="x", length=0)
        axes.grid(visible=False, axis="x")

    def _draw_series(self, axes: Axes, one: Series, style: Style, places: np.ndarray) -> Artist:
        """Draw a series and return its artist for the legend."""
        kind, order = self.figure.kind, np.argsort(places, kind="stable")
        x = places[order]
        ends = (values or [None] * len(x) for values in (one.y, one.low, one.high))
        y, low, high = (np.array(values, dtype=float)[order] for values in ends)
        if self.log_y:
            # an interval that reaches zero extends to the edge
            y, low = np.where(y <= 0, np.nan, y), np.where(low <= 0, axes.get_ylim()[0], low)
        label = "\n".join(textwrap.wrap(one.label, _LEGEND_WIDTH)) or "–"
        # matplotlib 3.9 leaves labels out that begin with an underscore
        label = f" {label}" if label.startswith("_") else label
        if kind == "bars" and not one.reference:
            self._draw_bars(axes, style, (x, y, low, high))
            return Patch(facecolor=(style.colour, style.strength), edgecolor=PAGE, hatch=style.hatch, label=label)
        if self.names and one.reference and kind != "lines":
            return axes.hlines(y, x - 0.45, x + 0.45, color=style.colour, linestyle=style.line, label=label)
        if kind == "lines" and len(x) > _SPARSE:
            axes.fill_between(x, low, high, color=style.colour, alpha=0.15, linewidth=0, zorder=1.5)
        else:
            _draw_whiskers(axes, x, low, high, style.colour)
        joined, step = kind == "lines" or one.reference, -(-len(x) // 8)
        return axes.plot(
            x,
            y,
            color=style.colour,
            label=label,
            linestyle=style.line if joined else "",
            linewidth=1.2 if one.reference else 1.5,
            marker=style.marker,
            markerfacecolor=style.colour if style.filled else PAGE,
            # markers of different candidates at different points, so that they do not hide each other
            markevery=((style.place * 2) % step, step) if joined and len(x) > _SPARSE else None,
            zorder=2.4 if one.reference else 3,
        )[0]

    def _draw_bars(self, axes: Axes, style: Style, values: tuple[np.ndarray, ...]) -> None:
        x, y, low, high = values
        base = axes.get_ylim()[0] if self.log_y else 0.0
        look = {"width": self.width * 0.9, "bottom": base, "zorder": 2}
        # an opaque bar below a pale one hides the grid
        axes.bar(x, y - base, color=PAGE, linewidth=0, **look)
        axes.bar(x, y - base, color=(style.colour, style.strength), linewidth=0, **look)
        # a hatch has the edge's colour: that of the page, which also separates bars that touch
        axes.bar(x, y - base, facecolor="none", edgecolor=PAGE, hatch=style.hatch, linewidth=0.8, **look)
        _draw_whiskers(axes, x, low, high, INK)
        if sum(len(each.x) for each in self.figure.series if not each.reference) <= _WRITTEN:
            for at, height, below, above in zip(x, y, np.fmin(y, low), np.fmax(y, high), strict=True):
                if np.isfinite(height):
                    place, away = (above, 3) if height >= 0 else (below, -9)
                    text = number(float(height)) if abs(height) >= 0.01 else brief(float(height), 2)
                    axes.annotate(text, (at, place), (0, away), textcoords="offset points", ha="center", fontsize=8)

    def _draw_marks(self, axes: Axes) -> None:
        """Draw a dashed line for each mark, with the labels at the top, one below the other."""
        drawn = 0
        for mark in self.figure.marks:
            name = _name(mark.at)
            if self.names and name not in self.names:
                continue
            at = self.names.index(name) + 0.5 if self.names else float(mark.at)
            if at <= 0 and self.log_x:
                continue
            axes.axvline(at, color=GREY, linestyle=(0, (4, 3)), linewidth=0.9, zorder=1.8)
            across = axes.transAxes.inverted().transform(axes.transData.transform((at, axes.get_ylim()[0])))[0]
            side = 1 if across < 0.6 else -1
            axes.annotate(
                mark.label,
                (at, 1 - 0.07 * drawn),
                (3 * side, -2),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha="left" if side > 0 else "right",
                va="top",
                fontsize=8,
                color=GREY,
            )
            drawn += 1

    def spots(self) -> Iterator[tuple[float, float, str]]:
        """Yield each value with its position on the axes and a text: series, place, and estimate with interval."""
        for one, own in zip(self.figure.series, self.places, strict=True):
            for i, (x, y) in enumerate(zip(own, one.y, strict=True)):
                if y is not None and not self._is_lost(float(x), y):
                    at = one.x[i]
                    where = at if isinstance(at, str) else with_unit(brief(at), self.figure.x.unit)
                    low, high = (ends[i] if ends else None for ends in (one.low, one.high))
                    value = with_unit(interval(y, low, high), self.figure.y.unit)
                    yield float(x), y, f"{one.label} · {where}: {value}"

    def hidden(self) -> int:
        """Return the number of values that a logarithmic axis cannot show."""
        pairs = zip(self.figure.series, self.places, strict=True)
        values = ((float(x), y) for one, own in pairs for x, y in zip(own, one.y, strict=True))
        return sum(y is not None and self._is_lost(x, y) for x, y in values)

    def _is_lost(self, x: float, y: float) -> bool:
        return (self.log_x and x <= 0) or (self.log_y and y <= 0)


def _draw_whiskers(axes: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, colour: str) -> None:
    if not np.isfinite(low).any() and not np.isfinite(high).any():
        return
    axes.vlines(x, low, high, color=colour, linewidth=1.0, zorder=2.5)
    for ends in (low, high):
        axes.plot(x, ends, linestyle="", marker="_", markersize=4.5, color=colour, zorder=2.5)


def _name(x: float | str) -> str:
    return x if isinstance(x, str) else brief(x)


def _limits(values: Sequence[float], log: bool, margin: float) -> tuple[float, float]:
    """Limits of an axis, with a margin as a share of the range."""
    low, high = min(values), max(values)
    if log:
        room = max(math.log10(high) - math.log10(low), 0.2) * margin
        return max(low * 10.0**-room, 1e-307), min(high * 10.0**room, 1e307)
    if low == high == 0:
        return -margin, 1.0
    room = (high - low or abs(high)) * margin
    return low - room, high + room


def set_ticks(axis: Axis, values: Sequence[float], log: bool, limits: tuple[float, float]) -> None:
    """Set the ticks of an axis between its limits; see `ticks`."""
    places, texts = ticks(values, log, limits)
    axis.set_minor_locator(NullLocator())
    axis.set_major_locator(FixedLocator(places))
    axis.set_major_formatter(FixedFormatter(texts))


def ticks(values: Sequence[float], log: bool, limits: tuple[float, float]) -> tuple[list[float], list[str]]:
    """Choose few, round ticks: powers of two on a logarithmic axis if most values are.

    Args:
        values: Values on the axis; may be empty.
        log: True for a logarithmic axis.
        limits: Ends of the axis.

    Returns:
        Positions and labels.
    """
    low, high = limits
    decades = math.log10(high) - math.log10(low) if log else 0.0
    binary = log and 2 * sum(v > 0 and math.log2(v).is_integer() for v in values) >= len(values) > 0
    # on a short logarithmic axis, linear steps have rounder labels
    linear = decades < 0.75 and not binary
    if linear:
        locator = MaxNLocator(6, steps=[1, 2, 2.5, 5, 10])
    elif binary:
        locator = LogLocator(2, numticks=_MOST_TICKS)
    else:
        subs = (1,) if decades > 2.5 else (1, 3) if decades > 1.4 else (1, 2, 5)
        locator = LogLocator(10, subs, numticks=_MOST_TICKS)
    room = (high - low) * 1e-9
    # decades around the limits may exceed the range of a float
    with np.errstate(over="ignore"):
        places = [float(f"{p:.10g}") for p in locator.tick_values(low, high) if low - room <= p <= high + room]
    texts = [brief(place) for place in places]
    if linear and not any("×" in text for text in texts):
        decimals = max((len(text.partition(".")[2]) for text in texts), default=0)
        return places, [fixed(place, decimals) for place in places]
    exponents = [round(math.log10(place)) if place > 0 else 0 for place in places]
    tens = all(math.isclose(place, 10.0**e) for place, e in zip(places, exponents, strict=True))
    if tens and not all(-3 <= e < 6 for e in exponents):
        texts = [power_of_ten(e) if e else "1" for e in exponents]
    return places, texts


def draw_heatmaps(page: Canvas, figure: Figure, linear: bool) -> list[Axes]:
    """Draw the matrices of a figure side by side, with one colour bar.

    Args:
        page: An empty figure; its size is set.
        figure: The data; the `y` axis describes the colours.
        linear: True to draw a logarithmic colour map as a linear one.

    Returns:
        The axes of each matrix.
    """
    maps = figure.heatmaps
    if not maps:
        page.text(0.5, 0.5, "nothing was measured", ha="center")
        return []
    across = 2 if len(maps) == 4 else min(_PANELS_A_LINE, len(maps))
    down = -(-len(maps) // across)
    tallest = max(len(one.rows) for one in maps)
    longest = max((len(name) for one in maps for name in one.columns), default=0)
    page.set_size_inches(_WIDTH, down * (min(max(0.19 * tallest, 1.5), 3.6) + 0.75 + 0.05 * min(longest, 12)))
    values = [v for one in maps for row in one.values for v in row if v is not None]
    positive = [v for v in values if v > 0]
    low, high = min(values, default=0.0), max(values, default=1.0)
    colours = "viridis"
    if log := figure.y.log and not linear and bool(positive):
        norm = LogNorm(min(positive), high if high > min(positive) else min(positive) * 10)
    elif low < 0 < high:
        norm, colours = Normalize(-max(-low, high), max(-low, high)), "PuOr_r"
    else:
        norm = Normalize(min(0.0, low), max(0.0, high) if high or low else 1.0)
    panels = list(page.subplots(down, across, squeeze=False).flat)
    for panel in panels[len(maps) :]:
        panel.set_visible(False)
    panels = panels[: len(maps)]
    for panel, one in zip(panels, maps, strict=True):
        _draw_heatmap(panel, one, norm, colours, _LINE_LETTERS // across)
    for panel in panels[-across:]:
        panel.set_xlabel(titled(figure.x.label, figure.x.unit))
    bar = page.colorbar(panels[0].images[0], ax=panels, fraction=0.035, pad=0.02, aspect=25)
    bar.set_label(titled(figure.y.label, figure.y.unit))
    bar.outline.set_linewidth(0.5)  # pyright: ignore[reportCallIssue]
    at, labels = ticks([], log, (float(norm.vmin or 0.0), float(norm.vmax or 0.0)))
    bar.set_ticks(at, labels=labels)
    bar.minorticks_off()
    return panels


def _draw_heatmap(panel: Axes, one: Heatmap, norm: Normalize, colours: str, line: int) -> None:
    values = np.array([[math.nan if v is None else v for v in row] for row in one.values], dtype=float)
    values = values.reshape(len(one.rows), len(one.columns)) if values.size else np.full((1, 1), math.nan)
    panel.set_facecolor(_UNKNOWN)
    image = panel.imshow(values, cmap=colours, norm=norm, aspect="auto", interpolation="none")
    panel.grid(visible=False)
    panel.spines[:].set_visible(False)
    panel.set_title("\n".join(textwrap.wrap(one.label, 24)), fontsize=9)
    panel.tick_params(length=0, labelsize=7.5)
    sizes = ((len(one.columns), 16), (len(one.rows), 20))
    columns, rows = (range(0, count, -(-count // most) or 1) for count, most in sizes)
    names = [_short(one.columns[i], _NAMES) for i in columns]
    turned = len(names) * (max(map(len, names), default=0) + 1) > line
    panel.set_xticks(columns, names, rotation=90 if turned else 0)
    panel.set_yticks(rows, [_short(one.rows[i], _ROW_NAMES) for i in rows])
    if len(one.columns) <= _WRITTEN_COLUMNS and len(one.rows) <= _WRITTEN_ROWS:
        for (row, column), value in np.ndenumerate(values):
            if math.isfinite(value):
                red, green, blue, _ = image.cmap(norm(value))
                # near black and near white, which the page's dark mode does not change
                colour = "#010101" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.55 else "#fefefe"
                panel.text(column, row, number(value, 2), ha="center", va="center", fontsize=7.5, color=colour)


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
