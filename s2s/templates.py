"""Jinja environment for HTML pages."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def templates(folder: Path) -> Environment:
    """Create a Jinja environment for the templates of a folder.

    Values are escaped, and undefined names raise an error. `tojson` escapes <, > and &, so that a value cannot end the
    script around it.
    """
    found = Environment(
        loader=FileSystemLoader(folder, encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    return found
