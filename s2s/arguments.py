"""Checks of arguments, of the command line and of Python callers; mistakes are the same errors.

Errors name the options of the command line. For Python callers, `python_wording` replaces them by arguments.
"""

import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from pathlib import Path
from typing import TypeVar

from s2s.errors import Stopped, UserError

T = TypeVar("T")

_GIVE_TEXTS = "give texts, as in ['A dog.']"
_WORD = r"""(?:'[^']*'|"[^"]*"|[^\s'"`])+"""

_SAME = (
    "beam",
    "checkpoint",
    "cluster",
    "head",
    "layer",
    "match",
    "nbest",
    "profile",
    "recipe",
    "seeds",
    "task",
    "translation",
    "word",
    "words",
)
PYTHON_WORDS = {f"--{name}": name for name in _SAME} | {
    "command line": "overrides",
    "--experiment": "experiments",
    "--lowercase": "lowercase=True",
    "--max-tokens": "max_tokens",
    "--metric": "metrics",
    "--out": "folder",
    "--overwrite": "overwrite=True",
    "--resume": "resume=True",
    "--source FILE": "sources",
    "--tokenize": "tokenizer",
    "INPUT": "texts",
    "one INPUT": "one text",
}
"""Arguments of the Python API, by the words for them in messages of the command line."""


def check_utf8(text: str, where: str, remedy: str) -> str:
    r"""Return a text; refuse surrogates, which UTF-8 cannot encode.

    Bytes of an argument or a file name that are not UTF-8 arrive as surrogates.

    Args:
        text: Text or path.
        where: Place for the message.
        remedy: What the user should do.

    Example:
        >>> check_utf8("a\udce9", "lines[0]", "correct it")
        Traceback (most recent call last):
        s2s.errors.UserError: lines[0]: 'a\udce9' is not UTF-8 at character 2
          → correct it
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        near = text[max(0, error.start - 30) : error.start + 30].encode("utf-8", "backslashreplace").decode()
        raise UserError(f"'{near}' is not UTF-8 at character {error.start + 1:,}", where, remedy) from None
    return text


def check_texts(lines: Iterable[str], name: str) -> list[str]:
    """Return texts as a list; refuse a single text and values of other types.

    Args:
        lines: Texts.
        name: Name of the argument, for messages.
    """
    if isinstance(lines, str):
        raise UserError("is one text, but a list of texts is expected", where=name, remedy="put it into a list: [text]")
    if not isinstance(lines, Iterable):
        raise UserError(f"{lines!r:.60} is no list of texts", where=name, remedy=_GIVE_TEXTS)
    lines = list(lines)
    for place, line in enumerate(lines):
        if not isinstance(line, str):
            raise UserError(f"{line!r:.60} is not a text", where=f"{name}[{place}]", remedy=_GIVE_TEXTS)
        check_utf8(line, f"{name}[{place}]", "correct it")
    return lines


def check_text(text: object, name: str) -> str:
    """Return a text; refuse values of other types.

    Args:
        text: Value of the argument.
        name: Name of the argument, for messages.
    """
    if not isinstance(text, str):
        raise UserError(f"{text!r:.60} is not a text", where=name, remedy="give one text, such as 'A dog.'")
    return check_utf8(text, name, "correct it")


def check_references(references: Iterable[str | Iterable[str]], name: str = "references") -> list[list[str]]:
    """Return the references of each text as lists; see `check_texts`.

    Args:
        references: One or several references for each text.
        name: Name of the argument, for messages.
    """
    if isinstance(references, str) or not isinstance(references, Iterable):
        return [check_texts(references, name)]  # type: ignore[arg-type]
    return [
        check_texts([each] if isinstance(each, str) else each, f"{name}[{place}]")
        for place, each in enumerate(references)
    ]


def check_unique(overrides: Sequence[str]) -> None:
    """Refuse overrides that set the same key twice."""
    counts = Counter(override.partition("=")[0].strip() for override in overrides)
    if twice := [key for key, count in counts.items() if count > 1]:
        raise UserError(f"{', '.join(twice)} is set twice", "command line", "set it once")


def check_integer(name: str, value: object) -> None:
    """Refuse what is not an integer; NumPy's integers pass."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise UserError(f"{value!r:.60} is not an integer", where=name, remedy="give one, such as 4")


def check_number(name: str, value: object, least: int, most: int, above: bool = False) -> None:
    """Refuse what is not a number within bounds.

    Args:
        name: Name of the argument, for messages.
        value: Value of the argument.
        least: Lower bound.
        most: Upper bound, which is included.
        above: Exclude the lower bound.

    Example:
        >>> check_number("top_p", 1.5, 0, 1, above=True)
        Traceback (most recent call last):
        s2s.errors.UserError: top_p: is 1.5
          → give a number above 0, at most 1
    """
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not least <= number <= most or (above and number == least):
        bounds = f"above {least:,}, at most {most:,}" if above else f"from {least:,} to {most:,}"
        raise UserError(f"is {value!r:.60}", where=name, remedy=f"give a number {bounds}")


def check_path(name: str, value: object) -> Path:
    """Return a path; refuse what is neither a text nor a path."""
    if not isinstance(value, str | Path):
        raise UserError(f"{value!r:.60} is no path", where=name, remedy="give a str or a pathlib.Path")
    return Path(value)


def check_paths(paths: object, name: str) -> list[Path]:
    """Return paths as a list; refuse a single path and values of other types.

    Args:
        paths: Value of the argument.
        name: Name of the argument, for messages.
    """
    if isinstance(paths, str | Path):
        raise UserError("is one path, but a list of paths is expected", where=name, remedy="put it into a list: [path]")
    if not isinstance(paths, Iterable):
        raise UserError(f"{paths!r:.60} is no list of paths", where=name, remedy="give a list of str or pathlib.Path")
    return [check_path(f"{name}[{place}]", path) for place, path in enumerate(paths)]


@contextmanager
def python_wording(words: Mapping[str, str] = PYTHON_WORDS) -> Iterator[None]:
    """Context manager and decorator: errors name arguments of Python instead of options of the command line.

    Args:
        words: Arguments, by the words that they replace.

    Example:
        >>> with python_wording():
        ...     raise UserError("already contains a run", "runs/a", "`s2s train runs/a --resume`, or --overwrite")
        Traceback (most recent call last):
        s2s.errors.UserError: runs/a: already contains a run
          → `s2s.train('runs/a', resume=True)`, or overwrite=True
    """
    try:
        yield
    except (UserError, Stopped) as error:
        # In place, for the class of the error may have a meaning.
        for name, value in vars(error).items():
            setattr(error, name, _reword(value, words) if isinstance(value, str) else value)
        error.args = (_reword(str(error), words),)
        raise


def reword_methods(owner: type[T]) -> type[T]:
    """Class decorator: apply `python_wording` to all public methods."""
    for name, method in list(vars(owner).items()):
        if callable(method) and not name.startswith("_"):
            setattr(owner, name, python_wording()(method))
    return owner


def _reword(text: str, words: Mapping[str, str]) -> str:
    """Replace commands that resume something by calls, and options outside of other commands by arguments."""

    def train(found: re.Match[str]) -> str:
        return f"s2s.train({shlex.split(found[1])[0]!r}, {'overrides, ' if found[2] else ''}resume=True)"

    text = re.sub(rf"s2s train ({_WORD}) --resume((?: {_WORD})*)", train, text)
    text = re.sub(
        rf"s2s compare --resume ({_WORD})", lambda found: f"s2s.Comparison({shlex.split(found[1])[0]!r}).run()", text
    )
    options = "|".join(sorted(words, key=len, reverse=True))
    outside = rf"`[^`]*`|(?<![\w'-])(?:{options})(?![\w-])"
    return re.sub(outside, lambda found: words.get(found[0], found[0]), text)
