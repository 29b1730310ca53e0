"""Runs of images, whole: learned, stopped and resumed, scored, compared, and asked about files."""

import io
import json
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from safetensors.torch import load_file

from s2s.errors import Stopped, UserError
from s2s.run import training
from s2s.run.folder import open_run, open_runs
from s2s.run.inference import evaluate, load, score_together
from s2s.run.tasks import read
from s2s.tasks.base import EvaluationOptions
from s2s.tasks.classification_base import ClassificationEvaluation, classify_lines
from s2s.tasks.images.task import TASK
from s2s.training.logger import RunLog

RECIPE = """
task: images
name: corners
data: {corpus: mnist, root: images, validation: 20, size: 8, classes: [upper, lower, nothing]}
augmentation: {shift: 1}
patches: {size: 4}
batches: {images: 16}
model: {kind: transformer, width: 16, heads: 2, feedforward: 32, encoder_layers: 1, encoder_positions: learned,
  max_positions: 5, dropout: 0.1}
training: {updates: 90, warmup: 5, learning_rate: 0.01, ema: 0.9}
validation: {every: 45}
device: {threads: 1}
"""


def _write(path: Path, array: np.ndarray) -> None:
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    path.write_bytes(head + array.astype(np.uint8).tobytes())


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A working folder with a recipe and noisy images: bright above, bright below, or dark."""
    monkeypatch.chdir(tmp_path)
    _prepare(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, str]:
    """A run on such images, and what it told."""
    folder = tmp_path_factory.mktemp("images")
    _prepare(folder)
    return _train(f"run.dir={folder / 'run'}", recipe=folder / "corners.yaml")


def _prepare(folder: Path) -> None:
    (folder / "corners.yaml").write_text(RECIPE)
    (folder / "images").mkdir()
    generator = np.random.default_rng(1)
    for stem, count in (("train", 150), ("t10k", 40)):
        labels = generator.integers(0, 3, count)
        pixels = generator.integers(0, 90, (count, 8, 8))
        pixels[labels == 0, :4] += 150
        pixels[labels == 1, 4:] += 150
        _write(folder / f"images/{stem}-images-idx3-ubyte", pixels)
        _write(folder / f"images/{stem}-labels-idx1-ubyte", labels)


def _train(*overrides: str, recipe: Path = Path("corners.yaml")) -> tuple[Path, str]:
    console = Console(file=io.StringIO(), width=200)
    return training.train(read(recipe, overrides), console), console.file.getvalue()


def test_images_run_learns_logs_and_draws(trained):
    run, told = trained
    found = json.loads((run / "evaluation-test.json").read_text())
    assert found["scores"]["accuracy"]["value"] == 100
    assert found["predicted"] == found["truth"]
    for words in ("all 130 20 40", "patches of 4 x 4: 5 vectors", "accuracy 100.00 %"):
        assert words in " ".join(told.split())
    assert [(e["truth"], len(e["patches"]), len(e["pixels"][0])) for e in found["examples"]] == [
        (e["predicted"], 2, 8) for e in found["examples"]
    ]
    drawn = {path.stem for path in (run / "figures").iterdir()}
    assert drawn >= {"classes", "training", "curves", "confusion-test", "reliability-test", "examples-test"}
    # what only the data tells is in the recipe of every checkpoint
    kept = read(run / "recipe.yaml").data
    assert kept.classes == ("upper", "lower", "nothing")
    assert 0.1 < kept.mean[0] < 0.6


def test_images_gru_reads_patches_in_order(place):
    run, _ = _train("model.kind=gru", "head.pooling=summary")
    found = json.loads((run / "evaluation-test.json").read_text())
    assert found["scores"]["accuracy"]["value"] > 90
    assert {example["method"] for example in found["examples"]} == {"gradient"}


def test_images_resume_is_bit_identical(place, monkeypatch):
    brief = ("training.updates=30", "validation.every=10")
    straight, _ = _train("run.dir=straight", *brief)
    noted = RunLog.log_step

    def stop(log: RunLog, update) -> None:
        noted(log, update)
        if update.update == 22:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunLog, "log_step", stop)
        with pytest.raises(Stopped):
            _train("run.dir=stopped", *brief)
    training.resume(Path("stopped"), Console(file=io.StringIO()))
    for file in ("model.safetensors", "training.safetensors"):
        one, two = (load_file(Path(run) / "checkpoints/0000030" / file) for run in (straight, "stopped"))
        assert one.keys() == two.keys()
        assert all(one[name].equal(two[name]) for name in one)


def test_images_evaluation_is_repeatable_and_compares_equal_test_sets(place):
    folders = [_train(f"training.updates={count}", f"run.dir=run-{count}")[0] for count in (5, 20)]
    (Path("images") / "train-images-idx3-ubyte").unlink()
    before = (folders[1] / "evaluation-test.json").read_text()
    runs = open_runs(folders, [], {})
    evaluations, comparisons = score_together(runs, EvaluationOptions(), None, print)
    assert (folders[1] / "evaluation-test.json").read_text() == before
    right = [np.array(e.predicted) == np.array(e.truth) for e in evaluations]
    assert comparisons[1].test.only_second == (right[1] & ~right[0]).sum()
    # the same images, their classes in another order
    first, second = evaluations[0], evaluations[1]
    turned = [2 - number for number in first.truth]
    other = replace(second, classes=second.classes[::-1], truth=turned, digest="of other numbers")
    with pytest.raises(UserError, match=r"has the classes upper, lower, nothing, .* has nothing, lower, upper"):
        ClassificationEvaluation.compare([first, other])
    labels = Path("images/t10k-labels-idx1-ubyte")
    labels.write_bytes(labels.read_bytes()[:-1] + bytes([(labels.read_bytes()[-1] + 1) % 3]))
    with pytest.raises(UserError, match="different test sets"):
        ClassificationEvaluation.compare([evaluations[0], evaluate(folders[1], keep=False)])


def test_images_classify_files_as_the_evaluation_does(trained, tmp_path, monkeypatch):
    run, _ = trained
    monkeypatch.chdir(tmp_path)
    found = json.loads((run / "evaluation-test.json").read_text())
    pixels = np.frombuffer((run.parent / "images/t10k-images-idx3-ubyte").read_bytes()[16:], np.uint8).reshape(-1, 8, 8)
    for row in range(3):
        Image.fromarray(pixels[row]).save(f"{row}.png")
    answers = TASK.probabilities(load(run), ["0.png", "1.png", "2.png"])
    assert answers == pytest.approx(np.array(found["probabilities"][:3]), abs=1e-5)
    lines = list(classify_lines(TASK, load(run), [["0.png", "", "2.png"]], True, print, False, print))
    assert lines[1] == ""
    assert [line.split("\t")[0] for line in lines[::2]] == [found["classes"][found["predicted"][row]] for row in (0, 2)]
    assert lines[0].split("\t")[1] == f"upper={answers[0, 0]:.4f}"
    with pytest.raises(UserError, match=r"(?s)nowhere.png: cannot be read"):
        TASK.probabilities(load(run), ["nowhere.png"])


def test_images_pixel_statistics_of_a_run_cannot_change(trained):
    run, _ = trained
    for asked in (lambda changes: training.resume(run, Console(quiet=True), changes), lambda c: open_run(run, c)):
        with pytest.raises(UserError, match=r"data.mean was \[.* in training"):
            asked(["data.mean=[0.1]"])
    assert open_run(run, ["data.root=elsewhere", "data.test=null"]).recipe.data.root.endswith("elsewhere")


def test_images_recipe_mistakes_are_reported_before_writing(place):
    for overrides, reason in (
        (["patches.size=3"], r"patches.size \(3\) must divide data.size \(8\): one of 1, 2, 4, 8"),
        (["model.max_positions=4"], r"knows 4 positions, but an image has 5"),
        (["data.classes=[a, b]"], r"the number 2 is no class; the 2 classes are a, b"),
        (["data.mean=[0.5, 0.5, 0.5]"], r"mean has 3 numbers, but channels is 1"),
        (["augmentation.shitf=2"], r"did you mean shift"),
        (["augmentation.shift=8"], r"augmentation.shift \(8\) must be below data.size \(8\)"),
        (["training.examples_per_update=4"], r"of 4 images is less than a batch of 16"),
    ):
        with pytest.raises(UserError, match=reason):
            _train(*overrides)
        assert not Path("runs").exists()
