"""What survives when it is attacked: kills that were resumed to the same bits, and bad inputs that got a clear answer.

python benchmarks/faults.py --kills 200

Both counts are printed and kept in docs/results/faults.json, with machine, commit and what failed.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from s2s.run.manifest import git_commit, processor_name

ROOT = Path(__file__).parents[1]
FAULTS = ROOT / "tests" / "faults"


def kills(count: int, seed: int) -> dict[str, object]:
    """Kill -9 of the real command at random moments; see tests/faults/kills.py.

    Args:
        count: at least so many.
        seed: of the moments.
    """
    command = [sys.executable, str(FAULTS / "kills.py"), "--kills", str(count), "--seed", str(seed)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout) | {"seed": seed}


def bad_inputs() -> dict[str, object]:
    """All bad inputs of tests/faults; the last line of what the module prints has the count."""
    command = [sys.executable, "-m", "tests.faults.bad_inputs"]
    done = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True)
    *wrong, last = done.stdout.strip().split("\n")
    answered, _, asked = last.split()[:3]
    return {"asked": int(asked), "answered": int(answered), "wrong": wrong}


def main() -> None:
    """Counts, prints and keeps."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    started, commit = time.perf_counter(), git_commit()
    found = {
        "kills": kills(options.kills, options.seed),
        "bad_inputs": bad_inputs(),
        "processor": processor_name(),
        "commit": commit["commit"] if commit else None,
        "date": time.strftime("%Y-%m-%d"),
        "minutes": round((time.perf_counter() - started) / 60, 1),
    }
    text = json.dumps(found, indent=1) + "\n"
    (ROOT / "docs" / "results" / "faults.json").write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
