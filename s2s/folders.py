"""What a folder is that another command made: whoever is given the wrong one is told which, and what to do with it."""

from pathlib import Path

from s2s.errors import quoted
from s2s.reproduced import ASKED
from s2s.results import COMPARISON


def is_comparison(folder: Path) -> bool:
    """Whether a comparison was begun there, though its file may be lost: a copy lies beside the measurements."""
    return any((place / COMPARISON).is_file() for place in (folder, folder / "cells"))


def taken_for(folder: Path) -> tuple[str, str] | None:
    """What the folder is instead, and what can be done with it: `a comparison`; None where nothing is known of it."""
    if (folder / ASKED).is_file():
        return "a reproduction", f"its page is report.html; `s2s reproduce NAME --out {quoted(folder)}` goes on with it"
    if is_comparison(folder):
        return (
            "a comparison",
            f"`s2s compare --resume {quoted(folder)}` goes on with it; runs, if any, are in {quoted(folder / 'runs')}",
        )
    return None
