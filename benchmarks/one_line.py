"""How long one line takes from a cold start, beside the import of torch alone, in turns.

    python benchmarks/one_line.py runs/translate

Each time a new process: `s2s translate RUN` for one line, then `python -c 'import torch'`. Medians, and the lowest and
the highest, of seconds on the wall's clock and of the processor's. Python compiles what it imports when it is first
used and keeps that, so a first turn is not counted; where an environment variable forbids it, it is kept all the same,
in a folder of its own.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from s2s.run.manifest import git_commit, processor_name


def seconds(command: Sequence[str], compiled: str) -> tuple[float, float]:
    """Of a process, by both clocks; what Python compiles is kept in a folder."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = variables | {"PYTHONPYCACHEPREFIX": compiled}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, input="the cat sleeps\n", env=environment, text=True, capture_output=True, check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--rounds", type=int, default=8)
    asked = parser.parse_args()
    commands = {
        "s2s translate": [sys.executable, "-m", "s2s", "translate", str(asked.run)],
        "import torch": [sys.executable, "-c", "import torch"],
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as compiled:
        for turn in range(asked.rounds + 1):
            for name, command in commands.items():
                taken = seconds(command, compiled)
                found[name] += [taken] if turn else []
    commit = git_commit()
    print(
        f"{processor_name()}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}, {commit and commit['commit'][:7]}"
    )
    for name, times in found.items():
        for clock, each in zip(("wall", "processor"), zip(*times, strict=True), strict=True):
            print(f"{name:14} {clock:9} {statistics.median(each):.2f} s ({min(each):.2f}–{max(each):.2f})")


if __name__ == "__main__":
    main()
