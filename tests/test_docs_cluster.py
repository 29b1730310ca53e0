"""Every command of the page on clusters, on small data; other machines are played by this one."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import s2s
from s2s.cli.main import commands
from s2s.comparison import tuning

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "cluster.md").read_text("utf-8")
SHOWN = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL) for line in block.strip().split("\n")]
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
SMALL = "--experiment quality --seeds 1 data.train=300 data.validation=8 data.test=8 tokenizer.size=450"
SMALL += " training.updates=6 training.warmup=2 validation.every=6 validation.sentences=3 batches.tokens=600"
SMALL += " device.precision=fp32 device.threads=1 decoding.max_ratio=0.5 decoding.max_extra=1"


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_two_nodes_are_started_and_measure_as_shown(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    for name, value in (("RATES", (0.004,)), ("LOWEST", 0.004), ("HIGHEST", 0.004)):
        monkeypatch.setattr(tuning, name, value)
    monkeypatch.setattr(tuning, "depths_of", lambda recipe, own: ())
    shutil.copytree(ROOT / "recipes", tmp_path / "recipes")
    nodes: list[subprocess.Popen] = []
    told = []
    try:
        for command in SHOWN:
            words = shlex.split(command.replace("6379", port).replace("HOST", "127.0.0.1").replace("4 --", "1 --"))
            if words[0] == "ray":
                # as a process of the test, which ends it: `ray stop` would end all clusters of this machine
                node = subprocess.Popen(
                    [sys.executable, "-m", "ray.scripts.scripts", *words[1:], "--block"],
                    stdout=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
                nodes.append(node)
                assert node.stdout
                assert any("Ray runtime started" in line for line in node.stdout)
            elif words[0] == "s2s":
                small = [] if "--resume" in words else SMALL.split()
                done = CliRunner().invoke(commands, [*words[1:], *small], standalone_mode=False)
                assert done.exception is None, done.output
                told.append(done.output)
            else:
                assert command == "pip install -e '.[cluster]'"
        lost = min((tmp_path / "runs" / "compare-rnn-transformer" / "cells").rglob("*.json"))
        before = json.loads(lost.read_text())
        lost.unlink()
        for block in PYTHON:
            exec(block, {"s2s": s2s})
        assert json.loads(lost.read_text()).keys() == before.keys()
    finally:
        for node in reversed(nodes):
            os.killpg(node.pid, signal.SIGTERM)
            node.wait(60)
            node.stdout and node.stdout.close()
    assert ", 2 beside each other" in told[0]
    assert "FAILED" not in told[0]
    assert "in all 0 measurements" in told[1]
    assert (tmp_path / "runs" / "compare-rnn-transformer" / "report.html").exists()
