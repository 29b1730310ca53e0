"""The jobs of `benchmarks.golden`: each runs s2s by its command line, and returns what is recorded of it."""

import contextlib
import importlib
import json
import os
import pkgutil
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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.golden_files import Record, run_files, without_clock
from benchmarks.golden_recipes import (
    OPTIMIZERS,
    POOLINGS,
    RECIPES,
    TRANSLATORS,
    VARIANTS,
    WITHOUT_ATTENTION,
    write_corpora,
    write_recipe,
)

SECONDS = 1500  # a command that takes longer is stopped: a comparison has begun to measure anew

Job = tuple[Callable[..., Record], tuple[object, ...]]


@dataclass(frozen=True)
class Lab:
    """Paths of a recording.

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

    def train(self, folder: Path, task: str, *words: str) -> tuple[str, ...]:
        """Writes the recipe of a task; returns the command that trains by it."""
        write_recipe(folder, task)
        return ("train", "recipe.yaml", *words, *self.overrides)

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
        sys.stdin, sys.stdout, sys.stderr = (open(n, mode, closefd=False) for n, mode in enumerate("rww"))  # noqa: SIM115
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
# jobs: each function records one thing; the tables below name them


def outcome(lab: Lab, done: Done, run: Path) -> Record:
    """The record of a training that has ended, or its error."""
    if done.status:
        return {"status": done.status, "error": lab.plain(done.err)[-1500:]}
    return {"status": 0, **run_files(run)}


def train(lab: Lab, task: str, *words: str) -> Record:
    """A training in one process."""
    folder = lab.folder()
    return outcome(lab, s2s(folder, *lab.train(folder, task, *words)), folder / "run")


def train_two_processes(lab: Lab, task: str, *words: str) -> Record:
    """A training in two processes, by torchrun and gloo."""
    folder = lab.folder()
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "s2s"]
    command = [*launch, *lab.train(folder, task, *words)]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    return outcome(lab, Done(ran.returncode, ran.stdout, ran.stderr), folder / "run")


def train_killed(lab: Lab, task: str, *words: str) -> Record:
    """A training that is killed after a checkpoint of update 10 or later, and resumed to its end."""
    for _ in range(8):
        folder = lab.folder()
        checkpoints = folder / "run/checkpoints"
        # a checkpoint after every update
        process = start(folder, *lab.train(folder, task, "run.save_minutes=0.0001", *words))

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
    s2s(folder, *lab.train(folder, "masked-lm", "run.dir=first"))
    return outcome(lab, s2s(folder, *lab.train(folder, "classification", "init_from=first")), folder / "run")


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
        done = s2s(folder, *lab.train(folder, "translation", *words))
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
    done = s2s(folder, *lab.train(folder, task, "training.updates=100", "validation.every=50"))
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
            "drawn": (
                ("generate", "run", "--top-k", "9", "--seed", "3", "--count", "2", "--max-tokens", "30"),
                prompts,
            ),
            "top-p": (("generate", "run", "The", "--top-p", "0.8", "--max-tokens", "30"), ""),
        },
    }[task]
    found = outputs(lab, folder, commands | {"evaluate": (("evaluate", "run", "--json", "scores.json"), "")})
    if (folder / "scores.json").exists():
        found["evaluate --json"] = without_clock(json.loads((folder / "scores.json").read_text()))
    return found


def errors(lab: Lab, table: str) -> Record:
    """Exit status and message of every bad input in a table of tests/faults (`bad_TABLE.py`).

    The only job that imports from the checkout: the table, and all modules of s2s, so that the hundreds of forks need
    not. What the inputs are given to is made in another process, as a training may leave threads, whose locks a fork
    would wait for.
    """
    folder, found = lab.folder(), dict[str, object]()
    os.environ["HF_DATASETS_CACHE"] = str(folder / "cache")
    world = folder / "world"
    make = f"from pathlib import Path; from tests.faults.world import make_world; make_world(Path({str(world)!r}))"
    subprocess.run([sys.executable, "-c", make], cwd=lab.source, stdout=subprocess.DEVNULL, check=True)
    package = importlib.import_module("s2s")
    for module in pkgutil.walk_packages(package.__path__, "s2s.", lambda _: None):
        if not module.name.endswith("__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)
    for case in importlib.import_module(f"tests.faults.bad_{table}").cases():
        here = folder / "here"
        shutil.rmtree(here, ignore_errors=True)
        case.lay_out(here)
        words = [word.replace("{world}", str(world)) for word in case.command]
        done = finish(folder, start(folder, *words, text=case.text, inside="here"))
        message = done.err.replace(str(world), "{world}").replace(str(here), "{here}")
        found[case.name[:200]] = {"status": done.status, "message": lab.plain(message)[:6000]}
    return found


def schema(lab: Lab) -> Record:
    """The JSON schema of recipes, and the help of every command."""
    folder = lab.folder()
    done = s2s(folder, "recipe", "schema")
    whole = json.loads(done.out) if done.status == 0 else {}
    found: dict[str, object] = {"status": done.status, "recipe": _resolved(whole, whole.get("$defs", {}))}
    helps, groups = dict[str, object](), [()]
    while groups:
        words = groups.pop(0)
        text = s2s(folder, *words, "--help").out
        helps[" ".join(("s2s", *words))] = lab.plain(text)
        _, _, listed = text.partition("Commands:\n")
        groups += [(*words, name) for name in re.findall(r"^  ([a-z][\w-]*)", listed, re.MULTILINE)]
    return found | {"help": helps}


def _resolved(value: object, definitions: Mapping[str, object]) -> object:
    """A schema with its references replaced by what they name, and without the names of classes."""
    if isinstance(value, list):
        return [_resolved(each, definitions) for each in value]
    if not isinstance(value, Mapping):
        return value
    named = definitions.get(str(value.get("$ref", "")).rpartition("/")[2], {})
    whole = {**named, **value} if isinstance(named, Mapping) else value
    dropped = ("$ref", "$defs", "title", "discriminator")
    # a property may be called title, too: its value is a mapping
    return {
        k: _resolved(v, definitions)
        for k, v in whole.items()
        if k not in dropped or (k == "title" and isinstance(v, Mapping))
    }


def comparison(lab: Lab, name: str) -> Record:
    """A kept comparison, concluded again by `s2s compare --resume` from its measurements."""
    folder = lab.folder()
    shutil.copytree(lab.source / f"docs/comparison-{name}", folder / name)
    with tarfile.open(folder / name / "cells.tar.xz") as archive:
        archive.extractall(folder / name, filter="data")
    results = sorted((folder / name).glob("*/result.json"))
    for path in results:
        path.unlink()
    kept = {str(path.relative_to(folder)) for path in folder.glob(f"{name}/cells/*/*.json")}
    done = s2s(folder, "compare", "--resume", name)
    measured = sorted({str(path.relative_to(folder)) for path in folder.glob(f"{name}/cells/*/*.json")} - kept)
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
    for table in ("commands", "files", "recipes"):
        found[f"errors/{table}"] = errors, (lab, table)
    found["translations/translation"] = translations, (lab,)
    tasks = [task for task in RECIPES if task != "cases"]
    for task in tasks[1:]:
        found[f"translations/{task}"] = answers, (lab, task)
    for task in tasks:
        found[f"trainings/{task}/alone"] = train, (lab, task)
        found[f"trainings/{task}/killed"] = train_killed, (lab, task)
    for task in ("translation", "classification", "language-model"):
        found[f"trainings/{task}/two processes"] = train_two_processes, (lab, task)
    found["trainings/translation/bf16"] = train, (lab, "translation", "device.precision=bf16")
    found["trainings/translation/early stopping"] = (
        train,
        (lab, "translation", "validation.every=2", "validation.patience=1", "validation.metric=bleu"),
    )
    found["trainings/classification/from masked-lm"] = train_from, (lab,)
    for text in (*TRANSLATORS, *VARIANTS):
        kind, *settings = text.split(" ")
        words = (f"model.kind={kind}", *(f"model.{each}" for each in settings))
        found[f"models/translation {text}"] = train, (lab, "translation", *words)
    for cell in ("rnn", "gru", "lstm"):
        found[f"models/tagger {cell}"] = train, (lab, "cases", f"model.cell={cell}")
    others = {
        "classification": TRANSLATORS,
        "language-model": (*WITHOUT_ATTENTION, "transformer"),
        "captioning": ("lstm-attention", "conv"),
    }
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
