"""Grouping of tokens into words, so that weights of tokens can be summed over words, and alignment of words."""

import itertools
import string
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from s2s.data.scripts import is_unspaced, unspaced_script
from s2s.data.tokenizers import EOS, SPECIAL_TOKENS, Tokenizer
from s2s.errors import UserError

_LISTED = 20


@dataclass(frozen=True)
class Word:
    """A word with the positions of its tokens; each special token is a separate word.

    Attributes:
        text: The word as the model sees it.
    """

    text: str
    places: tuple[int, ...]

    @property
    def bare(self) -> str:
        """The word in lower case without surrounding punctuation.

        Example:
            >>> Word("Dog,", (0,)).bare
            'dog'
        """
        return self.text.strip(string.punctuation + "„“”»«…").casefold()


def patches(across: int, before: int = 0) -> list[Word]:
    """Return the patches of an image as words, named `row,column` from 1.

    Args:
        across: Patches per row.
        before: Number of vectors before the patches, named `first`.

    Example:
        >>> [word.text for word in patches(2)]
        ['1,1', '1,2', '2,1', '2,2']
    """
    names = [f"{row},{column}" for row in range(1, across + 1) for column in range(1, across + 1)]
    return [Word(name, (place,)) for place, name in enumerate([*["first"] * before, *names])]


def check_length(tokens: int, longest: int | None, what: str = "text") -> None:
    """Refuse a text with more tokens than positions.

    Args:
        longest: Maximum number; None: no limit.
        what: Name of the text, for the message.

    Raises:
        UserError: The text is too long.
    """
    if longest is not None and tokens > longest:
        raise UserError(
            f"a {what} of {tokens} tokens is longer than the {longest} positions that are read",
            remedy="shorten it",
        )


def words_of(tokenizer: Tokenizer, ids: Sequence[int], by_character: bool = False) -> list[Word]:
    """Group tokens into words.

    A word starts at a token that begins with a space; with a `word` tokenizer, at every token. Special tokens (start,
    end, padding) are separate words. A space token belongs to the word before it, or to the first word.

    Args:
        by_character: In scripts without spaces between words, make each character a word (characters of one token
            share its positions); otherwise each token is a word there.
    """
    groups: list[list[int]] = []
    for place, (piece, shown) in enumerate(zip(ids, tokenizer.tokens(ids), strict=True)):
        alone = piece <= EOS or (place > 0 and ids[place - 1] <= EOS)
        if not groups or alone or tokenizer.kind == "word" or shown.startswith("▁"):
            groups.append([])
        groups[-1].append(place)
    between_spaces = [tokenizer.decode([ids[i] for i in group]) for group in groups]
    unspaced = [unspaced_script(text) is not None for text in between_spaces]
    if not is_unspaced(" ".join(itertools.compress(between_spaces, unspaced))):
        unspaced = [False] * len(groups)
    parts = [
        (part, without)
        for group, without in zip(groups, unspaced, strict=True)
        for part in (_split_into_characters(tokenizer, ids, group) if without else [group])
    ]
    words: list[Word] = []
    spaces: list[int] = []
    for group, without in parts:
        first = ids[group[0]]
        text = SPECIAL_TOKENS[first] if first <= EOS else tokenizer.decode([ids[i] for i in group]).strip()
        if text and without and by_character:
            words += [Word(character, (*group, *spaces)) for character in text]
            spaces = []
        elif text:
            words.append(Word(text, (*group, *spaces)))
            spaces = []
        elif words:
            words[-1] = Word(words[-1].text, (*words[-1].places, *group))
        else:
            spaces += group
    return words


def _split_into_characters(tokenizer: Tokenizer, ids: Sequence[int], group: Sequence[int]) -> list[list[int]]:
    """Split a group into tokens, but keep byte tokens of one character together."""
    parts: list[list[int]] = [[]]
    for place in group:
        parts[-1].append(place)
        if "\ufffd" not in tokenizer.decode([ids[i] for i in parts[-1]]):
            parts.append([])
    return parts if parts[-1] else parts[:-1]


def merge_to_words(tokenizer: Tokenizer, ids: Sequence[int], weights: Sequence[float]) -> tuple[list[str], list[float]]:
    """Sum token weights over words; see `words_of`."""
    words = words_of(tokenizer, ids)
    return [word.text for word in words], [sum(weights[i] for i in word.places) for word in words]


def find_word(words: Sequence[Word], wanted: str) -> int:
    """Return the index of a word, ignoring case and surrounding punctuation.

    Example:
        >>> find_word([Word("A", (0,)), Word("dog.", (1,))], "Dog")
        1
    """
    bare = Word(wanted, ()).bare
    for number, word in enumerate(words):
        if word.text == wanted or (bare and word.bare == bare):
            return number
    there = ", ".join(word.text for word in words[:_LISTED]) + (", …" if len(words) > _LISTED else "")
    raise UserError(f"{wanted!r} is not among the words of the input", "--word", f"name one of {there}")


Link = tuple[int, int]


def links(weights: Float[np.ndarray, "target source"], source: Sequence[Word], target: Sequence[Word]) -> list[Link]:
    """Align each target word with its most attended source word.

    A source word's attention is the sum over its tokens; a target word's is the mean over its tokens. Tokens that are
    not part of a word, such as the end of the text, do not count.

    Args:
        weights: Attention weights by target and source token.

    Returns:
        One link per target word, as pairs of positions, sorted by source word.

    Example:
        >>> weights = np.array([[0.1, 0.9], [0.8, 0.2]])
        >>> links(weights, [Word("a", (0,)), Word("b", (1,))], [Word("x", (0,)), Word("y", (1,))])
        [(0, 1), (1, 0)]
    """
    if not source or not target:
        return []
    on_source = np.stack([weights[:, list(word.places)].sum(axis=1) for word in source], axis=1)
    looked = np.stack([on_source[list(word.places)].mean(axis=0) for word in target])
    return sorted((int(row.argmax()), place) for place, row in enumerate(looked))


def pharaoh(found: Sequence[Link]) -> str:
    """Format links in Pharaoh format; empty for none.

    Example:
        >>> pharaoh([(0, 1), (1, 0)])
        '0-1 1-0'
    """
    return " ".join(f"{source}-{target}" for source, target in found)
