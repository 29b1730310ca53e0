"""Every command that the page on text to text shows, in their order, on small data."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SMALL = [
    *("training.updates=4", "training.warmup=1", "validation.every=4", "tokenizer.size=400", "model.width=16"),
    *("model.heads=2", "model.feedforward=16", "decoding.max_ratio=1", "decoding.max_extra=2", "device.threads=1"),
]
TASKS = ("en-de", "de-en", "plural", "cases", "acceptable")
SIZES = [f"data.corpora.{name}.{split}={size}" for name in TASKS for split, size in
         (("train", 100), ("validation", 4), ("test", 4))]  # fmt: skip


@pytest.mark.slow
def test_every_command_of_the_page_works(tmp_path):
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    text = (ROOT / "docs" / "text-to-text.md").read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.strip().split("\n")]
    assert len(lines) == 7
    for line in lines:
        # a corpus that the command gives itself has sizes of its own
        small = [*SMALL, *([] if "data.corpora=" in line else SIZES)] if line.startswith("s2s train") else []
        done = subprocess.run(
            ["bash", "-c", f"{line} {shlex.join(small)}"], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        assert done.stdout.strip(), line
