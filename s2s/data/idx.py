"""IDX files, the format of MNIST (LeCun et al. 1998), plain or compressed with gzip.

Two zero bytes, the type of the numbers, the number of dimensions; then each dimension's size as a big-endian 32-bit
number; then the numbers.
"""

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
from jaxtyping import UInt8

from s2s.errors import UserError

_BYTES = 0x08
_KINDS = {1: "labels", 3: "images"}


def read_idx_images(path: Path) -> UInt8[np.ndarray, "images height width"]:
    """The images of an IDX file.

    Raises:
        UserError: it is missing or damaged, or holds something else.
    """
    return _read(path, dimensions=3)


def read_idx_labels(path: Path) -> UInt8[np.ndarray, " labels"]:
    """The labels of an IDX file.

    Raises:
        UserError: it is missing or damaged, or holds something else.
    """
    return _read(path, dimensions=1)


def _read(path: Path, dimensions: int) -> np.ndarray:
    content = _content(path)
    magic, wanted = content[:4], bytes([0, 0, _BYTES, dimensions])
    if magic != wanted:
        other = next((kind for d, kind in _KINDS.items() if magic == bytes([0, 0, _BYTES, d])), None)
        if other:
            raise UserError(
                f"holds {other}, not {_KINDS[dimensions]}",
                where=str(path),
                remedy="the images come first: [images, labels]",
            )
        raise _wrong(path, f"has the magic number 0x{magic.hex()}, expected 0x{wanted.hex()} for {_KINDS[dimensions]}")
    first = 4 + 4 * dimensions
    if len(content) < first:
        raise _wrong(path, f"ends after {len(content)} bytes, within its head")
    sizes = tuple(np.frombuffer(content, ">u4", dimensions, 4).astype(np.int64).tolist())
    expected = first + math.prod(sizes)
    if len(content) != expected:
        shape = " x ".join(map(str, sizes))
        raise _wrong(path, f"has {len(content):,} bytes; its head says {shape}, which makes {expected:,}")
    return np.frombuffer(content, np.uint8, offset=first).reshape(sizes)


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        # whatever its name says: some servers unpack what they send
        return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except FileNotFoundError:
        there = sorted(p.name for p in path.parent.glob("*ubyte*"))
        raise UserError(
            "no such file",
            where=str(path),
            remedy=f"there is {', '.join(there)}" if there else "check the path",
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise _wrong(path, f"cannot be read: {error}") from None


def _wrong(path: Path, what: str) -> UserError:
    return UserError(what, where=str(path), remedy="fetch the file again, or name an IDX file of bytes")
