"""From runs to a server that listens, until somebody wants it to stop."""

import asyncio
import math
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import uvicorn
from fastapi import FastAPI

from s2s.errors import UserError
from s2s.run.folder import Opened
from s2s.run.trained import Run
from s2s.serving.app import application
from s2s.serving.messages import Limits
from s2s.training.devices import prepare_process

Say = Callable[[str], object]

# seconds that clients have, when the server stops, to take answers that are computed
_TAKING = 30
# and what is left to end by itself once they are cut
_ENDING = 5


def bound(host: str, port: int) -> socket.socket:
    """An address that is ours, on which nothing is accepted yet; port 0 takes any that is free.

    Raises:
        UserError: it cannot be had.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with ExitStack() as stack:
            place = stack.enter_context(socket.socket(family, kind, protocol))
            # a server that was stopped a moment ago leaves connections that are over
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            place.bind(address)
            stack.pop_all()
    except (OSError, UnicodeError) as error:
        # a name with an empty part is refused by its encoding
        what = f"cannot be had: {getattr(error, 'strerror', None) or error}"
        raise UserError(what, where=f"{host}:{port}", remedy="name another --port or --host") from None
    return place


def names_of(paths: Sequence[Path]) -> list[str]:
    """What requests call runs: the folder's name, or the whole path where two folders have the same.

    Raises:
        UserError: a run is named twice.
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise UserError("the same run is named twice", remedy="name each run once")
    short = [path.resolve().name for path in paths]
    return [str(path) if short.count(name) > 1 else name for path, name in zip(paths, short, strict=True)]


class Listening(uvicorn.Server):
    """Cuts the connections that are left so many seconds after it was stopped: uvicorn waits for their clients."""

    def __init__(self, config: uvicorn.Config, patience: float) -> None:
        super().__init__(config)
        self.patience = patience
        self.cut = 0

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Waits for what was accepted, and for its clients as long as that is allowed."""
        late = asyncio.get_running_loop().call_later(self.patience, self._cut)
        await super().shutdown(sockets)
        late.cancel()
        self._cut()
        # the loop closes what is aborted in its next round
        await asyncio.sleep(0)

    def _cut(self) -> None:
        # who waited to write to them ends as if they had left
        for connection in list(self.server_state.connections):
            if transport := getattr(connection, "transport", None):
                transport.abort()
                self.cut += 1


def server_of(app: FastAPI, limits: Limits) -> Listening:
    """What listens for an application; when it stops, answers that nobody takes do not keep it for ever."""
    patience = math.ceil(limits.seconds) + _TAKING
    # what goes on without its client is ended, too, though not without a noise
    last = patience + _ENDING
    config = uvicorn.Config(app, log_level="warning", ws="none", server_header=False, timeout_graceful_shutdown=last)
    return Listening(config, patience)


def serve(runs: Mapping[str, Opened], place: socket.socket, limits: Limits, say: Say) -> None:
    """Answers with runs, by name, until SIGTERM or Ctrl-C; then what was accepted is answered, and no more."""
    for run in runs.values():
        prepare_process(run.recipe.device)
    loaded = {name: Run(run) for name, run in runs.items()}

    def ended(answered: int) -> None:
        """Told after the last answer."""
        rest = f"{server.cut:,} connections were cut" if server.cut else "none was left"
        say(f"stopped: {answered:,} requests were answered, {rest}")

    server = server_of(application(loaded, limits, ended), limits)
    host, port = place.getsockname()[:2]
    listed = ", ".join(f"{name} ({run.task})" for name, run in loaded.items())
    say(f"serving {listed} on http://{f'[{host}]' if ':' in host else host}:{port}; Ctrl-C stops it")
    with place:
        server.run(sockets=[place])
