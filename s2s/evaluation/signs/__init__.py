"""Signs by which a bad model is known: each a number, where it may lie, a threshold with its reason, and a remedy.

A share is a sign where its whole interval lies above the threshold: what a few examples show may be chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from s2s.evaluation.inference import wilson

WORST = 10
"""How many of the worst answers are shown."""
_SHOWN = 100


@dataclass(frozen=True)
class Finding:
    """One thing that may be wrong.

    Attributes:
        name: what, in a few words.
        found: whether it was found.
        measured: the number, with what it counts and its interval.
        value: the number.
        low: the lower end of its 95 % interval; None where it has none.
        high: likewise.
        threshold: from which on it is a sign, with the reason.
        remedy: what to do, by keys of the recipe.
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
    """One of the worst answers: what was read (empty where no line can show it), answered and right; and how bad."""

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
    """What a task found in a run's answers.

    Attributes:
        summary: how many examples were looked at, and how good the answers are.
        signs: all that were looked for.
        worst: the worst answers, the very worst first.
        chance_loss: the loss, in nats per item, of one who knows how often each answer is right and reads nothing; None
            where the task cannot say.
    """

    summary: str = ""
    signs: Sequence[Finding] = ()
    worst: Sequence[WorstExample] = ()
    chance_loss: float | None = None


def share_sign(name: str, successes: int, trials: int, of_what: str, most: float, reason: str, remedy: str) -> Finding:
    """A sign that is found where a share, in percent, is above `most` with its whole interval.

    Args:
        name: of the sign.
        successes: how many.
        trials: of how many.
        of_what: what the successes are, after their number.
        most: percent.
        reason: why that much.
        remedy: what to do.
    """
    share = wilson(successes, trials)
    said = f"{share.value:.1f} % ({share.low:.1f} to {share.high:.1f}), {successes:,} of {trials:,} {of_what}"
    threshold = f"where the interval is above {most:g} %: {reason}"
    return Finding(name, trials > 0 and share.low > most, said, share.value, share.low, share.high, threshold, remedy)


def plain_sign(name: str, found: bool, measured: str, value: float, threshold: str, remedy: str) -> Finding:
    """A sign whose number is no share and has no interval."""
    return Finding(name, found, measured, value, None, None, threshold, remedy)
