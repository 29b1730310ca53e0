"""A run of masked-language modelling, and what can be begun and asked with it."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from rich.console import Console

import s2s
from s2s.cli.main import commands
from s2s.data.phrasebook import phrases
from s2s.data.tables import TextSource
from s2s.data.tokenized import encode_texts
from s2s.errors import UserError
from s2s.models.masked_lm import MaskedLM
from s2s.recipe.installed import encoder_settings, module_of
from s2s.recipe.schema import DeviceSettings, SeedSettings
from s2s.run.folder import open_run
from s2s.run.inference import evaluate, load
from s2s.run.tasks import read, task_of
from s2s.run.training import train
from s2s.tasks import base
from s2s.tasks.masked_lm.bias import probe
from s2s.tasks.masked_lm.data import MaskedText
from s2s.tasks.masked_lm.filling import fill, weigh_words
from s2s.tasks.masked_lm.recipe import MaskedTraining, MaskingSettings, WindowSettings
from s2s.tasks.masked_lm.task import MaskedScores, masked_loss, measure
from s2s.training.device import select_device
from s2s.training.progress import no_progress_bar
from s2s.training.trainer import Trainer, mean_loss

RECIPE = """
name: tiny
task: masked-lm
data: {train: texts.tsv, text: "0", validation: 10, test: 10}
tokenizer: {kind: word, size: 300}
batches: {tokens: 400, max_length: 12}
model: {kind: transformer, width: 16, heads: 2, feedforward: 32, encoder_layers: 1, dropout: 0.1}
training: {updates: 6, warmup: 2}
validation: {every: 3}
"""
PAIRS = """,sent_more,sent_less,stereo_antistereo,bias_type
0,The old man sleeps in the garden.,The old woman sleeps in the garden.,stereo,gender
1,The young girl sees a dog.,The young boy sees a dog.,antistereo,gender
2,The old man sees a dog.,The young man sees a dog.,stereo,age
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("masked")
    lines = [phrase.source for phrase in phrases("train", 200, seed=4)]
    (folder / "texts.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "tiny.yaml").write_text(RECIPE, encoding="utf-8")
    (folder / "pairs.csv").write_text(PAIRS, encoding="utf-8")
    recipe = read(folder / "tiny.yaml", [f"run.dir={folder / 'run'}", "device.kind=cpu"])
    with (folder / "log.txt").open("w") as file:
        train(recipe, Console(file=file, width=200))
    return folder / "run"


def test_masked_lm_run_reports_data_and_scores(run):
    log = (run.parent / "log.txt").read_text()
    assert "180 texts of" in log
    found = json.loads((run / "evaluation-test.json").read_text())
    assert f"loss {found['loss']:.3f} nats per masked token" in log
    again = evaluate(run, keep=False)
    assert (again.loss, again.accuracy, again.masked) == (found["loss"], found["accuracy"], found["masked"])
    assert evaluate(run, "validation", keep=False).texts == 10
    assert found["texts"] == 10
    assert (run / "lengths.png").is_file()
    assert json.loads((run / "manifest.json").read_text())[0]["counts"]["train"] == 180


def test_masked_lm_scores_of_other_texts_are_not_compared(run):
    first, second = evaluate(run, keep=False), evaluate(run, keep=False)
    assert MaskedScores.compare([first, second]) == ()
    other = evaluate(run, "validation", keep=False)
    with pytest.raises(UserError, match="have different test sets"):
        MaskedScores.compare([first, replace(other, split="test")])
    with pytest.raises(UserError, match=f"different numbers of tokens: {first.masked}, {first.masked + 1}"):
        MaskedScores.compare([first, replace(second, masked=first.masked + 1)])


@pytest.mark.parametrize("change", ["tokenizer.size=20", "masking.masked=0.5", "masking.begin=true"])
def test_masked_lm_scores_with_another_vocabulary_or_other_masks_are_not_compared(change, run, tmp_path):
    # words, so that texts have as many tokens with any vocabulary
    small = [f"run.dir={tmp_path / 'other'}", "training.updates=2", "validation.every=2", change]
    first, other = evaluate(run, keep=False), train(read(run.parent / "tiny.yaml", small), Console(quiet=True))
    second = evaluate(other, keep=False)
    assert second.masked == first.masked
    if change == "masking.begin=true":
        assert MaskedScores.compare([first, second]) == ()
        return
    with pytest.raises(UserError, match="do not predict the same masked tokens"):
        MaskedScores.compare([first, second])


def test_masked_lm_refuses_empty_texts(run):
    (run.parent / "empty.tsv").write_text("\n\n", encoding="utf-8")
    with pytest.raises(UserError, match="all of 2 texts are empty"):
        evaluate(run, overrides=[f"data.test={run.parent / 'empty.tsv'}"], keep=False)
    blank = read(
        run / "recipe.yaml", [f"run.dir={run.parent / 'blank'}", f"data.validation={run.parent / 'empty.tsv'}"]
    )
    with pytest.raises(UserError, match=r"data.validation: the validation texts are empty"):
        train(blank, Console(quiet=True))
    assert not (run.parent / "blank").exists()


def test_masked_lm_loss_and_accuracy_are_those_of_masked_tokens(run):
    loaded = load(run)
    texts = datasets.Dataset.from_dict({"text": ["The old man sleeps in the garden.", "A dog sees the bird."]})
    pieces = encode_texts(texts, loaded.tokenizers[0])
    examples = MaskedText(pieces, loaded.tokenizers[0].size, MaskingSettings(share=0.4), WindowSettings(max_length=12))
    loss, accuracy, count = measure(loaded.model, examples, loaded.device_context)
    batch = examples.collate(np.array([0, 1]), 0)
    with torch.no_grad():
        scores = loaded.model.log_probabilities(batch.source, batch.source_valid, batch.chosen)
    assert count == batch.count == len(scores)
    assert accuracy == pytest.approx(100 * float((scores.argmax(1) == batch.targets).float().mean()))
    assert loss == pytest.approx(-float(scores.gather(1, batch.targets[:, None]).mean()), rel=1e-2)
    assert loss == pytest.approx(mean_loss(loaded.model, examples, masked_loss, loaded.device_context), rel=1e-2)


def test_fill_loads_the_saved_run(run):
    model, (tokenizer,) = load(run).model, load(run).tokenizers
    assert len(fill(model, tokenizer, "The old ___ sleeps.", False, best=3).fillers) == 3
    words = [piece.removeprefix("▁") for piece in tokenizer.tokens([10, 11])]
    assert weigh_words(model, tokenizer, "The old ___ sleeps.", words, False).pieces == 1


def test_fill_in_python_is_that_of_the_command(run):
    asked, python = ["fill", str(run), "The old ___"], s2s.load(run)
    shown = CliRunner().invoke(commands, [*asked, "--best", "3"]).output
    assert f"{python.fill('The old ___', best=3)}\n" == shown
    words = [piece.removeprefix("▁") for piece in python.loaded.tokenizers[0].tokens([10, 11])]
    shown = CliRunner().invoke(commands, [*asked, "--words", "/".join(words)]).output
    assert f"{python.weigh_words('The old ___', words)}\n" == shown
    with pytest.warns(UserWarning, match="not in the vocabulary: 'xylophone'; the filler may be nonsense") as warned:
        python.fill("The xylophone ___")
    assert warned[0].filename == __file__
    with pytest.raises(UserError, match=r"^words: 'xylophone' is unknown"):
        python.weigh_words("The old ___", ["xylophone", words[0]])


def test_fill_warns_about_words_that_the_tokenizer_does_not_know(run):
    found = CliRunner().invoke(commands, ["fill", str(run), "The xylophone ___"])
    assert found.stderr == "not in the vocabulary: 'xylophone'; the filler may be nonsense\n"
    assert CliRunner().invoke(commands, ["fill", str(run), "The old ___"]).stderr == ""


def test_bias_probe_is_saved_as_json_table_and_figure(run, painted):
    found = probe(load(run), run.parent / "pairs.csv")
    kept = json.loads((run / "probe-bias.json").read_text())
    assert (kept["all"]["pairs"], kept["all"]["ties"]) == (found.all.pairs, found.all.ties) == (3, found.all.ties)
    assert [kind["name"] for kind in kept["kinds"]] == ["gender", "age"]
    assert (run / "probe-bias.csv").read_text().count("\n") == 4
    assert (run / "probe-bias.png").stat().st_size > 1000
    assert "not kept" not in str(found)


def test_bias_probe_is_shown_if_it_cannot_be_saved(run, monkeypatch):
    def refuse(path: Path, text: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(base, "write_atomically", refuse)
    told = str(probe(load(run), run.parent / "pairs.csv"))
    assert "all " in told
    assert f"shown, but not kept: {run}/probe-bias.json: Permission denied" in told


def test_bias_probe_does_not_write_into_a_downloaded_run(run, tmp_path, monkeypatch):
    shutil.copytree(run, tmp_path / "fetched", ignore=shutil.ignore_patterns("probe-*"))
    before = sorted((tmp_path / "fetched").rglob("*"))
    monkeypatch.setattr("s2s.run.folder.resolve_run_path", lambda path: tmp_path / "fetched")
    told = str(probe(load(open_run(Path("hf:somebody/tiny"))), run.parent / "pairs.csv"))
    assert f"shown, but not kept: {tmp_path}/fetched is in the cache" in told
    assert sorted((tmp_path / "fetched").rglob("*")) == before


def test_worst_windows_are_named_by_the_row_of_their_text(run):
    loaded = load(run)
    task, test = task_of(loaded.recipe), TextSource(loaded.recipe.data).load().test
    rows = np.array([7, 2, 9, 4])
    found = task.diagnose(loaded, test.select(rows), rows, no_progress_bar)
    assert found.worst
    for worst in found.worst:
        row = int(re.match(r"text (\d+), ", worst.score)[1]) - 1
        assert row in rows
        assert worst.source in loaded.tokenizers[0].decode(loaded.tokenizers[0].encode(test["text"][row]))


class _Cycles:
    """Texts in which each piece says which one comes next: 4, 5, 6, 7, 4 … from anywhere."""

    lengths = np.full(64, 9)

    def rows(self, indices: np.ndarray) -> list[np.ndarray]:
        return [4 + (i + np.arange(9)) % 4 for i in indices]


def _trainer(kind: str, seed: int, updates: int = 20, dropout: float = 0.1, **changes) -> Trainer:
    torch.manual_seed(seed)
    settings = encoder_settings(kind)(kind=kind, width=32, encoder_layers=1, dropout=dropout)
    encoder, width = module_of(kind).build_encoder(settings, 9)
    windows = WindowSettings(**({"tokens": 160, "max_length": 16} | changes))
    examples = MaskedText(_Cycles(), 8, MaskingSettings(share=0.3), windows)
    training = MaskedTraining(updates=updates, warmup=2, learning_rate=0.01, schedule="constant", ema=0.9)
    device_context = select_device(DeviceSettings(kind="cpu", precision="fp32"))
    return Trainer(MaskedLM(encoder, width, 8), examples, masked_loss, training, SeedSettings(), device_context)


@pytest.mark.parametrize("kind", ["transformer", "gru"])
def test_masked_lm_resume_is_bit_identical(kind):
    whole, stopped, again = _trainer(kind, 0), _trainer(kind, 0), _trainer(kind, 9)
    losses = [update.loss for update in whole.updates(8)]
    for _ in stopped.updates(3):
        pass
    tensors, place = stopped.state()
    again.load_state({name: tensor.clone() for name, tensor in tensors.items()}, place)
    # the fifth update is the first of the second epoch: other masks
    assert [update.loss for update in again.updates(8)] == losses[3:]
    for a, b in zip(again.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["transformer", "lstm"])
def test_masked_lm_learns_from_neighbours(kind):
    trainer = _trainer(kind, 0, updates=150, dropout=0.0, tokens=640)
    for _ in trainer.updates(150):
        pass
    loss, accuracy, _ = measure(trainer.model, trainer.examples, trainer.device_context)
    # the four pieces are equally frequent: knowing nothing costs log 4 = 1.39 nats and names one in four
    assert loss < 0.4
    assert accuracy > 85
