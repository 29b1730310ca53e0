"""Signs of a bad model, each with a measured value, a threshold and a remedy.

A percentage counts as a sign only if its whole confidence interval is above the threshold, because a few examples may
be due to chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from s2s.evaluation.inference import wilson

WORST = 10
"""Number of worst answers to show."""
_SHOWN = 100


@dataclass(frozen=True)
class Finding:
    """The result of checking for one sign.

    Attributes:
        name: Name of the sign.
        found: The sign was found.
        measured: The value in words, with its unit and interval.
        value: The value.
        low: Lower end of the 95 % confidence interval; None without an interval.
        high: Upper end of the interval.
        threshold: Threshold in words, with its reason.
        remedy: Remedy in terms of recipe keys.
    """

    name: str
    found: bool
    measured: str
    value: float
    low: float | None
    high: float | None
    threshold: str
    remedy: str

    def __str__(self) -> str:
        return f"  {self.name}: {self.measured}\n      a sign {self.threshold}\n      → {self.remedy}"


@dataclass(frozen=True)
class WorstExample:
    """One of the worst answers.

    Attributes:
        source: Input; empty if it is not text.
        output: Output of the model.
        reference: Correct answer.
        score: Score in words.
    """

    source: str
    output: str
    reference: str
    score: str

    def __str__(self) -> str:
        read = [f"      read     {_shortened(self.source)}"] if self.source else []
        answered = f"      answered {_shortened(self.output)}"
        return "\n".join([f"  {self.score}", *read, answered, f"      right    {_shortened(self.reference)}"])


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


@dataclass(frozen=True)
class Diagnostics:
    """Signs that a task found in a model's answers.

    Attributes:
        summary: Number of examples and quality of the answers.
        signs: All checked signs, found or not.
        worst: The worst answers, worst first.
        chance_loss: Loss in nats per item of predicting class or token frequencies without reading the input; None if
            the task has none.
    """

    summary: str = ""
    signs: Sequence[Finding] = ()
    worst: Sequence[WorstExample] = ()
    chance_loss: float | None = None


def share_sign(name: str, successes: int, trials: int, of_what: str, most: float, reason: str, remedy: str) -> Finding:
    """Check whether a percentage is above a threshold with its whole interval.

    Args:
        name: Name of the sign.
        successes: Number of affected items.
        trials: Number of items.
        of_what: Description of the affected items, for the message.
        most: Threshold in percent.
        reason: Reason for the threshold.
        remedy: Remedy.

    Returns:
        The finding, with a Wilson score interval.

    Example:
        >>> share_sign("cut off", 40, 50, "outputs ended at the limit", 2, "…", "…").found
        True
    """
    share = wilson(successes, trials)
    said = f"{share.value:.1f} % ({share.low:.1f} to {share.high:.1f}), {successes:,} of {trials:,} {of_what}"
    threshold = f"where the interval is above {most:g} %: {reason}"
    return Finding(name, trials > 0 and share.low > most, said, share.value, share.low, share.high, threshold, remedy)


def plain_sign(name: str, found: bool, measured: str, value: float, threshold: str, remedy: str) -> Finding:
    """Create a finding whose value is not a percentage and has no interval.

    Args:
        name: Name of the sign.
        found: The sign was found.
        measured: The value in words.
        value: The value.
        threshold: Threshold in words, with its reason.
        remedy: Remedy.
    """
    return Finding(name, found, measured, value, None, None, threshold, remedy)
