"""What may become of a run's folder, and what may not; the commands are called in this process."""

import json
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


def test_a_test_set_of_one_sentence_is_scored_and_shown(trained):
    assert len(json.loads((trained / "runs/tiny/evaluation-test.json").read_text())["sources"]) == 1


def test_weights_may_be_read_by_whoever_may_read_the_rest(trained):
    checkpoint = trained / "runs/tiny/checkpoints/0000004"
    modes = {p.name: p.stat().st_mode for p in checkpoint.iterdir() if p.is_file()}
    assert set(modes.values()) == {modes["state.json"]}


def test_one_line_is_translated_without_what_only_training_and_statistics_need(trained):
    code = (
        "import sys; from s2s.cli.main import main; sys.argv = ['s2s', 'translate', 'runs/tiny']; main()\n"
        "unwanted = 'datasets pandas scipy.special tensorboard matplotlib sacrebleu'.split()\n"
        "print([m for m in unwanted if m in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, input="The dog sleeps.\n", capture_output=True, text=True, check=True, cwd=trained)
    assert done.stdout.endswith("\n[]\n")
    assert done.stdout.count("\n") == 2


def test_an_empty_folder_and_a_link_to_one_are_filled_not_replaced(folder, monkeypatch):
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


def test_only_one_process_trains_a_run(folder):
    with run_lock(folder / "runs/tiny"):
        for words in (("runs/tiny", "--resume"), ("tiny.yaml", "--overwrite")):
            with pytest.raises(UserError, match=r"runs/tiny: another process is training this run"):
                _s2s("train", *words)
    assert (folder / "runs/tiny/checkpoints/0000004").exists()
    _s2s("train", "runs/tiny", "--resume")


def test_a_checkpoint_is_not_resumed_as_if_it_were_a_run(folder):
    with pytest.raises(UserError, match=r"is a checkpoint(.|\n)*runs/tiny"):
        _s2s("train", "runs/tiny/checkpoints/0000004", "--resume")
    with pytest.raises(UserError, match=r"is a checkpoint itself(.|\n)*--checkpoint best"):
        _s2s("evaluate", "runs/tiny/checkpoints/0000004", "--checkpoint", "best")


def test_an_edited_recipe_is_not_resumed_and_the_changed_keys_are_named(folder):
    path = folder / "runs/tiny/recipe.yaml"
    path.write_text(path.read_text().replace("updates: 4", "updates: 6").replace("width: 8", "width: 16"))
    with pytest.raises(UserError, match=r"model.width, training.updates changed(.|\n)*0000004"):
        _s2s("train", "runs/tiny", "--resume")


def test_a_run_goes_on_where_its_data_lies_now_and_by_no_other_recipe(folder):
    shutil.rmtree(folder / "runs/tiny/checkpoints/0000004")
    with pytest.raises(UserError, match=r"'training.warmup=2' cannot change it(.|\n)*only data, device, training.upd"):
        _s2s("train", "runs/tiny", "--resume", "training.warmup=2")
    _s2s("train", "runs/tiny", "--resume", "device.threads=1")
    assert (folder / "runs/tiny/checkpoints/0000004").exists()


def test_a_damaged_manifest_is_named(folder):
    (folder / "runs/tiny/manifest.json").write_text("[{")
    with pytest.raises(UserError, match=r"manifest.json:1: not JSON"):
        _s2s("train", "runs/tiny", "--resume")


def test_evaluation_with_other_decoding_is_not_saved_in_the_run(folder):
    path = folder / "runs/tiny/evaluation-test.json"
    before = path.read_text()
    for words in (["--beam", "1"], ["data.test=3"]):
        _s2s("evaluate", "runs/tiny", *words)
        assert path.read_text() == before
    path.unlink()
    _s2s("evaluate", "runs/tiny")
    assert path.exists()


@pytest.mark.parametrize("override", ["training.updates=5", "model.activation=gelu", "name=foo"])
def test_a_trained_model_keeps_its_recipe(folder, override):
    with pytest.raises(UserError, match=rf"'{override}' cannot change it(.|\n)*data, decoding, device"):
        _s2s("evaluate", "runs/tiny", override)


def test_a_run_from_a_machine_with_another_device_translates_here(folder):
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
def test_training_that_fails_early_leaves_no_folder(folder, overrides, message):
    with pytest.raises(UserError, match=message):
        _s2s("train", "tiny.yaml", "run.dir=new", *overrides)
    assert not (folder / "new").exists()


def test_learned_positions_end_a_translation_in_time(folder, capfd):
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


def test_a_recipe_alone_is_replaced(folder):
    (folder / "begun").mkdir()
    shutil.copy(folder / "tiny.yaml", folder / "begun/recipe.yaml")
    _s2s("train", "tiny.yaml", "run.dir=begun", "training.updates=2", "--overwrite")
    assert (folder / "begun/checkpoints/0000002").exists()


@pytest.mark.parametrize("name", "tcm")
def test_all_that_a_run_of_a_task_writes_is_known_as_its(small_world, name):
    run = small_world / "runs" / name
    check_free(read(run / "recipe.yaml", [f"run.dir={run}"]), overwrite=True)
