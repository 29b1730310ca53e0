"""Claim: a larger model gains more if it is a Transformer."""

from collections.abc import Callable, Mapping, Sequence

from s2s.comparison.claims import claim_numbers, decide, describe_each, tested_pair
from s2s.comparison.results import Claim
from s2s.comparison.traits import Traits
from s2s.evaluation.differences import Pairwise
from s2s.evaluation.gates import Gate, assess_pair
from s2s.evaluation.inference import Estimate


def gains_more(
    traits: Mapping[str, Traits],
    gains: Mapping[str, Estimate],
    pairs: Pairwise,
    gates: Mapping[str, Sequence[Gate]],
    variations: Callable[[str, str], Mapping[str, bool]],
    margin: float,
) -> Claim | None:
    """Decide whether the losses of Transformers fall faster with size than those of all other models.

    Args:
        traits: Traits of the candidates.
        gains: Reduction of the loss per doubling, by model, in percent.
        pairs: Differences of all pairs.
        gates: Validity checks by model.
        variations: Whether the difference of two models keeps its sign, by variation.
        margin: Difference that counts as equal, in percent.

    Returns:
        The claim; None without a Transformer, or without another model.
    """
    transformers = [model for model in gains if traits[model].is_transformer]
    others = [model for model in gains if model not in transformers]
    if not transformers or not others:
        return None
    decision = decide(
        [tested_pair(a, b, pairs, assess_pair(a, b, pairs, gates, margin=margin)) for a in transformers for b in others]
    )
    shown = {model: f"{gain.value:.0f} %" for model, gain in gains.items()}
    return Claim(
        name="scales",
        measured="reduction of the loss per doubling of the parameters without embeddings",
        unit="%",
        verdict=decision.verdict,
        sentence=f"A doubling of the size lowers the loss by {describe_each({m: shown[m] for m in transformers})}, and "
        f"by {describe_each({m: shown[m] for m in others})}{decision.because}.",
        numbers=claim_numbers({model: gains.get(model) for model in traits}, "high", gates=gates),
        p=decision.p,
        test="" if decision.p is None else "t-test of slopes",
        figure="parameters",
        stable=decision.stable(variations),
    )
