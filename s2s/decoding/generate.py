"""Text generation with beam search, in batches.

`TextTranslator` translates lines of text, for files, pipes, evaluation and the server. `Generator` is its base for
encoders of other inputs, such as images.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Int

from s2s.data.batches import collate_sources
from s2s.data.dataset import to_device
from s2s.data.tokenizers import UNK, Tokenizer
from s2s.decoding.beam_search import Beam, Hypothesis, search
from s2s.decoding.constraints import Constraints
from s2s.errors import Refuse, UserError, counted, counted_items
from s2s.models.base import Seq2Seq
from s2s.nn.layers import Inputs, PaddingMask
from s2s.nn.precision import fp32_layers
from s2s.recipe.schema import DecodingSettings, SearchSettings

if TYPE_CHECKING:
    from s2s.decoding.sampling import Sampling

# Batches that are searched in parallel, each in its own thread. About a quarter of a search is Python code, which only
# one thread runs at a time.
_PARALLEL_SEARCHES = 4
MAX_SOURCE_LENGTH = 4_096
"""Most tokens of a user's line for models without a limit on positions; time and memory grow with the square."""
# Batches of lines that are read before they are sorted by length: enough for little padding, few enough for memory.
_CHUNK_OF_BATCHES = 50


@dataclass(frozen=True)
class Candidate:
    """One possible text of a source.

    Attributes:
        score: Log probability divided by the length penalty; comparable within one source.
    """

    text: str
    score: float
    hypothesis: Hypothesis


@dataclass(frozen=True)
class Translation:
    """Output for one source.

    Attributes:
        candidates: Best candidates (n-best list), best first; empty for an empty line.
    """

    candidates: tuple[Candidate, ...]

    @property
    def text(self) -> str:
        """Text of the best translation; empty for an empty line."""
        return self.candidates[0].text if self.candidates else ""

    @property
    def at_length_limit(self) -> bool:
        """True if the length limit ended the best translation."""
        return bool(self.candidates) and self.candidates[0].hypothesis.cut


@dataclass(frozen=True)
class LengthLimited:
    """Count of outputs that the length limit ended, and the recipe settings that limit the length."""

    count: int
    outputs: int
    settings: tuple[str, ...]

    def __str__(self) -> str:
        raised = " or ".join(self.settings)
        several = f"{self.count:,} of {counted(self.outputs, 'output')}"
        return f"{several} ended at the length limit; for longer ones, raise {raised}"


def length_limited(written: Sequence["Translation | bool"], settings: tuple[str, ...]) -> LengthLimited | None:
    """Count outputs that the length limit ended.

    Args:
        written: Outputs, or for each a boolean: True if the limit ended it.
        settings: Recipe settings that limit the length; empty if each output is as long as its source.

    Returns:
        The count; None if there is nothing to report.

    Example:
        >>> print(length_limited([True, False, False], ("decoding.max_ratio",)))
        1 of 3 outputs ended at the length limit; for longer ones, raise decoding.max_ratio
    """
    count = sum(each.at_length_limit if isinstance(each, Translation) else each for each in written)
    return LengthLimited(count, len(written), settings) if count and settings else None


class Generator:
    """Generate text from the inputs of any encoder, with beam search.

    Args:
        model: A trained model; it is put into evaluation mode.
        target: Tokenizer of the output.
        settings: Search settings of the recipe.
        nbest: Candidates for each source.
        before_step: Called before each decoder step, in the searching thread. An exception that it raises ends the
            search.

    Raises:
        UserError: `nbest` exceeds the beam size.
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
        self.sampling = sampling_from_settings(settings)
        self.seed = settings.seed
        self.before_step = before_step
        self.model = model.eval()
        self.target = target
        self.device = next(model.parameters()).device

    def write(self, source: Inputs, valid: PaddingMask, limits: Int[np.ndarray, " batch"]) -> list[Translation]:
        """Generate a text for each source of a batch; see `hypotheses`."""
        return [_decode_hypotheses(found, self.target) for found in self.hypotheses(source, valid, limits)]

    def hypotheses(
        self,
        source: Inputs,
        valid: PaddingMask,
        limits: Int[np.ndarray, " batch"],
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Search the best hypotheses of each source of a batch, or draw samples.

        Args:
            source: Inputs of the encoder.
            valid: Padding mask, `(batch, source)`.
            limits: Most tokens of each output, `(batch,)`; the decoder's `max_positions` may lower them.
            prefixes: Tokens with which each output begins; None for none.

        Returns:
            For each source its `nbest` hypotheses, best first; samples in the order of their draws.
        """
        if self.model.decoder.max_positions is not None and not self.model.decoder.is_one_to_one:
            # BOS is fed to the decoder and takes a position.
            limits = np.minimum(limits, self.model.decoder.max_positions - 1)
        inputs = to_device(source, self.device), to_device(valid, self.device)
        # A vocabulary may be larger than the tokenizer's: tokens that stand for spans (denoising) are never written.
        size = self.target.size
        if self.sampling is None:
            return search(self.model, *inputs, limits, self.beam, size, self.before_step, prefixes)
        from s2s.decoding.sampling import Draws, sample_targets

        count = self.beam.nbest
        several = [each.repeat_interleave(count, dim=0) for each in inputs]
        generators = [
            np.random.default_rng([self.seed, number, *_digest(row, real)])
            for row, real in zip(source, valid, strict=True)
            for number in range(count)
        ]
        begins = prefixes and [prefix for prefix in prefixes for _ in range(count)]
        draws, limits = Draws(self.sampling, generators), np.repeat(limits, count)
        found = sample_targets(
            self.model, several[0], several[1], limits, self.beam, draws, size, self.before_step, begins
        )
        return [found[first : first + count] for first in range(0, len(found), count)]


def beam_from_settings(settings: SearchSettings, nbest: int) -> Beam:
    """Build the beam settings from a recipe section; refuse an `nbest` below 1 or above the beam size."""
    if nbest < 1:
        raise UserError(f"{nbest} best translations requested", remedy="request 1 or more")
    if nbest > settings.beam and not settings.sample:
        what = f"{nbest} best translations requested, but the beam size is {settings.beam}"
        raise UserError(what, remedy=f"set --beam {nbest}, or a smaller --nbest")
    groups = settings.beam_groups
    if settings.beam % groups:
        what = f"beam size {settings.beam} is not a multiple of decoding.beam_groups ({groups})"
        raise UserError(what, remedy="request a multiple of it")
    precision = torch.bfloat16 if settings.precision == "bf16" else torch.float32
    constraints = Constraints(settings.min_length, settings.no_repeat_ngram)
    penalty = settings.diversity_penalty
    copies = settings.copy_penalty if isinstance(settings, DecodingSettings) else 0.0
    return Beam(settings.beam, nbest, settings.length_penalty, precision, constraints, groups, penalty, copies)


def sampling_from_settings(settings: SearchSettings) -> "Sampling | None":
    """Build the sampling settings from a recipe section; None for beam search."""
    if not settings.sample:
        return None
    from s2s.decoding.sampling import Sampling

    return Sampling(settings.temperature, settings.top_k, settings.top_p, settings.min_p)


def _digest(source: torch.Tensor, valid: torch.Tensor) -> bytes:
    """Hash a source without padding: equal sources have equal samples, in any batch."""
    read = source[valid] if source.shape == valid.shape else source
    return hashlib.blake2b(read.contiguous().numpy().tobytes(), digest_size=8).digest()


def _decode_hypotheses(found: list[Hypothesis], target: Tokenizer) -> Translation:
    return Translation(tuple(Candidate(target.decode(list(h.tokens)), h.score, h) for h in found))


def max_output_lengths(sources: Int[np.ndarray, " batch"], settings: DecodingSettings) -> Int[np.ndarray, " batch"]:
    """Compute the most tokens of each output from the length of its source.

    Args:
        sources: Source lengths in tokens, `(batch,)`.
        settings: Decoding settings: `max_ratio` and `max_extra`.

    Returns:
        ceil(length · max_ratio) + max_extra for each source. Special tokens of the output are not counted.

    Example:
        >>> max_output_lengths(np.array([4, 10]), DecodingSettings(max_ratio=1.5, max_extra=10)).tolist()
        [16, 25]
    """
    # 10 · 1.1 is slightly more than 11 in floating point.
    return np.ceil(sources * settings.max_ratio - 1e-9).astype(int) + settings.max_extra


def split_evenly(items: list[int], most: int) -> list[list[int]]:
    """Split a list into batches of nearly equal size, so that parallel searches finish together.

    One batch stays whole, since two threads share its products well; more batches are even in number. The number does
    not depend on that of the threads, because a model's numbers depend on the batch in their last digits.

    Args:
        items: Items to split, in order.
        most: Largest batch, 1 or more.

    Example:
        >>> [len(batch) for batch in split_evenly(list(range(160)), most=64)]
        [40, 40, 40, 40]
        >>> [len(batch) for batch in split_evenly(list(range(60)), most=64)]
        [60]
    """
    count = -(-len(items) // most)
    if count % 2 and 1 < count < len(items):
        count += 1
    bounds = [len(items) * i // count for i in range(count + 1)] if count else []
    return [items[first:last] for first, last in pairwise(bounds)]


class TextTranslator(Generator):
    """Translate lines of text with beam search.

    Args:
        source: Tokenizer of the input lines.
        settings: The recipe's `decoding` section.

    The other arguments are those of `Generator`.
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
        if settings.copy_penalty and source.digest != target.digest:
            what = "has no meaning, because source and target have vocabularies of their own"
            raise UserError(what, "decoding.copy_penalty", "leave it out, or train with tokenizer.shared=true")
        self.source = source
        self.settings = settings

    def precision_note(self) -> str:
        """Return a line that names layers which run in fp32; empty if there are none."""
        return fp32_layers(self.model, {self.beam.precision}, self.device)

    @property
    def max_source_length(self) -> int | None:
        """Most source tokens including EOS (learned positions); None for no limit."""
        return self.model.encoder.max_positions

    @property
    def length_settings(self) -> tuple[str, ...]:
        """Recipe settings that limit the output length.

        Empty if each output is as long as its source.
        """
        if self.model.decoder.is_one_to_one:
            return ()
        positions = () if self.model.decoder.max_positions is None else ("model.max_positions",)
        return "decoding.max_ratio", "decoding.max_extra", *positions

    def search(
        self, sources: list[list[int]], prefixes: Sequence[Sequence[int]] | None = None
    ) -> list[list[Hypothesis]]:
        """Search the best hypotheses of tokenized sources, EOS included, within the length limits of the settings."""
        one_to_one = self.model.decoder.is_one_to_one
        lengths = np.array([len(tokens) for tokens in sources])
        limits = lengths if one_to_one else max_output_lengths(lengths, self.settings)
        return self.hypotheses(*collate_sources(sources), limits, prefixes)

    def searches(
        self, batches: list[list[list[int]]], prefixes: list[list[list[int]]] | None = None
    ) -> Iterator[list[list[Hypothesis]]]:
        """Search several batches, in parallel on a CPU.

        A search is a chain of small matrix products. One core finishes such a product sooner than two that have to wait
        for each other, so the threads search different batches.

        Yields:
            The result of `search` for each batch, in order.
        """
        threads = torch.get_num_threads()
        workers = min(threads, len(batches), _PARALLEL_SEARCHES) if self.device.type == "cpu" else 1
        if workers <= 1:
            yield from map(self.search, batches, prefixes or [None] * len(batches))
            return
        pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(threads // workers,))
        try:
            yield from pool.map(self.search, batches, prefixes or [None] * len(batches))
        finally:
            pool.shutdown(cancel_futures=True)
            # Each worker has also changed the default of new threads, so that is restored here.
            torch.set_num_threads(threads)

    def translate(
        self, lines: Iterable[str], advance: Callable[[int], object] = lambda count: None
    ) -> Iterator[Translation]:
        """Translate lines in order, reading some batches of lines ahead.

        Args:
            lines: Source lines; empty lines stay empty.
            advance: Called after each batch with the number of translated lines.

        Yields:
            One translation for each line.
        """
        chunk: list[str] = []
        for line in lines:
            chunk.append(line)
            if len(chunk) == self.settings.batch * _CHUNK_OF_BATCHES:
                yield from self.translate_chunk(chunk, advance)
                chunk = []
        yield from self.translate_chunk(chunk, advance)

    def translate_chunk(
        self,
        lines: list[str],
        advance: Callable[[int], object] = lambda count: None,
        refuse: Refuse | None = None,
        prefixes: Sequence[str] | None = None,
        before: int = 0,
    ) -> list[Translation]:
        """Translate a list of lines; batches hold lines of similar length.

        Args:
            lines: Source lines.
            advance: Called after each batch with the number of translated lines.
            refuse: Called for each line that is too long; its translation is empty. For a model without a limit, the
                limit is then `MAX_SOURCE_LENGTH`. If None, a line beyond the model's positions raises an error.
            prefixes: Text with which the translation of each line begins; None for none.
            before: Lines translated before, for the number of a prefix in a message.

        Returns:
            One translation for each line, in order.

        Raises:
            UserError: A line is too long, and `refuse` is None; or a prefix has characters that the tokenizer does not
                know, or is too long.
        """
        translations = [Translation(())] * len(lines)
        # Empty lines and lines of white space are not translated.
        filled = [i for i, line in enumerate(lines) if line.strip()]
        tokens = dict(zip(filled, self.source.encode_batch([lines[i] for i in filled]), strict=True))
        longest = self.max_source_length
        if longest is None and refuse:
            longest = MAX_SOURCE_LENGTH
        for i, row in tokens.items():
            if longest is not None and len(row) >= longest:
                error = self._length_error(lines[i], len(row), longest)
                if refuse is None:
                    raise error
                refuse(i, error)
                filled.remove(i)
        order = sorted(filled, key=lambda i: len(tokens[i]))
        # Longest first: a lack of memory shows at once, and the batches that finish last are short.
        batches = split_evenly(order, self.settings.batch)[::-1]
        forced = None
        if prefixes is not None:
            rows = self._prefix_tokens(prefixes, tokens, before)
            forced = [[rows[i] for i in batch] for batch in batches]
        searched = self.searches([[tokens[i] for i in batch] for batch in batches], forced)
        for batch, found in zip(batches, searched, strict=True):
            for i, hypotheses in zip(batch, found, strict=True):
                translations[i] = _decode_hypotheses(hypotheses, self.target)
            advance(len(batch))
        return translations

    def _prefix_tokens(
        self, prefixes: Sequence[str], sources: Mapping[int, Sequence[int]], before: int
    ) -> list[list[int]]:
        rows, most = self.target.encode_batch(prefixes), self.model.decoder.max_positions
        for i, (prefix, row) in enumerate(zip(prefixes, rows, strict=True)):
            place = f"forced prefix {before + i + 1:,}"
            if self.model.decoder.is_one_to_one and i in sources and len(row) > len(sources[i]):
                what = (
                    f"has {len(row):,} tokens, but the model writes one for each of {len(sources[i]):,} source tokens"
                )
                raise UserError(what, place, "shorten it")
            if UNK in row:
                raise UserError(
                    f"{prefix!r:.60} has tokens that the tokenizer does not know", place, "write other words"
                )
            if most is not None and len(row) >= most:
                raise UserError(f"has {len(row):,} tokens; the model has {most:,} positions", place, "shorten it")
        return rows

    def _length_error(self, line: str, tokens: int, longest: int) -> UserError:
        if self.max_source_length is None:
            what = f"a line of {tokens:,} tokens ({line[:40]!r} …) is longer than the {longest:,} that are read"
            return UserError(what, remedy="split it")
        what = f"a line of {tokens} tokens ({line[:40]!r} …), and its end, is longer than the {longest} positions"
        return UserError(
            f"{what} of the model", remedy="split it, or use a run that was trained with a higher model.max_positions"
        )


def one_line(text: str) -> str:
    r"""Replace line ends by spaces, so that each input line gives one output line.

    Example:
        >>> one_line("two\nlines")
        'two lines'
    """
    return re.sub(r"[\r\n]+", " ", text)


def describe_collapse(
    sources: Sequence[str], translations: Sequence[str], references: Sequence[str], noun: str = "translations"
) -> str | None:
    """Return advice if a model gives empty or equal outputs for different inputs.

    Args:
        noun: Name of the outputs in the message.

    Returns:
        The advice; None if there is no such sign, or fewer than 10 different sources.

    Example:
        >>> sources = [f"sentence {i}" for i in range(20)]
        >>> print(describe_collapse(sources, ["the"] * 20, sources)[:57])
        only 1 different translation of 20 different sources, whi
        >>> describe_collapse(sources, sources, sources) is None
        True
    """
    different, right = len(set(sources)), len(set(references))
    if different < 10:
        return None
    if sum(not t.strip() for t in translations) > len(translations) / 2:
        return (
            f"most {noun} are empty: normal in the first updates; if it persists, raise training.warmup, lower "
            "training.learning_rate, or look for empty targets with `s2s data check`"
        )
    answers = len(set(translations))
    if answers < min(different, right) / 10 or answers == 1 < right:
        outputs = counted_items(answers, f"different {noun}")
        return (
            f"only {outputs} of {different} different sources, which have {right} different references: normal in the "
            "first updates; if it persists, the decoder ignores the source: lower training.learning_rate, raise "
            "training.warmup, and look for misaligned pairs with `s2s data check`"
        )
    return None
