"""Lines in, translated lines out, with a word about those that are far from what the model has learned from."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from s2s.data.tokenizers import Tokenizer
from s2s.decoding.translator import Translation
from s2s.models.contract import Seq2Seq
from s2s.tasks.contract import TOKENIZER, Loaded
from s2s.tasks.translation.evaluation import translator_of
from s2s.tasks.translation.recipe import Recipe
from s2s.tasks.translation.seen import Seen

Tell = Callable[[str], Any]


def translated(
    run: Loaded[Recipe, Seq2Seq], chunks: Iterable[list[str]], nbest: int, at_once: bool, tell: Tell
) -> Iterator[str]:
    """Translated lines, in order, as soon as they are ready.

    Args:
        run: the translator.
        chunks: lines that are there together.
        nbest: translations of each line; more than one come as `line number TAB score TAB text`.
        at_once: whether lines that are far from the training text are told one by one; their number, otherwise.
        tell: prints a line beside the translations.
    """
    translator, number = translator_of(run, nbest), 0
    strangers = _Strangers(Seen.load(run.checkpoint / TOKENIZER), run.tokenizers[0], tell if at_once else None)
    for chunk in chunks:
        for text, translation in zip(chunk, translator.translate_chunk(chunk), strict=True):
            number += 1
            strangers.look(text, number)
            yield from _shown(translation, number, nbest)
    if strangers.count and not at_once:
        tell(
            f"{strangers.count:,} of {number:,} lines are far from the training text, which lacks many of their words "
            f"or pieces (first {strangers.first}); their translations may be nonsense"
        )


class _Strangers:
    """Lines that are far from what a model has seen."""

    def __init__(self, seen: Seen | None, tokenizer: Tokenizer, tell: Tell | None) -> None:
        self.seen = seen
        self.tokenizer = tokenizer
        self.tell = tell
        self.count = 0
        self.first = ""

    def look(self, text: str, number: int) -> None:
        if self.seen is None or not text.strip() or (what := self.seen.far(text, self.tokenizer)) is None:
            return
        self.count += 1
        self.first = self.first or f"line {number}: {what}"
        if self.tell:
            self.tell(f"far from the training text, in which these never occur: {what}")


def _shown(translation: Translation, number: int, nbest: int) -> Iterator[str]:
    if nbest == 1:
        yield _one_line(translation.text)
        return
    for candidate in translation.candidates:
        yield f"{number}\t{candidate.score:.4f}\t{_one_line(candidate.text)}"
    if not translation.candidates:
        yield f"{number}\t\t"


def _one_line(text: str) -> str:
    # bytes can spell any character; a line in is a line out
    return re.sub(r"[\r\n]+", " ", text)
