"""Header lines of tables: detection of column names and of row indices."""

import difflib
import re
from collections.abc import Sequence

from s2s.errors import UserError

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

    Args:
        first: Cells of the first line.
        second: Cells of the second line, if known.

    Returns:
        True for a header, False for a line of data.

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
    """Return True if a cell could be a column name.

    A name has up to 40 characters, begins with a letter, and does not end with a full stop.
    """
    return _NAME.fullmatch(cell) is not None


def check_no_header(cells: Sequence[str], positions: Sequence[int], where: str, second: Sequence[str] = ()) -> None:
    """Refuse a first line with column names in a table that is read by position.

    Args:
        cells: Cells of the first line.
        positions: Positions that are read, from 0.
        where: Place of the line, for messages.
        second: Cells of the second line, if known.

    Raises:
        UserError: All cells at these positions are common column names, or the first column is a row index.
    """
    chosen = [cells[position].strip() for position in positions]
    indexed = not cells[0].strip() and is_header(cells, second)
    if chosen and (indexed or all(map(_is_usual, chosen))):
        raise UserError(
            f"the first line names the columns: {', '.join(map(repr, chosen))}",
            where=where,
            remedy="give columns by these names, not by position; if the line is an example, move it down",
        )


def header_positions(header: Sequence[str], names: Sequence[str], keys: str, where: str) -> list[int]:
    """Find columns in a header line.

    Args:
        header: Cells of the header line.
        names: Names of the columns.
        keys: Recipe keys that name the columns, for messages.
        where: Place of the header line, for messages.

    Returns:
        Position of each column, from 0.

    Raises:
        UserError: A column is missing or occurs several times, or the line ends with a carriage return.
    """
    if header[-1].removesuffix("\r") in names and header[-1] not in names:
        raise UserError("the header ends with a carriage return", where=where, remedy="convert the file, e.g. dos2unix")
    for column in names:
        if column not in header:
            raise no_column(column, header, where, f'{keys}; without a header by position: {keys.split(" ")[0]}: "0"')
        if header.count(column) > 1:
            what = f"the header names {column!r} {header.count(column)} times"
            raise UserError(what, where=where, remedy="rename the column that is not meant")
    return [header.index(column) for column in names]


def no_column(column: str, there: Sequence[str], where: str, keys: str) -> UserError:
    """Build the error for a column that a table does not have.

    Args:
        column: Name of the missing column.
        there: Names of the existing columns.
        where: Place of the table or row.
        keys: Recipe keys that name the columns.

    Returns:
        The error; its remedy suggests a similar name if there is one.
    """
    near = difflib.get_close_matches(column, there, n=1)
    return UserError(
        f"no column {column!r}; there are {', '.join(f'{name!r:.40}' for name in there[:10]) or 'none'}",
        where=where,
        remedy=(f"did you mean {near[0]}? " if near else "") + f"name columns with {keys}",
    )


def _is_usual(name: str) -> bool:
    """Return True for a common name, or one that contains it: `review_text`."""
    parts = name.lower().split("_")
    return name.lower() in _NAMES or (len(parts) > 1 and not _NAMES.isdisjoint(parts))
