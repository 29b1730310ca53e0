"""Middleware: host check, limits on size and time of requests, and metrics."""

import asyncio
import ipaddress
import time
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from fastapi import HTTPException
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from s2s.serving.messages import Limits

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_LINES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Prometheus metrics; each server has its own registry."""

    def __init__(self, waiting: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = Counter("s2s_requests", "Requests answered.", ["path", "status"], registry=self.registry)
        self.seconds = Histogram(
            "s2s_request_seconds", "From a request to its answer.", ["path"], buckets=_SECONDS, registry=self.registry
        )
        self.batches = Histogram("s2s_batch_lines", "Lines of a batch.", buckets=_LINES, registry=self.registry)
        gauge = Gauge("s2s_waiting_requests", "Requests that wait for the model.", registry=self.registry)
        gauge.set_function(waiting)


class Hosts:
    """Check of the headers `Host` and `Origin` against accepted names.

    A page of another site can send requests to a server on this machine and, with a domain that resolves to 127.0.0.1
    (DNS rebinding), read the answers. Such requests carry the site's name.

    Args:
        bound: Host that the server listens on. If it is all interfaces, any IP address is accepted.
        allowed: Additional names, such as that of a proxy in front of the server.

    Example:
        >>> hosts = Hosts()
        >>> hosts.accepts("localhost:8080"), hosts.accepts("example.org")
        (True, False)
    """

    def __init__(self, bound: str = "127.0.0.1", allowed: Sequence[str] = ()) -> None:
        self.allowed = {name.lower() for name in allowed}
        self._names = {"localhost", "127.0.0.1", "::1", bound.lower()} | self.allowed
        address = _address(bound)
        self._any_address = address is not None and address.is_unspecified

    def accepts(self, host: str) -> bool:
        """Return True if a `Host` header is accepted, with or without a port."""
        name = _name(f"//{host}")
        return name in self._names or (self._any_address and _address(name) is not None)

    def accepts_origin(self, origin: str, host: str) -> bool:
        """Return True if an `Origin` header is this server's page or an allowed name."""
        scheme, _, place = origin.lower().partition("://")
        return scheme in ("http", "https") and (place == host.lower() or _name(f"//{place}") in self.allowed)


def _name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


class Guard:
    """ASGI middleware that refuses large, slow and cross-site requests.

    It also counts answers.
    """

    def __init__(self, app: ASGIApp, limits: Limits, hosts: Hosts, metrics: Metrics, paths: tuple[str, ...]) -> None:
        self.app, self.limits, self.hosts, self.metrics, self.paths = app, limits, hosts, metrics, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or the server's lifespan events."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.monotonic()
        path = scope["path"] if scope["path"] in self.paths else "other"

        async def counted(message: Message) -> None:
            """Record status and latency when the answer starts."""
            if message["type"] == "http.response.start":
                self.metrics.requests.labels(path, message["status"]).inc()
                self.metrics.seconds.labels(path).observe(time.monotonic() - began)
            await send(message)

        try:
            await self._limited(scope, receive, counted)
        except Exception:
            # An outer middleware answers with status 500.
            self.metrics.requests.labels(path, 500).inc()
            self.metrics.seconds.labels(path).observe(time.monotonic() - began)
            raise

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        if refused := self._refused(scope):
            await refused(scope, receive, send)
            return
        read, whole, in_time = 0, False, asyncio.timeout(self.limits.seconds)

        async def measured() -> Message:
            """Receive a part of the body, and check the total size."""
            nonlocal read, whole
            message = await receive()
            whole = not message.get("more_body", False)
            read += len(message.get("body", b""))
            if read > self.limits.body:
                raise HTTPException(413, self._too_large())
            return message

        async def untimed(message: Message) -> None:
            """Stop the time limit when the answer starts: its transfer depends on the client."""
            if message["type"] == "http.response.start":
                in_time.reschedule(None)
            await send(message)

        try:
            async with in_time:
                await self.app(scope, measured, untimed)
        except TimeoutError:
            if not in_time.expired():
                raise
            within = f"within {self.limits.seconds:g} seconds"
            detail = f"no answer {within}; ask for less" if whole else f"the request did not come {within}"
            await JSONResponse({"detail": detail}, 408)(scope, receive, send)

    def _refused(self, scope: Scope) -> JSONResponse | None:
        """Check the headers, and return the refusal of a foreign or large request, if any."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host, origin, length = (headers.get(name, "") for name in (b"host", b"origin", b"content-length"))
        # HTTP/1.0 requests have no host.
        if host and not self.hosts.accepts(host):
            detail = f"this server is not {host[:80]!r}; `s2s serve --allow-host NAME` allows a name"
            return JSONResponse({"detail": detail}, 421)
        if origin and scope["method"] == "POST" and not self.hosts.accepts_origin(origin, host):
            detail = f"pages of {origin[:80]!r} may not ask this server; `s2s serve --allow-host NAME` allows a name"
            return JSONResponse({"detail": detail}, 403)
        if length and b"transfer-encoding" in headers:
            detail = "the request has both Content-Length and Transfer-Encoding; send one of them"
            return JSONResponse({"detail": detail}, 400, {"Connection": "close"})
        if length.isdigit() and int(length) > self.limits.body:
            return JSONResponse({"detail": self._too_large()}, 413)
        return None

    def _too_large(self) -> str:
        return f"the request has more than {self.limits.body:,} bytes"
