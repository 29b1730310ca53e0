"""A linear recurrence without a loop over time: the parallel scan (Blelloch 1990).

    h_t = a_t ∘ h_{t−1} + b_t

Two neighbouring steps are one step of the same kind: (a, b) then (a′, b′) is (a′ a, a′ b + b′). So steps are joined two
by two, which leaves a recurrence of half the length; its states are every second state that is looked for, and the
others are one step further. That is 2 log₂ n rounds, each parallel over time, and three times the loop's products. The
recurrence must be linear in h: this is what minGRU and minLSTM give up their hidden gates for.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

Sequence = Float[Tensor, "batch steps width"]


def scan(decay: Sequence, update: Sequence, start: Float[Tensor, "batch width"]) -> Sequence:
    """All states of h_t = decay_t ∘ h_{t−1} + update_t.

    Products of decays are all that is made of them, so nothing overflows and nothing is divided: there is no need for
    the logarithms of the paper, whose formula divides by such products.

    Args:
        decay: what is kept of the state at each step, in [0, 1].
        update: what each step adds.
        start: the state before the first step.
    """
    if torch.compiler.is_exporting():
        return _at_once(decay, update, start)
    return _Scan.apply(decay, update, start)  # type: ignore[return-value]


def _at_once(decay: Sequence, update: Sequence, start: Tensor) -> Tensor:
    """All states as one product, for a graph that knows no length: memory grows with the square of it.

    What is left at t of what came in at j is the product of the decays between: exp(L_t − L_j), L their summed logs.
    These grow with the length, and their small differences are what counts: fp32 would leave two digits of a thousand
    steps, so they are summed and subtracted in fp64.
    """
    # a graph is made on the processor, and Apple's GPUs know no fp64
    logs = decay.cpu().double().clamp_min(_LEAST).log().cumsum(dim=1)
    between = (logs.unsqueeze(2) - logs.unsqueeze(1)).clamp(max=0.0).exp()
    places = torch.arange(decay.shape[1])
    left = between * (places.unsqueeze(0) <= places.unsqueeze(1))[None, :, :, None]
    states = (left * update.cpu().unsqueeze(1)).sum(dim=2) + logs.exp() * start.cpu().unsqueeze(1)
    return states.to(decay)


# nothing is left of what is multiplied by it
_LEAST = 1e-30


class _Scan(torch.autograd.Function):
    """The gradient of a linear recurrence is one, too, from the end to the beginning: G_t = g_t + a_{t+1} ∘ G_{t+1}."""

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
    """Adds `links[t]` times the state at t to the one at t + 1, from first to last; overwrites both.

    In place, because fresh memory costs more than these products.
    """
    steps = states.shape[1]
    if steps == 1:
        return
    states[:, 1::2].addcmul_(links[:, 0::2], states[:, 0 : steps - 1 : 2])
    joined = links[:, 2::2].mul_(links[:, 1 : steps - 2 : 2])
    _solve(joined, states[:, 1::2])
    states[:, 2::2].addcmul_(links[:, 1::2], states[:, 1 : steps - 1 : 2])
