"""Parallel scan: a linear recurrence without a loop over time (Blelloch 1990).

    h_t = a_t ∘ h_{t−1} + b_t

Two neighbouring steps combine to one step of the same form: (a, b) then (a′, b′) is (a′ a, a′ b + b′). Combining all
pairs gives a recurrence of half the length. Its states are every second state of the original one, and one more step
gives the others. This takes 2 log₂ n rounds, each parallel over time, and three times the products of a loop. The
recurrence must be linear in h; therefore the gates of minGRU and minLSTM do not depend on the hidden state.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

Sequence = Float[Tensor, "batch steps width"]


def scan(decay: Sequence, update: Sequence, start: Float[Tensor, "batch width"]) -> Sequence:
    """Compute all states of h_t = decay_t ∘ h_{t−1} + update_t.

    Only products of decays are computed, so nothing overflows and nothing is divided. The logarithms of the paper are
    not needed, whose formula divides by such products.

    Args:
        decay: Share of the state that each step keeps, in [0, 1], `(batch, steps, width)`.
        update: Vector that each step adds, `(batch, steps, width)`.
        start: State before the first step, `(batch, width)`.

    Returns:
        The states, `(batch, steps, width)`.

    Example:
        Halve the state and add 1, from 0:

        >>> half, one = torch.full((1, 4, 1), 0.5), torch.ones(1, 4, 1)
        >>> scan(half, one, torch.zeros(1, 1)).flatten()
        tensor([1.0000, 1.5000, 1.7500, 1.8750])
    """
    if torch.compiler.is_exporting():
        return _scan_at_once(decay, update, start)
    return _Scan.apply(decay, update, start)  # type: ignore[return-value]


def _scan_at_once(decay: Sequence, update: Sequence, start: Tensor) -> Tensor:
    """Compute all states with one product, for an exported graph of any length.

    Memory grows with the square of the length. The share of b_j that remains at t is the product of the decays between:
    exp(L_t − L_j), where L are the cumulative sums of log decays. These sums grow with the length, and their small
    differences matter: fp32 would leave two digits after a thousand steps, so sums and differences are in fp64.
    """
    # Graphs are exported on the CPU; moved there because Apple's GPUs have no fp64.
    logs = decay.cpu().double().clamp_min(_LEAST).log().cumsum(dim=1)
    between = (logs.unsqueeze(2) - logs.unsqueeze(1)).clamp(max=0.0).exp()
    places = torch.arange(decay.shape[1])
    left = between * (places.unsqueeze(0) <= places.unsqueeze(1))[None, :, :, None]
    states = (left * update.cpu().unsqueeze(1)).sum(dim=2) + logs.exp() * start.cpu().unsqueeze(1)
    return states.to(decay)


# Lower bound of a decay before its logarithm; a state multiplied by it is practically zero.
_LEAST = 1e-30


class _Scan(torch.autograd.Function):
    """Differentiable scan.

    The gradient of a linear recurrence is a linear recurrence from the end to the beginning:
    G_t = g_t + a_{t+1} ∘ G_{t+1}.
    """

    @staticmethod
    def forward(ctx: Any, decay: Tensor, update: Tensor, start: Tensor) -> Tensor:
        states = update.clone()
        states[:, 0].addcmul_(decay[:, 0], start)
        _solve(decay[:, 1:].clone(), states)
        ctx.save_for_backward(decay, states, start)
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        decay, states, start = ctx.saved_tensors
        total = gradients[0].flip(1)
        _solve(decay[:, 1:].flip(1), total)
        total = total.flip(1)
        before = torch.cat((start.unsqueeze(1), states[:, :-1]), dim=1)
        return before.mul_(total), total, total[:, 0] * decay[:, 0]


def _solve(links: Tensor, states: Tensor) -> None:
    """Add `links[t]` times state t to state t + 1, from first to last.

    Both tensors are overwritten, because new memory costs more than these products.
    """
    steps = states.shape[1]
    if steps == 1:
        return
    # 1. Combine pairs of steps: odd states then contain the even state before them.
    states[:, 1::2].addcmul_(links[:, 0::2], states[:, 0 : steps - 1 : 2])
    # 2. Solve the recurrence of half the length over the odd states.
    joined = links[:, 2::2].mul_(links[:, 1 : steps - 2 : 2])
    _solve(joined, states[:, 1::2])
    # 3. One more step from each odd state gives the even state after it.
    states[:, 2::2].addcmul_(links[:, 1::2], states[:, 1 : steps - 1 : 2])
