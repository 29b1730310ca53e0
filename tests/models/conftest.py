"""Every installed model, with its defaults and with other settings."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from s2s.models.base import Seq2Seq
from s2s.recipe.installed import models, module_of

SIZE = 23
KINDS = sorted(models())
# a model's other faces: settings that lead through other code than the defaults do
VARIANTS = [
    ("transformer", {"norm": "post", "encoder_positions": "learned", "decoder_positions": "none", "tie": "target"}),
    ("transformer", {"attention": "explicit", "activation": "gelu", "tie": "none"}),
    ("transformer", {"encoder_positions": "rope", "decoder_positions": "rope", "heads_kind": "wide"}),
    (
        "transformer",
        {"encoder_positions": "alibi", "decoder_positions": "alibi", "heads": 6, "width": 36}
        | {"activation": "swiglu", "norm_kind": "rms", "embedding_norm": True},
    ),
    ("transformer", {"encoder_positions": "relative", "decoder_positions": "relative", "attention": "explicit"}),
    ("transformer", {"encoder_positions": "relative", "decoder_positions": "rope", "key_value_heads": 2}),
    ("rnn", {"bidirectional": False, "residual": True}),
    ("gru", {"bidirectional": False, "encoder_layers": 1, "decoder_layers": 3}),
    ("lstm", {"bidirectional": False, "reverse_source": True, "residual": True}),
    ("rnn-attention", {"attention": "dot", "tie": "none"}),
    ("gru-attention", {"attention": "concat", "input_feeding": True}),
    ("gru-attention", {"attention": "additive"}),
    ("conv", {"kernel": 4, "encoder_layers": 2, "decoder_layers": 2, "tie": "none"}),
    ("conv", {"encoder_positions": "none", "decoder_positions": "sinusoidal"}),
    ("minlstm", {"bidirectional": False, "residual": True}),
    ("lstm-attention", {"attention": "location", "tie": "target"}),
    ("rnn-tagger", {"cell": "rnn", "bidirectional": False}),
    ("lstm-attention", {"attention": "additive", "coverage": True}),
    ("lstm-attention", {"attention": "additive", "coverage": True, "input_feeding": True, "reverse_source": False}),
]
CASES = [(kind, {}) for kind in KINDS] + VARIANTS


def _build(kind: str, options: dict, seed: int = 0) -> Seq2Seq:
    # `torch.manual_seed` would store the call stack for each kind of device that is missing
    torch.default_generator.manual_seed(seed)
    module = module_of(kind)
    # two layers are as deep as it takes for one to stand on another
    small = {"width": 32, "encoder_layers": 2, "decoder_layers": 2}
    known = {key: size for key, size in small.items() if key in module.Settings.model_fields}
    return module.build(module.Settings(kind=kind, **known | options), SIZE, SIZE).eval()


def _name(case: tuple[str, dict]) -> str:
    return " ".join([case[0], *(f"{key}={value}" for key, value in case[1].items())])


@pytest.fixture(params=CASES, ids=_name)
def model(request) -> Seq2Seq:
    return _build(*request.param).double()


@pytest.fixture(params=CASES, ids=_name)
def fresh(request) -> Callable[[int], Seq2Seq]:
    """Builds the model from a seed."""
    return lambda seed: _build(*request.param, seed)


@pytest.fixture
def batch() -> tuple[Tensor, Tensor, Tensor]:
    torch.default_generator.manual_seed(1)
    valid = torch.ones(4, 6, dtype=torch.bool)
    valid[1, 4:] = False
    valid[3, 1:] = False
    return torch.randint(4, SIZE, (4, 6)), valid, torch.randint(4, SIZE, (4, 5))
