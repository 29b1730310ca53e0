"""Vocabulary and lengths of a training text, to warn about out-of-domain and too long inputs.

A word or token that never occurs in the training text has an untrained embedding, or is spelled with unusual tokens, so
that its translation may be nonsense. The validation text shows how many new words and tokens are usual in a text of the
same kind; only a text with more is out of domain.
"""

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int
from pydantic import BaseModel, FiniteFloat

from s2s.data.scripts import is_mark
from s2s.data.tokenizers import UNK, Tokenizer
from s2s.errors import UserError
from s2s.files import LARGE_BYTES, write_atomically
from s2s.json_files import read_json

FILE = "seen.json"
_SENTENCE_END = re.compile(r"[.!?]+(?=\s|$)|[。！？]+")
# A smaller share is never out of domain, even if validation and training text are very similar.
_LEAST = 0.05
_QUANTILE = 0.99
_SHOWN_WORDS = 5
# What has more characters is a text without spaces, or no word.
_LONGEST_WORD = 40
# Number of validation texts that determine the usual share of new words and tokens.
_COMPARED = 2000


class _CoverageFile(BaseModel):
    """Format of `seen.json`; `pieces` has one bit for each token id, in hexadecimal."""

    pieces: str
    words: list[str]
    longest: int
    sentences: int
    new_pieces: FiniteFloat
    new_words: FiniteFloat


@dataclass(frozen=True)
class VocabularyCoverage:
    """Vocabulary and lengths of a training text.

    Attributes:
        pieces: Ids of all tokens that occur.
        words: Words in lower case, without punctuation at their ends.
        longest: Number of tokens of the longest training text.
        new_pieces: Share of new tokens that 99 % of the validation texts do not exceed.
        new_words: The same share for words; 1 if every text is a single word, so that words give no information.
        sentences: Largest number of sentences in a training text.
    """

    pieces: frozenset[int]
    words: frozenset[str]
    longest: int
    new_pieces: float = 0.0
    new_words: float = 0.0
    sentences: int = 1

    def unknown(self, text: str, tokenizer: Tokenizer) -> tuple[str, ...]:
        """Return the words of an out-of-domain text that never occur in the training text.

        Returns:
            The words, each once, in their own case; if only tokens are unusual, the words or characters that have them;
            none if the text is in domain.
        """
        words, tokens = self._shares(text, tokenizer)
        if words > max(_LEAST, self.new_words):
            return tuple(dict.fromkeys(w for w in _words(text, tokenizer) if w.lower() not in self.words))
        if tokens > max(_LEAST, self.new_pieces):
            return tuple(dict.fromkeys(self._with_new_tokens(text, tokenizer)))
        return ()

    def _with_new_tokens(self, text: str, tokenizer: Tokenizer) -> list[str]:
        """Return the words with tokens that never occur; without spaces between words, the characters of these."""
        words = [word for word in text.split() if not self.pieces.issuperset(tokenizer.encode(word))]
        if words and max(map(len, words)) <= _LONGEST_WORD:
            return words
        # Characters that the tokenizer does not know at all, then runs of tokens that it knows.
        found = list(outside_vocabulary(text, tokenizer))
        seen = self.pieces | {UNK}
        runs = itertools.groupby(tokenizer.encode(text), key=lambda token: token in seen)
        new = [list(run) for known, run in runs if not known]
        return found + [tokenizer.decode(run).strip() or "".join(tokenizer.tokens(run)) for run in new]

    def save(self, folder: Path, validation: Sequence[str], tokenizer: Tokenizer) -> None:
        """Write `seen.json` into a folder of tokenizers.

        Args:
            validation: Texts of the same kind as the training text, but not part of it.
        """
        shares = [self._shares(text, tokenizer) for text in validation[:_COMPARED]] or [(0.0, 0.0)]
        usual = np.quantile(np.array(shares), _QUANTILE, axis=0, method="higher").tolist()
        flags = np.isin(np.arange(tokenizer.size), list(self.pieces))
        found = {
            "new_words": usual[0],
            "new_pieces": usual[1],
            "longest": self.longest,
            "sentences": self.sentences,
            "pieces": np.packbits(flags).tobytes().hex(),
            "words": sorted(self.words),
        }
        write_atomically(folder / FILE, json.dumps(found, ensure_ascii=False) + "\n")

    @staticmethod
    def load(folder: Path) -> "VocabularyCoverage | None":
        """Read the file that `save` wrote; None if there is no file, as with published weights."""
        path, remedy = folder / FILE, "copy it again, or delete it: only warnings need it"
        if not path.exists():
            return None
        found = read_json(path, _CoverageFile, remedy, LARGE_BYTES)
        try:
            flags = np.unpackbits(np.frombuffer(bytes.fromhex(found.pieces), np.uint8))
        except ValueError as error:
            raise UserError(f"pieces: {error}", where=str(path), remedy=remedy) from None
        tokens = frozenset(np.flatnonzero(flags).tolist())
        return VocabularyCoverage(
            tokens, frozenset(found.words), found.longest, found.new_pieces, found.new_words, found.sentences
        )

    def _shares(self, text: str, tokenizer: Tokenizer) -> tuple[float, float]:
        """Return the shares of new words and new tokens."""
        words, tokens = [word.lower() for word in _words(text, tokenizer)], tokenizer.encode(text)
        new_words = sum(word not in self.words for word in words)
        new_tokens = sum(token not in self.pieces for token in tokens)
        return new_words / max(1, len(words)), new_tokens / max(1, len(tokens))


def measure_coverage(
    texts: Iterable[str], tokens: Int[np.ndarray, " different"], longest: int, tokenizer: Tokenizer
) -> VocabularyCoverage:
    """Return the vocabulary coverage of a training text, without the shares that `save` computes.

    Args:
        tokens: Ids of the tokens that occur.
        longest: Number of tokens of the longest text.
    """
    words, sentences = set[str](), 1
    for text in texts:
        words.update(word.lower() for word in _words(text, tokenizer))
        sentences = max(sentences, count_sentences(text))
    return VocabularyCoverage(frozenset(tokens.tolist()), frozenset(words), longest, sentences=sentences)


def outside_vocabulary(text: str, tokenizer: Tokenizer) -> tuple[str, ...]:
    """Return the characters that a tokenizer does not know, each once; of a tokenizer of words, the words."""
    if UNK not in tokenizer.encode(text):
        return ()
    parts = text.split() if tokenizer.kind == "word" else text
    return tuple(dict.fromkeys(part for part in parts if UNK in tokenizer.encode(part)))


def describe_unknown(unknown: Sequence[str], lacking: str = "training text", output: str = "translation") -> str:
    """Return a warning about words that never occur in the training text.

    Args:
        unknown: Words or characters.
        lacking: What does not have them.
        output: What may suffer from it.

    Example:
        >>> describe_unknown(["helicopter", "lands"])
        "not in the training text: 'helicopter', 'lands'; the translation may be nonsense"
        >>> describe_unknown(["☃"], "vocabulary", "continuation")
        "not in the vocabulary: '☃'; the continuation may be nonsense"
    """
    more = f" and {len(unknown) - _SHOWN_WORDS:,} more" if len(unknown) > _SHOWN_WORDS else ""
    named = ", ".join(map(repr, unknown[:_SHOWN_WORDS]))
    return f"not in the {lacking}: {named}{more}; the {output} may be nonsense"


def count_sentences(text: str) -> int:
    """Count the sentences of a text by their final marks: `.!?` before white space or the end, and full-width marks.

    Example:
        >>> count_sentences("It rains. Does it? Version 2.0")
        2
    """
    return len(_SENTENCE_END.findall(text))


def _words(text: str, tokenizer: Tokenizer) -> list[str]:
    words = []
    for word in tokenizer.normalize(text).split():
        if word.isalnum():
            words.append(word)
        elif letters := [place for place, letter in enumerate(word) if letter.isalnum()]:
            # The last letter may have marks, such as the vowel signs of Hindi.
            after = word[letters[-1] + 1 :]
            marks = sum(1 for _ in itertools.takewhile(is_mark, after))
            words.append(word[letters[0] : letters[-1] + 1 + marks])
    return words
