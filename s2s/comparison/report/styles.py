"""Colour, marker and hatch of each model, readable without colour."""

from collections.abc import Sequence
from dataclasses import dataclass

from s2s.comparison.results import Series

# for the blind to red, green or blue: from Okabe and Ito (2008) and Tol (2021), darkened to stand on white
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#b5518a", "#a17200", "#332288", "#882255")
INK, GREY, GRID, PAGE = "#1c1c1c", "#737373", "#e2e2e2", "#ffffff"

# seven colours and ten markers: the first seventy models differ
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
# the markers as letters, to stand beside a model's name
MARKS = ("●", "■", "▲", "◆", "▼", "✚", "✖", "★", "◀", "▶")
_LINES = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1, 1, 1, 1, 1)), (0, (9, 3)))
# of straight lines: circles make SVG files a hundred times as large
_HATCHES = ("", "///", "\\\\\\", "xxx", "--", "||", "++")

Line = str | tuple[float, tuple[float, ...]]


@dataclass(frozen=True)
class Style:
    """Style of a series."""

    colour: str  # of line, marker and bar; the model's
    marker: str  # the model's; empty for what is compared with
    line: Line  # the variant's, as matplotlib takes it
    filled: bool  # whether markers are; every second variant's are not
    hatch: str  # of bars: the model's
    strength: float  # of a bar's colour, 0 to 1; variants of a model get paler
    place: int  # of the model in the comparison


def styles(series: Sequence[Series], models: Sequence[str]) -> list[Style]:
    """One style for each series of a figure.

    A model has its colour, marker and hatch in every figure, by its place in the comparison; others come after them.
    Several series of one model differ by line, by filled and open markers, and by the strength of bars.
    """
    known = list(models)
    seen: dict[tuple[str, bool], int] = {}
    found = []
    for one in series:
        if one.model and one.model not in known:
            known.append(one.model)
        variant = seen.get((one.model, one.reference), 0)
        seen[one.model, one.reference] = variant + 1
        found.append(_style(known.index(one.model) if one.model else -1, variant, one.reference))
    return found


def _style(place: int, variant: int, reference: bool) -> Style:
    strength = (1.0, 0.55, 0.3)[variant % 3]
    if reference:
        # what is compared with is always grey and never solid
        colour = GREY if place < 0 else PALETTE[place % len(PALETTE)]
        return Style(colour, "", _LINES[1 + variant % (len(_LINES) - 1)], False, "", strength, place)
    if place < 0:
        return Style(INK, "h", _LINES[variant % len(_LINES)], variant % 2 == 0, "", strength, len(_MARKERS) - 1)
    return Style(
        colour=PALETTE[place % len(PALETTE)],
        marker=_MARKERS[place % len(_MARKERS)],
        line=_LINES[variant % len(_LINES)],
        filled=variant % 2 == 0,
        hatch=_HATCHES[place % len(_HATCHES)],
        strength=strength,
        place=place,
    )
