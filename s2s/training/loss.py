"""Label-smoothed cross-entropy that never holds the scores of all tokens at once."""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# Scores held at a time. On a processor a chunk should stay near its caches (measured: 2 million is faster than both 8
# million and half a million); an accelerator wants few large products.
_CHUNK = {"cpu": 2_000_000}
_CHUNK_ELSEWHERE = 64_000_000


class _Widened:
    """Numbers in a wider precision, in memory of the size of a sample that is theirs until it is asked again."""

    def __init__(self, sample: Tensor, wide: torch.dtype) -> None:
        self._memory = None if sample.dtype == wide else torch.empty_like(sample, dtype=wide)

    def __call__(self, numbers: Tensor) -> Tensor:
        """As they are where they are as wide."""
        return numbers if self._memory is None else self._memory[: len(numbers)].copy_(numbers)


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Projection, softmax and cross-entropy together; gradients are made in the forward pass, chunk by chunk.

    With targets y, smoothing ε and K classes, q = (1 − ε)·onehot(y) + ε/K (Szegedy et al. 2016, section 7). Of the
    scores s, whose mean is s̄, and p = softmax(s), the loss is −Σ q·log p = −log p_y + ε·(s_y − s̄), and its gradient
    is p − q. In mixed precision the products are in bf16, softmax and p − q in fp32: of a token that is known by heart,
    p rounded to bf16's eight binary digits is 1, and what is left of p − q would be noise. The target's own part is not
    rounded at all: 0.9 would become 0.8984 at every token, a token's errors would no longer sum to zero, and a shared
    table would drift where the softmax does not hold it.
    """

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, targets: Tensor, smoothing: float, differentiate: bool
    ) -> tuple[Tensor, Tensor]:
        device, states_dtype = states.device.type, states.dtype
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
        wide = torch.promote_types(dtype, torch.float32)
        low_states, low_weight = states.to(dtype), weight.to(dtype)
        states_gradient = torch.zeros_like(states, dtype=wide)
        weight_gradient = torch.zeros_like(weight)
        plain, chosen_scores = states.new_zeros((), dtype=wide), states.new_zeros((), dtype=wide)
        rows = max(1, _CHUNK.get(device, _CHUNK_ELSEWHERE) // len(weight))
        # the same memory for all chunks: new pages cost more than the arithmetic on them
        memory = low_states.new_empty(min(rows, len(states)), len(weight))
        wide_memory, wide_scores = torch.empty_like(memory, dtype=wide), _Widened(memory, wide)
        product, wide_product = torch.empty_like(low_weight), _Widened(low_weight, wide)
        for first in range(0, len(states), rows):
            chunk = slice(first, first + rows)
            scores = memory[: len(low_states[chunk])]
            probabilities, right = wide_memory[: len(scores)], targets[chunk, None]
            torch.mm(low_states[chunk], low_weight.T, out=scores)
            torch.softmax(wide_scores(scores), dim=1, out=probabilities)
            chosen = probabilities.gather(1, right)
            plain -= chosen.clamp_min(torch.finfo(wide).tiny).log().sum()
            chosen_scores += scores.gather(1, right).to(wide).sum()
            if differentiate:
                share = smoothing / len(weight)
                # within the memory that there is: into another precision, `out` alone would ask for new
                error = scores.copy_(probabilities.scatter_(1, right, share).sub_(share))
                states_gradient[chunk] = error @ low_weight
                weight_gradient += wide_product(torch.mm(error.T, low_states[chunk], out=product))
                of_target = chosen - (1 - smoothing) - share
                states_gradient[chunk] += of_target * weight.index_select(0, targets[chunk])
                weight_gradient.index_add_(0, targets[chunk], (of_target * states[chunk]).to(weight.dtype))
        smoothed = plain + smoothing * (chosen_scores - states.to(wide).sum(dim=0) @ weight.mean(dim=0).to(wide))
        ctx.save_for_backward(states_gradient, weight_gradient)
        ctx.states_dtype = states_dtype
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        states_gradient, weight_gradient = ctx.saved_tensors
        return (states_gradient * gradients[0]).to(ctx.states_dtype), weight_gradient * gradients[0], None, None, None


def cross_entropy(
    states: Float[Tensor, "batch target width"],
    weight: Float[Tensor, "vocabulary width"],
    targets: Int[Tensor, "batch target"],
    valid: Bool[Tensor, "batch target"],
    smoothing: float = 0.0,
    bias: Float[Tensor, " vocabulary"] | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Cross-entropy of the targets, summed over real tokens, in nats.

    Smoothing is the share of the probability that is spread over the vocabulary, in [0, 1). A bias is a number for each
    piece that is added to its score.

    Returns:
        The smoothed sum, to be differentiated, and the plain one, to be reported. A token's plain part ends where its
        probability does: at 87 nats, the logarithm of the smallest normal number.
    """
    if bias is not None:
        # as one more column, by which a state that ends with 1 is multiplied
        states = torch.cat((states, torch.ones_like(states[..., :1])), dim=2)
        weight = torch.cat((weight, bias.unsqueeze(1)), dim=1)
    chosen = valid.flatten().nonzero().squeeze(1)
    return _ChunkedCrossEntropy.apply(  # type: ignore[return-value]
        states.flatten(0, 1).index_select(0, chosen),
        weight,
        targets.flatten().index_select(0, chosen),
        smoothing,
        torch.is_grad_enabled(),
    )
