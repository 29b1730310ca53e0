"""Detection of quoted tab-separated files, as written by pandas and Excel."""

import re
from collections.abc import Iterable, Iterator, Sequence

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

    Args:
        lines: Lines of the file, without line feeds.

    Returns:
        True if the cells must be unquoted.

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
