"""A linear recurrence without a loop over time: the parallel scan (Blelloch 1990; Hillis & Steele 1986).

    h_t = a_t ∘ h_{t−1} + b_t

Two neighbouring steps are one step of the same kind: (a, b) then (a′, b′) is (a′ a, a′ b + b′). Joining each step with
the one before it, then with what lies two steps back, four, eight …, gives all states after log₂ n rounds, each of them
parallel over time. The recurrence must be linear in h: this is what minGRU and minLSTM give up their hidden gates for.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

Sequence = Float[Tensor, "batch steps width"]


def scan(log_decay: Sequence, update: Sequence, start: Float[Tensor, "batch width"]) -> Sequence:
    """All states of h_t = exp(log_decay_t) ∘ h_{t−1} + update_t.

    Products of many decays are sums of their logarithms, so they fade to zero and never overflow.

    Args:
        log_decay: logarithms of what is kept of the state at each step; at most 0.
        update: what each step adds.
        start: the state before the first step.
    """
    return _Scan.apply(log_decay, update, start)  # type: ignore[return-value]


class _Scan(torch.autograd.Function):
    """The gradient of a linear recurrence is one, too, from the end to the beginning: G_t = g_t + a_{t+1} ∘ G_{t+1}."""

    @staticmethod
    def forward(ctx: Any, log_decay: Tensor, update: Tensor, start: Tensor) -> Tensor:
        first = update[:, :1] + log_decay[:, :1].exp() * start.unsqueeze(1)
        states = _solve(log_decay, torch.cat((first, update[:, 1:]), dim=1))
        ctx.save_for_backward(log_decay, states, start)
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        log_decay, states, start = ctx.saved_tensors
        later = torch.cat((log_decay[:, 1:], torch.zeros_like(log_decay[:, :1])), dim=1)
        total = _solve(later.flip(1), gradients[0].flip(1)).flip(1)
        before = torch.cat((start.unsqueeze(1), states[:, :-1]), dim=1)
        decay = log_decay.exp()
        return total * before * decay, total, total[:, 0] * decay[:, 0]


def _solve(log_decay: Tensor, update: Tensor) -> Tensor:
    """The states from a state of zero, in ⌈log₂ steps⌉ rounds."""
    reach = 1
    while reach < update.shape[1]:
        # both right-hand sides are read before either is written
        joined = update[:, reach:] + log_decay[:, reach:].exp() * update[:, :-reach]
        update = torch.cat((update[:, :reach], joined), dim=1)
        log_decay = torch.cat((log_decay[:, :reach], log_decay[:, reach:] + log_decay[:, :-reach]), dim=1)
        reach *= 2
    return update
