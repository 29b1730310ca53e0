"""Lines, points and bars on one pair of axes, whose ticks are few, round, and powers of two where the data are."""

import itertools
import math
import textwrap
from collections.abc import Sequence

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.patches import Patch
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, NullLocator

from s2s.comparison.report.numbers import brief, interval, number, places, power_of_ten, titled, with_unit
from s2s.comparison.report.styles import GREY, INK, PAGE, Style, styles
from s2s.comparison.results import Figure, Series

# longer curves get a band and few markers, shorter ones a bar at each point
_SPARSE = 12
# bars together, of the distance between two groups
_GROUP = 0.8
_WIDEST = 0.28
# points of one group need less
_APART = 0.16
# so many bars have their figures written above
_WRITTEN = 14
_LEGEND_WIDTH, _NAME_WIDTH, _MOST_NAMES = 26, 16, 36
_BAND = 0.15
# ticks of an axis, and characters that fit beside each other under a figure
_MOST_TICKS = 9
_LINE = 64


class Plot:
    """Plot of a figure of series.

    Colours and markers follow the order of the models. Logarithmic axes can be drawn as linear ones.
    """

    def __init__(self, figure: Figure, models: Sequence[str], linear: bool) -> None:
        self.figure = figure
        self.styles = styles(figure.series, models)
        there = places(figure.series)
        grouped = figure.kind == "bars" or any(isinstance(x, str) for x in there)
        # of groups; none where the horizontal axis has numbers
        self.names = list(dict.fromkeys(map(_name, there))) if grouped else []
        self.places = self._places()
        self.drawn: list[Artist] = []
        xs = [] if self.names else [float(x) for places in self.places for x in places]
        ys = [v for one in figure.series for v in (*one.y, *(one.low or ()), *(one.high or ())) if v is not None]
        # an axis without a positive value cannot be logarithmic
        self.log_x = figure.x.log and not linear and any(x > 0 for x in xs)
        self.log_y = figure.y.log and not linear and any(y > 0 for y in ys)
        # a mark beyond the data is seen, too
        xs += [float(mark.at) for mark in figure.marks if xs and not isinstance(mark.at, str)]
        self.xs = [x for x in xs if x > 0 or not self.log_x]
        self.ys = [y for y in ys if y > 0 or not self.log_y]

    def draw(self, axes: Axes) -> None:
        """Draws it on empty axes."""
        if not self.ys or not (self.names or self.xs):
            axes.text(0.5, 0.5, "nothing was measured", transform=axes.transAxes, ha="center", color=INK)
            axes.set_axis_off()
            return
        bars = self.figure.kind == "bars"
        bottom, top = _ends([*self.ys, 0.0] if bars and not self.log_y else self.ys, self.log_y, 0.05)
        if bars and not self.log_y:
            bottom, top = (0.0 if min(self.ys) >= 0 else bottom), (0.0 if max(self.ys) <= 0 else top * 1.04)
            # bars that are all nought
            top = top if top > bottom else 1.0
        axes.set_yscale("log" if self.log_y else "linear")
        axes.set_ylim(bottom, top)
        tick(axes.yaxis, [], self.log_y, (bottom, top))
        self._horizontal(axes)
        self.drawn = [
            self._series(axes, *each) for each in zip(self.figure.series, self.styles, self.places, strict=True)
        ]
        if bars:
            axes.axhline(0.0 if not self.log_y else bottom, color=INK, linewidth=0.7)
        self._marks(axes)
        # at the top, where it is read without turning the head
        axes.set_title(titled(self.figure.y.label, self.figure.y.unit), loc="left", fontsize=9, pad=9, color=INK)
        axes.set_xlabel(titled(self.figure.x.label, self.figure.x.unit))

    def _marks(self, axes: Axes) -> None:
        """A dashed line for each mark, its label beside its upper end, the next one's below."""
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

    def spots(self) -> list[tuple[float, float, str]]:
        """Each point that is shown: where it stands on the axes, and what is measured there."""
        return [
            (float(x), y, _words(self.figure, one, at))
            for one, places in zip(self.figure.series, self.places, strict=True)
            for at, (x, y) in enumerate(zip(places, one.y, strict=True))
            if y is not None and not self._lost(float(x), y)
        ]

    def hidden(self) -> int:
        """Number of values that a logarithmic axis cannot show."""
        return sum(
            y is not None and self._lost(float(x), y)
            for one, places in zip(self.figure.series, self.places, strict=True)
            for x, y in zip(places, one.y, strict=True)
        )

    def _lost(self, x: float, y: float) -> bool:
        return (self.log_x and x <= 0) or (self.log_y and y <= 0)

    def _places(self) -> list[np.ndarray]:
        """Horizontal positions of each series; points of one group stand side by side unless they are joined."""
        if not self.names:
            return [np.array([float(x) for x in one.x]) for one in self.figure.series]
        index = {name: i for i, name in enumerate(self.names)}
        beside = [not one.reference and self.figure.kind != "lines" for one in self.figure.series]
        there = [[index[_name(x)] for x in one.x] for one in self.figure.series]
        counts = [sum(i in group for group, b in zip(there, beside, strict=True) if b) for i in range(len(self.names))]
        self.width = min(_WIDEST, _GROUP / max(1, *counts))
        if self.figure.kind == "points":
            self.width = min(self.width, _APART)
        ranks = [0] * len(self.names)
        found = []
        for group, side in zip(there, beside, strict=True):
            offsets = [(ranks[i] - (counts[i] - 1) / 2) * self.width if side else 0.0 for i in group]
            found.append(np.array([i + offset for i, offset in zip(group, offsets, strict=True)], dtype=float))
            for i in set(group) if side else ():
                ranks[i] += 1
        return found

    def _horizontal(self, axes: Axes) -> None:
        if not self.names:
            left, right = _ends(self.xs, self.log_x, 0.03)
            axes.set_xscale("log" if self.log_x else "linear")
            axes.set_xlim(left, right)
            tick(axes.xaxis, self.xs, self.log_x, (left, right))
            return
        names = ["\n".join(textwrap.wrap(name, _NAME_WIDTH)) or " " for name in self.names]
        axes.set_xlim(-0.5 - 0.1 * (len(names) < 3), len(names) - 0.5 + 0.1 * (len(names) < 3))
        widest = max(len(line) for name in names for line in name.split("\n"))
        turned = widest * len(names) > 76
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

    def _series(self, axes: Axes, one: Series, style: Style, places: np.ndarray) -> Artist:
        """Draws one; what stands for it in the legend."""
        order = np.argsort(places, kind="stable")
        x = places[order]
        ends = (values or [None] * len(x) for values in (one.y, one.low, one.high))
        y, low, high = (np.array(values, dtype=float)[order] for values in ends)
        if self.log_y:
            # an interval that reaches zero goes down to the edge
            y, low = np.where(y <= 0, np.nan, y), np.where(low <= 0, axes.get_ylim()[0], low)
        if self.figure.kind == "bars" and not one.reference:
            return self._bars(axes, one, style, (x, y, low, high))
        if self.names and one.reference and self.figure.kind != "lines":
            look = {"color": style.colour, "linestyle": style.line, "label": _wrapped(one.label)}
            return axes.hlines(y, x - 0.45, x + 0.45, **look)
        if self.figure.kind == "lines" and len(x) > _SPARSE:
            axes.fill_between(x, low, high, color=style.colour, alpha=_BAND, linewidth=0, zorder=1.5)
        else:
            _whiskers(axes, x, low, high, style.colour)
        return self._line(axes, one, style, (x, y))

    def _line(self, axes: Axes, one: Series, style: Style, points: tuple[np.ndarray, np.ndarray]) -> Artist:
        joined, step = self.figure.kind == "lines" or one.reference, -(-len(points[0]) // 8)
        return axes.plot(
            *points,
            color=style.colour,
            label=_wrapped(one.label),
            linestyle=style.line if joined else "",
            linewidth=1.2 if one.reference else 1.5,
            marker=style.marker,
            markerfacecolor=style.colour if style.filled else PAGE,
            # markers of different models shall not hide each other
            markevery=((style.place * 2) % step, step) if joined and len(points[0]) > _SPARSE else None,
            zorder=2.4 if one.reference else 3,
        )[0]

    def _bars(self, axes: Axes, one: Series, style: Style, values: tuple[np.ndarray, ...]) -> Artist:
        x, y, low, high = values
        base = axes.get_ylim()[0] if self.log_y else 0.0
        look = {"width": self.width * 0.9, "bottom": base, "zorder": 2}
        # the page beneath a pale bar hides the grid
        axes.bar(x, y - base, color=PAGE, linewidth=0, **look)
        axes.bar(x, y - base, color=(style.colour, style.strength), linewidth=0, **look)
        # a hatch has the edge's colour; here the edge is the page, which also parts bars that touch
        axes.bar(x, y - base, facecolor="none", edgecolor=PAGE, hatch=style.hatch, linewidth=0.8, **look)
        _whiskers(axes, x, low, high, INK)
        if sum(len(each.x) for each in self.figure.series if not each.reference) <= _WRITTEN:
            # beyond the ends of bars and of their intervals
            for at, height, below, above in zip(x, y, np.fmin(y, low), np.fmax(y, high), strict=True):
                if np.isfinite(height):
                    place, away = (above, 3) if height >= 0 else (below, -9)
                    text = number(float(height)) if abs(height) >= 0.01 else brief(float(height), 2)
                    axes.annotate(text, (at, place), (0, away), textcoords="offset points", ha="center", fontsize=8)
        colour = (style.colour, style.strength)
        return Patch(facecolor=colour, edgecolor=PAGE, hatch=style.hatch, label=_wrapped(one.label))


def _whiskers(axes: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, colour: str) -> None:
    if not np.isfinite(low).any() and not np.isfinite(high).any():
        return
    axes.vlines(x, low, high, color=colour, linewidth=1.0, zorder=2.5)
    for ends in (low, high):
        axes.plot(x, ends, linestyle="", marker="_", markersize=4.5, color=colour, zorder=2.5)


def _words(figure: Figure, one: Series, at: int) -> str:
    """Its series, where it stands, the figure with its interval."""
    low, high = (ends[at] if ends else None for ends in (one.low, one.high))
    x = one.x[at]
    where = x if isinstance(x, str) else with_unit(brief(x), figure.x.unit)
    return f"{one.label} · {where}: {with_unit(interval(one.y[at] or 0.0, low, high), figure.y.unit)}"


def _name(x: float | str) -> str:
    return x if isinstance(x, str) else brief(x)


def _ends(values: Sequence[float], log: bool, margin: float) -> tuple[float, float]:
    """Ends of an axis with some room beside the data."""
    low, high = min(values), max(values)
    if log:
        room = max(math.log10(high) - math.log10(low), 0.2) * margin
        return max(low * 10.0**-room, 1e-307), min(high * 10.0**room, 1e307)
    if low == high == 0:
        return -margin, 1.0
    room = (high - low or abs(high)) * margin
    return low - room, high + room


def _wrapped(label: str) -> str:
    text = "\n".join(textwrap.wrap(label, _LEGEND_WIDTH)) or "–"
    # matplotlib 3.9 leaves out what begins with an underscore
    return f" {text}" if text.startswith("_") else text


def tick(axis: Axis, values: Sequence[float], log: bool, limits: tuple[float, float]) -> None:
    """Sets the ticks of matplotlib's axis between these limits, by the values that the data have there."""
    places = tick_places(values, log, limits)
    axis.set_minor_locator(NullLocator())
    axis.set_major_locator(FixedLocator(places))
    axis.set_major_formatter(FixedFormatter(tick_texts(places, log)))


def tick_places(values: Sequence[float], log: bool, limits: tuple[float, float]) -> list[float]:
    """Tick positions of an axis."""
    places = _log_ticks(sorted(set(values)), *limits) if log else _few(sorted(set(values)), limits)
    if places:
        return places
    room = (limits[1] - limits[0]) * 1e-9
    everywhere = MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]).tick_values(*limits)
    return [float(place) for place in everywhere if limits[0] - room <= place <= limits[1] + room]


def tick_texts(places: Sequence[float], log: bool) -> list[str]:
    """Tick labels: powers of ten if all are, or equal decimals where they fit."""
    texts = [tick_text(place) for place in places]
    exponents = [_exponent(place) for place in places]
    if any(_is_power(text) for text in texts) and None not in exponents:
        return [power_of_ten(e) if e else "1" for e in exponents if e is not None]
    if not log:
        texts = [brief(float(f"{place:.10g}")) for place in places]
    decimals = max((len(text.partition(".")[2]) for text in texts), default=0)
    sizes = [abs(place) for place in places if place]
    if not 0 < decimals <= 3 or any("×" in text or _is_power(text) for text in texts):
        return texts
    # on a logarithmic axis 0.3, 1, 3 and 10 stand side by side
    if min(sizes) * (8 if log else 200) < max(sizes):
        return texts
    return [f"{round(place, decimals) + 0.0:,.{decimals}f}".replace("-", "−") for place in places]


def tick_text(value: float) -> str:
    """Label of a single tick."""
    # a sum of steps such as 0.30000000000000004
    value = float(f"{value:.10g}")
    exponent = _exponent(value)
    if exponent is not None and not -3 <= exponent < 6:
        return power_of_ten(exponent)
    return brief(value)


def _exponent(value: float) -> int | None:
    exponent = round(math.log10(value)) if value > 0 else None
    return exponent if exponent is not None and math.isclose(value, 10.0**exponent) else None


def _is_power(text: str) -> bool:
    return text.startswith("10") and text[-1] in "⁰¹²³⁴⁵⁶⁷⁸⁹"


def thinned(places: Sequence[float], most: int = _MOST_TICKS) -> list[float]:
    """Every, every second, every third … so that all fit beside each other."""
    for step in range(1, len(places) + 1):
        kept = list(places[::step])
        if len(kept) <= most and sum(len(tick_text(place)) + 3 for place in kept) <= _LINE:
            return kept
    return list(places[:1])


def _few(values: list[float], limits: tuple[float, float]) -> list[float]:
    """The data's own places, where they are few and stand apart."""
    if not 1 <= len(values) <= _MOST_TICKS:
        return []
    if sum(len(tick_text(value)) + 3 for value in values) > _LINE:
        return []
    if not all((v.is_integer() and abs(v) < 10_000) or math.isclose(v, float(f"{v:.2g}")) for v in values):
        return []
    gaps = [after - before for before, after in itertools.pairwise(values)]
    return values if not gaps or min(gaps) > (limits[1] - limits[0]) / 14 else []


def _log_ticks(values: list[float], low: float, high: float) -> list[float]:
    powers = [value for value in values if value > 0 and math.log2(value).is_integer()]
    if powers and len(powers) * 2 >= len(values):
        return thinned(powers)
    decades = math.log10(high) - math.log10(low)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    if decades > 2.5:
        step = math.ceil(decades / 7)
        return [10.0**e for e in exponents if e % step == 0 and low <= 10.0**e <= high]
    # over so short a way the ticks of a linear axis serve better
    if decades < 0.75:
        return []
    parts = (1, 3) if decades > 1.4 else (1, 2, 5)
    return thinned([p * 10.0**e for e in exponents for p in parts if low <= p * 10.0**e <= high])
