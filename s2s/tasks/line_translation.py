"""Translation of lines, with warnings about out-of-domain and too long inputs.

A word or token that never occurs in the training text has an untrained embedding, or is spelled with unusual tokens, so
that its translation may be nonsense. The validation text shows how many new words and tokens are usual in a text of the
same kind; only a text with more is out of domain.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int
from pydantic import BaseModel, FiniteFloat

from s2s.data.pairs import with_prefix
from s2s.data.tokenizers import Tokenizer
from s2s.decoding.generate import MAX_SOURCE_LENGTH, TextTranslator, Translation, length_limited, one_line
from s2s.errors import Refuse, UserError
from s2s.files import LARGE_BYTES, write_atomically
from s2s.json_files import read_json
from s2s.recipe.wording import cut

ReportFn = Callable[[str], Any]
FILE = "seen.json"
_SENTENCE_END = re.compile(r"[.!?]+(?=\s|$)|[。！？]+")
# A smaller share is never out of domain, even if validation and training text are very similar.
_LEAST = 0.05
_QUANTILE = 0.99
_SHOWN_WORDS = 5
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

    def describe_out_of_domain(self, text: str, tokenizer: Tokenizer) -> str | None:
        """Describe the new words or tokens of an out-of-domain text.

        Args:
            text: A text that is not empty.

        Returns:
            The description; None if the text is in domain.
        """
        words, tokens = self._shares(text, tokenizer)
        if words > max(_LEAST, self.new_words):
            there = _words(text, tokenizer)
            new = [word for word in there if word not in self.words]
            named = [repr(word) for word in dict.fromkeys(new)]
            more = ", …" if len(named) > _SHOWN_WORDS else ""
            return f"{', '.join(named[:_SHOWN_WORDS])}{more} ({len(new)} of {len(there)} words)"
        if tokens > max(_LEAST, self.new_pieces):
            return f"{tokens:.0%} of its pieces"
        return None

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
        """Read the file that `save` wrote.

        Returns:
            The coverage; None if there is no file, as with published weights.

        Raises:
            UserError: The file is damaged.
        """
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
        words, tokens = _words(text, tokenizer), tokenizer.encode(text)
        new_words = sum(word not in self.words for word in words)
        new_pieces = sum(piece not in self.pieces for piece in tokens)
        return new_words / max(1, len(words)), new_pieces / max(1, len(tokens))


def measure_coverage(
    texts: Iterable[str], tokens: Int[np.ndarray, " different"], longest: int, tokenizer: Tokenizer
) -> VocabularyCoverage:
    """Return the vocabulary coverage of a training text.

    Args:
        tokens: Ids of the tokens that occur.
        longest: Number of tokens of the longest text.

    Returns:
        Coverage without the shares of validation texts, which `save` computes.
    """
    words, sentences = set[str](), 1
    for text in texts:
        words.update(_words(text, tokenizer))
        sentences = max(sentences, count_sentences(text))
    return VocabularyCoverage(frozenset(tokens.tolist()), frozenset(words), longest, sentences=sentences)


def count_sentences(text: str) -> int:
    """Count the sentences of a text by their final marks.

    Final marks are `.`, `!` and `?` before white space or the end, and their full-width forms.

    Example:
        >>> count_sentences("It rains. Does it? Version 2.0")
        2
    """
    return len(_SENTENCE_END.findall(text))


class TooLong:
    """Reporter of lines with more tokens or sentences than any training text.

    Args:
        longest: Number of tokens of the longest training text; None if unknown.
        at_once: Report each line immediately, for an interactive session; otherwise `report` prints the count.
        remedy: Remedy, with `{}` for the lines.
        sentences: Largest number of sentences in a training text; None if unknown.

    Example:
        >>> long_lines = TooLong(5, print, at_once=True)
        >>> long_lines.add(7)
        7 tokens, the longest training text has 5; split it into sentences
    """

    def __init__(
        self,
        longest: int | None,
        tell: ReportFn,
        at_once: bool,
        remedy: str = "split {} into sentences",
        sentences: int | None = None,
    ) -> None:
        self._longest, self._tell, self._at_once, self._remedy = longest, tell, at_once, remedy
        self._sentences = sentences
        self._lines, self._count, self._first = 0, 0, ""

    def add(self, tokens: int, sentences: int = 0) -> None:
        """Count the next line.

        Args:
            tokens: Number of tokens; 0 for an empty line.
        """
        self._lines += 1
        if not tokens:
            return
        if self._longest is not None and tokens > self._longest:
            said = f"{tokens:,} tokens, the longest training text has {self._longest:,}"
        elif self._sentences is not None and sentences > self._sentences:
            said = f"{sentences:,} sentences, training texts have at most {self._sentences:,}"
        else:
            return
        self._count += 1
        self._first = self._first or f"line {self._lines:,}: {said}"
        if self._at_once:
            self._tell(f"{said}; {self._remedy.format('it')}")

    def report(self) -> None:
        """Print the number of long lines and the first of them, if any."""
        if not self._count or self._at_once:
            return
        if self._count == 1:
            self._tell(f"{self._first}; {self._remedy.format('it')}")
        else:
            many = f"{self._count:,} of {self._lines:,} lines are longer than any training text"
            self._tell(f"{many} (first {self._first}); {self._remedy.format('them')}")


def _words(text: str, tokenizer: Tokenizer) -> list[str]:
    words = []
    for token in tokenizer.normalize(text).lower().split():
        if token.isalnum():
            words.append(token)
        elif letters := [place for place, letter in enumerate(token) if letter.isalnum()]:
            words.append(token[letters[0] : letters[-1] + 1])
    return words


def translate_lines(
    translator: TextTranslator,
    seen: VocabularyCoverage | None,
    chunks: Iterable[list[str]],
    at_once: bool,
    tell: ReportFn,
    prefix: str = "",
    refuse: Refuse | None = None,
) -> Iterator[str]:
    """Translate lines, with warnings about unusual lines.

    Warnings concern out-of-domain lines, lines longer than any training text, and outputs that the length limit ended.

    Args:
        translator: Translator of a trained model.
        seen: Vocabulary coverage of the training text; None if unknown.
        chunks: Lines that are translated together.
        at_once: Print each warning immediately, for an interactive session; otherwise counts at the end.
        refuse: Receives the error of each line that is too long, whose translation is empty; None raises the error.

    Yields:
        Translated lines in order; with n-best output, `line number TAB score TAB text`.

    Raises:
        UserError: The prefix is too long, or a line is too long and `refuse` is None.
    """
    number, strangers, first = 0, 0, ""
    longest = MAX_SOURCE_LENGTH if translator.max_source_length is None else translator.max_source_length
    if prefix and (tokens := len(translator.source.encode(prefix))) >= longest:
        raise UserError(
            f"has {tokens:,} pieces, and {longest:,} are read of a whole line", f"--prefix {cut(prefix)}", "shorten it"
        )
    flags, too_long = (
        list[bool](),
        TooLong(seen.longest if seen else None, tell, at_once, sentences=seen.sentences if seen else None),
    )
    for chunk in chunks:
        # An empty line stays empty, with any prefix.
        lines = [with_prefix(prefix, text) for text in chunk]
        later = partial(refuse_later, refuse, number) if refuse else None
        lengths = map(len, translator.source.encode_batch(lines))
        for line, length, translation in zip(
            lines, lengths, translator.translate_chunk(lines, refuse=later), strict=True
        ):
            number += 1
            too_long.add(length if translation.candidates else 0, count_sentences(line))
            if at_once and (limited := length_limited([translation], translator.length_settings)):
                tell(str(limited))
            flags.append(translation.at_length_limit)
            new = seen.describe_out_of_domain(line, translator.source) if seen and translation.candidates else None
            if new is not None:
                strangers, first = strangers + 1, first or f"line {number}: {new}"
                if at_once:
                    tell(f"far from the training text, in which these never occur: {new}")
            yield from _format_translation(translation, number, translator.beam.nbest)
    if strangers and not at_once:
        tell(
            f"{strangers:,} of {number:,} lines are far from the training text, which lacks many of their words "
            f"or pieces (first {first}); their translations may be nonsense"
        )
    too_long.report()
    if not at_once and (limited := length_limited(flags, translator.length_settings)):
        tell(str(limited))


def refuse_later(refuse: Refuse, before: int, row: int, error: UserError) -> None:
    """Call `refuse` with the number of a line among all chunks.

    Args:
        refuse: Receives the number of the line and the error.
        before: Number of lines before the chunk.
    """
    refuse(before + row, error)


def _format_translation(translation: Translation, number: int, nbest: int) -> Iterator[str]:
    if nbest == 1:
        yield one_line(translation.text)
        return
    for candidate in translation.candidates:
        yield f"{number}\t{candidate.score:.4f}\t{one_line(candidate.text)}"
    if not translation.candidates:
        yield f"{number}\t\t"
