"""Every command that the page on captioning shows, in its order, on small images."""

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
PAGE = (ROOT / "docs" / "captioning.md").read_text(encoding="utf-8")
BRIEF = ["training.updates=2", "training.warmup=1", "validation.every=2", "device.threads=1", "model.width=16"]
DRAWN = ["data.train=40", "data.validation=4", "data.test=12", "batches.captions=16"]
WRITTEN = ["tokenizer.kind=word", "data.size=16"]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A working folder with the recipes, and photographs with captions."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    generator = np.random.default_rng(1)
    (tmp_path / "photos").mkdir()
    rows = ["image,caption"]
    for number in range(48):
        image = Image.fromarray(generator.integers(0, 256, (12, 20, 3), dtype=np.uint8))
        image.save(tmp_path / "photos" / f"{number}.jpg")
        rows += [f"{number}.jpg,A dog runs over the grass.", f"{number}.jpg,a brown dog number {number} plays"]
    for name in ("photo.png", "other.png"):
        image.save(tmp_path / name)
    (tmp_path / "captions.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "mine.yaml").write_text(re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)[0])
    return tmp_path


def test_every_command_of_the_page_works(folder):
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    shown = [shlex.split(line) for block in blocks for line in block.strip().split("\n")]
    assert len(shown) == 10
    said = []
    for program, *words in shown:
        assert program == "s2s"
        small = [*BRIEF, *(WRITTEN if "mine.yaml" in words else DRAWN)] if words[0] == "train" else []
        done = CliRunner().invoke(commands, [*words, *small], standalone_mode=False, catch_exceptions=False)
        assert done.exit_code == 0, f"{words}\n{done.output}"
        said.append(done.output)
    assert {path.name for path in Path("runs").iterdir()} == {"captioning", "show_attend_tell", "mine"}
    assert "against the first" in said[3]
    assert [line.split("\t")[0] for line in said[6].strip().split("\n") if "\t" in line] == ["photo.png", "other.png"]
    assert Path("looks.html").stat().st_size > 5000
    assert Path("looks.png").read_bytes()[:4] == b"\x89PNG"
    assert "captions said before" in said[8]
    # the example of a message
    Path("photos/7.jpg").unlink()
    done = CliRunner().invoke(commands, ["data", "check", "mine.yaml"])
    assert re.search(r"captions.csv:16: 7.jpg: cannot be read: there is no such file", str(done.exception))
