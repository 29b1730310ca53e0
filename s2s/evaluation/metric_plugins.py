"""Metrics of other packages, by entry point (group `s2s.metrics`), and adapters of COMET and BERTScore.

A metric is a function that scores each translation; the score of a corpus is the mean. Intervals and tests are those of
all metrics.
"""

import math
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.base import Score as SacreScore

from s2s.errors import UserError, counted
from s2s.recipe.installed import load_metric

_COMET_MODEL = "Unbabel/wmt22-comet-da"
_BERTSCORE_MODEL = "bert-base-multilingual-cased"


class SentenceMetric(Protocol):
    """Function that scores translations one by one."""

    def __call__(
        self, translations: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str] | None
    ) -> Sequence[float]:
        """Return a score for each translation.

        Args:
            translations: Translations.
            references: One or more references of each translation.
            sources: Source of each translation; None if the command has no `--source`.
        """
        ...


class SentenceMean(Metric):
    """Mean score of the sentences, as a sacreBLEU metric.

    Args:
        name: Name of the metric.
        function: Scores each translation; None: the installed metric of this name.
        sources: Source of each translation.

    Example:
        >>> def length(translations, references, sources):
        ...     return [len(text) for text in translations]
        >>> SentenceMean("length", length).corpus_score(["ab", "abcd"], [["", ""]]).score
        3.0
    """

    def __init__(self, name: str, function: SentenceMetric | None = None, sources: Sequence[str] | None = None) -> None:
        super().__init__()
        self._display_name = name
        self._function: SentenceMetric = function or load_metric(name)
        self._sources = sources

    def _extract_corpus_statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str | None]] | None
    ) -> list[list[float]]:
        rows = zip(*references or (), strict=True)
        several = [[each for each in row if each is not None] for row in rows]
        found = [float(score) for score in self._function(list(hypotheses), several, self._sources)]
        if len(found) != len(hypotheses):
            what = f"returned {counted(len(found), 'score')} for {counted(len(hypotheses), 'translation')}"
            raise UserError(what, f"metric {self._display_name}", "return one score for each translation")
        for number, score in enumerate(found, start=1):
            if not math.isfinite(score):
                what = f"the score of translation {number:,} is {score}"
                raise UserError(what, f"metric {self._display_name}", "return a finite number for each translation")
        return [[score, 1.0] for score in found]

    def _compute_score_from_stats(self, stats: Sequence[float]) -> SacreScore:
        return SacreScore(self._display_name, stats[0] / stats[1])

    def _aggregate_and_compute(self, stats: Sequence[Sequence[float]]) -> SacreScore:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[float]:
        raise AssertionError("all sentences are scored at once")

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        raise AssertionError("all sentences are scored at once")

    def _preprocess_segment(self, sent: str) -> str:
        return sent

    def get_signature(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the function's module; sacreBLEU has no signature for it."""
        return f"by:{getattr(self._function, '__module__', type(self._function).__module__)}"


def comet(
    translations: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str] | None
) -> list[float]:
    """Score with COMET (Rei et al. 2022, model wmt22-comet-da), in percent; with several references, by the best."""
    if sources is None:
        raise UserError("needs the sources", "--metric comet", "add --source FILE")
    package: Any = _imported("comet", "unbabel-comet")
    import torch

    rows = [
        {"src": source, "mt": translation, "ref": reference}
        for source, translation, several in zip(sources, translations, references, strict=True)
        for reference in several
    ]
    model = package.load_from_checkpoint(package.download_model(_COMET_MODEL))
    found = iter(model.predict(rows, batch_size=16, gpus=int(torch.cuda.is_available())).scores)
    return [100 * max(next(found) for _ in several) for several in references]


def bertscore(
    translations: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str] | None
) -> list[float]:
    """Score with BERTScore (Zhang et al. 2020, F1 of multilingual BERT), in percent; sources have no effect."""
    package: Any = _imported("bert_score", "bert-score")
    _, _, f1 = package.score(list(translations), [list(each) for each in references], model_type=_BERTSCORE_MODEL)
    return [100 * each for each in f1.tolist()]


def _imported(module: str, package: str) -> object:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise UserError(f"needs the package {package}", remedy=f"pip install {package}") from None
