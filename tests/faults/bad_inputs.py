"""Bad inputs by the hundred, each given to the real command line: one clear line, status 2, nothing left behind.

    python -m tests.faults.bad_inputs

The inputs themselves are in tables: `bad_recipes.py`, `bad_commands.py` and `bad_files.py`.
"""

import contextlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from click.testing import CliRunner

from tests.faults import bad_commands, bad_files, bad_recipes
from tests.faults.world import Case, make_world

LONGEST = 6_000
MOST_SECONDS = 10
# what a message tells a user to do, or that it says what would be right
REMEDY = re.compile(
    "→|expected|did you mean|there are |there is |remove|write |quote it|Try 's2s|leave|must |try |needs|"
    "it is a key of|set |name |list |cannot|holds|check|is not in the range|name each",
    re.IGNORECASE,
)


def _cases() -> dict[str, Case]:
    found: dict[str, Case] = {}
    for case in (*bad_recipes.cases(), *bad_commands.cases(), *bad_files.cases()):
        if case.name in found:
            raise ValueError(f"two bad inputs are called {case.name!r}")
        found[case.name] = case
    return found


CASES = _cases()


@dataclass(frozen=True)
class Answer:
    """What the command said.

    Attributes:
        status: its exit status; None where it died of an exception.
        message: what it wrote to standard error.
        seconds: processor time that it took.
        left: files that were not there before, or are no longer what they were.
    """

    status: int | None
    message: str
    seconds: float
    left: list[str]

    def wrong(self, case: Case) -> str:
        """Why this is no good answer; empty where it is one."""
        if self.status != case.status:
            return f"ended with status {self.status}, expected {case.status}: {self.message[-600:]}"
        if "Traceback" in self.message or len(self.message) > LONGEST:
            return f"said too much ({len(self.message)} characters): {self.message[:300]}"
        if missing := [word for word in case.tells if word not in self.message]:
            return f"does not name {missing}: {self.message}"
        if not REMEDY.search(self.message):
            return f"has no remedy: {self.message}"
        if self.left:
            return f"left {self.left} behind"
        return f"took {self.seconds:.1f} seconds" if self.seconds > MOST_SECONDS else ""


def ask(case: Case, world: Path, folder: Path) -> Answer:
    """Gives a bad input to the command line, in this process.

    Args:
        case: the input.
        world: see `make_world`.
        folder: does not exist; the working directory of the command, which holds the case's own files.
    """
    case.lay_out(folder)
    before, started = _there(folder, world), time.process_time()
    status, error = 0, None
    words = [word.replace("{world}", str(world)) for word in case.command]
    with contextlib.chdir(folder), mock.patch.object(sys, "argv", ["s2s", *words]):
        from s2s.cli.main import main

        with CliRunner().isolation(input=case.text) as (_, err, _):
            try:
                main()
            except SystemExit as end:
                status = end.code
            except BaseException as exception:
                status, error = None, f"{type(exception).__name__}: {str(exception)[:500]}"
    seconds, after = time.process_time() - started, _there(folder, world)
    left = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return Answer(status, error or err.getvalue().decode(), seconds, left)


def _there(*folders: Path) -> dict[str, tuple[int, int]]:
    """All files with their sizes and times; of folders that they are there."""
    found = {}
    for here, within, files in (each for folder in folders for each in os.walk(folder)):
        found.update((f"{here}/{name}", (0, 0)) for name in within)
        for name in files:
            # an empty file that says nothing but that somebody was here
            if name != ".lock":
                about = os.lstat(f"{here}/{name}")
                found[f"{here}/{name}"] = about.st_size, about.st_mtime_ns
    return found


def run_cases(names: Sequence[str], world: Path, folder: Path) -> Iterator[tuple[str, str]]:
    """Asks all of these; gives each one's name and what is wrong with its answer, empty where nothing is.

    Args:
        names: of `CASES`.
        world: see `make_world`.
        folder: empty; each input gets a folder in it.
    """
    for number, name in enumerate(names):
        yield name, ask(CASES[name], world, folder / str(number)).wrong(CASES[name])


def run_all(folder: Path) -> tuple[int, list[str]]:
    """Asks all bad inputs: how many were answered well, and what is wrong with the other answers.

    Args:
        folder: empty.
    """
    world = make_world(folder / "world")
    found = list(run_cases(list(CASES), world, folder / "cases"))
    failures = [f"{name}: {wrong}" for name, wrong in found if wrong]
    return len(found) - len(failures), failures


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["HF_DATASETS_CACHE"] = f"{temporary}/cache"
        answered, wrong = run_all(Path(temporary) / "bad")
    print(*wrong, f"{answered} of {len(CASES)} bad inputs answered", sep="\n")
    sys.exit(bool(wrong))
