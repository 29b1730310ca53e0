"""Sentence splitting: lines of several sentences, translated sentence by sentence and joined again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from s2s.errors import UserError


@dataclass(frozen=True)
class SplitLine:
    """Sentences of a line, and the white space before, between and after them.

    Example:
        >>> line = SplitLine(["It rains.", "Stay."], ["", "  ", " "])
        >>> line.join(["Es regnet.", "Bleib."])
        'Es regnet.  Bleib. '
    """

    sentences: list[str]
    spaces: list[str]

    def join(self, translations: Sequence[str]) -> str:
        """Return the translations of the sentences as one line, with the white space of the original.

        Args:
            translations: One for each sentence.
        """
        parts = (f"{space}{text}" for space, text in zip(self.spaces[:-1], translations, strict=True))
        return "".join(parts) + self.spaces[-1]


Split = Callable[[str], SplitLine]
"""A function that splits a line."""


def unsplit(line: str) -> SplitLine:
    """Return a line as one sentence."""
    return SplitLine([line], ["", ""])


def sentence_splitter(language: str) -> Split:
    """Return a function that splits lines into sentences by the rules of the package sentencex.

    Args:
        language: Code of the language, such as `en`; rules of related languages replace missing ones.

    Raises:
        UserError: The package is not installed.
    """
    if find_spec("sentencex") is None:
        remedy = "in the repository: pip install -c constraints.txt -e '.[sentences]'"
        raise UserError("splitting sentences needs the package sentencex", remedy=remedy)
    sentencex: Any = import_module("sentencex")

    def split(line: str) -> SplitLine:
        sentences, spaces = list[str](), [""]
        for part in _segments(sentencex, language, line):
            text = part.strip()
            if not text:
                spaces[-1] += part
                continue
            before, after = part.split(text, 1)
            spaces[-1] += before
            sentences.append(text)
            spaces.append(after)
        return SplitLine(sentences, spaces)

    return split


def _segments(sentencex: Any, language: str, line: str) -> list[str]:
    """Return the parts of a line, which is one part if the package fails on it."""
    try:
        return sentencex.segment(language, line)
    except BaseException as error:
        # Its Rust code panics on some texts with wide spaces, and a panic is no Exception.
        if type(error).__name__ != "PanicException":
            raise
        return [line]
