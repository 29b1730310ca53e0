"""Real runs that begin with another run's encoder: what they print, keep and learn."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from rich.console import Console

from s2s.data.phrasebook import phrases
from s2s.data.tokenizers import Tokenizer
from s2s.errors import UserError
from s2s.run.folder import TOKENIZER
from s2s.run.inference import find_checkpoint, load
from s2s.run.init_from import Initialization, initialize_from, open_pretrained
from s2s.run.tasks import read, task_of
from s2s.run.training import resume, train
from s2s.training.tensor_files import read_tensors

MODEL = "{kind: transformer, width: 16, heads: 2, feedforward: 32, encoder_layers: 2, dropout: 0.1}"
COMMON = f"model: {MODEL}\ntraining: {{updates: 4, warmup: 1, learning_rate: 0.01}}\nvalidation: {{every: 2}}\n"
MASKED = f"""
name: masked
task: masked-lm
data: {{train: texts.tsv, text: "1", validation: 10, test: null}}
tokenizer: {{kind: word, size: 150, lowercase: true}}
batches: {{tokens: 1000, max_length: 50}}
{COMMON}"""
CLASSIFIER = f"""
name: classes
task: classification
data: {{train: texts.tsv, text: "1", label: "0", classes: [one, other], validation: 10, test: 10}}
batches: {{tokens: 1000, max_length: 50}}
{COMMON}"""
TRANSLATOR = f"""
name: translated
data: {{train: 60, validation: 4, test: null}}
batches: {{tokens: 1000, max_length: 100}}
decoding: {{beam: 1, max_ratio: 0.1, max_extra: 1}}
{COMMON}"""
TASKS = f"""
name: tasks
task: text-to-text
data: {{corpora: {{there: {{train: 60, validation: 4, test: null}}}}}}
decoding: {{beam: 1, max_ratio: 0.1, max_extra: 1}}
{COMMON}"""
TABLE = "encoder.embedding.tokens.weight"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("fine_tuned")
    lines = [f"{i % 2}\t{phrase.source}" for i, phrase in enumerate(phrases("train", 120, seed=4))]
    (folder / "texts.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for name, text in (("masked", MASKED), ("classes", CLASSIFIER), ("translated", TRANSLATOR)):
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    _train(folder, "masked")
    return folder


def _train(folder: Path, name: str, *overrides: str, run: str | None = None) -> tuple[Path, str]:
    recipe = read(folder / f"{name}.yaml", [f"run.dir={folder / (run or name)}", "device.kind=cpu", *overrides])
    with (folder / f"{run or name}.log").open("w+") as file:
        path = train(recipe, Console(file=file, width=300))
        file.seek(0)
        return path, file.read()


def _begin(folder: Path, *overrides: str) -> list[str]:
    return [f"init_from={folder / 'masked'}", *overrides]


def _first_weights(folder: Path, name: str, run: str, *overrides: str) -> tuple[Path, str, dict[str, torch.Tensor]]:
    """A run whose rate is next to nothing: its checkpoint is what it began with."""
    path, log = _train(folder, name, *_begin(folder, "training.learning_rate=1e-12", *overrides), run=run)
    return path, log, read_tensors(find_checkpoint(path, "last") / "model.safetensors")


@pytest.mark.parametrize("name", ["classes", "translated"])
def test_init_from_loads_the_reported_tensors_and_the_tokenizer(folder, name):
    source = load(folder / "masked")
    there = read_tensors(source.checkpoint / "model.safetensors")
    path, log, found = _first_weights(folder, name, f"{name}_begun")
    kept = json.loads((path / "init_from.json").read_text())
    assert sorted([*kept["loaded"], TABLE]) == sorted(n for n in there if n.startswith("encoder."))
    for tensor in kept["loaded"]:
        torch.testing.assert_close(found[tensor], there[tensor], rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(found[TABLE], there[TABLE][:-1], rtol=1e-5, atol=1e-8)
    assert "from masked (masked-lm), checkpoint" in log
    assert "150 of 151 rows" in log
    assert "left out    transform.0" in log
    assert ("new         head" if name == "classes" else "new         decoder") in log
    tokenizer = Tokenizer.load(path / TOKENIZER, "text" if name == "classes" else "shared")
    assert tokenizer.digest == source.tokenizers[0].digest
    recipe = read(path / "recipe.yaml")
    assert (recipe.tokenizer.size, recipe.tokenizer.lowercase) == (150, True)
    assert Path(recipe.init_from).is_absolute()
    assert "150 tokens (word)" in log


def test_init_from_takes_the_source_vocabulary_of_two(folder):
    options = ("tokenizer.shared=false", "tokenizer.kind=word", "tokenizer.size=120", "model.tie=target")
    path, _, found = _first_weights(folder, "translated", "two", *options)
    source, target = (Tokenizer.load(path / TOKENIZER, side) for side in ("source", "target"))
    assert source.digest == load(folder / "masked").tokenizers[0].digest
    assert target.size == 120
    assert len(found[TABLE]) == 150


@pytest.fixture(scope="module")
def two(folder) -> Path:
    """A translator whose two vocabularies have equally many pieces, so that no shape tells them apart."""
    pieces = ("tokenizer.shared=false", "tokenizer.kind=word", "tokenizer.size=60")
    return _train(folder, "translated", *pieces, run="apart")[0]


def _began(folder: Path, name: str, *overrides: str) -> tuple[Any, Initialization, dict[str, torch.Tensor]]:
    """What a training would begin with: the recipe, the beginning, and the model's tensors."""
    recipe = cast(Any, read(folder / f"{name}.yaml", overrides))
    source = open_pretrained(recipe)
    assert source is not None
    recipe = source.adapt_recipe(recipe)
    task_of(recipe).check(recipe)
    model = task_of(recipe).build(recipe, source.tokenizers)
    beginning = initialize_from(model, recipe, source, None)
    return recipe, beginning, dict(model.named_parameters())


@pytest.mark.parametrize("shared", ["true", "false"])
def test_init_from_all_parts_keeps_both_vocabularies(folder, two, shared):
    begun = (f"init_from={two}", "init.parts=all", f"tokenizer.shared={shared}")
    recipe, beginning, found = _began(folder, "translated", *begun)
    assert (recipe.tokenizer.shared, recipe.model.tie) == (False, "target")
    there = read_tensors(find_checkpoint(two, None) / "model.safetensors")
    assert {name: tensor.tolist() for name, tensor in found.items()} == {n: t.tolist() for n, t in there.items()}
    said: list[str] = []
    beginning.log_summary(said.append)
    assert "  tokenizers  60 and 60 tokens (word)" in said


def test_init_from_refuses_one_table_for_two_vocabularies(folder, two):
    with pytest.raises(UserError, match=r"model\.tie: is all"):
        _began(folder, "translated", f"init_from={two}", "init.parts=all", "model.tie=all")


def test_init_from_reports_differing_decoder_settings(folder, two):
    said: list[str] = []
    _began(folder, "translated", f"init_from={two}", "init.parts=all", "model.decoder_positions=rope")[1].log_summary(
        said.append
    )
    assert "  differs     model.decoder_positions is rope, there sinusoidal" in said


def test_init_from_refuses_another_number_of_vocabularies(folder, two):
    (folder / "tasks.yaml").write_text(TASKS, encoding="utf-8")
    with pytest.raises(UserError, match=r"two vocabularies, and this model has one(.|\n)*init.parts: encoder"):
        _began(folder, "tasks", f"init_from={two}", "init.parts=all")
    with pytest.raises(UserError, match=r"one vocabulary, and this model has two(.|\n)*tokenizer.shared: true"):
        _began(folder, "translated", *_begin(folder, "init.parts=all", "tokenizer.shared=false"))


@pytest.mark.parametrize(("freeze", "frozen"), [("all", "encoder."), ("embeddings", TABLE)])
def test_init_from_freezes_and_trains_the_rest(folder, freeze, frozen):
    _, _, first = _first_weights(folder, "classes", f"first_{freeze}")
    path, log = _train(folder, "classes", *_begin(folder, f"init.freeze={freeze}"), run=f"frozen_{freeze}")
    found = read_tensors(find_checkpoint(path, "last") / "model.safetensors")
    stayed = {name for name in found if torch.allclose(found[name], first[name], rtol=1e-4, atol=1e-7)}
    assert stayed == {name for name in found if name.startswith(frozen)}
    assert "frozen" in log
    learning = sum(tensor.numel() for name, tensor in found.items() if name not in stayed)
    assert f"{learning:,} of {sum(tensor.numel() for tensor in found.values()):,} parameters trained" in log


def test_init_from_scales_the_learning_rate_of_loaded_tensors(folder):
    _, _, first = _first_weights(folder, "classes", "first_slow")
    moved = {}
    for scale in (1, 0.01):
        path, log = _train(folder, "classes", *_begin(folder, f"init.learning_rate_scale={scale}"), run=f"slow_{scale}")
        found = read_tensors(find_checkpoint(path, "last") / "model.safetensors")
        moved[scale] = {name: float((found[name] - first[name]).abs().max()) for name in found}
    for name in moved[1]:
        if name.startswith("encoder."):
            assert moved[0.01][name] < 0.05 * moved[1][name]
        else:
            assert moved[0.01][name] > 0.5 * moved[1][name]
    assert "loaded tensors have 0.01 times the learning rate" in log


def test_init_from_is_not_needed_for_resume(folder, tmp_path):
    names = [
        "classes",
        *_begin(folder, "init.freeze=embeddings", "init.learning_rate_scale=0.3"),
        "validation.keep_best=2",
    ]
    whole, _ = _train(folder, *names, run="whole")
    path, _ = _train(folder, *names, run="stopped")
    recipe = (path / "recipe.yaml").read_text()
    last = path / "checkpoints" / "0000004"
    # as if it had been stopped after two of four updates, and the other run were lost
    for file in sorted(last.iterdir(), reverse=True):
        if file.is_file():
            file.unlink()
    for file in (last / TOKENIZER).iterdir():
        file.unlink()
    (last / TOKENIZER).rmdir()
    last.rmdir()
    (path / "recipe.yaml").write_text(recipe.replace(str(folder / "masked"), str(tmp_path / "lost")))
    stopped = path / "checkpoints" / "0000002" / "recipe.yaml"
    stopped.write_text(stopped.read_text().replace(str(folder / "masked"), str(tmp_path / "lost")))
    resume(path, Console(quiet=True))
    one, other = (read_tensors(run / "checkpoints" / "0000004" / "model.safetensors") for run in (whole, path))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["init_from=nowhere"], "not a run"),
        (["model.width=32"], "150 × 16|151 × 16 there and 150 × 32 here"),
        (["model.kind=lstm", "model={kind: lstm, width: 32}"], "no tensor|shape"),
    ],
)
def test_init_from_refuses_a_mismatch_before_writing(folder, overrides, words):
    with pytest.raises(UserError, match=words):
        _train(folder, "classes", *_begin(folder), *overrides, run="refused")
    assert not (folder / "refused").exists()
