"""The cells of a comparison on the nodes of a Ray cluster: `Nodes` offers what `Workers` does for one machine.

Every node sees the comparison's folder under the same path, and writes what it measured there, as a process beside this
one would: whole runs are there for the cells that read them, and a run that was lost with its node goes on from its
last checkpoint. Times are measured on this machine, one after the other: they are compared within rounds, and beside a
reference product that watches one machine.
"""

import logging
import os
import signal
import socket
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from s2s.errors import UserError
from s2s.experiments.running import Given, Item, Workers
from s2s.files import file_lock
from s2s.recipe.schema import DeviceSettings
from s2s.run.folder import LOCK
from s2s.run.manifest import code_version, git_commit
from s2s.training.device import DeviceContext, setup_process

# of a call whose process or node was lost: as often as Ray does by itself
_AGAIN = 3
# seconds to wait for an answer before it is looked whether anybody is left to give one
_PATIENCE = 30
# Ray's own, where an address names none
_CLIENT_PORT = 10001


class Cluster:
    """A connection to a running Ray cluster; a context manager.

    Args:
        address: as Ray takes it: `auto` on one of its nodes, HOST:PORT of its head, or ray://HOST from elsewhere.
    """

    def __init__(self, address: str) -> None:
        self.address = address

    def __enter__(self) -> "Cluster":
        self._check_answers()
        import ray

        before = signal.getsignal(signal.SIGTERM)
        try:
            # what nodes print is nobody's to read here: each cell says what became of it
            ray.init(self.address, log_to_driver=False, logging_level=logging.CRITICAL)
        except Exception as error:
            # of all kinds: another version of Python or of Ray, a machine that is no node, a missing part of Ray
            raise self._unreachable(str(error).strip().partition("\n")[0]) from None
        finally:
            # Ray ends a program at once that is asked to stop; a comparison says how to go on
            signal.signal(signal.SIGTERM, before)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import ray

        # and with it end the processes on the nodes
        ray.shutdown()

    def _check_answers(self) -> None:
        """Ray itself would wait for minutes."""
        host, _, port = self.address.removeprefix("ray://").partition(":")
        if not port and host == self.address:
            return
        try:
            socket.create_connection((host, int(port or _CLIENT_PORT)), timeout=10).close()
        except (OSError, ValueError) as error:
            raise self._unreachable(str(error)) from None

    def _unreachable(self, why: str) -> UserError:
        remedy = "start one with `ray start --head`, and say auto on a node of it, HOST:6379, or ray://HOST:10001"
        return UserError(f"no Ray cluster can be used: {why}", where=f"--cluster {self.address}", remedy=remedy)


@dataclass(frozen=True)
class _Place:
    """What a node must have in common with this machine, and how it is to compute."""

    here: Path  # what relative paths of a recipe are relative to
    folder: Path  # of the comparison; its lock is held here
    versions: Mapping[str, str]
    device: DeviceSettings

    def check(self) -> None:
        """Makes this process of a node work where the comparison was started.

        Raises:
            UserError: it would not measure the same, or nobody would see what.
        """
        node = f"node {socket.gethostname()}"
        try:
            os.chdir(self.here)
            shared = (self.folder / LOCK).exists() and _is_locked(self.folder / LOCK)
        except OSError:
            shared = False
        if not shared:
            raise UserError(
                f"does not share {self.folder} and {self.here} with the machine that the comparison was started on",
                where=node,
                remedy="work in a folder of a file system that all nodes mount under the same path, with its locks",
            )
        if other := {name: its for name, its in versions().items() if its != self.versions.get(name)}:
            ours = ", ".join(f"{name} {self.versions.get(name)}" for name in other)
            theirs = ", ".join(f"{name} {its}" for name, its in other.items())
            raise UserError(f"has {theirs}, and not {ours}", where=node, remedy="install the same on all nodes")


class Nodes:
    """Makes calls on the nodes of a connected cluster: each on a processor of its own and, where GPUs compute, on one.

    Args:
        folder: of the comparison, whose lock this process holds.
        computer: what each call computes on.
        device: how; its threads are one.
    """

    def __init__(self, folder: Path, device_context: DeviceContext, device: DeviceSettings) -> None:
        place = device.model_copy(update={"threads": 1})
        self._place = _Place(Path.cwd(), folder.resolve(), versions(), place)
        self._needs = {"CPU": 1, "GPU": 1} if device_context.device.type == "cuda" else {"CPU": 1}

    def __enter__(self) -> "Nodes":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # the connection's end ends what is still measured
        return

    def __str__(self) -> str:
        return f"{self.number} beside each other on {len(_alive())} nodes"

    @property
    def number(self) -> int:
        """How many calls are made beside each other now."""
        each = (int(min(node["Resources"].get(kind, 0) // n for kind, n in self._needs.items())) for node in _alive())
        return max(1, sum(each))

    @contextmanager
    def alone(self) -> Iterator[Workers]:
        """Within it, the cluster computes nothing on this machine; gives what makes calls in this very process.

        It waits until everything else there has ended. A machine that is no node is left as it is.
        """
        import ray

        nodes = [node for node in _alive() if node["NodeManagerHostname"] == socket.gethostname()]
        whole = [
            {kind: n for kind in ("CPU", "GPU") if (n := node["Resources"].get(kind))}
            # the name of what only this machine has
            | {f"node:{node['NodeManagerAddress']}": 0.001}
            for node in nodes
        ]
        held = ray.util.placement_group(whole) if whole else None
        try:
            if held:
                ray.get(held.ready())
            yield Workers(1)
        finally:
            if held:
                ray.util.remove_placement_group(held)

    def each(self, call: Callable[[Item], Given], items: Sequence[Item]) -> Generator[tuple[Item, Given | None]]:
        """Makes a call for each item; both can be pickled. A call that was lost with its node is made on another.

        Args:
            call: what is made.
            items: with what; those that are added to them meanwhile are among them.

        Yields:
            An item and what the call gave, in the order in which they end; None where its process died each time.

        Raises:
            UserError: a node shares too little with this machine, or no node is left.
        """
        import ray

        far = ray.remote(_made).options(
            num_cpus=self._needs["CPU"], num_gpus=self._needs.get("GPU", 0), max_retries=_AGAIN
        )
        waiting: dict[Any, Item] = {}
        submitted = 0
        while waiting or submitted < len(items):
            for item in items[submitted:]:
                waiting[far.remote(self._place, call, item)] = item
                submitted += 1
            over, _ = ray.wait(list(waiting), timeout=_PATIENCE)
            if not over:
                self._check_left()
            for answer in over:
                yield waiting.pop(answer), _given(answer)

    def _check_left(self) -> None:
        if not any(all(node["Resources"].get(kind, 0) >= n for kind, n in self._needs.items()) for node in _alive()):
            needed = " and ".join(f"{n} {kind}" for kind, n in self._needs.items())
            raise UserError(f"no node is left that offers {needed}", where="--cluster", remedy="start one, and go on")


@cache
def versions() -> dict[str, str]:
    """What measures: the versions that results depend on, and the commit of the source tree."""
    commit = git_commit()
    return {
        "torch": torch.__version__,
        "s2s": version("s2s"),
        "commit": f"{commit['commit']}{' and changes' if commit['changed'] else ''}"
        if commit
        else "not from a repository",
    }


def _made(place: _Place, call: Callable[[Item], Given], item: Item) -> Given:
    """A call, made by a process of a node."""
    place.check()
    setup_process(place.device)
    code_version()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # a training would take one for its user's wish; a node that stops takes its processes down anyhow
        signal.signal(number, signal.SIG_IGN)
    return call(item)


def _given(answer: Any) -> Any:
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        return ray.get(answer)
    except RayTaskError as error:
        raise error.cause from None
    except RayError:
        # its processes died, of memory perhaps, or its nodes, one after the other
        return None


def _is_locked(path: Path) -> bool:
    try:
        with file_lock(path):
            return False
    except BlockingIOError:
        return True


def _alive() -> list[dict[str, Any]]:
    import ray

    return [node for node in ray.nodes() if node["Alive"]]
