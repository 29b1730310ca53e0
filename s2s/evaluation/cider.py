"""CIDEr-D, how much a caption agrees with what several people wrote of an image (Vedantam et al. 2015, section 7).

Of each length n from 1 to 4, a sentence is a vector with a number for each n-gram: how often it has it, times
log(images / images whose references have it), so that what is said of every image says nothing of one. Of a caption c
and the references s_1 … s_m of its image,

    CIDEr-D = 10 · mean over n of mean over j of  Σ min(c, s_j) · s_j / (‖c‖ ‖s_j‖) · exp(−(l_c − l_j)² / 2σ²)

with σ = 6 and lengths l. The minimum is the clipping and the last factor the penalty that make the D of the name: both
are against captions that say a frequent thing again and again. As papers do, a hundred times the number is told: equal
sentences, one reference each, have 1,000.

Sentences are lower-cased and cut into words without punctuation, and into characters without it where spaces do not
separate words. The authors' program (pycocoevalcap) does so with
Stanford's tokenizer, in Java, which also cuts "don't" and "dog's" in two; of sentences that are cut already, both
programs give the same numbers.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from sacrebleu.metrics.base import Metric, Signature
from sacrebleu.metrics.base import Score as SacreScore

_LONGEST = 4
_SIGMA = 6.0
_WORDS = re.compile(r"\w+(?:[-'’]\w+)*")

Ngrams = Counter[tuple[str, ...]]


class _CiderSignature(Signature):
    def __init__(self, args: dict[str, Any]) -> None:
        super().__init__(args)
        self.info |= {"case": "lc", "n": str(_LONGEST), "sigma": f"{_SIGMA:g}"}
        if args["unspaced"]:
            self.info["unit"] = "characters"


class Cider(Metric):
    """CIDEr-D in the form of sacreBLEU's metrics, so that intervals and tests take it as others.

    How frequent an n-gram is, the references of all images tell; of a single image, nothing can be told, and it has 0.
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
        """The mean over n of the clipped cosine of two sentences, times the penalty on unequal lengths."""
        similar = 0.0
        for one, other in zip(self._weighed(written), self._weighed(reference), strict=True):
            sizes = math.hypot(*one.values()) * math.hypot(*other.values())
            shared = sum(min(weight, other[ngram]) * other[ngram] for ngram, weight in one.items() if ngram in other)
            similar += shared / sizes if sizes else 0.0
        return similar / _LONGEST * math.exp(-((_length(written) - _length(reference)) ** 2) / (2 * _SIGMA**2))

    def _weighed(self, ngrams: Ngrams) -> list[dict[tuple[str, ...], float]]:
        """The vector of each length."""
        vectors: list[dict[tuple[str, ...], float]] = [{} for _ in range(_LONGEST)]
        for ngram, count in ngrams.items():
            # an n-gram that no reference has is as rare as one that a single image's have
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
    # in pairs of words, as the authors' program counts: no words are as long as one
    return sum(count for ngram, count in ngrams.items() if len(ngram) == 2)
