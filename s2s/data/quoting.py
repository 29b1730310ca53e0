"""Detection of tab-separated files whose cells are quoted as in a CSV, as pandas and Excel write them."""

import re
from collections.abc import Iterable, Iterator, Sequence

_CELL = re.compile(r'"((?:[^"]|"")*)"|([^"\t]*)')
# fewer wrapped cells prove nothing unless one has doubled quotes
_FEWEST = 5
# most characters of a row, as elsewhere: an open quote may not gather a whole file
_LONGEST = 1 << 24


def is_quoted(lines: Iterable[str]) -> bool:
    r"""Whether a whole tab-separated file is quoted after RFC 4180.

    Each cell with a quote must be wrapped in quotes, with the quotes inside doubled; texts that merely contain quotes
    do not pass. Besides, something must show that the quotes are no part of the texts:

    - a wrapped cell has doubled quotes inside, or
    - five cells or more are wrapped, among them all of a column, but for a first line without quotes, or
    - five cells or more are wrapped, all of them have a comma, and no other cell has one (Excel).

    Args:
        lines: Lines of the file, without line feeds.

    Returns:
        True if the cells have to be unquoted. The first line that breaks the rules ends the search.

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
    """Rows of a file, empty ones left out; a wrapped cell may hold line ends, so a row has an even number of quotes."""
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
    """Content of each cell, its quotes still doubled, and whether it is wrapped; None if a quote breaks the rules."""
    cells, at = [], 0
    while True:
        found = _CELL.match(row, at)
        if found is None or (found.end() < len(row) and row[found.end()] != "\t"):
            return None
        cells.append((found[1], True) if found[1] is not None else (found[2], False))
        if found.end() == len(row):
            return cells
        at = found.end() + 1
