"""Exact match, CER and WER as sacreBLEU metrics, so that intervals and tests apply to them.

Edits are counted by jiwer: the minimum number of substitutions, insertions and deletions (Levenshtein distance) from
output to reference, divided by the number of units in all references. For targets of phones separated by white space,
the WER is the phone error rate.
"""

from collections.abc import Sequence
from typing import Any, Literal

import jiwer
from sacrebleu.metrics.base import Metric, Signature
from sacrebleu.metrics.base import Score as SacreScore

from s2s.process import package_version

Unit = Literal["sentences", "characters", "words"]

_UNITS: dict[Unit, str] = {"sentences": "exact", "characters": "CER", "words": "WER"}
_CUTS: dict[Unit, jiwer.Compose] = {
    "characters": jiwer.Compose([jiwer.ReduceToListOfListOfChars()]),
    "words": jiwer.Compose([jiwer.ReduceToListOfListOfWords()]),
}


class _RateSignature(Signature):
    def __init__(self, args: dict[str, Any]) -> None:
        super().__init__(args)
        unit = args["unit"]
        self.info |= {
            "case": "lc" if args["lowercase"] else "mixed",
            "unit": unit,
            "version": None if unit == "sentences" else f"jiwer-{package_version('jiwer')}",
        }


class Rate(Metric):
    """Exact match rate, or edits per reference character or word, in percent.

    White space at the ends is ignored. Between words it matters for `sentences` and `characters`.

    Args:
        unit: `sentences` counts exact matches; `characters` and `words` count edits.
        lowercase: Ignore case.

    Example:
        >>> round(Rate("words").corpus_score(["a dog runs"], [["the dog runs"]]).score, 1)
        33.3
    """

    _SIGNATURE_TYPE = _RateSignature

    def __init__(self, unit: Unit, lowercase: bool = False) -> None:
        super().__init__()
        self.unit: Unit = unit
        self.lowercase = lowercase

    def _preprocess_segment(self, sent: str) -> str:
        text = " ".join(sent.split()) if self.unit == "words" else sent.strip()
        return text.lower() if self.lowercase else text

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"references": refs}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict) -> list[int]:
        # The nearest reference, by edits per unit.
        found = [self._statistics(hypothesis, reference) for reference in ref_kwargs["references"]]
        better = max if self.unit == "sentences" else min
        return better(found, key=lambda stats: self._compute_score_from_stats(stats).score)

    def _statistics(self, hypothesis: str, reference: str) -> list[int]:
        if self.unit == "sentences":
            return [int(hypothesis == reference), 1]
        cut = _CUTS[self.unit]
        found = jiwer.process_words(reference, hypothesis, cut, cut)
        lost = found.substitutions + found.deletions
        return [lost + found.insertions, lost + found.hits]

    def _compute_score_from_stats(self, stats: Sequence[float]) -> SacreScore:
        part, whole = stats[0], stats[1]
        # Empty reference: any output is an error, as in sacreBLEU's TER.
        return SacreScore(_UNITS[self.unit], 100 * (part / whole if whole else float(part > 0)))

    def _aggregate_and_compute(self, stats: Sequence[Sequence[float]]) -> SacreScore:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])
