"""Claim: a Transformer needs positional encodings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from s2s.comparison.claims import Decision, Pair, claim_numbers, decide
from s2s.comparison.paired_tests import listed
from s2s.comparison.report.numbers import number
from s2s.comparison.results import Claim
from s2s.comparison.traits import Traits
from s2s.evaluation.gates import Gate, failed
from s2s.evaluation.inference import Estimate


@dataclass(frozen=True)
class Without:
    """Rise of the loss without positional encodings, in nats per token, and the p-value of its test."""

    rise: Estimate
    p: float | None


Signals = Mapping[str, Mapping[str, Without]]
"""Rises by side without positional encodings (`both`, `encoder`, `decoder`) and model."""


def needs_order(
    traits: Mapping[str, Traits],
    signals: Signals,
    gates: Mapping[str, Sequence[Gate]],
    bleu: Mapping[str, tuple[float, float]],
) -> Claim | None:
    """Decide whether the loss of Transformers rises if they are trained without positional encodings.

    Args:
        traits: Traits of the candidates.
        signals: Rises of the loss without positional encodings.
        gates: Validity checks of the trained models.
        bleu: BLEU of single sentences with and without positional encodings, by model, if measured.

    Returns:
        The claim; None without a Transformer that was trained without them.
    """
    rises = signals["both"]
    transformers = [model for model in rises if traits[model].is_transformer]
    if not transformers:
        return None

    def _decide(own: Mapping[str, Without]) -> Decision:
        pairs = []
        for model in transformers:
            closed, found = failed(gates.get(model, ())), own[model]
            if closed or found.p is None:
                pairs.append(Pair(model, "", 0.0, 1.0, reason=closed[0].sentence if closed else "one seed, so no test"))
            else:
                pairs.append(Pair(model, "", found.rise.value, found.p))
        return decide(pairs)

    decision = _decide(rises)
    clauses = []
    for model in sorted(rises, key=lambda model: model not in transformers):
        alone = [
            f"{side} alone {number(signals[side][model].rise.value, 2)}"
            for side in ("encoder", "decoder")
            if model in signals[side]
        ]
        rise = f"{number(rises[model].rise.value, 2)} nats per token in {model}"
        clauses.append(f"{rise} ({', '.join(alone)})" if alone else rise)
    sentence = f"Without positional encodings, the loss rises by {listed(clauses)}"
    scores = [f"{own:.1f} and {without:.1f} in {model}" for model, (own, without) in bleu.items()]
    if scores:
        sentence += f"; BLEU of single sentences, with and without, is {listed(scores)}"
    notes = {
        model: " / ".join(number(signals[side][model].rise.value, 2) for side in ("encoder", "decoder"))
        for model in rises
        if all(model in signals[side] for side in ("encoder", "decoder"))
    }
    return Claim(
        name="order",
        measured="rise of the loss without positions (in the encoder alone / in the decoder alone)",
        unit="nats per token",
        verdict=decision.verdict,
        sentence=f"{sentence}{decision.because}.",
        numbers=claim_numbers({m: rises[m].rise if m in rises else None for m in traits}, notes=notes),
        p=decision.p,
        test="" if decision.p is None else "Welch's t-test over seeds, Holm",
        figure="signals",
        stable={
            f"without positions in the {side} alone": _decide(signals[side]).verdict == decision.verdict
            for side in ("encoder", "decoder")
            if {*transformers} <= signals[side].keys()
        },
    )
