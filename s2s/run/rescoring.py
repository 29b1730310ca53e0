"""Scores of given translations by a model (teacher forcing), and re-ranking of n-best lists."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from s2s.data.text_files import line_rows, lines
from s2s.decoding.beam_search import Beam
from s2s.errors import UserError
from s2s.models.base import Seq2Seq
from s2s.recipe.pairs import PairRecipe
from s2s.run.trained_run import Run


@dataclass(frozen=True)
class ScoredHypothesis:
    """A given translation with its log probability.

    Attributes:
        line: Line of the source, from 1.
        tokens: Tokens of the translation, and `</s>`.
        token_log_probabilities: Log probability of each token, in nats.
        score: Log probability divided by the length penalty of the run, as in beam search.
    """

    line: int
    text: str
    tokens: list[str]
    token_log_probabilities: list[float]
    score: float

    @property
    def log_probability(self) -> float:
        """Log probability of the translation, in nats."""
        return math.fsum(self.token_log_probabilities)

    @property
    def perplexity(self) -> float:
        """Perplexity of a token: exp of the mean negative log probability."""
        return math.exp(-self.log_probability / len(self.tokens))

    def __str__(self) -> str:
        return f"{self.line}\t{self.log_probability:.4f}\t{len(self.tokens)}\t{self.perplexity:.4f}\t{self.text}"


def score_lines(run: Run, source: Path, hypotheses: Path) -> list[ScoredHypothesis]:
    """Score a file of translations, line by line.

    Args:
        source: File of the sources.
        hypotheses: File with a translation of each source.

    Raises:
        UserError: The files differ in their numbers of lines, or a line is too long.
    """
    rows = [(number, row[0], row[1]) for number, row in enumerate(line_rows(source, hypotheses), start=1)]
    return _scored(run, rows)


def rerank(run: Run, source: Path, nbest: Path) -> list[ScoredHypothesis]:
    """Score an n-best list as `s2s translate --nbest` writes it, and sort the translations of each source.

    Args:
        source: File of the sources.
        nbest: File of lines `line number TAB score TAB translation`; the scores are ignored.

    Returns:
        The translations by line of the source, each with the best score first.

    Raises:
        UserError: A line of the list has another form, or names no line of the sources.
    """
    sources, rows = list(lines(source)), list[tuple[int, str, str]]()
    for number, line in enumerate(lines(nbest), start=1):
        first, *rest = line.split("\t", 2)
        if len(rest) < 2 or not first.isascii() or not first.isdigit() or not 1 <= int(first) <= len(sources):
            what = f"is not a line number of {len(sources):,} sources, a score and a translation, separated by tabs"
            raise UserError(what, f"{nbest}:{number}", "write the list with s2s translate RUN --nbest N")
        rows.append((int(first), sources[int(first) - 1], rest[1]))
    return sorted(_scored(run, rows), key=lambda each: (each.line, -each.score))


def _scored(run: Run, rows: Sequence[tuple[int, str, str]]) -> list[ScoredHypothesis]:
    decoding = run.loaded.narrow(PairRecipe, Seq2Seq).recipe.decoding
    penalty = Beam(length_penalty=decoding.length_penalty).penalty
    tokenizer = run.loaded.tokenizers[-1]
    each_row = run.token_scores([source for _, source, _ in rows], [text for _, _, text in rows])
    found = []
    for (line, _, text), scores in zip(rows, each_row, strict=True):
        tokens = [*tokenizer.tokens(tokenizer.encode(text)), "</s>"]
        found.append(ScoredHypothesis(line, text, tokens, scores, math.fsum(scores) / penalty(len(tokens))))
    return found
