"""Claim: gradients vanish in recurrent networks."""

from collections.abc import Mapping
from dataclasses import dataclass

from s2s.comparison.claims import Answer, Pair, claim_numbers, decide, describe_each, predicate
from s2s.comparison.paired_tests import listed
from s2s.comparison.questions.gradients.decay import Decays
from s2s.comparison.report.numbers import brief
from s2s.comparison.results import Claim
from s2s.comparison.traits import Traits
from s2s.evaluation.inference import Estimate

_STEPS = 32
"""Steps after which the sentence gives the remaining share of a gradient."""


@dataclass(frozen=True)
class Initialisations:
    """Decay of a model's gradients at its own initialisation and at others.

    Attributes:
        own: Decay at its own initialisation.
        words: Name of the varied parameter; empty without others.
        others: Decays by its value.
    """

    own: Decays
    words: str
    others: Mapping[float, Decays]


def vanishes(traits: Mapping[str, Traits], decays: Mapping[str, Initialisations]) -> Claim | None:
    """Decide whether the gradient of an input shrinks by a factor per step in untrained recurrent networks.

    Args:
        traits: Traits of the candidates.
        decays: Decays by model.

    Returns:
        The claim; None without a model that computes step by step.
    """
    recurrent = [model for model in decays if traits[model].recurrence == "steps"]
    if not recurrent:
        return None
    verdict = _decide([decays[model].own for model in recurrent])
    factors = {model: _factor(each.own) for model, each in decays.items()}
    ranges = {model: span for model, each in decays.items() if (span := _range(each))}
    notes = {model: _without_factor(each.own) for model, each in decays.items() if factors[model] is None}
    return Claim(
        name="vanishes",
        measured="factor per step of the gradient at the usual initialisation, before training; below 1 it vanishes "
        "(range over other initialisations)",
        verdict=verdict,
        sentence=_describe_remaining_gradient({model: decays[model] for model in recurrent}),
        numbers=claim_numbers({model: factors.get(model) for model in traits}, notes=notes | ranges),
        figure="input-gradients",
        stable={
            f"{model}, {each.words} {value:g}": _decide([other]) == verdict
            for model, each in decays.items()
            if model in recurrent
            for value, other in each.others.items()
        },
    )


def _describe_remaining_gradient(decays: Mapping[str, Initialisations]) -> str:
    left = {
        model: f"{brief(100 * factor.value**_STEPS, 2)} %"
        for model, each in decays.items()
        if (factor := _factor(each.own))
    }
    if not left:
        return "No recurrent network has a factor per step."
    sentence = f"At the usual initialisation, before training, {describe_each(left)} of a gradient remains after "
    sentence += f"{_STEPS} steps"
    if rest := [model for model in decays if model not in left]:
        sentence += f"; {predicate(rest, 'has', 'have')} no factor per step"
    varied = {model: each for model, each in decays.items() if each.others and _decide([each.own]) == "yes"}
    stopped = [m for m, each in varied.items() if any(_decide([other]) == "no" for other in each.others.values())]
    if stopped:
        sentence += f"; with another initialisation, it does not vanish in {listed(stopped)}"
    if lasting := [model for model in varied if model not in stopped]:
        sentence += f"; it vanishes with all tried initialisations in {listed(lasting)}"
    return f"{sentence}."


def _decide(decays: list[Decays]) -> Answer:
    sides = {"vanishes": 1.0, "explodes": -1.0, "neither": -1.0}
    return decide(
        [Pair("", "", sides[each.outcome], None) if each.outcome else Pair("", "", 0.0, 1.0) for each in decays]
    ).verdict


def _factor(decays: Decays) -> Estimate | None:
    return decays.factor if decays.is_exponential else None


def _without_factor(decays: Decays) -> str:
    if decays.reach < decays.span:
        return f"0 beyond {decays.reach} steps"
    return "no factor" if decays.outcome == "neither" else decays.outcome or ""


def _range(found: Initialisations) -> str:
    factors = [factor.value for each in found.others.values() if (factor := each.factor)]
    return f"{min(factors):.2f}–{max(factors):.2f}" if factors else ""
