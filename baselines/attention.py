"""Attention for recurrent decoders (Bahdanau et al. 2015; Luong et al. 2015).

A decoder state h, the *query*, is compared with every source state s_j; both are vectors of size `width`. A softmax
turns the scores into weights α, and the weighted mean of the source states is the context vector c:

    α_j = exp(score(h, s_j)) / Σ_k exp(score(h, s_k)),    c = Σ_j α_j s_j

The kinds differ in the score only:

| kind | score(h, s) | keys | class |
|--|--|--|--|
| `dot` | hᵀ s | s | `Dot` |
| `general` | hᵀ W s | W s | `General` |
| `additive` | vᵀ tanh(W h + U s) | U s | `Additive` |
| `concat` | vᵀ tanh(W [h; s]) | s | `Concat` |
| `location` | (W h)_j | not used | `Location` |

The part of a score that depends only on the source is called its *keys*. It is computed once and reused at every
decoder step.

`baselines.decoder.AttentiveDecoder` is Luong's decoder, with every score, also with Bahdanau's `Additive`.
"""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from s2s.errors import UserError
from s2s.nn.attention import is_fused_faster
from s2s.nn.layers import PaddingMask, States

Queries = Float[Tensor, "batch target width"]
Keys = Float[Tensor, "batch source width"]
ContextVectors = Float[Tensor, "batch target width"]
PairHidden = Float[Tensor, "batch target source width"]
Scores = Float[Tensor, "batch target source"]


class Score(nn.Module, ABC):
    """Base class of attention scores.

    Attributes:
        is_product: True if the score is a dot product of query and key, for which torch has a fused kernel.
    """

    is_product: bool = False

    def keys(self, states: States) -> Keys:
        """Compute the part of the score that depends on the source only.

        Args:
            states: Source states, `(batch, source, width)`.

        Returns:
            Keys, `(batch, source, width)`; by default the states themselves.
        """
        return states

    @abstractmethod
    def forward(self, queries: Queries, keys: Keys) -> Scores:
        """Compute the scores of all pairs of query and key, before the softmax.

        Args:
            queries: Decoder states, `(batch, target, width)`.
            keys: Keys, `(batch, source, width)`.

        Returns:
            Scores, `(batch, target, source)`.
        """


class Dot(Score):
    """Dot-product score, hᵀ s (Luong et al. 2015, section 3.1).

    Example:
        >>> query = torch.tensor([[[1.0, 2.0]]])
        >>> states = torch.tensor([[[3.0, 0.0], [0.0, 4.0]]])
        >>> score = Dot()
        >>> score(query, score.keys(states))
        tensor([[[3., 8.]]])
    """

    is_product = True

    def forward(self, queries: Queries, keys: Keys) -> Scores:
        # (batch, target, width) @ (batch, width, source) -> (batch, target, source)
        return queries @ keys.transpose(1, 2)


class General(Score):
    """General score, hᵀ W s (Luong et al. 2015, section 3.1).

    A dot product in a learned space.

    Args:
        width: Size of decoder and source states.

    Example:
        >>> score = General(width=4)
        >>> states = torch.randn(2, 5, 4)
        >>> score(torch.randn(2, 3, 4), score.keys(states)).shape
        torch.Size([2, 3, 5])
    """

    is_product = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Linear(width, width, bias=False)

    def keys(self, states: States) -> Keys:
        """Compute W s."""
        return self.weight(states)

    def forward(self, queries: Queries, keys: Keys) -> Scores:
        return queries @ keys.transpose(1, 2)


class Additive(Score):
    """Additive score, vᵀ tanh(W h + U s) (Bahdanau et al. 2015, appendix A.1.2).

    A network with one hidden layer.

    Args:
        width: Size of decoder states, source states and the hidden layer.

    Example:
        >>> score = Additive(width=4)
        >>> states = torch.randn(2, 5, 4)
        >>> score(torch.randn(2, 3, 4), score.keys(states)).shape
        torch.Size([2, 3, 5])
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def keys(self, states: States) -> Keys:
        """Compute U s."""
        return self.key(states)

    def forward(self, queries: Queries, keys: Keys) -> Scores:
        return self.score_hidden(self.hidden(queries, keys))

    def hidden(self, queries: Queries, keys: Keys) -> PairHidden:
        """Compute the hidden layer before the tanh, W h + U s.

        Args:
            queries: Decoder states, `(batch, target, width)`.
            keys: Keys U s, `(batch, source, width)`.

        Returns:
            The sum for all pairs, `(batch, target, source, width)`.
        """
        # (batch, target, 1, width) + (batch, 1, source, width) -> (batch, target, source, width)
        return self.query(queries).unsqueeze(2) + keys.unsqueeze(1)

    def score_hidden(self, hidden: PairHidden) -> Scores:
        """Compute vᵀ tanh(hidden), `(batch, target, source)`."""
        return self.score(torch.tanh(hidden)).squeeze(3)


class Concat(Score):
    """Concat score, vᵀ tanh(W [h; s]) (Luong et al. 2015, section 3.1).

    Equal to `Additive` if W is the concatenation of its two matrices. Both are implemented because textbooks show both.

    Args:
        width: Size of decoder states, source states and the hidden layer.

    Example:
        Copy the weights of an additive score, and compare:

        >>> additive, concat = Additive(width=4), Concat(width=4)
        >>> _ = concat.hidden.weight.data.copy_(torch.cat((additive.query.weight, additive.key.weight), dim=1))
        >>> _ = concat.score.weight.data.copy_(additive.score.weight)
        >>> queries, states = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
        >>> one, other = additive(queries, additive.keys(states)), concat(queries, concat.keys(states))
        >>> torch.allclose(one, other, atol=1e-6)
        True
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(2 * width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, queries: Queries, keys: Keys) -> Scores:
        # all pairs of query and key, [h; s]: (batch, target, source, 2 · width)
        both = torch.broadcast_tensors(queries.unsqueeze(2), keys.unsqueeze(1))
        return self.score(torch.tanh(self.hidden(torch.cat(both, dim=3)))).squeeze(3)


class Location(Score):
    """Location score, (W h)_j (Luong et al. 2015, section 3.1).

    It is computed from the decoder state alone: the score of position j does not depend on the source state at j.

    Args:
        width: Size of decoder states.
        positions: Number of source positions with a learned score.

    Example:
        >>> score = Location(width=4, positions=10)
        >>> score(torch.randn(2, 3, 4), torch.randn(2, 5, 4)).shape
        torch.Size([2, 3, 5])
    """

    def __init__(self, width: int, positions: int) -> None:
        super().__init__()
        self.position_scores = nn.Linear(width, positions, bias=False)

    def forward(self, queries: Queries, keys: Keys) -> Scores:
        """Compute the scores of the source positions from the queries; of the keys only the length is used.

        Raises:
            UserError: The source is longer than the learned positions.
        """
        positions = self.position_scores.out_features
        if keys.shape[1] > positions:
            raise UserError(
                f"a source of {keys.shape[1]} tokens is longer than the {positions} positions of attention: location",
                remedy="raise model.max_positions, lower batches.max_length, or choose another attention",
            )
        return self.position_scores(queries)[:, :, : keys.shape[1]]


class Attention(nn.Module):
    """Attention of recurrent decoders: weights over the source, and context vectors.

    Args:
        score: Attention score.

    Example:
        The query is the second source state times 3, so nearly all of the weight is there:

        >>> states = torch.tensor([[[2.0, 0.0], [0.0, 2.0], [9.0, 9.0]]])
        >>> valid = torch.tensor([[True, True, False]])
        >>> attention = Attention(Dot())
        >>> query = torch.tensor([[[0.0, 6.0]]])
        >>> context, weights = attention(query, states, attention.score.keys(states), valid)
        >>> weights.round(decimals=2)
        tensor([[[0., 1., 0.]]])
        >>> context.round(decimals=2)
        tensor([[[0., 2.]]])
    """

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score = score

    def forward(
        self, queries: Queries, states: States, keys: Keys, valid: PaddingMask
    ) -> tuple[ContextVectors, Scores]:
        """Compute context vectors and attention weights.

        Args:
            queries: Decoder states, `(batch, target, width)`.
            states: Source states, `(batch, source, width)`.
            keys: Keys from `score.keys(states)`.
            valid: Padding mask, `(batch, source)`.

        Returns:
            Context vectors, `(batch, target, width)`, and weights, `(batch, target, source)`, which are zero for
            padding and sum to one.
        """
        return _weighted(self.score(queries, keys), states, valid)

    def context_vectors(self, queries: Queries, states: States, keys: Keys, valid: PaddingMask) -> ContextVectors:
        """Compute the context vectors without the weights, with the fused kernel if possible.

        The kernel never holds the weights of all queries, so memory grows with the length, not its square. It is used
        for scores that are dot products, unless the explicit softmax is faster. Scores with a hidden layer, tanh(W h +
        U s), have no such kernel in torch. In bf16 the explicit products round the scores to bf16 before the softmax;
        the kernel does not.

        Returns:
            Context vectors, `(batch, target, width)`.
        """
        if not self.score.is_product or not is_fused_faster(queries, keys.shape[1]):
            return self(queries, states, keys, valid)[0]
        # A single head: (batch, 1, positions, width). Luong's scores are not scaled by 1 / √width.
        query, key, value = (x.unsqueeze(1) for x in (queries, keys, states))
        mask = valid[:, None, None]
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=1.0).squeeze(1)


class CoverageAttention(nn.Module):
    """Attention with coverage, for single steps: the score depends on the sum of earlier weights.

        score_j = vᵀ tanh(W h + U s_j + C coverage_j),    coverage_j = Σ_t α_tj over all earlier steps t

    This is the linguistic variant of Tu et al. (2016) without fertility: coverage is a sum of weights, not a learned
    vector.

    Args:
        score: Additive score.
        width: Size of its hidden layer.

    Example:
        >>> attention = CoverageAttention(Additive(width=4), width=4)
        >>> states, valid = torch.randn(2, 5, 4), torch.ones(2, 5, dtype=torch.bool)
        >>> keys, coverage = attention.score.keys(states), torch.zeros(2, 5)
        >>> context, weights = attention(torch.randn(2, 1, 4), states, keys, valid, coverage)
        >>> context.shape, weights.shape
        (torch.Size([2, 1, 4]), torch.Size([2, 1, 5]))
    """

    def __init__(self, score: Additive, width: int) -> None:
        super().__init__()
        self.score = score
        self.coverage = nn.Linear(1, width, bias=False)

    def forward(
        self,
        queries: Float[Tensor, "batch 1 width"],
        states: States,
        keys: Keys,
        valid: PaddingMask,
        coverage: Float[Tensor, "batch source"],
    ) -> tuple[ContextVectors, Scores]:
        """Compute the context vector and weights of a single step.

        Args:
            queries: Decoder states of the step, `(batch, 1, width)`.
            states: Source states, `(batch, source, width)`.
            keys: Keys from `score.keys(states)`.
            valid: Padding mask, `(batch, source)`.
            coverage: Sum of the weights of all earlier steps, `(batch, source)`.

        Returns:
            Context vector, `(batch, 1, width)`, and weights, `(batch, 1, source)`. The caller adds the weights to the
            coverage.
        """
        # (batch, 1, source, width) + (batch, 1, source, width)
        hidden = self.score.hidden(queries, keys) + self.coverage(coverage.unsqueeze(2)).unsqueeze(1)
        return _weighted(self.score.score_hidden(hidden), states, valid)


def _weighted(scores: Scores, states: States, valid: PaddingMask) -> tuple[ContextVectors, Scores]:
    # Padding gets a score of -inf, and so a weight of zero: (batch, target, source).
    weights = scores.masked_fill(~valid.unsqueeze(1), float("-inf")).softmax(dim=2)
    # Weighted mean of the source states: (batch, target, source) @ (batch, source, width) -> (batch, target, width).
    # Under autocast the softmax is in fp32, and the states may be in bf16.
    return weights.to(states.dtype) @ states, weights


def build_score(kind: str, width: int, positions: int) -> Score:
    """Build an attention score by its name in recipes.

    Args:
        kind: `additive`, `dot`, `general`, `concat` or `location`.
        width: Size of decoder and source states.
        positions: Source positions of `location`; not used by the other kinds.

    Example:
        >>> type(build_score("additive", width=4, positions=0)).__name__
        'Additive'
    """
    if kind == "location":
        return Location(width, positions)
    if kind == "dot":
        return Dot()
    return {"additive": Additive, "general": General, "concat": Concat}[kind](width)
