"""All that only a GPU can tell, in one command of at most 25 minutes on an H100.

    python benchmarks/gpu.py --out DIR --data DIR        # docs/gpu.md says how, on a machine without network
    python benchmarks/gpu.py --out DIR --device cpu --tiny

Each part runs in a process of its own, under a limit of its own; DIR/gpu.json is written after each. A part that fails
is noted with its error, and the others go on. The same command again does what is missing: --minutes ends it earlier,
where commands may not last long, and nothing that was measured is measured again.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gpu_parts

from s2s.recipe.schema import DeviceSettings
from s2s.training.device import setup_process

# seconds on an H100, generously; the most valuable first
LIMITS = {
    "machine": 40,
    "lengths": 200,
    "costs": 280,
    "speedup": 90,
    "long": 220,
    "precision": 60,
    "scan": 40,
    "memory": 40,
    "tests": 120,
    "resume": 110,
    "training": 90,
    "multi30k": 430,
    "decoding": 90,
    "quality": 530,
}
LATER = ("multi30k", "decoding", "quality")
"""Parts that run only if they are asked for: two compare no architectures, and `quality` takes many calls."""


def run_part(name: str, arguments: list[str], out: Path, seconds: float) -> dict[str, Any]:
    """What a part found, or why it did not; all that it printed is added to `gpu.log`.

    Args:
        name: of the part.
        arguments: of this program, for the part's own process.
        out: the folder of results.
        seconds: after which it is ended, with all that it started.
    """
    answer = out / f".{name}.json"
    answer.unlink(missing_ok=True)
    began = time.monotonic()
    with (out / "gpu.log").open("a", encoding="utf-8") as log:
        log.write(f"\n===== {name}\n")
        log.flush()
        first = log.tell()
        command = [sys.executable, __file__, *arguments, "--part", name]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            # what it started dies with it: it would disturb what is measured next
            if process.poll() is None or status != 0:
                _end(process)
    took = round(time.monotonic() - began, 1)
    if status == 0 and answer.exists():
        found = json.loads(answer.read_text(encoding="utf-8"))
        answer.unlink()
        return {"seconds": took} | found
    told = (out / "gpu.log").read_text(encoding="utf-8", errors="replace").encode()[first:].decode(errors="replace")
    why = f"took longer than {seconds:.0f} s" if status is None else f"ended with status {status}"
    return {"seconds": took, "error": why, "told": told[-2000:]}


def _end(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def write(path: Path, found: dict[str, Any]) -> None:
    """Replaces the file of results, whole or not at all."""
    beside = path.with_name(f".{path.name}")
    beside.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    beside.replace(path)


def run_all(options: argparse.Namespace, arguments: list[str]) -> dict[str, Any]:
    """Runs the parts that are asked for and not yet there; what all of them found."""
    path, until = options.out / "gpu.json", time.monotonic() + 60 * options.minutes
    slower = 1 if options.device == "cuda" else 5
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for name in options.only or [name for name in LIMITS if name not in LATER]:
        if "error" not in found.get(name, {"error": "missing"}):
            continue
        left = until - time.monotonic()
        if left < min(LIMITS[name], 20):
            print(f"{name}: left for the next time")
            continue
        found[name] = run_part(name, arguments, options.out, min(slower * LIMITS[name], left))
        write(path, found)
        told = found[name].get("error") or json.dumps(found[name], ensure_ascii=False)
        print(f"{name}: {told[:300]}", flush=True)
    return found


def main() -> None:
    """Runs the parts, or, in a process of its own, one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for gpu.json, and for the runs")
    parser.add_argument("--data", type=Path, help="folder that holds multi30k/; $S2S_DATA when absent")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="sizes that a processor does in minutes")
    parser.add_argument("--only", nargs="+", choices=LIMITS, metavar="PART", help=", ".join(LIMITS))
    parser.add_argument("--minutes", type=float, default=25, help="begin nothing after them")
    parser.add_argument("--part", choices=LIMITS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    options.out = options.out.resolve()
    options.data = options.data or (Path(os.environ["S2S_DATA"]) if "S2S_DATA" in os.environ else None)
    if options.part:
        setup_process(DeviceSettings())
        found = gpu_parts.PARTS[options.part](options)
        write(options.out / f".{options.part}.json", found)
        return
    # ended from outside, it ends its part, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    run_all(options, sys.argv[1:])


if __name__ == "__main__":
    main()
