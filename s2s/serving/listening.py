"""HTTP server process: bind a socket, load the runs, and serve until a signal."""

import asyncio
import math
import os
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
from s2s.process import limit
from s2s.run.folder import RunConfig, members_of
from s2s.run.trained_run import Run
from s2s.serving.app import application
from s2s.serving.guard import Hosts
from s2s.serving.messages import Limits
from s2s.training.device import PRECISION_NAMES, setup_process

PrintFn = Callable[[str], object]

# Seconds for clients to receive computed answers at shutdown.
_TAKING = 30
# Seconds for the remaining tasks after connections are closed.
_ENDING = 5
# Connections that the event loop accepts at once.
_BACKLOG = 32
# Connections that the system queues meanwhile.
_HELD_BY_SYSTEM = 2_048
# File descriptors besides connections: those of Python, torch and the runs, and connections that are accepted before
# the first of them is refused.
_OTHER_FILES = 64 + 3 * _BACKLOG


def bind_socket(host: str, port: int) -> socket.socket:
    """Bind a socket without listening; port 0 is any free port."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with ExitStack() as stack:
            place = stack.enter_context(socket.socket(family, kind, protocol))
            # The port may have closed connections of a recently stopped server.
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            place.bind(address)
            stack.pop_all()
    except (OSError, UnicodeError) as error:
        # The IDNA encoding refuses a name with an empty label.
        what = f"cannot be had: {getattr(error, 'strerror', None) or error}"
        raise UserError(what, where=f"{host}:{port}", remedy="name another --port or --host") from None
    return place


def names_of(paths: Sequence[Path]) -> list[str]:
    """Return the names of runs for requests: folder names, or whole paths if these are equal.

    Example:
        >>> names_of([Path("runs/a"), Path("runs/a+runs/b")])
        ['a', 'a+b']
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise UserError("a run is given twice", remedy="name each run once")
    short = ["+".join(Path(part).resolve().name for part in members_of(path)) for path in paths]
    return [str(path) if short.count(name) > 1 else name for path, name in zip(paths, short, strict=True)]


class Connection(H11Protocol):
    """HTTP connection with a time limit for headers and a connection limit."""

    max_connections = Limits.connections
    header_seconds = Limits.headers

    _header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Refuse the connection if too many are open, else start the time limit."""
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            self._refuse(b"503 Service Unavailable")
        else:
            self._time_headers()

    def data_received(self, data: bytes) -> None:
        """Start the time limit of headers with the first byte, and stop it with the last."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        self._time_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time limit of headers."""
        self._stop_timer()
        super().connection_lost(exc)

    def _time_headers(self) -> None:
        # IDLE means that the headers are missing or incomplete.
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
    """Return the number of connections that the limit on file descriptors allows."""
    files = limit("NOFILE")
    return wanted if files is None else max(1, min(wanted, files - _OTHER_FILES))


class Server(uvicorn.Server):
    """uvicorn server with a bounded shutdown time.

    The first SIGTERM or SIGINT stops the server: accepted requests are answered, and connections that remain after
    `patience` seconds are closed, where uvicorn would wait for their clients. The second signal exits immediately,
    even while the model thread computes.
    """

    def __init__(self, config: uvicorn.Config, patience: float) -> None:
        super().__init__(config)
        self.patience = patience
        self.cut = 0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop on the first signal, exit on the second."""
        if self.should_exit:
            # No clean-up is needed: no files are open for writing, and waiting could take long.
            os.write(2, b"stopped at once: requests that were not answered are lost\n")
            os._exit(128 + sig)
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen with a longer queue than the event loop accepts at once (asyncio has one number for both)."""
        await super().startup(sockets)
        for place in sockets or []:
            place.listen(_HELD_BY_SYSTEM)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer accepted requests, and close open connections after `patience` seconds."""
        late = asyncio.get_running_loop().call_later(self.patience, self._cut)
        await super().shutdown(sockets)
        late.cancel()
        self._cut()
        # The event loop closes aborted connections in its next iteration.
        await asyncio.sleep(0)

    def _cut(self) -> None:
        # Pending writers end as if the client had disconnected.
        for connection in list(self.server_state.connections):
            if transport := getattr(connection, "transport", None):
                transport.abort()
                self.cut += 1


def server_of(app: FastAPI, limits: Limits) -> Server:
    """Create the server of an application; at shutdown it waits for clients up to a limit."""
    patience = math.ceil(limits.seconds) + _TAKING
    # Tasks without a client are cancelled, too; uvicorn logs an error for them.
    last = patience + _ENDING

    class Limited(Connection):
        """Connection with the limits of this server; uvicorn instantiates the class."""

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


def serve(
    runs: Mapping[str, RunConfig], place: socket.socket, limits: Limits, print_fn: PrintFn, hosts: Hosts | None = None
) -> None:
    """Serve runs until SIGTERM or Ctrl-C, then answer the accepted requests."""
    for run in runs.values():
        setup_process(run.recipe.device)
    loaded = {name: Run(run) for name, run in runs.items()}

    def ended(answered: int) -> None:
        """Print the numbers of answered requests and closed connections."""
        rest = f"{server.cut:,} connections were cut" if server.cut else "none was left"
        print_fn(f"stopped: {answered:,} requests were answered, {rest}")

    server = server_of(application(loaded, limits, ended, hosts), limits)
    host, port = place.getsockname()[:2]
    listed = ", ".join(f"{name} ({run.task})" for name, run in loaded.items())
    for name, run in loaded.items():
        decoding, device = dict(run.recipe).get("decoding"), run.loaded.device_context.device
        precision = torch.bfloat16 if decoding is not None and decoding.precision == "bf16" else torch.float32
        note = fp32_layers(run.loaded.model, {precision}, device)
        print_fn("; ".join([f"{name}: {device}, {PRECISION_NAMES[precision]}", *([note] if note else [])]))
    print_fn(f"serving {listed} on http://{f'[{host}]' if ':' in host else host}:{port}; Ctrl-C stops it")
    with place:
        server.run(sockets=[place])
