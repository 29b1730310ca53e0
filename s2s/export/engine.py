"""Translating with an export: CTranslate2 searches, and everything around the search is as ever.

Its beam search is ours but for four things. Its length penalty is another one, log probability / length^α, by which it
would drop some of what finishes in the last step; so it is asked for more than are needed, shortest first, those that
ours would have are taken, and ours ranks them. Its limit is one for a batch: sentences that come to theirs
are translated again, alone. It forbids pieces before probabilities sum to one, ours after; so it forbids none, and a
sentence with such a piece is translated again. And where the limit ends a hypothesis, it does not count the end's own
probability, which is then asked for; but what it had not among its best, ours may have.
"""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from s2s.data.tokenizers import BOS, EOS, PAD, SPECIALS, Tokenizer
from s2s.decoding.beam import Hypothesis
from s2s.decoding.translator import LineTranslator
from s2s.errors import UserError
from s2s.export.ctranslate2 import POSITIONS, vocabulary
from s2s.recipe.schema import DecodingSettings
from s2s.run.folder import TOKENIZER, Opened
from s2s.run.loaded import computer_for, load_tokenizers
from s2s.tasks.lines import Seen
from s2s.training.devices import prepare_process

# the power of ten up to which lengths may be raised: a float holds one of 38, and a log probability has some digits
_LARGEST = 34
_NO_TEXT = {PAD, BOS}


def line_translator(run: Opened, nbest: int, checkpoint: None = None) -> tuple[LineTranslator, Seen | None]:
    """What translates lines with an export, and what was seen in training."""
    prepare_process(run.recipe.device)
    tokenizers = load_tokenizers(run.path, run.recipe)
    recipe: Any = run.recipe
    # it knows no other device
    device = "cuda" if computer_for(recipe.device, run.overrides).device.type == "cuda" else "cpu"
    engine = Engine(run.path, tokenizers[0], tokenizers[-1], device, recipe.device.threads or 0)
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
        threads: of the processor; 0 for what CTranslate2 thinks good.

    Raises:
        UserError: CTranslate2 is not installed, or cannot load the model.
    """

    def __init__(self, folder: Path, source: Tokenizer, target: Tokenizer, device: str, threads: int) -> None:
        try:
            from ctranslate2 import Translator
        except ImportError:
            raise UserError("CTranslate2 is not installed", remedy="pip install 's2s[export]'") from None
        try:
            self._model = Translator(str(folder), device=device, intra_threads=threads)
        except (RuntimeError, ValueError) as error:
            raise UserError(f"CTranslate2: {error}", where=str(folder), remedy="export the run again") from None
        self._source = vocabulary(source)
        self._numbers = {name: number for number, name in enumerate(vocabulary(target))}

    def search(
        self, sources: list[list[int]], size: int, most: int, text_only: bool = False
    ) -> Iterable[tuple[list[list[int]], list[float]]]:
        """For each source the pieces and the log probabilities of all hypotheses that finished within so many pieces.

        Args:
            sources: pieces, without the end.
            size: of the beam.
            most: pieces of a target, its end counted.
            text_only: forbids pieces that are no text, which changes the probabilities of all others a little.
        """
        # all that finish before the step with which there are enough, and all of that step
        wanted = 2 * size - 1
        shortest_first = _LARGEST // math.log10(most + 1)
        found = self._model.translate_batch(
            [[self._source[piece] for piece in pieces] + [SPECIALS[EOS]] for pieces in sources],
            beam_size=size,
            num_hypotheses=wanted,
            patience=wanted / size,
            length_penalty=-shortest_first,
            suppress_sequences=[[SPECIALS[piece]] for piece in _NO_TEXT] if text_only else None,
            max_input_length=0,
            min_decoding_length=0,
            max_decoding_length=most,
            return_scores=True,
        )
        for each in found:
            rows = [[self._numbers[name] for name in names] for names in each.hypotheses]
            scores = [
                score * _length(row, most) ** -shortest_first for row, score in zip(rows, each.scores, strict=True)
            ]
            last = sorted(map(len, rows))[min(size, len(rows)) - 1]
            kept = [i for i, row in enumerate(rows) if len(row) <= last]
            yield [rows[i] for i in kept], [scores[i] for i in kept]

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
        limits = [min(limit, self.positions[1] - 1) for limit in self.limits(sources).tolist()]
        found = self._ask(sources, max(limits))
        for i, limit in enumerate(limits):
            if any(len(h.tokens) > limit or _NO_TEXT & set(h.tokens) for h in found[i]):
                found[i] = self._within(sources[i], limit)
        return [sorted(pool, key=lambda h: -h.score)[: self.beam.nbest] for pool in found]

    def _within(self, source: list[int], limit: int) -> list[Hypothesis]:
        """The hypotheses of one source, those that the limit ends with the probability of their end."""
        (rows, scores), *_ = self.engine.search([source], self.beam.size, limit, text_only=True)
        cut = [row for row in rows if len(row) == limit]
        again = iter(self.engine.scores(source, cut))
        scores = [next(again) if len(row) == limit else score for row, score in zip(rows, scores, strict=True)]
        return [self._hypothesis(row, score, limit) for row, score in zip(rows, scores, strict=True)]

    def _ask(self, sources: list[list[int]], limit: int) -> list[list[Hypothesis]]:
        asked = self.engine.search(sources, self.beam.size, limit + 1)
        return [
            [self._hypothesis(row, score, limit) for row, score in zip(rows, scores, strict=True)]
            for rows, scores in asked
        ]

    def _hypothesis(self, pieces: list[int], log_probability: float, limit: int) -> Hypothesis:
        score = log_probability / self.beam.penalty(len(pieces) + 1)
        return Hypothesis(tuple(pieces), score, log_probability, len(pieces) == limit)
