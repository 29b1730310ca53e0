"""How measurements are sorted by model, and figures, intervals and tests put into words, the same way in every cell."""

from collections.abc import Mapping, Sequence

from s2s.experiments.contest import Contest, Measured, Task
from s2s.experiments.statistics import Estimate
from s2s.results import Series

# below it, a difference is called one
LEVEL = 0.05

BySeed = dict[int, Measured]
Row = list[str | float | int | None]


def by_model(contest: Contest, measured: Mapping[Task, Measured], part: str = "") -> dict[str, BySeed]:
    """One part's measurements by model, in the order of the command, and by seed, rising; models without are left out.

    Args:
        contest: gives the models.
        measured: of an experiment.
        part: which of the experiment's measurements.
    """
    found: dict[str, BySeed] = {}
    for model in contest.models:
        own = {task.seed or 0: m for task, m in measured.items() if (task.model, task.part) == (model, part)}
        if own:
            found[model] = dict(sorted(own.items()))
    return found


def in_words(estimate: Estimate, digits: int = 1) -> str:
    """`3.1 (1.2 to 5.0)`."""
    value = f"{estimate.value:.{digits}f}"
    if estimate.low is None or estimate.high is None:
        return value
    return f"{value} ({estimate.low:.{digits}f} to {estimate.high:.{digits}f})"


def excludes_zero(estimate: Estimate) -> bool:
    """Whether the interval says that there is a difference at all."""
    return estimate.low is not None and estimate.high is not None and not estimate.low <= 0 <= estimate.high


def p_in_words(p: float) -> str:
    """`p < 0.001`, `p = 0.031`, `p = 0.31`."""
    if p <= 0.001:
        return "p ≤ 0.001"
    return f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def seeds_in_words(count: int) -> str:
    """`1 seed`, `3 seeds`."""
    return "1 seed" if count == 1 else f"{count} seeds"


def too_few(count: int) -> str:
    """Why there is no test over seeds; for up to two of them."""
    return f"{seeds_in_words(count)} {'is' if count == 1 else 'are'} too few for a test over seeds"


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def signed(value: float, digits: int = 1) -> str:
    """`+0.3`, `-1.2`; `0.0` for what rounds to nothing, whatever its sign."""
    rounded = round(value, digits)
    return f"{rounded:+.{digits}f}" if rounded else f"{0:.{digits}f}"


def ends(found: Estimate | None, digits: int) -> Row:
    """Value, lower and upper end as three cells of a table; empty ones where they are not known."""
    if found is None:
        return [None] * 3
    return [None if end is None else round(end, digits) for end in (found.value, found.low, found.high)]


def line(label: str, model: str, x: Sequence[float], values: Sequence[Estimate], intervals: bool = True) -> Series:
    """A line of a figure, with the intervals of its points.

    Args:
        label: as the legend names it.
        model: whose it is.
        x: where the points are.
        values: how high.
        intervals: whether they are drawn; over fewer than three seeds they would fill the page.
    """
    return Series(
        label=label,
        model=model,
        x=list(x),
        y=[value.value for value in values],
        low=[value.low for value in values] if intervals else None,
        high=[value.high for value in values] if intervals else None,
    )
