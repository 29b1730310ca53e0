"""CIDEr-D as a sacreBLEU metric."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from sacrebleu.metrics.base import Metric, Signature
from sacrebleu.metrics.base import Score as SacreScore

from s2s.data.scripts import is_mark

_LONGEST = 4
_SIGMA = 6.0
# All marks of letters are in this range.
_MARKS = "".join(filter(is_mark, map(chr, range(0x300, 0x20000))))
_WORD = rf"\w[\w{_MARKS}]*"
_WORDS = re.compile(rf"{_WORD}(?:[-'’]{_WORD})*")

Ngrams = Counter[tuple[str, ...]]


class _CiderSignature(Signature):
    def __init__(self, args: dict[str, Any]) -> None:
        super().__init__(args)
        self.info |= {"case": "lc", "n": str(_LONGEST), "sigma": f"{_SIGMA:g}"}
        if args["unspaced"]:
            self.info["unit"] = "characters"


class Cider(Metric):
    """CIDEr-D: consensus of a caption with several references (Vedantam et al. 2015, section 7).

    For each n-gram length n from 1 to 4, a sentence is a TF-IDF vector: the count of each n-gram times log(images /
    images whose references have it). For a caption c and the references s_1 … s_m of its image,

        CIDEr-D = 10 · mean over n of mean over j of  Σ min(c, s_j) · s_j / (‖c‖ ‖s_j‖) · exp(−(l_c − l_j)² / 2σ²)

    with σ = 6 and lengths l. The minimum (clipping) and the last factor (length penalty) are the D in the name: they
    prevent high scores of captions that repeat frequent words. As in papers, the value is multiplied by 100: equal
    sentences with one reference each have 1,000. Document frequencies come from the references of all images; a single
    image therefore scores 0.

    Sentences are lower-cased and split into words without punctuation, or into characters if spaces do not separate
    words (`unspaced`). The authors' program (pycocoevalcap) uses Stanford's tokenizer, in Java, which also splits
    "don't" and "dog's" in two. On tokenized sentences both programs give the same values.

    Example:
        >>> Cider().corpus_score(["a dog runs", "two cats"], [["a dog runs", "two cats"]]).score > 0
        True
    """

    _SIGNATURE_TYPE = _CiderSignature

    def __init__(self, unspaced: bool = False) -> None:
        super().__init__()
        self.unspaced = unspaced
        self._log_images = 0.0
        self._images_with: Counter[tuple[str, ...]] = Counter()

    def _preprocess_segment(self, sent: str) -> str:
        words = _WORDS.findall(sent.lower())
        return " ".join("".join(words) if self.unspaced else words)

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"references": [_ngrams(reference) for reference in refs]}

    def _cache_references(self, references: Sequence[Sequence[str]]) -> list[Any]:
        cache = super()._cache_references(references)
        self._log_images = math.log(max(1, len(cache)))
        self._images_with = Counter(ngram for image in cache for ngram in set().union(*image["references"]))
        return cache

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict) -> list[float]:
        written, references = _ngrams(hypothesis), ref_kwargs["references"]
        agreement = sum(self._agreement(written, reference) for reference in references)
        return [10 * agreement / max(1, len(references)), 1]

    def _agreement(self, written: Ngrams, reference: Ngrams) -> float:
        """Compute the mean over n of the clipped cosine, times the length penalty."""
        similar = 0.0
        for one, other in zip(self._weighed(written), self._weighed(reference), strict=True):
            sizes = math.hypot(*one.values()) * math.hypot(*other.values())
            shared = sum(min(weight, other[ngram]) * other[ngram] for ngram, weight in one.items() if ngram in other)
            similar += shared / sizes if sizes else 0.0
        return similar / _LONGEST * math.exp(-((_length(written) - _length(reference)) ** 2) / (2 * _SIGMA**2))

    def _weighed(self, ngrams: Ngrams) -> list[dict[tuple[str, ...], float]]:
        """Return the TF-IDF vector of each n-gram length."""
        vectors: list[dict[tuple[str, ...], float]] = [{} for _ in range(_LONGEST)]
        for ngram, count in ngrams.items():
            # An n-gram in no reference counts as one in the references of a single image.
            rare = self._log_images - math.log(max(1, self._images_with[ngram]))
            vectors[len(ngram) - 1][ngram] = count * rare
        return vectors

    def _compute_score_from_stats(self, stats: Sequence[float]) -> SacreScore:
        return SacreScore("CIDEr-D", 100 * stats[0] / max(1, stats[1]))

    def _aggregate_and_compute(self, stats: Sequence[Sequence[float]]) -> SacreScore:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])


def _ngrams(sentence: str) -> Ngrams:
    words = sentence.split()
    return Counter(tuple(words[i : i + n]) for n in range(1, _LONGEST + 1) for i in range(len(words) - n + 1))


def _length(ngrams: Ngrams) -> int:
    # Number of bigrams, as in the authors' program: an empty sentence is as long as one word.
    return sum(count for ngram, count in ngrams.items() if len(ngram) == 2)
