"""Where an axis has its ticks and what they say: few, round, powers of two where the data are."""

import itertools
import math
from collections.abc import Sequence

from matplotlib.axis import Axis
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, NullLocator

from s2s.report.formatting import brief, power_of_ten

_MOST = 9
# characters that fit beside each other under a figure
_LINE = 64


def tick(axis: Axis, values: Sequence[float], log: bool, limits: tuple[float, float]) -> None:
    """Sets an axis's ticks.

    Args:
        axis: matplotlib's.
        values: that the data have there.
        log: whether it is logarithmic.
        limits: its ends.
    """
    places = tick_places(values, log, limits)
    axis.set_minor_locator(NullLocator())
    axis.set_major_locator(FixedLocator(places))
    axis.set_major_formatter(FixedFormatter(tick_texts(places, log)))


def tick_places(values: Sequence[float], log: bool, limits: tuple[float, float]) -> list[float]:
    """Where an axis has its ticks, see `tick`."""
    places = _log_ticks(sorted(set(values)), *limits) if log else _few(sorted(set(values)), limits)
    if places:
        return places
    room = (limits[1] - limits[0]) * 1e-9
    everywhere = MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]).tick_values(*limits)
    return [float(place) for place in everywhere if limits[0] - room <= place <= limits[1] + room]


def tick_texts(places: Sequence[float], log: bool) -> list[str]:
    """What ticks beside each other say: all as powers of ten where one is, or with equal decimals where they fit."""
    texts = [tick_text(place) for place in places]
    exponents = [_exponent(place) for place in places]
    if any(_is_power(text) for text in texts) and None not in exponents:
        return [power_of_ten(e) if e else "1" for e in exponents if e is not None]
    decimals = max((len(text.partition(".")[2]) for text in texts), default=0)
    sizes = [abs(place) for place in places if place]
    if not 0 < decimals <= 3 or any("×" in text or _is_power(text) for text in texts):
        return texts
    # on a logarithmic axis 0.3, 1, 3 and 10 stand side by side
    if min(sizes) * (8 if log else 200) < max(sizes):
        return texts
    return [f"{round(place, decimals) + 0.0:,.{decimals}f}".replace("-", "−") for place in places]


def tick_text(value: float) -> str:
    """What a tick says that stands alone."""
    # a sum of steps such as 0.30000000000000004
    value = float(f"{value:.10g}")
    exponent = _exponent(value)
    if exponent is not None and not -3 <= exponent < 6:
        return power_of_ten(exponent)
    return brief(value)


def _is_round(value: float) -> bool:
    return (value.is_integer() and abs(value) < 10_000) or math.isclose(value, float(f"{value:.2g}"))


def _exponent(value: float) -> int | None:
    if value <= 0:
        return None
    exponent = round(math.log10(value))
    return exponent if math.isclose(value, 10.0**exponent) else None


def _is_power(text: str) -> bool:
    return text.startswith("10") and text[-1] in "⁰¹²³⁴⁵⁶⁷⁸⁹"


def thinned(places: Sequence[float], most: int = _MOST) -> list[float]:
    """Every, every second, every third … so that all fit beside each other."""
    for step in range(1, len(places) + 1):
        kept = list(places[::step])
        if len(kept) <= most and sum(len(tick_text(place)) + 3 for place in kept) <= _LINE:
            return kept
    return list(places[:1])


def _few(values: list[float], limits: tuple[float, float]) -> list[float]:
    """The data's own places, where they are few and stand apart."""
    if not 1 <= len(values) <= _MOST:
        return []
    if sum(len(tick_text(value)) + 3 for value in values) > _LINE or not all(map(_is_round, values)):
        return []
    gaps = [after - before for before, after in itertools.pairwise(values)]
    return values if not gaps or min(gaps) > (limits[1] - limits[0]) / 14 else []


def _log_ticks(values: list[float], low: float, high: float) -> list[float]:
    powers = [value for value in values if value > 0 and math.log2(value).is_integer()]
    if powers and len(powers) * 2 >= len(values):
        return thinned(powers)
    decades = math.log10(high) - math.log10(low)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    if decades > 2.5:
        step = math.ceil(decades / 7)
        return [10.0**e for e in exponents if e % step == 0 and low <= 10.0**e <= high]
    # over so short a way the ticks of a linear axis serve better
    if decades < 0.75:
        return []
    parts = (1, 3) if decades > 1.4 else (1, 2, 5)
    return thinned([p * 10.0**e for e in exponents for p in parts if low <= p * 10.0**e <= high])
