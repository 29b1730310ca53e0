"""Identification of folders that another command created, for error messages."""

from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from s2s.errors import quote_path

COMPARISON = "comparison.json"
"""File name of a comparison's plan, in its folder."""
ASKED = "asked.json"
"""File name of a reproduction's settings, in its folder."""


def is_comparison(folder: Path) -> bool:
    """Return True for the folder of a comparison."""
    return any((place / COMPARISON).is_file() for place in (folder, folder / "cells"))


def identify_folder(folder: Path) -> tuple[str, str] | None:
    """Name the folder of a comparison or a reproduction, with a remedy; None for other folders."""
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
    """List the files of a folder that match none of the patterns in words, such as `a and 3 others`."""
    names = sorted(path.name for path in folder.iterdir() if not any(fnmatch(path.name, our) for our in ours))
    return " and ".join(names[:2]) if len(names) < 3 else f"{names[0]} and {len(names) - 1:,} others"
