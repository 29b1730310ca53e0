"""Every command of the page on several corpora, in their order, on small data; and its YAML, which is a recipe's."""

import re
import shlex
import shutil
from pathlib import Path
from typing import Any, cast

from click.testing import CliRunner

from s2s.cli.main import commands
from s2s.run.tasks import read

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "several-corpora.md").read_text(encoding="utf-8")
SMALL = [
    *("training.updates=4", "training.warmup=1", "validation.every=4", "tokenizer.size=400", "model.width=16"),
    *("model.heads=2", "model.feedforward=16", "decoding.max_ratio=1", "decoding.max_extra=2", "device.threads=1"),
    *("data.train=100", "data.validation=4", "data.test=4"),
]


def test_the_recipe_of_the_page_is_read(tmp_path):
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "page.yaml").write_text(f"name: page\n{block}model: {{kind: transformer}}\n")
    data = cast(Any, read(tmp_path / "page.yaml")).data
    assert data.weights == [2, 1, 1]
    assert (data.more["back"].target, data.more["back"].prefix) == ("de", "<bt> ")


def test_every_command_of_the_page_works(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    monkeypatch.chdir(tmp_path)
    lines = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.strip().split("\n")]
    Path("mono.de").write_text("".join(f"Der alte Mann schläft {word}.\n" for word in ("hier", "dort", "heute", "nie")))
    assert len(lines) == 9
    for line in lines:
        found = re.fullmatch(r"(?:echo '(?P<echoed>.*)' \| )?s2s (?P<words>.*)", line)
        assert found
        words = shlex.split(re.sub(r"train: \d+", "train: 100", found["words"]))
        if words[0] == "train":
            small = {override.partition("=")[0] for override in SMALL}
            words = [word for word in words if word.partition("=")[0] not in small] + SMALL
        if found["echoed"]:
            Path("echoed.txt").write_text(f"{found['echoed']}\n")
            words += ["--input", "echoed.txt"]
        done = CliRunner().invoke(commands, words, standalone_mode=False)
        assert done.exception is None, f"{line}\n{done.output}"
        written = Path(words[words.index("--output") + 1]).read_text() if "--output" in words else done.stdout
        assert written.strip(), line
