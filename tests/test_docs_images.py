"""Every command that the page on images shows, in its order, on small images."""

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from s2s.cli.main import commands

ROOT = Path(__file__).parents[1]
SMALL = [
    "data.root=files",
    "data.validation=4",
    "data.size=8",
    "batches.images=8",
    "model.width=16",
    "device.threads=1",
]
BRIEF = ["model.encoder_layers=1", "training.updates=4", "training.warmup=1", "validation.every=2"]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A working folder with the recipes, and images of two classes."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    generator = np.random.default_rng(1)
    for split, count in (("train", 12), ("test", 6)):
        for name in ("one", "two"):
            place = tmp_path / "files" / split / name
            place.mkdir(parents=True)
            for row in range(count):
                Image.fromarray(generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(place / f"{row}.png")
    (tmp_path / "names.txt").write_text("files/test/one/0.png\n\nfiles/test/two/3.png\n")
    return tmp_path


def test_every_command_of_the_page_works(folder):
    page = (ROOT / "docs" / "images.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL)
    shown = [shlex.split(line) for block in blocks for line in block.strip().split("\n")]
    assert len(shown) == 7
    said = []
    for program, *words in shown:
        assert program == "s2s"
        small = [*SMALL, *BRIEF] if words[0] == "train" else []
        if words[0] == "data":
            small = SMALL[:3]
        if "recipes/vit_cifar10.yaml" in words:
            # heads divide the width
            small.append("model.heads=2")
        done = CliRunner().invoke(commands, [*words, *small], standalone_mode=False, catch_exceptions=False)
        assert done.exit_code == 0, f"{words}\n{done.output}"
        said.append(done.output)
    assert {path.name for path in Path("runs").iterdir()} == {"vit_mnist", "gru_mnist", "vit_cifar10"}
    assert "McNemar" in said[4]
    lines = said[5].split("\n")
    assert [line.split("\t")[0] in ("one", "two") for line in lines[:3]] == [True, False, True]
