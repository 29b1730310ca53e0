"""Solutions of the lab on vanishing gradients (docs/labs/gradients.ipynb)."""

import math
from collections.abc import Sequence

import numpy as np

from s2s.labs.exercise import Exercise

_MATRIX = np.random.default_rng(1).normal(size=(5, 5))


def share_left(factor: float, steps: int) -> float:
    """Share of a gradient that is left after a number of steps with the same factor."""
    return factor**steps


def half_life(factor: float) -> float:
    """Steps after which half of a gradient is left."""
    return math.log(0.5) / math.log(factor)


def scale_to_radius(matrix: np.ndarray, radius: float) -> np.ndarray:
    """Matrix with the same eigenvectors whose largest absolute eigenvalue is `radius`."""
    return matrix * radius / np.abs(np.linalg.eigvals(matrix)).max()


def factor_per_step(norms: Sequence[float]) -> float:
    """Factor per step of norms at distances 0, 1, 2, …: exp of the slope of a line through their logarithms."""
    return math.exp(np.polyfit(np.arange(len(norms)), np.log(norms), 1)[0])


def forget_gate(bias: float) -> float:
    """Value of a forget gate whose inputs are 0: the sigmoid of its bias."""
    return 1 / (1 + math.exp(-bias))


def bias_that_keeps(share: float, steps: int) -> float:
    """Bias of the forget gate with which a share of the cell's state is left after a number of steps."""
    gate = share ** (1 / steps)
    return math.log(gate / (1 - gate))


def residual_gradient(slope: float, layers: int) -> float:
    """Gradient through layers x + f(x), if each f has the same slope."""
    return (1 + slope) ** layers


def clip(gradients: Sequence[float], largest: float) -> np.ndarray:
    """Gradients scaled so that their norm is at most `largest` (Pascanu et al. 2013)."""
    norm = np.linalg.norm(gradients)
    return np.asarray(gradients) * min(1.0, largest / norm)


def updates_until_learned(accuracies: Sequence[float], every: int, wanted: float = 0.99) -> int | None:
    """Update of the first validation with at least the wanted accuracy; None if there is none."""
    return next((number * every for number, found in enumerate(accuracies, start=1) if found >= wanted), None)


EXERCISES = (
    Exercise(share_left, "multiply the factor by itself, once for each step.", [(0.9, 10), (1.1, 3)]),
    Exercise(half_life, "solve factor^steps = 1/2 with logarithms.", [(0.5,), (0.946,)]),
    Exercise(scale_to_radius, "the eigenvalues of c·W are c times those of W.", [(_MATRIX, 0.5), (_MATRIX, 1.0)]),
    Exercise(
        factor_per_step, "np.polyfit(distances, np.log(norms), 1)[0] is the slope.", [([8.0, 4.0, 2.0],), ([1.0, 3.0],)]
    ),
    Exercise(forget_gate, "sigmoid(b) = 1 / (1 + exp(−b)).", [(0.0,), (2.0,)]),
    Exercise(
        bias_that_keeps, "first the gate: gate^steps = share; then the inverse of the sigmoid.", [(0.5, 32), (0.9, 8)]
    ),
    Exercise(residual_gradient, "the derivative of x + f(x) is 1 + the slope of f.", [(0.1, 6), (-0.5, 2)]),
    Exercise(clip, "a gradient whose norm is small enough stays as it is.", [([3.0, 4.0], 1.0), ([0.3, 0.4], 1.0)]),
    Exercise(
        updates_until_learned, "the first validation is after `every` updates.", [([0.5, 0.99, 1.0], 20), ([0.1], 5)]
    ),
)
