"""Requests of other hosts and sites, late headers and too many connections are refused."""

import resource
import socket
import time

import pytest

from s2s.serving.guard import Hosts
from s2s.serving.listening import allowed_connections
from s2s.serving.messages import Limits
from tests.serving.conftest import served


@pytest.fixture(scope="module")
def server(loaded):
    with served(loaded) as running:
        yield running


def _raw(server, text: str) -> bytes:
    host, port = server.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as place:
        place.sendall(text.replace("\n", "\r\n").encode())
        return place.recv(1000)


BODY = 'Content-Type: application/json\nContent-Length: 13\n\n{"text": "a"}'


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("Host: evil.example:8080", 421),
        ("Host: 127.0.0.1.evil.example", 421),
        ("Host: 10.0.0.5", 421),
        ("Host: [", 421),
        ("Host: LOCALHOST:1", 200),
        ("Host: [::1]:8080", 200),
        ("Host: 127.0.0.1:8080\nOrigin: http://127.0.0.1:8080", 200),
        ("Host: 127.0.0.1:8080\nOrigin: http://127.0.0.1:3000", 403),
        ("Host: 127.0.0.1:8080\nOrigin: https://evil.example", 403),
        ("Host: 127.0.0.1:8080\nOrigin: null", 403),
        ("Host: 127.0.0.1\nTransfer-Encoding: chunked", 400),
    ],
)
def test_server_host_and_origin_are_checked(server, head, status):
    found = _raw(server, f"POST /translate HTTP/1.1\n{head}\n{BODY}")
    assert found.startswith(f"HTTP/1.1 {status}".encode()), found


def test_server_path_with_a_slash_is_not_redirected(server):
    assert _raw(server, f"POST /translate/ HTTP/1.1\nHost: localhost\n{BODY}").startswith(b"HTTP/1.1 404")


def test_server_hosts_can_be_allowed():
    hosts = Hosts("192.0.2.1", ["Models.example"])
    assert hosts.accepts("models.example:443")
    assert hosts.accepts("192.0.2.1:8080")
    assert hosts.accepts_origin("https://models.example", "localhost:8080")
    assert not hosts.accepts("192.0.2.2")
    assert not hosts.accepts("")
    everywhere = Hosts("0.0.0.0")
    assert everywhere.accepts("192.0.2.2:80")
    assert everywhere.accepts("[2001:db8::1]")
    assert not everywhere.accepts("evil.example")


def test_server_headers_must_come_in_time(loaded):
    with served(loaded, Limits(headers=0.3)) as server:
        begun = "GET /health HTTP/1.1\nHost: localhost\n"
        assert _raw(server, begun).startswith(b"HTTP/1.1 408")
        assert _raw(server, "").startswith(b"HTTP/1.1 408")
        # the second request of a connection, too
        host, port = server.address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as place:
            place.sendall(begun.replace("\n", "\r\n").encode() + b"\r\n")
            found = b""
            while b'"status":"ok"' not in found:
                found += place.recv(10_000)
            place.sendall(begun.encode())
            while b"HTTP/1.1 408" not in found:
                part = place.recv(10_000)
                assert part
                found += part
        # a request that is complete has all its seconds
        assert server.post("/translate", {"text": "a"})[0] == 200


def test_server_connections_are_limited(loaded):
    with served(loaded, Limits(connections=3)) as server:
        host, port = server.address.removeprefix("http://").split(":")
        half = [socket.create_connection((host, int(port)), timeout=20) for _ in range(3)]
        try:
            assert _raw(server, "").startswith(b"HTTP/1.1 503")
        finally:
            for place in half:
                place.close()
        deadline = time.monotonic() + 10
        while server.server.server_state.connections:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert server.get("/health")[0] == 200


def test_server_connections_are_fewer_than_the_files_that_may_be_open(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (256, 4096))
    assert allowed_connections(1000) == 96
    assert allowed_connections(50) == 50
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert allowed_connections(1000) == 1000
