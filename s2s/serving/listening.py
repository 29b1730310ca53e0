"""From runs to a server that listens, until somebody wants it to stop."""

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import uvicorn

from s2s.errors import UserError
from s2s.run.folder import Opened
from s2s.run.trained import Run
from s2s.serving.app import application
from s2s.serving.messages import Limits
from s2s.training.devices import prepare_process

Say = Callable[[str], object]


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
    except OSError as error:
        what = f"cannot be had: {error.strerror or error}"
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


def serve(runs: Mapping[str, Opened], place: socket.socket, limits: Limits, say: Say) -> None:
    """Answers with runs, by name, until SIGTERM or Ctrl-C; then what was accepted is answered, and no more."""
    for run in runs.values():
        prepare_process(run.recipe.device)
    loaded = {name: Run(run) for name, run in runs.items()}

    def ended(answered: int) -> None:
        """Told after the last answer."""
        say(f"stopped: {answered:,} requests were answered, none was left")

    app = application(loaded, limits, ended)
    config = uvicorn.Config(app, log_level="warning", ws="none", server_header=False)
    host, port = place.getsockname()[:2]
    listed = ", ".join(f"{name} ({run.task})" for name, run in loaded.items())
    say(f"serving {listed} on http://{f'[{host}]' if ':' in host else host}:{port}; Ctrl-C stops it")
    with place:
        uvicorn.Server(config).run(sockets=[place])
