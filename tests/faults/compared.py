"""A comparison stopped by SIGINT, by SIGTERM and by kill -9 while its cells are measured, and resumed each time.

A program of its own: its processes are forked from it, in which everything is imported; see kills.py.
"""

import hashlib
import json
import os
import shlex
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from s2s.comparison import engine, tuning_search
from s2s.comparison.report import drawing
from tests.faults import kills

WORDS = shlex.split(
    "compare rnn transformer --experiment quality --seeds 1 data.train=60 data.validation=4 data.test=4 "
    "tokenizer.kind=bytes training.updates=4 training.warmup=2 validation.every=4 validation.sentences=1 "
    "batches.tokens=600 device.precision=fp32 device.threads=1 decoding.max_ratio=0.1 decoding.max_extra=1"
)
# that many cells are there when each signal comes
SIGNALS = {signal.SIGINT: 1, signal.SIGTERM: 2, signal.SIGKILL: 4}


def lasting(found: Any) -> Any:
    """All of a cell but what depends on how fast it was."""
    if isinstance(found, dict):
        return {key: lasting(value) for key, value in found.items() if "second" not in key and "time" not in key}
    return [lasting(value) for value in found] if isinstance(found, list) else found


def bits(folder: Path) -> dict[str, object]:
    """The cells of a comparison, but for times, and the weights of its runs."""
    cells = {p.relative_to(folder).as_posix(): lasting(json.loads(p.read_text())) for p in results_folder(folder)}
    weights = {p.relative_to(folder).as_posix(): p for p in sorted(folder.glob("runs/*/checkpoints/*/*.safetensors"))}
    return cells | {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in weights.items()}


def results_folder(folder: Path) -> list[Path]:
    """The files of the cells that are measured, as far as they have their last names."""
    return sorted(folder.glob("cells/*/[!.]*.json"))


def stopped(words: list[str], folder: Path, number: int, cells: int) -> int:
    """Starts the command; sends a signal once that many cells are there. Gives its status."""
    process = kills.begin(words, folder)
    until = time.monotonic() + 300
    while len(results_folder(folder / "cut")) < cells and time.monotonic() < until:
        time.sleep(0.005)
    # and a little later, so that the next one has begun
    return kills.wait(process, 0.05, number)


def main() -> None:
    """Prints as JSON how each life ended, how many cells there are, and which differ."""
    kills.load()
    # one process measures, one rate is tried: both have tests of their own
    engine.number_for = lambda device_context: 1
    tuning_search.RATES, tuning_search.LOWEST, tuning_search.HIGHEST = (0.004,), 0.004, 0.004
    # nobody looks at the page, and drawing it takes as long as a training
    drawing.draw = lambda folder: folder / "report.html"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ["HF_HOME"] = os.environ["HF_DATASETS_CACHE"] = str(folder / "cache")
        lives = {"straight": kills.wait(kills.begin([*WORDS, "--out", "straight"], folder))}
        words = [*WORDS, "--out", "cut"]
        for number, cells in SIGNALS.items():
            lives[number.name] = stopped(words, folder, number, cells)
            words = ["compare", "--resume", "cut"]
        lives["resumed"] = kills.wait(kills.begin(words, folder))
        one, two = bits(folder / "straight"), bits(folder / "cut")
        differ = sorted(name for name in one.keys() | two.keys() if one.get(name) != two.get(name))
        said = (folder / "errors.txt").read_text()
    json.dump({"lives": lives, "same": len(one) - len(differ), "differ": differ, "said": said}, sys.stdout)


if __name__ == "__main__":
    main()
