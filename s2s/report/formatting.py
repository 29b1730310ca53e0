"""Numbers as a reader wants them: significant digits, thousands separators, intervals, units."""

import math

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# outside these a number is written with a power of ten
_SMALL, _LARGE = 1e-3, 1e7
# keeps a number and its unit on one line
_JOINT = "\u202f"


def number(value: float, digits: int = 3) -> str:
    """A finite number as text: `0.93`, `1,024`, `−3.2`, `1.2 × 10⁻⁵`, with so many significant digits.

    A whole part is never rounded, and whole numbers have no decimals.
    """
    if isinstance(value, int):
        return _signed(f"{value:,}")
    if value and not _SMALL <= abs(value) < _LARGE:
        return _with_exponent(value, digits)
    if value.is_integer():
        return _signed(f"{value:,.0f}")
    return _signed(f"{value:,.{_decimals(value, digits)}f}")


def brief(value: float, digits: int = 4) -> str:
    """A number without zeros at its end: `0.98`, `16`."""
    text = number(value, digits)
    return text.rstrip("0").rstrip(".") if "." in text and "×" not in text else text


def fixed(value: float, decimals: int) -> str:
    """A number with so many decimals."""
    return _signed(f"{value:,.{decimals}f}")


def interval(value: float, low: float | None = None, high: float | None = None) -> str:
    """A measured figure and its interval: `0.93 (0.91–0.95)`; all have as many decimals as the interval allows."""
    if low is None or high is None:
        end = "" if low is high else f" (from {number(low)})" if low is not None else f" (up to {number(high or 0.0)})"
        return number(value) + end
    half, largest = (high - low) / 2, max(abs(value), abs(low), abs(high))
    exponent = math.floor(math.log10(largest)) if largest else 0
    if largest and not _SMALL <= largest < _LARGE:
        scale = 10.0**exponent
        texts = [fixed(v / scale, _shared_decimals(value / scale, half / scale)) for v in (value, low, high)]
        return f"{_and_ends(*texts)} × 10{str(exponent).translate(_SUPERSCRIPTS)}"
    if all(float(v).is_integer() for v in (value, low, high)):
        return _and_ends(*(fixed(v, 0) for v in (value, low, high)))
    return _and_ends(*(fixed(v, _shared_decimals(value, half)) for v in (value, low, high)))


def with_unit(text: str, unit: str) -> str:
    """A number's text and its unit."""
    return f"{text}{_JOINT}{unit}" if unit else text


def titled(label: str, unit: str) -> str:
    """What an axis or a column says: its unit stands in brackets."""
    return f"{label} [{unit}]" if label and unit else label or unit


def duration(seconds: float) -> str:
    """A time for readers: `48 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 1:
        return "less than a second" if seconds > 0 else "0 s"
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"


def power_of_ten(exponent: int) -> str:
    """`10⁶`."""
    return f"10{str(exponent).translate(_SUPERSCRIPTS)}"


def _with_exponent(value: float, digits: int) -> str:
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{_signed(mantissa)} × {power_of_ten(int(exponent))}"


def _decimals(value: float, digits: int) -> int:
    # by the text of the rounded number, so that 0.9996 with three digits is 1.00 and not 1.000
    exponent = int(f"{value:.{digits - 1}e}".split("e")[1]) if value else 0
    return max(0, digits - 1 - exponent)


def _shared_decimals(value: float, half: float) -> int:
    """So many that the figure has two or three digits and the interval's half shows at least one."""
    by_value = _decimals(value, 3 if abs(value) >= 1 else 2) if value else 0
    if half <= 0:
        return by_value
    first, exponent = f"{half:.0e}".split("e")
    by_half = -int(exponent) + (1 if first == "1" else 0)
    # never more than six digits in all
    most = _decimals(max(abs(value), half), 6)
    return max(0, min(max(by_value, by_half), most))


def _and_ends(value: str, low: str, high: str) -> str:
    # a dash between negative numbers reads as another sign
    between = " to " if "−" in low + high else "–"
    return f"{value} ({low}{between}{high})"


def _signed(text: str) -> str:
    return text.replace("-", "−") if text.strip("-0.,") else text.lstrip("-")
