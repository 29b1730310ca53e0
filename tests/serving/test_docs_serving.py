"""docs/serving.md: command, request and limits."""

import json
import re
import shlex
import shutil
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import serving
from s2s.cli.main import commands
from s2s.serving.messages import Limits
from tests.serving.conftest import served

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")


def test_serve_command_of_the_page_has_its_address_and_limits(small_runs, tmp_path, monkeypatch):
    begun = []
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: begun.append((server, sockets[0].getsockname())))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(small_runs / "t", tmp_path / "runs/translate")
    shown = re.findall(r"^s2s (serve .*)$", PAGE, flags=re.MULTILINE)
    assert len(shown) == 1
    words = shlex.split(shown[0].replace("8080", "0"))
    done = CliRunner().invoke(commands, [*words, "--lines", "7"], standalone_mode=False, catch_exceptions=False)
    (server, address), told = begun[0], done.stderr.splitlines()
    assert address[0] == "127.0.0.1"
    assert told[-1] == f"serving translate (translation) on http://127.0.0.1:{address[1]}; Ctrl-C stops it"
    assert told[-2].startswith("translate: cpu, ")
    limits = server.config.app.user_middleware[0].kwargs["limits"]
    assert limits == Limits(lines=7)
    defaults = {each.name: each.default for each in fields(Limits)}
    rows = re.findall(r"`--(\w+)` \(([\d,]+)\)", PAGE)
    assert {name: int(number.replace(",", "")) for name, number in rows} == defaults | {"body": defaults["body"] >> 10}


def test_request_of_the_page_has_its_answer(loaded):
    asked = json.loads(re.search(r"-d '(.*)'", PAGE)[1])
    with served(loaded) as server:
        status, found = server.post("/translate", asked)
    assert status == 200
    assert [len(each["candidates"]) for each in found["translations"]] == [2, 2]
    assert all(c["alignment"]["links"] for each in found["translations"] for c in each["candidates"])


@pytest.mark.slow
def test_server_under_load_has_no_failures(small_runs):
    # imported, it would put its own threads in the place of Python's
    if find_spec("locust") is None:
        pytest.skip("locust is not installed")
    found = serving.measure(small_runs / "t", clients=8, rounds=1, seconds=5, requests=600)
    every = [*found["one"], *found["many"]]
    assert [each["failures"] for each in every] == [0, 0]
    assert all(each["requests"] > 10 for each in every)
    assert found["memory"][-1][1] < 1.2 * found["memory"][0][1]
    assert found["lines_a_batch"] > 1
