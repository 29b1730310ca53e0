"""Each pooling compared with its definition."""

import pytest
import torch

from s2s.nn.pooling import Pooling, mean_over_valid

KINDS = ["mean", "first", "max", "last", "attention", "summary", "pooler"]


@pytest.fixture
def rows() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    valid = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]]).bool()
    return torch.randn(3, 5, 4, dtype=torch.double), valid, torch.randn(3, 4, dtype=torch.double)


def _pooling(kind: str) -> Pooling:
    torch.manual_seed(1)
    return Pooling(kind, 4).double()


def _by_definition(pooling: Pooling, states: torch.Tensor, summary: torch.Tensor) -> torch.Tensor:
    """Of one row without padding."""
    if pooling.kind == "attention":
        scores = torch.stack([pooling.score.weight[0] @ torch.tanh(pooling.inner(state)) for state in states])
        return sum(weight * state for weight, state in zip(scores.exp() / scores.exp().sum(), states, strict=True))
    return {
        "mean": states.mean(dim=0),
        "first": states[0],
        "max": states.max(dim=0).values,
        "last": states[-1],
        "summary": summary,
        "pooler": torch.tanh(pooling.dense.weight @ states[0] + pooling.dense.bias) if pooling.dense else None,
    }[pooling.kind]


@pytest.mark.parametrize("kind", KINDS)
def test_pooling_is_its_definition_over_the_real_states(rows, kind):
    states, valid, summary = rows
    pooling = _pooling(kind)
    found = pooling(states, valid, summary)
    for i, length in enumerate(valid.sum(dim=1).tolist()):
        torch.testing.assert_close(found[i], _by_definition(pooling, states[i, :length], summary[i]))
    filled = torch.where(valid.unsqueeze(2), states, 1e9)
    assert torch.equal(pooling(filled, valid, summary), found)


@pytest.mark.parametrize("kind", KINDS)
def test_pooling_weights_are_shares_of_real_states_and_make_the_vector(rows, kind):
    states, valid, summary = rows
    pooling = _pooling(kind)
    weights = pooling.weights(states, valid)
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(3, dtype=torch.double))
    assert weights.masked_select(~valid).abs().sum() == 0
    if kind not in ("max", "summary", "pooler"):
        torch.testing.assert_close((weights.unsqueeze(2) * states).sum(dim=1), pooling(states, valid, summary))


def test_pooling_weights_of_max_count_the_numbers_that_a_state_gives():
    states = torch.tensor([[[3.0, 0.0, 1.0, 9.0], [1.0, 2.0, 0.0, 9.5], [9.0, 9.0, 9.0, 9.9]]])
    weights = Pooling("max", 4).weights(states, torch.tensor([[True, True, False]]))
    assert weights.tolist() == [[0.5, 0.5, 0.0]]


def test_mean_of_the_real_states_is_the_pooling_of_that_name(rows):
    states, valid, summary = rows
    torch.testing.assert_close(mean_over_valid(states, valid), _pooling("mean")(states, valid, summary))
