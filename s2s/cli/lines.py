"""Lines in, as soon as they are there, and lines out: to standard output at once, or to a file when it is whole."""

import codecs
import itertools
import json
import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import click

from s2s.errors import UserError, format_message, printable
from s2s.files import write_atomically, write_folder_atomically

# a line of this length is no text, and one of /dev/zero has no end
_LONGEST = 1 << 24
# messages about single lines; a file of another kind would have one for each
_SHOWN = 20


class BadLines:
    """The lines of a batch that cannot be read: each is reported, and the command ends with status 1 after the others.

    Args:
        noun: what an input is called.
    """

    def __init__(self, noun: str = "line") -> None:
        self.noun = noun
        self.count = 0

    def refuse(self, row: int, error: UserError) -> None:
        """Reports an input, by its row from 0 on, that is passed over."""
        self.report(row, str(error))

    def report(self, row: int, message: str) -> None:
        """Reports what is wrong with an input, by its row from 0 on."""
        self.count += 1
        if self.count <= _SHOWN:
            click.echo(format_message(f"{self.noun} {row + 1}: {message}"), err=True)

    def exit(self) -> None:
        """Ends the command with status 1 if there was such a line."""
        if self.count:
            more = f", {self.count - _SHOWN:,} of them not shown" if self.count > _SHOWN else ""
            plural = "" if self.count == 1 else "s"
            click.echo(f"{self.count:,} {self.noun}{plural} with errors{more}", err=True)
            sys.exit(1)


def chunks(
    file: IO[bytes], most: int, bad: BadLines, prompt: Callable[[], object] = lambda: None
) -> Iterator[list[str]]:
    """Lines that are there together: a file's by the thousand, a pipe's as they arrive, without waiting for more.

    The lines are UTF-8; of others, what cannot be read is replaced and reported to `bad`. A file whose name ends in
    .gz or .xz is decompressed, as training and scoring do. Each time that somebody's line is waited for, `prompt` is
    called.

    Raises:
        UserError: a line is too long to be one, the input is UTF-16 or UTF-32, or a compressed file is damaged.
    """
    from s2s.data.compression import check_encoding

    waiting, ended, number, arriving = b"", False, 0, _blocks(file)
    while not ended:
        prompt()
        block = next(arriving, b"")
        ended = not block
        waiting += block
        if not ended and len(waiting) <= _LONGEST and waiting.count(b"\n") < most and _more_is_there(file):
            continue
        whole, newline, rest = waiting.rpartition(b"\n")
        lines, begins = whole.split(b"\n") if newline else [], number == 0
        waiting, first_row, number = rest, number, number + len(lines)
        if len(waiting) > _LONGEST:
            raise UserError(
                f"line {number + 1} has more than {_LONGEST >> 20} MiB",
                where=f"--input {getattr(file, 'name', '')}",
                remedy="name a file of lines of text",
            )
        if ended and waiting:
            lines.append(waiting)
        if begins and lines:
            # as training and scoring read files
            check_encoding(lines[0], Path(str(getattr(file, "name", "standard input"))))
            lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
        for first in range(0, len(lines), most):
            yield [_text(line, row, bad) for row, line in enumerate(lines[first : first + most], first_row + first)]


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    """What is there at once, until the end."""
    # standard input has no name that says how it is compressed
    name = Path(str(getattr(file, "name", "")))
    if name.suffix not in (".gz", ".xz"):
        return iter(lambda: os.read(file.fileno(), 1 << 16), b"")
    from s2s.data.compression import blocks

    return blocks(name)


def _more_is_there(file: IO[bytes]) -> bool:
    return bool(select.select([file], [], [], 0)[0])


def _text(line: bytes, row: int, bad: BadLines) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        bad.report(row, f"not UTF-8, replaced what cannot be read: {line[:60]!r}")
        return line.decode("utf-8", errors="replace")


def told_to_wait(run: Path, input_file: IO[bytes]) -> Callable[[], None]:
    """Tells somebody at a terminal that a model is being loaded; gives what asks for a line then."""
    if not input_file.isatty():
        return lambda: None
    click.echo(f"loading {run} …", err=True)
    hints = itertools.chain(["type a line and Enter; end with Ctrl-D\n"], itertools.repeat(""))
    return lambda: click.echo(f"{next(hints)}> ", err=True, nl=False)


def check_output(path: Path | None, option: str = "--output") -> None:
    """Refuses the file of an option that has no folder, or is one, before anything slow begins."""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        what = "is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise UserError(what, where=f"{option} {path}", remedy="name a file in a folder that exists")


def show_all(path: Path | None, results: Mapping[str, Sequence[Any]]) -> None:
    """Prints results, dataclasses by what they are, and writes them as JSON where a file is wanted."""
    for part in itertools.chain(*results.values()):
        click.echo(printable(str(part)))
    if path:
        rows = {name: [asdict(part) for part in parts] for name, parts in results.items()}
        write_atomically(path, json.dumps(rows, indent=1, ensure_ascii=False) + "\n", follow=True)


def show_text(parts: Iterable[str]) -> None:
    """Prints a text for others, part by part, as they come: UTF-8 as in a file, whatever a terminal takes."""
    with click.open_file("-", "w", encoding="utf-8") as stream:
        for part in parts:
            try:
                click.echo(part, file=stream, nl=False)
                stream.flush()
            except OSError as error:
                error.filename = "standard output"
                raise


@contextmanager
def lines_to(path: Path | None) -> Iterator[Callable[[str], None]]:
    """A function that writes a line, to standard output where there is no file.

    A file appears under its name when all lines are written: until then what was there stays, so a file may even be
    translated into itself.
    """
    if path is None or (path.exists() and not path.is_file()):
        try:
            with click.open_file("-" if path is None else str(path), "w", encoding="utf-8") as stream:

                def show(line: str) -> None:
                    """Writes a line at once."""
                    click.echo(line, file=stream)
                    stream.flush()

                yield show
        except OSError as error:
            # what fails while it is written, or closed, does not name the file
            error.filename = error.filename or str(path or "standard output")
            raise
        return
    with write_folder_atomically(path, follow=True) as place, place.open("w", encoding="utf-8", newline="\n") as file:
        yield lambda line: print(line, file=file)


def write_all(lines: Iterable[str], output: Path | None, bad: BadLines) -> None:
    """Write lines to a file, or to standard output; exit with status 1 if a line could not be read."""
    with lines_to(output) as write:
        for line in lines:
            write(line)
    bad.exit()
