"""Scores on untouched references, with signatures, intervals and a view by source length.

A sentence may have several references, and not all of them as many: exact is what equals one of them, and edits are
those to the nearest. sacreBLEU's own metrics do as they always do.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Shaped

from s2s.data.scripts import is_unspaced, split_words, unit_name
from s2s.evaluation.inference import Counts, drawn_rows, estimate, wilson
from s2s.evaluation.tokenization import SPACED, SPLITS_AT_SPACES, Tokenization, choose_tokenization, tokenized_ter

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

NAMES = ("bleu", "chrf", "ter", "exact", "cer", "wer")
"""Of all metrics of translations, in the order in which they are told."""
KNOWN = (*NAMES, "cider")
"""All metrics of texts."""
LOWER_IS_BETTER = frozenset({"loss", "ter", "cer", "wer"})
"""All others are better when they are higher."""
_QUICK = ("bleu", "chrf", "exact", "cer", "wer")

_BUCKETS = 4

References = Sequence[str] | Sequence[Sequence[str]]
"""Of each sentence its reference, or its several ones."""


@dataclass(frozen=True)
class Score:
    """One metric's result in percent.

    Its 95 % interval is the bootstrap's, or Wilson's for the share of exact ones; the signature says exactly how it was
    computed.
    """

    name: str
    value: float
    low: float
    high: float
    signature: str

    def __str__(self) -> str:
        return (
            f"  {self.name:8} {self.value:6.2f}   95 % interval {self.low:6.2f} to {self.high:6.2f}   {self.signature}"
        )


@dataclass(frozen=True)
class Bucket:
    """The BLEU, in percent, of sources of similar length; no other bucket has lengths between.

    The unit is `words`, or `characters` where sources are single words or have no spaces between words.
    """

    shortest: int
    longest: int
    sentences: int
    bleu: float
    unit: str

    def __str__(self) -> str:
        span = f"{self.shortest}" if self.shortest == self.longest else f"{self.shortest}–{self.longest}"
        return f"{span} {self.unit}: {self.bleu:.1f}"


def metrics(
    lowercase: bool = False, names: Sequence[str] = NAMES, tokenization: Tokenization = SPACED
) -> "dict[str, Metric]":
    """BLEU, chrF2++, TER, exact match, character and word error rate; CIDEr-D, which knows no case, if it is named.

    Where spaces do not separate words, the word error rate is the character error rate, and is called CER.
    """
    # a line is translated, and much else is done, before or without any score
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    from s2s.evaluation.cider import Cider
    from s2s.evaluation.rates import Rate

    tokenizer, unspaced = tokenization.tokenizer, tokenization.unspaced
    splits_at_spaces = tokenizer in SPLITS_AT_SPACES
    makers: dict[str, Callable[[], Metric]] = {
        "bleu": lambda: BLEU(lowercase=lowercase, tokenize=tokenizer),
        "chrf": lambda: CHRF(word_order=2, lowercase=lowercase),
        "ter": lambda: TER(case_sensitive=not lowercase) if splits_at_spaces else tokenized_ter(tokenizer, lowercase),
        "exact": lambda: Rate("sentences", lowercase),
        "cer": lambda: Rate("characters", lowercase),
        "wer": lambda: Rate("characters" if unspaced else "words", lowercase),
        "cider": lambda: Cider(unspaced),
    }
    return {name: makers[name]() for name in names}


def by_place(references: References) -> Any:
    """References as sacreBLEU takes them: the first of each sentence, the second of each …, or None."""
    several = [[each] if isinstance(each, str) else each for each in references]
    return [list(column) for column in itertools.zip_longest(*several)]


def score(
    translations: Sequence[str],
    references: References,
    lowercase: bool = False,
    names: Sequence[str] = _QUICK,
    tokenization: Tokenization | None = None,
) -> dict[str, float]:
    """Metrics, all but TER unless others are named, in percent and without intervals: quick enough for curves.

    The tokenization is chosen by the references if it is None.
    """
    asked = metrics(lowercase, names, tokenization or choose_tokenization(references))
    return {name: metric.corpus_score(list(translations), by_place(references)).score for name, metric in asked.items()}


def scores(
    translations: Sequence[str],
    references: References,
    lowercase: bool = False,
    names: Sequence[str] = NAMES,
    tokenization: Tokenization | None = None,
) -> dict[str, Score]:
    """Metrics with their intervals; sentences are looked at once, for value and interval.

    The tokenization is chosen by the references if it is None.
    """
    asked = metrics(lowercase, names, tokenization or choose_tokenization(references))
    lines = {
        name: metric._extract_corpus_statistics(list(translations), by_place(references))
        for name, metric in asked.items()
    }
    counts = {name: np.array(rows) for name, rows in lines.items()}
    # drawn once for all metrics
    ends = np.cumsum([rows.shape[1] for rows in counts.values()])
    sums = np.split(_resampled(np.hstack([*counts.values()])), ends[:-1], axis=1)
    found = {}
    for (name, metric), resampled in zip(asked.items(), sums, strict=True):
        whole = metric._aggregate_and_compute(lines[name])
        if name == "exact":
            share = wilson(sum(same for same, _ in lines[name]), len(lines[name]))
            low, high = share.low, share.high
        else:
            low, high = _interval(metric, resampled.astype(counts[name].dtype))
        found[name] = Score(whole.name, whole.score, low, high, str(metric.get_signature()))
    return found


def score_lines(found: Mapping[str, Score]) -> list[str]:
    """Scores as lines for a terminal; a word error rate that counts characters is the CER, and is not repeated."""
    return list(dict.fromkeys(map(str, found.values())))


def bootstrap_interval(metric: "Metric", counts: Counts) -> tuple[float, float]:
    """The 95 % interval of one of `metrics`, by its counts in each sentence: 1,000 times drawn anew (Koehn 2004)."""
    return _interval(metric, _resampled(counts))


def _resampled(counts: Counts) -> Counts:
    return np.stack([drawn @ counts for drawn in drawn_rows(len(counts))])


def _interval(metric: "Metric", sums: Counts) -> tuple[float, float]:
    found = estimate(0.0, scores_of(metric, sums))
    return float(found.low or 0.0), float(found.high or 0.0)


def scores_of(metric: "Metric", sums: Shaped[np.ndarray, "rows counts"]) -> Float[np.ndarray, " rows"]:
    """The score, by one of `metrics`, of each row of summed counts, in percent."""
    return np.array([metric._aggregate_and_compute([row]).score for row in sums.tolist()])


def exact_share(translations: Sequence[str], references: Sequence[str]) -> float:
    """Share of translations that are the reference, in percent; white space at the ends does not count."""
    return metrics(names=("exact",))["exact"].corpus_score(list(translations), [list(references)]).score


def word_accuracy(
    sources: Sequence[str], translations: Sequence[str], references: References, lowercase: bool = False
) -> float | None:
    """Share of the references' words that stand at their place in the translation, in percent.

    None unless every reference has as many words as its source: only where each word is answered by one, as in
    tagging, does the place of a word say anything. None, too, where sentences have several references, or spaces do
    not separate words.
    """
    single = [reference for reference in references if isinstance(reference, str)]
    if len(single) < len(references) or is_unspaced(single) or is_unspaced(sources):
        return None
    right = total = 0
    for source, translation, reference in zip(sources, translations, single, strict=True):
        wanted = (reference.lower() if lowercase else reference).split()
        if len(wanted) != len(source.split()):
            return None
        written = (translation.lower() if lowercase else translation).split()
        right += sum(w == t for w, t in zip(wanted, written, strict=False))
        total += len(wanted)
    return 100 * right / max(1, total)


def by_source_length(
    sources: Sequence[str],
    translations: Sequence[str],
    references: References,
    lowercase: bool = False,
    tokenization: Tokenization | None = None,
) -> list[Bucket]:
    """BLEU of the shortest quarter of the sources, of the next, and so on; sources of one length stay together.

    Lengths are counted in words, or in characters where spaces do not separate words, or where all sources have as
    many words. The tokenization is chosen by the references if it is None.
    """
    tokenization, unspaced = tokenization or choose_tokenization(references), is_unspaced(sources)
    words = np.array([len(split_words(source, unspaced)) for source in sources])
    unit = unit_name(unspaced or len(set(words)) <= 1)
    lengths = words if unspaced or unit == "words" else np.array([len(source.strip()) for source in sources])
    buckets = []
    for rows in _parts(lengths):
        written, wanted = [translations[i] for i in rows], [references[i] for i in rows]
        bleu = metrics(lowercase, ("bleu",), tokenization)["bleu"].corpus_score(written, by_place(wanted)).score
        buckets.append(Bucket(int(lengths[rows].min()), int(lengths[rows].max()), len(rows), bleu, unit))
    return buckets


def _parts(lengths: np.ndarray) -> list[list[int]]:
    """Rows by length, in parts of about equal size, between which no length is divided."""
    order = np.argsort(lengths, kind="stable")
    in_order = lengths[order]
    wished = [len(part) for part in np.array_split(order, _BUCKETS)]
    # a length belongs to the part in which the most of it would lie, were it divided at its middle
    _, first, count = np.unique(in_order, return_index=True, return_counts=True)
    part_of_length = np.searchsorted(np.cumsum(wished), first + (count - 1) / 2, side="right")
    part = np.repeat(part_of_length, count)
    return [order[part == each].tolist() for each in np.unique(part)]
