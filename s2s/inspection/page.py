"""Self-contained HTML page of `s2s inspect`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from s2s.inspection.inspection import AttentionMaps, InspectedExample, Inspection, plain
from s2s.templates import templates

_HERE = Path(__file__).parent
# Maximum number of attention weights on a page, 6 bytes each; longer texts are truncated.
_MOST = 600_000
_DIGITS = 4


def page(inspection: Inspection) -> str:
    """Render the page as HTML, with all user texts escaped."""
    return (
        templates(_HERE)
        .get_template("page.html")
        .render(
            inspection=inspection,
            data={
                "examples": [_shown(example) for example in inspection.examples],
                "positions": plain(list(inspection.positions), _DIGITS),
                "word": plain(inspection.word, _DIGITS),
            },
            style=Markup((_HERE / "page.css").read_text(encoding="utf-8")),
            script=Markup((_HERE / "page.js").read_text(encoding="utf-8")),
        )
    )


def _shown(example: InspectedExample) -> dict[str, Any]:
    attention, cut = _cut(example.attention)
    return {
        "attention": attention,
        "cut": cut,
        "saliency": plain(list(example.saliency), _DIGITS),
        "walk": plain(example.walk),
        "image": plain(example.image),
        "patches": example.patches,
    }


def _cut(attention: Sequence[AttentionMaps]) -> tuple[list[dict[str, Any]], int]:
    """Return the attention maps for the page, and the number of tokens kept (0: all)."""
    longest = max((max(maps.weights.shape[2:]) for maps in attention), default=0)
    matrices = sum(maps.weights.shape[0] * maps.weights.shape[1] for maps in attention)
    most = int((_MOST / max(1, matrices)) ** 0.5)
    cut = most if longest > most else 0
    most = cut or longest
    return [
        {
            "kind": maps.kind,
            "rows": list(maps.rows[:most]),
            "columns": list(maps.columns[:most]),
            "weights": maps.weights[:, :, :most, :most].round(_DIGITS).tolist(),
        }
        for maps in attention
    ], cut
