"""Missing values written as text: labels and texts such as `nan`, `NA` and `None`."""

import json
import re
from collections.abc import Iterable, Mapping

# Values that pandas reads as missing, except the empty cell.
_SPELLINGS = """
#N/A|#N/A N/A|#NA|-1.#IND|-1.#QNAN|-NaN|-nan|1.#IND|1.#QNAN|<NA>|N/A|NA|NULL|NaN|None|n/a|nan|null|NaT
"""
MISSING = frozenset(_SPELLINGS.strip().split("|"))
_LISTED = 8


def missing_label_lines(counts: Mapping[str, int], noun: str) -> list[str]:
    """Return a warning for labels that look like a missing value.

    Args:
        counts: Number of examples of each label.
        noun: Plural noun for the examples.

    Returns:
        One line with the counts and a remedy, or no line.

    Example:
        >>> missing_label_lines({"neg": 5, "pos": 4}, "texts")
        []
        >>> missing_label_lines({"neg": 5, "nan": 4}, "texts")[0].partition(":")[0]
        "4 texts have the label 'nan', which looks like a missing label"
    """
    missing = {label: count for label, count in counts.items() if label in MISSING and count}
    if not missing:
        return []
    shown = " and ".join(f"{count:,} {noun} have the label {label!r}" for label, count in missing.items())
    others = [label for label in counts if label not in MISSING]
    floats = all(re.fullmatch(r"-?\d+\.0", label) for label in others)
    because = f" (because of it, pandas writes the others as floats, such as {others[0]})" if others and floats else ""
    names = json.dumps(list(counts), ensure_ascii=False) if len(counts) <= _LISTED else '["NAME", "NAME"]'
    looks = "each looks" if missing.keys() - {next(iter(missing))} else "which looks"
    return [
        f"{shown}, {looks} like a missing label{because}: remove these rows, or declare the classes: "
        f"data.classes={names}"
    ]


def missing_text_lines(examples: Iterable[tuple[str, ...]], noun: str) -> list[str]:
    """Return a warning for examples with a text that looks like a missing value.

    Args:
        examples: The texts of each example.
        noun: Plural noun for the examples.

    Returns:
        One line with the count and a remedy, or no line.

    Example:
        >>> missing_text_lines([("one", "eins"), ("two", "nan")], "pairs")
        ["1 pairs have 'nan' as a text, which looks like a missing value: remove these rows unless it is meant"]
    """
    count, first = 0, ""
    for texts in examples:
        if found := [text for text in texts if text in MISSING]:
            count, first = count + 1, first or found[0]
    more = " or the like" if count > 1 else ""
    meant = "which looks like a missing value: remove these rows unless it is meant"
    return [f"{count:,} {noun} have {first!r}{more} as a text, {meant}"] if count else []
