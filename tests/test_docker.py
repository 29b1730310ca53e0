"""The Dockerfile: its image, where Docker runs, and elsewhere its steps, serve a run (docs/serving.md)."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from s2s.cli.main import commands

ROOT = Path(__file__).parents[1]
SENTENCE = "The small dog sees a cat."


def _instructions() -> list[tuple[str, str]]:
    lines = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines.splitlines() if line)]


def _one(word: str) -> str:
    (rest,) = (rest for each, rest in _instructions() if each == word)
    return rest


def _run(*command: object, cwd: Path = ROOT, **environment: str) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def _context(folder: Path) -> Path:
    """The files that `docker build` gets: those that .dockerignore does not ignore."""
    everything, *patterns = [
        line for line in (ROOT / ".dockerignore").read_text().split("\n") if line[:1] not in ("", "#")
    ]
    assert everything == "*"
    folder.mkdir()
    for pattern in patterns:
        source = ROOT / pattern.removeprefix("!")
        if source.is_dir():
            shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif pattern.startswith("!"):
            shutil.copy(source, folder)
    return folder


def _translation(port: str) -> str:
    body = json.dumps({"text": SENTENCE}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/translate", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["translations"][0]["candidates"][0]["text"]


def _wait(healthy) -> None:
    deadline = time.monotonic() + 120
    while not healthy():
        assert time.monotonic() < deadline
        time.sleep(0.5)


def _expected(run: Path) -> str:
    return (
        CliRunner()
        .invoke(commands, ["translate", str(run), SENTENCE], catch_exceptions=False)
        .stdout.removesuffix("\n")
    )


def test_dockerfile_steps_install_serve_and_check():
    words = [word for word, _ in _instructions()]
    assert words.index("COPY") < words.index("RUN") < words.index("USER") < words.index("ENTRYPOINT")
    assert [rest.split()[0] for word, rest in _instructions() if word == "RUN"] == ["pip", "useradd"]
    assert _one("USER") == "s2s"
    assert json.loads(_one("CMD"))[0].startswith(f"{_one('VOLUME')}/")
    port = _one("EXPOSE")
    assert json.loads(_one("ENTRYPOINT"))[-2:] == ["--port", port]
    assert f":{port}/health" in _one("HEALTHCHECK")


@pytest.mark.release
def test_dockerfile_steps_without_docker_serve_a_run(small_world, tmp_path):
    run, context = small_world / "runs" / "t", _context(tmp_path / "context")
    _run(sys.executable, "-m", "venv", tmp_path / "new")
    install = next(rest for word, rest in _instructions() if word == "RUN")
    path = f"{tmp_path / 'new/bin'}:/usr/bin:/bin"
    # an index that cannot be reached is left out at once
    _run("bash", "-ec", install, cwd=context, PATH=path, PIP_RETRIES="0")
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        port = str(place.getsockname()[1])
    serve = [word.replace(_one("EXPOSE"), port) for word in json.loads(_one("ENTRYPOINT"))]
    check = json.loads(_one("HEALTHCHECK").partition("CMD ")[2].replace(_one("EXPOSE"), port))
    before = sorted((path, path.stat().st_mtime_ns) for path in run.rglob("*"))
    environment = {"PATH": path, "HOME": str(tmp_path)}
    with subprocess.Popen([tmp_path / "new/bin" / serve[0], *serve[1:], run], env=environment, cwd=tmp_path) as server:
        try:
            _wait(lambda: not subprocess.run(check, env=environment, capture_output=True, check=False).returncode)
            assert _translation(port) == _expected(run)
        finally:
            server.send_signal(signal.SIGTERM)
    # after its last answer, uvicorn raises the signal again
    assert server.returncode == -signal.SIGTERM
    assert sorted((path, path.stat().st_mtime_ns) for path in run.rglob("*")) == before


@pytest.mark.release
def test_docker_image_serves_a_run(small_world):
    if not shutil.which("docker") or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        pytest.skip("no Docker daemon runs here")
    run = small_world / "runs" / "t"
    image = _run("docker", "build", "-q", ".").strip()
    container = _run(
        "docker", "run", "-d", "-p", f"127.0.0.1::{_one('EXPOSE')}", "-v", f"{run}:/runs/translate:ro", image
    )
    container = container.strip()
    try:
        check = ["docker", "exec", container, *json.loads(_one("HEALTHCHECK").partition("CMD ")[2])]
        _wait(lambda: not subprocess.run(check, capture_output=True, check=False).returncode)
        assert _run("docker", "exec", container, "id", "-u").strip() != "0"
        port = _run("docker", "port", container, _one("EXPOSE")).strip().rpartition(":")[2]
        assert _translation(port) == _expected(run)
        _run("docker", "stop", container)
        # 137: killed, because it did not stop in time
        assert _run("docker", "inspect", "--format", "{{.State.ExitCode}}", container).strip() in ("0", "143")
    finally:
        _run("docker", "rm", "-f", container)
