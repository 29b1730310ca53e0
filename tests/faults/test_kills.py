"""Runs killed at random moments resume to the same bits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = Path(__file__).with_name("kills.py")
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "kills", [pytest.param(10, marks=pytest.mark.slow), pytest.param(200, marks=pytest.mark.release)]
)
def test_killed_runs_are_resumed_to_the_same_bits(kills):
    command = [sys.executable, str(KILLS), "--kills", str(kills), "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] >= kills
    assert found["same"] == found["kills"], found["others"]


@pytest.mark.slow
def test_comparison_stopped_by_signals_is_resumed_to_the_same_bits():
    command = [sys.executable, "-m", "tests.faults.compared"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["lives"] == {"straight": 0, "SIGINT": 130, "SIGTERM": 143, "SIGKILL": -9, "resumed": 0}, found["said"]
    # of four trials and two runs the cells, and both files of each run's checkpoint
    assert (found["same"], found["differ"]) == (10, [])


def test_resuming_page_has_the_kept_kills():
    found = json.loads((ROOT / "docs/results/faults.json").read_text())["kills"]
    assert found["same"] == found["kills"]
    page = " ".join((ROOT / "docs/resuming.md").read_text().split())
    assert f"killed the real command {found['kills']} times at random moments, in {found['runs']} runs" in page
