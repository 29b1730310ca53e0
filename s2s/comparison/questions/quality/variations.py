"""Would another choice have turned a verdict round? Budgets, rates, and seeds left out."""

import statistics
from collections.abc import Mapping
from typing import Any

from s2s.comparison.paired_tests import WITHOUT_A_SEED
from s2s.comparison.questions.quality.curves import budgets, mean_loss
from s2s.comparison.reporting import Runs
from s2s.comparison.spec import BySeed

_RATES = {"half the rate": 0.5, "twice the rate": 2.0}


def variations(model: str, other: str, runs: Runs) -> dict[str, bool]:
    """Whether the sign of the difference stays the same under other choices.

    Other budgets and learning rates are compared by validation loss, seeds left out by BLEU on the test set. Losses at
    other rates are those of full trainings of the first seed where there are any: short ones favour high rates.

    Args:
        model: the candidate.
        other: its rival.
        runs: of all candidates, which share budgets.
    """
    own, others = runs[model], runs[other]
    seeds = [seed for seed in own if seed in others]
    sides = {
        name: _ahead(*(found.value if (found := mean_loss(each, *spent)) else None for each in (own, others)))
        for name, spent in budgets(runs).items()
    }
    choices = [rate for each in (own, others) if (rate := next(iter(each.values())).get("rate"))]
    if len(choices) == 2:
        whole = all(choice.get("whole") for choice in choices)
        sides |= {name: _ahead(*(_at_rate(each, times, whole) for each in choices)) for name, times in _RATES.items()}
    ahead = _bleu(own) > _bleu(others)
    kept = {name: side == ahead for name, side in sides.items() if side is not None}
    if len(seeds) > 2:
        # one choice, however many seeds there are
        kept[WITHOUT_A_SEED] = all((_bleu(own, seed) > _bleu(others, seed)) == ahead for seed in seeds)
    return kept


def _ahead(own: float | None, other: float | None) -> bool | None:
    return None if own is None or other is None else own < other


def _at_rate(choice: Mapping[str, Any], times: float, whole: bool) -> float | None:
    """The loss at a multiple of the rate chosen, of a whole training or a short one; None where there was none."""
    short = zip(choice["tried"], choice["losses"], strict=True)
    # what is half of a rate was tried as exactly that
    return dict(choice["whole"] if whole else short).get(times * choice["chosen"])


def _bleu(runs: BySeed, without: int | None = None) -> float:
    return statistics.mean(run["scores"]["bleu"]["value"] for seed, run in runs.items() if seed != without)
