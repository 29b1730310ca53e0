"""A server in a thread of the test process."""

import json
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest


class Running:
    """A server that listens: `get` and `post` give a status and what came."""

    def __init__(self, server, address: str, app) -> None:
        self.server, self.address, self.app = server, address, app

    def get(self, path: str):
        return self._ask(urllib.request.Request(self.address + path))

    def post(self, path: str, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._ask(urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}))

    def _ask(self, request):
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, body, kind = answer.status, answer.read().decode(), answer.headers["Content-Type"]
        except urllib.error.HTTPError as error:
            status, body, kind = error.code, error.read().decode(), error.headers["Content-Type"]
        return status, json.loads(body) if kind == "application/json" else body


@contextmanager
def served(runs, limits=None, ended=lambda count: None):
    """Serves runs on a free port until the context ends; then all that was accepted has been answered."""
    from s2s.serving.app import application
    from s2s.serving.listening import bind_socket, server_of
    from s2s.serving.messages import Limits

    place, app = bind_socket("127.0.0.1", 0), application(runs, limits, ended)
    server = server_of(app, limits or Limits())
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    try:
        yield Running(server, f"http://127.0.0.1:{place.getsockname()[1]}", app)
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="session")
def small_runs(small_world) -> Path:
    """Runs `t`, which translates, and `c`, which classifies."""
    return small_world / "runs"


@pytest.fixture(scope="session")
def loaded(small_runs):
    """These runs by their names."""
    import s2s

    # a little more to write than the tests of commands allow
    more = {"decoding.max_ratio": 1, "decoding.beam": 2}
    return {"t": s2s.load(small_runs / "t", overrides=more), "c": s2s.load(small_runs / "c")}
