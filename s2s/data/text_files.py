"""Lines and tables from files, plain or compressed, with the line number of every mistake.

Lines end at the newline (U+000A) only: carriage return, U+0085 and U+2028 are data, as they are for every tool that
counts lines.
"""

import csv
import difflib
import gzip
import io
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from s2s.errors import UserError

COMPRESSIONS = ("", ".gz", ".xz")
TABLES = (".tsv", ".csv", ".jsonl", ".parquet")
Row = dict[str, str]


def table_kind(path: Path) -> str | None:
    """`.tsv`, `.csv`, `.jsonl` or `.parquet` for a table, compressed or not; None for anything else."""
    suffix = path.with_suffix("").suffix if path.suffix in COMPRESSIONS else path.suffix
    return suffix if suffix in TABLES else None


def lines(path: Path) -> Iterator[str]:
    """The lines of a file, without their ends.

    Raises:
        UserError: the file is missing or damaged, or a line is not UTF-8.
    """
    with _open(path) as file:
        for number, raw in enumerate(_raw_lines(file, path), start=1):
            yield _decoded(raw.removesuffix(b"\n"), path, number)


def line_pairs(source: Path, target: Path) -> Iterator[Row]:
    """The rows of two line-aligned files.

    Raises:
        UserError: as `lines`; or one file has more lines than the other.
    """
    left, right, count = lines(source), lines(target), 0
    while True:
        one, other = next(left, None), next(right, None)
        if one is None or other is None:
            break
        count += 1
        yield {"source": one, "target": other}
    if one is not None or other is not None:
        longer = count + 1 + sum(1 for _ in (left if one is not None else right))
        counts = (longer, count) if one is not None else (count, longer)
        raise UserError(
            f"{source} has {counts[0]:,} lines, {target} has {counts[1]:,}",
            remedy="line n of one file must translate line n of the other; look at where they part",
        )


def table_rows(path: Path, source: str, target: str) -> Iterator[Row]:
    """The rows of a table, two columns of it as source and target.

    Args:
        path: a tsv (never quoted), csv (RFC 4180), jsonl or parquet file.
        source: name of the source column. A tsv or csv file with the header's names missing may be read by position:
            `0` is the first column.
        target: name of the target column.

    Raises:
        UserError: as `lines`; or a column is missing, a row is too short, or a cell is not text.
    """
    kind = table_kind(path)
    if kind == ".parquet":
        rows = _parquet_rows(path, (source, target))
    elif kind == ".jsonl":
        rows = _json_rows(path, (source, target))
    else:
        rows = _separated_rows(path, "\t" if kind == ".tsv" else ",", (source, target))
    for one, other in rows:
        yield {"source": one, "target": other}


def _open(path: Path) -> IO[bytes]:
    try:
        if path.suffix == ".gz":
            return gzip.open(path, "rb")  # type: ignore[return-value]
        return lzma.open(path, "rb") if path.suffix == ".xz" else path.open("rb")  # type: ignore[return-value]
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path), remedy="check the path") from None


def _raw_lines(file: IO[bytes], path: Path) -> Iterator[bytes]:
    try:
        yield from file
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise UserError(f"is damaged: {error}", where=str(path), remedy="compress or download it again") from None


def _decoded(raw: bytes, path: Path, number: int) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"byte 0x{raw[error.start]:02x} at position {error.start} of the line is not UTF-8",
            where=f"{path}:{number}",
            remedy=f"convert the file, e.g. iconv -f latin1 -t utf-8 {path.name}",
        ) from None


def _separated_rows(path: Path, separator: str, columns: tuple[str, str]) -> Iterator[tuple[str, str]]:
    numbered = _csv_cells(path) if separator == "," else ((n, x.split("\t")) for n, x in enumerate(lines(path), 1))
    positions: list[int] | None = [int(c) for c in columns] if all(c.isdigit() for c in columns) else None
    width = 0
    for number, cells in numbered:
        if positions is None:
            positions = [_position(column, cells, path) for column in columns]
            width = len(cells)
            continue
        width = width or len(cells)
        if len(cells) != width or max(positions) >= width:
            raise UserError(
                f"has {len(cells)} columns, expected {max(width, max(positions) + 1)}",
                where=f"{path}:{number}",
                remedy="mend the row" if separator == "," else "mend the row: a tsv cell holds no tab and no line end",
            )
        yield cells[positions[0]], cells[positions[1]]


def _csv_cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    with _open(path) as raw:
        reader = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""), strict=True)
        try:
            for cells in reader:
                yield reader.line_num, cells
        except (UnicodeDecodeError, csv.Error) as error:
            raise UserError(f"not CSV: {error}", where=f"{path}:{reader.line_num + 1}", remedy="mend the row") from None


def _position(column: str, header: list[str], path: Path) -> int:
    if column not in header:
        raise _no_column(column, header, f"{path}:1")
    return header.index(column)


def _no_column(column: str, there: list[str], where: str) -> UserError:
    near = difflib.get_close_matches(column, there, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return UserError(
        f"no column {column!r}; there are {', '.join(map(repr, there)) or 'none'}{hint}",
        where=where,
        remedy="name columns with data.source and data.target, by position (0, 1 …) in a tsv or csv without a header",
    )


def _json_rows(path: Path, columns: tuple[str, str]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines(path), start=1):
        where = f"{path}:{number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(f"not JSON: {error}", where=where, remedy="one JSON object a line") from None
        if not isinstance(row, dict):
            raise UserError(f"is {line[:40]!r}, expected an object", where=where, remedy="one JSON object a line")
        yield checked_cells(row, columns, where)


def checked_cells(row: dict[str, object], columns: tuple[str, str], where: str) -> tuple[str, str]:
    """The source and the target of a row; the hub's `translation` column of nested languages is looked into.

    Raises:
        UserError: a column is missing, or a cell is not text.
    """
    nested = row.get("translation")
    if isinstance(nested, dict) and columns[0] not in row:
        row = nested
    for column in columns:
        if column not in row:
            raise _no_column(column, list(row), where)
        if not isinstance(row[column], str):
            raise UserError(f"{column} is {row[column]!r}, expected text", where=where, remedy="remove or mend the row")
    return str(row[columns[0]]), str(row[columns[1]])


def _parquet_rows(path: Path, columns: tuple[str, str]) -> Iterator[tuple[str, str]]:
    # pyarrow is half a second to import, and only parquet needs it here
    import pyarrow
    import pyarrow.parquet

    try:
        with _open(path) as raw:
            file = pyarrow.parquet.ParquetFile(io.BytesIO(raw.read()) if path.suffix in COMPRESSIONS else raw)
            number = 0
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    yield checked_cells(row, columns, f"{path} row {number}")
    except pyarrow.ArrowInvalid as error:
        raise UserError(f"not parquet: {error}", where=str(path), remedy="write the file again") from None
