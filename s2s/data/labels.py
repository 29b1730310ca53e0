"""Labels of classification data: checks and counts."""

import json
import re
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int

from s2s.data.sources import MISSING
from s2s.errors import UserError, counted_items
from s2s.recipe.schema import LONGEST_WORD

MOST_CLASSES = 1000
"""Most distinct labels; more suggest that the label column is wrong."""
_LISTED = 8


def validate_label(label: str, where: str) -> str:
    """Return a label, unless it is empty, too long, or has spaces around it or invisible characters."""
    if not label:
        raise UserError("has no label", where=where, remedy="label the row, or delete it")
    if len(label) > LONGEST_WORD:
        what = f"the label {label[:40]!r} … has {len(label):,} characters (maximum: {LONGEST_WORD:,})"
        raise UserError(what, where=where, remedy="fix the row, or set data.label to the column of the labels")
    if label != label.strip() or not label.isprintable():
        whole = "; for a whole file use e.g. dos2unix" if label.endswith("\r") else ""
        what = f"the label {label!r:.60} has surrounding spaces or invisible characters"
        raise UserError(what, where=where, remedy=f"fix the row{whole}")
    return label


def count_classes(labels: Int[np.ndarray, " examples"], classes: Sequence[str]) -> dict[str, int]:
    """Count the examples of each class, by class name."""
    return dict(zip(classes, np.bincount(labels, minlength=len(classes)).tolist(), strict=True))


def missing_label_lines(counts: Mapping[str, int], item_name: str) -> list[str]:
    """Return a warning for labels that look like a missing value, in a list of one or none.

    Example:
        >>> missing_label_lines({"neg": 5, "pos": 4}, "texts")
        []
        >>> missing_label_lines({"neg": 5, "nan": 4}, "texts")[0].partition(":")[0]
        "4 texts have the label 'nan', which looks like a missing label"
    """
    missing = {label: count for label, count in counts.items() if label in MISSING and count}
    if not missing:
        return []
    shown = " and ".join(
        f"{counted_items(count, item_name)} {'has' if count == 1 else 'have'} the label {label!r}"
        for label, count in missing.items()
    )
    others = [label for label in counts if label not in MISSING]
    floats = all(re.fullmatch(r"-?\d+\.0", label) for label in others)
    because = f" (because of it, pandas writes the others as floats, such as {others[0]})" if others and floats else ""
    names = json.dumps(list(counts), ensure_ascii=False) if len(counts) <= _LISTED else '["NAME", "NAME"]'
    looks = "each looks" if missing.keys() - {next(iter(missing))} else "which looks"
    return [
        f"{shown}, {looks} like a missing label{because}: remove these rows, or declare the classes: "
        f"data.classes={names}"
    ]
