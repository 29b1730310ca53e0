"""Is the difference between two systems more than chance? Paired approximate randomisation of sacreBLEU's scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from s2s.errors import UserError
from s2s.evaluation.inference import paired_p
from s2s.evaluation.metrics import bootstrap_interval, metrics, scores_of


@dataclass(frozen=True)
class Comparison:
    """One metric of one system beside the first.

    Attributes:
        system: its name.
        metric: the metric's name.
        value: in percent.
        interval: half the width of the bootstrap's 95 % interval.
        p_value: how often chance alone would give a difference from the first system as large, see `paired_p`; None for
            the first.
    """

    system: str
    metric: str
    value: float
    interval: float
    p_value: float | None

    def __str__(self) -> str:
        chance = "" if self.p_value is None else f"   p = {self.p_value:.4f} against the first"
        return f"  {self.system:28} {self.metric:5} {self.value:6.2f} ± {self.interval:.2f}{chance}"


def compare(
    systems: Mapping[str, Sequence[str]], references: Sequence[str], lowercase: bool = False
) -> list[Comparison]:
    """Tests every system against the first, on the same sentences.

    Args:
        systems: translations by the system's name, the baseline first.
        references: raw.
        lowercase: score without regard to case.

    Raises:
        UserError: there are fewer than two systems, or they translated different numbers of sentences.
    """
    counts = {name: len(lines) for name, lines in systems.items()}
    if len(systems) < 2 or set(counts.values()) != {len(references)}:
        raise UserError(
            f"a comparison needs two systems with {len(references)} sentences each; given: {counts}",
            remedy="translate the same test set with each",
        )
    first, *_ = systems
    found = []
    for name, metric in metrics(lowercase).items():
        counts = {
            system: np.array(metric._extract_corpus_statistics(list(lines), [list(references)]))
            for system, lines in systems.items()
        }
        for system, its in counts.items():
            value, (low, high) = scores_of(metric, its.sum(axis=0)[None])[0], bootstrap_interval(metric, its)
            p_value = None if system == first else paired_p(counts[first], its, partial(scores_of, metric))
            found.append(Comparison(system, name, float(value), (high - low) / 2, p_value))
    return found
