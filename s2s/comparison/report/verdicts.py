"""Render a verdict as one line of text, the same for all questions, on the page, in tables and in Markdown."""

from s2s.comparison.report.numbers import brief, halves
from s2s.comparison.results import Verdict

_BESIDE = {
    "better": "better than {}",
    "worse": "worse than {}",
    "tie": "equal to {}",
    "undecided": "no difference from {} shown",
    "": "beside {}",
}


def describe(verdict: Verdict) -> str:
    """Describe how a candidate compares with its rival.

    Returns:
        The rival, the difference with its 95 % interval, the p-value, reasons and further numbers, for example
        `better than lstm: +3.1 BLEU (1.2 to 5.0), p = 0.002 (t-test, Holm); half-life (steps): 4.2`. Empty where
        nothing is known beside the estimate.
    """
    compared = [text for text in (_difference(verdict), _p(verdict)) if text]
    if verdict.rival and verdict.standing in _BESIDE:
        beside = _BESIDE[verdict.standing].format(verdict.rival)
        compared = [f"{beside}: {', '.join(compared)}" if compared else beside]
    facts = [f"{name}: {value if isinstance(value, str) else brief(value)}" for name, value in verdict.facts.items()]
    return "; ".join([*compared, *verdict.reasons, *facts])


def _difference(verdict: Verdict) -> str:
    if verdict.difference is None:
        return ""
    value, ends, power = halves(verdict.difference, verdict.difference_low, verdict.difference_high)
    ratio = verdict.difference_unit.startswith("times")
    sign = "+" if verdict.difference > 0 and not ratio else ""
    return f"{sign}{value}{power} {verdict.difference_unit}{f' ({ends}){power}' if ends else ''}"


def _p(verdict: Verdict) -> str:
    if verdict.p is None:
        return ""
    p = "p ≤ 0.001" if verdict.p <= 0.001 else f"p = {verdict.p:.2g}"
    return f"{p} ({verdict.test})" if verdict.test else p
