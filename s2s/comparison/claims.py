"""Decide claims about architectures from tests of pairs of candidates.

A claim is a sentence of a lecture about groups of models, such as "attention copies longer texts than a state of fixed
size". It holds here if it holds for every pair of models from the two groups, and it does not if a test contradicts it
for one pair.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from s2s.comparison.paired_tests import listed
from s2s.comparison.results import ClaimNumber, Verdict
from s2s.comparison.spec import Candidate, Comparison
from s2s.comparison.speed_benchmark import MARGIN, SpeedBenchmark
from s2s.comparison.traits import Traits
from s2s.comparison.translation import has_cross_attention
from s2s.evaluation.differences import LEVEL, Pairwise
from s2s.evaluation.gates import Assessment, Gate, failed
from s2s.evaluation.inference import Estimate, holm
from s2s.models.base import Seq2Seq
from s2s.recipe.installed import module_of
from s2s.recipe.schema import Section
from s2s.tasks.translation.recipe import Recipe

Answer = Literal["yes", "no", "undecided"]

# Words in place of a number's verdict, by failed validity check; a training that is not over is "still learning".
_REASONS = {
    "translates": "too weak to judge",
    "uses its source": "ignores its source",
    "above chance": "not above baseline",
    "trains": "training failed",
    "rate inside its grid": "rate at end of range",
    "all sizes": "sizes missing",
}
# Size of the vocabulary of a model whose parts are inspected; any size does.
_TOKENS = 8


def traits_of(comparison: Comparison) -> dict[str, Traits]:
    """Return the traits of each candidate, in the order of the command."""
    return {each.name: _traits(each.kind, each.settings) for each in comparison.candidates}


def traits_in_words(candidate: Candidate) -> str:
    """Describe the parts of a candidate, such as `recurrent + attention`; empty for tasks without claims."""
    return _traits(candidate.kind, candidate.settings).in_words if isinstance(candidate.recipe, Recipe) else ""


def _traits(kind: str, settings: Section) -> Traits:
    return traits(module_of(kind).build(settings, _TOKENS, _TOKENS))


def traits(model: Seq2Seq) -> Traits:
    """Inspect the traits of a model.

    Example:
        >>> from s2s.models.transformer import Settings, build
        >>> traits(build(Settings(width=8, heads=2), 9, 9)).in_words
        'self-attention'
    """
    token = torch.zeros((1, 1), dtype=torch.long)
    layers = model.encoder.self_attention_weights(token, torch.ones_like(token, dtype=torch.bool)).shape[1]
    # by name, because models may have modules of their own for it
    convolution = any("conv" in type(module).__name__.lower() for module in model.encoder.modules())
    encoder, decoder = model.encoder.recurrence, model.decoder.recurrence
    return Traits(encoder, layers > 0, has_cross_attention(model), convolution, decoder)


@dataclass(frozen=True)
class Pair:
    """Test of one pair of models on a claim.

    Attributes:
        ahead: Model that the claim says is better.
        behind: Model that the claim says is worse.
        difference: Measured difference, positive if the claim is right.
        p: P-value of the two-sided test of the difference; None for counts, which are not random.
        equal: True if an equivalence test, corrected for the number of pairs, shows that the two do not differ.
        reason: Failed validity check, because of which the pair decides nothing; its `p` is 1.
    """

    ahead: str
    behind: str
    difference: float
    p: float | None
    equal: bool = False
    reason: str = ""

    @property
    def holds(self) -> bool:
        """True if the claim holds for this pair, at the level of 5 %."""
        return self.difference > 0 and not self.equal and (self.p is None or self.p < LEVEL)


def tested_pair(ahead: str, behind: str, pairs: Pairwise, found: Assessment) -> Pair:
    """Return a question's test of a pair of models as evidence on a claim.

    Args:
        ahead: Model that the claim says is better.
        behind: Model that the claim says is worse.
        pairs: Differences of all pairs, where higher is better.
        found: Assessment of `ahead` compared with `behind`, with the validity checks of both.
    """
    difference, _ = pairs.compare(ahead, behind)
    if difference is None or found.standing not in ("better", "worse", "tie", "undecided"):
        reason = f"{ahead} against {behind}: {found.reasons[0]}" if found.reasons else "not measured"
        return Pair(ahead, behind, 0.0, 1.0, reason=reason)
    return Pair(ahead, behind, difference.value, difference.p(), found.standing == "tie")


def speed_pair(benchmark: SpeedBenchmark, ahead: str, behind: str) -> Pair:
    """Return the test of two speeds as evidence on a claim; the difference is that of their logarithms."""
    difference, _ = benchmark.pairs.compare(ahead, behind)
    if difference is None:
        return Pair(ahead, behind, 0.0, 1.0, reason="not measured in the same rounds")
    if not (steady := benchmark.steady(ahead, behind)).passed:
        return Pair(ahead, behind, 0.0, 1.0, reason=steady.sentence)
    equal = len(benchmark.pairs) * difference.equivalence_p(math.log1p(MARGIN)) < LEVEL
    return Pair(ahead, behind, difference.value, difference.p(), equal)


@dataclass(frozen=True)
class Decision:
    """Verdict on a claim.

    Attributes:
        verdict: Verdict.
        p: P-value that decided it; None for counts, and if equality decided.
        pair: Pair that decided it, or that leaves it undecided.
        pairs: All pairs that the verdict rests on: each of them if the claim holds, those with a significant opposite
            if it does not.
    """

    verdict: Answer
    p: float | None = None
    pair: Pair | None = None
    pairs: tuple[Pair, ...] = ()

    @property
    def because(self) -> str:
        """Ending of a sentence: the failed check or the p-value that leaves a claim undecided; else empty."""
        if self.verdict != "undecided" or self.pair is None:
            return ""
        if self.pair.reason:
            return f" ({self.pair.reason})"
        return "" if self.p is None else f" (p = {self.p:.2g})"

    def stable(self, variations: Callable[[str, str], Mapping[str, bool]]) -> dict[str, bool]:
        """Return whether the verdict stays the same with other choices.

        A claim that holds needs the sign of every pair, one that does not hold needs that of one pair against it.

        Args:
            variations: Other choices, and whether the difference of two models keeps its sign with each.

        Returns:
            Whether it stays, by choice; empty if the claim is undecided, or if equality decides it.

        Example:
            With BLEU instead of the loss, `conv` is no longer ahead of `transformer`, but `lstm` still is:

            >>> tests = [Pair("transformer", "conv", -2.0, 0.001), Pair("transformer", "lstm", -1.0, 0.001)]
            >>> decide(tests).stable(lambda ahead, behind: {"BLEU": behind == "lstm"})
            {'BLEU': True}
        """
        if self.pair is None or self.verdict == "undecided" or self.pair.equal:
            return {}
        signs = [variations(pair.ahead, pair.behind) for pair in self.pairs]
        known = [name for name in signs[0] if all(name in own for own in signs)]
        enough = all if self.verdict == "yes" else any
        return {name: enough(own[name] for own in signs) for name in known}


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
    against = _find_exceptions(pairs)
    if against:
        pair, p = min(against, key=lambda each: each[0].difference)
        opposite = tuple(each for each, _ in against if not each.equal)
        return Decision("no", None if pair.equal else p, pair, opposite)
    weakest = max(pairs, key=lambda pair: (not pair.holds, -1.0 if pair.p is None else pair.p))
    verdict = "yes" if weakest.holds else "undecided"
    return Decision(verdict, None if weakest.reason else weakest.p, weakest, tuple(pairs) if weakest.holds else ())


def _find_exceptions(pairs: Sequence[Pair]) -> list[tuple[Pair, float | None]]:
    """Return the pairs for which the claim does not hold, with their corrected p-values."""
    after = holm([1.0 if pair.p is None else pair.p for pair in pairs])
    return [
        (pair, None if pair.p is None else p)
        for pair, p in zip(pairs, after, strict=True)
        if pair.equal or (pair.difference < 0 and (pair.p is None or p < LEVEL))
    ]


def predicate(models: Sequence[str], one: str, many: str) -> str:
    """Join names with a verb in the singular or plural.

    Example:
        >>> predicate(["rnn", "lstm"], "waits", "wait")
        'rnn and lstm wait'
    """
    return f"{listed(models)} {one if len(models) == 1 else many}"


def compare_with_rival(
    pairs: Sequence[Pair],
    labels: Mapping[str, str],
    rival: str,
    verb: tuple[str, str],
    words: tuple[str, str],
) -> str:
    """Describe which models are ahead of a rival, which are behind it, and which tests decide neither.

    If the claim does not hold for all pairs, both directions are tested after Holm's correction over the pairs.

    Args:
        pairs: Tests of the models, each `ahead`, against the same rival.
        labels: Names of the models in the sentence, such as `rnn (0.27 ms)`.
        rival: Name of the rival in the sentence.
        verb: Verb of the sentence in the singular and plural.
        words: Comparatives of models that are ahead, and behind.

    Example:
        >>> tests = [Pair("rnn", "transformer", -1.0, 0.001), Pair("conv", "transformer", 1.0, 0.001)]
        >>> compare_with_rival(tests, {}, "transformer", ("trains", "train"), ("faster", "slower"))
        'conv trains faster than transformer; rnn trains slower'
    """
    against = [pair for pair, _ in _find_exceptions(pairs)]
    after = holm([1.0 if pair.p is None else pair.p for pair in pairs])
    all_hold = all(pair.holds for pair in pairs)
    groups: dict[str, list[str]] = {"ahead": [], "behind": [], "equal": [], "untested": [], "open": []}
    for pair, p in zip(pairs, after, strict=True):
        if pair.reason:
            side = "untested"
        elif pair.equal:
            side = "equal"
        elif pair.holds and (all_hold or pair.p is None or p < LEVEL):
            side = "ahead"
        else:
            side = "behind" if pair in against else "open"
        groups[side].append(labels.get(pair.ahead, pair.ahead))
    than, clauses = f" than {rival}", list[str]()
    for side, word in zip(("ahead", "behind"), words, strict=True):
        if groups[side]:
            clauses.append(f"{predicate(groups[side], *verb)} {word}{'' if clauses else than}")
    for side, ending in (
        ("equal", f"equal to {rival}"),
        ("open", f"not significantly different from {rival}"),
        ("untested", "not tested"),
    ):
        if groups[side]:
            clauses.append(f"{predicate(groups[side], 'is', 'are')} {ending}")
    return "; ".join(clauses)


def describe_each(texts: Mapping[str, str]) -> str:
    """Join texts with the names of their models; models with equal texts are named together.

    Example:
        >>> describe_each({"rnn": "48", "conv": "0", "transformer": "0"})
        '48 (rnn) and 0 (conv, transformer)'
    """
    models: dict[str, list[str]] = {}
    for model, text in texts.items():
        models.setdefault(text, []).append(model)
    return listed([f"{text} ({', '.join(names)})" for text, names in models.items()])


def estimates_of(findings: Iterable[Verdict | None], row: str) -> dict[str, Estimate]:
    """Return the estimates of a row of the table of verdicts, by model; models without one are missing."""
    return {
        each.model: Estimate(each.value, each.low, each.high)
        for each in findings
        if each is not None and each.row == row and each.value is not None
    }


def claim_numbers(
    values: Mapping[str, Estimate | float | None],
    best: Literal["high", "low", ""] = "",
    notes: Mapping[str, str] | None = None,
    at_least: Iterable[str] = (),
    gates: Mapping[str, Sequence[Gate]] | None = None,
    pairs: Pairwise | None = None,
) -> list[ClaimNumber]:
    """Build the numbers of a claim.

    Args:
        values: Estimates by candidate, in the order of the command.
        best: Which numbers are good; empty if neither are.
        notes: Texts in place of missing numbers, or behind numbers, by candidate; they follow a failed check.
        at_least: Candidates whose estimate is a lower bound.
        gates: Validity checks by candidate; the number of one that fails is never the best.
        pairs: Differences of all pairs; models without a significant difference from the best are best, too.
    """
    plain = {model: each.value if isinstance(each, Estimate) else each for model, each in values.items()}
    closed = {model: failed(own) for model, own in (gates or {}).items()}
    known = [value for model, value in plain.items() if value is not None and not closed.get(model)]
    top = (max(known) if best == "high" else min(known)) if best and known else None
    first, bounds = [model for model, value in plain.items() if value == top and not closed.get(model)], set(at_least)
    if best == "high" and bounds & {*first}:
        # any other lower bound may be as high
        first += [model for model in plain if model in bounds - {*first} and not closed.get(model)]
    tied = {m for m in plain for n in first if pairs and not closed.get(m) and (pairs.compare(m, n)[1] or 0.0) >= LEVEL}
    words = {model: [_closed_in_words(closed.get(model, ())), (notes or {}).get(model, "")] for model in plain}
    return [
        ClaimNumber(
            model=model,
            value=plain[model],
            low=each.low if isinstance(each, Estimate) else None,
            high=each.high if isinstance(each, Estimate) else None,
            at_least=model in bounds,
            note=", ".join(filter(None, words[model])),
            best=top is not None and (model in first or model in tied),
        )
        for model, each in values.items()
    ]


def _closed_in_words(closed: Sequence[Gate]) -> str:
    """Return the reason of the first failed check that is not about the length of training."""
    names = [gate.name for gate in closed]
    return next((_REASONS[name] for name in names if name in _REASONS), "still learning" if names else "")
