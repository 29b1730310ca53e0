"""Lines in, translated lines out, with a word about those that are far from what the model has learned from.

A word or piece that never occurred in training has a vector that nothing taught, or is spelt in pieces that never stood
together: what is written for it may be nonsense. How much is new in a text of the same kind is known from the
validation text; only a text with more than that is far.
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
# less than this is never far, however alike the validation text is
_LEAST = 0.05
_QUANTILE = 0.99
_SHOWN_WORDS = 5
# validation texts that tell how much is new in any text
_COMPARED = 2000


class _CoverageFile(BaseModel):
    """What `seen.json` holds; the pieces are a bit each, in hexadecimal."""

    pieces: str
    words: list[str]
    longest: int
    sentences: int
    new_pieces: FiniteFloat
    new_words: FiniteFloat


@dataclass(frozen=True)
class VocabularyCoverage:
    """What a training text held.

    Attributes:
        pieces: the numbers of all pieces in it.
        words: its words, lower-cased, without what is neither letter nor digit at their ends.
        new_pieces: share of pieces that are new in all but the strangest hundredth of the validation texts.
        new_words: the same of words; 1 where each text is a word of its own, so that words say nothing.
        longest: Tokens of the longest text that was trained on.
        sentences: Most sentences of a text that was trained on.
    """

    pieces: frozenset[int]
    words: frozenset[str]
    longest: int
    new_pieces: float = 0.0
    new_words: float = 0.0
    sentences: int = 1

    def describe_out_of_domain(self, text: str, tokenizer: Tokenizer) -> str | None:
        """What is new in a text, not empty, that is far from what was seen; None for one that is not."""
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
        """Writes `seen.json` into a tokenizer's folder; validation texts are of the same kind, and not learned from."""
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
        """Reads what `save` wrote; None where there is none, as with published weights.

        Raises:
            UserError: the file is damaged.
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
        """Shares of a text's words and pieces that are new."""
        words, tokens = _words(text, tokenizer), tokenizer.encode(text)
        new_words = sum(word not in self.words for word in words)
        new_pieces = sum(piece not in self.pieces for piece in tokens)
        return new_words / max(1, len(words)), new_pieces / max(1, len(tokens))


def measure_coverage(
    texts: Iterable[str], tokens: Int[np.ndarray, " different"], longest: int, tokenizer: Tokenizer
) -> VocabularyCoverage:
    """What a training text held, by all its texts, the numbers of the pieces in them, and the longest one's tokens."""
    words, sentences = set[str](), 1
    for text in texts:
        words.update(_words(text, tokenizer))
        sentences = max(sentences, count_sentences(text))
    return VocabularyCoverage(frozenset(tokens.tolist()), frozenset(words), longest, sentences=sentences)


def count_sentences(text: str) -> int:
    """Count the sentences of a text by their final marks: `.`, `!` and `?` before white space, or their wide forms."""
    return len(_SENTENCE_END.findall(text))


class TooLong:
    """Reports lines that have more tokens, or more sentences, than any text that was trained on.

    Args:
        longest: Tokens of the longest text that was trained on; None if unknown.
        tell: Prints a warning.
        at_once: Report each line as it comes, for an interactive session; otherwise the count, by `report`.
        remedy: With `{}` for the lines.
        sentences: Most sentences of a text that was trained on; None if unknown.
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
        """Count the next line, by its numbers of tokens and of sentences; 0 tokens for an empty one."""
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
        """Report the count and the first line; nothing where no line was too long."""
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
    """Translated lines, each after the prefix, in order, as soon as they are ready.

    A line that is too long is given to `refuse`, and its translation is empty; when None, it is an error.

    With more than one best, they come as `line number TAB score TAB text`. Lines that are far from what was seen in
    training, lines longer than any of it, and outputs that the length limit ended are told one by one or, where not at
    once, by their number.
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
        # an empty line stays one: it has nothing to say, whatever is to be done
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
    """Refuses a row of a chunk that so many rows stand before."""
    refuse(before + row, error)


def _format_translation(translation: Translation, number: int, nbest: int) -> Iterator[str]:
    if nbest == 1:
        yield one_line(translation.text)
        return
    for candidate in translation.candidates:
        yield f"{number}\t{candidate.score:.4f}\t{one_line(candidate.text)}"
    if not translation.candidates:
        yield f"{number}\t\t"
