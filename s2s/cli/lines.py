"""Lines of a file or a pipe, as soon as they are there."""

import os
import select
import sys
from collections.abc import Callable, Iterator
from typing import IO

from s2s.errors import UserError

# a line of this length is no text, and one of /dev/zero has no end
_LONGEST = 1 << 24


def chunks(file: IO[bytes], most: int, prompt: Callable[[], object] = lambda: None) -> Iterator[list[str]]:
    """Lines that are there together: a file's by the thousand, a pipe's as they arrive, without waiting for more.

    Args:
        file: lines of UTF-8; of others, what cannot be read is replaced and told.
        most: lines of a chunk.
        prompt: called before each time that somebody's line is waited for.
    """
    waiting, ended, number = b"", False, 0
    while not ended:
        prompt()
        block = os.read(file.fileno(), 1 << 16)
        ended = not block
        waiting += block
        if not ended and len(waiting) <= _LONGEST and waiting.count(b"\n") < most and _more_is_there(file):
            continue
        whole, newline, rest = waiting.rpartition(b"\n")
        lines = whole.split(b"\n") if newline else []
        waiting, number = rest, number + len(lines)
        if len(waiting) > _LONGEST:
            raise UserError(
                f"line {number + 1} has more than {_LONGEST >> 20} MiB",
                where=f"--input {getattr(file, 'name', '')}",
                remedy="name a file of lines of text",
            )
        if ended and waiting:
            lines.append(waiting)
        for first in range(0, len(lines), most):
            yield [_text(line) for line in lines[first : first + most]]


def _more_is_there(file: IO[bytes]) -> bool:
    return bool(select.select([file], [], [], 0)[0])


def _text(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        print(f"not UTF-8, replaced what cannot be read: {line[:60]!r}", file=sys.stderr)
        return line.decode("utf-8", errors="replace")
