"""The HTTP server: answers, limits, statuses and shutdown."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from fastapi import Response

from s2s.cli.main import commands
from s2s.errors import UserError
from s2s.serving.batching import Abandoned
from s2s.serving.listening import bind_socket, names_of
from s2s.serving.messages import Limits
from tests.serving.conftest import served

LINES = ["The old dog runs.", "", "A man sees the woman."]
SMALL = Limits(lines=3, characters=40, tokens=24, positions=200, beam=4, body=2000, seconds=20, waiting=50)


@pytest.fixture(scope="module")
def server(loaded):
    with served(loaded, SMALL) as running:
        yield running


def test_server_answers_are_those_of_the_run(server, loaded):
    status, found = server.post("/translate", {"text": LINES, "nbest": 2, "beam": 3})
    assert status == 200
    expected = loaded["t"].candidates(LINES, nbest=2, beam=3)
    shown = [[(c["text"], c["score"]) for c in each["candidates"]] for each in found["translations"]]
    assert shown == [[(c.text, pytest.approx(c.score, abs=1e-4)) for c in each] for each in expected]
    assert [each["text"] for each in found["translations"]] == [each[0].text if each else "" for each in expected]
    assert (
        server.post("/translate", {"text": LINES[0]})[1]["translations"][0]["text"] == loaded["t"].translate(LINES)[0]
    )
    _, classes = server.post("/classify", {"text": LINES})
    assert [each["label"] for each in classes["classes"]] == loaded["c"].classify(LINES)
    assert classes["classes"][0]["probabilities"] == pytest.approx(loaded["c"].probabilities(LINES)[0], abs=1e-6)


def test_server_classify_says_which_texts_were_truncated(loaded):
    limit = loaded["c"].recipe.batches.max_length
    with served(loaded, Limits(characters=10 * limit, tokens=4 * limit, positions=100 * limit)) as server:
        _, found = server.post("/classify", {"text": ["The dog.", "", "dog " * limit]})
    assert [each["truncated"] for each in found["classes"]] == [False, False, True]


def test_server_request_that_names_no_beam_is_searched_with_the_largest_there_may_be(loaded):
    with served(loaded, Limits(beam=1)) as server:
        _, found = server.post("/translate", {"text": LINES[0]})
        shown = [(c["text"], c["score"]) for c in found["translations"][0]["candidates"]]
        (one,) = loaded["t"].candidates(LINES[:1], beam=1)
        assert shown == [(c.text, pytest.approx(c.score, abs=1e-4)) for c in one]
        assert [run["beam"] for run in server.get("/health")[1]["runs"]] == [1, None]
        assert server.post("/translate", {"text": LINES[0], "beam": 2})[0] == 422
    assert loaded["t"].recipe.decoding.beam == 2


def test_server_attention_and_alignments_are_those_of_the_run(server, loaded):
    asked = {"text": LINES[0], "attention": True, "alignment": True, "nbest": 2}
    found = server.post("/translate", asked)[1]["translations"][0]["candidates"]
    for shown, own in zip(found, loaded["t"].candidates(LINES[:1], nbest=2)[0], strict=True):
        maps = loaded["t"].looks(LINES[0], own.hypothesis.tokens)
        assert shown["attention"]["weights"] == pytest.approx(maps.weights[-1].mean(axis=0), abs=1e-4)
        assert [shown["attention"][side] for side in ("source", "target")] == [list(maps.columns), list(maps.rows)]
        source, target, links = loaded["t"].alignment(LINES[0], own.hypothesis.tokens)
        assert shown["alignment"] == {"source": source, "target": target, "links": [list(link) for link in links]}


def test_server_translates_the_sentences_of_a_text_one_by_one(server, loaded):
    texts = ["The dog runs.  A man sees it.", "", " \n"]
    _, found = server.post("/translate", {"text": texts, "split_sentences": True})
    first, *others = found["translations"]
    alone = [best[0].text for best in loaded["t"].candidates(["The dog runs.", "A man sees it."])]
    assert first["text"] == "  ".join(alone)
    assert [each["text"] for each in first["candidates"]] == alone
    assert [each["text"] for each in others] == texts[1:]
    for more, said in (
        ({"nbest": 2}, "nbest: does not apply"),
        ({"text": "", "task": "q"}, "has no tasks to name"),
        ({"text": "Go now. Do it. Say so. Yes."}, "4 sentences; a request"),
    ):
        status, refused = server.post("/translate", {"text": texts, "split_sentences": True} | more)
        assert (status, said in str(refused)) == (422, True)


def test_server_names_words_that_are_not_in_the_training_text(server, loaded):
    texts = [LINES[0], "xylophones zigzag"]
    _, answer = server.post("/translate", {"text": texts})
    unknown = [tuple(each["unknown"]) for each in answer["translations"]]
    assert unknown == loaded["t"].unknown_words(texts)
    assert unknown == [(), ("xylophones", "zigzag")]
    with pytest.warns(UserWarning, match="line 2: not in the training text: 'xylophones', 'zigzag'"):
        loaded["t"].translate(texts)


def test_server_requests_that_come_together_are_computed_together(loaded):
    def batches(server) -> dict[str, float]:
        rows = (row.split(" ") for row in server.get("/metrics")[1].splitlines() if row.startswith("s2s_batch_lines_"))
        return {name: float(value) for name, value in rows if "{" not in name}

    texts = [f"text {n} of many" for n in range(24)]
    with served(loaded) as server, ThreadPoolExecutor(24) as clients:
        found = list(clients.map(lambda text: server.post("/translate", {"text": text}), texts))
        noted = batches(server)
        assert [answer["translations"][0]["text"] for _, answer in found] == [
            each[0].text for each in loaded["t"].candidates(texts)
        ]
        assert noted["s2s_batch_lines_sum"] == 24
        assert noted["s2s_batch_lines_count"] <= 12
        assert 's2s_requests_total{path="/translate",status="200"} 24.0' in server.get("/metrics")[1]


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        ("/translate", {"text": ["a"] * 4}, 422, "4 texts; a request has at most 3"),
        ("/translate", {"text": ["a", "b" * 41]}, 422, "text 2 has 41 characters; at most 40"),
        ("/translate", {"text": []}, 422, "empty list"),
        ("/translate", {"text": "a", "beam": 5}, 422, "at most 4 here"),
        ("/translate", {"text": "a", "nbest": 3}, 422, "nbest: is 3, but the beam holds 2\n  → set beam to 3 or more"),
        ("/translate", {"text": ["a", "a b " * 8]}, 422, "text 2 has 31 tokens; at most 24\n  → split it"),
        ("/translate", {"text": ["a b c d e f g h i"] * 3, "beam": 4}, 422, "× beam 4 are 204 positions; at most 200"),
        ("/classify", {"text": "a b " * 8}, 422, "the text has 31 tokens; at most 24"),
        ("/translate", {"text": "a", "beam": 0}, 422, "beam: expected a whole number at least 1 or `null`"),
        ("/translate", {"text": "a", "bean": 1}, 422, "bean: unknown field; there are text, run, beam"),
        ("/translate", {"text": "a", "task": "en-de"}, 422, "task: a run of translation has no tasks to name"),
        ("/translate", {"text": 5}, 422, "text: expected text or a list of text"),
        ("/translate", {}, 422, "text: is missing; give text or a list of text"),
        ("/translate", b"{", 422, "body: is no JSON"),
        ("/translate", [1], 422, "body: expected a JSON object, sent with Content-Type: application/json"),
        ("/translate", b'{"text": "\\ud800"}', 422, "text: is no text: it has half"),
        ("/translate", b'{"text": "a", "run": "\\udfff"}', 422, "surrogate"),
        ("/translate", b'{"text": "a", "\\udfff": 1}', 422, "body: the name of a field is no text"),
        ("/translate", b"", 422, "body: is empty; send a JSON object"),
        ("/translate", b"[" * 1900, 422, "body: is no JSON in UTF-8, or nested too deeply"),
        ("/translate", b'{"text": "\xff"}', 422, "body: is no JSON in UTF-8, or nested too deeply"),
        ("/translate", {"text": "a", "beam": True}, 422, "beam: expected a whole number at least 1 or `null`"),
        ("/translate", {"text": "a", "beam": "2"}, 422, "beam: expected a whole number at least 1 or `null`"),
        ("/translate", {"text": "a", "alignment": "yes"}, 422, "alignment: expected"),
        ("/translate", b'{"text": "' + b"a" * 2000 + b'"}', 413, "more than 2,000 bytes"),
        ("/translate", {"text": "a", "run": "u"}, 404, "no run 'u' is served"),
        (
            "/translate",
            {"text": "a", "run": "c"},
            422,
            "run 'c': is a run of task classification, which cannot translate\n  → name t",
        ),
        (
            "/classify",
            {"text": "a", "run": "t"},
            422,
            "run 't': is a run of task translation, which cannot classify\n  → name c",
        ),
        ("/classify", {"text": "a", "beam": 2}, 422, "beam: unknown field; there are text, run"),
        ("/nothing", {"text": "a"}, 404, "Not Found"),
    ],
)
def test_server_refuses_invalid_requests(server, path, body, status, told):
    found, answer = server.post(path, body)
    assert found == status, answer
    assert told in answer["detail"]
    assert server.post("/translate", {"text": "a"})[0] == 200


def test_server_body_of_unknown_length_is_limited_too(server):
    host, port = server.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as place:
        head = "POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n"
        head += "Content-Type: application/json\r\n\r\n"
        place.sendall(head.encode() + b"".join(b"400\r\n" + b" " * 0x400 + b"\r\n" for _ in range(3)))
        assert place.recv(100).startswith(b"HTTP/1.1 413")


def _until_waiting(server, number: int) -> None:
    deadline = time.monotonic() + 20
    while f"s2s_waiting_requests {number}.0" not in server.get("/metrics")[1]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Held:
    """A run that says when it is asked, and answers when it may."""

    def __init__(self, run, may, asked):
        self._run, self._may, self._asked = run, may, asked

    def __getattr__(self, name):
        return getattr(self._run, name)

    def candidates(self, *asked):
        self._asked.set()
        assert self._may.wait(20)
        return self._run.candidates(*asked)


def test_server_refuses_on_timeout_and_full_queue(loaded):
    slow, entered = threading.Event(), threading.Event()

    with (
        served({"t": Held(loaded["t"], slow, entered)}, Limits(seconds=2, waiting=1)) as server,
        ThreadPoolExecutor(2) as clients,
    ):
        first = clients.submit(server.post, "/translate", {"text": "a"})
        assert entered.wait(10)
        second = clients.submit(server.post, "/translate", {"text": "b"})
        _until_waiting(server, 1)
        assert server.post("/translate", {"text": "c"})[0] == 429
        for late in (first.result(), second.result()):
            assert late == (408, {"detail": "no answer within 2 seconds; ask for less"})
        host, port = server.address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as place:
            place.sendall(b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{")
            assert place.recv(100).startswith(b"HTTP/1.1 408")
        slow.set()
        assert server.post("/translate", {"text": "a"})[0] == 200


def test_server_seconds_of_a_request_begin_with_its_first_byte(loaded):
    may, entered = threading.Event(), threading.Event()
    with served({"t": Held(loaded["t"], may, entered)}, Limits(seconds=2)) as server:
        host, port = server.address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as place:
            body = b'{"text": "a"}'
            began = time.monotonic()
            place.sendall(b"POST /translate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n")
            place.sendall(f"Content-Length: {len(body)}\r\n\r\n".encode())
            time.sleep(1.5)
            place.sendall(body)
            assert entered.wait(10)
            told = place.recv(1000)
            took = time.monotonic() - began
        assert told.startswith(b"HTTP/1.1 408")
        assert took < 3
        assert 's2s_requests_total{path="/translate",status="408"} 1.0' in server.get("/metrics")[1]
        may.set()


def _computing() -> int:
    return sum(thread.name == "model" for thread in threading.enumerate())


def test_server_stop_answers_what_was_accepted(loaded):
    before = _computing()
    slow, entered, ended = threading.Event(), threading.Event(), []

    with ThreadPoolExecutor(8) as clients:
        with served({"t": Held(loaded["t"], slow, entered)}, ended=ended.append) as server:
            answers = [clients.submit(server.post, "/translate", {"text": "first"})]
            assert entered.wait(10)
            answers += [clients.submit(server.post, "/translate", {"text": f"text {n}"}) for n in range(7)]
            _until_waiting(server, 7)
            server.server.should_exit = True
            threading.Timer(0.3, slow.set).start()
        assert [answer.result()[0] for answer in answers] == [200] * 8
    assert ended == [8]
    assert _computing() == before


def test_client_that_takes_no_answer_does_not_keep_a_server_from_its_end(loaded, monkeypatch, capfd):
    monkeypatch.setattr("s2s.serving.listening._TAKING", 0)
    ended = []
    with served(loaded, Limits(seconds=1), ended.append) as server:
        server.app.add_api_route("/large", lambda: Response(bytes(1 << 26)))
        host, port = server.address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as client:
            # the second answer waits until there is room for it
            client.sendall(b"GET /large HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 2)
            # it has begun to answer
            assert client.recv(1) == b"H"
            server.server.should_exit = True
            deadline = time.monotonic() + 20
            while not ended and time.monotonic() < deadline:
                time.sleep(0.05)
            assert ended == [0]
            taken = 0
            with suppress(ConnectionError):
                while part := client.recv(1 << 20):
                    taken += len(part)
            # it is cut, and not only left
            assert 0 < taken < 1 << 26
        assert server.server.cut == 1
    assert "ERROR" not in capfd.readouterr().err


@pytest.mark.parametrize("host", ["127.0.0..1", "a" * 70, "nowhere.invalid"])
def test_server_host_that_is_none_is_one_message(host):
    with pytest.raises(UserError, match=rf"{host}:0: cannot be had: .*\n.*--host"):
        bind_socket(host, 0)


def test_server_health_and_openapi_say_what_there_is(server):
    status, found = server.get("/health")
    assert (status, found["status"]) == (200, "ok")
    assert [(run["name"], run["answers"]) for run in found["runs"]] == [("t", "/translate"), ("c", "/classify")]
    assert found["limits"]["lines"] == 3
    assert type(found["limits"]["lines"]) is int
    described = server.get("/openapi.json")[1]
    assert set(described["paths"]) == {"/translate", "/classify", "/health", "/metrics"}
    assert {"400", "404", "408", "413", "422", "429"} <= set(described["paths"]["/translate"]["post"]["responses"])
    assert "process_resident_memory_bytes" in server.get("/metrics")[1]
    page = server.get("/")[1]
    assert "http:" not in page
    assert "https:" not in page


def _told(*words) -> str:
    with pytest.raises(UserError) as error:
        CliRunner().invoke(commands, ["serve", *map(str, words)], standalone_mode=False, catch_exceptions=False)
    return str(error.value)


def test_serve_refuses_unusable_runs_before_loading(small_runs, monkeypatch):
    assert "not a run" in _told(small_runs / "x")
    assert "a run is given twice" in _told(small_runs / "t", small_runs / "t")
    assert "'decoding.beam=2' overrides a run, but there is none" in _told("decoding.beam=2")
    assert "decoding.beem: unknown key" in _told(small_runs / "t", "decoding.beem=2")
    with bind_socket("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port}: cannot be had" in _told(small_runs / "t", "--port", port)
    monkeypatch.setattr("s2s.cli.serve.find_spec", lambda name: None if name == "fastapi" else True)
    remedy = "  → in the repository: pip install -c constraints.txt -e '.[serve]'"
    assert _told(small_runs / "t").splitlines() == ["the server needs fastapi", remedy]


def test_run_that_lies_in_a_cache_is_served_by_the_name_that_it_was_asked_for(small_runs, tmp_path, monkeypatch):
    (tmp_path / "opus").mkdir()
    monkeypatch.setattr("s2s.run.folder.resolve_run_path", lambda path: small_runs / "t")
    given = []
    monkeypatch.setattr("s2s.serving.listening.serve", lambda runs, place, *_: given.append((runs, place.close())))
    words = ["serve", str(tmp_path / "opus"), "decoding.beam=3", "--port", "0"]
    CliRunner().invoke(commands, words, catch_exceptions=False)
    assert {name: run.path for name, run in given[0][0].items()} == {"opus": small_runs / "t"}
    assert given[0][0]["opus"].recipe.decoding.beam == 3


def test_server_request_that_fails_by_our_fault_is_counted(loaded):
    class Broken(Held):
        def candidates(self, *asked):
            raise ZeroDivisionError

    with served({"t": Broken(loaded["t"], None, None)}) as server:
        assert server.post("/translate", {"text": "a"})[0] == 500
        assert 's2s_requests_total{path="/translate",status="500"} 1.0' in server.get("/metrics")[1]


def test_runs_of_one_name_are_distinguished_by_path():
    assert names_of([Path("a/x"), Path("b/y")]) == ["x", "y"]
    assert names_of([Path("a/x"), Path("b/x"), Path("c/y")]) == ["a/x", "b/x", "y"]


def test_server_schema_of_a_request_is_closed(server):
    source = json.dumps(server.get("/openapi.json")[1]["components"]["schemas"]["Source"])
    assert '"additionalProperties": false' in source


class Endless(Held):
    """A run that computes until its `before_step` ends it."""

    def __init__(self, run):
        super().__init__(run, None, threading.Event())
        self.abandoned = threading.Event()

    def candidates(self, lines, nbest, beam, task, before_step):
        self._asked.set()
        deadline = time.monotonic() + 20
        try:
            while time.monotonic() < deadline:
                before_step()
                time.sleep(0.005)
        except Abandoned:
            self.abandoned.set()
            raise
        raise AssertionError("nobody ended it")


def test_server_late_answer_is_not_computed_to_its_end(loaded):
    run = Endless(loaded["t"])
    with served({"t": run}, Limits(seconds=0.5)) as server:
        assert server.post("/translate", {"text": "a"})[0] == 408
        assert run.abandoned.wait(5)


def test_server_answer_for_a_client_that_has_gone_is_not_computed_to_its_end(loaded):
    run = Endless(loaded["t"])
    with served({"t": run}, Limits(seconds=15)) as server:
        host, port = server.address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as place:
            head = "POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            place.sendall(head.encode() + b'Content-Length: 13\r\n\r\n{"text": "a"}')
            assert run._asked.wait(10)
        assert run.abandoned.wait(5)
        # seen once the handler has ended
        deadline = time.monotonic() + 5
        while 'status="499"} 1.0' not in server.get("/metrics")[1]:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_server_refuses_bad_requests_while_computing(loaded):
    may, entered = threading.Event(), threading.Event()
    with (
        served({"t": Held(loaded["t"], may, entered), "c": loaded["c"]}, Limits(seconds=15, tokens=12)) as server,
        ThreadPoolExecutor(1) as clients,
    ):
        first = clients.submit(server.post, "/translate", {"text": "a"})
        assert entered.wait(10)
        refused = [{"nbest": 6}, {"task": "x"}, {"run": "c"}, {"text": "a b " * 8}]
        assert [server.post("/translate", {"text": "a"} | more)[0] for more in refused] == [422] * 4
        assert not first.done()
        may.set()
        assert first.result()[0] == 200
