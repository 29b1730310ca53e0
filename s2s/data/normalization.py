"""What normalisation makes of a text, and which texts it changes."""

import re
import unicodedata
from collections.abc import Iterable


def normalized(text: str, normalization: str, lowercase: bool) -> str:
    """A text as `Tokenizer.normalize` makes it, by the recipe's keys."""
    composed = normalization == "nfkc"
    if composed:
        text = unicodedata.normalize("NFKC", text)
    if lowercase:
        text = text.lower()
        # there is no single character for H\u0331, but there is one for h\u0331
        text = unicodedata.normalize("NFKC", text) if composed else text
    return " ".join(text.split()) if composed else text


def altered(texts: Iterable[str], normalization: str) -> str:
    """How many texts a normalization changes, white space at the ends aside, and one change, in words.

    A reference that is changed can never be written: it is kept untouched, and a model learns and writes the other.
    Nothing is said where no text is changed.
    """
    count, example = 0, ""
    for text in texts:
        if normalized(text, normalization, False).strip() != text.strip():
            count += 1
            example = example or _first_change(text, normalization)
    return f"{count:,} target{'s' * (count != 1)}, e.g. {example}" if count else ""


def _first_change(text: str, normalization: str) -> str:
    changes = ((word, normalized(word, normalization, False)) for word in re.findall(r"\S+", text))
    change = next((f"{one[:30]!r} to {other[:30]!r}" for one, other in changes if one != other), "")
    return change or f"the white space of {text[:30]!r}"
