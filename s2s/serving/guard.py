"""What every request passes: its size and its time are limited, and it is counted."""

import asyncio
import time
from collections.abc import Callable

from fastapi import HTTPException
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from s2s.serving.messages import Limits

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_LINES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """What Prometheus may ask for; each server has a registry of its own."""

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


class Guard:
    """Refuses what is too large or comes too slowly, and counts what is answered.

    Args:
        app: what answers.
        limits: `body` and `seconds` are held here.
        metrics: are told.
        paths: those that are counted by their names; all others count as one.
    """

    def __init__(self, app: ASGIApp, limits: Limits, metrics: Metrics, paths: tuple[str, ...]) -> None:
        self.app, self.limits, self.metrics, self.paths = app, limits, metrics, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the server's beginning and end."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.monotonic()
        path = scope["path"] if scope["path"] in self.paths else "other"

        async def counted(message: Message) -> None:
            """The answer, noted when it begins."""
            if message["type"] == "http.response.start":
                self.metrics.requests.labels(path, message["status"]).inc()
                self.metrics.seconds.labels(path).observe(time.monotonic() - began)
            await send(message)

        try:
            await self._limited(scope, receive, counted)
        except Exception:
            # what answers it stands around this
            self.metrics.requests.labels(path, 500).inc()
            self.metrics.seconds.labels(path).observe(time.monotonic() - began)
            raise

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, within its bytes and its seconds."""
        if self._announced(scope) > self.limits.body:
            await JSONResponse({"detail": self._too_large()}, 413)(scope, receive, send)
            return
        read, whole, in_time = 0, False, asyncio.timeout(self.limits.seconds)

        async def measured() -> Message:
            """The next part of the body."""
            nonlocal read, whole
            message = await receive()
            whole = not message.get("more_body", False)
            read += len(message.get("body", b""))
            if read > self.limits.body:
                raise HTTPException(413, self._too_large())
            return message

        async def begun(message: Message) -> None:
            """The answer; how fast it is taken is the client's."""
            if message["type"] == "http.response.start":
                in_time.reschedule(None)
            await send(message)

        try:
            async with in_time:
                await self.app(scope, measured, begun)
        except TimeoutError:
            if not in_time.expired():
                raise
            await JSONResponse({"detail": self._too_late(whole)}, 408)(scope, receive, send)

    def _announced(self, scope: Scope) -> int:
        length = dict(scope["headers"]).get(b"content-length", b"0")
        return int(length) if length.isdigit() else 0

    def _too_late(self, whole: bool) -> str:
        within = f"within {self.limits.seconds:g} seconds"
        return f"no answer {within}; ask for less" if whole else f"the request did not come {within}"

    def _too_large(self) -> str:
        return f"the request has more than {self.limits.body:,} bytes"
