"""Optimizers and the L1 penalty compared with torch."""

import subprocess
import sys
from typing import get_args

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from s2s.recipe.schema import OptimizationSettings, OptimizerName
from s2s.training.muon import Muon, orthogonalize
from s2s.training.optimization import OptimizerWrapper

RATE = 0.05


def _settings(**changes) -> OptimizationSettings:
    plain = {"updates": 100, "warmup": 0, "learning_rate": RATE, "schedule": "constant", "clip": None}
    return OptimizationSettings(**(plain | changes))


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 3), nn.LayerNorm(3))


def _learn(model: nn.Module, update: int, penalty: float = 0.0) -> None:
    """The gradient of some loss, with a penalty on the matrix in the loss itself."""
    torch.manual_seed(update)
    loss = model(torch.randint(5, (6,))).square().mul(torch.randn(6, 3)).sum()
    (loss + penalty * model[1].weight.abs().sum()).backward()


SGD = {"optimizer": "sgd"}


@pytest.mark.parametrize(
    ("changes", "theirs"),
    [
        ({}, {}),
        ({"momentum": 0.9}, {"momentum": 0.9}),
        ({"momentum": 0.9, "nesterov": True}, {"momentum": 0.9, "nesterov": True}),
    ],
    ids=str,
)
def test_optimizers_sgd_is_that_of_torch(changes, theirs):
    ours, other = _model(), _model()
    optimization = OptimizerWrapper(ours, _settings(**SGD, weight_decay=0.1, **changes))
    matrix, rest = [other[1].weight], [p for p in other.parameters() if p is not other[1].weight]
    sgd = torch.optim.SGD([{"params": matrix, "weight_decay": 0.1}, {"params": rest}], lr=RATE, **theirs)
    for update in range(1, 6):
        _learn(ours, update)
        _learn(other, update)
        # one that comes later than the others
        if update < 3:
            ours[2].bias.grad = other[2].bias.grad = None
        optimization.step(update, torch.tensor(1.0))
        sgd.step()
        sgd.zero_grad()
    for a, b in zip(ours.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_l1_penalty_equals_a_loss_term_and_skips_biases_norms_and_embeddings(optimizer):
    ours, other = _model(), _model()
    with_key = OptimizerWrapper(ours, _settings(optimizer=optimizer, l1=0.3))
    in_loss = OptimizerWrapper(other, _settings(optimizer=optimizer))
    for update in (1, 2, 3):
        _learn(ours, update)
        _learn(other, update, penalty=0.3)
        for optimization in (with_key, in_loss):
            optimization.step(update, torch.tensor(1.0))
    for a, b in zip(ours.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "adafactor"])
def test_optimizers_decoupled_penalty_comes_after_the_step_and_leaves_numbers_at_zero(optimizer):
    ours, other = _model(), _model()
    with torch.no_grad():
        for model in (ours, other):
            model[1].weight[0] *= 0.01
    with_key = OptimizerWrapper(ours, _settings(optimizer=optimizer, l1=0.8))
    without = OptimizerWrapper(other, _settings(optimizer=optimizer))
    _learn(ours, 1)
    _learn(other, 1)
    for optimization in (with_key, without):
        optimization.step(1, torch.tensor(1.0))
    limit = RATE * 0.8
    before = other[1].weight.detach()
    expected = torch.where(before.abs() <= limit, 0.0, before - limit * before.sign())
    torch.testing.assert_close(ours[1].weight.detach(), expected, atol=1e-7, rtol=1e-6)
    assert (expected == 0).any()
    assert (ours[1].weight == 0).sum() == (expected == 0).sum()
    assert torch.equal(ours[1].bias, other[1].bias)
    assert torch.equal(ours[0].weight, other[0].weight)


@pytest.mark.parametrize(
    "changes",
    [SGD, SGD | {"momentum": 0.9}, {"optimizer": "adamw", "l1": 0.5}, {"optimizer": "adam", "l1": 0.5}],
    ids=str,
)
def test_optimizers_broken_gradient_moves_nothing(changes):
    model = _model()
    optimization = OptimizerWrapper(model, _settings(**changes))
    _learn(model, 1)
    optimization.step(1, torch.tensor(1.0))
    before = [p.detach().clone() for p in model.parameters()]
    kept = {name: tensor.clone() for name, tensor in optimization.state().items()}
    _learn(model, 2)
    model[1].weight.grad[0, 0] = float("nan")
    optimization.step(2, torch.tensor(1.0), found_inf=torch.tensor(1.0))
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    assert all(torch.equal(kept[name], tensor) for name, tensor in optimization.state().items())


def test_optimizer_settings_unknown_to_the_class_are_refused():
    with pytest.raises(ValidationError, match=r"momentum has no effect with adam; .* set optimizer: sgd"):
        _settings(momentum=0.9)
    with pytest.raises(ValidationError, match="nesterov is a form of momentum, which is 0"):
        _settings(**SGD, nesterov=True)
    for key, other, default in (("betas", (0.8, 0.98), (0.9, 0.98)), ("epsilon", 1e-8, 1e-9)):
        with pytest.raises(ValidationError, match=f"{key} has no effect with sgd"):
            _settings(optimizer="sgd", **{key: other})
        # what a run has written down has all keys
        assert _settings(optimizer="sgd", **{key: default}) == _settings(optimizer="sgd")
        assert OptimizationSettings.model_validate_json(_settings(optimizer="sgd").model_dump_json())
        assert getattr(_settings(optimizer="adamw", **{key: other}), key) == other


OPTIMIZERS = get_args(OptimizerName)
CLASSES = {
    name.lower(): each
    for name, each in vars(torch.optim).items()
    if isinstance(each, type) and issubclass(each, torch.optim.Optimizer)
}


def test_optimizer_names_are_those_of_torch():
    assert {*OPTIMIZERS} == CLASSES.keys() - {"optimizer", "lbfgs", "sparseadam"}


# the first step of sgd, asgd and radam is linear in the gradient, so both are the same; rprop has no decay
@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name not in ("sgd", "asgd", "radam", "rprop")])
def test_optimizers_decay_is_decoupled_where_the_l1_penalty_is(name):
    moved = []
    for decay in (0.0, 0.5):
        model = _model().double()
        optimization = OptimizerWrapper(model, _settings(optimizer=name, weight_decay=decay))
        for tensor in model.parameters():
            tensor.grad = torch.full_like(tensor, 0.3)
        optimization.step(1, torch.tensor(1.0))
        moved.append(model[1].weight.detach())
    without, decayed = moved
    shrunk = without - RATE * 0.5 * _model().double()[1].weight.detach()
    assert torch.allclose(decayed, shrunk, atol=1e-9, rtol=1e-6) == (name in ("adamw", "muon", "adafactor"))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_keys_that_the_recipe_accepts_are_those_that_its_classes_get(name):
    for key, argument, values in (
        ("betas", "betas", {"betas": (0.8, 0.9)}),
        ("epsilon", "eps", {"epsilon": 1e-4}),
        ("momentum", "momentum", {"momentum": 0.5}),
        ("nesterov", "nesterov", {"momentum": 0.5, "nesterov": True}),
    ):
        # not validated, so that a class that gets a refused key shows it
        optimization = OptimizerWrapper(_model(), _settings(optimizer=name).model_copy(update=values))
        gets = any(each.defaults.get(argument) == values[key] for each in optimization.optimizers)
        try:
            _settings(optimizer=name, **values)
        except ValidationError:
            assert not gets, key
        else:
            assert gets, key


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name != "muon"])
def test_optimizer_steps_as_its_torch_class_does_from_the_same_settings(name):
    ours, other = _model().double(), _model().double()
    settings = _settings(optimizer=name)
    optimization = OptimizerWrapper(ours, settings)
    adam = {"betas": settings.betas, "eps": settings.epsilon}
    own = {
        **dict.fromkeys(("adam", "adamw", "nadam", "radam", "adamax"), adam),
        **{key: {"eps": settings.epsilon} for key in ("rmsprop", "adagrad", "adadelta")},
    }
    decay = {} if name == "rprop" else {"weight_decay": 0}
    theirs = CLASSES[name](other.parameters(), lr=RATE, **decay, **own.get(name, {}))
    for update in range(1, 21):
        for model in (ours, other):
            torch.manual_seed(update)
            model(torch.randint(5, (6,))).mul(torch.randn(6, 3).double()).sum().backward()
        optimization.step(update, torch.tensor(1.0))
        theirs.step()
        theirs.zero_grad()
    for a, b in zip(ours.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_resumes_to_the_same_bits(name):
    first, second = _model(), _model()
    settings = _settings(optimizer=name)
    one, two = OptimizerWrapper(first, settings), OptimizerWrapper(second, settings)
    for update in range(1, 7):
        _learn(first, update)
        one.step(update, torch.tensor(1.0))
        if update == 3:
            second.load_state_dict(first.state_dict())
            state = {key: tensor.clone() for key, tensor in one.state().items()}
            wanted, _ = two.expected(state)
            shapes = lambda tensors: {key: (t.shape, t.dtype) for key, t in tensors.items()}  # noqa: E731
            assert shapes(wanted) == shapes(state)
            two.load_state(state)
        if update > 3:
            _learn(second, update)
            two.step(update, torch.tensor(1.0))
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_fused_optimizers_agree_with_float64_and_with_the_single_tensor_ones(name):
    models = [_model() for _ in range(3)]
    models[1].double()
    momentum = {"momentum": 0.9} if name == "sgd" else {}
    fused, wide = (OptimizerWrapper(model, _settings(optimizer=name, **momentum)) for model in models[:2])
    adam = {} if name == "sgd" else {"betas": (0.9, 0.98), "eps": 1e-9, "weight_decay": 0.0}
    plain = CLASSES[name](models[2].parameters(), lr=RATE, foreach=False, fused=False, **adam, **momentum)
    for update in range(1, 21):
        torch.manual_seed(update)
        gradients = [torch.randn(p.shape) for p in models[0].parameters()]
        for model in models:
            for p, gradient in zip(model.parameters(), gradients, strict=True):
                p.grad = gradient.to(p.dtype, copy=True)
        for optimization in (fused, wide):
            optimization.step(update, torch.tensor(1.0))
        plain.step()
    for a, b, c in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(a.double(), b, atol=2e-6, rtol=1e-6)
        torch.testing.assert_close(c, a, atol=2e-6, rtol=1e-6)


@pytest.mark.parametrize("shape", [(5, 5), (12, 5), (5, 12)])
def test_orthogonalize_applies_the_polynomial_to_singular_values(shape):
    torch.manual_seed(0)
    matrices = torch.randn(3, *shape, dtype=torch.float64)
    left, values, right = torch.linalg.svd(matrices, full_matrices=False)
    values = values / values.square().sum(1, keepdim=True).sqrt()
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    torch.testing.assert_close(orthogonalize(matrices), left * values[:, None] @ right)


@pytest.mark.parametrize(("nesterov", "decay"), [(True, 0.1), (False, 0.0)])
def test_muon_steps_as_torch_does_up_to_the_rounding_of_bf16(nesterov, decay):
    shapes = [(8, 16), (16, 8), (8, 16), (12, 12)]
    torch.manual_seed(0)
    ours = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    before = [p.detach().clone() for p in ours]
    optimizers = [
        kind(own, lr=RATE, weight_decay=decay, nesterov=nesterov, adjust_lr_fn="match_rms_adamw")
        for kind, own in ((Muon, ours), (torch.optim.Muon, theirs))
    ]
    for update in range(10):
        for p, q in zip(ours, theirs, strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        if update == 0:
            ours[2].grad = theirs[2].grad = None  # a parameter without a gradient stays, and its momentum starts later
        for optimizer in optimizers:
            optimizer.step()
    for p, q, start in zip(ours, theirs, before, strict=True):
        assert (p - q).norm() < 0.01 * (q - start).norm()


def test_optimizers_muon_moves_hidden_matrices_and_adamw_the_rest():
    model = _model()
    optimization = OptimizerWrapper(model, _settings(optimizer="muon"))
    _learn(model, 1)
    optimization.step(1, torch.tensor(1.0))
    kinds = {name.rsplit(".", 2)[1] + "." + name.rsplit(".", 1)[1]: name.split(".")[0] for name in optimization.state()}
    assert kinds == {"0.weight": "adam", "1.weight": "muon", "1.bias": "adam", "2.weight": "adam", "2.bias": "adam"}
    assert not optimization.skips_on_device


@pytest.mark.slow
def test_optimizers_do_not_import_torch_dynamo():
    code = (
        "import sys, torch\nfrom s2s.recipe.schema import OptimizationSettings as S\n"
        "from s2s.training.optimization import OptimizerWrapper\n"
        "for kind in ('adam', 'adamw', 'sgd', 'muon', 'rmsprop'):\n"
        "    layer = torch.nn.Linear(2, 2)\n    layer(torch.ones(1, 2)).sum().backward()\n"
        "    o = OptimizerWrapper(layer, S(optimizer=kind, l1=0.1))\n    o.step(1, o.measure_gradient_norms()[0])\n"
        "print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
