"""Generation of recipes from the user's data (`s2s new`).

The data is read and measured; the recipe gives a reason for every choice. This module has the common functions. Each
task has a module `recipe_generation` and a template `fitting.yaml` for its choices.
"""

import hashlib
import itertools
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from s2s.arguments import check_utf8
from s2s.data.scripts import estimate_words, is_unspaced, unspaced_script
from s2s.data.text_files import (
    LABELS,
    SOURCES,
    TABLES,
    TARGETS,
    TEXTS,
    Columns,
    check_no_header,
    check_there,
    is_header,
    is_index,
    is_quoted_tsv,
    lines,
    no_column,
    raw_rows,
    table_kind,
)
from s2s.data.tokenizers import UNK, Tokenizer, describe_changes, train
from s2s.errors import UserError, counted, counted_items
from s2s.recipe.schema import LONGEST_NAME, PieceSettings, Quoting
from s2s.tasks.data_check import IMBALANCE

if TYPE_CHECKING:
    import datasets

_SPECIALS = 4
# Maximum number of different words of a closed vocabulary.
_CLOSED = 500
_LETTERS = 500
# Texts with at most this number of words, on average, count as single words.
_SINGLE = 1.5
_SIZES = (16_000, 8_000, 4_000, 2_000, 1_000, 500, 400, 350, 300)
# A tokenizer trained on more texts differs little, and a vocabulary that a sample supports, all texts support.
_TRIED = 20_000
_SEEN = 50
_FEWEST = 20


Files = Path | tuple[Path, Path]
F = TypeVar("F", bound=Files, covariant=True)


@dataclass(frozen=True)
class Splits(Generic[F]):
    """The user's data: tables, folders, lists of images, or pairs of text files.

    Attributes:
        validation: Validation data; None holds out a part of `train`.
        test: Test data; None holds out a part of `train`.
    """

    train: F
    validation: F | None = None
    test: F | None = None


@dataclass(frozen=True)
class WordStatistics:
    """Statistics of the words of texts, separated by white space.

    Attributes:
        texts: Number of training texts.
        words: Number of words in the training texts. Where spaces do not separate words (`unspaced`), it is a low
            estimate by the number of characters.
        types: Number of different words.
        once: Number of words that occur once.
        unseen: Number of words of validation and test texts that do not occur in the training texts.
        characters: Number of different characters.
        longest: Number of characters of the longest text.
        unspaced: True if spaces do not separate words.
    """

    texts: int
    words: int
    types: int
    once: int
    unseen: int
    characters: int
    longest: int
    unspaced: bool = False

    @property
    def sentences(self) -> bool:
        """Return True if texts are natural sentences without spaces between words."""
        return self.unspaced and self.words > _SINGLE * self.texts

    @property
    def closed(self) -> bool:
        """Return True if new words are unlikely (closed vocabulary).

        In a closed vocabulary few words occur only once; in natural text half of them do.
        """
        if self.sentences:
            return False
        return self.types <= _CLOSED and not self.unseen and self.once <= 0.2 * self.types

    @property
    def spelt(self) -> bool:
        """Return True if texts are single words of an alphabet."""
        return self.words <= _SINGLE * self.texts and self.characters <= _LETTERS


@dataclass(frozen=True)
class TokenizerChoice:
    """Choice of a tokenizer.

    Attributes:
        tokenizer: Tokenizer trained on a sample of the texts.
        size: Vocabulary size for all texts.
    """

    tokenizer: Tokenizer
    size: int
    why: str

    @property
    def kind(self) -> str:
        """Kind of the tokenizer, for the recipe."""
        return self.tokenizer.kind


def count_words(learned: Iterable[str], held_out: Iterable[str]) -> WordStatistics:
    """Count the words of training texts, and the unseen words of held-out texts.

    Example:
        >>> found = count_words(["a b a", "c"], ["a d"])
        >>> found.words, found.types, found.once, found.unseen
        (4, 3, 2, 1)
    """
    counts: Counter[str] = Counter()
    characters: set[str] = set()
    sample: list[str] = []
    texts = longest = written = 0
    for text in learned:
        counts.update(text.split())
        characters.update(text)
        texts, longest = texts + 1, max(longest, len(text))
        written += len(text)
        if texts <= _TRIED:
            sample.append(text)
    unseen = {word for text in held_out for word in text.split()} - counts.keys()
    once = sum(count == 1 for count in counts.values())
    script, words = unspaced_script(sample), counts.total()
    unspaced = script is not None and is_unspaced(sample)
    if script and unspaced:
        words = max(words, estimate_words(written, script))
    return WordStatistics(texts, words, len(counts), once, len(unseen), len(characters), longest, unspaced)


def choose_normalization(targets: Iterable[str]) -> tuple[str, str]:
    """Choose a normalization: `nfkc` if it changes no target, else `identity`.

    Example:
        >>> choose_normalization(["fine"])
        ('nfkc', 'it changes no target')
    """
    if changed := describe_changes(targets, "nfkc"):
        return "identity", f"nfkc would change {changed}"
    return "nfkc", "it changes no target"


def choose_tokenizer(
    texts: Sequence[str],
    sides: Sequence[WordStatistics],
    normalization: str,
    lowercase: bool = False,
    most: float | None = None,
) -> TokenizerChoice:
    """Choose the kind and size of a tokenizer.

    Words for a closed vocabulary, characters for single words, else subwords in a vocabulary as large as the texts
    support.

    Args:
        texts: Texts that a vocabulary is tried with.
        sides: Statistics of their words, of sources and targets.
        normalization: Unicode normalization.
        lowercase: True to lower-case the texts.
        most: Largest number of subwords; None: one for each 50 words.
    """
    types, characters, words = (sum(getattr(side, key) for side in sides) for key in ("types", "characters", "words"))
    some = texts[:: max(1, len(texts) // _TRIED)]
    tried: list[tuple[str, int, str]] = []
    if all(side.closed for side in sides):
        tried = [("word", types + _SPECIALS, f"{types:,} different words, and no new one is to be expected")]
    elif not any(side.spelt for side in sides):
        # Each token should occur often.
        most = max(_SIZES[-1], most or words / _SEEN)
        said = f"{words:,} words, {types:,} different ones, can fill them"
        if any(side.unspaced for side in sides):
            # The vocabulary needs all characters, 256 bytes, and as many subwords as there are characters.
            most = max(most, _SPECIALS + 256 + 2 * characters)
            said = f"{words:,} words or so, not all separated by spaces, can fill them"
        sizes = [size for size in _SIZES if size <= most]
        tried = [("unigram", size, said) for size in sizes]

    def learned(kind: str, size: int, why: str) -> TokenizerChoice:
        """Return a tokenizer of this kind and size, trained on the sample."""
        cut = {"kind": kind, "size": size, "normalization": normalization, "lowercase": lowercase}
        return TokenizerChoice(train(some, PieceSettings.model_validate(cut), "shared"), size, why)

    for choice in tried:
        try:
            tokens = learned(*choice)
        except UserError:
            # The texts have more characters than the vocabulary has entries.
            continue
        if choice[0] != "word" and tokens.tokenizer.size < choice[1]:
            # The texts give fewer tokens.
            continue
        # Words between other white space than single spaces are unknown to the word tokenizer.
        if choice[0] != "word" or not any(UNK in text for text in tokens.tokenizer.encode_batch(list(some))):
            return tokens
    spelt = any(side.spelt for side in sides)
    few = f"{words:,} words are too few to learn larger pieces from"
    return learned("char", characters + _SPECIALS + 1, "texts are single words: they are spelt" if spelt else few)


def sample_evenly(dataset: "datasets.Dataset", most: int) -> "datasets.Dataset":
    """Return a sample of rows at equal distances."""
    return dataset.select(range(0, len(dataset), max(1, -(-len(dataset) // most))))


def held_out_settings(
    splits: Splits[Files], different: int, what: str, where: Path, column: str | None = None
) -> dict[str, int | str | tuple[str, str]]:
    """Return the recipe's validation and test set: files, or numbers to hold out.

    Args:
        different: Number of different training examples.
        what: Plural noun for the examples.
        where: File or folder of the training data.
        column: Text column of a table, for the message.

    Raises:
        UserError: There are too few different examples.
    """
    if different < _FEWEST and column:
        raise UserError(
            f"text column {column!r:.40} has only {counted(different, 'different value')}, too few to learn from",
            where=str(where),
            remedy="collect 1,000 or more, or name another column: --text COLUMN",
        )
    if different < _FEWEST:
        are = "is" if different == 1 else "are"
        raise UserError(
            f"{counted_items(different, f'different {what}')} {are} too few to learn from",
            where=str(where),
            remedy="collect 1,000 or more",
        )
    held = 0 if None not in (splits.validation, splits.test) else max(1, min(1000, different // 20))
    given = {"validation": splits.validation, "test": splits.test}
    return {split: absolute_paths(files) if files else held for split, files in given.items()}


def absolute_path(file: Path) -> str:
    """Return the absolute path of a file.

    Raises:
        UserError: It is not UTF-8, so that no recipe can name it.
    """
    return check_utf8(str(file.absolute()), "a path of the recipe", "rename the file or folder")


def absolute_paths(files: Files) -> str | tuple[str, str]:
    """Return the absolute path of a file, or of two files; see `absolute_path`."""
    return absolute_path(files) if isinstance(files, Path) else (absolute_path(files[0]), absolute_path(files[1]))


def render_recipe(
    kind: str, name: str, train: Files, parts: Mapping[str, int | str | tuple[str, str]], choices: Mapping[str, object]
) -> str:
    """Fill in the recipe template of a task.

    The name of a run has ASCII characters only: letters lose their accents, other characters become `-`, and a long
    name is cut. A digest stands for letters of other scripts. If nothing remains, the name is that of the command.
    """
    # Held out of the training data, or separate files.
    own = " # held out of the training data and never trained on; or a file of your own, as above"
    lines = [
        f"  {split}: {f'{given}{own}' if isinstance(given, int) else quoted(given)}" for split, given in parts.items()
    ]
    plain = "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", plain).strip("-._")
    # Files of other scripts would have equal names, and so would their runs.
    other = any(c.isalpha() and not c.isascii() for c in plain)
    end = f"-{hashlib.blake2b(name.encode(), digest_size=3).hexdigest()}" if other else ""
    text = resources.files("s2s.tasks").joinpath(kind, "fitting.yaml").read_text(encoding="utf-8")
    usual = {"translation": "translate", "classification": "classify", "language_model": "text"}.get(kind, kind)
    given = {
        "name": quoted(f"{(stem or usual)[: LONGEST_NAME - len(end)]}{end}"),
        "train": quoted(absolute_paths(train)),
        "splits": "\n".join(lines),
    }
    return text.format_map(given | dict(choices))


def remarks(lines: Sequence[str]) -> str:
    """Return lines as YAML comments below a key of a section."""
    return "".join(f"\n  # {line}" for line in lines)


def training_length(updates: int, size: float, examples: float) -> dict[str, object]:
    """Return values for the template: optimizer steps, epochs and validation interval."""
    return {"updates": updates, "passes": updates * size / examples, "every": max(1, updates // 8)}


def classes_metric(counts: Collection[int]) -> str:
    """Return the validation metric: macro-F1 for imbalanced classes, else accuracy."""
    return "macro_f1 # the classes are uneven" if max(counts) > IMBALANCE * min(counts) else "accuracy"


def power_of_two(value: float, least: int, most: int) -> int:
    """Return the largest power of two that is not above a value, within limits.

    Example:
        >>> power_of_two(1000, 32, 8192)
        512
    """
    return max(least, min(most, 1 << max(0, int(value).bit_length() - 1)))


def rounded(updates: float, least: int, most: int) -> int:
    """Return a number of optimizer steps in hundreds, within limits.

    Example:
        >>> rounded(1234, 300, 20_000)
        1200
    """
    return max(least, min(most, round(updates / 100) * 100))


def quoted(value: str | Path | Sequence[str | Path]) -> str:
    """Return a text, or a list of texts, as YAML.

    Example:
        >>> quoted(["de", "my file.txt"])
        '[de, "my file.txt"]'
    """
    if not isinstance(value, str | Path):
        return f"[{', '.join(map(quoted, value))}]"
    # YAML accepts JSON strings; a plain word needs no quotes unless it is a keyword.
    text = str(value)
    plain = re.fullmatch(r"[A-Za-z/][A-Za-z0-9._/-]*", text) and text.lower() not in ("null", "true", "false")
    return text if plain else json.dumps(text, ensure_ascii=False)


_READ = 1000
# A column with 2 to 20 different values can be recognized as a label.
_FEW = 20


@dataclass(frozen=True)
class Head:
    """First rows of a table.

    Attributes:
        columns: Names of the columns, without the row index that pandas writes; positions from 0 if there is no header.
        rows: Cells as text, by column.
        header: True if the first line is a header; None for formats in which columns always have names.
        quoting: `csv` for a TSV file with quoted cells.
    """

    path: Path
    columns: tuple[str, ...]
    rows: list[dict[str, str]]
    header: bool | None
    quoting: Quoting | None = None

    def __str__(self) -> str:
        first = self.rows[0] if self.rows else {}
        return ", ".join(f"{name!r:.40} (e.g. {first.get(name, '')!r:.40})" for name in self.columns[:10])


def read_head(path: Path, wanted: Sequence[str]) -> Head:
    """Read the first rows of a table."""
    check_there(path)
    if table_kind(path) is None:
        raise UserError(
            f"is no table ({', '.join(TABLES)}; plain, .gz or .xz)", str(path), "name a table, or rename it"
        )
    _check_separator(path)
    quoting: Quoting | None = "csv" if is_quoted_tsv(path) else None
    layout = Columns((), "", quoting=quoting) if quoting else None
    found = [row for _, row in itertools.islice(raw_rows(path, layout), _READ + 1)]
    if not found:
        raise UserError("has no rows", where=str(path), remedy="name another file")
    header = None
    if isinstance(found[0], list):
        header = _has_header(found, wanted, path)
        names = found[0] if header else [str(position) for position in range(len(found[0]))]
        if header and len(found) == 1:
            raise UserError(
                f"has a header ({', '.join(f'{name.strip():.40}' for name in names[:10])}) but no rows",
                where=str(path),
                remedy="name another file",
            )
        found = [dict(zip(names, row, strict=False)) for row in found[header:]]
    # Hub data sets of translations have one column with a cell for each language.
    flat = [nested if isinstance(nested := row.get("translation"), dict) else row for row in found]
    rows = [
        {n: c if isinstance(c, str) else json.dumps(c, ensure_ascii=False, default=str) for n, c in row.items()}
        for row in flat
    ]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = tuple(name for name in names if name in wanted or not is_index(name))
    return Head(path, columns, rows, header, quoting)


def layout_lines(head: Head, what: str) -> str:
    """Return the recipe's comment on the layout of a table, to follow its path."""
    quoting = "\n  quoting: csv # its cells are quoted as in a CSV: quotes around and doubled ones are removed"
    lines = quoting if head.quoting else ""
    if head.header is None:
        return lines
    return f" # its first line {'names the columns' if head.header else f'is a {what} like all others'}{lines}"


def pair_columns(head: Head, source: str | None, target: str | None) -> tuple[str, str]:
    """Return the source and the target column.

    The columns are those that the user names, else those with usual names, else the only two.
    """
    options = "--source COLUMN --target COLUMN"
    chosen = source or _usual(head, SOURCES, but=target), target or _usual(head, TARGETS, but=source)
    if len(head.columns) == 2 and None in chosen:
        one = source or (head.columns[1 - head.columns.index(target)] if target in head.columns else head.columns[0])
        chosen = one, target or next((name for name in head.columns if name != one), head.columns[1])
    first, second = _check_columns(head, chosen, options)
    return first, second


def label_columns(head: Head, texts: Sequence[str], label: str | None) -> tuple[tuple[str, ...], str]:
    """Return the text columns and the label column.

    The columns are those that the user names, else those with usual names, else those with suitable values.
    """
    options = "--text COLUMN --label COLUMN (--text several times: joined by a space)"
    different = {name: len({row[name] for row in head.rows if name in row}) for name in head.columns}
    few = [name for name in head.columns if name not in texts and 2 <= different[name] <= _FEW]
    label = label or _usual(head, LABELS, but=None) or (few[0] if len(few) == 1 and len(head.rows) > 2 * _FEW else None)
    if label is None and len(head.columns) == 2 and len(texts) == 1 and texts[0] in head.columns:
        label = head.columns[1 - head.columns.index(texts[0])]
    others = [name for name in head.columns if name != label]
    found = list(texts) or [_usual(head, TEXTS, but=label) or (others[0] if label and len(others) == 1 else None)]
    *chosen, named = _check_columns(head, (*found, label), options)
    if named in chosen:
        raise UserError(f"column {named!r} is both text and class", remedy=f"name another one of the two: {options}")
    # A label that ends so is refused when it is read.
    if head.header is False and any(all(row.get(name, "").endswith("\r") for row in head.rows) for name in chosen):
        raise _windows_line_ends("every line ends", head)
    return tuple(chosen), named


def text_column(head: Head, given: str | None) -> str:
    """Return the text column: as given, or by usual names."""
    (found,) = _check_columns(head, (given or _usual(head, TEXTS, but=None),), "--text COLUMN")
    return found


def _check_separator(path: Path) -> None:
    """Refuse a csv or tsv whose header line has another separator."""
    own = {".csv": ",", ".tsv": "\t"}.get(table_kind(path) or "")
    first = next(lines(path), "").replace('"', "") if own else ""
    if own is None or own in first:
        return
    for other, name in ((";", "';'"), (",", "','"), ("\t", "tabs")):
        if other in first and is_header(first.split(other)):
            raise _wrong_separator(name, path)


def _wrong_separator(name: str, path: Path) -> UserError:
    remedy = "convert the file: separate its cells by commas (.csv) or tabs (.tsv)"
    return UserError(f"cells seem to be separated by {name}", where=f"{path}:1", remedy=remedy)


def _has_header(rows: Sequence[Sequence[str]], wanted: Sequence[str], path: Path) -> bool:
    """Return True if the first line is a header: the user's or usual column names."""
    if not wanted:
        return is_header(*rows[:2])
    if not all(name.isdecimal() for name in wanted):
        return True
    positions = [int(name) for name in wanted if len(name) < 6 and int(name) < len(rows[0])]
    check_no_header(rows[0], positions, f"{path}:1", *rows[1:2])
    return False


def _usual(head: Head, names: Sequence[str], but: str | None) -> str | None:
    # A line end of Windows is part of the last name; `_check_columns` refuses it.
    there = {name.lower().removesuffix("\r"): name for name in head.columns if name != but}
    return next((there[name] for name in names if name in there), None)


def _check_columns(head: Head, chosen: Sequence[str | None], options: str) -> list[str]:
    last = head.columns[-1] if head.header and head.columns else ""
    if last.endswith("\r") and not {last, last.removesuffix("\r")}.isdisjoint(chosen):
        raise _windows_line_ends("the header ends", head)
    for name in chosen:
        if name is not None and name not in head.columns:
            raise no_column(name, list(head.columns), str(head.path), options)
    if None in chosen:
        cells = list(head.rows[0].values())
        if head.header is False and len(head.columns) == 1 and all(";" in row[head.columns[0]] for row in head.rows):
            raise _wrong_separator("';'", head.path)
        twice = [cell for cell in dict.fromkeys(cells) if cells.count(cell) > 1]
        if head.header is False and twice and is_header(list(dict.fromkeys(cells))):
            what = f"the header names {twice[0]!r:.40} {cells.count(twice[0])} times"
            raise UserError(what, where=f"{head.path}:1", remedy="rename one of these columns")
        raise UserError(
            f"nothing tells which columns are meant; there are {head}",
            where=str(head.path),
            remedy=f"name them: {options}",
        )
    return [name for name in chosen if name is not None]


def _windows_line_ends(what: str, head: Head) -> UserError:
    remedy = "convert the file, e.g. dos2unix"
    return UserError(f"{what} with a carriage return", where=f"{head.path}:1", remedy=remedy)
