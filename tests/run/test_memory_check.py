"""A model that cannot be trained here is refused before memory is filled; one that can is built as ever.

And an update that finds no memory is one message, whose commands do what they say.
"""

import json
import re
import shlex
from collections import Counter
from pathlib import Path

import pytest
import torch

from s2s.cli.main import commands
from s2s.data.tokenizers import Tokenizer
from s2s.errors import UserError
from s2s.recipe.reading import recipe_path
from s2s.run import memory_check
from s2s.run.memory_check import check_memory
from s2s.run.tasks import read, task_of
from s2s.tasks.seq2seq import build_model
from s2s.tasks.translation.task import TASK
from s2s.training.trainer import Trainer

BYTES = Tokenizer(b"", "bytes", "identity", lowercase=False).size


def _recipe(*overrides: str):
    return read(recipe_path(Path("translate")), ["model.width=16", "model.feedforward=32", *overrides])


def test_memory_check_changes_no_weight():
    recipe = _recipe()
    alone = build_model(recipe, 9, 9).state_dict()
    with check_memory(TASK, recipe):
        counted = build_model(recipe, 9, 9).state_dict()
    assert counted.keys() == alone.keys()
    assert all(torch.equal(counted[name], alone[name]) for name in alone)
    # and the hook is gone
    assert len(torch.nn.modules.module._global_parameter_registration_hooks) == 0


def test_memory_check_refuses_too_many_layers_before_building(monkeypatch):
    parameters = sum(p.numel() for p in build_model(_recipe(), BYTES, BYTES).parameters())
    monkeypatch.setattr(memory_check, "_memory", lambda kind: 16 * (parameters + 16 * BYTES + 200))
    with check_memory(TASK, _recipe()):
        pass
    with (
        pytest.raises(UserError, match=r"parameters needs more than .* GiB\s+of memory"),
        check_memory(TASK, _recipe("model.encoder_layers=20")),
    ):
        raise AssertionError("it was let in")


@pytest.mark.parametrize(
    "name", ["translate", "cases", "captioning", "lm_builtin", "mlm_imdb", "text_to_text", "vit_mnist"]
)
def test_memory_check_refuses_models_of_every_task_before_data_are_read(monkeypatch, name):
    recipe = read(recipe_path(Path(name)), [])
    monkeypatch.setattr(memory_check, "_memory", lambda kind: 1)
    with pytest.raises(UserError, match="GiB"), check_memory(task_of(recipe), recipe):
        raise AssertionError("it was let in")


def test_memory_check_counts_the_decoder_behind_an_encoder_of_images(monkeypatch):
    monkeypatch.setattr(memory_check, "_memory", lambda kind: 10**8)
    small, large = (read(recipe_path(Path("captioning")), [f"model.decoder_layers={layers}"]) for layers in (1, 200))
    with check_memory(task_of(small), small):
        pass
    with pytest.raises(UserError, match="GiB"), check_memory(task_of(large), large):
        raise AssertionError("it was let in")


def test_memory_check_refuses_a_large_vocabulary(monkeypatch):
    parameters = sum(p.numel() for p in build_model(_recipe(), BYTES, BYTES).parameters())
    monkeypatch.setattr(memory_check, "_memory", lambda kind: 32 * parameters)
    with pytest.raises(UserError, match=r"tokenizer\.size"), check_memory(TASK, _recipe()):
        build_model(_recipe(), 10_000, 10_000)


def test_memory_check_refuses_one_tensor_that_does_not_fit(monkeypatch):
    with pytest.raises(UserError, match="GiB"), check_memory(TASK, _recipe()):
        torch.empty(2**60)
    with pytest.raises(RuntimeError, match="another"), check_memory(TASK, _recipe()):
        raise RuntimeError("another")


SIZES = "width: 8, heads: 2, feedforward: 8, encoder_layers: 1"
TASKS = {
    "batches.tokens": f"""
name: tiny
data: {{train: 60, validation: 1, test: 1}}
tokenizer: {{kind: bytes}}
batches: {{tokens: 700}}
model: {{kind: transformer, {SIZES}, decoder_layers: 1}}
training: {{updates: 5, warmup: 1}}
validation: {{every: 2, sentences: 1, metric: loss}}
decoding: {{beam: 1, max_ratio: 0.1, max_extra: 1}}
device: {{kind: cpu, threads: 1}}
""",
    "batches.rows": f"""
name: tiny
task: classification
data: {{corpus: files, classes: [a, b], first_label: 1, train: table.tsv, validation: 10, test: null}}
tokenizer: {{kind: word, size: 10}}
batches: {{rows: 12, max_length: 12}}
model: {{kind: transformer, {SIZES}}}
training: {{updates: 5, warmup: 1}}
validation: {{every: 2}}
device: {{kind: cpu, threads: 1}}
""",
}


def _s2s(command: str) -> None:
    commands(shlex.split(command.removeprefix("s2s ")), standalone_mode=False)


def _learned(run: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: line[key] for key in ("update", "loss")} for line in lines if "learning_rate" in line]


@pytest.mark.parametrize(("key", "at"), [*zip(TASKS, (1, 4), strict=True)])
def test_out_of_memory_error_names_the_settings_to_reduce(tmp_path, monkeypatch, key, at):
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(TASKS[key])
    Path("table.tsv").write_text("label\ttext\n" + "".join(f"{i % 2 + 1}\tx{i} {'yz'[i % 2]}\n" for i in range(58)))
    _s2s("train tiny.yaml run.dir=run")

    real, examples = Trainer._add_gradient, {}

    def seen(trainer: Trainer, compute, count, batch):
        examples.setdefault(trainer.update, []).append(len(batch.indices))
        return real(trainer, compute, count, batch)

    def starved(trainer: Trainer, compute, count, batch):
        # what torch says of memory that there is not, word for word
        return torch.empty(2**60) if trainer.update == at - 1 else real(trainer, compute, count, batch)

    with monkeypatch.context() as once:
        once.setattr(Trainer, "_add_gradient", starved)
        with pytest.raises(UserError, match="out of memory in a batch: can't allocate memory") as refused:
            _s2s("train tiny.yaml run.dir=less")
    message = str(refused.value)
    assert f"after update {at - 1} of 5; {'no checkpoint yet' if at == 1 else 'last checkpoint: update 2'}" in message
    smaller, again = re.findall(r"s2s train .*", message)
    assert f" {key}={350 if key == 'batches.tokens' else 6} " in smaller
    assert " training.tokens_per_update=700" in smaller or " training.examples_per_update=12" in smaller
    # with the same memory again, nothing has happened
    _s2s(again)
    assert _learned(Path("less")) == _learned(Path("run"))
    monkeypatch.setattr(Trainer, "_add_gradient", seen)
    _s2s("train tiny.yaml run.dir=whole")
    whole = examples.copy()
    examples.clear()
    _s2s(smaller)
    assert max(map(max, examples.values())) <= max(map(max, whole.values())) / 2 + 1
    assert sum(map(sum, whole.values())) == pytest.approx(sum(map(sum, examples.values())), rel=0.3)
    assert Counter(map(len, examples.values())).most_common(1)[0][0] == 2


def test_out_of_memory_check_passes_on_other_errors(tmp_path, monkeypatch):
    def broken(*_words: object) -> None:
        raise RuntimeError("shapes do not fit")

    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(TASKS["batches.tokens"])
    monkeypatch.setattr(Trainer, "_add_gradient", broken)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        _s2s("train tiny.yaml run.dir=run")
