"""Where translated lines go: to standard output as they come, or to a file that is there when it is whole."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from s2s.errors import UserError
from s2s.files import whole, write_atomically


def check_output(path: Path | None, option: str = "--output") -> None:
    """Refuses a file that cannot be written, before anything slow begins.

    Args:
        path: None where the option was not given.
        option: that named it.

    Raises:
        UserError: its folder does not exist, or it is a folder.
    """
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        what = "is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise UserError(what, where=f"{option} {path}", remedy="name a file in a folder that exists")


def write_json(path: Path | None, found: Mapping[str, Sequence[Any]]) -> None:
    """Writes what was found as JSON, where a file is wanted.

    Args:
        path: None for no file.
        found: dataclasses, by what they are.
    """
    if path:
        rows = {name: [asdict(part) for part in parts] for name, parts in found.items()}
        write_atomically(path, json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


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
    with whole(path) as place, place.open("w", encoding="utf-8", newline="\n") as file:
        yield lambda line: print(line, file=file)
