"""Text in, text out: the one pipeline for files, pipes and evaluation; and whatever else in, text out."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int

from s2s.data.batches import collate_sources
from s2s.data.dataset import to_device
from s2s.data.tokenizers import Tokenizer
from s2s.decoding.beam_search import Beam, Hypothesis, search
from s2s.errors import Refuse, UserError
from s2s.models.base import Seq2Seq
from s2s.nn.layers import Inputs, PaddingMask
from s2s.nn.precision import fp32_layers
from s2s.recipe.schema import DecodingSettings, SearchSettings

# Batches that are searched beside each other, each by a thread of its own: what Python does in between, about a quarter
# of a search, is done by one of them at a time.
_PARALLEL_SEARCHES = 4
MAX_SOURCE_LENGTH = 4_096
"""Most pieces of a user's line where a model's positions have no end: time and memory grow with the square."""
# Sentences whose lengths are compared to make batches: enough for little padding, few enough to hold.
_CHUNK_OF_BATCHES = 50


@dataclass(frozen=True)
class Candidate:
    """One possible text; its score, log probability over the length penalty, is comparable within one source."""

    text: str
    score: float
    hypothesis: Hypothesis


@dataclass(frozen=True)
class Translation:
    """What was written for one source: candidates, best first; none for an empty line."""

    candidates: tuple[Candidate, ...]

    @property
    def text(self) -> str:
        """The best translation; empty for an empty line."""
        return self.candidates[0].text if self.candidates else ""

    @property
    def at_length_limit(self) -> bool:
        """Whether the length limit ended the best translation."""
        return bool(self.candidates) and self.candidates[0].hypothesis.cut


@dataclass(frozen=True)
class LengthLimited:
    """Outputs that the length limit ended.

    Attributes:
        count: How many.
        outputs: Of how many.
        settings: What limits the length, by section and key of the recipe.
    """

    count: int
    outputs: int
    settings: tuple[str, ...]

    def __str__(self) -> str:
        raised = " or ".join(self.settings)
        return f"{self.count:,} of {self.outputs:,} outputs ended at the length limit; for longer ones, raise {raised}"


def length_limited(written: Sequence["Translation | bool"], settings: tuple[str, ...]) -> LengthLimited | None:
    """Count outputs that the length limit ended.

    Args:
        written: Outputs, or for each whether the limit ended it.
        settings: What limits the length; none where each output is as long as its source.

    Returns:
        The count; None where there is nothing to report.
    """
    count = sum(each.at_length_limit if isinstance(each, Translation) else each for each in written)
    return LengthLimited(count, len(written), settings) if count and settings else None


class Generator:
    """Writes text for whatever a model's encoder reads.

    Args:
        model: trained; put into evaluation mode.
        target: joins what the model writes.
        settings: how to search.
        nbest: candidates of each source.
        before_step: Called before each step of the decoder, from the thread that searches. An exception that it raises
            ends the search.

    Raises:
        UserError: more candidates are asked for than the beam holds.
    """

    def __init__(
        self,
        model: Seq2Seq,
        target: Tokenizer,
        settings: SearchSettings,
        nbest: int = 1,
        before_step: Callable[[], None] | None = None,
    ) -> None:
        self.beam = beam_from_settings(settings, nbest)
        self.before_step = before_step
        self.model = model.eval()
        self.target = target
        self.device = next(model.parameters()).device

    def write(self, source: Inputs, valid: PaddingMask, limits: Int[np.ndarray, " batch"]) -> list[Translation]:
        """What is written for each source of a batch; see `hypotheses`."""
        return [_decode_hypotheses(found, self.target) for found in self.hypotheses(source, valid, limits)]

    def hypotheses(
        self, source: Inputs, valid: PaddingMask, limits: Int[np.ndarray, " batch"]
    ) -> list[list[Hypothesis]]:
        """The best ones of each source, of so many pieces at most and as far as the decoder knows positions."""
        if self.model.decoder.max_positions is not None and not self.model.decoder.is_one_to_one:
            # BOS is fed, too
            limits = np.minimum(limits, self.model.decoder.max_positions - 1)
        inputs = to_device(source, self.device), to_device(valid, self.device)
        # a vocabulary may have more than the tokenizer's: what stands for spans is for no reader
        return search(self.model, *inputs, limits, self.beam, self.target.size, self.before_step)


def beam_from_settings(settings: SearchSettings, nbest: int) -> Beam:
    """How to search, by a recipe's section.

    Raises:
        UserError: none is asked for, or more candidates than the beam holds.
    """
    if nbest < 1:
        raise UserError(f"{nbest} best translations asked for", remedy="ask for 1 or more")
    if nbest > settings.beam:
        raise UserError(
            f"{nbest} best translations asked for, but the beam holds {settings.beam}",
            remedy=f"set --beam {nbest}, or a smaller --nbest",
        )
    precision = torch.bfloat16 if settings.precision == "bf16" else torch.float32
    return Beam(settings.beam, nbest, settings.length_penalty, precision)


def _decode_hypotheses(found: list[Hypothesis], target: Tokenizer) -> Translation:
    return Translation(tuple(Candidate(target.decode(list(h.tokens)), h.score, h) for h in found))


def max_output_lengths(sources: Int[np.ndarray, " batch"], settings: DecodingSettings) -> Int[np.ndarray, " batch"]:
    """The most tokens of each output, by the number of tokens of its source; special tokens are not counted."""
    return np.ceil(sources * settings.max_ratio).astype(int) + settings.max_extra


class TextTranslator(Generator):
    """Translates lines of text with beam search.

    Args:
        model: A trained model; it is put into evaluation mode.
        source: Tokenizer of the input lines.
        target: Tokenizer of the translations.
        settings: The recipe's `decoding` section.
        nbest: Candidates per line.
        before_step: Called before each decoder step, in the searching thread. An exception that it raises ends the
            search.

    Raises:
        UserError: `nbest` exceeds the beam size.
    """

    def __init__(
        self,
        model: Seq2Seq,
        source: Tokenizer,
        target: Tokenizer,
        settings: DecodingSettings,
        nbest: int = 1,
        before_step: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(model, target, settings, nbest, before_step)
        self.source = source
        self.settings = settings

    def precision_note(self) -> str:
        """Return a line on layers that run in another precision than asked for; empty if there are none."""
        return fp32_layers(self.model, {self.beam.precision}, self.device)

    @property
    def max_source_length(self) -> int | None:
        """Most source tokens including EOS (learned positions); None for no limit."""
        return self.model.encoder.max_positions

    @property
    def length_settings(self) -> tuple[str, ...]:
        """Recipe settings that limit the output length; none where each output is as long as its source."""
        if self.model.decoder.is_one_to_one:
            return ()
        positions = () if self.model.decoder.max_positions is None else ("model.max_positions",)
        return "decoding.max_ratio", "decoding.max_extra", *positions

    def search(self, sources: list[list[int]]) -> list[list[Hypothesis]]:
        """The best hypotheses of sources as pieces, in one batch, within the lengths that the settings allow."""
        one_to_one = self.model.decoder.is_one_to_one
        lengths = np.array([len(tokens) for tokens in sources])
        limits = lengths if one_to_one else max_output_lengths(lengths, self.settings)
        return self.hypotheses(*collate_sources(sources), limits)

    def searches(self, batches: list[list[list[int]]]) -> Iterator[list[list[Hypothesis]]]:
        """What `search` gives for each batch, in their order.

        On a processor, as many are searched beside each other as there are threads: a search is a chain of small
        products, of which one core has its share done sooner than two that wait for each other.
        """
        threads = torch.get_num_threads()
        workers = min(threads, len(batches), _PARALLEL_SEARCHES) if self.device.type == "cpu" else 1
        if workers <= 1:
            yield from map(self.search, batches)
            return
        pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(threads // workers,))
        try:
            yield from pool.map(self.search, batches)
        finally:
            pool.shutdown(cancel_futures=True)
            # what threads to come begin with, was set by each worker, too
            torch.set_num_threads(threads)

    def translate(
        self, lines: Iterable[str], advance: Callable[[int], object] = lambda count: None
    ) -> Iterator[Translation]:
        """Translations in the order of the lines, some batches of lines read ahead; empty lines stay empty.

        `advance` is told how many lines were translated, batch by batch.
        """
        chunk: list[str] = []
        for line in lines:
            chunk.append(line)
            if len(chunk) == self.settings.batch * _CHUNK_OF_BATCHES:
                yield from self.translate_chunk(chunk, advance)
                chunk = []
        yield from self.translate_chunk(chunk, advance)

    def translate_chunk(
        self, lines: list[str], advance: Callable[[int], object] = lambda count: None, refuse: Refuse | None = None
    ) -> list[Translation]:
        """Translations of lines that are all here, in their order; batches hold lines of similar length.

        Args:
            lines: the sources.
            advance: takes how many were translated, batch by batch.
            refuse: takes each line that is too long, also for `LONGEST_SOURCE`; its translation is empty. When None,
                a line beyond the model's positions is an error.

        Raises:
            UserError: a line is too long.
        """
        translations = [Translation(())] * len(lines)
        # an empty line has nothing to say, and a line of white space neither
        filled = [i for i, line in enumerate(lines) if line.strip()]
        tokens = dict(zip(filled, self.source.encode_batch([lines[i] for i in filled]), strict=True))
        longest = self.max_source_length
        if longest is None and refuse:
            longest = MAX_SOURCE_LENGTH
        for i, row in tokens.items():
            if longest is not None and len(row) >= longest:
                error = self._too_long(lines[i], len(row), longest)
                if refuse is None:
                    raise error
                refuse(i, error)
                filled.remove(i)
        order = sorted(filled, key=lambda i: len(tokens[i]))
        size = self.settings.batch
        # the longest first: where they do not fit into memory, it is known at once, and the last to end are short
        batches = [order[first : first + size] for first in range(0, len(order), size)][::-1]
        searched = self.searches([[tokens[i] for i in batch] for batch in batches])
        for batch, found in zip(batches, searched, strict=True):
            for i, hypotheses in zip(batch, found, strict=True):
                translations[i] = _decode_hypotheses(hypotheses, self.target)
            advance(len(batch))
        return translations

    def _too_long(self, line: str, tokens: int, longest: int) -> UserError:
        if self.max_source_length is None:
            return UserError(
                f"a line of {tokens:,} pieces ({line[:40]!r} …) is longer than the {longest:,} that are read",
                remedy="split it",
            )
        return UserError(
            f"a line of {tokens} pieces ({line[:40]!r} …) is longer than the {longest} positions that the model has, "
            "its end counted",
            remedy="split it, or use a run that was trained with a higher model.max_positions",
        )


def one_line(text: str) -> str:
    """A text with spaces in the place of line ends: a line in is a line out, whatever a model writes."""
    return re.sub(r"[\r\n]+", " ", text)


def describe_collapse(
    sources: Sequence[str], translations: Sequence[str], references: Sequence[str], noun: str = "translations"
) -> str | None:
    """Advice when a model says the same, or nothing, whatever it is asked; None when it does not, or may."""
    different, right = len(set(sources)), len(set(references))
    if different < 10:
        return None
    if sum(not t.strip() for t in translations) > len(translations) / 2:
        return (
            f"most {noun} are empty: normal in the first updates; if it lasts, raise training.warmup, lower "
            "training.learning_rate, or look for empty targets with `s2s data check`"
        )
    answers = len(set(translations))
    if answers < min(different, right) / 10 or answers == 1 < right:
        return (
            f"only {answers} different {noun} of {different} different sources, where {right} are "
            "right: normal in the first updates; if it lasts, the decoder ignores the source: lower "
            "training.learning_rate, raise training.warmup, and look for misaligned pairs with `s2s data check`"
        )
    return None
