"""Rank and world size from torchrun's environment variables, read without torch."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from s2s.errors import UserError

_BEGUN = "s2s-run"
_SPEAKER = "s2s-speaker"


@dataclass(frozen=True)
class TorchrunProcess:
    """A process started by torchrun, for data-parallel training.

    Attributes:
        rank: Rank among all processes; rank 0 is the main process, which alone reads the recipe and writes files.
        world_size: Number of processes.
        local_rank: Rank among the processes of this machine.
        local_size: Number of processes on this machine.
        attempt: torchrun's folder on this machine for this start of the processes; empty at the start.
    """

    rank: int
    world_size: int
    local_rank: int
    local_size: int
    attempt: Path

    @property
    def is_main_process(self) -> bool:
        """True for rank 0."""
        return self.rank == 0

    def claim_error_report(self) -> bool:
        """Claim the right to report why all processes end: the first caller on a machine gets it, once per start."""
        path = self.attempt / _SPEAKER
        try:
            with path.open("x", encoding="ascii") as file:
                file.write(str(self.rank))
        except FileExistsError:
            return path.read_text(encoding="ascii") == str(self.rank)
        except OSError:
            # A repeated report is better than none.
            pass
        return True

    def wait_for_another(self, seconds: float) -> None:
        """Wait until another process of this machine reports an error, up to a time limit."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not (self.attempt / _SPEAKER).exists():
            time.sleep(0.05)

    def record_run(self, run: Path) -> None:
        """Record that a run was started, so that a restart by torchrun resumes it."""
        (self.attempt.parent / _BEGUN).write_text(str(run.resolve()), encoding="utf-8")

    def recorded_run(self, run: Path) -> bool:
        """Return True if the run in this folder was started before torchrun restarted."""
        noted = self.attempt.parent / _BEGUN
        return noted.exists() and noted.read_text(encoding="utf-8") == str(run.resolve())

    def command(self, words: Sequence[str]) -> list[str]:
        """Return the torchrun command line of an s2s command."""
        machines = self.world_size // self.local_size
        nodes = ["--nnodes", str(machines), "…"] if machines > 1 else []
        return ["torchrun", *nodes, "--nproc-per-node", str(self.local_size), "-m", "s2s", *words]


def detect_torchrun() -> TorchrunProcess | None:
    """Read torchrun's environment variables; None if torchrun did not start this process."""
    env = os.environ
    if "TORCHELASTIC_RUN_ID" not in env:
        return None
    try:
        return TorchrunProcess(
            rank=int(env["RANK"]),
            world_size=int(env["WORLD_SIZE"]),
            local_rank=int(env["LOCAL_RANK"]),
            local_size=int(env["LOCAL_WORLD_SIZE"]),
            # .../attempt_0/3/error.json
            attempt=Path(env["TORCHELASTIC_ERROR_FILE"]).parents[1],
        )
    except (KeyError, ValueError, IndexError) as error:
        raise UserError(
            f"TORCHELASTIC_RUN_ID is set, but other variables of torchrun are missing or wrong: {error}",
            remedy="start it with torchrun, or unset TORCHELASTIC_RUN_ID",
        ) from None


def check_single_process(command: str) -> None:
    """Refuse torchrun for a command that runs in one process."""
    if detect_torchrun() is not None:
        what = f"torchrun is for `s2s train`; `s2s {command}` runs in one process"
        raise UserError(what, remedy=f"start it without torchrun: s2s {command} …")
