"""English inflection of the built-in corpus: plurals, verbs, articles, numbers."""

import re

_COUNTED = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen"""
_ONES = _COUNTED.split()
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ORDINALS = {"one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
             "twelve": "twelfth"}  # fmt: skip


def with_s(word: str) -> str:
    """Add the -s of a plural or of the third person.

    Example:
        >>> [with_s(word) for word in ("box", "story", "go", "boy")]
        ['boxes', 'stories', 'goes', 'boys']
    """
    if re.search(r"(s|x|z|ch|sh|[^aeiou]o)$", word) and word not in {"piano", "photo"}:
        return word + "es"
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + "s"


def _doubled(word: str) -> str:
    # Only words of one syllable double their last letter (stop, stopped; but open, opened).
    return word + word[-1] if re.fullmatch(r"[^aeiou]*[aeiou][bdglmnprt]", word) else word


def past(word: str) -> str:
    """Return the regular past tense.

    Example:
        >>> [past(word) for word in ("open", "try", "hug")]
        ['opened', 'tried', 'hugged']
    """
    if word.endswith("e"):
        return word + "d"
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ied"
    return _doubled(word) + "ed"


def progressive(word: str) -> str:
    """Return the -ing form.

    Example:
        >>> [progressive(word) for word in ("read", "write", "lie", "sit")]
        ['reading', 'writing', 'lying', 'sitting']
    """
    if word.endswith("ie"):
        return word[:-2] + "ying"
    if word.endswith("e") and not word.endswith("ee"):
        return word[:-1] + "ing"
    return {"begin": "beginn", "forget": "forgett"}.get(word, _doubled(word)) + "ing"


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    words = [f"{_ONES[hundreds]} hundred"] if hundreds else []
    if rest:
        tens, ones = divmod(rest, 10)
        small = _ONES[rest] if rest < 20 else _TENS[tens - 2] + (f"-{_ONES[ones]}" if ones else "")
        words.append(f"and {small}" if hundreds else small)
    return " ".join(words)


def number_words(number: int) -> str:
    """Spell a number from 0 to 1,000,000 in British English.

    Example:
        >>> number_words(1234)
        'one thousand two hundred and thirty-four'
    """
    if number == 0:
        return _ONES[0]
    if number == 1_000_000:
        return "one million"
    thousands, rest = divmod(number, 1000)
    words = [f"{_below_thousand(thousands)} thousand"] if thousands else []
    if rest:
        words.append(("and " if thousands and rest < 100 else "") + _below_thousand(rest))
    return " ".join(words)


def ordinal(day: int) -> str:
    """Spell an ordinal number from 1 to 31.

    Example:
        >>> ordinal(1), ordinal(20), ordinal(23)
        ('first', 'twentieth', 'twenty-third')
    """
    head, dash, last = number_words(day).rpartition("-")
    if last in _ORDINALS:
        return head + dash + _ORDINALS[last]
    return head + dash + (last[:-1] + "ieth" if last.endswith("y") else last + "th")


def degrees(adjective: str) -> list[str]:
    """Return comparative and superlative.

    Example:
        >>> degrees("old"), degrees("famous")
        (['older', 'oldest'], ['more famous', 'most famous'])
    """
    syllables = len(re.findall("[aeiouy]+", adjective.removesuffix("e")))
    if syllables > 1 and not adjective.endswith("y") and adjective not in {"clever", "quiet", "polite"}:
        return [f"more {adjective}", f"most {adjective}"]
    stem = adjective[:-1] + "i" if adjective.endswith("y") else _doubled(adjective.removesuffix("e"))
    return [stem + "er", stem + "est"]
