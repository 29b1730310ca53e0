"""Installed metrics have the values, intervals and tests of our own metrics; adapters call their packages."""

import json
import shutil
import sys
from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner

import s2s
from s2s.cli.main import commands
from s2s.errors import UserError
from s2s.evaluation.inference import holm
from s2s.evaluation.metric_plugins import SentenceMean, bertscore, comet
from s2s.evaluation.metrics import scores
from s2s.evaluation.significance import compare
from s2s.recipe import installed

REFERENCES = ["a b", "c", "d e f", "g"] * 5
SYSTEMS = {"one": ["a b", "c", "d", "x"] * 5, "two": ["a b", "x", "d", "x"] * 5, "three": ["x"] * 20}


def same(translations, references, sources):
    """Exact match in percent, as a metric of another package."""
    return [100.0 * (text in several) for text, several in zip(translations, references, strict=True)]


def copied(translations, references, sources):
    """Sources that were copied, in percent."""
    return [100.0 * (text == source) for text, source in zip(translations, sources, strict=True)]


@pytest.fixture
def entry_points(monkeypatch):
    points = [EntryPoint(f.__name__, f"{__name__}:{f.__name__}", installed.METRICS) for f in (same, copied)]
    monkeypatch.setitem(sys.modules, __name__, sys.modules[same.__module__])
    monkeypatch.setattr(installed, "entry_points", lambda group: points if group == installed.METRICS else [])
    installed.metrics.cache_clear()
    yield
    installed.metrics.cache_clear()


def test_installed_metric_has_the_value_and_tests_of_the_built_in_one(entry_points):
    found = scores(SYSTEMS["one"], REFERENCES, names=["exact", "same"])
    assert found["same"].value == found["exact"].value == 50.0
    assert found["same"].low < 50 < found["same"].high
    exact, own = (compare(SYSTEMS, REFERENCES, names=[name]) for name in ("exact", "same"))
    assert [(e.value, e.p_value, e.corrected) for e in exact] == [(e.value, e.p_value, e.corrected) for e in own]


def test_installed_metric_scores_files_with_several_references_and_sources(entry_points, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, lines in {"source": "s\nt\n", "out": "s\nb\n", "one": "a\nx\n", "two": "s\ny\n"}.items():
        (tmp_path / name).write_text(lines)
    words = ["evaluate", "--hypotheses", "out", "--reference", "one", "--reference", "two", "--json", "found.json"]
    said = CliRunner().invoke(commands, [*words, "--metric", "same"], standalone_mode=False, catch_exceptions=False)
    assert "same      50.00" in said.output
    said = CliRunner().invoke(
        commands, [*words, "--metric", "copied", "--source", "source"], standalone_mode=False, catch_exceptions=False
    )
    assert "copied    50.00" in said.output
    for more, message in (
        (["--metric", "sam"], "'sam' is no metric"),
        (["--metric", "bleu", "--source", "source"], "--source cannot be combined with --hypotheses"),
    ):
        with pytest.raises(UserError, match=message):
            CliRunner().invoke(commands, [*words, *more], standalone_mode=False, catch_exceptions=False)


def test_chosen_metrics_of_a_run_are_those_of_its_translations(entry_points, small_world, tmp_path):
    folder, other = small_world / "runs/t", tmp_path / "other"
    shutil.copytree(folder, other)
    kept = {path: path.read_bytes() for path in folder.glob("evaluation-*")}
    words = ["evaluate", str(folder), str(other), "--json", str(tmp_path / "found.json")]
    chosen = ["--metric", "copied", "--metric", "exact"]
    said = CliRunner().invoke(commands, [*words, *chosen], standalone_mode=False, catch_exceptions=False)
    assert "BLEU" not in said.output
    found = json.loads((tmp_path / "found.json").read_text())
    ours, _ = found["evaluations"]
    outputs = [ours[name] for name in ("translations", "references", "sources")]
    expected = s2s.score(outputs[0], outputs[1], metrics=["copied", "exact"], sources=outputs[2])
    assert {name: each["value"] for name, each in ours["scores"].items()} == {n: s.value for n, s in expected.items()}
    assert s2s.load(folder).evaluate(metrics=["copied", "exact"]).scores == expected
    tested = [(each["metric"], each["p_value"]) for each in found["comparisons"]]
    assert tested == [("copied", None), ("copied", 1.0), ("exact", None), ("exact", 1.0)]
    # The scores of the run stay those of the usual metrics.
    assert {path: path.read_bytes() for path in folder.glob("evaluation-*")} == kept


def test_comparisons_of_several_systems_are_corrected_by_holm():
    found = compare(SYSTEMS, REFERENCES, names=["exact", "wer"])
    for name in ("exact", "wer"):
        first, *others = [each for each in found if each.metric == name]
        assert (first.p_value, first.corrected) == (None, None)
        assert [each.corrected for each in others] == holm([each.p_value for each in others])
        assert others[0].corrected > others[0].p_value or others[1].corrected > others[1].p_value
    two = {name: SYSTEMS[name] for name in ("one", "two")}
    assert [each.corrected for each in compare(two, REFERENCES, names=["exact"])] == [None, None]


def test_installed_metric_with_too_few_scores_is_refused():
    metric = SentenceMean("short", lambda translations, references, sources: [1.0])
    with pytest.raises(UserError, match="metric short: returned 1 score for 2 translations"):
        metric.corpus_score(["a", "b"], [["a", "b"]])


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_installed_metric_with_a_score_that_is_no_finite_number_is_refused(score):
    metric = SentenceMean("odd", lambda translations, references, sources: [1.0, score])
    with pytest.raises(UserError, match=f"metric odd: the score of translation 2 is {score}"):
        metric.corpus_score(["a", ""], [["a", "b"]])


def test_comet_scores_each_translation_by_its_best_reference(monkeypatch):
    asked = []

    def predict(rows, batch_size, gpus):
        asked.extend(rows)
        return SimpleNamespace(scores=[len(row["ref"]) / 10 for row in rows], system_score=0.0)

    def load(path):
        assert path == "path of Unbabel/wmt22-comet-da"
        return SimpleNamespace(predict=predict)

    fake = SimpleNamespace(download_model=lambda name: f"path of {name}", load_from_checkpoint=load)
    monkeypatch.setitem(sys.modules, "comet", fake)
    assert comet(["x", "y"], [["a", "abc"], ["ab"]], ["s", "t"]) == pytest.approx([30, 20])
    assert asked[1] == {"src": "s", "mt": "x", "ref": "abc"}
    with pytest.raises(UserError, match=r"needs the sources\n.*add --source FILE"):
        comet(["x"], [["a"]], None)


def test_bertscore_is_the_f1_of_its_package(monkeypatch):
    def score(cands, refs, model_type):
        assert (cands, refs, model_type) == (["x"], [["a", "b"]], "bert-base-multilingual-cased")
        return torch.tensor([0.1]), torch.tensor([0.2]), torch.tensor([0.5])

    monkeypatch.setitem(sys.modules, "bert_score", SimpleNamespace(score=score))
    assert bertscore(["x"], [["a", "b"]], None) == [50]


@pytest.mark.parametrize(
    ("metric", "module", "package"), [(comet, "comet", "unbabel-comet"), (bertscore, "bert_score", "bert-score")]
)
def test_metric_without_its_package_says_what_to_install(metric, module, package, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=f"needs the package {package}\n.*pip install {package}"):
        metric(["x"], [["a"]], ["s"])
