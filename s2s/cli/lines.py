"""Line input as it arrives, and line output to stdout or atomically to a file."""

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

from s2s.errors import UserError, counted, format_message, printable
from s2s.files import write_atomically, write_folder_atomically

# Longer input is not text; /dev/zero never has a line end.
_LONGEST = 1 << 24
# Maximum number of messages about single lines; a binary file would have one per line.
_SHOWN = 20


class BadLines:
    """Report of unreadable input lines, after which the command exits with status 1."""

    def __init__(self, item_name: str = "line") -> None:
        self.item_name = item_name
        self.count = 0

    def refuse(self, row: int, error: UserError) -> None:
        """Report an input, by its row from 0, that is skipped."""
        self.report(row, str(error))

    def report(self, row: int, message: str) -> None:
        """Report a problem of an input."""
        self.count += 1
        if self.count <= _SHOWN:
            click.echo(format_message(f"{self.item_name} {row + 1}: {message}"), err=True)

    def exit(self) -> None:
        """Exit with status 1 if there was an unreadable input."""
        if self.count:
            more = f", {self.count - _SHOWN:,} of them not shown" if self.count > _SHOWN else ""
            click.echo(f"{counted(self.count, self.item_name)} with errors{more}", err=True)
            sys.exit(1)


def chunks(
    file: IO[bytes], most: int, bad: BadLines, prompt: Callable[[], object] = lambda: None
) -> Iterator[list[str]]:
    """Read lines in chunks: many at once from a file, those that arrived from a pipe.

    Lines are decoded as UTF-8; invalid bytes are replaced and reported to `bad`. Files that end in .gz or .xz are
    decompressed, as in training and scoring.
    """
    from s2s.data.text_files import check_encoding

    # A bytearray grows in place, and each block's line ends are counted once.
    waiting, newlines, ended, number, arriving = bytearray(), 0, False, 0, _blocks(file)
    while not ended:
        prompt()
        block = next(arriving, b"")
        ended = not block
        waiting += block
        newlines += block.count(b"\n")
        if not ended and len(waiting) <= _LONGEST and newlines < most and select.select([file], [], [], 0)[0]:
            continue
        whole, newline, rest = bytes(waiting).rpartition(b"\n")
        lines, begins = whole.split(b"\n") if newline else [], number == 0
        waiting, newlines, first_row, number = bytearray(rest), 0, number, number + len(lines)
        if len(waiting) > _LONGEST:
            what = f"line {number + 1} has more than {_LONGEST >> 20} MiB"
            raise UserError(what, where=f"--input {getattr(file, 'name', '')}", remedy="name a text file")
        if ended and waiting:
            lines.append(rest)
        if begins and lines:
            # The same check as for files in training and scoring.
            check_encoding(lines[0], Path(str(getattr(file, "name", "standard input"))))
            lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
        for first in range(0, len(lines), most):
            yield [_text(line, row, bad) for row, line in enumerate(lines[first : first + most], first_row + first)]


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the available bytes, up to the end."""
    # Standard input has no file name that tells its compression.
    name = Path(str(getattr(file, "name", "")))
    if name.suffix not in (".gz", ".xz"):
        return iter(lambda: os.read(file.fileno(), 1 << 16), b"")
    from s2s.data.text_files import blocks

    return blocks(name)


def _text(line: bytes, row: int, bad: BadLines) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        bad.report(row, f"not UTF-8; replaced the invalid bytes: {line[:60]!r}")
        return line.decode("utf-8", errors="replace")


def announce_waiting(run: Path, input_file: IO[bytes], texts: Sequence[str] = ()) -> Callable[[], None]:
    """Print a loading message if the input is a terminal; return a function that prints a prompt there.

    Args:
        texts: Texts of the command line, which replace the input.
    """
    if texts or not input_file.isatty():
        return lambda: None
    click.echo(f"loading {run} …", err=True)
    hints = itertools.chain(["type a line and Enter; end with Ctrl-D\n"], itertools.repeat(""))
    return lambda: click.echo(f"{next(hints)}> ", err=True, nl=False)


def check_output(path: Path | None, option: str = "--output") -> None:
    """Refuse an output file that is a folder, has no parent folder or is a file of a run, before slow work."""
    if path is None:
        return
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise UserError(what, where=f"{option} {path}", remedy="name a file in an existing folder")
    from s2s.run.folder import run_of_file

    if run := run_of_file(path):
        raise UserError(f"is a file of the run {run}, which needs it", f"{option} {path}", "name another file")


def show_all(path: Path | None, results: Mapping[str, Sequence[Any]], shown: Sequence[str] | None = None) -> None:
    """Print lists of dataclasses by name, and write them to a JSON file.

    Args:
        shown: Names of the lists to print; None prints all. The file has all of them.
    """
    for part in itertools.chain(*(results[name] for name in (results if shown is None else shown))):
        click.echo(printable(str(part)))
    if path:
        rows = {name: [asdict(part) for part in parts] for name, parts in results.items()}
        write_atomically(path, json.dumps(rows, indent=1, ensure_ascii=False) + "\n", follow=True)


def show_text(parts: Iterable[str]) -> None:
    """Print a text part by part, in UTF-8 regardless of the terminal's encoding."""
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
    """Open an output for lines; a context manager.

    A file gets its name when all lines are written; until then the old file stays, so a file can be translated into
    itself.
    """
    if path is None or (path.exists() and not path.is_file()):
        try:
            with click.open_file("-" if path is None else str(path), "w", encoding="utf-8") as stream:

                def show(line: str) -> None:
                    """Print a line and flush."""
                    click.echo(line, file=stream)
                    stream.flush()

                yield show
        except OSError as error:
            # Errors of writing and closing do not name the file.
            error.filename = error.filename or str(path or "standard output")
            raise
        return
    with write_folder_atomically(path, follow=True) as place, place.open("w", encoding="utf-8", newline="\n") as file:
        yield lambda line: print(line, file=file)


def write_all(lines: Iterable[str], output: Path | None, bad: BadLines) -> None:
    """Write lines to a file or stdout, then exit with status 1 if inputs were unreadable."""
    with lines_to(output) as write:
        for line in lines:
            write(line)
    bad.exit()
