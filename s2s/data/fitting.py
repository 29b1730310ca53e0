"""What the recipes of `s2s new` have in common: text is looked at, and what it is decides on pieces and sizes."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import datasets

from s2s.data.normalization import altered
from s2s.data.tokenizers import Tokenizer, train
from s2s.errors import UserError
from s2s.recipe.schema import PieceSettings

_SPECIALS = 4
# as many different words as a table of vectors holds without a thought
_CLOSED = 500
_LETTERS = 500
_SIZES = (16_000, 8_000, 4_000, 2_000, 1_000, 500, 400, 350, 300)
# pieces learned from more text differ little, and what part of a text fills, all of it does
_TRIED = 20_000
_SEEN = 50
_FEWEST = 20


@dataclass(frozen=True)
class Words:
    """What the words of a corpus are.

    Attributes:
        texts: how many there are to learn from.
        words: in all of them, between spaces.
        types: different ones.
        once: those of them that occur once.
        unseen: different words of validation and test that do not occur in training.
        characters: different ones.
        longest: characters of the longest text.
    """

    texts: int
    words: int
    types: int
    once: int
    unseen: int
    characters: int
    longest: int

    @property
    def closed(self) -> bool:
        """Whether no new word is to be expected: few occur only once, as half of natural text's do."""
        return self.types <= _CLOSED and not self.unseen and self.once <= 0.2 * self.types

    @property
    def spelt(self) -> bool:
        """Whether texts are single words, of letters that are few."""
        return self.words <= 1.5 * self.texts and self.characters <= _LETTERS


@dataclass(frozen=True)
class Pieces:
    """How text is to be cut.

    Attributes:
        tokenizer: learned from a part of the training texts.
        size: for all of them.
        why: in words.
    """

    tokenizer: Tokenizer
    size: int
    why: str

    @property
    def kind(self) -> str:
        """As in the recipe."""
        return self.tokenizer.kind


def look(learned: Iterable[str], held_out: Iterable[str]) -> Words:
    """Counts the words of a corpus.

    Args:
        learned: the training texts.
        held_out: the texts of validation and test.
    """
    counts: Counter[str] = Counter()
    characters: set[str] = set()
    texts = longest = 0
    for text in learned:
        counts.update(text.split())
        characters.update(text)
        texts, longest = texts + 1, max(longest, len(text))
    unseen = {word for text in held_out for word in text.split()} - counts.keys()
    once = sum(count == 1 for count in counts.values())
    return Words(texts, counts.total(), len(counts), once, len(unseen), len(characters), longest)


def choose_normalization(targets: Iterable[str]) -> tuple[str, str]:
    """`nfkc` where it changes nothing in what is to be written, and why."""
    if changed := altered(targets, "nfkc"):
        return "identity", f"nfkc would change {changed}"
    return "nfkc", "it changes no target"


def choose_pieces(texts: Sequence[str], sides: Sequence[Words], normalization: str, lowercase: bool = False) -> Pieces:
    """Words where no new ones are to be expected, letters where texts are words, else as many pieces as the text fills.

    Args:
        texts: the training texts, all sides.
        sides: what their words are, by side.
        normalization: as in the recipe.
        lowercase: as in the recipe.
    """
    types, characters, words = (sum(getattr(side, key) for side in sides) for key in ("types", "characters", "words"))
    some = texts[:: max(1, len(texts) // _TRIED)]
    tried: list[tuple[str, int, str]] = []
    if all(side.closed for side in sides):
        tried = [("word", types + _SPECIALS, f"{types:,} different words, and no new one is to be expected")]
    elif not any(side.spelt for side in sides):
        # each piece should be seen often
        sizes = [size for size in _SIZES if size <= max(_SIZES[-1], words / _SEEN)]
        tried = [("unigram", size, f"{words:,} words, {types:,} different ones, can fill them") for size in sizes]
    for kind, size, why in tried:
        try:
            return Pieces(train(some, _settings(kind, size, normalization, lowercase), "shared"), size, why)
        except UserError:
            # more pieces than the text gives, or fewer than it has characters
            continue
    why = (
        "texts are single words: they are spelt"
        if any(side.spelt for side in sides)
        else f"{words:,} words are too few to learn larger pieces from"
    )
    letters = characters + _SPECIALS + 1
    return Pieces(train(some, _settings("char", letters, normalization, lowercase), "shared"), letters, why)


def _settings(kind: str, size: int, normalization: str, lowercase: bool) -> PieceSettings:
    return PieceSettings.model_validate(
        {"kind": kind, "size": size, "normalization": normalization, "lowercase": lowercase}
    )


def spread(dataset: datasets.Dataset, most: int) -> datasets.Dataset:
    """At most so many rows, evenly taken."""
    return dataset.select(range(0, len(dataset), max(1, -(-len(dataset) // most))))


def held_out(different: int, given: bool, where: Path, what: str) -> int:
    """How many examples are to be held out for one split.

    Args:
        different: examples that are not the same.
        given: whether no split is to be held out.
        where: the file of the examples.
        what: they are called.

    Raises:
        UserError: there are too few to learn from.
    """
    if different < _FEWEST:
        raise UserError(
            f"{different} different {what} are too few to learn from", where=str(where), remedy="collect 1,000 or more"
        )
    return 0 if given else max(1, min(1000, different // 20))


def split_line(name: str, given: int | str | tuple[str, str]) -> str:
    """The line of validation or test: a file, two files, or how many examples are held out."""
    own = " # held out of the training data and never trained on; or a file of your own, as above"
    return f"  {name}: {f'{given}{own}' if isinstance(given, int) else quoted(given)}"


def power_of_two(value: float, least: int, most: int) -> int:
    """The largest power of two that is not above a value, within limits that are powers of two."""
    return max(least, min(most, 1 << max(0, int(value).bit_length() - 1)))


def rounded(updates: float, least: int, most: int) -> int:
    """A number of updates, in hundreds, within limits."""
    return max(least, min(most, round(updates / 100) * 100))


def recipe_name(stem: str, otherwise: str) -> str:
    """A run's name out of a file's; what a name may not hold becomes `-`."""
    return quoted(re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._") or otherwise)


def quoted(value: str | Path | Sequence[str | Path]) -> str:
    """A text, or a list of texts, as YAML."""
    if not isinstance(value, str | Path):
        return f"[{', '.join(map(quoted, value))}]"
    # YAML reads JSON's quotes, and a plain word needs none unless it means something else
    text = str(value)
    plain = re.fullmatch(r"[A-Za-z/][A-Za-z0-9._/-]*", text) and text.lower() not in ("null", "true", "false")
    return text if plain else json.dumps(text, ensure_ascii=False)
