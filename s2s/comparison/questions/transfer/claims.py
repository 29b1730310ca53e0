"""Claim: a pre-trained Transformer learns best from few examples."""

from collections.abc import Callable, Mapping, Sequence

from s2s.comparison.claims import claim_numbers, decide, describe_each, tested_pair
from s2s.comparison.report.numbers import number
from s2s.comparison.results import Claim
from s2s.comparison.traits import Traits
from s2s.evaluation.differences import Pairwise
from s2s.evaluation.gates import Gate, assess_pair
from s2s.evaluation.inference import Estimate


def learns_best(
    traits: Mapping[str, Traits],
    losses: Mapping[str, Estimate],
    alone: Mapping[str, float],
    pairs: Pairwise,
    gates: Mapping[str, Sequence[Gate]],
    variations: Callable[[str, str], Mapping[str, bool]],
    margin: float,
) -> Claim | None:
    """Decide whether Transformers have a lower loss than all other models after pre-training and fine-tuning.

    Args:
        traits: Traits of the candidates.
        losses: Validation loss after fine-tuning by model, in nats per token.
        alone: The same without pre-training.
        pairs: Differences of the negative losses of all pairs.
        gates: Validity checks by model.
        variations: Other choices with which the difference of two models keeps its sign.
        margin: Equivalence margin of two losses.

    Returns:
        The claim; None without a Transformer, or without another model.
    """
    transformers = [model for model in losses if traits[model].is_transformer]
    others = [model for model in losses if model not in transformers]
    if not transformers or not others:
        return None
    tests = [
        tested_pair(a, b, pairs, assess_pair(a, b, pairs, gates, margin=margin)) for a in transformers for b in others
    ]
    decision, shown = decide(tests), {model: number(loss.value, 2) for model, loss in losses.items()}
    without = {model: number(loss, 2) for model, loss in alone.items()}
    return Claim(
        name="transfers",
        measured="loss after short pre-training on the other direction and fine-tuning on few pairs (from scratch)",
        unit="nats per token",
        verdict=decision.verdict,
        sentence=f"The loss is {describe_each({m: shown[m] for m in transformers})} against "
        f"{describe_each({m: shown[m] for m in others})}{decision.because}. From scratch, it is "
        f"{describe_each(without)}.",
        numbers=claim_numbers(
            {model: losses.get(model) for model in traits}, "low", notes=without, gates=gates, pairs=pairs
        ),
        p=decision.p,
        test="" if decision.p is None else "t-test over seeds and sentences",
        figure="loss",
        stable=decision.stable(variations),
    )
