"""The one exception for mistakes that a user can mend, and how it is told."""

import re
import shlex
import stat
from collections.abc import Callable
from pathlib import Path

_LONGEST_LINE = 1_000
_MOST_LINES = 30
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class UserError(Exception):
    """A mistake in what the user gave: what went wrong, where, and what to do.

    The command line prints it without a traceback and exits with status 2.

    Args:
        what: what went wrong, with the offending value.
        where: file, line or key, e.g. ``recipes/a.yaml:12``; empty when there is none.
        remedy: what the user can do about it.
    """

    def __init__(self, what: str, where: str = "", remedy: str = "") -> None:
        # a file's name may hold a line end; a message's place is one line
        where = where.replace("\n", "\\n")
        self.what = what
        self.where = where
        self.remedy = remedy
        lines = [f"{where}: {what}" if where else what]
        if remedy:
            lines.append(f"  → {remedy}")
        super().__init__("\n".join(lines))


Refuse = Callable[[int, UserError], object]
"""Takes the row, from 0 on, of an input of a batch that cannot be read, and the error; the others are still read."""


class Stopped(BaseException):
    """Asked to stop, by Ctrl-C or by the system, and stopped: what is kept, and how to go on.

    The command line prints it and exits with 128 and the signal's number. It is no `Exception`: whoever goes on after
    failures does not go on after it.

    Args:
        signal: number of the signal.
        what: how far it came.
        where: the folder where that is.
        remedy: how to go on.
    """

    def __init__(self, signal: int, what: str = "stopped", where: str = "", remedy: str = "") -> None:
        self.signal = signal
        super().__init__(str(UserError(what, where, remedy)))


def check_regular(path: Path, remedy: str = "name a file") -> None:
    """Refuses what is there but is no file: a folder, a device without an end, a pipe that would be waited for.

    Args:
        path: may be missing, which is told by whoever opens it.
        remedy: what to do instead.

    Raises:
        UserError: it is there and is not a regular file, or no file can be called so.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    except ValueError:
        raise UserError(
            "has a NUL character, which no path has", where=str(path), remedy="name one path a line"
        ) from None
    if not stat.S_ISREG(mode):
        what = "is a folder" if stat.S_ISDIR(mode) else "is not a regular file but a device or a pipe"
        raise UserError(what, where=str(path), remedy=remedy)


def quote_path(path: Path) -> str:
    """A path as a word of a command that a user may copy into a shell."""
    return shlex.quote(str(path))


def format_message(message: str) -> str:
    """A message as a terminal can show it: characters that cannot be seen are spelt, and what is endless is cut."""
    lines = message.split("\n")
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES - 1 :] = [f"… and {len(lines) - _MOST_LINES + 1:,} more lines"]
    return "\n".join(_cut("".join(c if c.isprintable() or c == "\t" else _spelt(c) for c in line)) for line in lines)


def printable(text: str) -> str:
    """A text of a corpus as a terminal can show it: control characters are spelt, but for line ends and tabs.

    An escape sequence could rename a terminal's window, or hide what is written.
    """
    return _CONTROL.sub(lambda found: _spelt(found[0]), text)


def _spelt(character: str) -> str:
    return repr(character)[1:-1]


def _cut(line: str) -> str:
    # the value stands in front, what was expected behind
    half = _LONGEST_LINE // 2
    return line if len(line) <= _LONGEST_LINE else f"{line[:half]} … {line[-half:]}"
