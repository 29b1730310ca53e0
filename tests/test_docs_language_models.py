"""Every command that the page on language models shows, in its order, on small data."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import language_models
from benchmarks.keeping import written
from s2s.cli.main import commands
from s2s.data.phrasebook import phrases

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "language-models.md"
SMALL = [
    *("training.updates=4", "training.warmup=1", "validation.every=2", "device.threads=1", "validation.samples=1"),
    *("batches.length=64", "batches.tokens=128", "tokenizer.kind=bytes"),
]
OF_RECIPE = {
    "recipes/lm_builtin.yaml": ["data.train=80", "data.validation=4", "data.test=6"],
    "recipes/lm_text.yaml": ["data.root=files", "data.validation=6", "data.test=6"],
    "mine.yaml": ["data.validation=6", "data.test=6"],
}
TRANSFORMER = ["model.width=16", "model.heads=2", "model.feedforward=32", "model.decoder_layers=1"]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    (tmp_path / "files").mkdir()
    lines = [phrase.source for phrase in phrases("train", 120, seed=5)]
    table = "".join(f"{i % 2}\t7\t{i}\t{line}\n" for i, line in enumerate(lines))
    (tmp_path / "files" / "train.tsv").write_text(table, encoding="utf-8")
    (tmp_path / "mine.txt").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "prompts.txt").write_text("The\n\n", encoding="utf-8")
    return tmp_path


def test_every_command_of_the_page_works(folder):
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    shown = [shlex.split(line) for block in blocks for line in block.strip().split("\n")]
    assert len(shown) == 14
    for program, *words in shown:
        if program == "python":
            assert words[:2] == ["-m", "benchmarks.language_models"]
            rulers = language_models.yardsticks(Path(words[2]))
            assert 0 < rulers["n_gram"] < 8
            assert {"gzip -9", "bz2 -9", "xz -9e"} == set(rulers["compressors"])
            for run in words[2:]:
                test = json.loads((folder / run / "evaluation-test.json").read_text(encoding="utf-8"))
                assert language_models.summary(Path(run))["bytes"] == rulers["test_bytes"] == test["bytes"]
            continue
        small = []
        if words[0] == "train":
            recurrent = any("kind: lstm" in word for word in words)
            small = [*SMALL, *OF_RECIPE[words[1]], *(["model.width=16"] if recurrent else TRANSFORMER)]
        elif words[0] == "generate" and "--max-tokens" not in words:
            small = ["--max-tokens", "8"]
        done = CliRunner().invoke(commands, [*words, *small], standalone_mode=False, catch_exceptions=False)
        assert done.exit_code == 0, f"{words}\n{done.output}"
        assert done.output, words
    recipe = (folder / "mine.yaml").read_text(encoding="utf-8")
    assert "document: line # what a document is" in recipe
    assert {path.name for path in (folder / "runs").iterdir()} == {"lm_builtin", "lm_text", "lm_text_lstm", "mine"}


def test_the_table_is_what_the_kept_runs_say():
    table = language_models.table()
    page = PAGE.read_text(encoding="utf-8")
    assert written(page, table, "language_models") == page
