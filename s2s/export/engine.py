"""Translation with an export: CTranslate2 searches, everything around the search is that of a run.

CTranslate2 has a beam search of its own: greedy translations are those of the run, a wider beam may return other
hypotheses (docs/export.md). What can be corrected is:

- Its length penalty is log probability / length^α, so it returns the shortest first and ours ranks them.
- Hypotheses that finish in its last step are dropped by score; where more than the best is wanted, all are asked for.
- It has one length limit for a batch: a sentence that exceeds its own limit is translated again, alone.
- It forbids tokens before probabilities are normalised, ours after; so it forbids none, and a sentence with such a
  token is translated again.
- Where the limit ends a hypothesis it does not count the probability of EOS, which is asked for.

On a CPU each thread has a batch of its own: the products of a small model are too small to be shared.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from s2s.data.tokenizers import BOS, EOS, PAD, SPECIALS, Tokenizer
from s2s.decoding.beam import Hypothesis
from s2s.decoding.translator import LineTranslator
from s2s.errors import UserError
from s2s.export.ctranslate2 import vocabulary
from s2s.export.exportable import POSITIONS, check_installed
from s2s.recipe.schema import DecodingSettings
from s2s.run.exported import check_files
from s2s.run.folder import TOKENIZER, Opened
from s2s.run.loaded import computer_for, load_tokenizers
from s2s.tasks.lines import Seen
from s2s.training.devices import prepare_process

# the power of ten up to which lengths may be raised: a float holds one of 38, and a log probability has some digits
_LARGEST = 34
_NO_TEXT = {PAD, BOS}

Finished = tuple[list[list[int]], list[float]]
"""Hypotheses of one source as pieces, and their log probabilities."""


def line_translator(run: Opened, nbest: int, checkpoint: None = None) -> tuple[LineTranslator, Seen | None]:
    """What translates lines with an export, and what was seen in training.

    Raises:
        UserError: a file has changed since it was exported, or the engine cannot load it.
    """
    check_files(run.path)
    prepare_process(run.recipe.device)
    tokenizers = load_tokenizers(run.path, run.recipe)
    recipe: Any = run.recipe
    # it knows no other device
    device = "cuda" if computer_for(recipe.device, run.overrides).device.type == "cuda" else "cpu"
    engine = Engine(run.path, tokenizers[0], tokenizers[-1], device, recipe.device.threads or torch.get_num_threads())
    longest = [
        recipe.model.max_positions if positions == "learned" else POSITIONS
        for positions in (recipe.model.encoder_positions, recipe.model.decoder_positions)
    ]
    translator = EngineTranslator(engine, tokenizers, recipe.decoding, nbest, (longest[0], longest[1]))
    return translator, Seen.load(run.path / TOKENIZER)


class Engine:
    """A model as CTranslate2 has loaded it, asked with numbers of pieces.

    Args:
        folder: of the export.
        source: names the pieces that are read.
        target: names the pieces that are written.
        device: `cpu` or `cuda`.
        threads: of the processor; each has a batch of its own.

    Attributes:
        workers: batches that are searched at the same time.

    Raises:
        UserError: CTranslate2 is not installed, or cannot load the model.
    """

    def __init__(self, folder: Path, source: Tokenizer, target: Tokenizer, device: str, threads: int) -> None:
        check_installed("ctranslate2")
        from ctranslate2 import Translator

        before = torch.get_num_threads()
        try:
            # a GPU is one worker, as it is one device
            self.workers = threads if device == "cpu" else 1
            self._model = Translator(str(folder), device=device, inter_threads=self.workers, intra_threads=1)
        except (RuntimeError, ValueError) as error:
            raise UserError(f"CTranslate2: {error}", where=str(folder), remedy="export the run again") from None
        finally:
            # it sets those of the whole process
            torch.set_num_threads(before)
        self._source = vocabulary(source)
        self._numbers = {name: number for number, name in enumerate(vocabulary(target))}

    def search(
        self, sources: list[list[int]], size: int, wanted: int, most: int, parts: int = 1, text_only: bool = False
    ) -> Callable[[], list[Finished]]:
        """Begins a search; what it returns waits for the hypotheses of each source that finished.

        Args:
            sources: pieces, without the end.
            size: of the beam.
            wanted: the best hypotheses that are to be among those that are given.
            most: pieces of a target, its end counted.
            parts: the batches that the sources are made to be.
            text_only: forbids pieces that are no text, which changes the probabilities of all others a little.
        """
        # all that finish before the step with which there are enough, and all of that step, or the best of it
        asked = size if wanted == 1 else 2 * size - 1
        shortest_first = _LARGEST // math.log10(most + 1)
        begun = self._model.translate_batch(
            [[self._source[piece] for piece in pieces] + [SPECIALS[EOS]] for pieces in sources],
            max_batch_size=-(-len(sources) // parts),
            asynchronous=True,
            beam_size=size,
            num_hypotheses=asked,
            patience=asked / size,
            length_penalty=-shortest_first,
            suppress_sequences=[[SPECIALS[piece]] for piece in _NO_TEXT] if text_only else None,
            max_input_length=0,
            min_decoding_length=0,
            max_decoding_length=most,
            return_scores=True,
        )

        def finished() -> list[Finished]:
            """What the engine found, once it has."""
            return [self._finished(each.result(), size, most, shortest_first) for each in begun]

        return finished

    def _finished(self, found: Any, size: int, most: int, shortest_first: float) -> Finished:
        rows = [[self._numbers[name] for name in names] for names in found.hypotheses]
        scores = [score * _length(row, most) ** -shortest_first for row, score in zip(rows, found.scores, strict=True)]
        last = sorted(map(len, rows))[min(size, len(rows)) - 1]
        kept = [i for i, row in enumerate(rows) if len(row) <= last]
        return [rows[i] for i in kept], [scores[i] for i in kept]

    def scores(self, source: list[int], targets: list[list[int]]) -> list[float]:
        """The log probabilities of targets of a source, their ends counted."""
        names = list(self._numbers)
        read = [self._source[piece] for piece in source] + [SPECIALS[EOS]]
        asked = [[names[piece] for piece in target] for target in targets]
        found = self._model.score_batch([read] * len(asked), asked, max_input_length=0) if asked else []
        return [sum(each.log_probs) for each in found]


def _length(pieces: list[int], most: int) -> int:
    """What CTranslate2 counts as the length: with the end, where there is one."""
    return min(len(pieces) + 1, most)


class EngineTranslator(LineTranslator):
    """Translates lines with an `Engine`, which knows so many positions of sources and of targets."""

    def __init__(
        self,
        engine: Engine,
        tokenizers: tuple[Tokenizer, ...],
        settings: DecodingSettings,
        nbest: int,
        positions: tuple[int, int],
    ) -> None:
        super().__init__(tokenizers[0], tokenizers[-1], settings, nbest)
        self.engine = engine
        self.positions = positions

    @property
    def longest(self) -> int:
        """As many as the encoder has a table for."""
        return self.positions[0]

    def search(self, sources: list[list[int]]) -> list[list[Hypothesis]]:
        """The best hypotheses of sources as pieces, in one batch, within the lengths that the settings allow."""
        return next(iter(self.searches([sources])))

    def searches(self, batches: list[list[list[int]]]) -> Iterator[list[list[Hypothesis]]]:
        """All batches are begun at once: as many as there are threads are searched beside each other."""
        allowed = [[min(limit, self.positions[1] - 1) for limit in self.limits(batch).tolist()] for batch in batches]
        parts = max(1, self.engine.workers // max(1, len(batches)))
        begun = [
            self.engine.search(batch, self.beam.size, self.beam.nbest, max(limits) + 1, parts)
            for batch, limits in zip(batches, allowed, strict=True)
        ]
        for batch, limits, finished in zip(batches, allowed, begun, strict=True):
            yield [
                self._chosen(source, limit, found)
                for source, limit, found in zip(batch, limits, finished(), strict=True)
            ]

    def _chosen(self, source: list[int], limit: int, found: Finished) -> list[Hypothesis]:
        rows, scores = found
        if any(len(row) > limit or _NO_TEXT & set(row) for row in rows):
            rows, scores = self._within(source, limit)
        pool = [self._hypothesis(row, score, limit) for row, score in zip(rows, scores, strict=True)]
        return sorted(pool, key=lambda h: -h.score)[: self.beam.nbest]

    def _within(self, source: list[int], limit: int) -> Finished:
        """The hypotheses of one source, those that the limit ends with the probability of their end."""
        (rows, scores), *_ = self.engine.search([source], self.beam.size, self.beam.size, limit, text_only=True)()
        cut = [row for row in rows if len(row) == limit]
        again = iter(self.engine.scores(source, cut))
        return rows, [next(again) if len(row) == limit else score for row, score in zip(rows, scores, strict=True)]

    def _hypothesis(self, pieces: list[int], log_probability: float, limit: int) -> Hypothesis:
        score = log_probability / self.beam.penalty(len(pieces) + 1)
        return Hypothesis(tuple(pieces), score, log_probability, len(pieces) == limit)
