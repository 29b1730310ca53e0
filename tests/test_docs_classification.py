"""Every command that the page on classification shows, in its order, on small data."""

import random
import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from s2s.cli.main import commands

ROOT = Path(__file__).parents[1]
SMALL = [
    *("data.root=files", "data.validation=20", "tokenizer.kind=word", "batches.tokens=600", "model.width=16"),
    *("model.encoder_layers=1", "training.updates=4", "training.warmup=1", "validation.every=2"),
]
WORDS = ("peace vote treaty", "goal match team", "bank stock oil", "space web chip")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    (tmp_path / "files").mkdir()
    chance = random.Random(1)
    for name, count in (("train", 120), ("test", 30)):
        rows = [(n % 4, " ".join(chance.choices(WORDS[n % 4].split(), k=5))) for n in range(count)]
        table = "".join(f"{number + 1}\tTitle {n}\t{text}\tsource\n" for n, (number, text) in enumerate(rows))
        (tmp_path / "files" / f"{name}.tsv").write_text(table)
    (tmp_path / "lines.txt").write_text("A goal.\n\nA bank.\n")
    return tmp_path


def test_every_command_of_the_page_works(folder):
    text = (ROOT / "docs" / "classification.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
    shown = [shlex.split(line) for block in blocks for line in block.strip().split("\n")]
    assert len(shown) == 7
    for program, *words in shown:
        assert program == "s2s"
        if words[0] == "train" and "--resume" not in words:
            words += SMALL
        elif words[0] == "data":
            words += SMALL[:2]
        done = CliRunner().invoke(commands, words, standalone_mode=False, catch_exceptions=False)
        assert done.exit_code == 0, f"{words}\n{done.output}"
        assert done.output, words
    pictures = {path.name for path in (folder / "runs/ag_news/figures").iterdir()}
    for name in re.findall(r"`(?:figures/)?([a-z-]+\.png)`", text):
        assert name in pictures, name
