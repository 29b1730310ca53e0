"""Record the behaviour of s2s, and compare it with a later version to the last bit.

    python benchmarks/golden.py record OUT.json                   # every group, about 10 minutes on two cores
    python benchmarks/golden.py compare OUT.json                  # record again; list the differences, status 1 if any
    python benchmarks/golden.py compare OUT.json --report         # the same with old and new values
    python benchmarks/golden.py compare OUT.json --numbers        # ignore reworded texts, compare numbers and hashes
    python benchmarks/golden.py compare OUT.json --quick          # a subset, under 2 minutes
    python benchmarks/golden.py compare OUT.json --only trainings models --source DIR

Groups: trainings, models, optimizers, translations, errors, schema, comparisons. `--source DIR` names the checkout whose
s2s is tested (default: the one of this file); `--jobs REGEX` selects single jobs by `group/job`, as `--list` prints them.

Only stable surfaces are used: command lines, recipe keys, files in run folders and the kept comparisons in
docs/comparison-*; nothing of s2s is imported, except by `fault_cases`. Bits depend on the processor and the version of
torch, so compare on the machine that recorded. A command runs in a fork of a process that has loaded third-party
libraries: that is `python -m s2s …` without their loading time.
"""

import argparse
import contextlib
import hashlib
import importlib
import json
import math
import os
import platform
import random
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

ENVIRONMENT = {
    **{"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    **{"COLUMNS": "200", "LINES": "50", "TERM": "dumb", "NO_COLOR": "1", "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"},
    **{"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "MPLBACKEND": "agg", "PYTHONWARNINGS": "ignore"},
}
LIBRARIES = ("torch", "sacrebleu", "sentencepiece", "datasets", "matplotlib.figure", "matplotlib.backends.backend_agg")
LIBRARIES += ("pydantic", "rich.console", "rich.progress", "jiwer", "scipy.stats", "torch.utils.tensorboard", "PIL.Image")
SECONDS = 1500  # a command that takes longer is stopped: a comparison has begun to measure anew

COMMON = """
training: {updates: 20, warmup: 4, learning_rate: 0.003}
device: {kind: cpu, precision: fp32, threads: 1, deterministic: true}
run: {dir: run, save_minutes: 0.0001}
"""
MODEL = "model: {kind: transformer, width: 16, heads: 2, feedforward: 32, dropout: 0.1, "
BOTH = MODEL + "encoder_layers: 1, decoder_layers: 1}\n"
BUILT_IN = "data: {train: 400, validation: 10, test: 10}\ntokenizer: {kind: bpe, size: 400}\n"
SHORT = "decoding: {beam: 2, max_ratio: 0.5, max_extra: 2}\nvalidation: {every: 10, metric: loss}\n"
TABLE = "data: {train: texts.tsv, validation: 10, test: 10}\ntokenizer: {kind: bytes}\n"
RECIPES = {
    "translation": BUILT_IN + "batches: {tokens: 400}\n" + BOTH + SHORT,
    "text-to-text": """
data:
  corpora:
    en-de: {prefix: "to German: ", metric: bleu, source: en, target: de, train: 200, validation: 6, test: 6}
    cases: {prefix: "cases: ", metric: exact, source: de, target: cases, train: 200, validation: 6, test: 6}
tokenizer: {size: 500}
batches: {tokens: 400}
"""
    + BOTH
    + SHORT,
    "classification": TABLE + "batches: {tokens: 400, max_length: 100}\nvalidation: {every: 10}\n" + MODEL + "encoder_layers: 1}\n",
    "language-model": "data: {corpus: built-in, train: 300, validation: 10, test: 10}\ntokenizer: {kind: bytes}\n"
    "batches: {length: 48, tokens: 480}\nvalidation: {every: 10}\n" + MODEL + "decoder_layers: 1}\n",
    "masked-lm": TABLE + "batches: {tokens: 400, max_length: 60}\nvalidation: {every: 10}\n"
    + MODEL + "encoder_layers: 1}\n",
    "captioning": "data: {train: 100, validation: 6, test: 6, size: 16}\nstem: {size: 8}\n"
    "tokenizer: {kind: word, size: 100}\nbatches: {captions: 8}\nvalidation: {every: 10, metric: loss}\n"
    "decoding: {beam: 2, max_length: 8}\n" + BOTH,
    "images": "data: {train: images, validation: 4, test: 4, size: 12}\npatches: {size: 4}\nbatches: {images: 6}\n"
    "augmentation: {shift: 1}\nvalidation: {every: 10}\n" + MODEL + "encoder_layers: 1}\n",
    "cases": "data: {train: 400, validation: 10, test: 10, source: de, target: cases, filters: {max_ratio: null}}\n"
    "tokenizer: {kind: word, size: 2000, shared: false}\nbatches: {tokens: 400}\n"
    "model: {kind: rnn-tagger, width: 16, encoder_layers: 1}\ndecoding: {beam: 1}\nvalidation: {every: 10}\n",
}
WITHOUT_ATTENTION = ("rnn", "gru", "lstm", "mingru", "minlstm")
TRANSLATORS = (*WITHOUT_ATTENTION, "rnn-attention", "gru-attention", "lstm-attention", "conv", "transformer")
# the settings of the models' contract tests, beside their defaults
VARIANTS = (
    "transformer norm=post encoder_positions=learned decoder_positions=none tie=target",
    "transformer attention=explicit activation=gelu tie=none",
    "transformer encoder_positions=rope decoder_positions=rope heads_kind=wide",
    "transformer encoder_positions=alibi decoder_positions=alibi activation=swiglu norm_kind=rms embedding_norm=true",
    "transformer encoder_positions=relative decoder_positions=relative attention=explicit",
    "transformer encoder_positions=relative decoder_positions=rope key_value_heads=1 attention_dropout=0.1",
    "rnn bidirectional=false residual=true",
    "gru bidirectional=false decoder_layers=3",
    "lstm bidirectional=false reverse_source=true residual=true",
    "rnn-attention attention=dot tie=none",
    "gru-attention attention=concat input_feeding=true",
    "lstm-attention attention=location tie=target",
    "lstm-attention attention=additive coverage=true input_feeding=true reverse_source=false",
    "conv kernel=4 encoder_layers=2 decoder_layers=2 tie=none",
    "conv encoder_positions=none decoder_positions=sinusoidal",
    "minlstm bidirectional=false residual=true",
)
POOLINGS = ("mean", "first", "max", "last", "attention", "summary", "pooler")
OPTIMIZERS = {
    "adam": "optimizer=adam",
    "adam l1 and decay": "optimizer=adam l1=0.001 weight_decay=0.1",
    "adamw": "optimizer=adamw weight_decay=0.1 betas=[0.9,0.999] epsilon=1e-6 schedule=cosine",
    "adamw l1": "optimizer=adamw l1=0.01 schedule=linear",
    "sgd": "optimizer=sgd learning_rate=0.1",
    "sgd nesterov": "optimizer=sgd momentum=0.9 nesterov=true weight_decay=0.01 schedule=constant",
    "clip": "clip=0.01",
    "no clip": "clip=null",
    "ema": "ema=0.9",
    "average": "average_last=2",
    "smoothing": "label_smoothing=0.3",
    "accumulation": "tokens_per_update=1600 noise_scale=true",
    "freeze": "freeze=[encoder.layers.0,*.bias]",
    "everything": "optimizer=adamw weight_decay=0.1 clip=0.1 ema=0.9 label_smoothing=0.2 tokens_per_update=1600",
}
QUICK = (
    r"trainings/.*/alone|trainings/translation|optimizers/(sgd|ema|accumulation|everything)$|schema|"
    r"models/(translation (lstm-attention|conv|mingru)|classification gru|language-model lstm)$|translations/translation"
)

Record = Mapping[str, object]
Job = tuple[Callable[..., Record], tuple[object, ...]]


# ---------------------------------------------------------------------------------------------------------------------
# commands


@dataclass(frozen=True)
class Lab:
    """Where a recording works.

    Attributes:
        source: the checkout whose s2s is tested.
        work: temporary folder; each job has a folder in it.
        overrides: recipe overrides added to every training, to see that a change is reported.
    """

    source: Path
    work: Path
    overrides: tuple[str, ...] = ()

    def folder(self) -> Path:
        """Makes a new folder with the corpora of the recipes."""
        folder = Path(tempfile.mkdtemp(dir=self.work))
        write_corpora(folder)
        return folder

    def plain(self, text: str) -> str:
        """Replaces what differs between two recordings: paths, memory sizes, process numbers."""
        for path, name in ((self.source, "{source}"), (self.work, "{work}")):
            text = text.replace(str(path), name)
        return re.sub(r"\{work\}/\w+", "{work}", text)


@dataclass(frozen=True)
class Done:
    """Exit status and output of a command."""

    status: int
    out: str
    err: str


def write_corpora(folder: Path) -> None:
    """Writes a table of labelled texts and a folder of labelled images."""
    from PIL import Image

    words = "the a old new film book dog house was is good bad great dull never always red blue seen read".split()
    draw = random.Random(7)
    rows = []
    for n in range(120):
        text = " ".join(draw.choice(words) for _ in range(draw.randint(3, 12)))
        rows.append(f"{text} {n}\t{'good' if n % 2 else 'bad'}\n")
    (folder / "texts.tsv").write_text("text\tlabel\n" + "".join(rows))
    for n in range(30):
        path = folder / "images" / ("light" if n % 2 else "dark") / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = bytes(draw.randint(*((100, 255) if n % 2 else (0, 155))) for _ in range(144))
        Image.frombytes("L", (12, 12), pixels).save(path)


def start(folder: Path, *words: str, text: bytes = b"", inside: str = ".") -> int:
    """Starts `s2s WORDS` as a process group; returns its process id.

    Args:
        folder: gets `stdout.txt` and `stderr.txt`.
        words: of the command line.
        text: standard input.
        inside: the working directory, a path from `folder`.
    """
    (folder / "stdin.txt").write_bytes(text)
    process = os.fork()
    if process:
        return process
    status = 70
    try:
        os.setsid()
        os.chdir(folder)
        for number, name in enumerate(("stdin.txt", "stdout.txt", "stderr.txt")):
            flags = os.O_RDWR | os.O_CREAT | (os.O_TRUNC if number else 0)
            os.dup2(os.open(name, flags, 0o666), number)
        os.chdir(inside)
        sys.stdin, sys.stdout, sys.stderr = (open(n, mode, closefd=False) for n, mode in enumerate("rww"))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["s2s", *words]
        runpy.run_module("s2s", run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def finish(folder: Path, process: int, until: Callable[[], bool] = lambda: False) -> Done:
    """Waits for a command; kills it where it takes too long or when `until` is true."""
    end = time.monotonic() + SECONDS
    while not (ended := os.waitpid(process, os.WNOHANG))[0]:
        if time.monotonic() > end or until():
            os.killpg(process, signal.SIGKILL)
            ended = os.waitpid(process, 0)
            break
        time.sleep(0.002)
    out, err = ((folder / name).read_text(errors="replace") for name in ("stdout.txt", "stderr.txt"))
    return Done(os.waitstatus_to_exitcode(ended[1]), out, err)


def s2s(folder: Path, *words: str, text: str = "") -> Done:
    """Runs `s2s WORDS` in a folder."""
    return finish(folder, start(folder, *words, text=text.encode()))


# ---------------------------------------------------------------------------------------------------------------------
# what is recorded


def digest(value: object) -> str:
    """SHA-256 of bytes, or of a value as JSON."""
    data = value if isinstance(value, bytes) else json.dumps(value, sort_keys=True, ensure_ascii=False).encode()
    return hashlib.sha256(data).hexdigest()


def without_clock(value: object) -> object:
    """A value from JSON without wall-clock fields, machine, and hashes that s2s makes of weights and files."""
    dropped = {"weights", "digest", "machine", "machines", "codes", "commit", "date", "command", "format", "tensorboard"}
    if isinstance(value, Mapping):
        kept = {k: v for k, v in value.items() if k not in dropped and not k.endswith("seconds")}
        return {key: without_clock(each) for key, each in kept.items()}
    return [without_clock(each) for each in value] if isinstance(value, list) else value


def tensors(path: Path) -> dict[str, str]:
    """SHA-256 of every tensor in a safetensors file, with its shape and type."""
    from safetensors import safe_open
    from torch import uint8

    with safe_open(path, "pt") as file:
        each = {name: file.get_tensor(name).contiguous() for name in file.keys()}
    of = {name: digest(t.reshape(-1).view(uint8).numpy().tobytes()) for name, t in each.items()}
    return {name: f"{of[name]} {list(t.shape)} {t.dtype}" for name, t in each.items()}


def run_files(run: Path) -> Record:
    """What a training has left: tensors of the last checkpoint and the average, metrics, state and test scores."""
    found: dict[str, object] = {}
    folders = sorted(path for path in (run / "checkpoints").glob("*") if path.is_dir())
    numbered = [path for path in folders if path.name.isdigit()]
    for path in [*numbered[-1:], *(path for path in folders if not path.name.isdigit())]:
        for file in sorted(path.glob("*.safetensors")):
            found[f"{path.name}/{file.stem}"] = tensors(file)
        state = json.loads((path / "state.json").read_text()) if (path / "state.json").exists() else None
        found[f"{path.name}/state"] = without_clock(state)
    metrics = [without_clock(json.loads(line)) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found["metrics.jsonl"] = digest(metrics)
    found["loss"] = [line["loss"] for line in metrics if isinstance(line, dict) and "loss" in line][-1]
    found["validation"] = [line["validation"] for line in metrics if isinstance(line, dict) and "validation" in line][-1]
    for path in sorted(run.glob("evaluation-*.json")):
        scores = without_clock(json.loads(path.read_text()))
        found[path.name] = {"all": digest(scores), "scores": scores.get("scores") if isinstance(scores, dict) else None}
    return found


def flat(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """The leaves of nested mappings and lists, with their paths."""
    if isinstance(value, Mapping):
        items: Iterable[tuple[object, object]] = value.items()
    elif isinstance(value, list):
        names = [_name(each) for each in value]
        unique = None not in names and len(set(names)) == len(names)
        items = zip(names, value, strict=True) if unique else enumerate(value)
    else:
        yield path, value
        return
    for key, each in items:
        yield from flat(each, f"{path}/{key}" if path else str(key))


def _name(value: object) -> str | None:
    """How a comparison names an element of a list: by question and model, by name, or by label."""
    if not isinstance(value, Mapping):
        return None
    keys = [key for key in ("row", "name", "label", "model") if value.get(key)]
    return " ".join(str(value[key]) for key in keys) or None


# ---------------------------------------------------------------------------------------------------------------------
# jobs: each function records one thing; the tables below name them


def write_recipe(lab: Lab, folder: Path, task: str, words: Iterable[str]) -> tuple[str, ...]:
    """Writes a recipe; returns the words of the command that trains by it."""
    kind = "translation" if task == "cases" else task
    (folder / "recipe.yaml").write_text(f"name: golden\ntask: {kind}\n{RECIPES[task]}{COMMON}")
    return ("train", "recipe.yaml", *words, *lab.overrides)


def outcome(lab: Lab, done: Done, run: Path) -> Record:
    """The record of a training that has ended, or its error."""
    if done.status:
        return {"status": done.status, "error": lab.plain(done.err)[-1500:]}
    return {"status": 0, **run_files(run)}


def train(lab: Lab, task: str, *words: str) -> Record:
    """A training in one process."""
    folder = lab.folder()
    return outcome(lab, s2s(folder, *write_recipe(lab, folder, task, words)), folder / "run")


def train_together(lab: Lab, task: str, *words: str) -> Record:
    """A training in two processes, by torchrun and gloo."""
    folder = lab.folder()
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "s2s"]
    command = [*launch, *write_recipe(lab, folder, task, words)]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    return outcome(lab, Done(ran.returncode, ran.stdout, ran.stderr), folder / "run")


def train_killed(lab: Lab, task: str, *words: str) -> Record:
    """A training that is killed after a checkpoint of update 10 or later, and resumed to its end."""
    for _ in range(8):
        folder = lab.folder()
        checkpoints = folder / "run/checkpoints"
        process = start(folder, *write_recipe(lab, folder, task, words))

        def saved(path: Path = checkpoints) -> bool:
            return any(p.name.isdigit() and int(p.name) >= 10 for p in path.glob("*"))

        killed = finish(folder, process, saved)
        if killed.status != 0 and killed.status != -signal.SIGKILL:
            return outcome(lab, killed, folder / "run")
        updates = max((int(p.name) for p in checkpoints.glob("*") if p.name.isdigit()), default=0)
        if killed.status and updates < 20:
            return outcome(lab, s2s(folder, "train", "run", "--resume"), folder / "run")
    return {"status": "never killed in time"}


def train_from(lab: Lab) -> Record:
    """A classifier that begins with the encoder of a masked-language model."""
    folder = lab.folder()
    s2s(folder, *write_recipe(lab, folder, "masked-lm", ["run.dir=first"]))
    return outcome(
        lab, s2s(folder, *write_recipe(lab, folder, "classification", ["init_from=first"])), folder / "run"
    )


def outputs(lab: Lab, folder: Path, commands: Mapping[str, tuple[tuple[str, ...], str]]) -> dict[str, object]:
    """Standard output of commands, by line; with the error where one fails."""
    found: dict[str, object] = {}
    for name, (words, text) in commands.items():
        done = s2s(folder, *words, text=text)
        found[name] = lab.plain(done.out).splitlines() if done.status == 0 else [done.status, lab.plain(done.err)]
    return found


def translations(lab: Lab) -> Record:
    """Translations of 50 sentences by two models, and their evaluation."""
    folder, found = lab.folder(), dict[str, object]()
    usual = ["data.test=50", "data.train=2000", "model.width=32", "training.updates=250", "decoding.max_ratio=1.5"]
    for kind in ("transformer", "lstm-attention"):
        words = [*usual, "validation.every=100", f"model.kind={kind}", f"run.dir={kind}", "training.learning_rate=0.01"]
        done = s2s(folder, *write_recipe(lab, folder, "translation", words))
        if done.status:
            return outcome(lab, done, folder)
        text = "\n".join(json.loads((folder / kind / "evaluation-test.json").read_text())["sources"]) + "\n"
        asked = {"beam 1": ("--beam", "1"), "beam 5": ("--beam", "5"), "n-best": ("--beam", "5", "--nbest", "3")}
        asked["length penalty"] = ("--beam", "3", "--length-penalty", "0.5")
        found[kind] = outputs(lab, folder, {name: (("translate", kind, *own), text) for name, own in asked.items()})
        found[f"{kind}/run"] = run_files(folder / kind)
    compared = ("evaluate", "transformer", "lstm-attention", "--beam", "1", "--json", "compared.json")
    found["evaluate"] = outputs(lab, folder, {"out": (compared, "")})
    if (folder / "compared.json").exists():
        found["evaluate --json"] = without_clock(json.loads((folder / "compared.json").read_text()))
    return found


def answers(lab: Lab, task: str) -> Record:
    """Outputs of a run of another task, and its evaluation."""
    folder = lab.folder()
    done = s2s(folder, *write_recipe(lab, folder, task, ["training.updates=100", "validation.every=50"]))
    if done.status:
        return outcome(lab, done, folder)
    lines = [row.split("\t")[0] for row in (folder / "texts.tsv").read_text().splitlines()[1:51]]
    text, pictures = "\n".join(lines) + "\n", sorted(str(p.relative_to(folder)) for p in folder.glob("images/*/*.png"))
    prompts = "The old\n\nA woman\nTomorrow the\n"
    commands = {
        "classification": {"classes": (("classify", "run", "--probabilities"), text)},
        "images": {"classes": (("classify", "run", "--probabilities"), "\n".join(pictures) + "\n")},
        "captioning": {f"beam {n}": (("caption", "run", *pictures[:10], "--beam", n), "") for n in "13"},
        "text-to-text": {name: (("translate", "run", "--task", name), text) for name in ("en-de", "cases")},
        "masked-lm": {n: (("fill", "run", "the ___ was good", "--pieces", n), "") for n in "12"},
        "language-model": {
            "greedy": (("generate", "run", "--temperature", "0", "--max-tokens", "30"), prompts),
            "drawn": (("generate", "run", "--top-k", "9", "--seed", "3", "--count", "2", "--max-tokens", "30"), prompts),
            "top-p": (("generate", "run", "The", "--top-p", "0.8", "--max-tokens", "30"), ""),
        },
    }[task]
    found = outputs(lab, folder, commands | {"evaluate": (("evaluate", "run", "--json", "scores.json"), "")})
    if (folder / "scores.json").exists():
        found["evaluate --json"] = without_clock(json.loads((folder / "scores.json").read_text()))
    return found


def fault_cases(folder: Path) -> tuple[Path, list[tuple[str, tuple[str, ...], Callable[[Path], None], bytes]]]:
    """The bad inputs of tests/faults: the folder of good things, and each input's name, words, files and stdin.

    The only place that imports from the checkout. It loads s2s into this process.
    """
    bad = [importlib.import_module(f"tests.faults.bad_{name}") for name in ("recipes", "commands", "files")]
    world = importlib.import_module("tests.faults.world").make_world(folder / "world")
    cases = [case for module in bad for case in module.cases()]
    return world, [(case.name, case.command, case.lay_out, case.text) for case in cases]


def errors(lab: Lab) -> Record:
    """Exit status and message of every bad input in tests/faults."""
    folder, found = lab.folder(), dict[str, object]()
    os.environ["HF_DATASETS_CACHE"] = str(folder / "cache")
    sys.path.insert(0, str(lab.source))
    with (folder / "log.txt").open("w") as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        world, cases = fault_cases(folder)
    for name, words, lay_out, text in cases:
        here = folder / "here"
        shutil.rmtree(here, ignore_errors=True)
        lay_out(here)
        command = [word.replace("{world}", str(world)) for word in words]
        process = start(folder, *command, text=text, inside="here")
        done = finish(folder, process)
        message = done.err.replace(str(world), "{world}").replace(str(here), "{here}")
        found[name[:200]] = {"status": done.status, "message": lab.plain(message)[:6000]}
    return found


def schema(lab: Lab) -> Record:
    """The JSON schema of recipes, and the help of every command."""
    folder = lab.folder()
    done = s2s(folder, "recipe", "schema")
    found: dict[str, object] = {"recipe": json.loads(done.out) if done.status == 0 else [done.status, done.err]}
    helps, groups = dict[str, object](), [()]
    while groups:
        words = groups.pop(0)
        text = s2s(folder, *words, "--help").out
        helps[" ".join(("s2s", *words))] = lab.plain(text).splitlines()
        _, _, listed = text.partition("Commands:\n")
        groups += [(*words, name) for name in re.findall(r"^  ([a-z][\w-]*)", listed, re.MULTILINE)]
    return found | {"help": helps}


def comparison(lab: Lab, name: str) -> Record:
    """A kept comparison, concluded again by `s2s compare --resume` from its measurements."""
    folder = lab.folder()
    shutil.copytree(lab.source / f"docs/comparison-{name}", folder / name)
    with tarfile.open(folder / name / "cells.tar.xz") as archive:
        archive.extractall(folder / name, filter="data")
    results = sorted((folder / name).glob("*/result.json"))
    for path in results:
        path.unlink()
    kept = {str(path.relative_to(folder)) for path in folder.glob(f"{name}/cells/**/*.json")}
    done = s2s(folder, "compare", "--resume", name)
    measured = sorted({str(path.relative_to(folder)) for path in folder.glob(f"{name}/cells/**/*.json")} - kept)
    found: dict[str, object] = {"status": done.status, "measured anew": measured}
    if done.status:
        found["error"] = lab.plain(done.err)[-1500:]
    for path in (folder / name / "comparison.json", *results):
        if path.exists():
            value = without_clock(json.loads(path.read_text()))
            if isinstance(value, dict) and "tables" in value:
                value["tables"] = {table["name"]: _rows(table) for table in value["tables"]}
            found[path.parent.name if path in results else path.name] = value
        else:
            found[path.parent.name] = "missing"
    return found


def _rows(table: Mapping[str, list]) -> dict[str, object]:
    rows = (dict(zip(table["columns"], row, strict=True)) for row in table["rows"])
    return {f"{number} {next(iter(row.values()), '')}": row for number, row in enumerate(rows)}


def jobs(lab: Lab) -> dict[str, Job]:
    """Every job by `group/name`, those that take longest first."""
    found: dict[str, Job] = {}
    for name in ("lecture", "scaling", "definitive"):
        found[f"comparisons/{name}"] = comparison, (lab, name)
    found["errors/all"] = errors, (lab,)
    found["translations/translation"] = translations, (lab,)
    tasks = [task for task in RECIPES if task != "cases"]
    for task in tasks[1:]:
        found[f"translations/{task}"] = answers, (lab, task)
    for task in tasks:
        found[f"trainings/{task}/alone"] = train, (lab, task)
        found[f"trainings/{task}/killed"] = train_killed, (lab, task)
    for task in ("translation", "classification", "language-model"):
        found[f"trainings/{task}/two processes"] = train_together, (lab, task)
    found["trainings/translation/sharded"] = train_together, (lab, "translation", "device.shard=true")
    found["trainings/translation/bf16"] = train, (lab, "translation", "device.precision=bf16")
    found["trainings/translation/early stopping"] = (
        train,
        (lab, "translation", "validation.every=2", "validation.patience=1", "training.learning_rate=3"),
    )
    found["trainings/classification/from masked-lm"] = train_from, (lab,)
    for text in (*TRANSLATORS, *VARIANTS):
        kind, *settings = text.split(" ")
        words = (f"model.kind={kind}", *(f"model.{each}" for each in settings))
        found[f"models/translation {text}"] = train, (lab, "translation", *words)
    for cell in ("rnn", "gru", "lstm"):
        found[f"models/tagger {cell}"] = train, (lab, "cases", f"model.cell={cell}")
    others = {"classification": TRANSLATORS, "language-model": TRANSLATORS, "captioning": ("lstm-attention", "conv")}
    others |= {"masked-lm": ("lstm", "conv"), "images": ("gru", "minlstm"), "text-to-text": ("gru-attention",)}
    for task, kinds in others.items():
        for kind in kinds:
            found[f"models/{task} {kind}"] = train, (lab, task, f"model.kind={kind}")
    for pooling in POOLINGS:
        found[f"models/classification pooling {pooling}"] = train, (lab, "classification", f"head.pooling={pooling}")
    for name, text in OPTIMIZERS.items():
        words = (f"training.{each}" for each in text.split(" "))
        found[f"optimizers/{name}"] = train, (lab, "translation", *words)
    found["schema/all"] = schema, (lab,)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# recording and comparing


def record(source: Path, wanted: Callable[[str], bool], overrides: tuple[str, ...] = ()) -> dict[str, dict[str, object]]:
    """Runs the jobs that are wanted, two at a time; returns the leaves of each one's record by their paths."""
    os.environ.update(ENVIRONMENT | {"PYTHONPATH": str(source)})
    # not the folder of this file, whose scripts are called as libraries are
    sys.path[0] = str(source)
    place = find_spec("s2s")
    print(f"s2s under test: {place.origin if place else 'none'}", file=sys.stderr)
    for name in LIBRARIES:
        importlib.import_module(name)
    found: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory(prefix="golden-") as work:
        chosen = {name: job for name, job in jobs(Lab(source, Path(work).resolve(), overrides)).items() if wanted(name)}
        with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
            futures = {name: pool.submit(function, *given) for name, (function, given) in chosen.items()}
            for number, (name, future) in enumerate(futures.items(), 1):
                found[name] = dict(flat(future.result()))
                if failed := found[name].get("status"):
                    print(f"{name}: status {failed}: {found[name].get('error', '')}", file=sys.stderr)
                print(f"\r{number} of {len(futures)}: {name:60}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return json.loads(json.dumps(found))


def machine() -> dict[str, str]:
    """What the bits depend on, beside s2s."""
    import torch

    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()) if Path("/proc/cpuinfo").exists() else None
    return {"processor": cpu[1] if cpu else platform.processor(), "torch": torch.__version__}


def is_text(value: object) -> bool:
    """Whether a leaf is text, not a number or a hash."""
    return isinstance(value, str) and not re.match(r"[0-9a-f]{64}\b", value)


def differences(old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[tuple[str, str, object, object]]:
    """The kind of each difference between two records of a job (text, number, renamed), its path, old and new value.

    A tensor that has another name and the same bits is `renamed`.
    """
    gone = {path: value for path, value in old.items() if path not in new}
    come = {path: value for path, value in new.items() if path not in old}
    for path, value in list(gone.items()):
        same = next((p for p, v in come.items() if v == value and not is_text(v) and isinstance(v, str)), None)
        if same:
            yield "renamed", path, path, same
            del gone[path], come[same]
    for path in dict.fromkeys([*old, *new]):
        before, after = old.get(path, "(absent)"), new.get(path, "(absent)")
        if path in gone or path in come or (path in old and path in new and before != after):
            present = [value for value in (before, after) if value != "(absent)"]
            yield "text" if all(map(is_text, present)) else "number", path, before, after


def shown(value: object, other: object) -> str:
    """A value in the report; of two numbers, how far they are apart."""
    numbers = [v for v in (value, other) if isinstance(v, float | int) and not isinstance(v, bool) and math.isfinite(v)]
    apart = f" ({abs(numbers[0] - numbers[1]) / max(map(abs, numbers)):.1e} apart)" if len(numbers) == 2 else ""
    return json.dumps(value, ensure_ascii=False)[:2000] + apart


def main() -> int:
    """Records or compares; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", nargs="+", default=[], metavar="GROUP")
    parser.add_argument("--jobs", default="", metavar="REGEX")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--source", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--numbers", action="store_true")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    pattern = re.compile(given.jobs or (QUICK if given.quick else ""))

    def wanted(name: str) -> bool:
        return (not given.only or name.partition("/")[0] in given.only) and bool(pattern.search(name))

    kept = json.loads(given.file.read_text()) if given.file.exists() else {"machine": machine(), "jobs": {}}
    if given.list:
        print(*filter(wanted, jobs(Lab(given.source, Path()))), sep="\n")
        return 0
    if kept["machine"] != machine():
        print(f"recorded on {kept['machine']}, this is {machine()}: bits may differ", file=sys.stderr)
    found = record(given.source.resolve(), wanted, tuple(given.override))
    if given.action == "record":
        kept["jobs"] |= found
        given.file.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
        print(f"{len(found)} jobs recorded in {given.file}")
        return 0
    counts: dict[str, int] = {}
    for name, new in found.items():
        for kind, path, before, after in differences(kept["jobs"].get(name, {}), new):
            if given.numbers and kind != "number":
                continue
            counts[f"{name} {kind}"] = counts.get(f"{name} {kind}", 0) + 1
            if given.report:
                print(f"{name}: {kind}: {path}", f"    old: {shown(before, after)}", f"    new: {shown(after, before)}", sep="\n")
    for name, count in counts.items():
        print(f"{name}: {count} differences")
    print(f"{len(found)} jobs compared, {sum(counts.values())} differences, s2s of {given.source.resolve()}")
    return int(bool(counts))


if __name__ == "__main__":
    sys.exit(main())
