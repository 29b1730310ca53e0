"""Bytes of files, plain or compressed: in bounded parts, and to the end of the last stream."""

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
"""Most bytes of what is read into memory as a whole: JSON, a compressed parquet file, a document of many lines."""
DAMAGE = (OSError, EOFError, lzma.LZMAError, zlib.error)
"""What reading a damaged file raises."""
# UTF-32 first: its mark begins with that of UTF-16
_OTHER_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def blocks(path: Path) -> Iterator[bytes]:
    """The content of a file, decompressed where its name says that it is compressed, piece by piece.

    Raises:
        UserError: the file cannot be read or is damaged.
    """
    with open_text(path) as file:
        yield from checked(iter(lambda: file.read(1 << 16), b""), path)


def read_whole(path: Path, magic: bytes = b"") -> bytes:
    """The decompressed content of a file.

    Args:
        path: of the file.
        magic: how the content must begin; of a file that begins otherwise, a part is returned.

    Raises:
        UserError: the file cannot be read or is damaged, or its content has more than `LARGEST_WHOLE` bytes.
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
    """Refuses a file that begins with the byte order mark of UTF-16 or UTF-32.

    Raises:
        UserError: it does.
    """
    for mark, name in _OTHER_MARKS.items():
        if beginning.startswith(mark):
            raise UserError(
                f"is {name}, not UTF-8: it begins with the bytes {mark.hex(' ')}",
                where=f"{path}:1",
                remedy=f"convert the file: iconv -f {name} -t UTF-8 {quote_path(Path(path.name))}",
            )


def open_text(path: Path) -> io.BufferedIOBase:
    """Opens a file to read its content, decompressed where its name says that it is compressed.

    Raises:
        UserError: there is no such file, or it cannot be opened.
    """
    check_regular(path, "name a file; of a pipe, write the lines to one first")
    try:
        if path.suffix == ".gz":
            return gzip.open(path, "rb")
        file = path.open("rb")
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path), remedy="check the path") from None
    return io.BufferedReader(_XzReader(file)) if path.suffix == ".xz" else file


class _XzReader(io.RawIOBase):
    """Decompresses .xz in bounded parts, and refuses what follows a stream and is none.

    Python's own `lzma.open` silently drops a second stream whose beginning is damaged.
    """

    def __init__(self, file: io.BufferedIOBase) -> None:
        self._file = file
        self._stream = lzma.LZMADecompressor()
        self._waiting = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Fills a buffer with decompressed bytes; 0 at the end.

        Raises:
            lzma.LZMAError: the file is damaged.
            EOFError: the file ends within a stream.
        """
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
        # zeros between and after streams are padding
        while not (rest := rest.lstrip(b"\0")):
            if not (rest := self._file.read(1 << 16)):
                return False
        self._stream, self._waiting = lzma.LZMADecompressor(lzma.FORMAT_XZ), rest
        return True

    def close(self) -> None:
        self._file.close()
        super().close()


def checked(read: Iterable[bytes], path: Path) -> Iterator[bytes]:
    """What is read of a file, up to any damage.

    Raises:
        UserError: the file is damaged, or cannot be read any further.
    """
    try:
        yield from read
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise UserError(f"cannot be read: {error.strerror}", str(path), "check the disk, and the path") from None
        raise UserError(f"is damaged: {error}", where=str(path), remedy="compress or download it again") from None
