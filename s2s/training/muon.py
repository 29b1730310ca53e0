"""Muon: momentum whose update of each weight matrix is orthogonalized (Jordan et al. 2024)."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.optim import Muon as TorchMuon

# Coefficients of the quintic polynomial, and number of iterations (Jordan et al. 2024).
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5


def orthogonalize(matrices: Tensor) -> Tensor:
    """Replace the singular values of matrices by values near 1 (Newton-Schulz iteration, Jordan et al. 2024).

    On a GPU the products are in bf16, as in `torch.optim.Muon`. On a CPU they keep the data type: without AVX-512 a
    product in bf16 takes torch 15 to 20 times as long as one in fp32.

    Args:
        matrices: Matrices of one shape, (count, rows, columns).

    Returns:
        Tensor of the same shape. Singular values of at least 1/200 of the largest are now between 0.6 and 1.3.

    Example:
        >>> found = orthogonalize(torch.diag(torch.tensor([100.0, 10.0, 1.0]))[None])
        >>> bool(((torch.linalg.svdvals(found) > 0.6) & (torch.linalg.svdvals(found) < 1.3)).all())
        True
    """
    a, b, c = _COEFFICIENTS
    tall = matrices.size(1) > matrices.size(2)
    x = matrices.mT if tall else matrices  # the smaller Gram matrix
    x = x if x.device.type == "cpu" else x.bfloat16()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Muon(TorchMuon):
    """`torch.optim.Muon` that orthogonalizes all matrices of the same shape together.

    Same arguments and state. An update of a small model has dozens of matrices of a few shapes, whose products are
    faster in a batch.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update all parameters that have a gradient.

        Args:
            closure: Not supported.
        """
        for group in self.param_groups:
            same_shape: dict[tuple[torch.Size, torch.device], list[tuple[Tensor, Tensor]]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    same_shape.setdefault((p.shape, p.device), []).append((p, p.grad))
            for ((rows, columns), _), pairs in same_shape.items():
                momentum, nesterov = group["momentum"], group["nesterov"]
                directions = [self._add_to_momentum(p, gradient, momentum, nesterov) for p, gradient in pairs]
                # 0.2 √max(rows, columns): steps as large as AdamW's (Liu et al. 2025).
                rate = 0.2 * max(rows, columns) ** 0.5 * group["lr"]
                for (p, _), update in zip(pairs, orthogonalize(torch.stack(directions)), strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"])
                    p.add_(update.to(p.dtype), alpha=-rate)

    def _add_to_momentum(self, p: Tensor, gradient: Tensor, decay: float, nesterov: bool) -> Tensor:
        """Add a gradient to the momentum of its parameter, and return the direction of the step."""
        state = self.state[p]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(p)
        momentum = state["momentum_buffer"].lerp_(gradient, 1 - decay)
        return gradient.lerp(momentum, decay) if nesterov else momentum
