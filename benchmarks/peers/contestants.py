"""Who takes part, where each is installed, and the processes that wait for their turns."""

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from s2s.files import write_atomically

ROOT = Path(__file__).parents[2]
TORCH = "torch==2.13.0"
ENVIRONMENTS: Mapping[str, tuple[str, ...]] = {
    # the last it imports without asking for it
    "joeynmt": (TORCH, "joeynmt==2.3.0", "importlib_metadata"),
    "eole": (TORCH, "eole==0.6.4"),
    "transformers": (TORCH, "transformers==5.23.0"),
    "ctranslate2": ("ctranslate2==4.8.5",),
}
"""What pip is asked for in each; s2s and torch.nn.Transformer are in the environment of this very process."""
_MARK = "requirements.json"
_SECONDS = 900
_LAST_LINES = 12


class Failed(Exception):
    """A contestant that could not go on; says why."""


@dataclass(frozen=True)
class Contestant:
    """One line of a table.

    Attributes:
        name: as it is told.
        form: its precision, or what computes; the module knows what to make of it.
        module: in this folder.
        environment: its name; None for that of this process.
    """

    name: str
    form: str
    module: str
    environment: str | None = None

    def __str__(self) -> str:
        return f"{self.name}, {self.form}"


_IN_BOTH = (
    ("s2s", "ours", None),
    ("torch.nn.Transformer", "plain", None),
    ("Marian of transformers", "marian", "transformers"),
    ("Eole", "eole", "eole"),
)
TRAINING = (
    *(Contestant(name, form, module, where) for name, module, where in _IN_BOTH for form in ("bf16", "fp32")),
    Contestant("JoeyNMT", "fp32", "joeynmt", "joeynmt"),
)
DECODING = (
    Contestant("s2s", "torch", "ours"),
    Contestant("s2s", "torch in bf16", "ours"),
    Contestant("CTranslate2", "float32", "ctranslate2", "ctranslate2"),
    Contestant("CTranslate2", "int8", "ctranslate2", "ctranslate2"),
    Contestant("JoeyNMT", "torch", "joeynmt", "joeynmt"),
)
LEFT_OUT = {
    "OpenNMT-py": "its last version, 3.5.1, asks for torch<2.3; Eole is what it became",
    "JoeyNMT in bf16": "on a processor it turns half precision off",
    "Marian of transformers in decoding": "it normalises after each block, and s2s exports nothing that it could load",
}
"""Who is not measured whatever the machine, and why."""
PARTS = {"training": TRAINING, "decoding": DECODING}


def python_of(environment: str | None, folder: Path) -> Path:
    """The interpreter of an environment."""
    return folder / environment / "bin" / "python" if environment else Path(sys.executable)


def make_environment(name: str, folder: Path) -> None:
    """Installs an environment, unless it is there as it is asked for; all share one cache of what was fetched.

    Raises:
        Failed: pip could not.
    """
    place, wanted = folder / name, json.dumps(ENVIRONMENTS[name])
    if (place / _MARK).exists() and (place / _MARK).read_text(encoding="utf-8") == wanted:
        return
    shutil.rmtree(place, ignore_errors=True)
    venv.create(place, with_pip=True)
    command = [str(python_of(name, folder)), "-m", "pip", "install", "--cache-dir", str(folder / "cache")]
    done = subprocess.run([*command, *ENVIRONMENTS[name]], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed("not installed: " + _end(done.stderr))
    # written last: an installation that was cut short is made anew
    write_atomically(place / _MARK, wanted)


def versions(name: str, folder: Path) -> dict[str, str]:
    """The versions of what was asked for in an environment."""
    wanted = [each.partition("=")[0] for each in ENVIRONMENTS[name]]
    code = (
        f"import json; from importlib.metadata import version; print(json.dumps({{n: version(n) for n in {wanted}}}))"
    )
    done = subprocess.run([python_of(name, folder), "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@dataclass(frozen=True)
class Player:
    """The process of a contestant, from the first turn on.

    Attributes:
        contestant: who.
        part: `training` or `decoding`.
        task: the folder of the task.
        environments: the folder of all environments.
        scratch: a folder that is its own.
        threads: of the processor.
    """

    contestant: Contestant
    part: str
    task: Path
    environments: Path
    scratch: Path
    threads: int

    @cached_property
    def _started(self) -> tuple["subprocess.Popen[str]", int]:
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir(parents=True)
        read, write = os.pipe()
        one = self.contestant
        words = [self.part, one.form, self.task, self.scratch, self.threads, write]
        command = [python_of(one.environment, self.environments), "-m", f"benchmarks.peers.{one.module}", *words]
        told = {name: str(self.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        # threads that wait do not spin for long, which the processor's clock would count: s2s does so, here everybody;
        # and nobody asks a hub for anything
        told |= {"GOMP_SPINCOUNT": "1000", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with self._log.open("w", encoding="utf-8") as log:
            process = subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=inherited | told,
                pass_fds=(write,),
            )
        os.close(write)
        return process, read

    @property
    def _log(self) -> Path:
        return self.scratch.with_suffix(".log")

    def turn(self, number: int) -> dict[str, Any]:
        """What it answers to a number.

        Raises:
            Failed: it ended, or said nothing for a quarter of an hour.
        """
        process, pipe = self._started
        with contextlib.suppress(BrokenPipeError):
            print(number, file=process.stdin, flush=True)
        answer = b""
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([pipe], [], [], _SECONDS)
            part = os.read(pipe, 1 << 20) if ready else b""
            if not part:
                self.stop()
                why = "it ended" if ready else f"no answer in {_SECONDS} seconds"
                raise Failed(f"{why}: {_end(self._log.read_text(encoding='utf-8', errors='replace'))}")
            answer += part
        return json.loads(answer)

    def stop(self) -> None:
        """Ends it, if it has begun."""
        if "_started" in self.__dict__:
            process, pipe = self._started
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
            os.close(pipe)
            del self.__dict__["_started"]


def _end(text: str) -> str:
    return "\n".join(text.strip().split("\n")[-_LAST_LINES:])
