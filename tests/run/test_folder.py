"""What may become of a run's folder, and what may not; the commands are called in this process."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from s2s.cli.main import commands
from s2s.errors import UserError
from s2s.run.folder import check_free, run_lock
from s2s.run.tasks import read

RECIPE = """
name: tiny
data: {train: 200, validation: 4, test: 1}
tokenizer: {size: 450}
batches: {tokens: 600}
model: {kind: transformer, width: 8, heads: 2, feedforward: 8, encoder_layers: 1, decoder_layers: 1}
training: {updates: 4, warmup: 1}
validation: {every: 2}
decoding: {beam: 2, max_ratio: 0.5, max_extra: 1}
device: {kind: cpu}
"""


def _s2s(*words: str) -> None:
    commands(words, standalone_mode=False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    (folder / "tiny.yaml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        _s2s("train", "tiny.yaml")
    return folder


@pytest.fixture
def folder(trained, tmp_path, monkeypatch) -> Path:
    shutil.copytree(trained, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def test_checkpoint_files_have_equal_permissions(trained):
    checkpoint = trained / "runs/tiny/checkpoints/0000004"
    modes = {p.name: p.stat().st_mode for p in checkpoint.iterdir() if p.is_file()}
    assert set(modes.values()) == {modes["state.json"]}


# one process for both commands, since each would load torch; the first one needs less than the second one
IMPORTS = """
import sys
from s2s.cli.main import commands, main
train, sys.argv = sys.argv[1:], ["s2s", "translate", "runs/tiny"]
main()
print("loaded-by-translate", *sys.modules)
commands(train, standalone_mode=False)
print("loaded-by-train", *sys.modules)
"""
# optional features: each is loaded by the command that needs it
OPTIONAL = ("inspection", "diagnosis", "comparison", "serving", "export", "evaluation.signs", "evaluation.gates")


@pytest.fixture(scope="module")
def printed(trained) -> list[str]:
    """Lines of a process that translates a sentence, tells its modules, trains, and tells its modules again."""
    words = ["train", "tiny.yaml", "run.dir=runs/imports", "training.updates=2", "decoding.max_ratio=0.1"]
    words += ["device.threads=1", "device.precision=fp32"]
    command = [sys.executable, "-c", IMPORTS, *words]
    done = subprocess.run(command, input="The dog sleeps.\n", capture_output=True, text=True, check=True, cwd=trained)
    shutil.rmtree(trained / "runs/imports")
    return done.stdout.splitlines()


def _modules(printed: list[str], command: str) -> list[str]:
    (found,) = (line.split()[1:] for line in printed if line.startswith(f"{command} "))
    return found


def test_translate_command_imports_no_training_or_statistics_packages(printed):
    modules = _modules(printed, "loaded-by-translate")
    unwanted = ["datasets", "pandas", "scipy.special", "tensorboard", "matplotlib", "sacrebleu"]
    assert [name for name in unwanted if name in modules] == []
    # the translation, and nothing else, comes before them
    assert [line.startswith("loaded-by-translate ") for line in printed[:2]] == [False, True]


def test_training_imports_no_optional_feature(printed):
    loaded = _modules(printed, "loaded-by-train")
    assert "s2s.training.trainer" in loaded
    assert [name for name in loaded if name.startswith(tuple(f"s2s.{feature}" for feature in OPTIONAL))] == []
    assert [name for name in loaded if name.startswith("s2s.tasks.") and name.endswith("diagnosis")] == []


def test_run_folder_may_be_empty_or_a_link(folder, monkeypatch):
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("empty")
    _s2s("train", "tiny.yaml", "run.dir=link", "training.updates=2")
    assert (folder / "link").is_symlink()
    assert {"recipe.yaml", "tokenizer", "checkpoints"} <= {p.name for p in (folder / "empty").iterdir()}
    assert not list((folder / "empty").glob(".unfinished*"))
    (folder / "here").mkdir()
    monkeypatch.chdir(folder / "here")
    _s2s("train", "../tiny.yaml", "run.dir=.", "training.updates=2")
    assert (folder / "here" / "recipe.yaml").exists()


def test_run_folder_is_locked_during_training(folder):
    with run_lock(folder / "runs/tiny"):
        for words in (("runs/tiny", "--resume"), ("tiny.yaml", "--overwrite"), ("tiny.yaml",)):
            with pytest.raises(UserError, match=r"runs/tiny: another process is training this run"):
                _s2s("train", *words)
    assert (folder / "runs/tiny/checkpoints/0000004").exists()
    _s2s("train", "runs/tiny", "--resume")


def test_resume_refuses_a_checkpoint_folder(folder):
    with pytest.raises(UserError, match=r"is a checkpoint(.|\n)*runs/tiny"):
        _s2s("train", "runs/tiny/checkpoints/0000004", "--resume")
    with pytest.raises(UserError, match=r"is a checkpoint itself(.|\n)*--checkpoint best"):
        _s2s("evaluate", "runs/tiny/checkpoints/0000004", "--checkpoint", "best")


def test_resume_refuses_an_edited_recipe_and_names_its_keys(folder):
    path = folder / "runs/tiny/recipe.yaml"
    path.write_text(path.read_text().replace("updates: 4", "updates: 6").replace("width: 8", "width: 16"))
    with pytest.raises(UserError, match=r"model.width, training.updates changed(.|\n)*0000004"):
        _s2s("train", "runs/tiny", "--resume")


def test_resume_accepts_device_overrides_only(folder):
    # as after a training that was killed before its first validation
    shutil.rmtree(folder / "runs/tiny/checkpoints/0000004")
    (folder / "runs/tiny/evaluation-test.json").unlink()
    (folder / "runs/tiny/metrics.jsonl").unlink()
    with pytest.raises(UserError, match=r"'training.warmup=2' cannot change it(.|\n)*only data, device, training.upd"):
        _s2s("train", "runs/tiny", "--resume", "training.warmup=2")
    _s2s("train", "runs/tiny", "--resume", "device.threads=1")
    assert (folder / "runs/tiny/checkpoints/0000004").exists()


def test_evaluate_saves_no_scores_of_overridden_decoding(folder):
    path = folder / "runs/tiny/evaluation-test.json"
    before = path.read_text()
    for words in (["--beam", "1"], ["data.test=3"]):
        _s2s("evaluate", "runs/tiny", *words)
        assert path.read_text() == before
    path.unlink()
    _s2s("evaluate", "runs/tiny")
    assert path.exists()


def test_evaluate_says_that_texts_were_sampled_and_refuses_a_beam_then(folder, capsys):
    _s2s("evaluate", "runs/tiny", "decoding.sample=true", "decoding.seed=7")
    assert ", sampled with seed 7, cased\n" in capsys.readouterr().out
    for words in (
        ["evaluate", "runs/tiny", "decoding.sample=true"],
        ["translate", "runs/tiny", "A dog runs.", "--sample"],
    ):
        with pytest.raises(UserError, match=r"--beam 3: has no effect on sampling(.|\n)*decoding\.sample=false"):
            _s2s(*words, "--beam", "3")


@pytest.mark.parametrize("name", ["recipe.yaml", "evaluation-test.json", "checkpoints/0000004/model.safetensors"])
def test_commands_do_not_write_over_a_file_of_a_run(folder, name):
    file = folder / "runs/tiny" / name
    before = file.read_bytes()
    commands_with_output = (
        ["translate", "runs/tiny", "A dog runs.", "--output"],
        ["evaluate", "runs/tiny", "--json"],
        ["runs", "--csv"],
    )
    for words in commands_with_output:
        with pytest.raises(UserError, match=rf"{words[-1]} .*{name}: is a file of the run(.|\n)*name another file"):
            _s2s(*words, str(file))
    assert file.read_bytes() == before
    # its own files may be anywhere
    _s2s("evaluate", "runs/tiny", "--json", "runs/tiny/mine.json")
    assert (folder / "runs/tiny/mine.json").exists()


def test_runs_are_no_exports_and_no_halves(folder, capsys):
    for name in ("export", ".unfinished-1-half"):
        shutil.copytree(folder / "runs/tiny", folder / "runs" / name)
    (folder / "runs/export/export.json").write_text("{}")
    _s2s("runs")
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["run", "runs/tiny"]


def test_evaluate_runs_on_another_device_than_training(folder):
    for path in (folder / "runs/tiny").rglob("recipe.yaml"):
        path.write_text(path.read_text().replace("kind: cpu", "kind: mps"))
    _s2s("evaluate", "runs/tiny")
    with pytest.raises(UserError, match=r"device.kind is mps"):
        _s2s("evaluate", "runs/tiny", "device.kind=mps")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["batches.max_length=1"], r"batches.max_length(.|\n)*all 200 training pairs are longer than 1"),
        (["data.filters.max_words=1"], r"data.filters(.|\n)*no training pair"),
        (["model.decoder_positions=learned", "model.max_positions=64"], r"has 64 positions(.|\n)*max_positions=256"),
        (
            ["data.test=400", "batches.max_length=56", "model.encoder_positions=learned", "model.max_positions=56"],
            r"has 56 positions, but the longest test sentence has \d\d tokens(.|\n)*max_positions=\d\d",
        ),
    ],
)
def test_train_leaves_no_folder_if_data_and_model_do_not_fit(folder, overrides, message):
    with pytest.raises(UserError, match=message):
        _s2s("train", "tiny.yaml", "run.dir=new", *overrides)
    assert not (folder / "new").exists()


def test_translate_refuses_a_line_beyond_the_learned_positions(folder, capfd):
    learned = ["model.decoder_positions=learned", "model.encoder_positions=learned", "model.max_positions=70"]
    _s2s("train", "tiny.yaml", "run.dir=new", *learned, "batches.max_length=70", "decoding.max_extra=100")
    (folder / "long.txt").write_text("A dog " * 60 + "\n")
    done = CliRunner().invoke(commands, ["translate", "new", "--input", "long.txt", "--output", "out.txt"])
    assert done.exit_code == 1
    assert re.search(r"line 1: .*is longer than the 70 positions(.|\n)*split it", done.stderr)
    assert (folder / "out.txt").read_text() == "\n"


@pytest.mark.parametrize(
    ("there", "words", "message"),
    [
        (["comparison.json"], [], r"is not a run but a comparison(.|\n)*run.dir=DIR; .*compare --resume"),
        (["asked.json"], [], "is not a run but a reproduction"),
        (
            ["corpus.tsv"],
            [],
            "contains files that do not belong to a run, which --overwrite would delete: corpus.tsv\n",
        ),
        (["a.en", "a.de", ".git/config"], [], r"would delete: \.git and 2 others"),
        (["checkpoints/a.en"], ["data={corpus: files, root: runs/tiny/checkpoints, train: a.en}"], "data.root: "),
        ([], ["init_from=runs/tiny"], "init_from: runs/tiny: is inside runs/tiny, which --overwrite would empty"),
        ([], ["init_from=runs/tiny/checkpoints/0000004"], "init_from: .*0000004: is inside"),
        ([], ["data.more={back: {train: [runs/tiny/a.en, a.de]}}"], "data.more.back.train: "),
    ],
)
def test_overwrite_of_foreign_files_or_init_from_is_refused(folder, there, words, message):
    for name in there:
        (folder / "runs/tiny" / name).parent.mkdir(exist_ok=True)
        (folder / "runs/tiny" / name).touch()
    before = sorted(folder.rglob("*"))
    with pytest.raises(UserError, match=message):
        _s2s("train", "tiny.yaml", "--overwrite", *words)
    assert sorted(folder.rglob("*")) == before


def test_overwrite_replaces_a_folder_with_a_recipe_only(folder):
    (folder / "begun").mkdir()
    shutil.copy(folder / "tiny.yaml", folder / "begun/recipe.yaml")
    _s2s("train", "tiny.yaml", "run.dir=begun", "training.updates=2", "--overwrite")
    assert (folder / "begun/checkpoints/0000002").exists()


@pytest.mark.parametrize("name", "tcm")
def test_overwrite_accepts_every_file_of_a_run(small_world, name):
    run = small_world / "runs" / name
    check_free(read(run / "recipe.yaml", [f"run.dir={run}"]), overwrite=True)
