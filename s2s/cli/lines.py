"""Lines of a file or a pipe, as soon as they are there."""

import os
import select
import sys
from collections.abc import Iterator
from typing import IO


def chunks(file: IO[bytes], most: int) -> Iterator[list[str]]:
    """Lines that are there together: a file's by the thousand, a pipe's as they arrive, without waiting for more.

    Args:
        file: lines of UTF-8; of others, what cannot be read is replaced and told.
        most: lines of a chunk.
    """
    waiting, ended = b"", False
    while not ended:
        block = os.read(file.fileno(), 1 << 16)
        ended = not block
        waiting += block
        if not ended and waiting.count(b"\n") < most and _more_is_there(file):
            continue
        whole, newline, rest = waiting.rpartition(b"\n")
        lines = whole.split(b"\n") if newline else []
        waiting = rest
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
