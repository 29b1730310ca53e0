"""Claim: attention translates texts that are longer than those it was trained on."""

from collections.abc import Mapping, Sequence

from s2s.comparison.claims import Pair, claim_numbers, compare_with_rival, decide, describe_each
from s2s.comparison.report.numbers import brief
from s2s.comparison.results import Claim
from s2s.comparison.traits import Traits
from s2s.evaluation.differences import paired
from s2s.evaluation.gates import Gate, failed
from s2s.evaluation.inference import Estimate, mean

Shares = Mapping[str, Sequence[float]]
"""BLEU on longer texts in percent of that on single sentences, by model; one value for each seed."""
NEAR = "the shortest texts beyond the training lengths"
"""Variation: the shortest group of longer texts."""


def translates_longer(
    traits: Mapping[str, Traits],
    estimates: Mapping[str, Estimate],
    shares: Mapping[str, Shares],
    gates: Mapping[str, Sequence[Gate]],
    learned: int,
    margin: float,
) -> Claim | None:
    """Decide whether models with attention keep their BLEU on texts longer than all training sources.

    A model keeps it if the share is significantly above 100 % less the margin, and loses it if it is below.

    Args:
        traits: Traits of the candidates.
        estimates: Kept share by model, in percent.
        shares: Kept shares by seed: of all longer texts, then of variations.
        gates: Validity checks by model.
        learned: Words of the longest training source.
        margin: Equivalence margin in percentage points.

    Returns:
        The claim; None without a model that has attention, or without longer texts.
    """
    attention = [model for model in estimates if traits[model].cross_attention]
    if not attention:
        return None

    def _pairs(own: Shares) -> list[Pair]:
        pairs = []
        for model in attention:
            above = paired([100 - margin] * len(own[model]), own[model])
            closed = [f"{model}: {gate.sentence}" for gate in failed(gates[model])]
            if closed or above is None:
                pairs.append(Pair(model, "", 0.0, 1.0, reason=closed[0] if closed else "one seed, so no test"))
            else:
                pairs.append(Pair(model, "", above.value, above.p()))
        return pairs

    deciding, *others = shares
    pairs = _pairs(shares[deciding])
    decision = decide(pairs)
    labels = {model: f"{model} ({brief(estimates[model].value, 2)} %)" for model in attention}
    beyond = ""
    if NEAR in shares:
        kept = {model: f"{mean(shares[NEAR][model]).value:.0f} %" for model in attention}
        beyond = f" On {NEAR}: {describe_each(kept)}."
    found = compare_with_rival(pairs, labels, f"{100 - margin:g} % of the BLEU", ("keeps", "keep"), ("more", "less"))
    return Claim(
        name="any-length",
        measured=f"BLEU on texts longer than the longest training source ({learned} words), in percent of the BLEU on "
        "single sentences",
        unit="%",
        verdict=decision.verdict,
        sentence=f"On texts longer than the longest training source ({learned} words), {found} on single sentences"
        f"{decision.because}.{beyond}",
        numbers=claim_numbers({model: estimates.get(model) for model in traits}, "high", gates=gates),
        p=decision.p,
        test="" if decision.p is None else f"t-test over seeds against {100 - margin:g} %",
        figure="share",
        stable={name: decide(_pairs(shares[name])).verdict == decision.verdict for name in others},
    )
