"""The page of all fields of a comparison's files, made from `s2s.results`."""

from typing import get_args

from pydantic.fields import FieldInfo

from s2s.results import Axis, Contender, Failure, Figure, Finding, Heatmap, Part, Result, Series, Summary, Table

_PARTS: tuple[type[Part], ...] = (Result, Finding, Figure, Axis, Series, Heatmap, Table, Failure, Summary, Contender)
_HEAD = """# The files of a comparison

`<experiment>/result.json` holds a `Result`, `comparison.json` a `Summary`. All fields are written, with a default or
without; numbers are finite or null. This page is made from `s2s/results.py`:
`python -c "from s2s.report.reference import reference; print(reference(), end='')" > docs/results.md`.
"""


def reference() -> str:
    """The page, in Markdown."""
    return _HEAD + "".join(_section(part) for part in _PARTS)


def _section(part: type[Part]) -> str:
    rows = [f"| `{name}` | {_type(field)} | {_words(field)} |" for name, field in part.model_fields.items()]
    head = f"\n## {part.__name__}\n\n{part.__doc__}\n\n| field | holds | meaning |\n|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


def _words(field: FieldInfo) -> str:
    return " ".join(str(field.description).split())


def _type(field: FieldInfo) -> str:
    kind = field.annotation
    text = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    for old, new in (("typing.", ""), ("s2s.results.", ""), ("NoneType", "null"), ("None", "null"), ("|", "or")):
        text = text.replace(old, new)
    return f"`{text}`"
