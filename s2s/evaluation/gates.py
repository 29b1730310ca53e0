"""What must be true of a measurement before anything is said of it.

A model that never looked at its source has no quality to compare, one that still learns has not shown its own, and a
rate at the end of its grid may not be the model's best. Each gate is a function of numbers alone; a cell that does not
pass one is no verdict, and says which.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from s2s.evaluation.differences import LEVEL, Difference, Pairwise
from s2s.evaluation.inference import Estimate, trend_p

SOURCE = 0.3
"""Nats per token that the right sources must be worth."""
TRANSLATES = 20.0
"""BLEU below which there is nothing to be lost."""
LEARNING = 0.05
"""Nats per token by which the loss may still fall with each doubling of the tokens."""
STEADY = 0.1
"""Share by which the machine's own speed may change while those are measured that are compared."""
CLOCK = 0.25
"""Share by which it may be slower than it ever was: processors change their clock, more is another program's doing."""
ROUNDS = 5
"""Rounds in which it must keep its speed."""
DRIFT = 0.01
"""How seldom times without a trend may be said to have one: a closed gate costs a verdict."""
BUSY = 1.5
"""How many times as long many texts must take as one alone."""
TIE = 1.0
"""BLEU that nobody cares about."""
Standing = Literal["better", "worse", "tie", "undecided", "still learning", "not measurable", ""]
"""What may be said of a model beside another one; empty where nothing is asked."""
# so many looks make a line
_LOOKS = 3
# so many texts are many
_MANY = 8


@dataclass(frozen=True)
class Gate:
    """Whether a measurement may be spoken of.

    Attributes:
        name: which condition.
        passed: whether it holds.
        sentence: what was found, with its numbers and what was asked for.
    """

    name: str
    passed: bool
    sentence: str


def failed(gates: Sequence[Gate]) -> list[Gate]:
    """Those that do not hold."""
    return [gate for gate in gates if not gate.passed]


def uses_its_source(right: float, exchanged: float, least: float = SOURCE) -> Gate:
    """Whether a translator translates: its loss is worse with the sources of other sentences.

    Args:
        right: its loss in nats per target token.
        exchanged: the same with sources exchanged between sentences of similar length.
        least: by how much the second must be higher.
    """
    gain = exchanged - right
    said = f"its loss is {gain:.2f} nats lower with the right sources than with exchanged ones (≥ {least:g} wanted)"
    # a loss that is no number proves nothing
    return Gate("uses its source", gain >= least, said if math.isfinite(gain) else "its loss is no number")


def translates(bleu: float, of: str = "on single sentences") -> Gate:
    """Whether a model translates well enough to be asked what spoils its translations, or mends them."""
    return Gate("translates", bleu >= TRANSLATES, f"{bleu:.1f} BLEU {of} (≥ {TRANSLATES:g} wanted)")


def slope_per_doubling(tokens: Sequence[float], losses: Sequence[float]) -> float | None:
    """By how much the validation loss changes with each doubling of the tokens, at the end; below 0 where it falls.

    A line through the looks of the last doubling against log₂ tokens, or through the last three where these are more;
    None with fewer than three.
    """
    if len(tokens) < _LOOKS:
        return None
    x, y = np.log2(np.asarray(tokens, dtype=float)), np.asarray(losses, dtype=float)
    first = min(int(np.searchsorted(x, x[-1] - 1 - 1e-9)), len(x) - _LOOKS)
    return float(np.polyfit(x[first:], y[first:], 1)[0])


def converged(tokens: Sequence[float], losses: Sequence[float], most: float = LEARNING) -> Gate:
    """Whether a training was over: its loss falls by less than `most` nats with each doubling of the tokens.

    Args:
        tokens: learned from at each look at the validation set, rising.
        losses: there, in nats per token.
        most: by which it may still fall.
    """
    slope = slope_per_doubling(tokens, losses)
    if slope is None:
        return Gate("converged", False, f"{len(tokens)} looks at the validation set do not say whether it still learns")
    if -slope < most:
        said = f"its loss changes by {slope:+.3f} nats with each doubling of the tokens (a fall below {most:g} wanted)"
        return Gate("converged", True, said)
    return Gate("converged", False, f"its loss still falls by {-slope:.2f} nats with each doubling of the tokens")


def rate_inside(rate: float, tried: Sequence[float], inside: bool) -> Gate:
    """Whether the learning rate chosen has worse ones on both sides, see `s2s.comparison.tuning`.

    Args:
        rate: the one chosen.
        tried: all rates at the depth chosen.
        inside: whether that is so.
    """
    grid = ", ".join(f"{each:g}" for each in sorted(tried))
    where = "inside" if inside else "at an end of"
    return Gate("rate inside its grid", inside, f"its rate {rate:g} lies {where} what was tried: {grid}")


def steady_rounds(*places: Mapping[int, Sequence[float]]) -> list[int]:
    """The rounds in which the machine kept its speed at each place, by how long the same product of matrices took.

    What is compared within a round does not care how fast the machine was in another one. What is timed has no part in
    the choice, so it favours nobody.

    Args:
        places: of each, seconds, whenever it was measured, by round.
    """
    held = []
    for references in places:
        fastest = min((seconds for each in references.values() for seconds in each), default=math.inf)
        held.append({i for i, each in references.items() if speed_changed(each, fastest) <= 0})
    return sorted(set.intersection(*held)) if held else []


def speed_changed(seconds: Sequence[float], fastest: float) -> float:
    """By which share the slowest of some products is beyond what a steady machine allows; 0 or less where it is not.

    Args:
        seconds: of one and the same product, while those were measured that are compared.
        fastest: the least it ever took.
    """
    return max(seconds) / min(min(seconds) * (1 + STEADY), fastest * (1 + CLOCK)) - 1


def machine_steady(
    places: Mapping[str, Mapping[int, Sequence[float]]], timed: Mapping[str, Mapping[int, float]] | None = None
) -> Gate:
    """Whether the machine kept its speed in enough rounds, and whoever was timed in them shows no trend.

    A product of matrices does not see all that makes a model slower. Tests take rounds for independent; those of a
    drift are not, and their mean is no model's time.

    Args:
        places: seconds of the same product, by place and round, see `steady_rounds`.
        timed: seconds of whatever was measured at them, or any unit of time, by its name and by round.
    """
    steady = steady_rounds(*places.values())
    tried = len(set[int]().union(*places.values()))
    said = f"in {len(steady)} of {tried} rounds it kept its speed within {STEADY:.0%} ({ROUNDS} wanted)"
    for place, references in places.items():
        every = [1000 * seconds for each in references.values() for seconds in each]
        if every:
            said += f"; the same product took {min(every):.3g} to {max(every):.3g} ms with {place}"
    drifting = []
    for name, own in (timed or {}).items():
        held = [i for i in steady if i in own]
        p = trend_p(held, [math.log(own[i]) for i in held])
        if p < DRIFT:
            times = own[held[-1]] / own[held[0]]
            drifting.append(
                f"{name} drifts: {times:.2f} times as long in round {held[-1]} as in {held[0]}, p = {p:.2g}"
            )
    return Gate("machine steady", len(steady) >= ROUNDS and not drifting, "; ".join([said, *drifting]))


def device_busy(alone: float, together: float, texts: int) -> Gate:
    """Whether a step's time is that of its work, not of launching its operations, of which a batch has no more.

    A GPU that waits for the processor takes the same time for one text and for a batch: who launches fewer operations
    is faster there, whatever they do.

    Args:
        alone: seconds of a step with one text.
        together: seconds of a step with a batch of them; of few texts, fewer than 8, nothing is said.
        texts: how many are in the batch.
    """
    times = together / alone
    said = f"{texts:,} texts at once take {times:.2f} times as long as one (≥ {BUSY:g} wanted)"
    return Gate("device busy", texts < _MANY or times >= BUSY, said)


def above_chance(score: Estimate, cheating: float) -> Gate:
    """Whether a score, in percent, is certainly better than the strongest answer's which does not do what is asked."""
    beyond = score.low is not None and score.low > cheating
    low = "no interval" if score.low is None else f"at least {score.low:.1f} %"
    return Gate("above chance", beyond, f"{score.value:.1f} % ({low}); without doing it {cheating:.1f} %")


def powerful(difference: Difference, margin: float = TIE, unit: str = "BLEU", digits: int = 1, pairs: int = 1) -> Gate:
    """Whether a difference that matters could have been seen.

    Args:
        difference: of two systems.
        margin: the smallest that matters.
        unit: of both.
        digits: of the difference, after the point.
        pairs: how many differences are tested together: the smallest p-value counts so many times (Holm 1979).
    """
    if difference.never_varied:
        said = (
            f"no run varies, and the least p-value that so few can give is {min(1.0, pairs * difference.least_p):.2g}"
        )
        return Gate("power", pairs * difference.least_p < LEVEL, said)
    seen = difference.detectable(level=LEVEL / pairs)
    said = f"a difference of {seen:.{digits}f} {unit} would have been seen in 80 % of such comparisons"
    return Gate("power", seen <= margin, said if seen <= margin else f"{said}, one of {margin:g} {unit} more seldom")


def standing(
    difference: Difference | None,
    gates: Sequence[Gate],
    p: float | None = None,
    margin: float = TIE,
    pairs: int = 1,
) -> Standing:
    """What may be said of the second of two systems: `better`, `worse`, `tie`, `undecided`, or why nothing.

    A tie needs a proof of its own, see `Difference.equivalence_p`: not to see a difference is not to see that there is
    none. A difference that is both significant and proven to be smaller than the margin is a tie.

    Args:
        difference: second minus first, where high is good; None where there are too few seeds.
        gates: of both systems.
        p: that decides, corrected for how many are compared (Holm 1979); the difference's own where it is None.
        margin: below it, nobody cares.
        pairs: how many could be called a tie: the p-value of a tie counts so many times (Bonferroni).
    """
    closed = failed(gates)
    if closed or difference is None:
        return "still learning" if closed and all(gate.name == "converged" for gate in closed) else "not measurable"
    if pairs * difference.equivalence_p(margin) < LEVEL:
        return "tie"
    if (difference.p() if p is None else p) < LEVEL:
        return "better" if difference.value > 0 else "worse"
    return "undecided"


@dataclass(frozen=True)
class Assessment:
    """How a candidate compares with the best of the others, in numbers.

    Attributes:
        standing: the outcome, see `standing`.
        rival: name of the other candidate; empty where there is none.
        difference: candidate minus rival, with its 95 % interval; None where there is none.
        unit: of the difference.
        p: p-value of the test that decides; None where nothing was tested.
        test: which test that is.
        reasons: failed validity checks, or what else explains the outcome.
        facts: further numbers, by name.
        variations: by what was chosen instead, whether the outcome is the same.
    """

    standing: Standing
    rival: str = ""
    difference: Estimate | None = None
    unit: str = ""
    p: float | None = None
    test: str = ""
    reasons: tuple[str, ...] = ()
    facts: Mapping[str, float | str] = field(default_factory=dict)
    variations: Mapping[str, bool] = field(default_factory=dict)

    @property
    def decided(self) -> bool:
        """Whether one of the two is better."""
        return self.standing in ("better", "worse")


EQUIVALENCE = "two one-sided tests"
"""Name of the test of a tie, see `Difference.equivalence_p`."""


def best_other(model: str, values: Mapping[str, float], gates: Mapping[str, Sequence[Gate]]) -> str:
    """Who of the others has most, of those whose gates are open where there are any; empty where there is no other.

    A model that is no measure for the others is not what they are compared with.
    """
    others = [name for name in values if name != model]
    return max([n for n in others if not failed(gates[n])] or others, key=lambda name: values[name], default="")


def beside(
    model: str,
    other: str,
    pairs: Pairwise,
    gates: Mapping[str, Sequence[Gate]],
    unit: str = "BLEU",
    margin: float = TIE,
    digits: int = 1,
    test: str = "t-test, Holm",
) -> Assessment:
    """Compare a candidate with another one, by the differences of all pairs.

    Args:
        model: the candidate.
        other: the best of the others; empty where there is none.
        pairs: differences of all pairs, with p-values corrected together.
        gates: validity checks of all candidates of the question: pairs of those that pass could be a tie.
        unit: of the differences.
        margin: equivalence margin.
        digits: of a difference that could have been seen, after the point.
        test: name of the test that gave the p-values.
    """
    if not other:
        return Assessment("not measurable", reasons=("no other model was measured",))
    difference, p = pairs.beside(model, other)
    # of a model that is no measure for the other, only its own conditions are told
    ties = math.comb(max(2, sum(not failed(own) for own in gates.values())), 2)
    outcome = standing(difference, gates[model], p, margin, ties)
    closed = {name: tuple(gate.sentence for gate in failed(gates[name])) for name in (model, other)}
    if closed[model]:
        return Assessment(outcome, reasons=closed[model])
    if closed[other]:
        return Assessment("not measurable", other, reasons=tuple(f"{other}: {each}" for each in closed[other]))
    if difference is None or p is None:
        return Assessment(outcome, other, reasons=("one seed, so no test over seeds",))
    found = Assessment(outcome, other, difference.estimate(), unit, p, test)
    if outcome == "tie":
        return replace(found, p=min(1.0, ties * difference.equivalence_p(margin)), test=EQUIVALENCE)
    if outcome == "undecided":
        return replace(found, reasons=(powerful(difference, margin, unit, digits, len(pairs)).sentence,))
    return found
