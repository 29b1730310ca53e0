"""Text metrics with confidence intervals: BLEU, chrF2++, TER, exact, CER, WER.

CIDEr-D is available by name. References are compared as plain text, without the model's tokenization. A sentence may
have several references, and their number may differ between sentences: exact match counts an equal reference, and edit
rates use the nearest one. sacreBLEU's own metrics handle several references as usual.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Shaped

from s2s.data.scripts import is_unspaced, split_words, unit_name
from s2s.errors import UserError
from s2s.evaluation.inference import Counts, drawn_rows, estimate, wilson
from s2s.evaluation.tokenization import SPACED, SPLITS_AT_SPACES, Tokenization, choose_tokenization, tokenized_ter
from s2s.recipe import installed
from s2s.recipe.wording import suggestion

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric

NAMES = ("bleu", "chrf", "ter", "exact", "cer", "wer")
"""The default metrics of translations, in the order in which they are printed."""
KNOWN = (*NAMES, "cider")
"""All text metrics."""
_QUICK = ("bleu", "chrf", "exact", "cer", "wer")

_BUCKETS = 4

References = Sequence[str] | Sequence[Sequence[str]]
"""One reference per sentence, or several per sentence."""


@dataclass(frozen=True)
class Score:
    """A metric's value in percent, with its 95 % confidence interval.

    The interval is a bootstrap interval, except for exact match, which has the Wilson score interval.
    """

    name: str  # name for display, such as `BLEU`
    value: float  # value in percent
    low: float | None  # lower end of the interval; None for a single sentence
    high: float | None  # upper end of the interval; None for a single sentence
    signature: str  # sacreBLEU signature, which specifies the computation

    def __str__(self) -> str:
        ends = "no interval" if self.low is None else f"95 % interval {self.low:6.2f} to {self.high:6.2f}"
        return f"  {self.name:8} {self.value:6.2f}   {ends}   {self.signature}"


@dataclass(frozen=True)
class Bucket:
    """BLEU of a group of sentences with similar source length."""

    shortest: int  # shortest source length in the bucket; the ranges of buckets do not overlap
    longest: int  # longest source length
    sentences: int
    bleu: float  # BLEU in percent
    unit: str  # `words`, or `characters` if the sources are single words or have no spaces between words

    def __str__(self) -> str:
        span = f"{self.shortest}" if self.shortest == self.longest else f"{self.shortest}–{self.longest}"
        return f"{span} {self.unit}: {self.bleu:.1f}"


def check_metrics(names: Sequence[str], where: str) -> list[str]:
    """Check that metrics exist.

    Args:
        names: Names of metrics.
        where: Place of the names for messages, such as `--metric`.

    Returns:
        The names of installed metrics among them.

    Raises:
        UserError: There is no metric of a name.

    Example:
        >>> check_metrics(["bleu", "comet"], "--metric")
        ['comet']
    """
    others = [name for name in dict.fromkeys(names) if name not in KNOWN]
    if unknown := [name for name in others if name not in installed.metrics()]:
        remedy = suggestion(unknown[0][:60], [*KNOWN, *installed.metrics()])
        raise UserError(f"{unknown[0]!r:.80} is no metric", where, remedy)
    return others


def metrics(
    lowercase: bool = False,
    names: Sequence[str] = NAMES,
    tokenization: Tokenization = SPACED,
    sources: Sequence[str] | None = None,
) -> "dict[str, Metric]":
    """Create sacreBLEU metric objects.

    Args:
        lowercase: Ignore case. CIDEr-D always ignores it.
        names: Any of `KNOWN`, or of the installed metrics (`s2s.recipe.installed.metrics`).
        tokenization: Tokenizer of BLEU and TER. If spaces do not separate words, the word error rate is the character
            error rate and is called CER.
        sources: Sources of the translations, for installed metrics.

    Example:
        >>> bleu = metrics(names=["bleu"])["bleu"]
        >>> round(bleu.corpus_score(["a small dog runs fast"], [["a small dog runs far"]]).score, 1)
        66.9
    """
    # Importing sacreBLEU is slow, and most commands compute no score.
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    from s2s.evaluation.sacrebleu_metrics import Rate

    def cider() -> "Metric":
        from s2s.evaluation.cider import Cider

        return Cider(unspaced)

    tokenizer, unspaced = tokenization.tokenizer, tokenization.unspaced
    splits_at_spaces = tokenizer in SPLITS_AT_SPACES
    makers: dict[str, Callable[[], Metric]] = {
        "bleu": lambda: BLEU(lowercase=lowercase, tokenize=tokenizer),
        "chrf": lambda: CHRF(word_order=2, lowercase=lowercase),
        "ter": lambda: TER(case_sensitive=not lowercase) if splits_at_spaces else tokenized_ter(tokenizer, lowercase),
        "exact": lambda: Rate("sentences", lowercase),
        "cer": lambda: Rate("characters", lowercase),
        "wer": lambda: Rate("characters" if unspaced else "words", lowercase),
        "cider": cider,
    }
    found = {}
    for name in names:
        if name in makers:
            found[name] = makers[name]()
        else:
            from s2s.evaluation.metric_plugins import SentenceMean

            found[name] = SentenceMean(name, sources=sources)
    return found


def by_place(references: References) -> Any:
    """Transpose references to sacreBLEU's layout: columns of the first reference, the second …, or None.

    Example:
        >>> by_place([["a", "b"], ["c"]])
        [['a', 'c'], ['b', None]]
    """
    several = [[each] if isinstance(each, str) else each for each in references]
    return [list(column) for column in itertools.zip_longest(*several)]


def score(
    translations: Sequence[str],
    references: References,
    lowercase: bool = False,
    names: Sequence[str] = _QUICK,
    tokenization: Tokenization | None = None,
) -> dict[str, float]:
    """Compute metrics without confidence intervals, fast enough for validation, in percent.
    For the arguments see `scores`; all metrics except TER and CIDEr-D by default.

    Example:
        >>> score(["a dog", "two cats"], ["a dog", "two dogs"], names=["exact", "wer"])
        {'exact': 50.0, 'wer': 25.0}
    """
    asked = metrics(lowercase, names, tokenization or choose_tokenization(references))
    return {name: metric.corpus_score(list(translations), by_place(references)).score for name, metric in asked.items()}


def scores(
    translations: Sequence[str],
    references: References,
    lowercase: bool = False,
    names: Sequence[str] = NAMES,
    tokenization: Tokenization | None = None,
    sources: Sequence[str] | None = None,
) -> dict[str, Score]:
    """Compute metrics with 95 % confidence intervals.

    The sufficient statistics of each sentence are computed once and used for both the value and the bootstrap.

    Args:
        translations: Translations.
        references: One or several references per translation.
        lowercase: Ignore case.
        names: Metrics, see `metrics`.
        tokenization: Tokenizer of BLEU and TER; None: chosen by the script of the references.
        sources: Sources of the translations, for installed metrics.

    Example:
        >>> exact = scores(["a dog", "two cats"], ["a dog", "two dogs"], names=["exact"])["exact"]
        >>> exact.value, round(exact.low, 1), round(exact.high, 1)
        (50.0, 9.5, 90.5)
    """
    asked = metrics(lowercase, names, tokenization or choose_tokenization(references), sources)
    lines = {
        name: metric._extract_corpus_statistics(list(translations), by_place(references))
        for name, metric in asked.items()
    }
    counts = {name: np.array(rows) for name, rows in lines.items()}
    # All metrics share one bootstrap sample.
    ends = np.cumsum([rows.shape[1] for rows in counts.values()])
    sums = np.split(_resampled(np.hstack([*counts.values()])), ends[:-1], axis=1)
    found = {}
    for (name, metric), resampled in zip(asked.items(), sums, strict=True):
        whole = metric._aggregate_and_compute(lines[name])
        found_interval = interval(name, metric, counts[name], resampled.astype(counts[name].dtype))
        found[name] = Score(whole.name, whole.score, *found_interval, str(metric.get_signature()))
    return found


def score_lines(found: Mapping[str, Score]) -> list[str]:
    """Format scores for a terminal, one line per metric."""
    return list(dict.fromkeys(map(str, found.values())))


def interval(
    name: str, metric: "Metric", counts: Counts, resampled: Counts | None = None
) -> tuple[float, float] | tuple[None, None]:
    """Compute a 95 % confidence interval, in percent: Wilson's of exact match, else a bootstrap interval (Koehn 2004).

    Args:
        name: Name of the metric, see `metrics`.
        metric: The metric.
        counts: Counts of each sentence.
        resampled: Sums of 1,000 resamples of the sentences; None: they are drawn here.

    Returns:
        Both ends; None for a bootstrap over a single sentence, which has no spread.
    """
    if name == "exact":
        share = wilson(int(counts[:, 0].sum()), len(counts))
        return share.low, share.high
    if len(counts) < 2:
        return None, None
    found = estimate(0.0, scores_of(metric, _resampled(counts) if resampled is None else resampled))
    return float(found.low or 0.0), float(found.high or 0.0)


def _resampled(counts: Counts) -> Counts:
    return np.stack([drawn @ counts for drawn in drawn_rows(len(counts))])


def scores_of(metric: "Metric", sums: Shaped[np.ndarray, "rows counts"]) -> Float[np.ndarray, " rows"]:
    """Compute a metric, in percent, from summed counts with one resample per row."""
    return np.array([metric._aggregate_and_compute([row]).score for row in sums.tolist()])


def exact_share(translations: Sequence[str], references: Sequence[str]) -> float:
    """Compute the percentage of translations that equal their reference.

    Example:
        >>> exact_share(["a dog ", "two cats"], ["a dog", "two dogs"])
        50.0
    """
    return metrics(names=("exact",))["exact"].corpus_score(list(translations), [list(references)]).score


def word_accuracy(
    sources: Sequence[str], translations: Sequence[str], references: References, lowercase: bool = False
) -> float | None:
    """Compute the percentage of reference words at the same position in the output.

    Positions are meaningful only if each source word corresponds to one target word, as in tagging.

    Returns:
        The percentage. None if a reference has another number of words than its source, if sentences have several
        references, or if spaces do not separate words.

    Example:
        >>> word_accuracy(["the dog"], ["DET VERB"], ["DET NOUN"])
        50.0
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
    """Compute BLEU by source length, in four buckets of about equal size.

    Sources of equal length are always in the same bucket. Lengths are counted in words, or in characters if spaces do
    not separate words or if all sources have the same number of words.
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
    """Split row indices by length into nearly equal parts, without splitting a length."""
    order = np.argsort(lengths, kind="stable")
    in_order = lengths[order]
    wished = [len(part) for part in np.array_split(order, _BUCKETS)]
    # A length goes to the part that would have most of its rows: the part of its middle row.
    _, first, count = np.unique(in_order, return_index=True, return_counts=True)
    part_of_length = np.searchsorted(np.cumsum(wished), first + (count - 1) / 2, side="right")
    part = np.repeat(part_of_length, count)
    return [order[part == each].tolist() for each in np.unique(part)]
