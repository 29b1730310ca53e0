"""Cross-entropy with label smoothing, computed in chunks to save memory.

`cross_entropy` fuses output projection, softmax and loss. The scores of all tokens, `tokens × vocabulary` numbers, are
never in memory at once.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# Scores in memory at a time. On a CPU a chunk should fit its caches (measured: 2 million is faster than both 8 million
# and half a million); an accelerator needs few large products.
_CHUNK = {"cpu": 2_000_000}
_CHUNK_ELSEWHERE = 64_000_000


class _Widened:
    """Copies of tensors in a wider data type, in one buffer that each call overwrites."""

    def __init__(self, sample: Tensor, wide: torch.dtype) -> None:
        self._memory = None if sample.dtype == wide else torch.empty_like(sample, dtype=wide)

    def __call__(self, numbers: Tensor) -> Tensor:
        """Return a copy in the wider data type, or the tensor itself if it has that type."""
        return numbers if self._memory is None else self._memory[: len(numbers)].copy_(numbers)


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Output projection, softmax and cross-entropy in one function.

    The gradients are computed in the forward pass, chunk by chunk. With targets y, smoothing ε and K classes, the
    smoothed targets are q = (1 − ε)·onehot(y) + ε/K (Szegedy et al. 2016, section 7). With scores s, their mean s̄ and
    p = softmax(s),

        loss = −Σ q·log p = −log p_y + ε·(s_y − s̄),    gradient = p − q

    In mixed precision the matrix products are in bf16, softmax and p − q in fp32: for a token that the model is sure
    of, p rounded to bf16's eight binary digits is 1, and the remainder of p − q would be noise. The gradient part of
    the target token is not rounded at all: 0.9 would become 0.8984 for every token, the errors of a token would no
    longer sum to zero, and a tied table would drift in directions that the softmax does not constrain.
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
        # One buffer for all chunks, because new memory pages cost more than the arithmetic.
        memory = low_states.new_empty(min(rows, len(states)), len(weight))
        wide_memory, wide_scores = torch.empty_like(memory, dtype=wide), _Widened(memory, wide)
        product, wide_product = torch.empty_like(low_weight), _Widened(low_weight, wide)
        for first in range(0, len(states), rows):
            chunk = slice(first, first + rows)
            # 1. Scores of the chunk: (rows, width) @ (width, vocabulary) -> (rows, vocabulary).
            scores = memory[: len(low_states[chunk])]
            probabilities, right = wide_memory[: len(scores)], targets[chunk, None]
            torch.mm(low_states[chunk], low_weight.T, out=scores)
            # 2. Probabilities in fp32, and the loss of the targets.
            torch.softmax(wide_scores(scores), dim=1, out=probabilities)
            chosen = probabilities.gather(1, right)
            plain -= chosen.clamp_min(torch.finfo(wide).tiny).log().sum()
            chosen_scores += scores.gather(1, right).to(wide).sum()
            if differentiate:
                share = smoothing / len(weight)
                # 3. p − q without the target's own part, and its products. In mixed precision p − q is written into the
                # buffer of the scores, because `out` with another data type would allocate new memory.
                error = probabilities.scatter_(1, right, share).sub_(share)
                if dtype == wide == weight.dtype:
                    torch.mm(error, low_weight, out=states_gradient[chunk])
                    weight_gradient.addmm_(error.T, low_states[chunk])
                else:
                    error = scores.copy_(error)
                    states_gradient[chunk] = error @ low_weight
                    weight_gradient += wide_product(torch.mm(error.T, low_states[chunk], out=product))
                # 4. The target's own part of p − q, not rounded.
                of_target = chosen - (1 - smoothing) - share
                states_gradient[chunk] += of_target * weight.index_select(0, targets[chunk])
                weight_gradient.index_add_(0, targets[chunk], (of_target * states[chunk]).to(weight.dtype))
        smoothed = plain + smoothing * (chosen_scores - states.to(wide).sum(dim=0) @ weight.mean(dim=0).to(wide))
        ctx.save_for_backward(states_gradient, weight_gradient)
        ctx.states_dtype = states_dtype
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
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
    """Compute the cross-entropy of the targets, summed over real tokens, in nats.

    Args:
        states: States before the output projection, `(batch, target, width)`.
        weight: Weight of the output projection, `(vocabulary, width)`.
        targets: Token ids to predict, `(batch, target)`.
        valid: Padding mask of the targets, True for real tokens.
        smoothing: Label smoothing: share of the probability that is spread over the vocabulary, in [0, 1).
        bias: Bias of the output projection, `(vocabulary,)`; None for none.

    Returns:
        The smoothed sum, to differentiate, and the sum without label smoothing, to report. The latter is at most 87
        nats for a token, the negative logarithm of the smallest normal number of fp32.

    Example:
        Uniform guessing among 4 tokens costs log 4 nats; the second target is padding:

        >>> states, weight = torch.zeros(1, 2, 3), torch.zeros(4, 3)
        >>> smoothed, plain = cross_entropy(states, weight, torch.tensor([[1, 2]]), torch.tensor([[True, False]]))
        >>> round(plain.item(), 4)
        1.3863
    """
    if bias is not None:
        # As one more column of the weight, with a 1 at the end of each state.
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
