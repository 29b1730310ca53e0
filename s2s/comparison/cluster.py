"""Run the trials of a comparison on the nodes of a Ray cluster.

All nodes mount the comparison's folder under the same path and write their results there. If a node fails, its run
resumes from the last checkpoint on another node. Timings are measured on this machine, one after the other.
`RayWorkers` has the interface of `s2s.comparison.workers.Workers`.
"""

import logging
import os
import signal
import socket
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from s2s.comparison.workers import Given, Item, Workers
from s2s.errors import UserError
from s2s.files import file_lock
from s2s.process import STOP_SIGNALS, package_version
from s2s.recipe.schema import DeviceSettings
from s2s.run.folder import LOCK
from s2s.run.manifest import code_version, git_commit
from s2s.training.device import DeviceContext, setup_process

# seconds to wait for a result before checking that a node is alive
_PATIENCE = 30


class Cluster:
    """Context manager: a connection to a running Ray cluster.

    Args:
        address: `auto` on a node of the cluster, HOST:PORT of its head, or ray://HOST from elsewhere.
    """

    def __init__(self, address: str) -> None:
        self.address = address

    def __enter__(self) -> "Cluster":
        import ray

        host, _, port = self.address.removeprefix("ray://").partition(":")
        before = signal.getsignal(signal.SIGTERM)
        try:
            if port or host != self.address:
                # Ray itself would wait for minutes
                socket.create_connection((host, int(port or 10001)), timeout=10).close()
            # each trial records its own status
            ray.init(self.address, log_to_driver=False, logging_level=logging.CRITICAL)
        except Exception as error:
            why = str(error).strip().partition("\n")[0]
            remedy = "start one with `ray start --head`, and use auto on a node of it, HOST:6379, or ray://HOST:10001"
            raise UserError(f"no Ray cluster can be used: {why}", f"--cluster {self.address}", remedy) from None
        finally:
            # Ray's handler exits at once, but a comparison prints how to resume
            signal.signal(signal.SIGTERM, before)
        return self

    def __exit__(self, *error: object) -> None:
        import ray

        ray.shutdown()


@dataclass(frozen=True)
class _Place:
    cwd: Path
    folder: Path  # folder of the comparison; the starting process holds its lock
    versions: Mapping[str, str]
    device: DeviceSettings

    def check(self) -> None:
        """Change to the shared folder; refuse nodes without it, or with other versions."""
        node = f"node {socket.gethostname()}"
        if not self._is_shared():
            raise UserError(
                f"does not share {self.folder} and {self.cwd} with the machine that the comparison was started on",
                where=node,
                remedy="work in a folder of a file system that all nodes mount under the same path, with its locks",
            )
        here = versions()
        if other := [name for name, its in self.versions.items() if its != here[name]]:
            ours, theirs = (", ".join(f"{name} {its[name]}" for name in other) for its in (self.versions, here))
            raise UserError(f"has {theirs} instead of {ours}", where=node, remedy="install the same on all nodes")

    def _is_shared(self) -> bool:
        try:
            os.chdir(self.cwd)
            if (self.folder / LOCK).exists():
                # Blocks if this is the folder whose lock the comparison's process holds.
                with file_lock(self.folder / LOCK):
                    return False
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False


class RayWorkers:
    """A pool on the nodes of the connected cluster: one core for each trial, and one GPU if the device is a GPU.

    Args:
        folder: Folder of the comparison; this process holds its lock.
        device_context: Device of each trial.
        device: Device settings; each trial has one thread.
    """

    def __init__(self, folder: Path, device_context: DeviceContext, device: DeviceSettings) -> None:
        self._place = _Place(Path.cwd(), folder.resolve(), versions(), device.model_copy(update={"threads": 1}))
        self._needs = {"CPU": 1, "GPU": 1} if device_context.device.type == "cuda" else {"CPU": 1}

    def __enter__(self) -> "RayWorkers":
        return self

    def __exit__(self, *error: object) -> None:
        return

    def __str__(self) -> str:
        return f"{self.number} in parallel on {len(_alive())} nodes"

    @property
    def number(self) -> int:
        """Number of trials that run at the same time."""
        each = (int(min(node["Resources"].get(kind, 0) // n for kind, n in self._needs.items())) for node in _alive())
        return max(1, sum(each))

    @contextmanager
    def exclusive(self) -> Iterator[Workers]:
        """Reserve this machine's share of the cluster, and yield a pool that runs calls in this process."""
        import ray

        nodes = [node for node in _alive() if node["NodeManagerHostname"] == socket.gethostname()]
        whole = [
            {kind: n for kind in ("CPU", "GPU") if (n := node["Resources"].get(kind))}
            | {f"node:{node['NodeManagerAddress']}": 0.001}
            for node in nodes
        ]
        if not whole:
            yield Workers(1)
            return
        held = ray.util.placement_group(whole)
        try:
            ray.get(held.ready())
            yield Workers(1)
        finally:
            ray.util.remove_placement_group(held)

    def map_unordered(
        self, call: Callable[[Item], Given], items: Sequence[Item]
    ) -> Generator[tuple[Item, Given | None]]:
        """Call for each item, including items appended meanwhile; see `Workers.map_unordered`."""
        import ray
        from ray.exceptions import RayError, RayTaskError

        remote = ray.remote(_call).options(num_cpus=1, num_gpus=self._needs.get("GPU", 0), max_retries=3)
        waiting: dict[Any, Item] = {}
        submitted = 0
        while waiting or submitted < len(items):
            for item in items[submitted:]:
                waiting[remote.remote(self._place, call, item)] = item
                submitted += 1
            ready, _ = ray.wait(list(waiting), timeout=_PATIENCE)
            if not ready and not any(node["Resources"].keys() >= self._needs.keys() for node in _alive()):
                needed = " and ".join(f"{n} {kind}" for kind, n in self._needs.items())
                raise UserError(f"no node is left that offers {needed}", "--cluster", "start one, and resume")
            for answer in ready:
                item = waiting.pop(answer)
                try:
                    yield item, ray.get(answer)
                except RayTaskError as error:
                    raise error.cause from None
                except RayError:
                    # its process or node died in every attempt
                    yield item, None


@cache
def versions() -> dict[str, str]:
    """Versions that results depend on, and the commit of the source tree."""
    commit = git_commit()
    tree = f"{commit['commit']}{' and changes' if commit['changed'] else ''}" if commit else "not from a repository"
    return {"torch": torch.__version__, "s2s": package_version("s2s"), "commit": tree}


def _call(place: _Place, call: Callable[[Item], Given], item: Item) -> Given:
    place.check()
    setup_process(place.device)
    code_version()
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    return call(item)


def _alive() -> list[dict[str, Any]]:
    import ray

    return [node for node in ray.nodes() if node["Alive"]]
