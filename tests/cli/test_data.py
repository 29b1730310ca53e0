"""The command `s2s data check`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from s2s.cli.data import check
from s2s.errors import UserError

RECIPE = """
name: mine
data: {corpus: files, source: en, target: de, train: [a.en, a.de], validation: 3, test: 2}
model: {kind: transformer}
"""
OFFLINE = """
import socket, sys
def refuse(*words):
    raise SystemExit(f"reached for the network: {words}")
socket.socket.connect = socket.getaddrinfo = refuse
from s2s.cli.main import main
main()
"""


@pytest.fixture
def recipe(tmp_path) -> Path:
    (tmp_path / "a.en").write_text("".join(f"line {i}\n" for i in range(40)))
    (tmp_path / "a.de").write_text("".join(f"Zeile {i}\n" for i in range(40)))
    (tmp_path / "mine.yaml").write_text(RECIPE)
    return tmp_path / "mine.yaml"


def test_check_of_local_files_needs_no_network_and_says_nothing_beside_its_findings(recipe):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")} | {
        "HF_HOME": str(recipe.parent / "hf")
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", OFFLINE, "data", "check", str(recipe)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n")[1].split() == ["pairs", "35", "3", "2"]
    assert "nothing suspicious found" in done.stdout


def test_check_follows_overrides_and_findings_are_no_failure(recipe):
    (recipe.parent / "a.de").write_text("\n" * 30 + "Zeile\n" * 10)
    done = CliRunner().invoke(check, [str(recipe), "data.validation=5"])
    assert done.exit_code == 0
    assert done.stdout.split("\n")[1].split() == ["pairs", "33", "5", "2"]
    assert "30 pairs of train with an empty side (rows 1, 2, 3, 4, 5 …)" in done.stdout


def test_check_tells_of_files_that_cannot_be_read(recipe):
    (recipe.parent / "a.de").write_text("too short\n")
    done = CliRunner().invoke(check, [str(recipe)])
    assert isinstance(done.exception, UserError)
    assert "a.en has 40 lines" in str(done.exception)
