"""`seed=N`, `s2s train --seeds` and `s2s runs` agree with runs that are trained one by one."""

import csv
import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import s2s
from s2s.cli.main import commands
from s2s.errors import UserError
from s2s.evaluation.inference import mean
from s2s.recipe.reading import recipe_path
from s2s.run.tasks import read

SMALL = (
    "data.train=300 data.validation=8 data.test=8 tokenizer.size=450 model.width=16 model.heads=2 model.feedforward=16 "
    "training.updates=6 validation.sentences=2 decoding.max_ratio=0.5 device.precision=fp32 device.threads=1"
)


def _s2s(*words: str) -> str:
    done = CliRunner().invoke(commands, words, standalone_mode=False, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def verbose_updates(lines: list[str]) -> list[str]:
    return [line for line in lines if re.search(r" update \d+/6: ", line)]


def test_seed_sets_all_seeds():
    seeds = ["seeds.initialization=7", "seeds.data=7", "seeds.dropout=7"]
    path = recipe_path(Path("translate"))
    assert read(path, ["seed=7"]) == read(path, seeds)
    with pytest.raises(UserError, match=r"seed=-1: seeds.initialization: is -1"):
        read(path, ["seed=-1"])


def test_train_seeds_gives_the_runs_of_each_seed_and_their_means(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["train", "translate", *shlex.split(SMALL)]
    output = _s2s(*words, "--seeds", "2", "--quiet")
    assert output.startswith("run ")  # nothing but the table
    verbose = _s2s(*words, "seed=2", "run.dir=runs/alone", "--verbose").splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", line) for line in verbose[1:-1])
    assert [f"update {n}/6: loss" in line for n, line in enumerate(verbose_updates(verbose), start=1)] == [True] * 6
    files = [Path(f"runs/{name}/evaluation-test.json") for name in ("translate-seed1", "translate-seed2", "alone")]
    first, second, alone = (json.loads(file.read_text()) for file in files)
    # the training ends with a command for a sentence of its own test set
    *command, sentence = shlex.split(verbose[-2].partition("translate: ")[2])
    assert command == ["s2s", "translate", "runs/alone"]
    assert sentence in alone["sources"]
    assert second["weights"] == alone["weights"] != first["weights"]
    scores = [each["summary"]["scores"] for each in (first, second)]
    over = mean([each["chrf"] for each in scores])
    assert f"  chrf       {over.value:.2f} ({over.low:.2f} to {over.high:.2f})\n" in output
    # the runs as a table, as CSV and as a DataFrame
    assert _s2s("runs", "--csv", "runs.csv").splitlines()[2].startswith("runs/translate-seed1  translation")
    rows = list(csv.DictReader(Path("runs.csv").read_text().splitlines()))
    found = {row["run"]: (row["seed"], float(row["chrf"])) for row in rows}
    assert found["runs/translate-seed2"] == found["runs/alone"] == ("2", scores[1]["chrf"])
    assert s2s.runs("runs")["chrf"].tolist() == [float(row["chrf"]) for row in rows]
    with pytest.raises(UserError, match="already contains a run"):
        _s2s(*words, "--seeds", "2")


@pytest.mark.parametrize("words", [["seed=2"], ["seeds.data=2"], ["--resume"], ["--overfit"]])
def test_train_seeds_refuses_what_contradicts_it(words):
    with pytest.raises(UserError, match="seeds"):
        _s2s("train", "translate", *words, "--seeds", "2")
