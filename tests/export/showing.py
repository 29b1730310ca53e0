"""Runs the commands that a page of the documentation shows, in their order."""

import re
import shlex
from pathlib import Path

from click.testing import CliRunner

from s2s.cli.main import commands

ROOT = Path(__file__).parents[2]


def run_page(page: str) -> int:
    """Runs all; what a page shows as their output must be it. Gives how many there are."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    shown = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.strip().split("\n")]
    for line in shown:
        program, *words = shlex.split(line)
        assert program == "s2s"
        done = CliRunner().invoke(commands, words, standalone_mode=False, catch_exceptions=False)
        assert done.exit_code == 0, f"{line}\n{done.output}"
        if f"{line}\n```\n\n```text" in text:
            assert done.output in text
    return len(shown)
