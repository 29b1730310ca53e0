"""Pretrained word vectors, compared with the file that they come from."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

from s2s.cli.main import commands
from s2s.data.phrasebook import phrases
from s2s.data.tokenizers import train
from s2s.errors import UserError
from s2s.recipe.schema import PieceSettings
from s2s.run.vectors import read_vectors

TEXTS = [phrase.source for phrase in phrases("train", 60, seed=5)]
WORDS = sorted({word for text in TEXTS for word in text.split()})
RECIPE = """
name: vectors
data: {train: 60, validation: 2, test: null}
tokenizer: {kind: word, size: 120, shared: false}
model: {kind: transformer, width: 16, heads: 2, feedforward: 32, encoder_layers: 1, decoder_layers: 1}
training: {updates: 3, warmup: 1, clip: null}
validation: {every: 3, metric: loss, sentences: 1}
decoding: {beam: 1, max_ratio: 0.1, max_extra: 1}
vectors: {source: glove.txt.gz, freeze: true}
"""


def _vectors(words: list[str], width: int = 16) -> dict[str, np.ndarray]:
    chance = np.random.default_rng(1)
    return {word: chance.normal(scale=3, size=width).round(4) for word in words}


def _written(vectors: dict[str, np.ndarray], header: bool = False) -> str:
    rows = [f"{word} {' '.join(map(str, vector.tolist()))}" for word, vector in vectors.items()]
    head = [f"{len(rows)} {len(next(iter(vectors.values())))}"] if header else []
    return "\n".join([*head, *rows]) + "\n"


@pytest.mark.parametrize("header", [False, True])
def test_vectors_are_those_of_the_file_by_word(tmp_path, header):
    tokenizer = train(TEXTS, PieceSettings(kind="word", size=30), "source")
    vectors = _vectors(WORDS[::2])
    (tmp_path / "v.txt").write_text(_written(vectors, header), encoding="utf-8")
    rows, found = read_vectors(tmp_path / "v.txt", tokenizer, 16)
    words = [tokenizer.decode([row]) for row in rows.tolist()]
    assert set(words) == {word for word in vectors if 3 not in tokenizer.encode(word)}
    for word, row, vector in zip(words, rows.tolist(), found, strict=True):
        assert tokenizer.encode(word) == [row]
        np.testing.assert_allclose(vector.numpy(), vectors[word], rtol=1e-6)


def _train(*words: str):
    return CliRunner().invoke(commands, ["train", *words], standalone_mode=False, catch_exceptions=False)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    # Half of the words of the built-in corpus, so that coverage is neither none nor all.
    words = sorted({word for phrase in phrases("train", 400, seed=9) for word in phrase.source.split()})
    with gzip.open(tmp_path / "glove.txt.gz", "wt", encoding="utf-8") as file:
        file.write(_written(_vectors(words[::2])))
    (tmp_path / "vectors.yaml").write_text(RECIPE)
    return tmp_path


def test_frozen_vectors_are_those_of_the_file_after_training_and_resuming(folder):
    said = _train("vectors.yaml").output
    assert "vectors.source: " in said
    from s2s.run.inference import load

    def table() -> torch.Tensor:
        return load_file(next(Path("runs/vectors/checkpoints").glob("*3/model.safetensors")))[
            "encoder.embedding.tokens.weight"
        ]

    run = load(Path("runs/vectors"))
    rows, found = read_vectors(folder / "glove.txt.gz", run.tokenizers[0], 16)
    assert 0 < len(rows) < run.tokenizers[0].size
    assert f"vectors.source: {len(rows)} of {run.tokenizers[0].size} tokens" in " ".join(said.split())
    # One factor for all: the root mean square of their lengths is 1.
    weight = table()
    torch.testing.assert_close(weight[rows], found / found.norm(dim=1).square().mean().sqrt())
    assert weight[rows].norm(dim=1).square().mean().item() == pytest.approx(1, rel=1e-5)
    (folder / "glove.txt.gz").unlink()
    _train("runs/vectors", "--resume", "training.updates=5")
    later = load_file("runs/vectors/checkpoints/0000005/model.safetensors")
    assert later["encoder.embedding.tokens.weight"].equal(weight)
    losses = [json.loads(line) for line in Path("runs/vectors/metrics.jsonl").read_text().splitlines()]
    assert max(row["update"] for row in losses if "loss" in row) == 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model.width=32"], r"glove.txt.gz:\d+: the vector of .* has 16 numbers, but model.width is 32"),
        (["tokenizer.kind=bytes"], "has no vector for any of the 260 tokens"),
        (["vectors.source=none.txt"], "none.txt"),
        (["vectors.source=null"], "vectors names no file"),
        (["init_from=runs/none"], "init_from has embeddings already"),
    ],
)
def test_vectors_that_cannot_be_are_refused(folder, words, message):
    with pytest.raises(UserError, match=message):
        _train("vectors.yaml", *words)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e60"])
def test_vector_that_is_not_finite_is_named_with_its_line(tmp_path, value):
    tokenizer = train(TEXTS, PieceSettings(kind="word", size=30), "source")
    lines = _written(_vectors(WORDS), False).splitlines()
    known = next(i for i, line in enumerate(lines) if i and 3 not in tokenizer.encode(line.split(" ")[0]))
    word, *numbers = lines[known].split(" ")
    lines[known] = " ".join([word, value, *numbers[1:]])
    (tmp_path / "v.txt").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(UserError, match=f"vector of '{word}' has a number that is infinite or NaN") as refused:
        read_vectors(tmp_path / "v.txt", tokenizer, 16)
    assert refused.value.where == f"{tmp_path / 'v.txt'}:{known + 1}"


@pytest.mark.parametrize(("value", "length"), [(0.0, "0"), (1e30, "inf")])
def test_vectors_that_cannot_be_scaled_are_refused(value, length, folder):
    words = sorted({word for phrase in phrases("train", 60) for word in phrase.source.split()})
    Path("same.vec").write_text(_written(dict.fromkeys(words, np.full(16, value))), encoding="utf-8")
    with pytest.raises(UserError, match=f"root mean square length {length}"):
        _train("vectors.yaml", "vectors.source=same.vec")
