"""A classifier from its recipe to its answers; the commands are called in this process."""

import json
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

import s2s
from s2s.cli.main import commands
from s2s.errors import Stopped, UserError
from s2s.run.inference import evaluate, load
from s2s.run.tasks import read
from s2s.tasks.classification.task import TASK, TextClassificationTask
from s2s.tasks.classification_base import ClassificationEvaluation

CLASSES = ["World", "Sports", "Business"]
TOPICS = {"World": "peace vote treaty war", "Sports": "goal match team coach", "Business": "bank stock oil profit"}
NOISE = ["the", "a", "of", "on", "in", "said", "today", "after", "new", "two", "big", "with"]

RECIPE = """
name: tiny
task: classification
data:
  corpus: files
  text: [title, text]
  classes: [World, Sports, Business]
  first_label: 1
  train: train.tsv
  validation: 30
  test: test.tsv
tokenizer: {kind: word, size: 40}
batches: {tokens: 200, max_length: 12}
model: {kind: transformer, width: 16, heads: 2, feedforward: 32, encoder_layers: 1, dropout: 0.1}
head: {pooling: attention}
training: {updates: 24, warmup: 4, learning_rate: 0.01, ema: 0.9}
validation: {every: 8}
device: {kind: cpu, precision: fp32, threads: 1}
"""


def _s2s(*words: str) -> None:
    commands(words, standalone_mode=False)


def _table(count: int, seed: int) -> str:
    chance = random.Random(seed)
    lines = ["label\ttitle\ttext"]
    for _ in range(count):
        number = chance.randrange(len(CLASSES))
        words = chance.choices(NOISE, k=chance.randint(1, 14))
        words[chance.randrange(len(words))] = chance.choice(TOPICS[CLASSES[number]].split())
        cut = chance.randint(0, 2)
        lines.append(f"{number + 1}\t{' '.join(words[:cut])}\t{' '.join(words[cut:])}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    (folder / "train.tsv").write_text(_table(300, 1))
    (folder / "test.tsv").write_text(_table(60, 2))
    (folder / "tiny.yaml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        _s2s("train", "tiny.yaml")
        _s2s("train", "tiny.yaml", "model.kind=gru", "run.dir=runs/gru", "head.pooling=first")
    return folder


@pytest.fixture
def folder(trained, tmp_path, monkeypatch) -> Path:
    shutil.copytree(trained, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def _test_texts(folder: Path) -> list[str]:
    rows = [line.split("\t") for line in (folder / "test.tsv").read_text().splitlines()[1:]]
    return [" ".join(cell for cell in row[1:] if cell) for row in rows]


def test_classification_run_has_scores_figures_and_complete_checkpoints(folder):
    run = folder / "runs" / "tiny"
    found = json.loads((run / "evaluation-test.json").read_text())
    assert found["classes"] == CLASSES
    assert len(found["truth"]) == len(found["predicted"]) == len(found["probabilities"]) == 60
    right = np.mean(np.array(found["truth"]) == np.array(found["predicted"]))
    assert found["scores"]["accuracy"]["value"] == pytest.approx(100 * right)
    assert [len(example["reading"]["words"]) > 0 for example in found["examples"]] == [True] * len(found["examples"])
    titles = [example["reading"]["title"] for example in found["examples"]]
    assert [re.search(r"predicted (.*) \([01]\.\d+\), true class (.*); ", title).groups() for title in titles] == [
        (example["predicted"], example["truth"]) for example in found["examples"]
    ]
    pictures = {path.name for path in (run / "figures").iterdir()}
    assert {"lengths.png", "classes.png", "curves.png"} <= pictures
    assert {"confusion-test.png", "reliability-test.png", "words-test.png"} <= pictures
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    validations = [entry["validation"] for entry in entries if "validation" in entry]
    assert len(validations) == 3
    assert {"loss", "accuracy", "macro_f1", "training_loss", "training_accuracy"} <= validations[0].keys()
    assert all(entry["count"] <= 200 // 2 for entry in entries if "count" in entry)
    start = json.loads((run / "manifest.json").read_text())[0]
    assert start["counts"]["train"] + start["counts"]["validation"] <= 300
    assert start["counts"]["truncated"] > 0
    # the checkpoint alone is enough
    shutil.copytree(run / "checkpoints" / "0000024", folder / "alone")
    assert load(folder / "alone").recipe.data.classes == tuple(CLASSES)


def test_classification_run_saves_the_classes_of_the_data(folder):
    _s2s("train", "tiny.yaml", "data.classes=null", "run.dir=runs/found", "training.updates=1", "validation.every=1")
    assert read(folder / "runs/found/recipe.yaml").data.classes == ("1", "2", "3")


def test_classification_run_saves_balanced_class_weights_as_numbers(folder):
    brief = ("training.updates=2", "validation.every=2", "training.class_weights=balanced", "training.focal_gamma=1")
    _s2s("train", "tiny.yaml", "run.dir=runs/weighted", *brief)
    recipe = read(folder / "runs/weighted/recipe.yaml")
    labels = TASK.source(recipe).load().train.labels
    counts = np.bincount(labels, minlength=3)
    wanted = {name: len(labels) / (3 * n) for name, n in zip(CLASSES, counts.tolist(), strict=True)}
    assert recipe.training.class_weights == pytest.approx(wanted, rel=1e-5)


def test_classification_class_weights_of_no_class_are_refused(folder):
    with pytest.raises(UserError, match=r"training.class_weights: 'Sport' is none of the classes World, Sports"):
        _s2s("train", "tiny.yaml", "run.dir=runs/wrong", "training.class_weights={Sport: 2}")
    assert not (folder / "runs/wrong").exists() or not any((folder / "runs/wrong").glob("checkpoints/*"))


def test_classification_classes_are_not_balanced_twice(folder):
    both = ("training.class_weights=balanced", "training.balanced_sampling=true")
    with pytest.raises(UserError, match="balanced_sampling and class_weights: balanced do the same"):
        _s2s("train", "tiny.yaml", "run.dir=runs/twice", *both)


@pytest.mark.slow
def test_classification_balanced_weights_raise_the_recall_of_a_rare_class(folder):
    rows = (folder / "train.tsv").read_text().splitlines()
    first = [row for row in rows[1:] if row[0] == "1"]
    (folder / "train.tsv").write_text("\n".join([rows[0], *(r for r in rows[1:] if r[0] != "1"), *first[:12]]) + "\n")
    recalls = {}
    for weights in ("class_weights=null", "class_weights=balanced", "balanced_sampling=true"):
        words = (f"run.dir=runs/{weights}", f"training.{weights}", "training.updates=60")
        _s2s("train", "tiny.yaml", "data.validation=test.tsv", "validation.metric=loss", "validation.every=60", *words)
        scores = json.loads((folder / f"runs/{weights}/evaluation-test.json").read_text())
        truth, predicted = np.array(scores["truth"]), np.array(scores["predicted"])
        recalls[weights] = (predicted[truth == 0] == 0).mean()
    none, *balanced = recalls.values()
    assert min(balanced) > none


def test_classify_command_matches_the_evaluation_for_any_batch(folder, capsys):
    texts = _test_texts(folder)
    (folder / "lines.txt").write_text("\n".join([*texts[:9], "", *texts[9:]]))
    for name in ("tiny", "gru"):
        capsys.readouterr()
        _s2s("classify", f"runs/{name}", "--input", "lines.txt", "--probabilities")
        lines = capsys.readouterr().out.split("\n")
        assert (len(lines), lines[9], lines[-1]) == (62, "", "")
        cells = [line.split("\t") for line in lines if line]
        found = json.loads((folder / "runs" / name / "evaluation-test.json").read_text())
        assert [row[0] for row in cells] == [CLASSES[number] for number in found["predicted"]]
        shares = [[float(cell.partition("=")[2]) for cell in row[1:]] for row in cells]
        assert np.allclose(shares, found["probabilities"], atol=1e-4)
        assert [cell.partition("=")[0] for cell in cells[0][1:]] == CLASSES
        (folder / "one.txt").write_text(texts[20] + "\n")
        _s2s("classify", f"runs/{name}", "--input", "one.txt", "--output", "out.txt")
        assert (folder / "out.txt").read_text() == cells[20][0] + "\n"


def test_classify_reports_texts_cut_at_max_length(folder, capsys):
    short, long = "goal match", "goal " * 40
    (folder / "some.txt").write_text(f"{short}\n\n{long}\n{short}\n")
    (folder / "short.txt").write_text(f"{short}\n")
    _s2s("classify", "runs/tiny", "--input", "some.txt")
    assert capsys.readouterr().err == (
        "1 of 3 texts cut after 12 tokens (batches.max_length): shorten them, or train with a higher limit\n"
    )
    _s2s("classify", "runs/tiny", "--input", "short.txt")
    assert capsys.readouterr().err == ""
    run = s2s.load("runs/tiny")
    assert run.probabilities_and_truncation([short, "", long])[1] == [False, False, True]
    with pytest.warns(UserWarning, match="1 of 2 texts cut after 12 tokens"):
        assert len(run.classify([short, "", long])) == 3
    # filterwarnings: error
    assert len(run.classify([short, ""])) == 2


def test_classification_scores_report_train_overlap(folder, capsys):
    short = ("training.updates=1", "validation.every=1", "training.warmup=1")
    _s2s("train", "tiny.yaml", "data.test=train.tsv", "run.dir=runs/leak", *short)
    trained_on = json.loads((folder / "runs/leak/manifest.json").read_text())[0]["counts"]["train"]
    line = f"  {trained_on} of 300 test texts occur in the training data ("
    assert line in capsys.readouterr().out
    _s2s("evaluate", "runs/leak")
    assert line in capsys.readouterr().out
    found = json.loads((folder / "runs/leak/evaluation-test.json").read_text())
    assert found["train_overlap"]["seen"] == trained_on
    # nothing is known of another test set
    _s2s("evaluate", "runs/leak", "data.test=test.tsv")
    assert "training data" not in capsys.readouterr().out


def test_classification_predictions_do_not_depend_on_the_batch(trained):
    texts = [*_test_texts(trained), "", "goal " * 40]
    run = load(trained / "runs" / "tiny")
    together = TASK.probabilities(run, texts)
    for change in (["batches.tokens=12"], ["batches.padding=max_length"], ["batches.padding=batch", "batches.rows=5"]):
        changed = load(trained / "runs" / "tiny", overrides=change)
        assert np.allclose(TASK.probabilities(changed, texts), together, atol=1e-6)
    assert TASK.probabilities(run, []).shape == (0, 3)
    assert np.allclose(together.sum(axis=1), 1)


def test_classification_evaluation_is_repeatable_and_compares_equal_test_sets(folder, capsys):
    kept = json.loads((folder / "runs/tiny/evaluation-test.json").read_text())
    _s2s("evaluate", "runs/tiny", "runs/gru", "--json", "both.json")
    shown = capsys.readouterr().out
    assert "McNemar" in shown
    assert "runs/gru" in shown
    found = json.loads((folder / "both.json").read_text())
    assert found["evaluations"][0]["predicted"] == kept["predicted"]
    assert len(found["comparisons"]) >= 1
    # held-out texts are found again
    _s2s("evaluate", "runs/tiny", "--split", "validation")
    assert len(json.loads((folder / "runs/tiny/evaluation-validation.json").read_text())["truth"]) == 30
    other = evaluate(folder / "runs/gru", overrides=[f"data.test={folder / 'train.tsv'}"], keep=False)
    with pytest.raises(UserError, match=r"different test sets"):
        ClassificationEvaluation.compare([evaluate(folder / "runs/tiny", keep=False), other])


def test_classification_resume_is_bit_identical(folder, monkeypatch):
    validate = TextClassificationTask.validate

    def interrupted(self, train_context, log):
        if train_context.trainer.update == 16:
            raise KeyboardInterrupt
        return validate(self, train_context, log)

    with monkeypatch.context() as patch:
        patch.setattr(TextClassificationTask, "validate", interrupted)
        with pytest.raises(Stopped):
            _s2s("train", "tiny.yaml", "run.dir=cut")
    _s2s("train", "cut", "--resume")
    for file in ("model.safetensors", "training.safetensors"):
        one, two = (load_file(folder / run / "checkpoints/0000024" / file) for run in ("runs/tiny", "cut"))
        assert one.keys() == two.keys()
        assert all(one[name].equal(two[name]) for name in one)
    losses = [
        [entry["loss"] for line in path.read_text().splitlines() if "loss" in (entry := json.loads(line))]
        for path in (folder / "runs/tiny/metrics.jsonl", folder / "cut/metrics.jsonl")
    ]
    assert losses[0] == losses[1]
    with (folder / "train.tsv").open("a") as file:
        file.write("1\tone\tmore\n")
    with pytest.raises(UserError, match=r"training_data changed since the run was started"):
        _s2s("train", "cut", "--resume")


def test_evaluate_refuses_training_data_as_test_set(folder, monkeypatch):
    _s2s("train", "tiny.yaml", "data.test=20", "run.dir=held", "training.updates=4", "validation.every=4")
    before = (folder / "held/evaluation-test.json").read_bytes()
    _s2s("evaluate", "held")
    assert json.loads(before)["truth"] == json.loads((folder / "held/evaluation-test.json").read_bytes())["truth"]
    before = (folder / "held/evaluation-test.json").read_bytes()
    with (folder / "train.tsv").open("a") as file:
        file.write("1\tone\tmore\n")
    for overrides in ([], ["data.seed=2"], ["data.test=21"]):
        with pytest.raises(
            UserError, match=r"test set is drawn from the training data(.|\n)*it would contain training examples"
        ):
            _s2s("evaluate", "held", *overrides)
    (folder / "link").symlink_to("held/checkpoints/0000004")
    for place, run in (("", "held/checkpoints/0000004"), ("", "link"), ("held/checkpoints", "0000004"), ("link", ".")):
        monkeypatch.chdir(folder / place)
        with pytest.raises(
            UserError, match=r"test set is drawn from the training data(.|\n)*it would contain training examples"
        ):
            _s2s("evaluate", run)
    monkeypatch.chdir(folder)
    assert (folder / "held/evaluation-test.json").read_bytes() == before
    assert evaluate(folder / "held", overrides=["data.test=test.tsv"], keep=False).truth
    # of a run whose test set is a file, nothing was held out
    with pytest.raises(UserError, match=r"test set is drawn from the training data"):
        _s2s("evaluate", "runs/tiny", "data.test=20")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "tiny.yaml", "data.test=wrong.tsv"], r"wrong.tsv:3: label '7' is none of the classes World, Sp"),
        (["train", "tiny.yaml", "model.encoder_positions=learned", "model.max_positions=5"], r"has 5 posit"),
        (["train", "tiny.yaml", "init.freeze=all"], r"init has no effect without init_from"),
        (["train", "runs/tiny", "--resume", "head.dropout=0.5"], r"--resume uses the recipe of the run"),
    ],
)
def test_classification_recipe_mistakes_are_reported(folder, words, message):
    (folder / "wrong.tsv").write_text("label\ttitle\ttext\n1\ta\tb\n7\ta\tb\n")
    with pytest.raises(UserError, match=message):
        _s2s(*words, *([] if "--resume" in words else ["run.dir=other"]))
    assert not (folder / "other").exists()
