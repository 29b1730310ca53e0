"""Matrices as pictures, all of a figure in the same colours."""

import math
import textwrap

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure as Canvas

from s2s.comparison.report.numbers import number, titled
from s2s.comparison.report.plots import tick_places, tick_texts
from s2s.comparison.results import Figure, Heatmap

_WIDTH = 7.2
_PANELS_A_LINE = 3
# so few cells have their figures written in
_WRITTEN_COLUMNS, _WRITTEN_ROWS = 6, 12
_NAMES, _ROW_NAMES = 16, 22
# letters under all panels of a line
_LINE = 75
# what is not measured; neither end of the colours
_UNKNOWN = "#b8b8b8"


def draw_heatmaps(page: Canvas, figure: Figure, linear: bool) -> list[Axes]:
    """Draws a figure's matrices side by side on an empty page, which takes the size that is needed.

    One key, which the `y` axis explains, says what colours mean. Gives one pair of axes for each matrix.
    """
    if not figure.heatmaps:
        page.text(0.5, 0.5, "nothing was measured", ha="center")
        return []
    across = 2 if len(figure.heatmaps) == 4 else min(_PANELS_A_LINE, len(figure.heatmaps))
    down = -(-len(figure.heatmaps) // across)
    tallest = max(len(one.rows) for one in figure.heatmaps)
    longest = max((len(name) for one in figure.heatmaps for name in one.columns), default=0)
    page.set_size_inches(_WIDTH, down * (min(max(0.19 * tallest, 1.5), 3.6) + 0.75 + 0.05 * min(longest, 12)))
    norm, colours = _key(figure, linear)
    panels = list(page.subplots(down, across, squeeze=False).flat)
    for panel in panels[len(figure.heatmaps) :]:
        panel.set_visible(False)
    panels = panels[: len(figure.heatmaps)]
    for panel, one in zip(panels, figure.heatmaps, strict=True):
        _draw(panel, one, (norm, colours), _LINE // across)
    for panel in panels[-across:]:
        panel.set_xlabel(titled(figure.x.label, figure.x.unit))
    bar = page.colorbar(panels[0].images[0], ax=panels, fraction=0.035, pad=0.02, aspect=25)
    bar.set_label(titled(figure.y.label, figure.y.unit))
    bar.outline.set_linewidth(0.5)  # pyright: ignore[reportCallIssue]
    log = isinstance(norm, LogNorm)
    places = tick_places([], log, (float(norm.vmin or 0.0), float(norm.vmax or 0.0)))
    bar.set_ticks(places, labels=tick_texts(places, log))
    bar.minorticks_off()
    return panels


def _key(figure: Figure, linear: bool) -> tuple[Normalize, str]:
    values = [v for one in figure.heatmaps for row in one.values for v in row if v is not None]
    positive = [v for v in values if v > 0]
    if figure.y.log and not linear and positive:
        low, high = min(positive), max(positive)
        return LogNorm(low, high if high > low else low * 10), "viridis"
    low, high = min(values, default=0.0), max(values, default=1.0)
    if low < 0 < high:
        end = max(-low, high)
        return Normalize(-end, end), "PuOr_r"
    return Normalize(min(0.0, low), max(0.0, high) if high or low else 1.0), "viridis"


def _draw(panel: Axes, one: Heatmap, key: tuple[Normalize, str], line: int) -> None:
    norm, colours = key
    values = np.array([[math.nan if v is None else v for v in row] for row in one.values], dtype=float)
    values = values.reshape(len(one.rows), len(one.columns)) if values.size else np.full((1, 1), math.nan)
    panel.set_facecolor(_UNKNOWN)
    image = panel.imshow(values, cmap=colours, norm=norm, aspect="auto", interpolation="none")
    panel.grid(visible=False)
    panel.spines[:].set_visible(False)
    panel.set_title("\n".join(textwrap.wrap(one.label, 24)), fontsize=9)
    panel.tick_params(length=0, labelsize=7.5)
    columns, rows = _thinned(len(one.columns), 16), _thinned(len(one.rows), 20)
    turned = len(columns) * (max(len(_short(one.columns[i])) for i in columns) + 1) > line if columns else False
    panel.set_xticks(columns, [_short(one.columns[i]) for i in columns], rotation=90 if turned else 0)
    panel.set_yticks(rows, [_short(one.rows[i], _ROW_NAMES) for i in rows])
    if len(one.columns) <= _WRITTEN_COLUMNS and len(one.rows) <= _WRITTEN_ROWS:
        for (row, column), value in np.ndenumerate(values):
            if math.isfinite(value):
                red, green, blue, _ = image.cmap(norm(value))
                light = 0.3 * red + 0.59 * green + 0.11 * blue > 0.55
                # near black and near white: these do not change with the page
                colour = "#010101" if light else "#fefefe"
                panel.text(column, row, number(value, 2), ha="center", va="center", fontsize=7.5, color=colour)


def _thinned(count: int, most: int) -> list[int]:
    return list(range(0, count, max(1, -(-count // most))))


def _short(name: str, most: int = _NAMES) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
