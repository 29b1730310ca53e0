"""`s2s serve`."""

from functools import partial
from importlib.util import find_spec
from pathlib import Path

import click

from s2s.cli import options
from s2s.cli.numbers import Number
from s2s.errors import UserError

_NEEDED = ("fastapi", "uvicorn", "prometheus_client")


@options.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN [RUN]...")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="0.0.0.0 for everybody who can reach this machine."
)
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 for any that is free.")
@click.option("--lines", type=click.IntRange(1), default=64, show_default=True, help="Texts of a request, at most.")
@click.option(
    "--characters", type=click.IntRange(1), default=2000, show_default=True, help="Characters of a text, at most."
)
@click.option("--tokens", type=click.IntRange(1), default=1024, show_default=True, help="Tokens of a text, at most.")
@click.option(
    "--positions",
    type=click.IntRange(1),
    default=65536,
    show_default=True,
    help="Texts of a request × tokens of the longest × beam, at most.",
)
@click.option("--beam", type=click.IntRange(1), default=16, show_default=True, help="Largest beam, also of recipes.")
@click.option("--body", type=click.IntRange(1), default=256, show_default=True, help="KiB of a request, at most.")
@click.option(
    "--seconds", type=Number(0, min_open=True), default=30, show_default=True, help="Seconds to an answer, at most."
)
@click.option("--waiting", type=click.IntRange(1), default=256, show_default=True, help="Requests that wait, at most.")
@click.option(
    "--headers", type=Number(0, min_open=True), default=10, show_default=True, help="Seconds to a request's headers."
)
@click.option(
    "--connections", type=click.IntRange(1), default=1000, show_default=True, help="Connections at once, at most."
)
@click.option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    help="Accept requests addressed to this name, too, such as that of a proxy; may be given several times.",
)
def serve(
    runs: tuple[Path, ...],
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
    """Answer requests with the models in RUN: POST /translate, /classify, and a page at / to try them.

    Requests that come together are computed together. On SIGTERM the server answers what it has accepted, and ends.
    """
    from s2s.run.folder import opened

    found = [opened(run, tasks=["translation", "text-to-text", "classification"]) for run in runs]
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise UserError(f"the server needs {', '.join(missing)}", remedy="in the repository: pip install -e '.[serve]'")
    from s2s.serving.guard import Hosts
    from s2s.serving.listening import bound, names_of, serve
    from s2s.serving.messages import Limits

    # as they were asked for: what was fetched or converted lies in a cache, under a number
    named = dict(zip(names_of(runs), found, strict=True))
    place = bound(host, port)
    click.echo(f"loading {', '.join(map(str, runs))} …", err=True)
    limits = Limits(
        lines=lines,
        characters=characters,
        tokens=tokens,
        positions=positions,
        beam=beam,
        body=body << 10,
        seconds=seconds,
        waiting=waiting,
        headers=headers,
        connections=connections,
    )
    serve(named, place, limits, partial(click.echo, err=True), Hosts(host, allow_host))
