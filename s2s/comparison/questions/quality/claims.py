"""Claim: the Transformer translates best."""

from collections.abc import Callable, Mapping, Sequence

from s2s.comparison.claims import claim_numbers, decide, describe_each, tested_pair
from s2s.comparison.paired_tests import listed
from s2s.comparison.report.numbers import number
from s2s.comparison.results import Claim
from s2s.comparison.traits import Traits
from s2s.evaluation.differences import LEVEL, Pairwise
from s2s.evaluation.gates import TIE, Gate, assess_pair
from s2s.evaluation.inference import Estimate


def translates_best(
    traits: Mapping[str, Traits],
    scores: Mapping[str, Estimate],
    pairs: Pairwise,
    gates: Mapping[str, Sequence[Gate]],
    variations: Callable[[str, str], Mapping[str, bool]],
) -> Claim | None:
    """Decide whether Transformers have a higher BLEU than all other models.

    Args:
        traits: Traits of the candidates.
        scores: BLEU by model.
        pairs: Differences of all pairs.
        gates: Validity checks by model.
        variations: Other choices with which the difference of two models keeps its sign.

    Returns:
        The claim; None without a Transformer, or without another model.
    """
    transformers = [model for model in scores if traits[model].is_transformer]
    others = [model for model in scores if model not in transformers]
    if not transformers or not others:
        return None
    tested = [tested_pair(a, b, pairs, assess_pair(a, b, pairs, gates)) for a in transformers for b in others]
    decision = decide(tested)
    shown = {model: number(score.value) for model, score in scores.items()}
    sentence = f"BLEU is {describe_each({m: shown[m] for m in transformers})}"
    sentence += f" against {describe_each({m: shown[m] for m in others})}"
    if decision.pair and decision.pair.equal:
        sentence += f"; {decision.pair.behind} and {decision.pair.ahead} are equal within {TIE:g} BLEU"
        others = [(each.ahead, each.behind) for each in tested if not each.equal]
        if near := [behind for ahead, behind in others if (pairs.compare(ahead, behind)[1] or 0.0) >= LEVEL]:
            sentence += f", {listed(near)} may be, too"
    return Claim(
        name="translates-best",
        measured="BLEU on the test set",
        unit="BLEU",
        verdict=decision.verdict,
        sentence=f"{sentence}{decision.because}.",
        numbers=claim_numbers({model: scores.get(model) for model in traits}, "high", gates=gates),
        p=decision.p,
        test="" if decision.p is None else "t-test over seeds and sentences",
        figure="scores",
        stable=decision.stable(variations),
    )
