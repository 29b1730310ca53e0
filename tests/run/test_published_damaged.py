"""Published folders that are damaged or exchanged: a new answer or one message, never an old one or a traceback."""

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from s2s.errors import UserError
from s2s.run.inference import load
from s2s.run.published import convert_to_run

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "dog", "runs", ".", "##s"]
WIDTH = 8
CONFIG: dict[str, Any] = {
    **{"model_type": "bert", "hidden_act": "gelu", "hidden_size": WIDTH, "num_attention_heads": 2},
    **{"intermediate_size": 16, "num_hidden_layers": 1, "max_position_embeddings": 12, "vocab_size": len(WORDS)},
}


def _tensors() -> dict[str, torch.Tensor]:
    layer, linear = "encoder.layer.0.", {}
    for name, rows, columns in (
        *((f"{layer}attention.self.{part}", WIDTH, WIDTH) for part in ("query", "key", "value")),
        *((f"{layer}attention.output.dense", WIDTH, WIDTH), ("cls.predictions.transform.dense", WIDTH, WIDTH)),
        *((f"{layer}intermediate.dense", 16, WIDTH), (f"{layer}output.dense", WIDTH, 16)),
    ):
        linear |= {f"{name}.weight": torch.randn(rows, columns), f"{name}.bias": torch.randn(rows)}
    for name in ("embeddings", f"{layer}attention.output", f"{layer}output", "cls.predictions.transform"):
        linear |= {f"{name}.LayerNorm.weight": torch.ones(WIDTH), f"{name}.LayerNorm.bias": torch.zeros(WIDTH)}
    return linear | {
        "embeddings.word_embeddings.weight": torch.randn(len(WORDS), WIDTH),
        "embeddings.position_embeddings.weight": torch.randn(12, WIDTH),
        "embeddings.token_type_embeddings.weight": torch.randn(2, WIDTH),
        "cls.predictions.bias": torch.randn(len(WORDS)),
    }


@pytest.fixture
def bert(tmp_path, monkeypatch) -> Path:
    """A BERT of random numbers, as it is published."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    torch.manual_seed(1)
    folder = tmp_path / "bert"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    save_file(_tensors(), folder / "model.safetensors")
    return folder


def _same_date(path: Path, content: bytes) -> None:
    """Exchanges what a file holds for as many other bytes, and leaves its date."""
    stat = path.stat()
    assert len(content) == stat.st_size
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_published_files_that_changed_are_read_again(bert):
    before = load(bert)
    assert load(bert).checkpoint == before.checkpoint
    _same_date(bert / "vocab.txt", (bert / "vocab.txt").read_bytes().replace(b"dog", b"cat"))
    assert load(bert).tokenizers[0].encode("a cat") == before.tokenizers[0].encode("a dog")
    tensors = load_file(bert / "model.safetensors")
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, bert / "other.safetensors")
    _same_date(bert / "model.safetensors", (bert / "other.safetensors").read_bytes())
    changed = [
        (b - a).detach().min() for a, b in zip(before.model.parameters(), load(bert).model.parameters(), strict=True)
    ]
    assert min(map(float, changed)) > 0.5


def test_published_copy_that_was_damaged_is_rebuilt_and_reported(bert, capsys):
    place = convert_to_run(bert)
    kept = (place / "model.safetensors").read_bytes()
    (place / "model.safetensors").write_bytes(kept[:-4] + b"abcd")
    load(bert)
    assert (place / "model.safetensors").read_bytes() == kept
    (said,) = capsys.readouterr().err.splitlines()
    assert said.endswith(f"model.safetensors: has changed since it was exported; converting {bert} again")


def _refused(bert: Path) -> str:
    with pytest.raises(UserError) as refused:
        load(bert)
    assert str(bert) in str(refused.value)
    assert "→" in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("value", ["16", -1, 0, 1.5, None, [], {}, True, 10**9, 3, "\ud800"])
@pytest.mark.parametrize("key", ["hidden_size", "num_attention_heads", "num_hidden_layers", "max_position_embeddings"])
def test_published_config_with_impossible_sizes_is_reported(bert, key, value):
    (bert / "config.json").write_text(json.dumps(CONFIG | {key: value}))
    _refused(bert)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        *(("config.json", text) for text in ("[[[" * 50_000, "[]", "5", "{", "\xff", '{"model_type": []}')),
        *(("tokenizer.json", text) for text in ("[" * 99_999, "[]", "{}", '{"model": []}', '{"model": {"vocab": []}}')),
        ("tokenizer.json", '{"model": {"type": "WordPiece", "vocab": {"a": "0"}}}'),
        ("tokenizer_config.json", '{"do_lower_case": "yes"}'),
        ("tokenizer_config.json", "["),
        ("vocab.txt", "a\nb\n"),
        ("model.safetensors", "xx"),
    ],
)
def test_published_config_that_is_damaged_is_reported(bert, file, content):
    (bert / file).write_bytes(content.encode("latin-1"))
    _refused(bert)


@pytest.mark.parametrize("file", ["vocab.txt", "tokenizer.json", "model.safetensors", "tokenizer_config.json"])
def test_published_pipe_instead_of_a_file_is_refused(bert, file):
    (bert / file).unlink(missing_ok=True)
    os.mkfifo(bert / file)
    assert "not a regular file" in _refused(bert)


@pytest.mark.parametrize("content", [[1, 2], {"a": 1}, {1: torch.ones(1)}, {}, torch.ones(3), "x"])
def test_published_pickle_without_tensors_is_reported(bert, content):
    (bert / "model.safetensors").unlink()
    torch.save(content, bert / "pytorch_model.bin")
    _refused(bert)


def test_published_tensor_of_wrong_shape_or_value_is_reported(bert):
    whole = load_file(bert / "model.safetensors")
    for name in whole:
        for other in (torch.tensor(1.0), torch.ones(3, 5, 2)):
            save_file(copy.copy(whole) | {name: other}, bert / "model.safetensors")
            _refused(bert)
    name = "encoder.layer.0.output.dense.bias"
    save_file(whole | {name: torch.full((WIDTH,), torch.nan)}, bert / "model.safetensors")
    assert f"tensor {name} contains NaN" in _refused(bert)
