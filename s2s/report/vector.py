"""From matplotlib's SVG file to one inside the page: it takes the page's colours and letters, by day and by night."""

import re

from s2s.report.styles import GREY, GRID, INK, PAGE, PALETTE

# the page's style sheet defines these for light and dark
VARIABLES = {INK: "var(--ink)", GREY: "var(--grey)", GRID: "var(--grid)", PAGE: "var(--page)"} | {
    colour: f"var(--model-{i})" for i, colour in enumerate(PALETTE)
}

_COLOUR = re.compile("|".join(VARIABLES))
_STYLE = re.compile(r'(?<= style=")[^"]*(?=")')
_REFERENCE = re.compile(r'(?:url\(#|href="#)([^")]+)')
_NUMBER = re.compile(r"-?\d+\.\d{2,}")


def inlined(svg: str, key: str) -> str:
    """The inside of a drawing as HTML takes it; the `svg` element around it is the caller's.

    Args:
        svg: the file, as matplotlib writes it.
        key: unique in the page: ids of different drawings must differ.
    """
    inside = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    inside = re.sub(r"\s*<metadata>.*?</metadata>", "", inside, flags=re.DOTALL)
    # it would hold for the whole page, which says it itself
    inside = re.sub(r"\s*<defs>\s*<style[^>]*>[^<]*</style>\s*</defs>", "", inside)
    inside = re.sub(r"<!--.*?-->", "", inside, flags=re.DOTALL)
    # matplotlib's ids are long, and each point repeats one
    used = {name: f"{key}-{i}" for i, name in enumerate(dict.fromkeys(_REFERENCE.findall(inside)))}
    inside = re.sub(r' id="([^"]+)"', lambda found: f' id="{used[found[1]]}"' if found[1] in used else "", inside)
    inside = _REFERENCE.sub(lambda found: found[0].replace(found[1], used[found[1]]), inside)
    inside = _STYLE.sub(lambda found: _restyled(found[0]), inside)
    inside = re.sub(r' transform="rotate\(-0 [^"]*"', "", inside)
    # a twentieth of a point is nothing that can be seen
    inside = re.sub(r'(?<= d=")[^"]*', lambda path: _packed(_rounded(path[0])), inside)
    inside = re.sub(r'(?<= [xy]=")-?\d+\.\d+', lambda place: _rounded(place[0]), inside)
    return re.sub(r"\s*\n\s*", "\n", inside).strip()


def size(svg: str) -> tuple[float, float]:
    """Width and height of a drawing, in its own units."""
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    return (float(found[1]), float(found[2])) if found else (0.0, 0.0)


def _restyled(style: str) -> str:
    style = re.sub(r"\s*font-family: [^;]*;?", "", style)
    return _COLOUR.sub(lambda colour: VARIABLES[colour[0]], style).replace(": ", ":").replace("; ", ";")


def _rounded(text: str) -> str:
    return _NUMBER.sub(lambda number: f"{round(float(number[0]), 1):g}", text)


def _packed(path: str) -> str:
    """A path without the spaces that its letters make superfluous."""
    return re.sub(r"\s*([A-Za-z])\s*", r"\1", path).strip()
