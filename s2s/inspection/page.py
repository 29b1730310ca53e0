"""Self-contained HTML page of `s2s inspect`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from s2s.files import write_atomically
from s2s.inspection.inspection import AttentionMaps, InspectedExample, Inspection, plain
from s2s.templates import templates

_HERE = Path(__file__).parent
# Maximum number of attention weights on a page, 6 bytes each; longer texts are truncated.
_MOST = 600_000
_DIGITS = 4
_HEIGHT = 760  # of the page in a notebook, in pixels


@dataclass(frozen=True, repr=False)
class InspectionPage:
    """An inspection that a notebook shows as a page.

    Example:
        >>> import s2s
        >>> s2s.load("runs/translate").inspect("A dog runs.")  # doctest: +SKIP
    """

    inspection: Inspection

    def __str__(self) -> str:
        """Return what `s2s inspect` prints."""
        return str(self.inspection)

    def __repr__(self) -> str:
        return f"<page of an inspection of {self.inspection.run}>"

    def _repr_html_(self) -> str:
        style = f"width: 100%; height: {_HEIGHT}px; border: 0"
        return f'<iframe style="{style}" srcdoc="{escape(page(self.inspection))}"></iframe>'

    def save(self, path: str | Path) -> None:
        """Write the page as an HTML file."""
        write_atomically(Path(path), page(self.inspection), follow=True)


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
