"""Writing systems: which script texts are in, and whether spaces separate its words.

Chinese, Japanese, Thai, Lao, Khmer, Burmese and Tibetan are written without spaces between words. A "word" between
spaces is a clause or a whole sentence there, so their texts are measured in characters.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterable
from typing import Literal, cast

Script = Literal["Chinese", "Japanese", "Thai", "Lao", "Khmer", "Burmese", "Tibetan"]

_RANGES = {
    "Han": r"\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "kana": r"\u3041-\u3096\u3099-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "Thai": r"\u0e01-\u0e3a\u0e40-\u0e4e",
    "Lao": r"\u0e81-\u0ece",
    "Khmer": r"\u1780-\u17d3",
    "Burmese": r"\u1000-\u103f\u104c-\u108f\ua9e0-\ua9fe\uaa60-\uaa7f",
    "Tibetan": r"\u0f00\u0f0b\u0f40-\u0fbc",
}
_LETTERS = {name: re.compile(f"[{characters}]") for name, characters in _RANGES.items()}
_UNSPACED = re.compile(f"[{''.join(_RANGES.values())}]")
_OTHER_LETTERS = re.compile(f"[^\\W\\d_{''.join(_RANGES.values())}]")

# Japanese text has more kana than this; Chinese text has almost none
_KANA = 0.1
# average characters between spaces up to which text was split into words by a segmenter
_SEGMENTED, _SEGMENTED_CHINESE = 7, 3
# letters of a typical word, rounded up, so that single words are not taken for sentences
_WORD: dict[Script, int] = {"Chinese": 2, "Japanese": 4}
_WORD_ELSEWHERE = 6
# texts that decide for a corpus
_SAMPLE = 10_000


def unspaced_script(texts: str | Iterable[str]) -> Script | None:
    """Detect the script of texts, if it is one that puts no spaces between words.

    Args:
        texts: One text, or several, of which the first 10,000 are read.

    Returns:
        The script that more than half of all letters belong to; None if that is any other, or there are no letters.
    """
    return _examine(texts)[0]


def is_unspaced(texts: str | Iterable[str]) -> bool:
    """Whether spaces do not separate the words of texts.

    Texts of such a script that a segmenter has split into words count as spaced: their words are what spaces separate.

    Args:
        texts: One text, or several, of which the first 10,000 are read.

    Returns:
        True if most letters belong to a script without spaces, and the text is not segmented.
    """
    script, segmented = _examine(texts)
    return script is not None and not segmented


def split_words(text: str, unspaced: bool | None = None) -> list[str]:
    """Split a text into words or, where spaces do not separate words, into characters.

    Args:
        text: The text.
        unspaced: What `is_unspaced` says of the corpus; None decides by this text alone.

    Returns:
        The words between white space, or all characters that are not white space.
    """
    if unspaced is None:
        unspaced = is_unspaced(text)
    return [character for character in text if not character.isspace()] if unspaced else text.split()


def unit_name(unspaced: bool) -> str:
    """The plural noun for what `split_words` returns."""
    return "characters" if unspaced else "words"


def sentence_separator(texts: Iterable[str]) -> str:
    """What stands between two sentences of such texts: nothing in Chinese and Japanese, else a space."""
    script, segmented = _examine(texts)
    return "" if script in ("Chinese", "Japanese") and not segmented else " "


def estimate_words(characters: int, script: Script) -> int:
    """A low estimate of how many words so many characters of a script without spaces are."""
    return characters // _WORD.get(script, _WORD_ELSEWHERE)


def _examine(texts: str | Iterable[str]) -> tuple[Script | None, bool]:
    """The script, and whether the words of its texts are separated by spaces after all."""
    found: Counter[str] = Counter()
    others = written = chunks = 0
    for text in [texts] if isinstance(texts, str) else itertools.islice(texts, _SAMPLE):
        others += len(_OTHER_LETTERS.findall(text))
        # most text of other scripts ends here
        if text.isascii() or not _UNSPACED.search(text):
            continue
        for name, characters in _LETTERS.items():
            found[name] += len(characters.findall(text))
        written += 1
        chunks += sum(_UNSPACED.search(chunk) is not None for chunk in text.split())
    if found.total() <= others:
        return None, False
    kana = found.pop("kana")
    han = found.pop("Han") + kana
    found["Japanese" if kana > _KANA * han else "Chinese"] = han
    script = cast("Script", max(found, key=lambda name: found[name]))
    limit = _SEGMENTED_CHINESE if script in ("Chinese", "Japanese") else _SEGMENTED
    return script, chunks >= 2 * written and found.total() <= limit * chunks
