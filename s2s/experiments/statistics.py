"""Fits that experiments share (scipy)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from s2s.evaluation.inference import Estimate


def exponent(x: Sequence[float], y: Sequence[float]) -> Estimate:
    """The b of y = a xᵇ: the slope of a line through the logarithms, with its interval from the residuals."""
    if max(y) == min(y):
        # of a level line scipy says that nothing is known of its slope
        return Estimate(0.0, 0.0, 0.0)
    line: Any = stats.linregress(np.log(x), np.log(y))
    if len(x) < 3:
        return Estimate(float(line.slope), None, None)
    half = float(stats.t.ppf(0.975, len(x) - 2) * line.stderr)
    return Estimate(float(line.slope), float(line.slope) - half, float(line.slope) + half)
