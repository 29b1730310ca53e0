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


CHECKED = {
    "pairs": """
name: mine
data: {corpus: files, source: en, target: de, train: [a.en, a.de], validation: 8, test: 7}
model: {kind: transformer}
""",
    "corpora": """
name: mine
task: text-to-text
data:
  corpora:
    one: {corpus: files, source: en, target: de, train: [a.en, a.de], validation: 8, test: 7, prefix: "say: "}
model: {kind: transformer}
""",
    "labels": """
name: mine
task: classification
data: {corpus: files, text: text, label: label, train: a.tsv, validation: 8, test: 7}
model: {kind: transformer}
""",
    "texts": """
name: mine
task: language-model
data: {train: a.txt, validation: 8, test: 7, document: line}
model: {kind: transformer}
""",
}


@pytest.mark.parametrize("kind", CHECKED)
def test_check_names_rows_of_the_file_although_examples_are_held_out(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    odd = 31
    lines = [f"Text number {i} is here{chr(0xFFFD) if i == odd else ''}" for i in range(1, 61)]
    Path("a.en").write_text("\n".join(lines) + "\n", encoding="utf-8")
    Path("a.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    Path("a.de").write_text("".join(f"Satz {i} steht hier\n" for i in range(1, 61)))
    labelled = "".join(f"{line}\t{'ab'[i % 2]}\n" for i, line in enumerate(lines))
    Path("a.tsv").write_text("text\tlabel\n" + labelled, encoding="utf-8")
    Path("mine.yaml").write_text(CHECKED[kind])
    done = CliRunner().invoke(check, ["mine.yaml"], catch_exceptions=False)
    assert f"with a replacement character U+FFFD (row {odd})" in done.stdout
    # drawn examples are shown beside their rows, too
    drawn = [line.split() for line in done.stdout.split("\n") if " number " in line and line.split()[0].isdigit()]
    assert len(drawn) >= 10
    assert all(line[line.index("number") + 1] == line[0] for line in drawn)
