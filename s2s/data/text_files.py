"""Lines and tables from plain or compressed files, with line numbers in errors.

Lines end at the newline (U+000A) only. Carriage return, U+0085 and U+2028 are data, as for every tool that counts
lines. A byte order mark at the beginning of a file is removed.
"""

import codecs
import csv
import difflib
import gzip
import io
import json
import lzma
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s2s.errors import UserError, check_regular, counted, quote_path
from s2s.recipe.schema import Quoting
from s2s.recipe.wording import near_files

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from pyarrow.parquet import FileMetaData

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
    """Iterate over the content of a file in blocks, decompressed if .gz or .xz."""
    with open_text(path) as file:
        yield from checked(iter(lambda: file.read(1 << 16), b""), path)


def read_limited(path: Path, magic: bytes = b"") -> bytes:
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
            what = f"has more than {LARGEST_WHOLE >> 20} MiB{' when it is decompressed' if packed else ''}"
            raise UserError(what, where=str(path), remedy="decompress it first" if packed else "split it")
    return bytes(content)


def check_encoding(beginning: bytes, path: Path) -> None:
    """Refuse a file that begins with the byte order mark of UTF-16 or UTF-32."""
    for mark, name in _OTHER_MARKS.items():
        if beginning.startswith(mark):
            what = f"is {name}, not UTF-8: it begins with the bytes {mark.hex(' ')}"
            remedy = f"convert the file: iconv -f {name} -t UTF-8 {quote_path(Path(path.name))}"
            raise UserError(what, where=f"{path}:1", remedy=remedy)


def open_text(path: Path) -> io.BufferedIOBase:
    """Open a file to read its bytes, decompressed if .gz or .xz."""
    check_regular(path, "name a file; save the output of a pipe to a file first")
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
            raise UserError(f"cannot be read: {error.strerror}", str(path), "check the disk and the path") from None
        raise UserError(f"is damaged: {error}", where=str(path), remedy="compress or download it again") from None


LONGEST_LINE = 1 << 24
"""Largest size of a line, a table row or a cell, in bytes: a small archive of zeros could otherwise fill the memory."""
TABLES = (".tsv", ".csv", ".jsonl", ".parquet", ".txt")
Row = dict[str, str]


@dataclass(frozen=True)
class Columns:
    """Columns to read from a table."""

    names: tuple[str, ...]  # column names; for a tsv or csv without a header, positions from 0
    keys: str  # recipe keys that name the columns, for messages
    numbers: tuple[str, ...] = ()  # names of the columns whose cells may also be whole numbers
    quoting: Quoting | None = None  # quoting of the cells of a tsv, see `raw_rows`


_PARQUET_MAGIC = b"PAR1"
# Rows in memory at once; each may have a cell of LONGEST_LINE bytes.
_PARQUET_ROWS = 64


def table_kind(path: Path) -> str | None:
    """Return the table format by the file name, compressed or not; None for other files.

    Example:
        >>> table_kind(Path("train.tsv.gz")), table_kind(Path("train.en"))
        ('.tsv', None)
    """
    suffix = Path(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix
    return suffix if suffix in TABLES else None


def lines(path: Path) -> Iterator[str]:
    """Iterate over the lines of a file, without line ends and byte order mark.

    Raises:
        UserError: The file cannot be read or is damaged, or a line is not UTF-8 or longer than `LONGEST_LINE`.
    """
    with open_text(path) as file:
        read = iter(lambda: file.readline(LONGEST_LINE + 1), b"")
        for number, raw in enumerate(checked(read, path), start=1):
            if number == 1:
                check_encoding(raw, path)
                raw = raw.removeprefix(codecs.BOM_UTF8)
            line = raw.removesuffix(b"\n")
            if len(line) > LONGEST_LINE:
                raise too_long_line("the line", f"{path}:{number}")
            yield _decoded(line, path, number)


def too_long_line(what: str, where: str) -> UserError:
    """Build the error for a line, row or cell with more bytes than `LONGEST_LINE`."""
    return UserError(
        f"{what} has more than {LONGEST_LINE >> 20} MiB", where=where, remedy="split it, or name a file of text"
    )


def text(path: Path) -> str:
    """Read the lines of a file (at most `LARGEST_WHOLE` bytes) as one text; see `lines`."""
    raw = read_limited(path)
    check_encoding(raw, path)
    raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        number, begins = raw.count(b"\n", 0, error.start) + 1, raw.rfind(b"\n", 0, error.start) + 1
        return _decoded(raw[begins : error.end], path, number)


def line_pairs(source: Path, target: Path) -> Iterator[Row]:
    """Iterate over two line-aligned files; rows have the keys `source` and `target`."""
    return ({"source": one, "target": other} for one, other in line_rows(source, target))


def line_rows(*files: Path) -> Iterator[list[str]]:
    """Iterate over line-aligned files; each row has one line per file."""
    readers = [lines(file) for file in files]
    count = 0
    while True:
        row = [next(reader, None) for reader in readers]
        found = [line for line in row if line is not None]
        if len(found) < len(row):
            break
        count += 1
        yield found
    if found:
        counts = [
            count if line is None else count + 1 + sum(1 for _ in reader)
            for line, reader in zip(row, readers, strict=True)
        ]
        said = [f"{file} has {number:,}" for file, number in zip(files, counts, strict=True)]
        what = ", ".join([f"{said[0]} lines", *said[1:]])
        raise UserError(
            what, remedy="line n of one file must translate line n of the other; find the first line that differs"
        )


def table_cells(path: Path, columns: Columns) -> Iterator[tuple[int, list[str]]]:
    """Iterate over the rows of a table: the row's place and its cells as text.

    Supported formats:

    - csv: quoted as in RFC 4180.
    - tsv: quoted as `columns.quoting` says, see `raw_rows`.
    - jsonl, parquet: the columns may be nested in a column called `translation`, as in many hub data sets.
    - txt: a tsv if its first line has a tab; otherwise each cell follows the name of its column: `IN: jump twice OUT:
      I_JUMP I_JUMP`.

    A tsv or csv file without a header is read by position: `"0"` is the first column, and the first line is a row like
    all others. A compressed parquet file is read into memory, so it is limited to `LARGEST_WHOLE` bytes.

    Yields:
        The number of the line, or of the row in parquet, from 1 (see `place`), and the cells in the order of the
        columns.

    Raises:
        UserError: As for `lines`; or a column is missing, a row differs from the first in its number of cells, or a
            cell is not text.
    """
    rows = raw_rows(path, columns)
    if _is_separated(path):
        return _by_position(path, columns, rows)
    return ((number, checked_cells(row, columns, place(path, number))) for number, row in rows)


def comma_cells(path: Path, columns: Columns) -> Iterator[tuple[int, list[str]]]:
    """Iterate over the rows of a csv as `table_cells` does, whatever the file name."""
    return _by_position(path, columns, _csv_cells(path))


def raw_rows(path: Path, columns: Columns | None = None) -> Iterator[tuple[int, Any]]:
    """Iterate over the rows of a table without conversion: the place and the cells.

    Cells of a tsv or csv are a list, and a header is a row like all others; other formats have a dict by column. Empty
    lines of a csv are skipped.

    Args:
        path: Table file.
        columns: Columns to read from a parquet file (None for all), and the quoting of a tsv. With `csv` quoting, a tsv
            is read like a csv; with `none`, quotes are ordinary characters; with None, a quoted tsv is refused.
    """
    kind, quoting = table_kind(path), columns.quoting if columns else None
    if kind == ".parquet":
        return _parquet_rows(path, columns)
    if kind == ".jsonl":
        return _json_rows(path)
    if kind == ".csv":
        return _csv_cells(path)
    if _is_separated(path):
        if quoting is None and is_quoted_tsv(path):
            remedy = "data.quoting=csv removes the quotes, data.quoting=none keeps them as part of the texts"
            raise UserError("cells are quoted as in a CSV", where=str(path), remedy=remedy)
        if quoting == "csv":
            return _csv_cells(path, "\t")
        return ((number, line.split("\t")) for number, line in enumerate(lines(path), start=1))
    return _marked_rows(path)


def is_quoted_tsv(path: Path) -> bool:
    """Return True if a file is tab-separated with cells quoted as in a csv."""
    return table_kind(path) != ".csv" and _is_separated(path) and is_quoted(lines(path))


def _is_separated(path: Path) -> bool:
    kind = table_kind(path)
    return kind in (".tsv", ".csv") or (kind == ".txt" and "\t" in next(lines(path), ""))


def place(path: Path, number: int) -> str:
    """Return the place of a row for messages, such as `train.tsv:17` or `train.parquet row 17`."""
    return f"{path} row {number}" if table_kind(path) == ".parquet" else f"{path}:{number}"


def checked_cells(row: dict[str, Any], columns: Columns, where: str) -> list[str]:
    """Return the cells of a row as text, in the order of the columns.

    If the columns are missing, they are taken from a nested column `translation`.
    """
    nested = row.get("translation")
    if isinstance(nested, dict) and columns.names[0] not in row:
        row = nested
    cells = []
    for column in columns.names:
        if column not in row:
            raise no_column(column, list(row), where, columns.keys)
        cell = row[column]
        if column in columns.numbers and isinstance(cell, int) and not isinstance(cell, bool):
            cell = str(cell)
        if isinstance(cell, str) and len(cell) > LONGEST_LINE:
            raise too_long_line(f"the cell {column}", where)
        if not _is_text(cell):
            wanted = "text or a whole number" if column in columns.numbers else "text"
            what = f"{column} is {cell!r:.60}, expected {wanted}"
            raise UserError(what, where=where, remedy="delete or fix the row")
        cells.append(cell)
    return cells


def check_there(*paths: Path, key: str = "") -> None:
    """Check that files exist; the error lists files with similar names.

    Args:
        key: Key of a recipe that names the files, for the message.
    """
    prefix = f"{key}: " if key else ""
    for path in paths:
        check_regular(path, "name a file; save the output of a pipe to a file first")
        if path.is_file():
            continue
        if path.is_symlink():
            what = f"is a link to {path.readlink()}, which does not exist"
            raise UserError(what, where=f"{prefix}{path}", remedy="restore its target, or name another file")
        there = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        near = near_files(path.name, there, most=3)
        what = "no such file" if path.parent.is_dir() else f"no such file, and no folder {path.parent}"
        remedy = f"did you mean {', '.join(near)}?" if near else "check the path"
        raise UserError(what, where=f"{prefix}{path}", remedy=remedy)


def _decoded(raw: bytes, path: Path, number: int) -> str:
    if b"\0" in raw and 4 * raw.count(b"\0") >= len(raw):
        # In UTF-16, every second byte of Latin letters is NUL; such text is valid UTF-8.
        order = "BE" if raw.startswith(b"\0") else "LE"
        what = "a quarter of the line or more is NUL bytes: the file is UTF-16 without a byte order mark, or not text"
        remedy = f"convert the file, e.g. iconv -f UTF-16{order} -t UTF-8 {quote_path(Path(path.name))}"
        raise UserError(what, where=f"{path}:{number}", remedy=remedy)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"byte 0x{raw[error.start]:02x} at position {error.start} of the line is not UTF-8"
        remedy = f"convert the file, e.g. iconv -f latin1 -t utf-8 {quote_path(Path(path.name))}"
        raise UserError(what, where=f"{path}:{number}", remedy=remedy) from None


def _by_position(
    path: Path, columns: Columns, rows: Iterator[tuple[int, list[str]]]
) -> Iterator[tuple[int, list[str]]]:
    quoted = table_kind(path) == ".csv" or columns.quoting == "csv"
    # A position has up to five digits; longer numbers are column names.
    by_place = all(name.isdecimal() and len(name) < 6 for name in columns.names)
    positions = [int(name) for name in columns.names] if by_place else []
    width = 0
    for number, cells in rows:
        if not positions:
            positions, width = header_positions(cells, columns.names, columns.keys, f"{path}:{number}"), len(cells)
            continue
        if not width and (last := max(positions)) >= len(cells):
            what = f"has {counted(len(cells), 'cell')}; there is no column {last} (columns are counted from 0)"
            raise UserError(what, where=f"{path}:{number}", remedy=f"name other columns with {columns.keys}")
        if not width:
            check_no_header(cells, positions, f"{path}:{number}")
        width = width or len(cells)
        if len(cells) != width:
            raise UserError(
                f"has {counted(len(cells), 'cell')}, expected {width}",
                where=f"{path}:{number}",
                remedy="fix the row"
                if quoted
                else "fix the row: a TSV cell has no tabs and line ends, unless data.quoting=csv",
            )
        yield number, [cells[position] for position in positions]


def _csv_cells(path: Path, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Yield the non-empty rows, each with the number of its first line."""
    # The limit of the csv module is 128 KiB; the size of a row is limited below.
    csv.field_size_limit(2 * LONGEST_LINE)
    begins, size = 1, 0

    def bounded() -> Iterator[str]:
        """Yield the lines with line ends, as long as the current row is not too long."""
        nonlocal size
        for line in lines(path):
            size += len(line) + 1
            if size > LONGEST_LINE + 1:
                raise too_long_line("the row that begins here", f"{path}:{begins}")
            yield f"{line}\n"

    reader = csv.reader(bounded(), delimiter=delimiter, strict=True)
    try:
        for cells in reader:
            if cells:
                yield begins, cells
            begins, size = reader.line_num + 1, 0
    except csv.Error as error:
        if "new-line character" in str(error):
            raise UserError(
                "a carriage return (\\r) outside of quotes",
                where=f"{path}:{begins}",
                remedy="convert the line ends, e.g. by mac2unix, or quote the cell",
            ) from None
        raise UserError(
            f"the row that begins here is not CSV: {error}",
            where=f"{path}:{begins}",
            remedy="fix the quotes of the row",
        ) from None


def _marked_rows(path: Path) -> Iterator[tuple[int, Row]]:
    names: list[str] = []
    form = re.compile("")
    for number, line in enumerate(lines(path), start=1):
        if not names:
            names = list(dict.fromkeys(re.findall(r"(?<!\S)([^\W\d]\w*):(?!\S)", line)))
            form = re.compile(r"\s*" + r"\s".join(f"{name}:(.*?)" for name in names) + r"\s*", re.S)
        found = form.fullmatch(line)
        if not names or found is None:
            wanted = " ".join(f"{name}: …" for name in names) or "cells with a tab between them, or `IN: … OUT: …`"
            another = "name a table; of pairs, two line-aligned files; of one text a line, a .tsv with data.text: '0'"
            remedy = "fix or delete the line" if names else another
            raise UserError(f"is {line[:40]!r}, expected {wanted}", where=f"{path}:{number}", remedy=remedy)
        yield number, {name: cell.strip() for name, cell in zip(names, found.groups(), strict=True)}


def _json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines(path), start=1):
        where = f"{path}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"not JSON: {error}", where=where, remedy="write one JSON object per line") from None
        if not isinstance(row, dict):
            raise UserError(
                f"is {line[:40]!r}, expected an object", where=where, remedy="write one JSON object per line"
            )
        yield number, row


def _is_text(cell: object) -> bool:
    if not isinstance(cell, str):
        return False
    try:
        # JSON can encode half of a surrogate pair, which is not a character.
        cell.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parquet_rows(path: Path, columns: Columns | None) -> Iterator[tuple[int, dict[str, Any]]]:
    # Importing pyarrow takes half a second, and only parquet needs it here.
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        with open_text(path) as raw:
            packed = path.suffix in COMPRESSIONS
            file = ParquetFile(io.BytesIO(read_limited(path, _PARQUET_MAGIC)) if packed else raw)
            there = file.schema_arrow.names
            missing = [name for name in columns.names if name not in there] if columns else []
            if columns and missing and "translation" not in there:
                raise no_column(missing[0], there, str(path), columns.keys)
            wanted = [name for name in there if not columns or name in (*columns.names, "translation")]
            _check_cells(file.metadata, wanted, path)
            number = 0
            for batch in file.iter_batches(_PARQUET_ROWS, columns=wanted):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    # ValueError: bytes that are not UTF-8, or a date that Python cannot represent.
    except (pyarrow.ArrowException, ValueError, OverflowError, *DAMAGE) as error:
        raise UserError(f"not parquet: {error}", where=str(path), remedy="write the file again") from None


def _check_cells(metadata: "FileMetaData", columns: Sequence[str], path: Path) -> None:
    """Refuse columns with cells longer than `LONGEST_LINE` on average.

    The metadata suffice, so that nothing is decompressed.
    """
    for group in range(metadata.num_row_groups):
        about = metadata.row_group(group)
        for chunk in (about.column(number) for number in range(about.num_columns)):
            name = chunk.path_in_schema.partition(".")[0]
            if name in columns and chunk.total_uncompressed_size > LONGEST_LINE * max(1, chunk.num_values):
                raise too_long_line(f"a cell of column {name!r}", str(path))


_NAME = re.compile(r"[^\W\d][\w .:/-]{0,39}(?<![.:/-])")
_INDEX = ("", "Unnamed: 0", "__index_level_0__")

# Common column names, the most specific first.
_USUAL = """
source src input in word words grapheme graphemes letters spelling question command commands lemma /
target tgt trg output out phone phones phoneme phonemes pronunciation ipa transcription answer action actions
translation form /
text sentence review content body comment document tweet /
label labels class category sentiment topic intent /
ar cs da de el en es fi fr he hi hu it ja ko nl no pl pt ro ru sv tr uk zh
arabic chinese czech danish dutch english finnish french german greek hebrew hindi hungarian italian japanese korean
norwegian polish portuguese romanian russian spanish swedish turkish ukrainian
"""
SOURCES, TARGETS, TEXTS, LABELS, LANGUAGES = (names.split() for names in _USUAL.split("/"))
_NAMES = {*SOURCES, *TARGETS, *TEXTS, *LABELS, *LANGUAGES, "id", "title", "description"}


def is_header(first: Sequence[str], second: Sequence[str] = ()) -> bool:
    """Return True if the first line of a table is a header with column names.

    The cells of a header are distinct names, at least one of them common (`text`, `label`, `review_text`, `en` …). The
    first cell may be empty, as in tables written by pandas with a row index; then no name needs to be common if the
    second line begins with a number.

    Example:
        >>> is_header(["text", "label"]), is_header(["A nice film.", "pos"])
        (True, False)
    """
    names = [cell.strip() for cell in first]
    indexed = len(names) > 1 and not names[0]
    names = names[indexed:]
    return (
        len(set(names)) == len(names)
        and all(_NAME.fullmatch(name) for name in names)
        and (any(map(_is_usual, names)) or (indexed and bool(second) and second[0].isdecimal()))
    )


def is_index(column: str) -> bool:
    """Return True if a column has a name that pandas gives to a row index."""
    return column in _INDEX


def could_be_name(cell: str) -> bool:
    """Return True if a cell could be a column name: up to 40 characters that begin with a letter."""
    return _NAME.fullmatch(cell) is not None


def check_no_header(cells: Sequence[str], positions: Sequence[int], where: str, second: Sequence[str] = ()) -> None:
    """Refuse a first line with column names or a row index in a table that is read by position."""
    chosen = [cells[position].strip() for position in positions]
    indexed = not cells[0].strip() and is_header(cells, second)
    if chosen and (indexed or all(map(_is_usual, chosen))):
        remedy = "give columns by these names, not by position; if the line is an example, move it down"
        raise UserError(f"the first line names the columns: {', '.join(map(repr, chosen))}", where=where, remedy=remedy)


def header_positions(header: Sequence[str], names: Sequence[str], keys: str, where: str) -> list[int]:
    """Return the position of each column in a header line, from 0."""
    if header[-1].removesuffix("\r") in names and header[-1] not in names:
        raise UserError("the header ends with a carriage return", where=where, remedy="convert the file, e.g. dos2unix")
    for column in names:
        if column not in header:
            raise no_column(column, header, where, f'{keys}; without a header by position: {keys.split(" ")[0]}: "0"')
        if header.count(column) > 1:
            what = f"the header names {column!r} {header.count(column)} times"
            raise UserError(what, where=where, remedy="rename one of these columns")
    return [header.index(column) for column in names]


def no_column(column: str, there: Sequence[str], where: str, keys: str) -> UserError:
    """Build the error for a column that a table does not have; it suggests a similar name."""
    near = difflib.get_close_matches(column, there, n=1)
    return UserError(
        f"no column {column!r}; columns: {', '.join(f'{name!r:.40}' for name in there[:10]) or 'none'}",
        where=where,
        remedy=(f"did you mean {near[0]}? " if near else "") + f"name columns with {keys}",
    )


def _is_usual(name: str) -> bool:
    """Return True for a common name, or one that contains it: `review_text`."""
    parts = name.lower().split("_")
    return name.lower() in _NAMES or (len(parts) > 1 and not _NAMES.isdisjoint(parts))


_CELL = re.compile(r'"((?:[^"]|"")*)"|([^"\t]*)')
# Fewer wrapped cells prove nothing, unless one has doubled quotes.
_FEWEST = 5
# Largest number of characters of a row: an unclosed quote must not collect a whole file.
_LONGEST = 1 << 24


def is_quoted(lines: Iterable[str]) -> bool:
    r"""Return True if a tab-separated file is quoted as in RFC 4180.

    Each cell with a quote must be wrapped in quotes, with inner quotes doubled; so texts that merely contain quotes do
    not pass. In addition, one of these must show that the quotes are not part of the texts:

    - a wrapped cell has doubled quotes inside, or
    - at least five cells are wrapped, among them all cells of a column (a first line without quotes aside), or
    - at least five cells are wrapped, all of them contain a comma, and no other cell does (Excel).

    The first line that breaks the rules ends the search.

    Example:
        >>> is_quoted(['text\tlabel', '"She said ""no"", twice."\tneg'])
        True
        >>> is_quoted(['"No", she said.\tneg', '"Yes."\tpos'])
        False
    """
    wrapped_columns: set[int] | None = None
    doubled, wrapped, comma_alone = False, 0, True
    for number, row in enumerate(_rows(lines)):
        if '"' not in row:
            wrapped_columns = set() if number else None
            comma_alone = comma_alone and "," not in row
            continue
        cells = _cells(row)
        if cells is None:
            return False
        quoted = [content for content, is_wrapped in cells if is_wrapped]
        positions = {number for number, (_, is_wrapped) in enumerate(cells) if is_wrapped}
        wrapped_columns = positions if wrapped_columns is None else wrapped_columns & positions
        doubled = doubled or any('""' in content for content in quoted)
        wrapped += len(quoted)
        comma_alone = comma_alone and all(("," in content) == is_wrapped for content, is_wrapped in cells)
    return doubled or (wrapped >= _FEWEST and (bool(wrapped_columns) or comma_alone))


def _rows(lines: Iterable[str]) -> Iterator[str]:
    """Yield the non-empty rows.

    A wrapped cell may contain line ends, so lines are joined until the number of quotes is even.
    """
    gathered: list[str] = []
    is_open, size = False, 0
    for line in lines:
        gathered.append(line)
        is_open ^= line.count('"') % 2 == 1
        size += len(line)
        if not is_open or size > _LONGEST:
            row = "\n".join(gathered).removesuffix("\r")
            gathered, size = [], 0
            if row:
                yield row
    if gathered:
        yield "\n".join(gathered)


def _cells(row: str) -> Sequence[tuple[str, bool]] | None:
    """Return the content of each cell (quotes doubled), and True if it is wrapped.

    None if a quote breaks the rules.
    """
    cells, at = [], 0
    while True:
        found = _CELL.match(row, at)
        if found is None or (found.end() < len(row) and row[found.end()] != "\t"):
            return None
        cells.append((found[1], True) if found[1] is not None else (found[2], False))
        if found.end() == len(row):
            return cells
        at = found.end() + 1
