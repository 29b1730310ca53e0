"""A reproduction's page: what was published, what was measured, and whether they agree, in one file."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from s2s.comparison.report.figures import drawn
from s2s.comparison.report.numbers import duration
from s2s.comparison.report.page import typeset
from s2s.comparison.reproduced import RESULT, read
from s2s.files import write_atomically

PAGE = "report.html"
_HERE = Path(__file__).parent


def draw(folder: Path) -> Path:
    """Draws the page of the reproduction in a folder, from its file alone, and gives the page's path.

    Raises:
        UserError: the file is damaged.
    """
    result = read(folder / RESULT)
    pictures = []
    for i, figure in enumerate(result.figures):
        models = list(dict.fromkeys(series.model for series in figure.series if series.model))
        pictures.append({"title": figure.title, "caption": figure.caption} | drawn(figure, models).inline(f"f{i}"))
    surroundings = Environment(
        loader=FileSystemLoader(_HERE, encoding="utf-8"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    surroundings.filters["typeset"] = typeset
    page = surroundings.get_template("reproduction.html").render(
        result=result,
        pictures=pictures,
        took=duration(result.core_seconds),
        clock=duration(result.seconds),
        expected=" to ".join(duration(seconds) for seconds in result.expected),
        style=Markup((_HERE / "report.css").read_text(encoding="utf-8")),
    )
    write_atomically(folder / PAGE, page)
    return folder / PAGE
