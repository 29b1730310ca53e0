"""Translating with an export: CTranslate2 searches, and everything around the search is as ever.

Its beam search is ours but for four things. Its length penalty is another one, log probability / length^α; so it is
asked for all hypotheses that finish, and ours ranks them. Its limit is one for a batch: sentences that come to theirs
are translated again, alone. It forbids pieces before probabilities sum to one, ours after; so it forbids none, and a
sentence with such a piece is translated again. And where the limit ends a hypothesis, it does not count the end's own
probability.
"""

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
from s2s.run.loaded import load_tokenizers
from s2s.tasks.lines import Seen
from s2s.training.devices import choose, prepare_process

# without any, it would stop at the first sentence that ends, before the others have
_LEAST_PENALTY = 1e-6
_NO_TEXT = {PAD, BOS}


def line_translator(run: Opened, nbest: int, checkpoint: None = None) -> tuple[LineTranslator, Seen | None]:
    """What translates lines with an export, and what was seen in training."""
    prepare_process(run.recipe.device)
    tokenizers = load_tokenizers(run.path, run.recipe)
    recipe: Any = run.recipe
    computer = choose(recipe.device)
    engine = Engine(run.path, tokenizers[0], tokenizers[-1], computer.device.type, recipe.device.threads or 0)
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
        self, sources: list[list[int]], size: int, alpha: float, most: int, text_only: bool = False
    ) -> Iterable[tuple[list[list[int]], list[float]]]:
        """For each source the pieces and the log probabilities of all hypotheses that finished within so many pieces.

        Args:
            sources: pieces, without the end.
            size: of the beam.
            alpha: exponent of its own length penalty, by which it drops those that are too many.
            most: pieces of a target, its end counted.
            text_only: forbids pieces that are no text, which changes the probabilities of all others a little.
        """
        alpha = max(alpha, _LEAST_PENALTY)
        found = self._model.translate_batch(
            [[self._source[piece] for piece in pieces] + [SPECIALS[EOS]] for pieces in sources],
            beam_size=size,
            num_hypotheses=size,
            length_penalty=alpha,
            suppress_sequences=[[SPECIALS[piece]] for piece in _NO_TEXT] if text_only else None,
            max_input_length=0,
            min_decoding_length=0,
            max_decoding_length=most,
            return_scores=True,
        )
        for each in found:
            rows = [[self._numbers[name] for name in names] for names in each.hypotheses]
            yield rows, [score * _length(row, most) ** alpha for row, score in zip(rows, each.scores, strict=True)]


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
                found[i] = self._ask([sources[i]], limit, text_only=True)[0]
        return [sorted(pool, key=lambda h: -h.score)[: self.beam.nbest] for pool in found]

    def _ask(self, sources: list[list[int]], limit: int, text_only: bool = False) -> list[list[Hypothesis]]:
        asked = self.engine.search(sources, self.beam.size, self.beam.length_penalty, limit + 1, text_only)
        return [
            [self._hypothesis(row, score, limit) for row, score in zip(rows, scores, strict=True)]
            for rows, scores in asked
        ]

    def _hypothesis(self, pieces: list[int], log_probability: float, limit: int) -> Hypothesis:
        score = log_probability / self.beam.penalty(len(pieces) + 1)
        return Hypothesis(tuple(pieces[:limit]), score, log_probability, len(pieces) > limit)
