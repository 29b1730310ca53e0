"""s2s and other toolkits side by side: training and decoding, in turns.

    python -m benchmarks.peers --root DIR --environments ELSEWHERE     # DIR holds Multi30k's files

Everyone has the same machine and threads, the same sentences cut into the same pieces (those of s2s, written out as
text), and the same shape of model (`task.py`); each toolkit has its own training loop, batches and configuration, in a
file of its own here. They are installed into environments of their own under ELSEWHERE, about 5 GB, which are used
again the next time; what cannot be installed or cannot run is named with its reason.

A contestant is a process that waits for its turn. In a round everybody makes so many updates, one after the other, and
who begins moves on; what slows the machine falls on neighbours. What is compared is real target tokens a second, on the
wall's clock and on the processor's. Each turn, the sentences that a toolkit says it has learned from are looked up in
the corpus, and its own count of tokens must be theirs.

For decoding, s2s is trained briefly; everybody has those weights, as an export or under other names, and no length
penalty, so that all write about the same translations; it is said how many are the same, and how long they are.

Where a product of matrices takes longer in bf16 than in fp32, as on a processor without instructions for bf16, only
fp32 is measured. ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 CT2_FORCE_CPU_ISA=AVX2
keep all toolkits to the instructions of a laptop.

What was measured is kept after each round: the same command goes on where it was stopped. It writes
docs/results/peers.json (peers-fp32.json if only fp32 is measured) and the tables of docs/speed.md; with --out FILE,
that file alone. --small runs everything in a few minutes to see that it works: what it measures is worth nothing.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.keeping import RESULTS, write_tables
from benchmarks.peers import task as given
from benchmarks.peers.contestants import ENVIRONMENTS, LEFT_OUT, PARTS, ROOT, Failed, make_environment, versions
from benchmarks.peers.measuring import Contest, Measured, measure, note, players_of
from benchmarks.peers.task import SIDES, SPECIALS, Task
from benchmarks.peers.telling import kept_tables, table
from s2s.data.batches import make_batches
from s2s.data.pairs import load, load_split
from s2s.export.sentencepiece import vocabulary
from s2s.files import write_atomically, write_folder_atomically
from s2s.run.inference import load as load_run
from s2s.run.manifest import git_commit, processor_name

WRITER = "peers/__main__"
_EPOCHS = 8


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="folder with Multi30k's files")
    parser.add_argument(
        "--environments", type=Path, required=True, help="folder for environments and what is half done"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--updates", type=int, default=4, help="of a turn in training")
    parser.add_argument("--tokens", type=int, default=4096, help="positions of a batch at most")
    parser.add_argument("--train-updates", type=int, default=300, help="of the run that is decoded with")
    parser.add_argument("--pairs", type=int, help="of the corpus that is learned from; all when absent")
    # without a cache, 1,000 sentences take JoeyNMT minutes
    parser.add_argument("--sentences", type=int, default=320, help="of the test set")
    parser.add_argument("--small", action="store_true", help="sizes that only show that everything runs")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--install", action="store_true", help="make the environments and the task, measure nothing")
    asked = parser.parse_args()
    if asked.small:
        asked.rounds, asked.updates, asked.tokens, asked.train_updates = 2, 2, 512, 12
        asked.pairs, asked.sentences = 500, 16
        asked.out = asked.out or asked.environments / "small.json"
    return asked


def prepare(folder: Path, asked: argparse.Namespace) -> None:
    """Trains s2s briefly, and writes out what everybody is given; the folder is there whole or not at all."""
    if folder.exists():
        return
    with write_folder_atomically(folder) as place:
        place.mkdir()
        task = Task(place)
        _s2s("train", ROOT / "recipes" / "multi30k_transformer.yaml", f"run.dir={task.run}", *recipe(asked))
        for quantization in ("float32", "int8"):
            how = ("--to", "ctranslate2", "--quantization", quantization)
            _s2s("export", task.run, *how, "--output", task.export(quantization))
        loaded = load_run(task.run)
        (tokenizer,) = loaded.tokenizers
        names = np.array(vocabulary(tokenizer))
        _write(task.vocabulary, names[len(SPECIALS) :])
        data = loaded.recipe.data.model_copy(update={"test": "test"})
        train: Any = load(data).train
        test: Any = load_split(data, "test")
        sides = ("source", "target")
        for name, part, most in (("train", train, asked.pairs), ("test", test, asked.sentences)):
            for side, column in zip(SIDES, sides, strict=True):
                rows = tokenizer.encode_batch(part[column][:most])
                _write(task.side(name, side), [" ".join(names[row]) for row in rows])
        _write(task.texts, test["source"][: asked.sentences])
        source, target = (
            np.array([len(row) + 1 for row in tokenizer.encode_batch(train[each][: asked.pairs])]) for each in sides
        )
        batches = [
            rows.tolist() for epoch in range(_EPOCHS) for rows in make_batches(source, target, asked.tokens, 1, epoch)
        ]
        task.planned.write_text(json.dumps({"tokens": asked.tokens, "batches": batches}), encoding="utf-8")
        np.savez(task.weights, **{name: value.numpy() for name, value in loaded.model.state_dict().items()})


def recipe(asked: argparse.Namespace) -> list[str]:
    """Return the settings in which the run for decoding differs from recipes/multi30k_transformer.yaml."""
    model = {"width": given.WIDTH, "heads": given.HEADS, "feedforward": given.INNER, "dropout": given.DROPOUT}
    model |= {"encoder_layers": given.LAYERS, "decoder_layers": given.LAYERS, "norm_epsilon": given.EPSILON}
    training = {"updates": asked.train_updates, "learning_rate": 0.003, "warmup": 0.3, "ema": "null"}
    # nobody looks at what it scores
    others = {"validation.every": asked.train_updates, "validation.metric": "loss", "data.test": "null"}
    others |= {"data.root": asked.root.resolve(), "device.threads": asked.threads, "batches.tokens": asked.tokens}
    found = {f"model.{key}": value for key, value in model.items()} | others
    return [f"{key}={value}" for key, value in (found | {f"training.{k}": v for k, v in training.items()}).items()]


def _s2s(*words: object) -> None:
    done = subprocess.run([sys.executable, "-m", "s2s", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"s2s {words[0]}: {done.stderr}")


def _write(path: Path, texts: Any) -> None:
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def instructions() -> dict[str, str]:
    """Return the environment variables that keep toolkits to a subset of the processor's instructions."""
    names = ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS", "CT2_FORCE_CPU_ISA")
    return {name: os.environ[name] for name in names if name in os.environ}


def is_bf16_faster(size: int = 512, repeats: int = 5) -> bool:
    """Return whether a product of square matrices takes less time in bf16 than in fp32 on this processor."""

    def seconds(dtype: torch.dtype) -> float:
        matrix = torch.ones(size, size, dtype=dtype)
        taken = []
        # the first product, which chooses the kernel, does not count
        for _ in range(1 + repeats):
            began = time.perf_counter()
            matrix @ matrix
            taken.append(time.perf_counter() - began)
        return min(taken[1:])

    return seconds(torch.bfloat16) < seconds(torch.float32)


def load_measurement(asked: argparse.Namespace, unfinished: Path, bf16: bool) -> Measured:
    """Load the unfinished measurement of these settings and this machine, or return a new one."""
    kept = ("threads", "tokens", "updates", "train_updates", "pairs", "sentences")
    commit = git_commit()
    fresh: Measured = {
        "command": "python -m benchmarks.peers" + (" --small" if asked.small else ""),
        "settings": {key: getattr(asked, key) for key in kept} | {"bf16": bf16, "instructions": instructions()},
        "model": {key.lower(): getattr(given, key) for key in ("WIDTH", "HEADS", "INNER", "LAYERS")},
        "machine": processor_name(),
        "threads": asked.threads,
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit["commit"] if commit else "",
        "training": _part(asked.updates, 3),
        "decoding": _part(1, 1),
    }
    if unfinished.exists():
        found = json.loads(unfinished.read_text(encoding="utf-8"))
        same = ("settings", "model", "machine", "torch", "commit")
        if all(found[key] == fresh[key] for key in same):
            return found
    return fresh


def _part(updates: int, warmup: int) -> Measured:
    return {"updates": updates, "warmup": warmup, "warmed": {}, "missing": {}, "rounds": []}


def install(folder: Path) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Makes all environments: their versions, and why one could not be made."""
    found, missing = {}, {}
    for name in ENVIRONMENTS:
        print(f"environment {name}", flush=True)
        try:
            make_environment(name, folder)
            found[name] = versions(name, folder)
        except Failed as error:
            missing[name] = str(error)
            print(f"  {error}", flush=True)
    return found, missing


def main() -> None:
    asked = options()
    folder = asked.environments.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    sizes = (asked.tokens, asked.train_updates, asked.pairs or "all", asked.sentences)
    name = "-".join(map(str, ("task", *sizes)))
    installed, missing = install(folder)
    print("the task", flush=True)
    prepare(folder / name, asked)
    if asked.install:
        return
    unfinished = folder / f"{name}.unfinished.json"
    bf16 = is_bf16_faster()
    found = load_measurement(asked, unfinished, bf16)
    found |= {"environments": installed, "left_out": LEFT_OUT}
    os.chdir(ROOT)
    for part, everyone in PARTS.items():
        contestants = [one for one in everyone if bf16 or "bf16" not in one.form]
        print(part, flush=True)
        players = players_of(contestants, part, folder / name, folder, asked.threads)
        for one in contestants:
            if one.environment in missing:
                note(found[part], one, missing[one.environment])
        contest = Contest(players, Task(folder / name), lambda said: print(said, flush=True))
        save = lambda: write_atomically(unfinished, json.dumps(found, indent=1) + "\n")  # noqa: E731
        measure(contest, found[part], asked.rounds, save)
    shutil.rmtree(folder / name / "scratch", ignore_errors=True)
    kept = RESULTS / ("peers.json" if bf16 else "peers-fp32.json")
    write_atomically(asked.out or kept, json.dumps(found, indent=1) + "\n")
    print(table(found))
    if asked.out is None:
        write_tables({"docs/speed.md": kept_tables(RESULTS)}, WRITER)
    unfinished.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
