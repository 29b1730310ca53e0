"""Classifiers compared by the real command, whole and interrupted."""

import json
import re
import shutil
from pathlib import Path

import pytest

from s2s.cli.main import commands
from s2s.comparison import engine
from s2s.comparison.plans import TABLES
from s2s.comparison.results import RESULT, read_result, read_summary
from s2s.errors import Stopped, UserError
from s2s.files import COMPARISON
from s2s.tasks.classification.task import TextClassificationTask

EXPERIMENTS = ("classification", "text-length")
ASKED = ("compare", "lstm", "transformer", "--task", "tiny.yaml", "--seeds", "2", "transformer.dropout=0.2")


def _s2s(*words: str) -> None:
    commands(words, standalone_mode=False)


def _results(folder: Path) -> dict:
    return {name: read_result(folder / name / RESULT) for name in EXPERIMENTS}


def _without_times(folder: Path) -> list:
    """Return everything that does not depend on speed."""
    timed = ("training speed", "training cost")
    found: list = [[(c.learning_rate, c.rates, c.recipe) for c in read_summary(folder / COMPARISON).contenders]]
    for result in _results(folder).values():
        found += [finding for finding in result.findings if finding.row not in timed]
        found += [figure for figure in result.figures if "seconds" not in figure.name]
        for table in result.tables:
            kept = [i for i, column in enumerate(table.columns) if not re.search(r"\((CPU )?s\)$", column)]
            found.append([[row[i] for i in kept] for row in table.rows])
    return found


@pytest.fixture
def here(labelled, monkeypatch, few_trials) -> Path:
    monkeypatch.setattr(engine, "number_for", lambda device_context: 1)
    return labelled


def test_classifier_comparison_reports_the_scores_of_its_runs(here, capsys):
    _s2s(*ASKED, "--out", "whole")
    assert "report:  whole/report.html" in capsys.readouterr().out
    _check_summary(here / "whole")
    _check_accuracies(here / "whole")
    _check_page(here / "whole")


@pytest.mark.slow
def test_classifier_comparison_interrupted_in_a_training_has_equal_results(here, monkeypatch):
    validate, calls = TextClassificationTask.validate, []

    def interrupted(self, train_context, log):
        calls.append(train_context.trainer.update)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return validate(self, train_context, log)

    with monkeypatch.context() as patch:
        patch.setattr(TextClassificationTask, "validate", interrupted)
        with pytest.raises(Stopped):
            _s2s(*ASKED, "--out", "cut")
    assert not (here / "cut" / "text-length").exists()
    # The report is not needed, and figures take as long as trainings.
    monkeypatch.setattr("s2s.comparison.report.drawing.draw", lambda folder: folder / "report.html")
    _s2s("compare", "--resume", "cut")
    _s2s(*ASKED, "--out", "whole")
    assert _without_times(here / "cut") == _without_times(here / "whole")


def _check_summary(folder: Path) -> None:
    summary = read_summary(folder / COMPARISON)
    assert (summary.task, summary.experiments) == ("classification", list(EXPERIMENTS))
    assert summary.command == "s2s compare lstm transformer transformer.dropout=0.2 --seeds 2 --task tiny.yaml"
    one, two = summary.contenders
    # each is within 5 % of the recipe's model, so they are within 10 % of each other
    assert abs(one.parameters - two.parameters) <= 0.1 * min(one.parameters, two.parameters)
    assert (one.settings["bidirectional"], two.settings["dropout"]) == (True, 0.2)
    for contender in summary.contenders:
        losses = {float(rate): loss for rate, loss in contender.rates.items()}
        assert contender.learning_rate == min(losses, key=losses.get)
        assert contender.tuning_seconds > 0
    starts = [json.loads((run / "manifest.json").read_text())[0]["hashes"] for run in (folder / "runs").iterdir()]
    assert len(starts) == 4
    assert all(start == starts[0] for start in starts)


def _check_accuracies(folder: Path) -> None:
    """Several ways to the same number: the run's file, the cell, the buckets."""
    results = _results(folder)
    cells = {(f.row, f.model): f for result in results.values() for f in result.findings}
    assert {row for row, _ in cells} == set(TABLES["classification"])
    (buckets,) = (table for table in results["text-length"].tables if table.name == "buckets")
    for model in ("lstm", "transformer"):
        files = [folder / "runs" / f"{model}-seed{seed}" / "evaluation-test.json" for seed in (1, 2)]
        kept = [json.loads(file.read_text())["scores"]["accuracy"]["value"] for file in files]
        assert cells["accuracy", model].value == pytest.approx(sum(kept) / 2)
        # better than a guess
        assert cells["accuracy", model].value > 45
        rows = [row for row in buckets.rows if row[0] == model]
        assert sum(row[2] * row[3] for row in rows) / sum(row[2] for row in rows) == pytest.approx(
            sum(kept) / 2, abs=0.01
        )


def _check_page(folder: Path) -> None:
    page = (folder / "report.html").read_text(encoding="utf-8")
    shown = re.findall(r'<th scope="row"[^>]*><a href="#experiment-[a-z-]+">([a-z -]+)</a>', page)
    assert shown == list(TABLES["classification"])
    assert "Rows that were not requested" not in page
    assert "translation" not in page.lower().split("</style>")[1].split("<script>")[0]


def test_a_model_that_cannot_classify_is_refused_before_anything_begins(here, monkeypatch):
    monkeypatch.setattr("baselines.gru.build_encoder", None)
    with pytest.raises(UserError, match=r"gru only translates(.|\n)*leave it out"):
        _s2s("compare", "gru", "lstm", "--task", "tiny.yaml", "--out", "none")
    assert not (here / "none").exists()


def test_what_the_data_lacks_is_told_before_there_is_a_folder(here):
    shutil.move(here / "train.tsv", here / "gone.tsv")
    with pytest.raises(UserError, match=r"train\.tsv"):
        _s2s("compare", "gru", "lstm", "--task", "tiny.yaml", "--out", "none")
    assert not (here / "none").exists()
