"""Runs of captioning, whole: learned, stopped and resumed, scored, compared, and asked about files."""

import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from rich.console import Console
from safetensors.torch import load_file

import s2s
from s2s.cli.main import commands
from s2s.errors import Stopped, UserError
from s2s.evaluation.metrics import scores
from s2s.run import training
from s2s.run.folder import open_runs
from s2s.run.inference import evaluate, load, score_together
from s2s.run.tasks import read
from s2s.tasks.base import EvaluationOptions
from s2s.tasks.captioning import task
from s2s.tasks.captioning.data import CaptionSource
from s2s.tasks.captioning.evaluation import METRICS, measure_stated_facts
from s2s.training.logger import RunLog

RECIPE = """
task: captioning
name: scenes
data: {train: 60, validation: 8, test: 12, size: 16}
stem: {size: 4}
tokenizer: {kind: word, size: 60}
batches: {captions: 16, max_length: 16}
model: {kind: transformer, width: 16, heads: 2, feedforward: 16, encoder_layers: 1, decoder_layers: 1, dropout: 0.1}
training: {updates: 12, warmup: 3, learning_rate: 0.01, ema: 0.9}
validation: {every: 6, images: 6}
decoding: {beam: 2, max_length: 14}
device: {threads: 1}
"""


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenes.yaml").write_text(RECIPE)
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, str]:
    """A run, and what it told."""
    folder = tmp_path_factory.mktemp("scenes")
    (folder / "scenes.yaml").write_text(RECIPE)
    return _train(f"run.dir={folder / 'run'}", recipe=folder / "scenes.yaml")


def _train(*overrides: str, recipe: Path = Path("scenes.yaml")) -> tuple[Path, str]:
    console = Console(file=io.StringIO(), width=200)
    return training.train(read(recipe, overrides), console), console.file.getvalue()


def test_captioning_run_logs_draws_and_saves_its_results(trained):
    run, told = trained
    for words in ("train: 60 images", "convolution of 4 x 4: 16 vectors per image", "correct facts: number"):
        assert words in told
    found = json.loads((run / "evaluation-test.json").read_text())
    settings = read(run / "recipe.yaml").data
    test = CaptionSource(settings).load_split("test")
    assert tuple(map(tuple, found["references"])) == test.captions
    assert len(found["captions"]) == len(found["names"]) == 12
    again = scores(found["captions"], test.captions, names=METRICS)
    assert {name: one["value"] for name, one in found["scores"].items()} == {n: s.value for n, s in again.items()}
    told_rightly = {name: share.value for name, share in measure_stated_facts(found["captions"], test).items()}
    assert {name: share["value"] for name, share in found["facts"].items()} == told_rightly
    assert [look["name"] for look in found["looks"]] == ["test 1", "test 5", "test 9"]
    assert {path.name for path in (run / "figures").iterdir()} == {"training.png", "attention-test.png"}
    # what only the data tells is in the recipe of every checkpoint
    assert 0.1 < settings.mean[0] < 0.6
    counts = json.loads((run / "manifest.json").read_text())[0]["counts"]
    assert (counts["train"], counts["captions"]) == (60, len(list(CaptionSource(settings).load_split("train").texts())))


def test_captioning_facts_of_reference_captions_are_all_correct(trained):
    test = CaptionSource(read(trained[0] / "recipe.yaml").data).load_split("test")
    turned = [several[-1] for several in test.captions]
    assert {share.value for share in measure_stated_facts(turned, test).values()} == {100}
    assert scores(turned, test.captions, names=("exact",))["exact"].value == 100


def test_captioning_resume_is_bit_identical(place, monkeypatch):
    straight, _ = _train("run.dir=straight")
    noted = RunLog.log_step

    def stop(log: RunLog, update) -> None:
        noted(log, update)
        # within the second epoch, after a validation
        if update.update == 8:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunLog, "log_step", stop)
        with pytest.raises(Stopped):
            _train("run.dir=stopped")
    training.resume(Path("stopped"), Console(file=io.StringIO()))
    for file in ("model.safetensors", "training.safetensors"):
        one, two = (load_file(Path(run) / "checkpoints/0000012" / file) for run in (straight, "stopped"))
        assert one.keys() == two.keys()
        assert all(one[name].equal(two[name]) for name in one)


def test_caption_attention_of_a_model_without_attention_is_refused_before_the_search(place, monkeypatch):
    _train("model.kind=gru", "model.encoder_layers=1", "training.updates=1", "training.warmup=0", "run.dir=gru")
    Image.fromarray(np.zeros((16, 16, 3), np.uint8)).save("0.png")
    monkeypatch.setattr("s2s.tasks.captioning.figures.write", lambda *given: pytest.fail("captions were computed"))
    with pytest.raises(UserError, match="gru: the model has no attention to draw"):
        CliRunner().invoke(
            commands,
            ["caption", "gru", "0.png", "--attention", "looks.png"],
            standalone_mode=False,
            catch_exceptions=False,
        )
    assert not Path("looks.png").exists()


def test_caption_command_matches_the_evaluation_and_draws_attention(trained, tmp_path, monkeypatch):
    run, _ = trained
    monkeypatch.chdir(tmp_path)
    found = json.loads((run / "evaluation-test.json").read_text())
    test = CaptionSource(read(run / "recipe.yaml").data).load_split("test")
    for row in range(3):
        Image.fromarray(test.pixels[row].transpose(1, 2, 0)).save(f"{row}.png")

    def ask(*words: str) -> str:
        done = CliRunner().invoke(
            commands, ["caption", str(run), *words], standalone_mode=False, catch_exceptions=False
        )
        return done.output

    assert ask("1.png") == f"{found['captions'][1]}\n"
    assert s2s.load(run).caption(["1.png", Path("2.png")]) == found["captions"][1:3]
    with pytest.raises(UserError, match=r"nowhere\.png"):
        s2s.load(run).caption(["1.png", "nowhere.png"])
    several = ask("0.png", "1.png", "2.png", "--attention", "looks.html")
    assert several == "".join(f"{row}.png\t{found['captions'][row]}\n" for row in range(3))
    page = Path("looks.html").read_text(encoding="utf-8")
    words = sum(len(caption.split()) for caption in found["captions"][:3])
    # each word twice: to point at, and below its panel; and nothing from elsewhere
    assert page.count("<button") == page.count("<figure>") == words
    assert set(re.findall(r'(?:src|href)="([^"]{10})', page)) <= {"data:image"}
    ask("0.png", "--attention", "looks.png", "--beam", "1")
    assert Path("looks.png").read_bytes()[:4] == b"\x89PNG"
    for words, reason in (
        (["0.png", "--attention", "looks.pdf"], r"--attention looks.pdf: .pdf is not known"),
        (["0.png", "--attention", "no/looks.png"], r"--attention no/looks.png: there is no folder no"),
    ):
        with pytest.raises(UserError, match=reason):
            ask(*words)
    assert not Path("looks.pdf").exists()
    done = CliRunner().invoke(
        commands, ["caption", str(run), "0.png", "nowhere.png", "1.png", "--attention", "some.html"]
    )
    assert done.exit_code == 1
    assert done.stdout == f"0.png\t{found['captions'][0]}\nnowhere.png\t\n1.png\t{found['captions'][1]}\n"
    assert "image 2: nowhere.png: cannot be read: there is no such file" in done.stderr
    assert Path("some.html").exists()


def test_caption_command_refuses_attention_of_a_model_without_it(place):
    run, _ = _train(
        "model={kind: gru, width: 8, encoder_layers: 1, decoder_layers: 1}",
        "training.updates=4",
        "validation.every=4",
        "training.warmup=1",
    )
    assert json.loads((run / "evaluation-test.json").read_text())["looks"] == []
    Image.fromarray(np.zeros((20, 30), dtype=np.uint8)).save("0.png")
    words = ["caption", str(run), "0.png"]
    assert CliRunner().invoke(commands, words, standalone_mode=False, catch_exceptions=False).stdout.count("\n") == 1
    with pytest.raises(UserError, match="has no attention"):
        CliRunner().invoke(commands, [*words, "--attention", "a.png"], standalone_mode=False, catch_exceptions=False)
    assert not Path("a.png").exists()


def test_captioning_evaluation_is_repeatable_and_compares_equal_test_sets(trained, place):
    run, _ = trained
    other, _ = _train("training.updates=4", "validation.every=4", "training.warmup=1", "stem.kind=patches")
    before = (run / "evaluation-test.json").read_text()
    runs = open_runs([run, other], [], {})
    _, comparisons = score_together(runs, EvaluationOptions(), None, print)
    assert (run / "evaluation-test.json").read_text() == before
    assert [each.metric for each in comparisons] == [name for name in METRICS for _ in range(2)]
    greedy = evaluate(run, "validation", overrides=["decoding.beam=1"], keep=False)
    assert (greedy.beam, len(greedy.captions)) == (1, 8)
    with pytest.raises(UserError, match="different test sets"):
        score_together([open_runs([run], ["data.test=5"], {})[0], runs[1]], EvaluationOptions(), None, print)
    assert load(run).recipe.decoding.beam == 2


def test_captioning_files_train_and_lowercase_is_scored_lowercased(place):
    source = CaptionSource(read(Path("scenes.yaml")).data)
    for name in ("train", "test"):
        part = source.load_split(name)
        rows = ["image,caption"]
        for row, (image, captions) in enumerate(zip(part.pixels, part.captions, strict=True)):
            Image.fromarray(image.transpose(1, 2, 0)).save(f"{name}{row}.png")
            rows += [f"{name}{row}.png,{caption.capitalize()}" for caption in captions]
        Path(f"{name}.csv").write_text("\n".join(rows) + "\n")
    data = "data={corpus: files, train: train.csv, validation: 10, test: test.csv, size: 16}"
    brief = ("training.updates=4", "validation.every=2", "training.warmup=1", "tokenizer.lowercase=true")
    run, told = _train(data, *brief)
    assert "train: 50 images" in told
    found = json.loads((run / "evaluation-test.json").read_text())
    assert found["facts"] is None
    assert found["lowercase"]
    assert found["references"][0][0][0].isupper()
    again = scores(found["captions"], found["references"], lowercase=True, names=METRICS)
    assert found["scores"]["chrf"]["value"] == again["chrf"].value
    done = CliRunner().invoke(commands, ["data", "check", "scenes.yaml", data], standalone_mode=False)
    assert "images also in train" in done.output


def test_captioning_validation_skips_no_caption(place, monkeypatch):
    seen, loss = [], task.mean_loss

    def counted(model, examples, *more):
        seen.append((len(examples.kept), len(examples), examples.num_skipped))
        return loss(model, examples, *more)

    monkeypatch.setattr(task, "mean_loss", counted)
    _, told = _train("batches.max_length=9", "data.test=null")
    assert "training captions are longer than batches.max_length (9): left out" in told
    # all of the eight images' captions, twice
    assert seen == [(13, 13, 0)] * 2


def test_captioning_recipe_mistakes_are_reported_before_writing(place):
    for overrides, reason in (
        (["stem.size=3"], r"stem.size \(3\) must divide data.size \(16\) by halving it: one of 1, 2, 4, 8, 16"),
        (["data.size=12", "stem.size=6"], r"by halving it: one of 1, 2, 4"),
        (["stem={kind: patches, size: 5}"], r"stem.size \(5\) must divide data.size \(16\): one of 1, 2, 4, 8, 16"),
        (["model.tie=all"], r"model.tie is all, but an image has no pieces"),
        (["model.encoder_positions=learned", "model.max_positions=15"], r"15 positions, but an image has 16"),
        (
            ["model.decoder_positions=learned", "model.max_positions=15"],
            r"has 15 positions, but batches.max_length is 16",
        ),
        (["batches.max_length=3"], r"captions are longer than 3 tokens"),
        (
            ["model.decoder_positions=learned", "model.max_positions=9", "batches.max_length=9"],
            r"has 9 positions, but the longest validation caption has \d+ tokens",
        ),
        (["model={kind: rnn-tagger, width: 8}"], r"a model of kind rnn-tagger generates one token for each"),
        (["data.train=all"], r"data.train is 'all', but the built-in corpus is generated"),
        (["data.mean=[0.5]"], r"mean has 1 numbers, but channels is 3"),
        (["data.corpus=files", "data.train=nowhere.csv"], r"nowhere.csv: no such file"),
    ):
        with pytest.raises(UserError, match=reason):
            _train(*overrides)
        assert not Path("runs").exists()


def test_captioning_diagnose_skips_captions_beyond_the_learned_positions(place):
    few = ("data.train=200", "data.validation=1", "data.test=30", "validation.images=1", "batches.max_length=10")
    run, _ = _train(*few, "model.decoder_positions=learned", "model.max_positions=10", "run.dir=few")
    loaded = load(run)
    part = CaptionSource(loaded.recipe.data).load_split("test")
    examples = task.TASK.examples_for_inference(loaded, part)
    assert 0 < examples.num_skipped < len(examples)
    asked = CliRunner().invoke(commands, ["diagnose", str(run)], standalone_mode=False)
    assert not isinstance(asked.exception, UserError), asked.exception
    assert "learned positions" not in asked.output
