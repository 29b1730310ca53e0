"""`seed=N`, `s2s train --seeds`, sweeps and `s2s runs` agree with runs that are trained one by one."""

import contextlib
import csv
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
import yaml
from click.testing import CliRunner

import s2s
from s2s.cli.main import commands
from s2s.comparison.runs import seeds_of
from s2s.errors import UserError
from s2s.evaluation.inference import mean
from s2s.recipe.reading import recipe_path, split_sweep
from s2s.run.listing import ListedRun, format_runs, format_sweep, list_run
from s2s.run.manifest import training_precision
from s2s.run.tasks import read, schemas
from s2s.training.device import PRECISION_NAMES
from s2s.training.validation import LOWER_IS_BETTER, Validation

SMALL = (
    "data.train=200 data.validation=8 data.test=8 tokenizer.kind=word tokenizer.size=200 "
    "model.width=16 model.heads=2 model.feedforward=16 model.encoder_layers=1 model.decoder_layers=1 "
    "batches.tokens=512 training.updates=6 validation.sentences=2 decoding.beam=1 decoding.max_ratio=0.5 "
    "decoding.max_extra=4 device.precision=fp32 device.threads=1"
)

RATES = ("0.002", "0.02")


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
    # a table is not replaced by an empty one
    Path("none").mkdir()
    before = Path("runs.csv").read_bytes()
    with pytest.raises(UserError, match=r"--csv runs.csv: there are no runs in none"):
        _s2s("runs", "none", "--csv", "runs.csv")
    assert Path("runs.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [(["seed=2"], "seeds"), (["seeds.data=2"], "seeds"), (["--overfit"], "--overfit"), (["--quiet", "-v"], "exclude")],
)
def test_train_seeds_refuses_what_contradicts_it(words, message):
    with pytest.raises(UserError, match=message):
        _s2s("train", "translate", *words, "--seeds", "2")


@pytest.mark.parametrize(
    ("override", "values"),
    [
        ("training.learning_rate=0.002,0.004", ["0.002", "0.004"]),
        ("model.kind=lstm, transformer", ["lstm", "transformer"]),
        ("data.train=300,600", ["300", "600"]),
        ("training.clip=null,1", ["null", "1"]),
        ("device.compile=true,false", ["true", "false"]),
        ("seed=3,4", ["3", "4"]),
        ("training.learning_rate=0.002,x", ["0.002", "x"]),  # reading the recipe then says what is wrong with x
        ("data.train=a.txt,b.txt", None),
        ("data.prefix=Well, then", None),
        ("data.target=de,en", None),
        ("training.betas=[0.9,0.98]", None),
        ("training.betas=0.9,0.98", None),
        ("training.freeze=a,b", None),
        ("model.kind='lstm,gru'", None),
        ("training.learning_rate=0.002,", None),
        ("training.learning_rat=1,2", None),
        ("name=a,b", None),
        ("run.dir=a,b", None),
    ],
)
def test_split_sweep_separates_values_only_where_a_key_has_no_text_or_list_with_commas(override, values):
    other = "training.updates=5"
    same, swept = split_sweep(recipe_path(Path("translate")), [override, other], schemas())
    key = override.partition("=")[0]
    assert same == ([other] if values else [override, other])
    assert swept == ([[f"{key}={value}" for value in values]] if values else [])


def test_sweep_trains_the_runs_of_each_value_and_resumes_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["train", "translate", *shlex.split(SMALL), "training.learning_rate=0.002,0.02", "seed=1,2"]
    output = _s2s(*words, "--quiet")
    _s2s("train", "translate", *shlex.split(SMALL), "training.learning_rate=0.02", "seed=2", "run.dir=alone", "-q")
    places = {(rate, seed): Path(f"runs/translate-learning_rate{rate}-seed{seed}") for rate in RATES for seed in (1, 2)}
    scored = {place: json.loads((path / "evaluation-test.json").read_text()) for place, path in places.items()}
    alone = json.loads(Path("alone/evaluation-test.json").read_text())
    assert scored["0.02", 2]["weights"] == alone["weights"] != scored["0.002", 2]["weights"]
    # the table: means over seeds, the better validation first
    states = {
        place: json.loads((path / "checkpoints/0000006/state.json").read_text()) for place, path in places.items()
    }
    losses = {rate: mean([states[rate, seed]["validations"][-1]["value"] for seed in (1, 2)]) for rate in RATES}
    best, worst = sorted(RATES, key=lambda rate: losses[rate].value)
    rows = output.splitlines()
    assert [row.split()[:2] for row in rows[1:3]] == [[best, "2"], [worst, "2"]]
    first = losses[best]
    assert f"loss {first.value:.2f} ({first.low:.2f} to {first.high:.2f})" in rows[1]
    over = mean([scored[best, seed]["summary"]["scores"]["chrf"] for seed in (1, 2)])
    assert f"chrf {over.value:.2f} ({over.low:.2f} to {over.high:.2f})" in rows[1]
    # the settings that differ are columns of the table of runs
    found = s2s.runs("runs").set_index("run")
    assert found.loc[str(places["0.02", 1]), "training.learning_rate"] == 0.02
    assert found.loc[str(places["0.02", 1]), "validation_loss"] == states["0.02", 1]["validations"][-1]["value"]

    # groups of seeds, by the name that was extended and by pattern
    tested = _s2s("evaluate", "runs/translate-learning_rate0.002", "runs/translate-learning_rate0.02-seed*")
    means = {rate: mean([scored[rate, seed]["summary"]["scores"]["chrf"] for seed in (1, 2)]) for rate in RATES}
    assert f"chrf  {means['0.02'].value:6.2f} ({means['0.02'].low:.2f} to {means['0.02'].high:.2f}), 2 seeds" in tested
    assert f"{means['0.02'].value - means['0.002'].value:+.2f} (" in tested
    assert "p-values over seeds and test examples" in tested
    assert "checkpoint" not in tested
    alike = _s2s("evaluate", *map(str, (places["0.002", 1], places["0.002", 2])))
    assert "differ only in their seeds\np-values are over test examples; they say nothing about other seeds" in alike
    with pytest.raises(UserError, match=r"differ in training\.learning_rate"):
        _s2s("evaluate", "runs/*")
    with pytest.raises(UserError, match="alone is one run"):
        _s2s("evaluate", "runs/translate-learning_rate0.002", "alone")

    with pytest.raises(UserError, match="already contains a run"):
        _s2s(*words)
    # finished runs are skipped; a lost one is trained, one without its scores is resumed, and one whose scores are of
    # other weights, such as those before an extension, is tested again
    shutil.rmtree(places["0.002", 1])
    (places["0.02", 2] / "evaluation-test.json").unlink()
    shutil.copy(places["0.002", 2] / "evaluation-test.json", places["0.02", 1])
    again = _s2s(*words, "--resume")
    assert re.findall(r"run (\d) of 4: .*, finished before\n", again) == ["2"]
    assert again.endswith(output)
    # a damaged run hides no other one, neither in the table of runs nor in the sweep
    damaged = places["0.002", 1] / "evaluation-test.json"
    damaged.write_text("{}")
    listed = CliRunner().invoke(commands, ["runs"], standalone_mode=False)
    assert listed.exit_code == 1
    assert f"{damaged}: " in listed.stderr
    assert [str(path) in listed.stdout for path in places.values()] == [False, True, True, True]
    with pytest.warns(UserWarning, match=f"{damaged}: "):
        assert len(s2s.runs("runs")) == 3
    resumed = CliRunner().invoke(commands, [*words, "--resume"], standalone_mode=False)
    assert str(resumed.exception) == f"1 of 4 runs failed: {damaged.parent}\n  → see the messages above"
    assert f"{damaged}: " in resumed.stderr
    with pytest.raises(UserError, match=r"was trained with another value of training\.warmup"):
        _s2s(*words, "training.warmup=3", "--resume")


@pytest.mark.slow
def test_sweep_in_processes_trains_the_same_runs(tmp_path, monkeypatch):
    words = ["train", "translate", *shlex.split(SMALL), "training.learning_rate=0.002,0.02"]
    tables = {}
    for jobs in ("1", "2"):
        (tmp_path / jobs).mkdir()
        monkeypatch.chdir(tmp_path / jobs)
        tables[jobs] = _s2s(*words, "--quiet", "--jobs", jobs).splitlines()[-3:]
    assert tables["1"] == tables["2"]
    for rate in RATES:
        one, two = (tmp_path / jobs / f"runs/translate-learning_rate{rate}/evaluation-test.json" for jobs in "12")
        assert json.loads(one.read_text())["weights"] == json.loads(two.read_text())["weights"]
    # finished runs are skipped, a lost one is trained, and one that fails is named
    shutil.rmtree(f"runs/translate-learning_rate{RATES[0]}")
    assert _s2s(*words, "--quiet", "--jobs", "2", "--resume").splitlines()[-3:] == tables["2"]
    failing = [*words, "training.learning_rate=1e38,0.002", "training.warmup=0", "run.dir=other", "-q", "--jobs", "2"]
    failing.remove("training.learning_rate=0.002,0.02")
    done = CliRunner().invoke(commands, failing, standalone_mode=False)
    assert str(done.exception).startswith("1 of 2 runs failed: other-learning_rate1e38")
    with pytest.raises(UserError, match="--jobs 2: is for several runs"):
        _s2s("train", "translate", "--jobs", "2")


ANY_PRECISION = [word for word in shlex.split(SMALL) if not word.startswith("device.precision")]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_precision_of_another_run_is_that_of_all_runs_of_a_sweep(jobs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained = ["train", "translate", *ANY_PRECISION, "--quiet"]
    for number, precision in enumerate(("bf16", "fp32")):
        _s2s(*trained, f"device.precision={precision}", f"run.dir={precision}")
        _s2s(*trained, "--seeds", "2", "--jobs", jobs, f"run.dir=of{number}", "--precision-of", precision)
        _s2s(*trained, f"run.dir=alone{number}", "--precision-of", precision)
        folders = [Path(f"of{number}-seed1"), Path(f"of{number}-seed2"), Path(f"alone{number}")]
        assert {PRECISION_NAMES[training_precision(folder)] for folder in folders} == {precision}
        weights = [json.loads((place / "evaluation-test.json").read_text())["weights"] for place in folders]
        # the recipe has seed 1 and says `auto`, so that runs of both ways count as the same but for their seeds
        assert weights[0] == weights[2] == json.loads(Path(precision, "evaluation-test.json").read_text())["weights"]
        assert "precision: auto" in (folders[0] / "recipe.yaml").read_text()
    for more in ([], ["--seeds", "2"]):
        with pytest.raises(UserError, match=r"--precision-of bf16: has no effect with device\.precision=fp32"):
            _s2s(*trained, "device.precision=fp32", "--precision-of", "bf16", *more)


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_first_run_of_a_sweep_decides_its_precision(jobs, tmp_path, monkeypatch):
    """Also if the sweep is interrupted, whatever each run would measure."""
    monkeypatch.chdir(tmp_path)
    words = [word.replace("updates=6", "updates=1") for word in ANY_PRECISION]
    trained = ["train", "translate", *words, "--quiet"]
    monkeypatch.setattr("s2s.training.precision.PrecisionBenchmark.faster", property(lambda self: next(measured)))
    measured = iter([torch.bfloat16, torch.float32, torch.float32])
    _s2s(*trained, "--seeds", "2", "run.dir=first")
    shutil.rmtree("first-seed1")
    _s2s(*trained, "--seeds", "2", "run.dir=first", "--resume", "--jobs", jobs)
    assert {training_precision(Path(f"first-seed{seed}")) for seed in (1, 2)} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["translate", "--precision-of", "."],
            r"\.: has no training whose precision is known",
        ),
        (["translate", "--precision-of", "missing"], "missing: has no training whose precision is known"),
        (["translate", "--seeds", "2", "--precision-of", "missing"], "missing: has no training whose precision"),
        (["translate", "--overfit", "--precision-of", "x"], "--precision-of x: is for new runs"),
    ],
)
def test_precision_of_refuses_what_is_no_run(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        _s2s("train", *words)


@pytest.mark.slow
def test_sweep_in_processes_starts_no_run_after_an_interrupt(tmp_path, monkeypatch):
    """Runs that wait for the precision of the first one do not start when it is stopped."""
    monkeypatch.chdir(tmp_path)
    words = [word for word in ANY_PRECISION if not word.startswith("training.updates")]
    command = [sys.executable, "-m", "s2s", "train", "translate", *words, "training.updates=5000", "--seeds", "2"]
    sweep = subprocess.Popen(
        [*command, "--jobs", "2", "run.dir=all"], start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    first = tmp_path / "all-seed1"
    while not first.exists() and sweep.poll() is None:
        time.sleep(0.01)
    os.killpg(sweep.pid, signal.SIGINT)
    try:
        sweep.communicate(timeout=30)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(sweep.pid, signal.SIGKILL)
    assert sweep.returncode
    # a run that had no checkpoint yet leaves no folder
    assert {path.name for path in tmp_path.glob("all-seed*")} <= {first.name}


def test_sweep_goes_on_after_a_run_that_fails(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["train", "translate", *shlex.split(SMALL), "training.learning_rate=1e38,0.002", "training.warmup=0", "-q"]
    done = CliRunner().invoke(commands, words, standalone_mode=False)
    assert str(done.exception).startswith("1 of 2 runs failed: runs/translate-learning_rate1e38")
    assert re.search(r"^0\.002  +1  +loss \d", done.output, re.MULTILINE)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["training.learning_rate=0.002,x"], "learning_rate=x: training.learning_rate: is 'x', expected a number"),
        (["training.learning_rate=0.1,0.1"], "two runs have the same values"),
        (["training.learning_rate=0.1,0.10"], "two runs have the same values"),
        (["seed=1,2", "--overfit"], "several runs train one after another"),
        ([f"seed={','.join(map(str, range(1001)))}"], "1,001 runs; at most 1,000"),
    ],
)
def test_sweep_refuses_mistakes_before_training(values, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        _s2s("train", "translate", *values)
    assert not Path("runs").exists()


@pytest.mark.parametrize(("metric", "values", "best"), [("wer", (35.0, 30.0, 120.0), 30.0), ("bleu", (3.0, 4.0), 4.0)])
def test_runs_show_the_best_validation(metric, values, best, tmp_path):
    found = [asdict(Validation(5, value, 2.0, metric in LOWER_IS_BETTER)) for value in values]
    state = {"update": 5, "epoch": 0, "position": 5, "validations": found, "seconds": 1.0}
    (tmp_path / "checkpoints/0000005").mkdir(parents=True)
    (tmp_path / "checkpoints/0000005/state.json").write_text(json.dumps(state))
    recipe = s2s.read_recipe("translate", {"validation.metric": metric})
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe.model_dump(mode="json")))
    assert list_run(tmp_path).validation == {metric: best}


def test_runs_of_a_folder_without_runs_says_so(tmp_path):
    done = CliRunner().invoke(commands, ["runs", str(tmp_path)])
    assert (done.exit_code, done.output) == (0, f"there are no runs in {tmp_path}\n")


def test_runs_show_means_of_the_scores_that_all_seeds_have(tmp_path):
    recipe = read(recipe_path(Path("translate")), [])
    scores = {1: {"bleu": 10.0, "wer": 50.0}, 2: {"bleu": 20.0}}
    runs = [
        ListedRun(tmp_path / f"run-seed{seed}", recipe.model_copy(update={"seeds": seeds_of(seed)}), 1, own, None)
        for seed, own in scores.items()
    ]
    assert "bleu       15.00" in format_runs(runs)
    swept = format_sweep([({"seed": str(seed)}, run) for seed, run in enumerate(runs, start=1)])
    assert "bleu 15.00" in swept
    assert "wer" not in swept
