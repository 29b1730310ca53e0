"""Jacobian J_t = ∂s_{t+1}/∂s_t of a recurrent state, by its products with vectors.

The state is all floating-point tensors of a decoder's state, concatenated to one vector per row. Rows are independent,
so a batch of rows is a batch of Jacobians.
"""

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from s2s.comparison.instruments import numbers
from s2s.models.base import BatchedState, Decoder

R = TypeVar("R", bound=BatchedState)

Vectors = Float[Tensor, "batch size"]
PerRow = Float[Tensor, " batch"]

# cube root of the rounding error: the best step of a central difference in float64, for numbers of about 1
_STEP = 6e-6


class Transition:
    """One step of a decoder as a map s′ = f(s), linearized at a given state s.

    Args:
        decoder: In evaluation mode and float64.
        context: Context of all steps.
        state: The state s, of a fixed size, see `has_fixed_size`.
        token: Input of this step.

    Attributes:
        after: The state s′.
        size: Numbers in a row's state.
    """

    def __init__(
        self, decoder: Decoder[Any, Any], context: BatchedState, state: BatchedState, token: Int[Tensor, "batch 1"]
    ) -> None:
        self._decoder, self._context, self._state, self._token = decoder, context, state, token
        with torch.enable_grad():
            self._before = flatten_state(state).detach().requires_grad_()
            self.after: BatchedState = self._next(self._before)
            self._end = flatten_state(self.after)
            self._asked = torch.zeros_like(self._end, requires_grad=True)
        self.size = self._before.shape[1]
        self._linear: Tensor | None = None
        self._twice: bool | None = None

    def pull(self, vectors: Vectors) -> Vectors:
        """Compute Jᵀ u for each row (vjp): the gradient with respect to s from one with respect to s′."""
        (pulled,) = torch.autograd.grad(self._end, self._before, vectors, retain_graph=True, allow_unused=True)
        return torch.zeros_like(self._before) if pulled is None else pulled.detach()

    def push(self, vectors: Vectors) -> Vectors:
        """Compute J v for each row (jvp): the change of s′ from a small change of s.

        Jᵀ u is linear in u, so the vjp of the vjp is J; this needs no forward-mode differentiation. For kernels without
        a second derivative, a central difference is taken.
        """
        if self._twice is None:
            # some kernels have no second derivative and raise no error: check that u · J v = Jᵀ u · v
            u, v = (_directions(self, seed) for seed in (1, 2))
            try:
                ahead, back = (u * self._double_vjp(v)).sum(dim=1), (self.pull(u) * v).sum(dim=1)
                self._twice = torch.allclose(ahead, back, rtol=1e-6, atol=1e-12)
            except RuntimeError:
                self._twice = False
        if self._twice:
            return self._double_vjp(vectors)
        with torch.no_grad():
            start = self._before.detach()
            ahead, behind = (flatten_state(self._next(start + sign * _STEP * vectors)) for sign in (1, -1))
            return (ahead - behind) / (2 * _STEP)

    def _double_vjp(self, vectors: Tensor) -> Tensor:
        if self._linear is None:
            (pulled,) = torch.autograd.grad(self._end, self._before, self._asked, create_graph=True, allow_unused=True)
            self._linear = torch.zeros_like(self._before) if pulled is None else pulled
        if not self._linear.requires_grad:
            return torch.zeros_like(vectors)
        (pushed,) = torch.autograd.grad(self._linear, self._asked, vectors, retain_graph=True, allow_unused=True)
        return torch.zeros_like(vectors) if pushed is None else pushed.detach()

    def dense(self) -> Float[Tensor, "batch size size"]:
        """Compute J, row by row."""
        rows = []
        for i in range(self.size):
            unit = torch.zeros_like(self._end)
            unit[:, i] = 1
            rows.append(self.pull(unit))
        return torch.stack(rows, dim=1)

    def _next(self, before: Tensor) -> BatchedState:
        return self._decoder(self._context, unflatten_state(self._state, before), self._token)[1]


def flatten_state(bundle: BatchedState) -> Vectors:
    """Concatenate all floating-point tensors of a state to one vector per row."""
    return torch.cat([part.flatten(1) for part in numbers(bundle)], dim=1)


def unflatten_state(bundle: R, vectors: Vectors) -> R:
    """Replace the floating-point tensors of a state by those of one vector per row; inverts `flatten_state`."""
    parts = numbers(bundle)
    pieces = vectors.split([part[0].numel() for part in parts], dim=1)
    return with_numbers(bundle, [piece.view_as(part) for piece, part in zip(pieces, parts, strict=True)])


def with_numbers(bundle: R, tensors: Iterable[Tensor]) -> R:
    """Replace the floating-point tensors of a state, in the order of `numbers`."""
    rest = iter(tensors)

    def _filled(value: Any) -> Any:
        if isinstance(value, Tensor):
            return next(rest) if value.is_floating_point() else value
        if isinstance(value, BatchedState):
            return replace(value, **{field.name: _filled(getattr(value, field.name)) for field in fields(value)})
        return tuple(map(_filled, value)) if isinstance(value, tuple) else value

    return _filled(bundle)


@torch.no_grad()
def has_fixed_size(
    decoder: Decoder[Any, Any], context: BatchedState, state: BatchedState, tokens: Int[Tensor, "batch steps"]
) -> bool:
    """Return True if the state has the same, nonzero size after the first and the second token."""
    sizes = []
    for i in range(2):
        state = decoder(context, state, tokens[:, i : i + 1])[1]
        sizes.append([part.shape for part in numbers(state)])
    return bool(sizes[0]) and sizes[0] == sizes[1]


def spectral_norm(transition: Transition, seed: int, rounds: int = 500, tolerance: float = 1e-7) -> PerRow:
    """Compute ‖J‖, the largest factor of a gradient in one step, by power iteration on Jᵀ J.

    Each round gives a lower bound that never falls, so equal singular values do no harm. The iteration stops when no
    row rises by more than a share of `tolerance` in a round.
    """
    vectors = _directions(transition, seed)
    norm = torch.zeros(len(vectors), dtype=vectors.dtype)
    for _ in range(rounds):
        ahead = transition.push(vectors)
        before, norm = norm, ahead.norm(dim=1)
        if bool((norm - before <= tolerance * norm).all()):
            break
        vectors = _unit(transition.pull(ahead))
    return norm


def spectral_radius(jacobians: Float[Tensor, "batch size size"]) -> PerRow:
    """Compute the largest absolute eigenvalue of each J: the factor per step of many equal steps."""
    return torch.linalg.eigvals(jacobians).abs().amax(dim=1)


def lyapunov(
    decoder: Decoder[Any, Any],
    context: BatchedState,
    state: BatchedState,
    tokens: Int[Tensor, "batch steps"],
    seed: int,
    settle: int = 0,
) -> PerRow:
    """Compute the leading Lyapunov exponent along a trajectory: the growth of a small change, in nats per step.

    λ = 1/T Σ_t log ‖J_t v_t‖, where v_{t+1} = J_t v_t / ‖J_t v_t‖ (Benettin et al. 1980). Gradients pass backwards
    through the transposed product, which has the same singular values. Decoder in evaluation mode and float64.

    Args:
        decoder: The decoder.
        context: Context of all steps.
        state: First state.
        tokens: Inputs.
        seed: Seed of the first direction.
        settle: First steps, which only align the direction.

    Returns:
        The exponent of each row; minus infinity if a change vanishes entirely.
    """
    total, vectors = None, None
    for i in range(tokens.shape[1]):
        transition = Transition(decoder, context, state, tokens[:, i : i + 1])
        vectors = transition.push(_directions(transition, seed) if vectors is None else vectors)
        growth = vectors.norm(dim=1).log()
        vectors = _unit(vectors)
        if i >= settle:
            total = growth if total is None else total + growth
        state = with_numbers(transition.after, [part.detach() for part in numbers(transition.after)])
    if total is None:
        raise ValueError(f"needs more than {settle} steps, got {tokens.shape[1]}")
    return total / (tokens.shape[1] - settle)


def _directions(transition: Transition, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    batch = len(flatten_state(transition.after))
    return _unit(torch.randn(batch, transition.size, generator=generator, dtype=torch.float64))


def _unit(vectors: Tensor) -> Tensor:
    # a zero vector stays zero
    return vectors / vectors.norm(dim=1, keepdim=True).clamp(min=torch.finfo(vectors.dtype).tiny)
