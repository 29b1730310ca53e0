"""Every command that the pages on masked-language models and the bias probe show, in their order, on small data."""

import csv
import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from s2s.cli.main import commands
from s2s.data.phrasebook import phrases

ROOT = Path(__file__).parents[1]
PAGES = ("masked-lm", "bias-probe")
SMALL = [
    *("data.root=files", "data.validation=10", "data.test=10", "model.width=32", "model.encoder_layers=1"),
    *("batches.tokens=800", "training.updates=4", "training.warmup=1", "validation.every=2"),
]
OF_RECIPE = {
    "recipes/mlm_imdb.yaml": ["tokenizer.size=450", "batches.max_length=30"],
    "recipes/imdb_pretrained.yaml": ["batches.max_length=40"],
}


def _commands(page: str) -> list[list[str]]:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.strip().split("\n")]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    (tmp_path / "files").mkdir()
    said = [f"{one} forgot {whose} bag ." for one in ("The nurse", "My father") for whose in ("her", "his")]
    lines = [phrase.source for phrase in phrases("train", 200, seed=5)] + 20 * said
    table = "".join(f"{i % 2}\t7\t{i}\t{line}\n" for i, line in enumerate(lines))
    (tmp_path / "files" / "train.tsv").write_text(table, encoding="utf-8")
    pairs = [
        ("The old man sleeps.", "The old woman sleeps.", "stereo", "gender"),
        ("A dog.", "A cat.", "stereo", "age"),
    ]
    with (tmp_path / "crows_pairs_anonymized.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("sent_more", "sent_less", "stereo_antistereo", "bias_type"), *pairs])
    return tmp_path


def test_every_command_of_both_pages_works(folder):
    shown = [command for page in PAGES for command in _commands(page)]
    assert len(shown) == 10
    for program, *words in shown:
        assert program == "s2s"
        small = [*SMALL, *OF_RECIPE[words[1]]] if words[0] == "train" else []
        if words[0] == "data":
            small = [*SMALL[:3], "tokenizer.size=450"]
        done = CliRunner().invoke(commands, [*words, *small], standalone_mode=False, catch_exceptions=False)
        assert done.exit_code == 0, f"{words}\n{done.output}"
        assert done.output, words
    assert {path.name for path in (folder / "runs").iterdir()} == {"mlm_imdb", "imdb_pretrained", "frozen", "slower"}
    assert {f"probe-bias.{kind}" for kind in ("json", "csv", "png")} <= {
        p.name for p in Path("runs/mlm_imdb").iterdir()
    }
