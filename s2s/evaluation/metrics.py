"""sacreBLEU's scores on untouched references, with signatures, intervals and a view by source length."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

_RESAMPLES = 1000
_BUCKETS = 4


@dataclass(frozen=True)
class Score:
    """One metric's result.

    Attributes:
        name: as sacreBLEU calls it.
        value: in percent.
        low: lower end of the bootstrap's 95 % interval.
        high: upper end.
        signature: sacreBLEU's, which says exactly how the value was computed.
    """

    name: str
    value: float
    low: float
    high: float
    signature: str


@dataclass(frozen=True)
class Bucket:
    """The BLEU of sources of similar length.

    Attributes:
        shortest: words of the shortest source in it.
        longest: words of the longest.
        sentences: how many.
        bleu: in percent.
    """

    shortest: int
    longest: int
    sentences: int
    bleu: float


def metrics(lowercase: bool = False) -> dict[str, Metric]:
    """BLEU, chrF2++ and TER.

    Args:
        lowercase: score without regard to case.
    """
    return {
        "bleu": BLEU(lowercase=lowercase),
        "chrf": CHRF(word_order=2, lowercase=lowercase),
        "ter": TER(case_sensitive=not lowercase),
    }


def score(translations: Sequence[str], references: Sequence[str]) -> tuple[float, float]:
    """BLEU and chrF2++ in percent, quickly, for curves."""
    found = metrics()
    bleu, chrf = (found[name].corpus_score(list(translations), [list(references)]).score for name in ("bleu", "chrf"))
    return bleu, chrf


def scores(translations: Sequence[str], references: Sequence[str], lowercase: bool = False) -> dict[str, Score]:
    """All metrics with their bootstrap intervals (Koehn 2004).

    Args:
        translations: what a system wrote.
        references: what a human wrote, raw.
        lowercase: score without regard to case.
    """
    return {
        name: _with_interval(metric, list(translations), list(references))
        for name, metric in metrics(lowercase).items()
    }


def _with_interval(metric: Metric, translations: list[str], references: list[str]) -> Score:
    found = metric.corpus_score(translations, [references])
    low, high = bootstrap_interval(metric, translations, references)
    return Score(found.name, found.score, low, high, str(metric.get_signature()))


def bootstrap_interval(
    metric: Metric, translations: list[str], references: list[str], seed: int = 12345
) -> tuple[float, float]:
    """The 95 % interval of a metric: sentences drawn with replacement, 1,000 times.

    Args:
        metric: one of `metrics`.
        translations: what a system wrote.
        references: raw.
        seed: of the draws; 12345 is sacreBLEU's.
    """
    statistics = np.array(metric._extract_corpus_statistics(translations, [references]))
    draws = np.random.default_rng(seed).choice(len(statistics), size=(_RESAMPLES, len(statistics)), replace=True)
    values = sorted(metric._aggregate_and_compute(statistics[rows].tolist()).score for rows in draws)
    return values[int(0.025 * _RESAMPLES)], values[int(0.975 * _RESAMPLES) - 1]


def exact_share(translations: Sequence[str], references: Sequence[str], lowercase: bool = False) -> float:
    """Share of translations that are the reference, in percent; white space at the ends does not count.

    Args:
        translations: what a system wrote.
        references: raw.
        lowercase: compare without regard to case.
    """

    def seen(text: str) -> str:
        """What of a text is compared."""
        return text.strip().lower() if lowercase else text.strip()

    same = sum(seen(t) == seen(r) for t, r in zip(translations, references, strict=True))
    return 100 * same / max(1, len(references))


def word_accuracy(
    sources: Sequence[str], translations: Sequence[str], references: Sequence[str], lowercase: bool = False
) -> float | None:
    """Share of the references' words that stand at their place in the translation, in percent.

    None unless every reference has as many words as its source: only where each word is answered by one, as in
    tagging, does the place of a word say anything.

    Args:
        sources: what was translated.
        translations: what a system wrote.
        references: raw.
        lowercase: compare without regard to case.
    """
    right = total = 0
    for source, translation, reference in zip(sources, translations, references, strict=True):
        wanted = (reference.lower() if lowercase else reference).split()
        if len(wanted) != len(source.split()):
            return None
        written = (translation.lower() if lowercase else translation).split()
        right += sum(w == t for w, t in zip(wanted, written, strict=False))
        total += len(wanted)
    return 100 * right / max(1, total)


def by_source_length(
    sources: Sequence[str], translations: Sequence[str], references: Sequence[str], lowercase: bool = False
) -> list[Bucket]:
    """BLEU of the shortest quarter of the sources, of the next, and so on; quarters are of equal size.

    Args:
        sources: what was translated; their length is counted in words.
        translations: what a system wrote.
        references: raw.
        lowercase: score without regard to case.
    """
    lengths = np.array([len(source.split()) for source in sources])
    order = np.argsort(lengths, kind="stable")
    buckets = []
    for part in np.array_split(order, min(_BUCKETS, len(order))):
        rows: list[int] = part.tolist()
        written, wanted = [translations[i] for i in rows], [references[i] for i in rows]
        bleu = metrics(lowercase)["bleu"].corpus_score(written, [wanted]).score
        buckets.append(Bucket(int(lengths[rows].min()), int(lengths[rows].max()), len(rows), bleu))
    return buckets
