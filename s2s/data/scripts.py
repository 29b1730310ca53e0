"""Writing systems: script detection and word splitting without spaces.

Chinese, Japanese, Thai, Lao, Khmer, Burmese and Tibetan are written without spaces between words. There, the text
between two spaces is a clause or a sentence, so these texts are measured in characters.
"""

import itertools
import re
import unicodedata
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

# Japanese text has a larger share of kana; Chinese text has almost none.
_KANA = 0.1
# Average number of characters between spaces up to which a text counts as segmented into words.
_SEGMENTED, _SEGMENTED_CHINESE = 7, 3
# Letters of a typical word, rounded up, so that single words are not mistaken for sentences.
_WORD: dict[Script, int] = {"Chinese": 2, "Japanese": 4}
_WORD_ELSEWHERE = 6
# Number of texts that decide for a corpus.
_SAMPLE = 10_000


def unspaced_script(texts: str | Iterable[str]) -> Script | None:
    """Detect a script without spaces between words.

    Returns:
        The script of more than half of all letters; None if it is any other script, or there are no letters.

    Example:
        >>> unspaced_script("今日は良い天気です"), unspaced_script("a nice day")
        ('Japanese', None)
    """
    return _examine(texts)[0]


def is_unspaced(texts: str | Iterable[str]) -> bool:
    """Return True if spaces do not separate the words of texts.

    Texts of a script without spaces that were segmented into words count as spaced.
    """
    script, segmented = _examine(texts)
    return script is not None and not segmented


def split_words(text: str, unspaced: bool | None = None) -> list[str]:
    """Split a text into words, or into characters if spaces do not separate words.

    Example:
        >>> split_words("a nice day"), split_words("你好")
        (['a', 'nice', 'day'], ['你', '好'])
    """
    if unspaced is None:
        unspaced = is_unspaced(text)
    return [character for character in text if not character.isspace()] if unspaced else text.split()


def is_mark(character: str) -> bool:
    r"""Return True for a combining mark, such as a decomposed accent or a vowel sign of Hindi.

    `re` and `str.isalnum` do not count marks as parts of words.

    Example:
        >>> is_mark("\u0301"), is_mark("e")
        (True, False)
    """
    return unicodedata.category(character).startswith("M")


def unit_name(unspaced: bool) -> str:
    """Return the plural noun for what `split_words` returns: `characters` or `words`."""
    return "characters" if unspaced else "words"


def sentence_separator(texts: Iterable[str]) -> str:
    """Return the separator of sentences: empty for Chinese and Japanese, else a space."""
    script, segmented = _examine(texts)
    return "" if script in ("Chinese", "Japanese") and not segmented else " "


def estimate_words(characters: int, script: Script) -> int:
    """Return a low estimate of the number of words in a text without spaces."""
    return characters // _WORD.get(script, _WORD_ELSEWHERE)


def _examine(texts: str | Iterable[str]) -> tuple[Script | None, bool]:
    """Return the script without spaces, and True if the texts are segmented."""
    found: Counter[str] = Counter()
    others = written = chunks = 0
    for text in [texts] if isinstance(texts, str) else itertools.islice(texts, _SAMPLE):
        others += len(_OTHER_LETTERS.findall(text))
        # Most texts of other scripts are skipped here.
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
