"""Decide claims about architectures from tests of pairs of candidates.

A claim is a sentence of a lecture about groups of models, such as "attention copies longer texts than a state of fixed
size". It holds here if it holds for every pair of models from the two groups, and it does not if a test contradicts it
for one pair.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from s2s.comparison.results import ClaimNumber
from s2s.comparison.spec import Comparison
from s2s.comparison.translation import has_cross_attention
from s2s.evaluation.differences import LEVEL
from s2s.evaluation.inference import Estimate, holm
from s2s.models.base import Seq2Seq
from s2s.recipe.installed import module_of
from s2s.recipe.schema import Section

Answer = Literal["yes", "no", "undecided"]

# Size of the vocabulary of a model whose parts are inspected; any size does.
_TOKENS = 8


@dataclass(frozen=True)
class Traits:
    """Parts of a model that claims are about.

    Attributes:
        recurrence: Computation of the encoder's states: not recurrent, step by step, or by a parallel scan.
        self_attention: True if encoder states attend to each other.
        cross_attention: True if the decoder attends to the encoder's states, instead of reading one vector.
    """

    recurrence: Literal["none", "steps", "scan"]
    self_attention: bool
    cross_attention: bool


def traits_of(comparison: Comparison) -> dict[str, Traits]:
    """Return the traits of each candidate, in the order of the command."""
    return {each.name: _traits(each.kind, each.settings) for each in comparison.candidates}


def _traits(kind: str, settings: Section) -> Traits:
    return traits(module_of(kind).build(settings, _TOKENS, _TOKENS))


def traits(model: Seq2Seq) -> Traits:
    """Inspect the traits of a model.

    Example:
        >>> from s2s.models.transformer import Settings, build
        >>> traits(build(Settings(width=8, heads=2), 9, 9))
        Traits(recurrence='none', self_attention=True, cross_attention=True)
    """
    token = torch.zeros((1, 1), dtype=torch.long)
    layers = model.encoder.attention_weights(token, torch.ones_like(token, dtype=torch.bool)).shape[1]
    return Traits(model.encoder.recurrence, layers > 0, has_cross_attention(model))


@dataclass(frozen=True)
class Pair:
    """Test of one pair of models on a claim.

    Attributes:
        ahead: Model that the claim says is better.
        behind: Model that the claim says is worse.
        difference: Measured difference, positive if the claim is right.
        p: P-value of the two-sided test of the difference; None for counts, which chance has no part in.
        equal: True if an equivalence test, corrected for the number of pairs, shows that the two do not differ.
    """

    ahead: str
    behind: str
    difference: float
    p: float | None
    equal: bool = False

    @property
    def holds(self) -> bool:
        """True if the claim holds for this pair, at the level of 5 %."""
        return self.difference > 0 and not self.equal and (self.p is None or self.p < LEVEL)


@dataclass(frozen=True)
class Decision:
    """Verdict on a claim, with the pair and the p-value that decided it."""

    verdict: Answer
    p: float | None = None
    pair: Pair | None = None


def decide(pairs: Sequence[Pair]) -> Decision:
    """Decide a claim about all pairs of two groups of models.

    The claim holds if it holds for each pair, each tested at the level of 5 %: an intersection–union test, which needs
    no correction (Berger 1982). It does not hold if for any pair the opposite is significant, or equality is shown;
    these p-values are corrected for the number of pairs (Holm 1979).

    Args:
        pairs: Tests of all pairs; with none, the claim is undecided.

    Example:
        >>> decide([Pair("transformer", "rnn", 2.0, 0.01), Pair("transformer", "lstm", 1.0, 0.04)]).verdict
        'yes'
        >>> decide([Pair("transformer", "rnn", 2.0, 0.01), Pair("transformer", "lstm", -1.0, 0.2)]).verdict
        'undecided'
    """
    if not pairs:
        return Decision("undecided")
    after = holm([1.0 if pair.p is None else pair.p for pair in pairs])
    against = [
        (pair, None if pair.p is None else p)
        for pair, p in zip(pairs, after, strict=True)
        if pair.equal or (pair.difference < 0 and (pair.p is None or p < LEVEL))
    ]
    if against:
        pair, p = min(against, key=lambda each: each[0].difference)
        return Decision("no", None if pair.equal else p, pair)
    weakest = max(pairs, key=lambda pair: (not pair.holds, -1.0 if pair.p is None else pair.p))
    return Decision("yes" if weakest.holds else "undecided", weakest.p, weakest)


def claim_numbers(
    values: Mapping[str, Estimate | float | None],
    best: Literal["high", "low", ""] = "",
    notes: Mapping[str, str] | None = None,
    at_least: Iterable[str] = (),
) -> list[ClaimNumber]:
    """Build the numbers of a claim.

    Args:
        values: Estimates by candidate, in the order of the command.
        best: Which numbers are good; empty if neither are.
        notes: Texts in place of missing numbers, or behind numbers, by candidate.
        at_least: Candidates whose estimate is a lower bound.
    """
    plain = {model: each.value if isinstance(each, Estimate) else each for model, each in values.items()}
    known = [value for value in plain.values() if value is not None]
    top = (max(known) if best == "high" else min(known)) if best and known else None
    bounds = set(at_least)
    return [
        ClaimNumber(
            model=model,
            value=plain[model],
            low=each.low if isinstance(each, Estimate) else None,
            high=each.high if isinstance(each, Estimate) else None,
            at_least=model in bounds,
            note=(notes or {}).get(model, ""),
            best=top is not None and plain[model] == top,
        )
        for model, each in values.items()
    ]
