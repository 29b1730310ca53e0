"""Attention for recurrent decoders (Bahdanau et al. 2015; Luong et al. 2015): weights, and the context vector.

A decoder state h, the *query*, is compared with every source state s_j. A softmax makes the scores into weights α, and
the weighted mean of the source states is the context vector c of that step:

    α_j = exp(score(h, s_j)) / Σ_k exp(score(h, s_k)),    c = Σ_j α_j s_j

The kinds differ in the score alone. What depends on the source alone, its *keys*, is computed once for all steps.

Bahdanau's decoder asks with the state before the step and feeds the context vector into the cell,
h_t = f(h_{t−1}, y_{t−1}, c_t) with c_t from h_{t−1}. Luong's asks with the state after the step and joins the context
vector to it, tanh(W [c_t; h_t]) with c_t from h_t. `baselines.decoder.AttentiveDecoder` is Luong's with every score,
Bahdanau's `Additive` too.
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
Hidden = Float[Tensor, "batch target source width"]
Scores = Float[Tensor, "batch target source"]


class Score(nn.Module, ABC):
    """How well each source position answers each query.

    Attributes:
        is_product: whether the score is a dot product of query and key, for which torch has one kernel.
    """

    is_product: bool = False

    def keys(self, states: States) -> Keys:
        """What of the score depends on the source alone; the states themselves where nothing does."""
        return states

    @abstractmethod
    def forward(self, queries: Queries, keys: Keys) -> Scores:
        """The scores, before the softmax."""


class Dot(Score):
    """score = hᵀ s (Luong et al. 2015, section 3.1)."""

    is_product = True

    def forward(self, queries: Queries, keys: Keys) -> Scores:
        return queries @ keys.transpose(1, 2)


class General(Score):
    """score = hᵀ W s: the dot product in a space that is learned (Luong et al. 2015, section 3.1)."""

    is_product = True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Linear(width, width, bias=False)

    def keys(self, states: States) -> Keys:
        """W s."""
        return self.weight(states)

    def forward(self, queries: Queries, keys: Keys) -> Scores:
        return queries @ keys.transpose(1, 2)


class Additive(Score):
    """score = vᵀ tanh(W h + U s): a network with one hidden layer (Bahdanau et al. 2015, appendix A.1.2)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def keys(self, states: States) -> Keys:
        """U s."""
        return self.key(states)

    def forward(self, queries: Queries, keys: Keys) -> Scores:
        return self.of_hidden(self.hidden(queries, keys))

    def hidden(self, queries: Queries, keys: Keys) -> Hidden:
        """W h + U s, before the tanh."""
        return self.query(queries).unsqueeze(2) + keys.unsqueeze(1)

    def of_hidden(self, hidden: Hidden) -> Scores:
        """vᵀ tanh(hidden)."""
        return self.score(torch.tanh(hidden)).squeeze(3)


class Concat(Score):
    """score = vᵀ tanh(W [h; s]): `additive` in another spelling, W = [W U]; both are kept because both are taught."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(2 * width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, queries: Queries, keys: Keys) -> Scores:
        both = torch.broadcast_tensors(queries.unsqueeze(2), keys.unsqueeze(1))
        return self.score(torch.tanh(self.hidden(torch.cat(both, dim=3)))).squeeze(3)


class Location(Score):
    """score_j = (W h)_j for each of so many positions: read off the decoder's state, whatever stands there."""

    def __init__(self, width: int, positions: int) -> None:
        super().__init__()
        self.place = nn.Linear(width, positions, bias=False)

    def forward(self, queries: Queries, keys: Keys) -> Scores:
        """Reads the scores off the queries.

        Raises:
            UserError: the source is longer than the positions that were learned.
        """
        if keys.shape[1] > self.place.out_features:
            raise UserError(
                f"a source of {keys.shape[1]} pieces is longer than the {self.place.out_features} positions of "
                "attention: location",
                remedy="raise model.max_positions, lower batches.max_length, or choose another attention",
            )
        return self.place(queries)[:, :, : keys.shape[1]]


class Attention(nn.Module):
    """Weights over the source, and the context vectors that they make."""

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score = score

    def forward(
        self, queries: Queries, states: States, keys: Keys, valid: PaddingMask
    ) -> tuple[ContextVectors, Scores]:
        """The context vector of each query, and its weights."""
        return _weighted(self.score(queries, keys), states, valid)

    def context_vectors(self, queries: Queries, states: States, keys: Keys, valid: PaddingMask) -> ContextVectors:
        """The same without the weights: as one kernel, where the score is a product and the kernel is no slower.

        The kernel never holds the weights of all queries, so memory grows with the length, not its square. Scores with
        a hidden layer, tanh(W h + U s), have no such kernel in torch. In bf16, products in plain sight round the scores
        to it before the softmax; the kernel does not.
        """
        if not self.score.is_product or not is_fused_faster(queries, keys.shape[1]):
            return self(queries, states, keys, valid)[0]
        # a single head, whose scores are not scaled
        one_head = (x.unsqueeze(1) for x in (queries, keys, states))
        mask = valid[:, None, None]
        return functional.scaled_dot_product_attention(*one_head, attn_mask=mask, scale=1.0).squeeze(1)


class CoverageAttention(Attention):
    """Attention whose score sees how much each position was looked at before: vᵀ tanh(W h + U s + C coverage).

    This is the linguistic variant without fertility of Tu et al. 2016.
    """

    score: Additive

    def __init__(self, score: Additive, width: int) -> None:
        super().__init__(score)
        # beside the score, not in it: checkpoints call it by this name
        self.coverage = nn.Linear(1, width, bias=False)

    def update_coverage(
        self,
        queries: Float[Tensor, "batch 1 width"],
        states: States,
        keys: Keys,
        valid: PaddingMask,
        coverage: Float[Tensor, "batch source"],
    ) -> tuple[ContextVectors, Scores]:
        """The context vector of a single step, and its weights; `coverage` is the sum of all earlier ones."""
        hidden = self.score.hidden(queries, keys) + self.coverage(coverage.unsqueeze(2)).unsqueeze(1)
        return _weighted(self.score.of_hidden(hidden), states, valid)


def _weighted(scores: Scores, states: States, valid: PaddingMask) -> tuple[ContextVectors, Scores]:
    weights = scores.masked_fill(~valid.unsqueeze(1), float("-inf")).softmax(dim=2)
    return weights.to(states.dtype) @ states, weights


def score_of(kind: str, width: int, positions: int) -> Score:
    """The score of that name, as it is written in recipes; `location` knows so many positions."""
    if kind == "location":
        return Location(width, positions)
    if kind == "dot":
        return Dot()
    return {"additive": Additive, "general": General, "concat": Concat}[kind](width)
