"""Translation of lines, with warnings about out-of-domain lines, too long lines and outputs at the length limit."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

from s2s.data.pairs import with_prefix
from s2s.data.sentences import Split, unsplit
from s2s.decoding.generate import MAX_SOURCE_LENGTH, TextTranslator, Translation, length_limited, one_line
from s2s.errors import Refuse, UserError, counted
from s2s.recipe.wording import cut
from s2s.tasks.base import PrintFn
from s2s.tasks.coverage import VocabularyCoverage, count_sentences, describe_unknown

# Maximum number of lines whose unknown words are listed.
_SHOWN_LINES = 20


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
        tell: PrintFn,
        at_once: bool,
        remedy: str = "split {} into sentences",
        sentences: int | None = None,
    ) -> None:
        self._longest, self._tell, self._at_once, self._remedy = longest, tell, at_once, remedy
        self._sentences = sentences
        self._lines, self._count, self._first = 0, 0, ""

    def add(self, tokens: int, sentences: int = 0) -> None:
        """Count the next line; an empty line has 0 tokens."""
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
        if self._at_once or not self._count:
            return
        if self._count == 1:
            self._tell(f"{self._first}; {self._remedy.format('it')}")
        else:
            many = f"{self._count:,} of {self._lines:,} lines are longer than any training text"
            self._tell(f"{many} (first {self._first}); {self._remedy.format('them')}")


class UnknownWords:
    """Reporter of lines with words that the training text or the vocabulary lacks.

    Args:
        at_once: Report each line without its number, for an interactive session; otherwise at most 20 lines, and
            `report` prints the count.
        lacking: What does not have the words.
        output: What may suffer from it.

    Example:
        >>> unknown_words = UnknownWords(print, at_once=False)
        >>> unknown_words.add([])
        >>> unknown_words.add(["helicopter"])
        line 2: not in the training text: 'helicopter'; the translation may be nonsense
    """

    def __init__(
        self, tell: PrintFn, at_once: bool, lacking: str = "training text", output: str = "translation"
    ) -> None:
        self._tell, self._at_once, self._lacking, self._output = tell, at_once, lacking, output
        self._lines, self._count = 0, 0

    def add(self, unknown: Sequence[str]) -> None:
        """Count the next line, and report its unknown words, if any."""
        self._lines += 1
        if not unknown:
            return
        self._count += 1
        if self._at_once or self._count <= _SHOWN_LINES:
            place = "" if self._at_once else f"line {self._lines}: "
            self._tell(place + describe_unknown(unknown, self._lacking, self._output))

    def report(self) -> None:
        """Print the number of lines if not all were reported."""
        if self._count > _SHOWN_LINES and not self._at_once:
            lines = counted(self._lines, "line")
            self._tell(f"{self._count:,} of {lines} have words that are not in the {self._lacking}")


def translate_lines(
    translator: TextTranslator,
    seen: VocabularyCoverage | None,
    chunks: Iterable[list[str]],
    at_once: bool,
    tell: PrintFn,
    prefix: str,
    refuse: Refuse,
    forced: Iterator[str] | None = None,
    split: Split = unsplit,
) -> Iterator[str]:
    """Translate lines, with warnings about unusual lines.

    Args:
        seen: Vocabulary coverage of the training text; None if unknown.
        chunks: Lines that are translated together.
        at_once: Print each warning immediately, for an interactive session; otherwise with line numbers, at most 20.
        refuse: Receives the error of each line that is too long, whose translation is empty.
        forced: Text with which the translation of each line begins; None for none.
        split: Splits lines into sentences, which are translated one by one; then there are no n-best lists and no
            forced prefixes.

    Yields:
        Translated lines in order; with n-best output, `line number TAB score TAB text`.

    Raises:
        UserError: A prefix is too long, or there are fewer or more forced prefixes than lines.
    """
    number, flags, unknown_words = 0, list[bool](), UnknownWords(tell, at_once)
    longest = MAX_SOURCE_LENGTH if translator.max_source_length is None else translator.max_source_length
    if prefix and (tokens := len(translator.source.encode(prefix))) >= longest:
        what = f"has {tokens:,} tokens; a line with its prefix can have {longest:,}"
        raise UserError(what, f"--prefix {cut(prefix)}", "shorten it")
    too_long = TooLong(seen.longest if seen else None, tell, at_once, sentences=seen.sentences if seen else None)
    for chunk in chunks:
        parts, before = [split(line) for line in chunk], number
        line_of = [row for row, part in enumerate(parts) for _ in part.sentences]
        # An empty line stays empty, with any prefix.
        sentences = [with_prefix(prefix, sentence) for part in parts for sentence in part.sentences]
        lengths = map(len, translator.source.encode_batch(sentences))
        begins = _take(forced, before, len(sentences))

        def refuse_line(row: int, error: UserError, before: int = before, line_of: list[int] = line_of) -> None:
            refuse(before + line_of[row], error)

        found = translator.translate_chunk(sentences, refuse=refuse_line, prefixes=begins, before=before)
        translated = zip(sentences, lengths, found, strict=True)
        for line, part in zip(chunk, parts, strict=True):
            number += 1
            own = list(itertools.islice(translated, len(part.sentences)))
            written = [(sentence, tokens) for sentence, tokens, translation in own if translation.candidates]
            tokens, sentence_count = (max(column, default=0) for column in _sizes(written))
            too_long.add(tokens, sentence_count)
            if at_once and (limited := length_limited([each for *_, each in own], translator.length_settings)):
                tell(str(limited))
            flags.append(any(each.at_length_limit for *_, each in own))
            unknown = seen.unknown(with_prefix(prefix, line), translator.source) if seen and written else ()
            unknown_words.add(unknown)
            if translator.beam.nbest == 1:
                yield part.join([one_line(each.text) for *_, each in own])
            else:
                yield from _nbest_list(number, own[0][-1])
    _check_over(forced, number)
    unknown_words.report()
    too_long.report()
    if not at_once and (limited := length_limited(flags, translator.length_settings)):
        tell(str(limited))


def _nbest_list(number: int, translation: Translation) -> Iterator[str]:
    for each in translation.candidates:
        yield f"{number}\t{each.score:.4f}\t{one_line(each.text)}"
    if not translation.candidates:
        yield f"{number}\t\t"


def _sizes(sentences: list[tuple[str, int]]) -> tuple[list[int], list[int]]:
    """Return the tokens and the number of sentences of each text."""
    return [tokens for _, tokens in sentences], [count_sentences(text) for text, _ in sentences]


def _take(forced: Iterator[str] | None, before: int, count: int) -> list[str] | None:
    found = None if forced is None else list(itertools.islice(forced, count))
    if found is not None and len(found) < count:
        raise _unequal(f"{counted(before + len(found), 'line')}, but the input has more")
    return found


def _check_over(forced: Iterator[str] | None, count: int) -> None:
    if forced is not None and next(forced, None) is not None:
        raise _unequal(f"more lines than the input, which has {count:,}")


def _unequal(what: str) -> UserError:
    return UserError(f"has {what}", "--forced-prefix", "give one line for each input line; empty lines force nothing")
