"""What a folder is that another command made: whoever is given the wrong one is told which, and what to do with it."""

from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from s2s.errors import quote_path

COMPARISON = "comparison.json"
"""The plan of a comparison, in its folder."""
ASKED = "asked.json"
"""The settings of a reproduction, in its folder."""


def is_comparison(folder: Path) -> bool:
    """Whether a comparison was begun there, though its file may be lost: a copy lies beside the measurements."""
    return any((place / COMPARISON).is_file() for place in (folder, folder / "cells"))


def identify_folder(folder: Path) -> tuple[str, str] | None:
    """What the folder is instead, and what can be done with it: `a comparison`; None where nothing is known of it."""
    if (folder / ASKED).is_file():
        return (
            "a reproduction",
            f"its page is report.html; `s2s reproduce NAME --out {quote_path(folder)}` goes on with it",
        )
    if is_comparison(folder):
        return (
            "a comparison",
            f"`s2s compare --resume {quote_path(folder)}` goes on with it; "
            f"runs, if any, are in {quote_path(folder / 'runs')}",
        )
    return None


def foreign_files(folder: Path, ours: Sequence[str]) -> str:
    """What is in a folder and has none of our names, or patterns of them, in words; empty for none."""
    names = sorted(path.name for path in folder.iterdir() if not any(fnmatch(path.name, our) for our in ours))
    return " and ".join(names[:2]) if len(names) < 3 else f"{names[0]} and {len(names) - 1:,} others"
