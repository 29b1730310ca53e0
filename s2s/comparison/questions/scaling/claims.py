"""Claim: a larger model gains more if it is a Transformer."""

from collections.abc import Mapping, Sequence

from s2s.comparison.claims import Traits, claim_numbers, decide, of_each, tested_pair
from s2s.comparison.report.numbers import number
from s2s.comparison.results import Claim
from s2s.evaluation.differences import Pairwise
from s2s.evaluation.gates import Gate, beside
from s2s.evaluation.inference import Estimate


def gains_more(
    traits: Mapping[str, Traits],
    exponents: Mapping[str, Estimate],
    pairs: Pairwise,
    gates: Mapping[str, Sequence[Gate]],
    margin: float,
) -> Claim | None:
    """Decide whether the losses of Transformers fall faster with size than those of all other models.

    Args:
        traits: Traits of the candidates.
        exponents: Exponent b of the fitted law by model.
        pairs: Differences of the exponents of all pairs.
        gates: Validity checks by model.
        margin: Difference of two exponents that counts as equal.

    Returns:
        The claim; None without a Transformer, or without another model.
    """
    transformers = [model for model in exponents if traits[model].is_transformer]
    others = [model for model in exponents if model not in transformers]
    if not transformers or not others:
        return None
    decision = decide(
        [tested_pair(a, b, pairs, beside(a, b, pairs, gates, margin=margin)) for a in transformers for b in others]
    )
    shown = {model: number(b.value, 2) for model, b in exponents.items()}
    return Claim(
        name="scales",
        measured="exponent b of loss = E + a · N^−b, N parameters without embeddings",
        verdict=decision.verdict,
        sentence=f"The exponent is {of_each({m: shown[m] for m in transformers})} against "
        f"{of_each({m: shown[m] for m in others})}{decision.because}.",
        numbers=claim_numbers({model: exponents.get(model) for model in traits}, "high", gates=gates),
        p=decision.p,
        test="" if decision.p is None else "Wald test",
        figure="parameters",
    )
