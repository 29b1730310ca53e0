"""Exceptions for user mistakes and interruption, and formatting of messages."""

import re
import shlex
import stat
from collections.abc import Callable
from pathlib import Path

_LONGEST_LINE = 1_000
_MOST_LINES = 30
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class UserError(Exception):
    """A mistake that the user can fix: what went wrong, where, and what to do.

    The command line prints it without a traceback and exits with status 2.

    Args:
        what: What went wrong, with the offending value.
        where: File, line or key, such as `recipes/a.yaml:12`; empty if there is none.
        remedy: What the user can do.

    Example:
        >>> raise UserError("width is 0", "recipes/a.yaml:12", "set a positive width")
        Traceback (most recent call last):
        s2s.errors.UserError: recipes/a.yaml:12: width is 0
          → set a positive width
    """

    def __init__(self, what: str, where: str = "", remedy: str = "") -> None:
        # A file name may contain a line end, but `where` is one line.
        where = where.replace("\n", "\\n")
        self.what = what
        self.where = where
        self.remedy = remedy
        lines = [f"{where}: {what}" if where else what]
        if remedy:
            lines.append(f"  → {remedy}")
        super().__init__("\n".join(lines))


Refuse = Callable[[int, UserError], object]
"""Callback for an unreadable input of a batch: its row, from 0, and the error. The other inputs are still read."""


class Stopped(BaseException):
    """Training was interrupted by Ctrl-C or a signal; the message says how to resume.

    The command line prints it and exits with 128 plus the signal number. It is not an `Exception`, so that code that
    continues after failures does not continue after an interruption.

    Args:
        signal: Number of the signal.
        what: Progress so far.
        where: Folder of the run.
        remedy: How to resume.
    """

    def __init__(self, signal: int, what: str = "stopped", where: str = "", remedy: str = "") -> None:
        self.signal = signal
        super().__init__(str(UserError(what, where, remedy)))


def check_regular(path: Path, remedy: str = "name a file") -> None:
    """Refuse an existing path that is a folder, a device or a pipe."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    except ValueError:
        raise UserError("contains a NUL character", where=str(path), remedy="name one path per line") from None
    if not stat.S_ISREG(mode):
        what = "is a folder" if stat.S_ISDIR(mode) else "is not a regular file but a device or a pipe"
        raise UserError(what, where=str(path), remedy=remedy)


def quote_path(path: Path) -> str:
    """Quote a path for a shell command that the user may copy.

    Example:
        >>> quote_path(Path("runs/my run"))
        "'runs/my run'"
    """
    return shlex.quote(str(path))


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun.

    Args:
        noun: The noun in the singular.
        plural: Its plural, if it does not end in s.

    Example:
        >>> counted(1, "line"), counted(2_000, "line"), counted(2, "batch", "batches")
        ('1 line', '2,000 lines', '2 batches')
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def counted_items(count: int, items: str) -> str:
    """Return a number with its noun, which is given in the plural.

    Args:
        items: The noun in the plural, with what precedes it and `of …`.

    Example:
        >>> counted_items(1, "training texts"), counted_items(1, "texts of train"), counted_items(2, "texts of train")
        ('1 training text', '1 text of train', '2 texts of train')
    """
    noun, of, whole = items.partition(" of ")
    return counted(count, f"{noun.removesuffix('s')}{of}{whole}", items)


def format_message(message: str) -> str:
    """Format a message for a terminal.

    Invisible characters are escaped, lines are cut at about 1,000 characters and texts at 30 lines.
    """
    lines = message.split("\n")
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES - 1 :] = [f"… and {len(lines) - _MOST_LINES + 1:,} more lines"]
    return "\n".join(_cut("".join(c if c.isprintable() or c == "\t" else _spelt(c) for c in line)) for line in lines)


def printable(text: str) -> str:
    r"""Escape control characters for a terminal, except line ends and tabs.

    An escape sequence in a corpus could rename the terminal's window or hide text.

    Example:
        >>> print(printable("a" + chr(27) + "b"))
        a\x1bb
    """
    return _CONTROL.sub(lambda found: _spelt(found[0]), text)


def _spelt(character: str) -> str:
    return repr(character)[1:-1]


def _cut(line: str) -> str:
    # The value is at the start of a message, the expected value at its end.
    half = _LONGEST_LINE // 2
    return line if len(line) <= _LONGEST_LINE else f"{line[:half]} … {line[-half:]}"
