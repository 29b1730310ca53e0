"""FastAPI application: routes, and the status codes of refused requests."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from importlib.resources import files
from itertools import islice
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic.fields import FieldInfo

from s2s import __version__
from s2s.errors import UserError, format_message
from s2s.recipe.wording import expected
from s2s.run.trained_run import Run
from s2s.serving.answering import GenerationRequest, RequestHandler, RunNotFound, join_sentences
from s2s.serving.batching import ModelThread, QueueFull
from s2s.serving.guard import Guard, Hosts, Metrics
from s2s.serving.messages import Classes, Health, Labelled, Limits, Source, Translations

_PATHS = ("/", "/translate", "/classify", "/health", "/metrics", "/openapi.json")
# The page has inline script and style, and connects only to this server.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:"
_REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The length of the body is ambiguous."},
    403: {"description": "A page of another site asks."},
    404: {"description": "No such run."},
    408: {"description": "It took too long."},
    413: {"description": "The body is too large."},
    421: {"description": "The `Host` header names another server."},
    422: {"description": "The body is no JSON in UTF-8, is nested too deeply, or does not fit its fields or a limit."},
    429: {"description": "Too many requests wait; ask again."},
}


class Service:
    """Request handlers of the server, with the runs (by name), the model thread and the metrics.

    `ended` is called after the last answer with the number of answered requests.
    """

    def __init__(self, runs: Mapping[str, Run], limits: Limits, ended: Callable[[int], object]) -> None:
        self.limits, self._ended = limits, ended
        self.answering = RequestHandler(runs, limits)
        self.metrics = Metrics(lambda: len(self.thread))
        self.thread = ModelThread(
            self.answering, limits.lines, limits.positions, limits.waiting, self.metrics.batches.observe
        )
        self._answered = 0

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Stop the model thread at shutdown, after the last answer."""
        yield
        await asyncio.to_thread(self.thread.stop)
        self._ended(self._answered)

    async def translate(self, asked: Source, request: Request) -> Translations:
        """Translate one text or several; empty texts stay empty."""
        lines, name = self._lines(asked.text), self._named(asked.run, classes=False)
        if max(asked.beam or 1, asked.nbest) > self.limits.beam:
            raise HTTPException(422, f"beam and nbest are at most {self.limits.beam} here")
        wanted = GenerationRequest(name, asked.beam, asked.nbest, asked.task, asked.alignment, asked.attention)
        if not asked.split_sentences:
            return Translations(run=name, translations=await self._computed(wanted, lines, request))
        try:
            parts = self.answering.split(wanted, lines)
        except UserError as error:
            raise HTTPException(422, str(error)) from None
        sentences = [sentence for part in parts for sentence in part.sentences]
        # a text without sentences is asked for, too, so that the request's fields are checked
        found = iter(await self._computed(wanted, sentences or lines[:1], request))
        translations = [join_sentences(part, list(islice(found, len(part.sentences)))) for part in parts]
        return Translations(run=name, translations=translations)

    async def classify(self, asked: Labelled, request: Request) -> Classes:
        """Classify one text or several; empty texts have an empty class."""
        lines, name = self._lines(asked.text), self._named(asked.run, classes=True)
        return Classes(run=name, classes=await self._computed(name, lines, request))

    async def health(self) -> Health:
        """Return status, served runs and limits; 503 if the model thread has ended."""
        if not self.thread.alive:
            raise HTTPException(503, "the model thread has ended")
        return Health(status="ok", version=__version__, runs=self.answering.served(), limits=asdict(self.limits))

    async def numbers(self) -> Response:
        """Return the metrics for Prometheus."""
        return Response(generate_latest(self.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def page(self) -> HTMLResponse:
        """Return the HTML page for trying the served runs."""
        text = files("s2s.serving").joinpath("page.html").read_text(encoding="utf-8")
        return HTMLResponse(text, headers={"Content-Security-Policy": _POLICY})

    def _lines(self, text: str | list[str]) -> list[str]:
        lines, limits = [text] if isinstance(text, str) else text, self.limits
        if not lines:
            raise HTTPException(422, "text is an empty list; give one text or several")
        if len(lines) > limits.lines:
            raise HTTPException(422, f"{len(lines):,} texts; a request has at most {limits.lines:,}")
        for number, line in enumerate(lines, start=1):
            if len(line) > limits.characters:
                which = f"text {number}" if len(lines) > 1 else "the text"
                what = f"{which} has {len(line):,} characters; at most {limits.characters:,} are read"
                raise HTTPException(422, what)
        return lines

    def _named(self, name: str | None, classes: bool) -> str:
        try:
            return self.answering.named(name, classes)
        except RunNotFound as error:
            raise HTTPException(404, str(error)) from None

    async def _computed(self, asked: GenerationRequest | str, lines: list[str], request: Request) -> list[Any]:
        """Compute answers in the model thread, and cancel them if the client disconnects."""
        try:
            # In a thread, because tokenizing a long text would block other requests.
            width = await asyncio.to_thread(self.answering.check, asked, lines)
            job = asyncio.wrap_future(self.thread.submit(asked, lines, width))
        except QueueFull:
            headers = {"Retry-After": "1"}
            raise HTTPException(429, "too many requests wait for the model; ask again", headers) from None
        except UserError as error:
            raise HTTPException(422, str(error)) from None
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait((job, gone), return_when=asyncio.FIRST_COMPLETED)
            if not job.done():
                raise HTTPException(499, "the client has gone")
            found = job.result()
        except UserError as error:
            raise HTTPException(422, str(error)) from None
        finally:
            # Also after a timeout: answers without a client are not computed further.
            job.cancel()
            gone.cancel()
        self._answered += 1
        return found


def application(
    runs: Mapping[str, Run],
    limits: Limits | None = None,
    ended: Callable[[int], object] = lambda count: None,
    hosts: Hosts | None = None,
) -> FastAPI:
    """Create the ASGI application; `ended` as in `Service`, and by default only this machine is a host."""
    limits, hosts = limits or Limits(), hosts or Hosts()
    service = Service(runs, limits, ended)
    # FastAPI's documentation pages would load scripts from other servers.
    app = FastAPI(
        title="s2s",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=service.lifespan,
    )
    app.add_api_route("/translate", service.translate, methods=["POST"], responses=_REFUSALS)
    app.add_api_route("/classify", service.classify, methods=["POST"], responses=_REFUSALS)
    app.add_api_route("/health", service.health)
    app.add_api_route("/metrics", service.numbers, response_class=Response)
    app.add_api_route("/", service.page, include_in_schema=False, response_class=HTMLResponse)
    app.add_exception_handler(RequestValidationError, _refused)
    app.add_exception_handler(400, _unreadable)
    app.add_middleware(Guard, limits=limits, hosts=hosts, metrics=service.metrics, paths=_PATHS)
    return app


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _unreadable(request: Request, error: Exception) -> JSONResponse:
    """Answer a body that cannot be decoded, or is nested too deeply, as one that is no JSON."""
    return JSONResponse({"detail": "body: is no JSON in UTF-8, or nested too deeply"}, 422)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    """Describe invalid fields, without returning the sent values."""
    wrongs = error.errors() if isinstance(error, RequestValidationError) else []
    asked = {"/translate": Source, "/classify": Labelled}.get(getattr(request.scope.get("route"), "path", ""))
    fields = asked.model_fields if asked else {}
    # A union type has one error per alternative.
    words = dict.fromkeys(_mistake(each["loc"], each["type"], each["msg"], fields) for each in wrongs)
    return JSONResponse({"detail": format_message("; ".join(words))}, 422)


def _mistake(place: Sequence[int | str], kind: str, message: str, fields: Mapping[str, FieldInfo]) -> str:
    _, *inside = place
    name = str(inside[0]) if inside else ""
    if kind == "json_invalid":
        return "body: is no JSON"
    if name not in fields:
        if name:
            return f"{name}: unknown field; there are {', '.join(fields)}"
        if kind == "missing":
            return "body: is empty; send a JSON object"
        if kind == "string_unicode":
            return "body: the name of a field is no text: it has half of a surrogate pair"
        of_kind = kind in ("model_attributes_type", "model_type", "dict_type")
        return f"body: {'expected a JSON object, sent with Content-Type: application/json' if of_kind else message}"
    if kind == "missing":
        return f"{name}: is missing; give {expected(fields[name])}"
    # Messages of our own validators are used as they are.
    own = message.removeprefix("Value error, ") if kind == "value_error" else f"expected {expected(fields[name])}"
    return f"{name}: {own}"
