"""Is the difference between two systems more than chance? sacreBLEU's paired bootstrap (Koehn 2004)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from sacrebleu.significance import PairedTest, Result

from s2s.errors import UserError
from s2s.evaluation.metrics import metrics

_RESAMPLES = 1000


@dataclass(frozen=True)
class Comparison:
    """One metric of one system beside the first.

    Attributes:
        system: its name.
        metric: the metric's name.
        value: in percent.
        interval: half the width of the bootstrap's 95 % interval.
        p_value: how often chance alone would give a difference from the first system as large; None for the first.
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
    named: list[tuple[str, Sequence[str]]] = [(name, list(lines)) for name, lines in systems.items()]
    test = PairedTest(named, metrics(lowercase), [list(references)], test_type="bs", n_samples=_RESAMPLES)
    _, results = test()
    # sacreBLEU names the columns in its own words, in our order, after one with the systems' names
    columns = [cast("list[Result]", column) for name, column in results.items() if name != "System"]
    same = {name for name, lines in named[1:] if lines == named[0][1]}
    return [
        # of identical translations sacreBLEU says p = 1 / (resamples + 1), as if they could not differ more
        Comparison(system, metric, result.score, float(result.ci or 0.0), 1.0 if system in same else result.p_value)
        for metric, column in zip(metrics(), columns, strict=True)
        for system, result in zip(systems, column, strict=True)
    ]
