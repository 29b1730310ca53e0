"""Learning-rate schedules, clipping, EMA and optimizer state."""

import math
from typing import get_args

import pytest
import torch
from torch import nn

from s2s.recipe.schema import OptimizationSettings, ScheduleName
from s2s.tasks.translation.recipe import TrainingSettings
from s2s.training.optimization import OptimizerWrapper, layer_name, learning_rate


def _settings(**changes) -> TrainingSettings:
    return TrainingSettings(**({"updates": 100, "warmup": 10, "learning_rate": 0.5} | changes))


def test_optimization_warm_up_as_a_share_is_the_number_of_updates_that_it_makes():
    for updates, share, expected in ((1900, 0.1, 190), (50, 0.1, 5), (3, 0.1, 1), (1, 0.9, 0), (10, 0.99, 9)):
        shared = _settings(updates=updates, warmup=share, schedule="cosine")
        assert shared == _settings(updates=updates, warmup=expected, schedule="cosine")
        assert type(shared.warmup) is int
        assert shared.model_dump()["warmup"] == expected
        rates = [learning_rate(update, shared) for update in range(1, updates + 1)]
        assert rates.index(max(rates)) == max(0, expected - 1)


@pytest.mark.parametrize("schedule", get_args(ScheduleName))
def test_optimization_rate_rises_linearly_to_its_peak_and_never_above(schedule):
    settings = _settings(schedule=schedule)
    rates = [learning_rate(u, settings) for u in range(1, 101)]
    assert rates[:10] == pytest.approx([0.05 * u for u in range(1, 11)])
    assert max(rates) == pytest.approx(0.5)
    assert sorted(rates[9:], reverse=True) == rates[9:]


def test_optimization_each_schedule_is_its_formula():
    assert learning_rate(40, _settings(schedule="inverse-sqrt")) == pytest.approx(0.5 * math.sqrt(10 / 40))
    cosine, linear = _settings(schedule="cosine"), _settings(schedule="linear")
    for done in (9, 45, 90):
        assert learning_rate(10 + done, cosine) == pytest.approx(0.25 * (1 + math.cos(math.pi * done / 91)))
        assert learning_rate(10 + done, linear) == pytest.approx(0.5 * (1 - done / 91))
    # the last update still learns; zero comes after it
    assert learning_rate(101, cosine) == learning_rate(101, linear) == 0
    assert learning_rate(1, _settings(warmup=0)) == pytest.approx(0.5)


def test_learning_rate_schedule_without_an_implementation_is_an_error():
    settings = OptimizationSettings.model_construct(schedule="step", updates=100, warmup=10)
    with pytest.raises(KeyError, match="step"):
        learning_rate(40, settings)


@pytest.mark.parametrize("schedule", get_args(ScheduleName))
def test_learning_rate_depends_on_the_number_of_updates_where_the_settings_say_so(schedule):
    short, long = (_settings(schedule=schedule, updates=updates) for updates in (100, 200))
    differs = [learning_rate(update, short) != learning_rate(update, long) for update in range(11, 101)]
    assert differs == [short.depends_on_updates] * 90


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 3))


def _gradient(model: nn.Module, seed: int) -> None:
    torch.manual_seed(seed)
    for p in model.parameters():
        p.grad = torch.randn_like(p)


def test_optimization_clipping_is_that_of_torch():
    ours, theirs = _model(), _model()
    optimization = OptimizerWrapper(ours, _settings(clip=0.7, schedule="constant", warmup=0))
    adam = torch.optim.Adam(theirs.parameters(), lr=0.5, betas=(0.9, 0.98), eps=1e-9)
    for update in range(1, 4):
        _gradient(ours, update)
        _gradient(theirs, update)
        norm, layers = optimization.measure_gradient_norms()
        assert norm == pytest.approx(nn.utils.clip_grad_norm_(theirs.parameters(), 0.7).item())
        assert math.sqrt(sum(n**2 for n in layers.values())) == pytest.approx(norm)
        optimization.step(update, norm)
        adam.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_optimization_short_gradients_are_not_clipped():
    ours, free = _model(), _model()
    for model, clip in ((ours, 1e6), (free, None)):
        optimization = OptimizerWrapper(model, _settings(clip=clip))
        _gradient(model, 1)
        optimization.step(1, optimization.measure_gradient_norms()[0])
    for a, b in zip(ours.parameters(), free.parameters(), strict=True):
        assert torch.equal(a, b)


def test_optimization_weight_decay_spares_biases_and_embeddings():
    model = _model()
    optimization = OptimizerWrapper(
        model, _settings(optimizer="adamw", weight_decay=0.5, schedule="constant", warmup=0)
    )
    before = [p.detach().clone() for p in model.parameters()]
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimization.step(1, torch.tensor(0.0))
    embedding, weight, bias = model.parameters()
    assert torch.equal(embedding, before[0])
    torch.testing.assert_close(weight, before[1] * (1 - 0.5 * 0.5))
    assert torch.equal(bias, before[2])


def test_optimization_average_is_the_written_out_recursion_and_training_goes_on_from_the_raw_weights():
    model = _model()
    optimization = OptimizerWrapper(model, _settings(ema=0.8))
    expected = [p.detach().clone() for p in model.parameters()]
    for update in range(1, 60):
        _gradient(model, update)
        optimization.step(update, optimization.measure_gradient_norms()[0])
        decay = min(0.8, (1 + update) / (10 + update))
        expected = [decay * a + (1 - decay) * p.detach() for a, p in zip(expected, model.parameters(), strict=True)]
    raw = [p.detach().clone() for p in model.parameters()]
    with optimization.use_ema_weights():
        for p, a in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(p.detach(), a)
    for p, r in zip(model.parameters(), raw, strict=True):
        assert torch.equal(p, r)


def test_optimization_saved_state_goes_on_like_the_original():
    first, second = _model(), _model()
    settings = _settings(ema=0.9)
    one, two = OptimizerWrapper(first, settings), OptimizerWrapper(second, settings)
    for update in range(1, 9):
        _gradient(first, update)
        one.step(update, one.measure_gradient_norms()[0])
        if update == 5:
            second.load_state_dict(first.state_dict())
            two.load_state({name: tensor.clone() for name, tensor in one.state().items()})
        if update > 5:
            _gradient(second, update)
            two.step(update, two.measure_gradient_norms()[0])
    for a, b in zip([*first.parameters(), *one.average], [*second.parameters(), *two.average], strict=True):
        assert torch.equal(a, b)


def test_optimization_parameters_are_grouped_by_layer():
    assert layer_name("encoder.layers.0.attention.query.weight") == "encoder.layers.0"
    assert layer_name("decoder.embedding.tokens.weight") == "decoder.embedding"
    assert layer_name("projection.weight") == "projection.weight"


def test_optimization_scaled_rate_is_that_of_an_optimiser_with_the_smaller_rate():
    ours, slow, fast = _model(), _model(), _model()
    scales = {"0.weight": 0.25}
    options = {"schedule": "constant", "warmup": 0, "optimizer": "adamw", "weight_decay": 0.1, "clip": None}
    optimizations = [
        OptimizerWrapper(ours, _settings(**options), scales),
        OptimizerWrapper(slow, _settings(**options | {"learning_rate": 0.125})),
        OptimizerWrapper(fast, _settings(**options)),
    ]
    for update in (1, 2):
        for optimization, model in zip(optimizations, (ours, slow, fast), strict=True):
            _gradient(model, update)
            optimization.step(update, torch.tensor(1.0))
    for (name, p), a, b in zip(ours.named_parameters(), slow.parameters(), fast.parameters(), strict=True):
        assert torch.equal(p, a if name in scales else b)
        assert not torch.equal(a, b)


def test_optimization_parameter_that_never_had_a_gradient_is_saved_and_goes_on():
    """It begins its moments when it gets one, as in a training that was never stopped."""

    def learn(model: nn.Module, optimization: OptimizerWrapper, update: int) -> None:
        _gradient(model, update)
        if update < 4:
            model[0].weight.grad = None
        optimization.step(update, torch.tensor(1.0))

    first, second = _model(), _model()
    settings = _settings(schedule="constant", warmup=0)
    one, two = OptimizerWrapper(first, settings), OptimizerWrapper(second, settings)
    for update in (1, 2):
        learn(first, one, update)
    second.load_state_dict(first.state_dict())
    state = {name: tensor.clone() for name, tensor in one.state().items()}
    assert not [name for name in state if name.endswith(".0.weight")]
    wanted, may = two.expected(state)
    assert may == {f"adam.{key}.0.weight" for key in ("step", "exp_avg", "exp_avg_sq")}
    assert wanted.keys() - may == state.keys()
    two.load_state(state)
    for update in (3, 4, 5):
        learn(first, one, update)
        learn(second, two, update)
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


def test_optimization_moments_that_are_there_in_part_are_not_taken_for_none():
    model = _model()
    optimization = OptimizerWrapper(model, _settings())
    _gradient(model, 1)
    optimization.step(1, torch.tensor(1.0))
    state = optimization.state()
    del state["adam.step.0.weight"]
    assert "adam.step.0.weight" not in optimization.expected(state)[1]


def test_optimization_state_stays_what_it_was_while_the_averaged_weights_are_in_use():
    layer = nn.Linear(2, 2)
    optimization = OptimizerWrapper(layer, TrainingSettings(ema=0.5))
    layer(torch.ones(1, 2)).sum().backward()
    optimization.step(1, optimization.measure_gradient_norms()[0])
    state = optimization.state()
    before = {name: tensor.clone() for name, tensor in state.items()}
    with optimization.use_ema_weights():
        assert all(torch.equal(state[name], before[name]) for name in before)
