"""Command `s2s serve`: serve trained models over HTTP."""

from functools import partial
from importlib.util import find_spec

import click

from s2s.cli import options
from s2s.errors import UserError

_NEEDED = ("fastapi", "uvicorn", "prometheus_client")


_count = partial(click.option, type=click.IntRange(1), show_default=True)
_seconds = partial(click.option, type=options.Number(0, min_open=True), show_default=True)


@options.command(epilog=options.examples("s2s serve runs/translate runs/classes --port 8080"))
@click.argument("words", nargs=-1, required=True, metavar="RUN [RUN]... [section.key=value]...")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Interface to bind; 0.0.0.0 listens on all interfaces."
)
@_count("--port", type=click.IntRange(0, 65535), default=8080, help="Port; 0 chooses a free one.")
@_count("--lines", default=64, help="Maximum number of texts per request.")
@_count("--characters", default=2000, help="Maximum number of characters per text.")
@_count("--tokens", default=1024, help="Maximum number of tokens per text.")
@_count("--positions", default=65536, help="Maximum of texts × tokens of the longest text × beam size per request.")
@_count("--beam", default=16, help="Maximum beam size, also for the recipes' own.")
@_count("--body", default=256, help="Maximum size of a request, in KiB.")
@_seconds("--seconds", default=30, help="Time limit of an answer, in seconds.")
@_count("--waiting", default=256, help="Maximum number of waiting requests.")
@_seconds("--headers", default=10, help="Time limit for a request's headers, in seconds.")
@_count("--connections", default=1000, help="Maximum number of open connections.")
@click.option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    help="Accept requests for this host name, such as that of a proxy; may be repeated.",
)
def serve(
    words: tuple[str, ...],
    host: str,
    port: int,
    lines: int,
    characters: int,
    tokens: int,
    positions: int,
    beam: int,
    body: int,
    seconds: float,
    waiting: int,
    headers: float,
    connections: int,
    allow_host: tuple[str, ...],
) -> None:
    """Serve the models in RUN over HTTP: POST /translate, POST /classify.

    A page at / lets you try them. Concurrent requests are batched. On SIGTERM the server answers all accepted requests
    and exits.
    """
    from s2s.run.folder import open_ensemble

    runs, overrides = options.paths_and_overrides(words)
    if not runs:
        raise UserError(f"{words[0]!r} overrides a run, but there is none", remedy="name a run's folder before it")
    found = [open_ensemble(run, overrides, ["translation", "text-to-text", "classification"]) for run in runs]
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise UserError(
            f"the server needs {', '.join(missing)}",
            remedy="in the repository: pip install -c constraints.txt -e '.[serve]'",
        )
    from s2s.serving.guard import Hosts
    from s2s.serving.listening import bind_socket, names_of, serve
    from s2s.serving.messages import Limits

    # Named by the given paths: a downloaded or converted run is in a cache, under a number.
    named = dict(zip(names_of(runs), found, strict=True))
    place = bind_socket(host, port)
    click.echo(f"loading {', '.join(map(str, runs))} …", err=True)
    limits = Limits(lines, characters, tokens, positions, beam, body << 10, seconds, waiting, headers, connections)
    serve(named, place, limits, partial(click.echo, err=True), Hosts(host, allow_host))
