"""Every command of the pages on variants and on training, on little data; and what the variants cost, as it is told."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from s2s.cli.main import commands
from s2s.models.base import count_parameters
from s2s.models.transformer import Settings, build
from s2s.recipe.page import read_value

DOCS = Path(__file__).parents[1] / "docs"
SMALL = [
    *("data.train=120", "data.validation=10", "data.test=4", "tokenizer.size=400", "validation.sentences=2"),
    *("model.width=16", "model.feedforward=16", "model.encoder_layers=1", "model.decoder_layers=1"),
    *("training.updates=3", "training.warmup=1", "validation.every=3", "decoding.beam=1", "decoding.max_ratio=1"),
    *("device.kind=cpu", "device.precision=fp32"),
]


def _commands(page: str) -> list[list[str]]:
    blocks = re.findall(r"```sh\n(.*?)```", (DOCS / f"{page}.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.strip().split("\n")]


@pytest.mark.parametrize("page", ["variants", "training"])
def test_every_command_of_the_page_works(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = _commands(page)
    assert len(shown) == {"variants": 2, "training": 4}[page]
    for program, *words in shown:
        assert program == "s2s"
        done = CliRunner().invoke(
            commands, [*words, *(SMALL if words[0] == "train" else [])], standalone_mode=False, catch_exceptions=False
        )
        assert done.exit_code == 0, f"{words}\n{done.output}"
        if "training.noise_scale=true" in words:
            assert "gradient noise scale by the last 3 updates: " in done.output
        if any(word.startswith("training.freeze") for word in words):
            assert re.search(r"[\d,]+ of [\d,]+ parameters learn", done.output)


def test_the_table_of_variants_tells_their_parameters():
    plain = Settings(width=128, heads=4, feedforward=512, encoder_layers=2, decoder_layers=2)
    page = (DOCS / "variants.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]*`) \|.*\| (none|[+−][\d,]+) \|$", page, flags=re.MULTILINE)
    assert len(rows) == 12
    before = count_parameters(build(plain, 3000, 3000))
    assert f"{before:,} parameters" in page
    for lines, cost in rows:
        changes = dict(line.split(": ") for line in re.findall(r"`([^`]*)`", lines))
        settings = Settings.model_validate(plain.model_dump() | {key: read_value(v) for key, v in changes.items()})
        found = count_parameters(build(settings, 3000, 3000)) - before
        assert (f"{found:+,}".replace("-", "−") if found else "none") == cost, lines
