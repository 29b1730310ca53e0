"""Bytes of plain or compressed files, read in blocks of bounded size.

All streams of a compressed file are read to the end.
"""

import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from s2s.errors import UserError, check_regular, quote_path

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

COMPRESSIONS = ("", ".gz", ".xz")
LARGEST_WHOLE = 1 << 28
"""Largest size in bytes of data read into memory at once: JSON, a compressed parquet file, a document of many lines."""
DAMAGE = (OSError, EOFError, lzma.LZMAError, zlib.error)
"""Exceptions raised when a damaged file is read."""
# UTF-32 comes first, because its byte order mark begins with that of UTF-16.
_OTHER_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def blocks(path: Path) -> Iterator[bytes]:
    """Iterate over the content of a file in blocks, decompressed if .gz or .xz.

    Yields:
        Blocks of up to 64 KiB.
    """
    with open_text(path) as file:
        yield from checked(iter(lambda: file.read(1 << 16), b""), path)


def read_whole(path: Path, magic: bytes = b"") -> bytes:
    """Read the decompressed content of a file.

    Args:
        path: File to read.
        magic: Bytes with which the content must begin; if it begins otherwise, only a part of it is returned.

    Raises:
        UserError: The file cannot be read or is damaged, or its content has more than `LARGEST_WHOLE` bytes.
    """
    content = bytearray()
    for block in blocks(path):
        content += block
        if not content.startswith(magic[: len(content)]):
            break
        if len(content) > LARGEST_WHOLE:
            packed = path.suffix in COMPRESSIONS[1:]
            raise UserError(
                f"has more than {LARGEST_WHOLE >> 20} MiB{' when it is decompressed' if packed else ''}",
                where=str(path),
                remedy="decompress it first" if packed else "split it",
            )
    return bytes(content)


def check_encoding(beginning: bytes, path: Path) -> None:
    """Refuse a file that begins with the byte order mark of UTF-16 or UTF-32."""
    for mark, name in _OTHER_MARKS.items():
        if beginning.startswith(mark):
            raise UserError(
                f"is {name}, not UTF-8: it begins with the bytes {mark.hex(' ')}",
                where=f"{path}:1",
                remedy=f"convert the file: iconv -f {name} -t UTF-8 {quote_path(Path(path.name))}",
            )


def open_text(path: Path) -> io.BufferedIOBase:
    """Open a file to read its bytes, decompressed if .gz or .xz."""
    check_regular(path, "name a file; of a pipe, write the lines to one first")
    try:
        if path.suffix == ".gz":
            return gzip.open(path, "rb")
        file = path.open("rb")
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path), remedy="check the path") from None
    return io.BufferedReader(_XzReader(file)) if path.suffix == ".xz" else file


class _XzReader(io.RawIOBase):
    """Decompressor of .xz in bounded blocks that refuses invalid data after a stream.

    Python's `lzma.open` silently drops a second stream whose beginning is damaged.
    """

    def __init__(self, file: io.BufferedIOBase) -> None:
        self._file = file
        self._stream = lzma.LZMADecompressor()
        self._waiting = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Fill a buffer with decompressed bytes; return 0 at the end."""
        view = memoryview(buffer)
        while not self._stream.eof or self._next_stream():
            if self._stream.needs_input and not self._waiting:
                self._waiting = self._file.read(1 << 16)
                if not self._waiting:
                    raise EOFError("the file ends within a stream")
            found = self._stream.decompress(self._waiting, len(view))
            self._waiting = b""
            if found:
                view[: len(found)] = found
                return len(found)
        return 0

    def _next_stream(self) -> bool:
        rest = self._stream.unused_data
        # Zeros between and after streams are padding.
        while not (rest := rest.lstrip(b"\0")):
            if not (rest := self._file.read(1 << 16)):
                return False
        self._stream, self._waiting = lzma.LZMADecompressor(lzma.FORMAT_XZ), rest
        return True

    def close(self) -> None:
        self._file.close()
        super().close()


def checked(read: Iterable[bytes], path: Path) -> Iterator[bytes]:
    """Iterate over blocks read from a file; turn read errors into `UserError`."""
    try:
        yield from read
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise UserError(f"cannot be read: {error.strerror}", str(path), "check the disk, and the path") from None
        raise UserError(f"is damaged: {error}", where=str(path), remedy="compress or download it again") from None
