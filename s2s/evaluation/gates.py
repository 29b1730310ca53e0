"""Validity checks and outcomes: conditions on a measurement before a verdict.

Examples: a translator must use its source, its training must have converged, and its learning rate must not be at the
end of the grid. Each check is a function of numbers; a failed one replaces the verdict, unless more training would not
change it (`assess_pair`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from s2s.evaluation.differences import LEVEL, Difference, Pairwise
from s2s.evaluation.inference import Estimate, mean, trend_p

SOURCE = 0.3
"""Nats per token that the right sources must be worth."""
TRANSLATES = 20.0
"""BLEU below which a translator is too weak to be compared."""
LEARNING = 0.05
"""Nats per token by which the loss may still fall with each doubling of the tokens, whatever its value."""
POINTS = 1.0
"""Percentage points by which the probability of the right answer may still rise with each doubling of the tokens."""
DOUBLINGS = 4
"""Number of further doublings of the tokens in which a gap must not close: 16 times the training."""
STEADY = 0.1
"""Share by which the machine's speed may change while the candidates are measured."""
CLOCK = 0.25
"""Share by which it may be slower than its maximum: clocks vary, and larger changes come from other programs."""
ROUNDS = 5
"""Number of rounds in which it must keep its speed."""
DRIFT = 0.01
"""Level of the trend test; low, because a failed check costs a verdict."""
BUSY = 1.5
"""Least ratio of the time of a batch to that of a single text."""
TIE = 1.0
"""Equivalence margin in BLEU."""
Outcome = Literal["better", "worse", "tie", "undecided", "still learning", "not measurable", ""]
"""Outcome of the comparison of two models; empty if there is no question."""
# Least number of validations for a slope.
_LOOKS = 3
# Least size of a large batch.
_MANY = 8


@dataclass(frozen=True)
class Progress:
    """A validation score, the higher the better, and its gain with each doubling of the tokens at the end of training.

    Attributes:
        value: Score at the end, mean over seeds.
        gain: Gain, with its interval over seeds.
        highest: Highest possible score.
    """

    value: float
    gain: Estimate
    highest: float = math.inf

    @property
    def next_gain(self) -> float:
        """Gain that another doubling can bring: as much as the last one, up to the highest possible score."""
        return min(self.gain.value, self.highest - self.value)


@dataclass(frozen=True)
class Gate:
    """A validity check.

    Attributes:
        name: Name.
        passed: Whether it passed.
        sentence: Sentence with numbers and threshold.
        progress: Scores at the end of training by unit, if it checks whether training is over. If such a check fails,
            `assess_pair` still has a verdict if further training would not change it.
    """

    name: str
    passed: bool
    sentence: str
    progress: Mapping[str, Progress] = field(default_factory=dict, hash=False)


def failed(gates: Sequence[Gate]) -> list[Gate]:
    """Return the failed checks."""
    return [gate for gate in gates if not gate.passed]


def uses_its_source(right: float, exchanged: float, least: float = SOURCE) -> Gate:
    """Check that the loss is at least `least` nats per token lower with the right sources than with exchanged ones."""
    gain = exchanged - right
    said = f"its loss is {gain:.2f} nats lower with the right sources than with exchanged ones (≥ {least:g} required)"
    return Gate("uses its source", gain >= least, said if math.isfinite(gain) else "its loss is not finite")


def translates(bleu: float, of: str = "on single sentences") -> Gate:
    """Check that the BLEU is high enough to compare translations."""
    return Gate("translates", bleu >= TRANSLATES, f"{bleu:.1f} BLEU {of} (≥ {TRANSLATES:g} required)")


def slope_per_doubling(tokens: Sequence[float], losses: Sequence[float]) -> float | None:
    """Return the slope of the validation loss per doubling of tokens at the end; negative if it falls.

    Fitted to log₂ tokens over the validations of the last doubling, or the last three; None with fewer.
    """
    if len(tokens) < _LOOKS:
        return None
    x, y = np.log2(np.asarray(tokens, dtype=float)), np.asarray(losses, dtype=float)
    first = min(int(np.searchsorted(x, x[-1] - 1 - 1e-9)), len(x) - _LOOKS)
    return float(np.polyfit(x[first:], y[first:], 1)[0])


def converged(tokens: Sequence[float], losses: Sequence[float], points: float = POINTS) -> Gate:
    """Check that training is over, by the validation loss.

    A doubling of the tokens must lower the loss by less than `LEARNING`, and raise the geometric mean of the
    probabilities of the right tokens, exp(−loss), by less than `points` percentage points. So the lower the loss, the
    less it may fall: at 1.6 nats by 0.05, at 0.03 by 0.01. In eight kept trainings of translators, at losses from 0.04
    to 1.65 nats, a point of probability was worth 0.6 to 1.4 BLEU (`docs/comparison-lecture` and `-definitive`).

    Args:
        tokens: Training tokens at each validation, rising.
        losses: Validation losses in nats per token.
        points: Threshold of the probability: the margin of equivalence of what is compared, if that is BLEU.
    """
    slope = slope_per_doubling(tokens, losses)
    gained = slope_per_doubling(tokens, [100 * math.exp(-loss) for loss in losses])
    if slope is None or gained is None:
        return Gate("converged", False, f"too few validations ({len(tokens)}) to tell whether it still learns")
    if -slope < LEARNING and gained < points:
        said = f"its loss changes by {slope:+.3f} nats per doubling of the tokens (a fall below {LEARNING:g} required)"
        return Gate("converged", True, said)
    if -slope >= LEARNING:
        return Gate("converged", False, f"its loss still falls by {-slope:.2f} nats per doubling of the tokens")
    said = f"its loss still falls by {-slope:.3f} nats per doubling of the tokens"
    said += f", which raises the probability of the right token by {gained:.1f} points (< {points:g} required)"
    return Gate("converged", False, said)


def progress_of(
    tokens: Sequence[Sequence[float]], scores: Sequence[Sequence[float]], highest: float = math.inf
) -> Progress | None:
    """Return a score at the end of training and its gain per doubling, over seeds; None with too few validations.

    Args:
        tokens: Training tokens at each validation, by seed.
        scores: Scores at each validation, by seed; the higher the better.
        highest: Highest possible score.
    """
    gains = [slope_per_doubling(*each) for each in zip(tokens, scores, strict=True)]
    known = [gain for gain in gains if gain is not None]
    if len(known) < len(gains):
        return None
    return Progress(float(np.mean([own[-1] for own in scores])), mean(known), highest)


def improves_little(progress: Mapping[str, Progress | None], unit: str = "BLEU", margin: float = TIE) -> Gate:
    """Check that training is over, by a score: a doubling of the tokens gains less than the margin of equivalence.

    Args:
        progress: Scores by unit; None with too few validations. Those other than `unit` show whether a gap can close.
        unit: Unit of the score that decides.
        margin: Margin of equivalence of that score.
    """
    known = {name: each for name, each in progress.items() if each}
    if unit not in known:
        return Gate("converged", False, "too few validations to tell whether it still learns")
    own = known[unit]
    said = f"it gains {own.gain.value:.1f} {unit} per doubling of the tokens (< {margin:g} required)"
    if own.next_gain < own.gain.value:
        said += f"; at most {own.next_gain:.1f} remain up to {own.highest:g}"
    return Gate("converged", own.next_gain < margin, said, known)


def can_close(behind: Mapping[str, Progress], ahead: Mapping[str, Progress], doublings: int = DOUBLINGS) -> bool:
    """Return True unless the gap between two models remains with 2^`doublings` times the training.

    The model behind is given its gain per doubling at the end of training, at the upper end of its 95 % interval, for
    each doubling; the one ahead gains nothing. The gap must remain in all scores that both have: a score of
    translations may rise late, when its loss has fallen enough.
    """
    both = behind.keys() & ahead.keys()
    for unit in both:
        gap, most = ahead[unit].value - behind[unit].value, behind[unit].gain.high
        if most is None or gap <= 0 or doublings * max(0.0, most) >= gap:
            return True
    return not both


def rate_inside(rate: float, tried: Sequence[float], inside: bool) -> Gate:
    """Report whether the chosen learning rate has worse ones on both sides, see `s2s.comparison.tuning`."""
    grid = ", ".join(f"{each:g}" for each in sorted(tried))
    where = "inside" if inside else "at an end of"
    return Gate("rate inside its grid", inside, f"its rate {rate:g} lies {where} the range tried: {grid}")


def steady_rounds(*places: Mapping[int, Sequence[float]]) -> list[int]:
    """Return the rounds in which the machine kept its speed at each place.

    Speed is measured by the seconds of a fixed reference, by round, so the choice is independent of what is timed.
    """
    held = []
    for references in places:
        fastest = min((seconds for each in references.values() for seconds in each), default=math.inf)
        held.append({i for i, each in references.items() if speed_changed(each, fastest) <= 0})
    return sorted(set.intersection(*held)) if held else []


def speed_changed(seconds: Sequence[float], fastest: float) -> float:
    """Return by which share the slowest reference exceeds what a steady machine allows; 0 or less if steady.

    Args:
        seconds: Times of the reference around the measurements to compare.
        fastest: Shortest time ever measured.
    """
    return max(seconds) / min(min(seconds) * (1 + STEADY), fastest * (1 + CLOCK)) - 1


def machine_steady(
    places: Mapping[str, Mapping[int, Sequence[float]]], timed: Mapping[str, Mapping[int, float]] | None = None
) -> Gate:
    """Check that the machine kept its speed in enough rounds, without a trend in the measured times.

    Tests assume independent rounds, which a drift violates; the reference does not show all causes of a drift.

    Args:
        places: Seconds of the reference by place and round, see `steady_rounds`.
        timed: Measured times by name and round.
    """
    steady = steady_rounds(*places.values())
    tried = len(set[int]().union(*places.values()))
    said = f"the machine kept its speed within {STEADY:.0%} in {len(steady)} of {tried} rounds ({ROUNDS} required)"
    for place, references in places.items():
        every = [1000 * seconds for each in references.values() for seconds in each]
        if every:
            said += f"; the reference took {min(every):.3g} to {max(every):.3g} ms with {place}"
    drifting = []
    for name, own in (timed or {}).items():
        held = [i for i in steady if i in own]
        p = trend_p(held, [math.log(own[i]) for i in held])
        if p < DRIFT:
            times = own[held[-1]] / own[held[0]]
            drifting.append(
                f"{name} drifts: {times:.2f} times as long in round {held[-1]} as in round {held[0]}, p = {p:.2g}"
            )
    return Gate("machine steady", len(steady) >= ROUNDS and not drifting, "; ".join([said, *drifting]))


def device_busy(alone: float, together: float, texts: int) -> Gate:
    """Check that the time of a step is dominated by computation, not by kernel launches.

    Args:
        alone: Seconds of a step with one text.
        together: Seconds of a step with a batch.
        texts: Size of the batch; below 8 the check passes.
    """
    times = together / alone
    said = f"a batch of {texts:,} texts takes {times:.2f} times as long as one text (≥ {BUSY:g} required)"
    return Gate("device busy", texts < _MANY or times >= BUSY, said)


def above_chance(score: Estimate, cheating: float) -> Gate:
    """Check that a score, in percent, is significantly above the best shortcut baseline."""
    beyond = score.low is not None and score.low > cheating
    low = "no interval" if score.low is None else f"interval from {score.low:.1f} %"
    return Gate("above chance", beyond, f"{score.value:.1f} % ({low}); shortcut baseline {cheating:.1f} %")


def powerful(difference: Difference, margin: float = TIE, unit: str = "BLEU", digits: int = 1, pairs: int = 1) -> Gate:
    """Check that a difference of `margin` could have been detected, with `pairs` tests together (Holm 1979)."""
    if difference.never_varied:
        said = f"the runs do not vary, and so few can give no p-value below {min(1.0, pairs * difference.least_p):.2g}"
        return Gate("power", pairs * difference.least_p < LEVEL, said)
    seen = difference.detectable(level=LEVEL / pairs)
    said = f"a difference of {seen:.{digits}f} {unit} would be detected in 80 % of such comparisons"
    return Gate("power", seen <= margin, said if seen <= margin else f"{said}, one of {margin:g} {unit} less often")


def decide_outcome(
    difference: Difference | None, gates: Sequence[Gate], p: float | None = None, margin: float = TIE, pairs: int = 1
) -> Outcome:
    """Return the outcome of the second of two systems, or the reason why there is none.

    A tie needs an equivalence test (`Difference.equivalence_p`). A difference that is significant but within the margin
    is a tie.

    Args:
        difference: Second minus first, where higher is better; None with too few seeds.
        gates: Validity checks of both systems.
        p: Corrected p-value; None: that of the difference.
        margin: Equivalence margin.
        pairs: Number of possible ties: the equivalence p-value is multiplied by it (Bonferroni).
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
    """Comparison of a candidate with its best rival, in numbers."""

    standing: Outcome  # outcome, see `decide_outcome`
    rival: str = ""  # name of the other candidate; empty if there is none
    difference: Estimate | None = None  # candidate minus rival, with its 95 % interval
    unit: str = ""  # unit of the difference
    p: float | None = None  # p-value of the deciding test, named by `test`
    test: str = ""
    reasons: tuple[str, ...] = ()  # failed validity checks, or other explanations of the outcome
    facts: Mapping[str, float | str] = field(default_factory=dict)  # further numbers by name
    # by alternative choice, whether the outcome is the same
    variations: Mapping[str, bool] = field(default_factory=dict)

    @property
    def decided(self) -> bool:
        """True if one of the two is better."""
        return self.standing in ("better", "worse")


EQUIVALENCE = "two one-sided tests"
"""Name of the test of a tie, see `Difference.equivalence_p`."""


def best_other(model: str, values: Mapping[str, float], gates: Mapping[str, Sequence[Gate]]) -> str:
    """Return the rival with the highest value, if possible one with a verdict; empty if there is none."""
    others = [name for name in values if name != model]
    return max([n for n in others if not _blocking(gates[n])] or others, key=lambda name: values[name], default="")


def _blocking(gates: Sequence[Gate]) -> list[Gate]:
    """Failed checks without which there is no verdict, however large a difference is."""
    return [gate for gate in failed(gates) if not gate.progress]


def assess_pair(
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

    Where one of the two still learns, there is a verdict if more training would not change it: the gap cannot close
    (`can_close`), or both are equal and another doubling can bring both as much, within the margin.

    Args:
        model: The candidate.
        other: Its rival; empty if there is none.
        pairs: Differences of all pairs, with p-values corrected together.
        gates: Validity checks of all candidates; pairs of those that may have a verdict could be tied.
        unit: Unit of the differences.
        margin: Equivalence margin.
        digits: Decimal places of the detectable difference.
        test: Name of the test.
    """
    if not other:
        return Assessment("not measurable", reasons=("no other model was measured",))
    difference, p = pairs.compare(model, other)
    ties = math.comb(max(2, sum(not _blocking(own) for own in gates.values())), 2)
    blocked = any(_blocking(gates[name]) for name in (model, other))
    outcome = decide_outcome(difference, [], p, margin, ties)
    reasons: tuple[str, ...] = ()
    if any(failed(gates[name]) for name in (model, other)):
        # If there is no verdict, only the failed checks are reported.
        lasts = None if blocked else _lasting(outcome, model, other, gates, unit, margin)
        if lasts is None:
            found = _no_verdict(model, other, gates)
            if blocked or difference is None or found.standing != "still learning":
                return found
            by = f"{difference.value:+.{digits}f}".replace("-", "−")
            so_far = f"so far {by} {unit} compared with {other} ({'equal' if outcome == 'tie' else outcome})"
            return replace(found, reasons=(*found.reasons, so_far))
        reasons = (lasts,)
    if difference is None or p is None:
        return Assessment(outcome, other, reasons=("one seed, so no test over seeds",))
    found = Assessment(outcome, other, difference.estimate(), unit, p, test, reasons)
    if outcome == "tie":
        return replace(found, p=min(1.0, ties * difference.equivalence_p(margin)), test=EQUIVALENCE)
    if outcome == "undecided":
        return replace(found, reasons=(powerful(difference, margin, unit, digits, len(pairs)).sentence,))
    return found


def _no_verdict(model: str, other: str, gates: Mapping[str, Sequence[Gate]]) -> Assessment:
    """Report the failed checks of the candidate, or those of its rival."""
    if closed := failed(gates[model]):
        outcome = decide_outcome(None, closed)
        return Assessment(outcome, reasons=tuple(gate.sentence for gate in closed))
    return Assessment(
        "not measurable", other, reasons=tuple(f"{other}: {gate.sentence}" for gate in failed(gates[other]))
    )


def _lasting(
    outcome: Outcome, model: str, other: str, gates: Mapping[str, Sequence[Gate]], unit: str, margin: float
) -> str | None:
    """Return why further training would not change an outcome; None if it may."""
    progress = {name: next((g.progress for g in gates[name] if g.progress), {}) for name in (model, other)}
    if outcome == "tie":
        gains = [progress[name][unit].next_gain for name in (model, other) if unit in progress[name]]
        if len(gains) < 2 or abs(gains[0] - gains[1]) >= margin:
            return None
        return (
            f"both would gain about as much by another doubling of the tokens: {gains[0]:.1f} and {gains[1]:.1f} {unit}"
        )
    if outcome not in ("better", "worse"):
        return None
    behind, ahead = (model, other) if outcome == "worse" else (other, model)
    if can_close(progress[behind], progress[ahead]):
        return None
    times = f"with {2**DOUBLINGS} times the training"
    return f"and would still be {times}" if outcome == "worse" else f"and {behind} would not catch up {times}"
