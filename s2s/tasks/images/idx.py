"""IDX files, the format of MNIST (LeCun et al. 1998), plain or compressed with gzip.

Two zero bytes, the type of the numbers, the number of dimensions; then each dimension's size as a big-endian 32-bit
number; then the numbers.
"""

import gzip
import math
import zlib
from contextlib import nullcontext
from io import BufferedIOBase
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from s2s.errors import UserError, check_regular

_BYTES = 0x08
# no gzip file unpacks to more times its size
_MOST_PACKED = 1_032
_KINDS = {1: "labels", 3: "images"}


def read_idx(path: Path, kind: str) -> UInt8[np.ndarray, "..."]:
    """The `images`, by height and width, or the `labels` of an IDX file.

    Raises:
        UserError: it is missing or damaged, or holds something else.
    """
    dimensions = 3 if kind == "images" else 1
    check_regular(path, "name an IDX file")
    first = 4 + 4 * dimensions
    try:
        # whatever its name says: some servers unpack what they send
        with path.open("rb") as raw, gzip.open(raw) if _packed(raw) else nullcontext(raw) as file:
            sizes = _sizes(path, file.read(first), dimensions)
            # as many bytes as the head promises and no more, however many a small file may unpack to
            return _numbers(path, file, sizes)
    except FileNotFoundError:
        there = sorted(p.name for p in path.parent.glob("*ubyte*"))
        raise UserError(
            "no such file", where=str(path), remedy=f"there is {', '.join(there)}" if there else "check the path"
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise _wrong(path, f"cannot be read: {error}") from None


def _packed(raw: BufferedIOBase) -> bool:
    magic = raw.read(2)
    raw.seek(0)
    return magic == b"\x1f\x8b"


def _sizes(path: Path, head: bytes, dimensions: int) -> tuple[int, ...]:
    magic, wanted = head[:4], bytes([0, 0, _BYTES, dimensions])
    if magic != wanted:
        other = next((kind for d, kind in _KINDS.items() if magic == bytes([0, 0, _BYTES, d])), None)
        if other:
            raise UserError(
                f"holds {other}, not {_KINDS[dimensions]}",
                where=str(path),
                remedy="the images come first: [images, labels]",
            )
        raise _wrong(path, f"has the magic number 0x{magic.hex()}, expected 0x{wanted.hex()} for {_KINDS[dimensions]}")
    if len(head) < 4 + 4 * dimensions:
        raise _wrong(path, f"ends after {len(head)} bytes, within its head")
    return tuple(np.frombuffer(head, ">u4", dimensions, 4).astype(np.int64).tolist())


def _numbers(path: Path, file: BufferedIOBase, sizes: tuple[int, ...]) -> np.ndarray:
    promised, shape = math.prod(sizes), " x ".join(map(str, sizes))
    if promised > _MOST_PACKED * path.stat().st_size:
        raise _wrong(path, f"is too small for what its head says: {shape}, which makes {promised:,} bytes")
    content = file.read(promised)
    if len(content) < promised:
        raise _wrong(path, f"holds {len(content):,} numbers; its head says {shape}, which makes {promised:,}")
    if file.read(1):
        raise _wrong(path, f"holds more than its head says: {shape}, which makes {promised:,} numbers")
    return np.frombuffer(content, np.uint8).reshape(sizes)


def _wrong(path: Path, what: str) -> UserError:
    return UserError(what, where=str(path), remedy="fetch the file again, or name an IDX file of bytes")
