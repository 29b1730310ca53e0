"""What onnxruntime computes of an export is what the model computes: the export itself refuses anything else.

`save` holds each graph against the model at five sizes of batch, source and target; here is what it is asked for, that
it refuses, and that the graphs, fed token by token, give the model's log-probabilities.
"""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from s2s.data.tokenizers import BOS
from s2s.errors import UserError
from s2s.models.base import Classifier
from s2s.models.masked_lm import MaskedLM
from s2s.models.patches import ImageShape, read_images
from s2s.recipe.installed import models, module_of

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

from s2s.export import onnx
from s2s.export.onnx import save

SIZE = 23
VARIANTS = [
    ("transformer", {"encoder_positions": "rope", "decoder_positions": "rope", "key_value_heads": 2}),
    ("transformer", {"encoder_positions": "alibi", "decoder_positions": "alibi", "activation": "swiglu"}),
    ("transformer", {"encoder_positions": "relative", "decoder_positions": "relative", "norm": "post"}),
    ("transformer", {"encoder_positions": "learned", "decoder_positions": "none", "norm_kind": "rms"}),
    ("transformer", {"attention": "explicit", "embedding_norm": True}),
    ("lstm-attention", {"attention": "additive", "coverage": True, "input_feeding": True}),
    ("gru", {"bidirectional": False, "encoder_layers": 1, "decoder_layers": 3}),
    ("rnn-tagger", {"cell": "mingru"}),
]
CASES = [(kind, {}) for kind in sorted(models())] + VARIANTS
# the others are slow: torch takes seconds to make a graph
QUICK = (("transformer", {}),)


def _settings(kind: str, options: dict, name: str = "Settings"):
    section = getattr(module_of(kind), name)
    small = {"width": 32, "encoder_layers": 1, "decoder_layers": 1}
    known = {key: value for key, value in small.items() if key in section.model_fields}
    return section(kind=kind, **(known | options))


# where tests check shapes, torch takes a size that was looked at for a constant
CHECKED = pytest.mark.skipif(os.environ.get("S2S_NO_SHAPE_CHECKS") != "1", reason="test_all_models has it run")
SLOW = (pytest.mark.slow, CHECKED)


def _marked(cases):
    return [pytest.param(*case, marks=() if case in QUICK else SLOW, id=" ".join(map(str, case))) for case in cases]


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("S2S_NO_SHAPE_CHECKS") == "1", reason="it is being run")
def test_onnx_all_models_and_tasks_pass_where_no_shapes_are_checked():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-m", "slow", __file__],
        env=os.environ | {"S2S_NO_SHAPE_CHECKS": "1"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert f"{len(CASES) + len(OF_TASKS) + 1} passed" in done.stdout


def _log_probabilities(folder: Path, source: torch.Tensor, valid: torch.Tensor, fed: torch.Tensor) -> np.ndarray:
    """Feeds tokens to the exported graphs one at a time, and returns the log-probabilities of every next token."""
    import onnxruntime

    names = json.loads((folder / "onnx.json").read_text())
    start, step = (onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in ("start", "step"))
    given = {"source": source.numpy(), "valid": valid.numpy()}
    encoded = start.run(None, {name: given[name] for name in names["graphs"]["start"]["inputs"]})
    tensors = dict(zip(names["context"] + names["state"][: names["begun"]], encoded, strict=True))
    for name, shape in list(zip(names["state"], names["empty"], strict=True))[names["begun"] :]:
        tensors[name] = np.zeros([len(source) if size == -1 else size for size in shape], np.float32)
    found = []
    for position in range(fed.shape[1]):
        tensors |= {"newest": fed[:, position : position + 1].numpy(), "written": fed[:, :position].numpy()}
        scores, *state = step.run(None, {name: tensors[name] for name in names["graphs"]["step"]["inputs"]})
        tensors |= dict(zip(names["state"], state, strict=True))
        found.append(torch.from_numpy(scores).log_softmax(-1).numpy())
    return np.stack(found, axis=1)


@pytest.mark.parametrize(("kind", "options"), _marked(CASES))
def test_onnx_exported_graphs_give_the_log_probabilities_of_the_model(kind, options, tmp_path):
    torch.manual_seed(1)
    model = module_of(kind).build(_settings(kind, options), SIZE, SIZE).eval()
    save(model, (SIZE, SIZE), tmp_path)
    source, fed = torch.randint(4, SIZE, (3, 9)), torch.randint(4, SIZE, (3, 9))
    lengths = torch.tensor([9, 9, 9] if model.decoder.is_one_to_one else [9, 4, 1])
    valid = torch.arange(9) < lengths[:, None]
    fed[:, 0] = BOS
    with torch.no_grad():
        wanted = model.logits(source * valid, valid, fed).log_softmax(-1).numpy()
    np.testing.assert_allclose(_log_probabilities(tmp_path, source * valid, valid, fed), wanted, atol=1e-4)


@pytest.mark.parametrize("limit", [3, 6, 7, 10, 11])
def test_onnx_examples_of_a_model_with_few_positions_differ_in_every_length(limit):
    positions = {"encoder_positions": "learned", "decoder_positions": "learned", "max_positions": limit}
    model = module_of("transformer").build(_settings("transformer", positions), SIZE, SIZE)
    examples = onnx._Examples(model, (SIZE, SIZE)).all()
    for length in ([e.source.shape[1] for e in examples], [e.written.shape[1] for e in examples]):
        assert max(length) <= limit
        assert 1 < length[0] != length[1]


@pytest.mark.slow
@CHECKED
@pytest.mark.parametrize("limit", [3, 6])
def test_onnx_graphs_of_a_model_with_few_positions_take_every_length(limit, tmp_path):
    positions = {"encoder_positions": "learned", "decoder_positions": "learned", "max_positions": limit}
    model = module_of("transformer").build(_settings("transformer", positions), SIZE, SIZE).eval()
    save(model, (SIZE, SIZE), tmp_path)
    for read, length in ((1, 1), (limit, 2), (2, limit)):
        source, fed = torch.randint(4, SIZE, (2, read)), torch.randint(4, SIZE, (2, length))
        valid = torch.ones_like(source, dtype=torch.bool)
        with torch.no_grad():
            wanted = model.logits(source, valid, fed).log_softmax(-1).numpy()
        np.testing.assert_allclose(_log_probabilities(tmp_path, source, valid, fed), wanted, atol=1e-4)


@pytest.mark.slow
@CHECKED
def test_onnx_gates_that_forget_all_are_the_same_in_a_graph_after_hundreds_of_steps(tmp_path, monkeypatch):
    torch.manual_seed(1)
    model = module_of("rnn-tagger").build(_settings("rnn-tagger", {"cell": "mingru"}), SIZE, SIZE).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.mul_(20 if "gates.weight" in name else 1)
    save(model, (SIZE, SIZE), tmp_path)
    assert (tmp_path / "onnx.json").exists()
    # with as many digits as everything else has, the sums of so many logarithms are seen to be others
    monkeypatch.setattr(torch.Tensor, "double", torch.Tensor.float)
    with pytest.raises(UserError, match="other numbers"):
        save(model, (SIZE, SIZE), tmp_path)


def _classifier(kind: str) -> nn.Module:
    encoder, width = module_of(kind).build_encoder(_settings(kind, {}), SIZE)
    return Classifier(encoder, width, 3, "max").eval()


def _masked(kind: str) -> nn.Module:
    encoder, width = module_of(kind).build_encoder(_settings(kind, {}), SIZE + 1)
    return MaskedLM(encoder, width, SIZE).eval()


def _images(kind: str) -> nn.Module:
    encoder, width = module_of(kind).build_encoder(_settings(kind, {}), 5)
    read_images(encoder, ImageShape(1, 12, (0.2,), (0.4,)), 4, first=True)
    return Classifier(encoder, width, 3, "first").eval()


def _captions(kind: str) -> nn.Module:
    model = module_of(kind).build(_settings(kind, {"tie": "target"}), 5, SIZE)
    read_images(model.encoder, ImageShape(3, 12, (0.2,) * 3, (0.4,) * 3), 4, first=False)
    return model.eval()


def _language(kind: str) -> nn.Module:
    return module_of(kind).build_language_model(_settings(kind, {}, "LanguageSettings"), SIZE).eval()


TASKS = {"classifier": _classifier, "masked": _masked, "images": _images, "captions": _captions, "language": _language}
OF_TASKS = [
    (name, kind)
    for name in TASKS
    for kind in sorted(models())
    if not (name == "language" and getattr(module_of(kind), "build_language_model", None) is None)
    and not (name == "captions" and kind == "rnn-tagger")
]


@pytest.mark.parametrize(
    ("name", "kind"), [pytest.param(*c, marks=() if c == ("classifier", "transformer") else SLOW) for c in OF_TASKS]
)
def test_onnx_every_task_has_graphs_that_give_its_models_numbers(name, kind, tmp_path):
    torch.manual_seed(1)
    save(TASKS[name](kind), (SIZE, SIZE), tmp_path)
    graphs = json.loads((tmp_path / "onnx.json").read_text())["graphs"]
    writes = {"captions": {"start", "step"}, "language": {"step"}}
    assert set(graphs) == writes.get(name, {"model"})


def test_onnx_full_disk_is_no_fault_of_the_model(tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch.onnx.ONNXProgram, "save", full)

    class Adding(nn.Module):
        """Adds."""

        def forward(self, source, valid):
            return source + valid

    inputs = [[torch.ones(n, m, dtype=torch.long), torch.ones(n, m, dtype=torch.bool)] for n, m in ((2, 3), (4, 5))]
    with pytest.raises(OSError, match="No space left"):
        onnx._write(tmp_path / "model.onnx", Adding(), ["source", "valid"], inputs)


def test_onnx_other_numbers_and_what_no_graph_can_do_are_refused(tmp_path, monkeypatch):
    class Counting(nn.Module):
        """Looks at its numbers to decide what to do."""

        def forward(self, source, valid):
            return source.float() if int(source.sum()) % 2 else valid.float()

    inputs = [[torch.ones(n, m, dtype=torch.long), torch.ones(n, m, dtype=torch.bool)] for n, m in ((2, 3), (4, 5))]
    with pytest.raises(UserError, match="Counting: model cannot be made into a graph") as told:
        onnx._write(tmp_path / "model.onnx", Counting(), ["source", "valid"], inputs)
    assert re.search(
        r"; test_onnx.py:\d+ reads the value of a tensor: return source.float\(\) if int\(", str(told.value)
    )

    class Looping(nn.Module):
        """Looks at each row by itself."""

        def forward(self, source, valid):
            return torch.stack([source[i].float() for i in range(len(source))])

    with pytest.raises(UserError, match=re.escape("write x.shape[0] instead of len")) as told:
        onnx._write(tmp_path / "model.onnx", Looping(), ["source", "valid"], inputs)
    assert re.search(r"a size becomes a constant in test_onnx.py:\d+: .*range\(len\(source\)\)", str(told.value))

    class Doubling(nn.Module):
        """Does otherwise where a graph is made."""

        def forward(self, source, valid):
            return source.float() * (2 if torch.compiler.is_exporting() else 1)

    with pytest.raises(UserError, match=r"other numbers.*\n.*leave out conditions on sizes"):
        onnx._write(tmp_path / "model.onnx", Doubling(), ["source", "valid"], inputs)
