"""From runs to a server that listens, until somebody wants it to stop."""

import asyncio
import math
import os
import resource
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

import h11
import torch
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from s2s.errors import UserError
from s2s.nn.precision import fp32_layers
from s2s.run.folder import RunConfig
from s2s.run.trained_run import Run
from s2s.serving.app import application
from s2s.serving.guard import Hosts
from s2s.serving.messages import Limits
from s2s.training.device import PRECISION_NAMES, setup_process

PrintFn = Callable[[str], object]

# seconds that clients have, when the server stops, to take answers that are computed
_TAKING = 30
# and what is left to end by itself once they are cut
_ENDING = 5
# connections that the event loop accepts in one go
_BACKLOG = 32
# and that the system holds for it meanwhile
_HELD_BY_SYSTEM = 2_048
# files that the process needs beside its connections: those of Python, torch and the runs, and connections that are
# accepted before the first of them is refused
_OTHER_FILES = 64 + 3 * _BACKLOG


def bind_socket(host: str, port: int) -> socket.socket:
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


class Connection(H11Protocol):
    """A connection whose headers must come in time, and of which there is a largest number."""

    max_connections = Limits.connections
    header_seconds = Limits.headers

    _header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Refuse the connection where too many are open, else wait for the first request."""
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            self._refuse(b"503 Service Unavailable")
        else:
            self._time_headers()

    def data_received(self, data: bytes) -> None:
        """Start the time of a request's headers with its first byte, and end it with their last."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._time_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time of headers."""
        self._stop_timer()
        super().connection_lost(exc)

    def _time_headers(self) -> None:
        # idle: no headers yet, or not all
        if self.conn.their_state is not h11.IDLE:
            self._stop_timer()
        elif self._header_timer is None:
            late = b"408 Request Timeout"
            self._header_timer = self.loop.call_later(self.header_seconds, self._refuse, late)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _refuse(self, status: bytes) -> None:
        self.transport.write(b"HTTP/1.1 " + status + b"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        self.transport.close()


def allowed_connections(wanted: int) -> int:
    """Connections that may be open at once, so that the process never runs out of file descriptors."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if files == resource.RLIM_INFINITY else max(1, min(wanted, files - _OTHER_FILES))


class Server(uvicorn.Server):
    """A server that ends in bounded time.

    The first SIGTERM or SIGINT stops it: what was accepted is answered, and connections that are left after `patience`
    seconds are cut, where uvicorn would wait for their clients. The second signal ends the process at once, also while
    the model thread computes.
    """

    def __init__(self, config: uvicorn.Config, patience: float) -> None:
        super().__init__(config)
        self.patience = patience
        self.cut = 0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop on the first signal, exit on the second."""
        if self.should_exit:
            # no clean-up: nothing is written, and whatever could be waited for may take long
            os.write(2, b"stopped at once: requests that were not answered are lost\n")
            os._exit(128 + sig)
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens with a longer queue than the event loop accepts from at once: asyncio has one number for both."""
        await super().startup(sockets)
        for place in sockets or []:
            place.listen(_HELD_BY_SYSTEM)

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


def server_of(app: FastAPI, limits: Limits) -> Server:
    """What listens for an application; when it stops, answers that nobody takes do not keep it for ever."""
    patience = math.ceil(limits.seconds) + _TAKING
    # what goes on without its client is ended, too, though not without a noise
    last = patience + _ENDING

    class Limited(Connection):
        """With the limits of this server: uvicorn makes connections by itself."""

        max_connections = allowed_connections(limits.connections)
        header_seconds = limits.headers

    config = uvicorn.Config(
        app,
        http=Limited,
        ws="none",
        log_level="warning",
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=last,
    )
    return Server(config, patience)


def _precision(run: Run) -> str:
    """Return device and precision of a run's answers, and the layers that run in fp32 within bf16."""
    loaded = run.loaded
    decoding = dict(loaded.recipe).get("decoding")
    precision = torch.bfloat16 if decoding is not None and decoding.precision == "bf16" else torch.float32
    device = loaded.device_context.device
    note = fp32_layers(loaded.model, {precision}, device)
    return "; ".join([f"{device}, {PRECISION_NAMES[precision]}", *([note] if note else [])])


def serve(
    runs: Mapping[str, RunConfig], place: socket.socket, limits: Limits, print_fn: PrintFn, hosts: Hosts | None = None
) -> None:
    """Answers with runs, by name, until SIGTERM or Ctrl-C; then what was accepted is answered, and no more."""
    for run in runs.values():
        setup_process(run.recipe.device)
    loaded = {name: Run(run) for name, run in runs.items()}

    def ended(answered: int) -> None:
        """Told after the last answer."""
        rest = f"{server.cut:,} connections were cut" if server.cut else "none was left"
        print_fn(f"stopped: {answered:,} requests were answered, {rest}")

    server = server_of(application(loaded, limits, ended, hosts), limits)
    host, port = place.getsockname()[:2]
    listed = ", ".join(f"{name} ({run.task})" for name, run in loaded.items())
    for name, run in loaded.items():
        print_fn(f"{name}: {_precision(run)}")
    print_fn(f"serving {listed} on http://{f'[{host}]' if ':' in host else host}:{port}; Ctrl-C stops it")
    with place:
        server.run(sockets=[place])
