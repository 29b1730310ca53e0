"""A run exported for the hub is read back as the same run."""

import json
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML
from safetensors.torch import load_file, save_file

from s2s.cli.main import commands
from s2s.errors import UserError
from s2s.export.folder import check_place
from s2s.export.hub import card
from s2s.run.inference import evaluate, load
from s2s.run.tasks import read
from s2s.training.checkpoint import digest_of_weights


def _s2s(*words: object) -> str:
    done = CliRunner().invoke(commands, [str(word) for word in words], standalone_mode=False, catch_exceptions=False)
    return done.stdout


@pytest.fixture(scope="module")
def folder(small, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("hub") / "small"
    assert "checkpoint 0000060 for hub" in _s2s("export", small, "--to", "hub", "--output", out)
    return out


@pytest.fixture
def hub(folder, tmp_path, monkeypatch) -> Path:
    """A cache of the hub's client that has fetched somebody's model."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    there = tmp_path / "models--somebody--small"
    shutil.copytree(folder, there / "snapshots" / commit)
    (there / "refs").mkdir()
    (there / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return there / "snapshots" / commit


@pytest.fixture
def lines(tmp_path) -> Path:
    (tmp_path / "lines.txt").write_text("The small dog sees a cat.\n\nMy sister sleeps.\n", encoding="utf-8")
    return tmp_path / "lines.txt"


def test_run_on_the_hub_translates_as_the_run_itself(small, folder, hub, lines):
    here, many = (_s2s("translate", small, "--input", lines, "--nbest", n) for n in (1, 2))
    assert len(here.split("\n")) == 4
    assert _s2s("translate", folder, "--input", lines) == here
    assert _s2s("translate", "hf:somebody/small", "--input", lines) == here
    assert _s2s("translate", "hf:somebody/small@main", "--input", lines, "--nbest", 2) == many


def test_hub_scores_are_the_same_and_nothing_is_written_into_what_was_fetched(small, hub):
    before = sorted(hub.rglob("*"))
    fetched, here = (_s2s("evaluate", run).split("\n", 1)[1] for run in ("hf:somebody/small", small))
    assert fetched == here
    assert sorted(hub.rglob("*")) == before


def test_hub_other_commands_take_it_too(small, hub, lines):
    words = ("--align", "--input", lines)
    assert _s2s("inspect", "hf:somebody/small", *words) == _s2s("inspect", small, *words)
    _s2s("inspect", "hf:somebody/small", "The dog sleeps.", "--output", lines.with_name("page.html"))
    assert lines.with_name("page.html").exists()


def test_hub_export_has_nothing_to_average(folder):
    with pytest.raises(UserError, match="is an export, which has no checkpoints"):
        _s2s("average", folder, "--last", 1)


def test_hub_export_removes_what_a_killed_one_left(small, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        # as if the process had been killed: nothing is cleaned up
        patch.setattr("s2s.files._delete", lambda path: None)
        patch.setattr("s2s.export.folder.seal", lambda *arguments: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            _s2s("export", small, "--to", "hub", "--output", tmp_path / "out")
    assert [path.name.startswith(".unfinished-") for path in tmp_path.iterdir()] == [True]
    _s2s("export", small, "--to", "hub", "--output", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_hub_card_has_scores_and_limits(small, folder):
    _, head, text = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    found = YAML(typ="safe").load(head)
    assert (found["library_name"], found["pipeline_tag"]) == ("s2s", "translation")
    metrics = {m["type"]: m["value"] for m in found["model-index"][0]["results"][0]["metrics"]}
    told = _s2s("evaluate", small)
    assert f"{metrics['bleu']:.2f}" in told
    # all but the line with the run's path
    assert told.split("\n", 1)[1].strip() in text
    assert str(small.parent) not in text
    assert "300 examples of built-in" in text
    assert "width: 32" in text


def test_hub_card_tells_of_every_evaluation_of_its_checkpoint_and_refuses_a_damaged_one(small, tmp_path):
    run = tmp_path / "small"
    shutil.copytree(small, run)
    evaluate(run).save()
    whole = (run / "evaluation-test.json").read_text(encoding="utf-8")
    for text in ("[]", '{"checkpoint": ', '{"checkpoint": "0000060", "run": "a", "summary": []}'):
        (run / "evaluation-validation.json").write_text(text)
        # two evaluations at once write a file each, and one that was cut short harms no other
        evaluate(run).save()
        with pytest.raises(UserError, match=r"evaluation-validation\.json:.*\n  → evaluate the run again"):
            card(load(run), [])
    assert (run / "evaluation-test.json").read_text(encoding="utf-8") == whole
    told = [evaluation.summary()["summary"]["told"] for evaluation in (evaluate(run), evaluate(run, "validation"))]
    evaluate(run, "validation").save()
    text = card(load(run), [])
    assert all(one.removeprefix(str(run)) in text for one in told)
    # scores of another checkpoint are not this one's
    path = run / "evaluation-validation.json"
    kept = path.read_text(encoding="utf-8")
    assert '"checkpoint": "0000060"' in kept
    path.write_text(kept.replace('"checkpoint": "0000060"', '"checkpoint": "0000030"'), encoding="utf-8")
    assert [one.removeprefix(str(run)) in card(load(run), []) for one in told] == [True, False]


def test_hub_checkpoint_has_the_history_and_the_scores_of_its_run_by_whatever_path(small, tmp_path, monkeypatch):
    _s2s("export", small, "--to", "hub", "--output", tmp_path / "whole")
    (tmp_path / "link").symlink_to(small / "checkpoints/0000060")
    for place, path in ((tmp_path, "link"), (small / "checkpoints", "0000060"), (small / "checkpoints/0000060", ".")):
        monkeypatch.chdir(place)
        out = tmp_path / f"by {path}"
        _s2s("export", path, "--to", "hub", "--output", out)
        for name in ("README.md", "manifest.json"):
            assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_hub_card_tells_of_no_weights_that_only_had_the_name_of_these(small, tmp_path):
    run = tmp_path / "small"
    shutil.copytree(small, run)
    shutil.copytree(run / "checkpoints/0000060", run / "checkpoints/average")
    for file in run.glob("evaluation-*"):
        file.unlink()
    told = evaluate(run).summary()["summary"]["told"].removeprefix(str(run))
    assert told in card(load(run), [])
    # as a run that went on has another average
    weights = load_file(run / "checkpoints/average/model.safetensors")
    save_file({name: 1.01 * each for name, each in weights.items()}, run / "checkpoints/average/model.safetensors")
    path = run / "checkpoints/average/state.json"
    state = json.loads(path.read_text()) | {"weights": digest_of_weights(path.parent)}
    path.write_text(json.dumps(state))
    assert "No scores of these weights were kept." in card(load(run), [])


@pytest.mark.parametrize("file", ["model.safetensors", "recipe.yaml", "tokenizer/shared.json", "export.json"])
def test_hub_export_whose_files_have_changed_is_refused(folder, tmp_path, file):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    load(copy)
    content = bytearray((copy / file).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / file).write_bytes(content)
    with pytest.raises(UserError, match=str(copy)):
        load(copy)
    (copy / file).unlink()
    if file != "export.json":
        with pytest.raises(UserError, match=r"missing|not a run|no such file|is an export"):
            load(copy)


def test_hub_export_without_digests_is_refused(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    described = json.loads((copy / "export.json").read_text())
    named = {name: digest for name, digest in described["files"].items() if name != "model.safetensors"}
    (copy / "export.json").write_text(json.dumps(described | {"files": named}))
    with pytest.raises(UserError, match=r"model\.safetensors: has no digest in export\.json"):
        load(copy)
    (copy / "export.json").write_text('{"format": "hub", "checkpoint": "0000060", "quantization": "float32"}')
    with pytest.raises(UserError, match=r"export\.json: files: field required(.|\n)*→ export the run again"):
        load(copy)


def test_hub_card_names_all_that_was_learned_from_and_no_folder(small, monkeypatch):
    monkeypatch.chdir(small)
    # a path of one character stands everywhere in the text
    told = _s2s("evaluate", ".").strip()
    run = load(Path())
    card_of = partial(card, starts=[{"counts": {"train": 310}}])
    assert told.startswith(".,")
    assert f"```text\nsmall{told[1:]}\n```" in card_of(run)
    back = "back: {train: [/home/me/back.en, mono.de]}"
    more = f"data.more={{news: {{corpus: someone/news, target: fr}}, {back}}}"
    both = read(Path("recipe.yaml"), [more]).model_copy(update={"init_from": "/home/me/runs/first"})
    text = card_of(replace(run, recipe=both))
    assert ("310 examples of built-in, news (someone/news), back (files), and from what first had") in text
    head = YAML(typ="safe").load(text.split("---\n")[1])
    assert (head["language"], head["datasets"]) == (["en", "de", "fr"], ["someone/news"])


def test_hub_export_has_names_of_files_without_their_folders(small, lines, tmp_path):
    pytest.importorskip("ctranslate2")
    run = tmp_path / "private" / "run"
    shutil.copytree(small, run)
    page = run / "checkpoints" / "0000060" / "recipe.yaml"
    own = page.read_text(encoding="utf-8")
    assert "  more: {}\n" in own
    mine = f"  more:\n    mine: {{corpus: files, train: [{tmp_path}/private/mono.de, back.en]}}\n"
    page.write_text(own.replace("  more: {}\n", mine), encoding="utf-8")
    _s2s("export", run, "--to", "hub", "--output", tmp_path / "out")
    _s2s("export", run, "--to", "ctranslate2", "--output", tmp_path / "other")
    for name in ("out/recipe.yaml", "out/README.md", "other/recipe.yaml"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert "private" not in text
        assert "mono.de" in text
    assert _s2s("translate", tmp_path / "out", "--input", lines) == _s2s("translate", small, "--input", lines)


def test_hub_reports_a_missing_repository(hub, lines):
    for name, says in (("hf:nobody/nothing", "cannot be downloaded"), ("hf:a/b/c", "is not a name on the hub")):
        with pytest.raises(UserError, match=says):
            _s2s("translate", name, "--input", lines)


@pytest.mark.parametrize("place", [".", "..", "new", "tokenizer/new"])
def test_export_refuses_an_existing_folder(folder, tmp_path, place):
    # an export in an export: both may be replaced, as far as their own kind tells
    run = tmp_path / "outer" / "run"
    shutil.copytree(folder, run)
    shutil.copy(folder / "export.json", run.parent)
    before = {path: path.is_file() and path.read_bytes() for path in run.parent.rglob("*")}
    with pytest.raises(UserError, match=r"--output .*: is, holds or lies in .*run, which is read\n  → name another"):
        _s2s("export", run, "--to", "hub", "--output", run / place)
    assert {path: path.is_file() and path.read_bytes() for path in run.parent.rglob("*")} == before


def test_hub_run_of_a_checkpoint_is_not_replaced_either(small, tmp_path):
    run = tmp_path / "runs" / "small"
    shutil.copytree(small, run)
    before = sorted(run.rglob("*"))
    for place in (run, run / "new", run / "checkpoints" / "new", tmp_path / "runs"):
        with pytest.raises(UserError, match="is, holds or lies in"):
            _s2s("export", run / "checkpoints/0000060", "--to", "hub", "--output", place)
    assert sorted(run.rglob("*")) == before
    # what lies two folders up from a checkpoint on its own is nobody's run
    shutil.copytree(run / "checkpoints/0000060", tmp_path / "a" / "b" / "alone")
    _s2s("export", tmp_path / "a/b/alone", "--to", "hub", "--output", tmp_path / "a/out")


def test_hub_folder_that_is_no_export_is_not_replaced(small, tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(UserError, match="exists and is no export"):
        _s2s("export", small, "--to", "hub", "--output", tmp_path)
    with pytest.raises(UserError, match="does not apply to --to hub"):
        _s2s("export", small, "--to", "hub", "--output", tmp_path / "new", "--quantization", "int8")
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_hub_export_is_replaced_only_where_it_may_be_and_holds_nothing_else(folder, small, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(folder, out)
    card = (out / "README.md").read_text(encoding="utf-8")
    (out / "README.md").write_text(f"{card}mine", encoding="utf-8")
    asked = ("export", small, "--to", "hub", "--output", out)
    with pytest.raises(UserError, match=r"--output .*out: holds an export already\n.*--overwrite"):
        _s2s(*asked)
    for added, told in (("LICENSE", "LICENSE"), (".git/config", ".git and LICENSE"), ("a.txt", ".git and 2 others")):
        (out / added).parent.mkdir(exist_ok=True)
        (out / added).touch()
        with pytest.raises(UserError, match=rf"and --overwrite would remove: {re.escape(told)}\n"):
            _s2s(*asked, "--overwrite")
    assert (out / "README.md").read_text(encoding="utf-8") == f"{card}mine"
    shutil.rmtree(out / ".git")
    for name in ("LICENSE", "a.txt"):
        (out / name).unlink()
    _s2s("evaluate", out)
    _s2s(*asked, "--overwrite")
    assert (out / "README.md").read_text(encoding="utf-8") == card


@pytest.mark.slow
@pytest.mark.parametrize("to", ["ctranslate2", "onnx"])
def test_hub_all_that_an_export_is_made_of_is_known_as_its(small, tmp_path, to):
    for package in ("ctranslate2", "onnxruntime", "onnxscript"):
        pytest.importorskip(package)
    for words in ((), ("--overwrite",)):
        _s2s("export", small, "--to", to, "--output", tmp_path / "out", *words)
    assert (tmp_path / "out/export.json").exists()


@pytest.mark.slow
def test_hub_export_of_a_model_that_answers_at_once_is_known_as_one(small_world, tmp_path):
    pytest.importorskip("onnxscript")
    _s2s("export", small_world / "runs" / "c", "--to", "onnx", "--output", tmp_path / "out")
    assert (tmp_path / "out/model.onnx").exists()
    check_place(tmp_path / "out", overwrite=True)
