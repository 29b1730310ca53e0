"""What torchrun tells the processes that it starts about each other; read before anything heavy is loaded."""

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
    """One of the processes that torchrun has started together.

    Attributes:
        rank: its number among all of them; the first, 0, leads: it alone reads the recipe and writes.
        size: how many they are.
        local_rank: its number among those of this machine.
        local_size: how many are on this machine.
        attempt: torchrun's folder of this machine for this start of the processes: empty when they are started.
    """

    rank: int
    world_size: int
    local_rank: int
    local_size: int
    attempt: Path

    @property
    def is_main_process(self) -> bool:
        """Whether it is the first."""
        return self.rank == 0

    def claim_error_report(self) -> bool:
        """Whether this process tells why all of them end: the first of its machine to ask, each time they are started.

        Asked again, it answers the same.
        """
        path = self.attempt / _SPEAKER
        try:
            with path.open("x", encoding="ascii") as file:
                file.write(str(self.rank))
        except FileExistsError:
            return path.read_text(encoding="ascii") == str(self.rank)
        except OSError:
            # twice is better than never
            pass
        return True

    def wait_for_another(self, seconds: float) -> None:
        """Waits until another process of this machine speaks, but no longer than that."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not (self.attempt / _SPEAKER).exists():
            time.sleep(0.05)

    def record_run(self, run: Path) -> None:
        """Notes that the run in this folder was begun: started again, torchrun's processes go on with it."""
        (self.attempt.parent / _BEGUN).write_text(str(run.resolve()), encoding="utf-8")

    def recorded_run(self, run: Path) -> bool:
        """Whether the run in this folder was begun before torchrun had to start its processes again."""
        noted = self.attempt.parent / _BEGUN
        return noted.exists() and noted.read_text(encoding="utf-8") == str(run.resolve())

    def command(self, words: Sequence[str]) -> list[str]:
        """The words of a command of s2s as torchrun would start them; what it is told of other machines is left out."""
        machines = self.world_size // self.local_size
        nodes = ["--nnodes", str(machines), "…"] if machines > 1 else []
        return ["torchrun", *nodes, "--nproc-per-node", str(self.local_size), "-m", "s2s", *words]


def detect_torchrun() -> TorchrunProcess | None:
    """What torchrun has told this process; None where something else has started it."""
    told = os.environ
    if "TORCHELASTIC_RUN_ID" not in told:
        return None
    try:
        return TorchrunProcess(
            rank=int(told["RANK"]),
            world_size=int(told["WORLD_SIZE"]),
            local_rank=int(told["LOCAL_RANK"]),
            local_size=int(told["LOCAL_WORLD_SIZE"]),
            # .../attempt_0/3/error.json
            attempt=Path(told["TORCHELASTIC_ERROR_FILE"]).parents[1],
        )
    except (KeyError, ValueError, IndexError) as error:
        raise UserError(
            f"TORCHELASTIC_RUN_ID says that torchrun started this, but of what it tells something is missing: {error}",
            remedy="start it by torchrun, or unset TORCHELASTIC_RUN_ID",
        ) from None


def check_single_process(command: str) -> None:
    """Refuses what one process does where torchrun has started it.

    Raises:
        UserError: torchrun has.
    """
    if detect_torchrun() is not None:
        raise UserError(
            f"torchrun is for `s2s train`; `s2s {command}` is one process",
            remedy=f"leave torchrun out: s2s {command} …",
        )
