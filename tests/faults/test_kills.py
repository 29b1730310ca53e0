"""kill -9, again and again, at random moments of the real command."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = Path(__file__).with_name("kills.py")


@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_killed_runs_are_resumed_to_the_same_bits(kills):
    command = [sys.executable, str(KILLS), "--kills", str(kills), "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] >= kills
    assert found["same"] == found["kills"], found["others"]
