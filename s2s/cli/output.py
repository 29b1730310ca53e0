"""Where translated lines go: to standard output as they come, or to a file that is there when it is whole."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from s2s.errors import UserError


def check_output(path: Path | None) -> None:
    """Refuses a file that cannot be written, before anything slow begins.

    Raises:
        UserError: its folder does not exist, or it is a folder.
    """
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        what = "is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise UserError(what, where=f"--output {path}", remedy="name a file in a folder that exists")


@contextmanager
def lines_to(path: Path | None) -> Iterator[Callable[[str], None]]:
    """A function that writes a line.

    A file appears under its name when all lines are written: until then what was there stays, so a file may even be
    translated into itself.

    Args:
        path: None for standard output.
    """
    if path is None or (path.exists() and not path.is_file()):
        with click.open_file("-" if path is None else str(path), "w", encoding="utf-8") as stream:

            def show(line: str) -> None:
                """One line, at once."""
                click.echo(line, file=stream)
                stream.flush()

            yield show
        return
    unfinished = path.with_name(f".unfinished-{path.name}")
    try:
        with unfinished.open("w", encoding="utf-8", newline="\n") as file:
            yield lambda line: print(line, file=file)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
