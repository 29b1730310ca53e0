"""Figures are drawn whatever the data are, and each model looks the same in all of them."""

import math
import re

import matplotlib
import pytest

from s2s.comparison.report.figures import drawn
from s2s.comparison.report.plots import styles, ticks
from s2s.comparison.results import Axis, Figure, Heatmap, Mark, Series

LOG = Axis(label="time", unit="ms", log=True)
MODELS = ["rnn", "transformer"]


def _series(x, y, label="a", model="rnn", **more) -> Series:
    return Series(label=label, model=model, x=x, y=y, **more)


ODD = {
    "empty": Figure(name="f", title="t"),
    "no-maps": Figure(name="f", title="t", kind="heatmaps"),
    "unknown": Figure(name="f", title="t", x=LOG, y=LOG, series=[_series([1.0, 2.0], [None, None])]),
    "zeros": Figure(name="f", title="t", x=LOG, y=LOG, series=[_series([0.0, 0.0], [0.0, 0.0])]),
    "one": Figure(name="f", title="t", x=LOG, y=LOG, series=[_series([4.0], [3.0], "_a"), _series([4.0], [3.0], "")]),
    "narrow": Figure(name="f", title="t", x=LOG, y=LOG, series=[_series([9.9, 10.2], [1.0, 1.01])]),
    "wide": Figure(name="f", title="t", x=LOG, y=LOG, series=[_series([1e-200, 1e200], [1e-300, 1e300])]),
    "gaps": Figure(
        name="f",
        title="t",
        kind="bars",
        series=[_series(["a", "b" * 50], [-3.0, None], low=[-4.0, None], high=[None, None])],
    ),
    "names": Figure(
        name="f", title="t", kind="points", series=[_series(["漢字 $x^$ \\", "😀 $\\frac$"], [1.0, 2.0], "$$ \\frac")]
    ),
    "map": Figure(
        name="f",
        title="t",
        kind="heatmaps",
        y=LOG,
        heatmaps=[Heatmap(label="m", model="", rows=["r"], columns=["c", "d"], values=[[None, 0.0]])],
    ),
    "no-rows": Figure(
        name="f", title="t", kind="heatmaps", heatmaps=[Heatmap(label="m", model="", rows=[], columns=[], values=[])]
    ),
}


@pytest.mark.parametrize("linear", [False, True], ids=["as meant", "linear"])
@pytest.mark.parametrize("name", ODD)
def test_figure_of_odd_data_is_drawn(name, linear):
    drawing = drawn(ODD[name], MODELS, linear)
    # nobody asks for a picture of a linear drawing
    assert drawing.png[:4] == (b"" if linear else b"\x89PNG")
    assert drawing.pdf[:4] == (b"" if linear else b"%PDF")
    assert drawing.svg.rstrip().endswith("</svg>")


def test_figure_has_a_spot_for_every_value(figure, models, drawn_once):
    drawing = drawn_once(figure, models)
    values = [y for one in figure.series for y in one.y if y is not None]
    assert len(drawing.spots) + drawing.hidden == len(values)
    assert len(drawing.panels) == len(figure.heatmaps)
    if not values:
        return
    # higher values stand higher, on a linear axis in proportion
    shown = [y for y in values if y > 0 or not figure.y.log]
    heights = [-math.log(y) if figure.y.log else -y for y in shown]
    ys = [spot[1] for spot in drawing.spots]
    scale = (max(ys) - min(ys)) / (max(heights) - min(heights))
    assert ys == pytest.approx([min(ys) + scale * (h - min(heights)) for h in heights], abs=0.11)


def test_figure_spots_are_at_the_markers():
    x = [1.0, 2.0, 4.0]
    drawing = drawn(Figure(name="f", title="t", x=LOG, y=LOG, series=[_series(x, [10.0, 1000.0, 100.0])]), MODELS)
    markers = re.findall(r'<use [^>]*x="([\d.]+)" y="([\d.]+)" style="fill: #0072b2', drawing.svg)
    assert len(markers) == len(x)
    for spot, place in zip(drawing.spots, markers, strict=True):
        assert spot[:2] == pytest.approx(tuple(map(float, place)), abs=0.06)


def test_figure_mark_is_a_dashed_line_with_a_label():
    x = [16.0, 64.0, 256.0]
    lines = Figure(
        name="f", title="t", x=LOG, series=[_series(x, [1.0, 2.0, 3.0])], marks=[Mark(at=64.0, label="<end>")]
    )
    drawing = drawn(lines, MODELS)
    assert "&lt;end&gt;" in drawing.svg
    place = re.search(
        r'd="M ([\d.]+) [\d.]+ \nL \1 [\d.]+ \n" clip-path="[^"]*" style="[^"]*stroke-dasharray', drawing.svg
    )
    assert float(place[1]) == pytest.approx(drawing.spots[1][0], abs=0.1)
    # behind the group that it names
    names = ["1–10", "11–20", "21–30"]
    bars = lines.model_copy(
        update={"kind": "bars", "x": Axis(label="words"), "series": [_series(names, [1.0, 2.0, 3.0])]}
    )
    at = [Mark(at=names[1], label="end"), Mark(at="none", label="of no group")]
    drawing = drawn(bars.model_copy(update={"marks": at}), MODELS)
    place = re.search(
        r'd="M ([\d.]+) [\d.]+ \nL \1 [\d.]+ \n" clip-path="[^"]*" style="[^"]*stroke-dasharray', drawing.svg
    )
    assert float(place[1]) == pytest.approx((drawing.spots[1][0] + drawing.spots[2][0]) / 2, abs=0.2)
    assert "of no group" not in drawing.svg


def test_figure_shows_a_mark_beyond_the_data():
    series = [_series([1.0, 2.0], [1.0, 2.0])]
    drawing = drawn(Figure(name="f", title="t", series=series, marks=[Mark(at=8.0, label="end")]), MODELS)
    assert drawing.spots[1][0] < 200


def test_figure_legend_has_empty_labels_and_underscores():
    svg = drawn(ODD["one"], MODELS).svg
    assert re.search(r"> ?_a</text>", svg)
    assert ">–</text>" in svg


def test_figure_counts_values_that_a_log_axis_cannot_show():
    figure = Figure(name="f", title="t", y=LOG, series=[_series([1.0, 2.0, 3.0], [0.0, None, 1.0])])
    assert drawn(figure, MODELS).hidden == 1
    assert drawn(figure, MODELS, linear=True).hidden == 0


def test_styles_are_the_same_in_every_figure_and_distinct():
    many = [f"model {i}" for i in range(60)]
    one_by_one = [styles([_series([1.0], [1.0], model=model)], many)[0] for model in many]
    together = styles([_series([1.0], [1.0], model=model) for model in reversed(many)], many)
    assert one_by_one == together[::-1]
    assert len({(style.colour, style.marker) for style in one_by_one}) == len(many)


def test_styles_are_distinct_without_colour():
    many = [f"model {i}" for i in range(7)]
    found = styles([_series([1.0], [1.0], model=model) for model in many], many)
    assert len({style.marker for style in found}) == len({style.hatch for style in found}) == len(many)
    variants = styles([_series([1.0], [1.0]) for _ in range(6)], ["rnn"])
    assert len({style.line for style in variants}) == len(variants)
    assert len({(style.colour, style.marker) for style in variants}) == 1


def test_styles_of_references_are_grey_and_dashed():
    one = styles([_series([1.0], [1.0], model="", reference=True)], MODELS)[0]
    assert one.colour == "#737373"
    assert one.line != "-"
    assert not one.marker


def test_ticks_are_powers_of_two_if_most_values_are():
    places, texts = ticks([2.0**k for k in range(4, 17)], True, (15.0, 70_000.0))
    assert 4 < len(places) < 10
    assert all(math.log2(place).is_integer() for place in places)
    assert texts[:2] == ["16", "64"]
    # some lengths are no powers of two
    values = [64.0, 128.0, 256.0, 768.0, 1024.0]
    assert ticks(values, True, (60.0, 1100.0)) == (
        [64.0, 128.0, 256.0, 512.0, 1024.0],
        ["64", "128", "256", "512", "1,024"],
    )


@pytest.mark.parametrize(
    ("log", "limits", "texts"),
    [
        (True, (1e-7, 2.0), ["10⁻⁷", "10⁻⁶", "10⁻⁵", "10⁻⁴", "10⁻³", "10⁻²", "10⁻¹", "1"]),
        (True, (0.25, 4.0), ["0.5", "1", "2"]),
        (True, (2.9, 4.8), ["3.0", "3.5", "4.0", "4.5"]),
        (False, (4e5, 1.4e6), ["400,000", "600,000", "800,000", "1,000,000", "1,200,000", "1,400,000"]),
        (False, (-0.11, 0.11), ["−0.10", "−0.05", "0.00", "0.05", "0.10"]),
    ],
)
def test_ticks_are_few_and_round(log, limits, texts):
    assert ticks([], log, limits)[1] == texts


def test_figure_does_not_depend_on_settings_of_matplotlib():
    figure = Figure(name="f", title="t", series=[_series([1.0, 2.0], [1.0, 3.0])])
    before = dict(matplotlib.rcParams)
    matplotlib.rcParams |= {"font.size": 31.0, "xtick.direction": "in", "axes.labelpad": 50.0}
    try:
        strange = drawn(figure, MODELS).png
    finally:
        matplotlib.rcParams.update(before)
    assert strange == drawn(figure, MODELS).png
    assert dict(matplotlib.rcParams) == before
