"""The server stopped or killed under load answers or fails each request."""

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from s2s.serving.listening import bind_socket


def _begun(run, port: int):
    words = ["serve", str(run), "--port", str(port)]
    server = subprocess.Popen([sys.executable, "-m", "s2s", *words], stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        if line.startswith("serving"):
            return server
    raise AssertionError("it did not begin")


@pytest.mark.slow
@pytest.mark.parametrize("wish", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_server_stop_and_a_new_begin_lose_nothing_silently(small_runs, wish):
    with bind_socket("127.0.0.1", 0) as place:
        port = place.getsockname()[1]
    asked, answered, failed, over = [], [], [], threading.Event()
    kind = {"Content-Type": "application/json"}

    def ask(client: int) -> None:
        """One request after the other; an answer is whole and right, or an error is seen."""
        number = 0
        while not over.is_set():
            number += 1
            asked.append((client, number))
            place = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            try:
                place.request("POST", "/translate", json.dumps({"text": f"{client} {number}"}), kind)
                found = place.getresponse()
                answered.append((found.status, len(json.loads(found.read()).get("translations", ()))))
            except (OSError, http.client.HTTPException) as error:
                failed.append(error)
                over.wait(0.05)
            finally:
                place.close()

    clients = [threading.Thread(target=ask, args=(n,)) for n in range(6)]
    told, counts = [], []
    server = _begun(small_runs / "t", port)
    for client in clients:
        client.start()
    for last in (False, True):
        while len(answered) < 150 * (1 + last):
            assert server.poll() is None
            time.sleep(0.02)
        if last:
            over.set()
            for client in clients:
                client.join()
        server.send_signal(wish)
        _, rest = server.communicate(timeout=60)
        told.append(rest)
        counts.append(len(answered))
        if not last:
            server = _begun(small_runs / "t", port)
    assert set(answered) == {(200, 1)}
    assert len(answered) + len(failed) == len(asked)
    if wish != signal.SIGKILL:
        # what the servers say that they answered is what clients have: nothing was answered to nobody, or half
        said = [int(re.search(r"stopped: ([\d,]+) requests", text)[1].replace(",", "")) for text in told]
        assert sum(said) == len(answered)
        assert said[0] == counts[0]
    # between the two servers nobody could be reached, and every client saw it
    assert failed


_BUSY = """
import time
from contextlib import asynccontextmanager
from fastapi import FastAPI
from s2s.serving.batching import ModelThread
from s2s.serving.listening import bind_socket, server_of
from s2s.serving.messages import Limits
import asyncio, sys

def compute(asked, lines, before_step):
    print("computing", flush=True)
    time.sleep(60)

thread = ModelThread(compute, 1, 1, 1)

@asynccontextmanager
async def lifespan(app):
    thread.submit("a", ["a"], 1)
    yield
    print("stopping", flush=True)
    await asyncio.to_thread(thread.stop)

server_of(FastAPI(lifespan=lifespan), Limits()).run(sockets=[bind_socket("127.0.0.1", 0)])
"""


@pytest.mark.slow
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_ends_a_busy_server_at_once(second):
    server = subprocess.Popen([sys.executable, "-c", _BUSY], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stdout.readline() == "computing\n"
        # until its handlers are there, a signal ends it anyway
        time.sleep(1)
        server.send_signal(signal.SIGTERM)
        assert server.stdout.readline() == "stopping\n"
        server.send_signal(second)
        _, told = server.communicate(timeout=20)
    finally:
        server.kill()
    assert server.returncode == 128 + second
    assert told == "stopped at once: requests that were not answered are lost\n"
