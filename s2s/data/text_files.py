"""Lines and tables from files, plain or compressed, with the line number of every mistake.

Lines end at the newline (U+000A) only: carriage return, U+0085 and U+2028 are data, as they are for every tool that
counts lines. A byte order mark at a file's beginning is the signature that some programs write, and no data.
"""

import codecs
import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s2s.data.compression import COMPRESSIONS, DAMAGE, check_encoding, checked, open_text, read_whole
from s2s.data.headers import check_no_header, header_positions, no_column
from s2s.data.quoting import is_quoted
from s2s.errors import UserError, check_regular, quote_path
from s2s.recipe.schema import Quoting
from s2s.recipe.wording import near_files

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

LONGEST_LINE = 1 << 24
"""Most bytes of a line, a table's row or a cell: a small archive may hold zeros that would fill the memory."""
TABLES = (".tsv", ".csv", ".jsonl", ".parquet", ".txt")
Row = dict[str, str]


@dataclass(frozen=True)
class Columns:
    """What is read of a table.

    Attributes:
        names: of the columns; of a tsv or csv without a header, their positions from 0.
        keys: where a user names them, for messages.
        numbers: those of them whose cells may also be whole numbers.
        quoting: Quoting of the cells of a tsv, see `raw_rows`.
    """

    names: tuple[str, ...]
    keys: str
    numbers: tuple[str, ...] = ()
    quoting: Quoting | None = None


_PARQUET_MAGIC = b"PAR1"
# rows that are in memory at once; each may have a cell of LONGEST_LINE bytes
_PARQUET_ROWS = 64


def table_kind(path: Path) -> str | None:
    """`.tsv`, `.csv`, `.jsonl`, `.parquet` or `.txt` for a table, compressed or not; None for anything else."""
    suffix = path.with_suffix("").suffix if path.suffix in COMPRESSIONS else path.suffix
    return suffix if suffix in TABLES else None


def lines(path: Path) -> Iterator[str]:
    """The lines of a file, without their ends and without a byte order mark.

    Raises:
        UserError: the file cannot be read or is damaged, or a line is not UTF-8 or longer than `LONGEST_LINE`.
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
    """The error for a line, row or cell with more bytes than `LONGEST_LINE`."""
    return UserError(
        f"{what} has more than {LONGEST_LINE >> 20} MiB", where=where, remedy="split it, or name a file of text"
    )


def text(path: Path) -> str:
    """The lines of a file as one text; see `lines`.

    Raises:
        UserError: as `lines`, but for the length of a line; or the file has more than `LARGEST_WHOLE` bytes.
    """
    raw = read_whole(path)
    check_encoding(raw, path)
    raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        number, begins = raw.count(b"\n", 0, error.start) + 1, raw.rfind(b"\n", 0, error.start) + 1
        return _decoded(raw[begins : error.end], path, number)


def line_pairs(source: Path, target: Path) -> Iterator[Row]:
    """The rows of two line-aligned files.

    Raises:
        UserError: as `lines`; or one file has more lines than the other.
    """
    return ({"source": one, "target": other} for one, other in line_rows(source, target))


def line_rows(*files: Path) -> Iterator[list[str]]:
    """The lines of two or more line-aligned files, row by row.

    Raises:
        UserError: as `lines`; or a file has more lines than another.
    """
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
        raise UserError(
            ", ".join([f"{said[0]} lines", *said[1:]]),
            remedy="line n of one file must translate line n of the other; look at where they part",
        )


def table_cells(path: Path, columns: Columns) -> Iterator[tuple[int, list[str]]]:
    """The rows of a table: where each begins, and its cells of these columns as text.

    A csv is quoted after RFC 4180, a tsv as `columns.quoting` says, see `raw_rows`. A jsonl or parquet file may nest
    the columns in one that is called `translation`, as many hub data sets do. A txt is a tsv if its first line has a
    tab; else each cell stands behind the name of its column: `IN: jump twice OUT: I_JUMP I_JUMP`.

    A row's place is the number of its line or, in parquet, of the row, from 1 on; see `place`. A tsv or csv file
    without a header is read by position: `"0"` is its first column, and its first line is a row like all others. A
    compressed parquet file is read into memory whole, so it is limited to `LARGEST_WHOLE` bytes.

    Raises:
        UserError: as `lines`; or a column is missing, a row has not as many cells as the first, or a cell is not text.
    """
    rows = raw_rows(path, columns)
    if _is_separated(path):
        return _by_position(path, columns, rows)
    return ((number, checked_cells(row, columns, place(path, number))) for number, row in rows)


def comma_cells(path: Path, columns: Columns) -> Iterator[tuple[int, list[str]]]:
    """As `table_cells` of a csv, whatever the file is called."""
    return _by_position(path, columns, _csv_cells(path))


def raw_rows(path: Path, columns: Columns | None = None) -> Iterator[tuple[int, Any]]:
    """The rows of a table as they are: where each begins, and its cells by column.

    A tsv's and a csv's cells are a list, and a header is a row like all others. Of a parquet file, these columns are
    read; all when None.

    Empty lines of a csv are skipped. With `columns.quoting`, a tsv is read like a csv (`csv`), or quotes are characters
    like all others (`none`). Without, a tsv that `is_quoted` is refused.

    Raises:
        UserError: the file cannot be read, is damaged, or is no table; or quoted cells of a tsv need a decision.
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
            raise UserError(
                "cells are quoted as in a CSV",
                where=str(path),
                remedy="data.quoting=csv removes the quotes, data.quoting=none keeps them as part of the texts",
            )
        if quoting == "csv":
            return _csv_cells(path, "\t")
        return ((number, line.split("\t")) for number, line in enumerate(lines(path), start=1))
    return _marked_rows(path)


def is_quoted_tsv(path: Path) -> bool:
    """Whether a file is tab-separated and its cells are quoted as in a CSV.

    Raises:
        UserError: The file cannot be read or is damaged.
    """
    return table_kind(path) != ".csv" and _is_separated(path) and is_quoted(lines(path))


def _is_separated(path: Path) -> bool:
    kind = table_kind(path)
    return kind in (".tsv", ".csv") or (kind == ".txt" and "\t" in next(lines(path), ""))


def place(path: Path, number: int) -> str:
    """A row's place, for messages."""
    return f"{path} row {number}" if table_kind(path) == ".parquet" else f"{path}:{number}"


def checked_cells(row: dict[str, Any], columns: Columns, where: str) -> list[str]:
    """The cells of a row; a `translation` column of nested languages is looked into.

    Raises:
        UserError: a column is missing, or a cell is not text.
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
            raise UserError(what, where=where, remedy="remove or mend the row")
        cells.append(cell)
    return cells


def check_there(*paths: Path) -> None:
    """Refuses files that are not there, and tells what is there under a similar name."""
    for path in paths:
        check_regular(path, "name a file; of a pipe, write the lines to one first")
        if path.is_file():
            continue
        if path.is_symlink():
            what = f"is a link to {path.readlink()}, which is not there"
            raise UserError(what, where=str(path), remedy="restore what it links to, or name another file")
        there = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        near = near_files(path.name, there, most=3)
        what = "no such file" if path.parent.is_dir() else f"no such file, and no folder {path.parent}"
        raise UserError(what, where=str(path), remedy=f"there is {', '.join(near)}" if near else "check the path")


def _decoded(raw: bytes, path: Path, number: int) -> str:
    if b"\0" in raw and 4 * raw.count(b"\0") >= len(raw):
        # every second byte of Latin letters in UTF-16, which would pass as UTF-8
        order = "BE" if raw.startswith(b"\0") else "LE"
        raise UserError(
            "a quarter of the line or more is NUL bytes: it is UTF-16 without a byte order mark, or no text",
            where=f"{path}:{number}",
            remedy=f"convert the file, e.g. iconv -f UTF-16{order} -t UTF-8 {quote_path(Path(path.name))}",
        )
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"byte 0x{raw[error.start]:02x} at position {error.start} of the line is not UTF-8",
            where=f"{path}:{number}",
            remedy=f"convert the file, e.g. iconv -f latin1 -t utf-8 {quote_path(Path(path.name))}",
        ) from None


def _by_position(
    path: Path, columns: Columns, rows: Iterator[tuple[int, list[str]]]
) -> Iterator[tuple[int, list[str]]]:
    quoted = table_kind(path) == ".csv" or columns.quoting == "csv"
    # a position has a few digits; what has more is looked for in the header
    by_place = all(name.isdecimal() and len(name) < 6 for name in columns.names)
    positions = [int(name) for name in columns.names] if by_place else []
    width = 0
    for number, cells in rows:
        if not positions:
            positions, width = header_positions(cells, columns.names, columns.keys, f"{path}:{number}"), len(cells)
            continue
        if not width and (last := max(positions)) >= len(cells):
            raise UserError(
                f"has {len(cells)} cells, so there is no column {last}: they are counted from 0",
                where=f"{path}:{number}",
                remedy=f"name other columns with {columns.keys}",
            )
        if not width:
            check_no_header(cells, positions, f"{path}:{number}")
        width = width or len(cells)
        if len(cells) != width:
            raise UserError(
                f"has {len(cells)} cells, expected {width}",
                where=f"{path}:{number}",
                remedy="mend the row"
                if quoted
                else "mend the row: a tsv cell holds no tab and no line end, unless data.quoting=csv",
            )
        yield number, [cells[position] for position in positions]


def _csv_cells(path: Path, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """The rows that have cells, with the number of the line that each begins in."""
    # the module's own limit is 128 KiB; a row's size is limited below
    csv.field_size_limit(2 * LONGEST_LINE)
    begins, size = 1, 0

    def bounded() -> Iterator[str]:
        """The lines with their ends, as long as those of one row are not too long together."""
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
        raise UserError(
            f"the row that begins here is not CSV: {error}", where=f"{path}:{begins}", remedy="mend the row's quotes"
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
            remedy = "mend the line, or remove it" if names else "name a table, or two line-aligned files"
            raise UserError(f"is {line[:40]!r}, expected {wanted}", where=f"{path}:{number}", remedy=remedy)
        yield number, {name: cell.strip() for name, cell in zip(names, found.groups(), strict=True)}


def _json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines(path), start=1):
        where = f"{path}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"not JSON: {error}", where=where, remedy="one JSON object a line") from None
        if not isinstance(row, dict):
            raise UserError(f"is {line[:40]!r}, expected an object", where=where, remedy="one JSON object a line")
        yield number, row


def _is_text(cell: object) -> bool:
    if not isinstance(cell, str):
        return False
    try:
        # JSON can spell half of a surrogate pair, which is no character
        cell.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parquet_rows(path: Path, columns: Columns | None) -> Iterator[tuple[int, dict[str, Any]]]:
    # pyarrow is half a second to import, and only parquet needs it here
    import pyarrow
    from pyarrow.parquet import ParquetFile

    try:
        with open_text(path) as raw:
            packed = path.suffix in COMPRESSIONS
            file = ParquetFile(io.BytesIO(read_whole(path, _PARQUET_MAGIC)) if packed else raw)
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
    # a ValueError: bytes that are no text, or a date that Python has not
    except (pyarrow.ArrowException, ValueError, OverflowError, *DAMAGE) as error:
        raise UserError(f"not parquet: {error}", where=str(path), remedy="write the file again") from None


def _check_cells(metadata: "FileMetaData", columns: Sequence[str], path: Path) -> None:
    """Refuses a parquet file whose cells are longer than `LONGEST_LINE` on average, before it is decompressed."""
    for group in range(metadata.num_row_groups):
        about = metadata.row_group(group)
        for chunk in (about.column(number) for number in range(about.num_columns)):
            name = chunk.path_in_schema.partition(".")[0]
            if name in columns and chunk.total_uncompressed_size > LONGEST_LINE * max(1, chunk.num_values):
                raise too_long_line(f"a cell of column {name!r}", str(path))
