"""What columns a table has, and which of them are meant: for who has a file and no recipe yet."""

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from s2s.data.text_files import TABLES, check_there, no_column, raw_rows, table_kind
from s2s.errors import UserError

_READ = 1000
# two to twenty classes are few enough to be told by their looks alone
_FEW = 20
_NAME = re.compile(r"[^\W\d][\w .:/-]{0,39}(?<![.:/-])")
# names that columns usually have, those first that say most
_USUAL = {
    "sources": """
        source src input in word words grapheme graphemes letters spelling question command commands lemma
    """,
    "targets": """
        target tgt trg output out phone phones phoneme phonemes pronunciation ipa transcription answer action actions
        translation form
    """,
    "texts": """
        text sentence review content body comment document tweet
    """,
    "labels": """
        label labels class category sentiment topic intent
    """,
    "languages": """
        ar cs da de el en es fi fr he hi hu it ja ko nl no pl pt ro ru sv tr uk zh
    """,
}
_SOURCES, _TARGETS, _TEXTS, _LABELS, _LANGUAGES = (words.split() for words in _USUAL.values())
_NAMES = {*_SOURCES, *_TARGETS, *_TEXTS, *_LABELS, *_LANGUAGES, "id", "title", "description"}


@dataclass(frozen=True)
class Head:
    """The beginning of a table.

    Attributes:
        path: of the table.
        columns: their names, or their positions from 0 on where the table has no header.
        rows: the cells of the first thousand rows as text, by column.
        header: whether the first line names the columns; None where columns have names by themselves.
    """

    path: Path
    columns: tuple[str, ...]
    rows: list[dict[str, str]]
    header: bool | None

    def __str__(self) -> str:
        first = self.rows[0] if self.rows else {}
        return ", ".join(f"{name!r:.40} (e.g. {first.get(name, '')!r:.40})" for name in self.columns[:10])


def read_head(path: Path, wanted: Sequence[str]) -> Head:
    """Looks at the beginning of a table; columns that the user names tell whether it has a header.

    Raises:
        UserError: it is missing, damaged, empty or no table.
    """
    check_there(path)
    if table_kind(path) is None:
        raise UserError(
            f"is no table ({', '.join(TABLES)}; plain, .gz or .xz)", str(path), "name a table, or rename it"
        )
    found = [row for _, row in itertools.islice(raw_rows(path), _READ + 1)]
    if not found:
        raise UserError("holds no rows", where=str(path), remedy="name another file")
    header = None
    if isinstance(found[0], list):
        header = _is_header(found[0], wanted)
        names = found[0] if header else [str(position) for position in range(len(found[0]))]
        found = [dict(zip(names, row, strict=False)) for row in found[header:]]
    rows = [{name: _text(cell) for name, cell in _unnested(row).items()} for row in found]
    return Head(path, tuple(dict.fromkeys(name for row in rows for name in row)), rows, header)


def pair_columns(head: Head, source: str | None, target: str | None) -> tuple[str, str]:
    """Source and target column: those that the user named, else those of usual names, else the only two.

    Raises:
        UserError: a column is missing, or nothing tells which are meant.
    """
    options = "--source COLUMN --target COLUMN"
    chosen = source or _usual(head, _SOURCES, but=target), target or _usual(head, _TARGETS, but=source)
    if len(head.columns) == 2 and None in chosen:
        one = source or (head.columns[1 - head.columns.index(target)] if target in head.columns else head.columns[0])
        chosen = one, target or next((name for name in head.columns if name != one), head.columns[1])
    return _there(head, chosen, options)  # type: ignore[return-value]


def label_columns(head: Head, texts: Sequence[str], label: str | None) -> tuple[tuple[str, ...], str]:
    """The columns of the text and that of the label: as named, by usual names, or by their looks.

    Raises:
        UserError: a column is missing, or nothing tells which are meant.
    """
    options = "--text COLUMN --label COLUMN (--text several times: joined by a space)"
    few = [name for name in head.columns if name not in texts and 2 <= len(_different(head, name)) <= _FEW]
    label = (
        label or _usual(head, _LABELS, but=None) or (few[0] if len(few) == 1 and len(head.rows) > 2 * _FEW else None)
    )
    if label is None and len(head.columns) == 2 and len(texts) == 1 and texts[0] in head.columns:
        label = head.columns[1 - head.columns.index(texts[0])]
    others = [name for name in head.columns if name != label]
    found = list(texts) or [_usual(head, _TEXTS, but=label) or (others[0] if label and len(others) == 1 else None)]
    *chosen, named = _there(head, (*found, label), options)
    return tuple(chosen), named


def _is_header(cells: list[str], wanted: Sequence[str]) -> bool:
    """Whether the first line names columns: those that the user named, or one of a usual name among other names."""
    if wanted:
        return not all(name.isdecimal() for name in wanted)
    names = [cell.strip() for cell in cells]
    return (
        len(set(names)) == len(names)
        and all(_NAME.fullmatch(name) for name in names)
        and any(name.lower() in _NAMES for name in names)
    )


def _unnested(row: dict[str, object]) -> dict[str, object]:
    nested = row.get("translation")
    return nested if isinstance(nested, dict) else row


def _text(cell: object) -> str:
    return cell if isinstance(cell, str) else json.dumps(cell, ensure_ascii=False, default=str)


def _usual(head: Head, names: Sequence[str], but: str | None) -> str | None:
    there = {name.lower(): name for name in head.columns if name != but}
    return next((there[name] for name in names if name in there), None)


def _different(head: Head, column: str) -> set[str]:
    return {row[column] for row in head.rows if column in row}


def _there(head: Head, chosen: Sequence[str | None], options: str) -> list[str]:
    for name in chosen:
        if name is not None and name not in head.columns:
            raise no_column(name, list(head.columns), str(head.path), options)
    if None in chosen:
        raise UserError(
            f"nothing tells which columns are meant; there are {head}",
            where=str(head.path),
            remedy=f"name them: {options}",
        )
    return [name for name in chosen if name is not None]
