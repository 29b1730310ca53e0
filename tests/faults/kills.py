"""Kills the real command at random moments, resumes it until it ends, and compares every bit with a run never stopped.

    python tests/faults/kills.py --kills 200

Each life of a run is a process of its own, forked from this one, in which everything is imported and nothing is
running: what it calls is what `s2s` calls. So a life costs a tenth of a start from a shell.
"""

import argparse
import hashlib
import importlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

# one thread, as the recipes say, in whatever is forked
os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}

RECIPE = """
name: {kind}
data: {{train: 40, validation: 1, test: 1}}
tokenizer: {{kind: bytes}}
batches: {{tokens: 700}}
model: {{kind: {kind}, {sizes}, dropout: 0.2}}
training: {{updates: 11, warmup: 3, learning_rate: 0.003, tokens_per_update: 700, ema: 0.9, average_last: 2}}
validation: {{every: 4, metric: loss, sentences: 1}}
decoding: {{beam: 1, max_ratio: 0.1, max_extra: 1}}
run: {{save_minutes: 0.0001}}
device: {{kind: cpu, threads: 1, precision: fp32}}
"""
SIZES = {
    "transformer": "width: 16, heads: 2, feedforward: 32, encoder_layers: 1, decoder_layers: 1",
    "lstm": "width: 16, encoder_layers: 1, decoder_layers: 1",
}

# what a training imports only when it comes to it
LOADED = (
    "baselines.lstm",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "s2s.cli.train",
    "s2s.models.transformer",
    "s2s.run.training",
    "s2s.tasks.translation.task",
    "sacrebleu",
    "torch.utils.tensorboard",
)


@dataclass
class Count:
    """What became of the kills.

    Attributes:
        kills: processes that were killed while they ran.
        runs: that were killed at least once, and resumed to their end.
        same: kills in those runs that ended in the bits of the run that was never stopped.
        others: what was wrong with the other runs.
    """

    kills: int
    runs: int
    same: int
    others: list[str]


def load() -> None:
    """Imports what a training imports, so that a forked process need not."""
    for name in LOADED:
        importlib.import_module(name)


def begin(words: Sequence[str], folder: Path) -> int:
    """Starts `s2s` with these words in a folder; gives the process's number."""
    process = os.fork()
    if process:
        return process
    status = 70
    try:
        os.chdir(folder)
        for stream, file in ((0, os.devnull), (1, "output.txt"), (2, "errors.txt")):
            os.dup2(os.open(file, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666), stream)
        sys.argv = ["s2s", *words]
        from s2s.__main__ import main

        main()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def wait(process: int, seconds: float | None = None, number: int = signal.SIGKILL) -> int:
    """Waits until a process ends; sends a signal when its time is over. Gives its status, negative for a signal."""
    if seconds is not None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        os.kill(process, number)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def words_of(kind: str, run: str, folder: Path) -> list[str]:
    """What goes on with a run, or begins it."""
    return (
        ["train", run, "--resume"]
        if (folder / run / "recipe.yaml").exists()
        else ["train", f"{kind}.yaml", f"run.dir={run}"]
    )


def bits(run: Path) -> dict[str, object]:
    """All that a run has learned and written down, but for times."""
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for entry in entries:
        for clock in ("seconds", "cpu_seconds"):
            entry.pop(clock, None)
    files = {p.relative_to(run).as_posix(): p for p in sorted(run.rglob("*")) if p.is_file()}
    hidden = sorted(name for name in files if "/." in f"/{name}" and name != ".lock")
    tensors = {n: hashlib.sha256(p.read_bytes()).hexdigest() for n, p in files.items() if n.endswith(".safetensors")}
    states = {n: json.loads(p.read_text()) for n, p in files.items() if n.endswith("state.json")}
    scores = {n: [state[key] for key in ("update", "validations")] for n, state in states.items()}
    test = json.loads((run / "evaluation-test.json").read_text())
    return {"metrics": entries, "hidden": hidden, "tensors": tensors, "scores": scores, "test": test["translations"]}


def chain(kind: str, run: str, folder: Path, span: float, chance: random.Random) -> tuple[int, str]:
    """Trains a run, killed again and again at random moments, to its end.

    Args:
        kind: of the model.
        run: its folder's name.
        folder: where it is, beside `straight-<kind>`.
        span: seconds that a life takes when nobody kills it.
        chance: draws the moments.

    Returns:
        How often it was killed, and what is wrong with it; empty where nothing is.
    """
    kills = 0
    while True:
        # on a machine that has become slower a life must be longer to get anywhere
        moment = chance.uniform(0, span * (1 + kills / 4))
        status = wait(begin(words_of(kind, run, folder), folder), moment)
        if status == 0:
            break
        if status != -signal.SIGKILL:
            return kills, f"{run}: status {status}: {(folder / 'errors.txt').read_text()}"
        kills += 1
    there, wanted = bits(folder / run), bits(folder / f"straight-{kind}")
    return kills, ", ".join(f"{run}: {part} differ" for part in wanted if there[part] != wanted[part])


def count(kills: int, seed: int, folder: Path) -> Count:
    """Kills runs until there are that many kills, the kinds of models in turn.

    Args:
        kills: how many, at least.
        seed: of the moments.
        folder: an empty one.
    """
    load()
    chance, found, spans = random.Random(seed), Count(0, 0, 0, []), {}
    os.environ["HF_HOME"] = os.environ["HF_DATASETS_CACHE"] = str(folder / "cache")
    for kind, sizes in SIZES.items():
        (folder / f"{kind}.yaml").write_text(RECIPE.format(kind=kind, sizes=sizes))
        began = time.monotonic()
        if wait(begin(["train", f"{kind}.yaml", f"run.dir=straight-{kind}"], folder)):
            raise RuntimeError((folder / "errors.txt").read_text())
        spans[kind] = time.monotonic() - began
    while found.kills < kills:
        for kind, span in spans.items():
            times, wrong = chain(kind, f"{kind}-{found.runs}-{found.kills}", folder, span, chance)
            found.kills += times
            found.runs += times > 0
            found.same += 0 if wrong else times
            found.others += [wrong] if wrong else []
    return found


def main() -> None:
    """Prints a `Count` as JSON."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--kills", type=int, default=200)
    options.add_argument("--seed", type=int, default=1)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asdict(count(asked.kills, asked.seed, Path(folder)))))


if __name__ == "__main__":
    main()
