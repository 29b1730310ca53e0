"""Solutions of the lab on attention (docs/labs/attention.ipynb)."""

import math
from collections.abc import Sequence

import numpy as np

from s2s.labs.exercise import Exercise

_GENERATOR = np.random.default_rng(1)
_Q, _K, _V = (_GENERATOR.normal(size=(3, 4)) for _ in range(3))


def scaled_scores() -> list[float]:
    """Scaled scores of the query bank in "the river boat"."""
    bank, sentence = [1, 1, 1, 0], [[0, 0, 0, 1], [2, 0, 1, 0], [2, 0, 0, 0]]
    return [sum(b * k for b, k in zip(bank, key, strict=True)) / math.sqrt(4) for key in sentence]


def softmax(scores: Sequence[float] | np.ndarray) -> np.ndarray:
    """Shares that add up to one; the largest score is subtracted, so that no exponential overflows."""
    powers = np.exp(np.asarray(scores) - np.max(scores))
    return powers / powers.sum()


def attention(query: Sequence[float], keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Mean of the values, weighted by how well each key fits the query."""
    return softmax(np.asarray(keys) @ np.asarray(query) / math.sqrt(len(query))) @ np.asarray(values)


def causal_attention(queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Attention of each position to itself and to those before it."""
    scores = queries @ keys.T / math.sqrt(queries.shape[1])
    scores[np.triu_indices(len(scores), k=1)] = -np.inf
    return np.stack([softmax(row) for row in scores]) @ values


def multi_head(vectors: np.ndarray, heads: int) -> np.ndarray:
    """Attention in each of equally wide slices of the vectors, side by side."""
    slices = np.split(vectors, heads, axis=1)
    return np.hstack([np.stack([attention(query, part, part) for query in part]) for part in slices])


def sinusoids(position: int, width: int) -> np.ndarray:
    """Position vector (Vaswani et al. 2017, section 3.5): sines at even indices, cosines at odd ones."""
    angles = position / 10000 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], axis=1).reshape(-1)


def count_weights(layers: int, heads: int, source: int, target: int) -> int:
    """Number of attention weights of an encoder-decoder: the encoder's, the decoder's own, and between the two."""
    return layers * heads * (source * source + target * target + target * source)


def alignment(weights: np.ndarray) -> list[int]:
    """Source token that each target token attends to most; the mean over heads of the last layer."""
    return weights[-1].mean(axis=0).argmax(axis=-1).tolist()


EXERCISES = (
    Exercise(scaled_scores, "divide each dot product by the square root of 4."),
    Exercise(softmax, "exp(1000) is infinite: subtract the largest score first.", [([1.0, 2.0],), ([1000.0, 999.0],)]),
    Exercise(
        attention, "scores of all keys, scaled; softmax; then the weighted mean of the values.", [(_Q[0], _K, _V)]
    ),
    Exercise(causal_attention, "a score of minus infinity has a weight of 0.", [(_Q, _K, _V)]),
    Exercise(
        multi_head, "split the columns, attend in each part, and put the results side by side.", [(_Q, 1), (_Q, 2)]
    ),
    Exercise(sinusoids, "indices 2i and 2i+1 share the angle position / 10000^(2i/width).", [(0, 4), (3, 8)]),
    Exercise(
        count_weights, "three matrices in each layer and head: n × n, m × m and m × n.", [(1, 1, 3, 2), (2, 4, 9, 7)]
    ),
    Exercise(alignment, "weights has the axes layer, head, target, source.", [(_GENERATOR.random((2, 2, 4, 3)),)]),
)
