"""Words of which pieces are made, so that what pieces weigh can be told of words."""

import itertools
import string
from collections.abc import Sequence
from dataclasses import dataclass

from s2s.data.scripts import is_unspaced, unspaced_script
from s2s.data.tokenizers import EOS, SPECIAL_TOKENS, Tokenizer
from s2s.errors import UserError

_LISTED = 20


@dataclass(frozen=True)
class Word:
    """A word of a text, as the model saw it, and the places of its pieces; special pieces are words of their own."""

    text: str
    places: tuple[int, ...]

    @property
    def bare(self) -> str:
        """Without case and the punctuation around it."""
        return self.text.strip(string.punctuation + "„“”»«…").casefold()


def patches(across: int, before: int = 0) -> list[Word]:
    """The patches of an image, named by row and column from 1 on; `before` them, so many vectors that are none."""
    names = [f"{row},{column}" for row in range(1, across + 1) for column in range(1, across + 1)]
    return [Word(name, (place,)) for place, name in enumerate([*["first"] * before, *names])]


def check_length(tokens: int, longest: int | None, what: str = "text") -> None:
    """Refuses a text of more pieces than the positions that a model has learned; None stands for any number."""
    if longest is not None and tokens > longest:
        raise UserError(
            f"a {what} of {tokens} pieces is longer than the {longest} positions that are read",
            remedy="shorten it",
        )


def words_of(tokenizer: Tokenizer, ids: Sequence[int], by_character: bool = False) -> list[Word]:
    """The words of a text's pieces.

    A word begins where a piece begins with a space, or is a piece, known or not; what stands for beginning, end and
    padding is a word of its own. A space that is a piece of its own is no word: it belongs to the word before it, or to
    the first.

    Where spaces do not separate words, each piece is a word. With `by_character`, each character is one there: those of
    one piece have the same places.
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
        for part in (_whole_characters(tokenizer, ids, group) if without else [group])
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


def _whole_characters(tokenizer: Tokenizer, ids: Sequence[int], group: Sequence[int]) -> list[list[int]]:
    """The places of a group piece by piece; pieces that are bytes of one character stay together."""
    parts: list[list[int]] = [[]]
    for place in group:
        parts[-1].append(place)
        if "\ufffd" not in tokenizer.decode([ids[i] for i in parts[-1]]):
            parts.append([])
    return parts if parts[-1] else parts[:-1]


def merge_to_words(tokenizer: Tokenizer, ids: Sequence[int], weights: Sequence[float]) -> tuple[list[str], list[float]]:
    """Pieces joined to words, each with the sum of its pieces' weights; see `words_of`."""
    words = words_of(tokenizer, ids)
    return [word.text for word in words], [sum(weights[i] for i in word.places) for word in words]


def find_word(words: Sequence[Word], wanted: str) -> int:
    """The first of the words that is the wanted one, whatever its case and the punctuation around it.

    Raises:
        UserError: there is no such word.
    """
    bare = Word(wanted, ()).bare
    for number, word in enumerate(words):
        if word.text == wanted or (bare and word.bare == bare):
            return number
    there = ", ".join(word.text for word in words[:_LISTED]) + (", …" if len(words) > _LISTED else "")
    raise UserError(f"{wanted!r} is not among the words of the input", "--word", f"name one of {there}")
