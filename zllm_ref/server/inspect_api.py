"""The inspector's page and its JSON, as paths: who may ask, what is asked, and the stream of news.

The answers are made in `zllm_ref.inspector`; here are only addresses, keys and HTTP. Contract: docs/inspector.md.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import json
import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from zllm_ref.canonical.error import ApiError
from zllm_ref.inspector import Recorder
from zllm_ref.inspector.problem import InspectProblem, invalid, not_found
from zllm_ref.protocols.body import read_body
from zllm_ref.protocols.sse import dump
from zllm_ref.server.auth import authenticate
from zllm_ref.server.http_io import ClientGone, read_request
from zllm_ref.server.state import ServerState

if TYPE_CHECKING:
    from zllm_ref.inspector.inspector import Caller, Inspector

_logger = logging.getLogger(__name__)
_MOST_STREAMS = 16
_MOST_BODY_BYTES = 2 << 20
_NEWS_SECONDS = 0.2
_GAUGE_TICKS = 5
_KEEP_ALIVE_TICKS = 50
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
    ".png": "image/png",
}
_PAGE_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}

_PASSED_ON = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
"""Headers that a proxy adds. The HTTP library may believe them and change the client's address."""

Answer = Callable[["Asked"], dict[str, Any]]


@dataclass(frozen=True)
class Inspect:
    """What `create_app` needs for an inspector: the recorder that the engine tells too, and who answers."""

    recorder: Recorder
    inspector: Inspector


@dataclass(frozen=True)
class Asked:
    """One question: who asks, about what, and with which body."""

    inspector: Inspector
    caller: Caller
    path: dict[str, str]
    query: dict[str, str]
    body: bytes

    def number(self, name: str, default: int | None = None) -> int | None:
        """Raises InspectProblem."""
        text = self.query.get(name)
        if text is None:
            return default
        if not text.isdecimal() or len(text) > 15:
            raise invalid(f"{name}: got {text[:40]!r}, allowed a whole number")
        return int(text)

    def price(self, name: str) -> float | None:
        text = self.query.get(name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value < 1e9:
            raise invalid(f"{name}: got {text[:40]!r}, allowed money for a million tokens")
        return value

    @property
    def page(self) -> tuple[int, int | None]:
        return self.number("start", 0) or 0, self.number("end")


def _request(ask: Asked) -> str:
    return ask.path["request_id"]


_ANSWERS: dict[tuple[str, str], Answer] = {
    ("GET", "requests"): lambda ask: ask.inspector.requests(ask.caller, ask.number("after", 0) or 0),
    ("GET", "requests/{request_id}"): lambda ask: ask.inspector.request(ask.caller, _request(ask)),
    ("GET", "requests/{request_id}/wire"): lambda ask: ask.inspector.wire(ask.caller, _request(ask), *ask.page),
    ("GET", "requests/{request_id}/conversation"): lambda ask: ask.inspector.conversation(ask.caller, _request(ask)),
    ("GET", "requests/{request_id}/segments"): lambda ask: ask.inspector.segments(ask.caller, _request(ask)),
    ("GET", "requests/{request_id}/tokens"): lambda ask: ask.inspector.tokens(ask.caller, _request(ask), *ask.page),
    ("GET", "requests/{request_id}/context"): lambda ask: ask.inspector.context(ask.caller, _request(ask)),
    ("GET", "requests/{request_id}/prefix"): lambda ask: ask.inspector.prefix(
        ask.caller, _request(ask), ask.price("price_input"), ask.price("price_cached")
    ),
    ("GET", "requests/{request_id}/decode"): lambda ask: ask.inspector.decode(ask.caller, _request(ask), *ask.page),
    ("GET", "cache"): lambda ask: ask.inspector.cache(ask.caller),
    ("GET", "cache/gauge"): lambda ask: ask.inspector.gauge(ask.caller),
    ("GET", "kv"): lambda ask: ask.inspector.kv(ask.number("tokens", 32_768) or 0),
    ("GET", "families"): lambda ask: ask.inspector.playground.families(),
    ("POST", "render"): lambda ask: ask.inspector.playground.render(read_body(ask.body), ask.caller.namespace),
    ("POST", "merges"): lambda ask: ask.inspector.playground.merges(read_body(ask.body)),
}


class InspectRoutes:
    """Everything under `/inspect`."""

    def __init__(self, state: ServerState, inspector: Inspector) -> None:
        self._state = state
        self._inspector = inspector
        self._num_streams = 0

    def routes(self) -> list[Route]:
        found = [
            Route(f"/inspect/api/{path}", self._answering(answer), methods=[method])
            for (method, path), answer in _ANSWERS.items()
        ]
        return [
            Route("/inspect/api/about", self._about, methods=["GET"]),
            Route("/inspect/api/events", self._events, methods=["GET"]),
            *found,
            Route("/inspect/static/{name}", self._static, methods=["GET"]),
            Route("/inspect", self._page, methods=["GET"]),
            Route("/inspect/", self._page, methods=["GET"]),
            Route("/inspect/{rest:path}", self._nothing, methods=["GET", "POST"]),
        ]

    # ---- who may ask ------------------------------------------------------------------------------------------------

    def _check_place(self, request: Request) -> None:
        """Loopback by address and by name: a page of another host cannot reach in by renaming itself to 127.0.0.1.

        Nor can a client of a proxy that runs here: whose request it passes on is nobody of this machine, whatever it says.
        """
        if self._state.settings.inspect_remote:
            return
        client = request.client.host if request.client is not None else ""
        host = _name_of(request.headers.get("host", ""))
        is_passed_on = any(name in request.headers for name in _PASSED_ON)
        if is_passed_on or not (_is_loopback(client) and (host == "localhost" or _is_loopback(host))):
            raise InspectProblem(403, "not_loopback", "the inspector answers this machine only; --inspect-remote opens it")

    def _caller(self, request: Request) -> Caller:
        from zllm_ref.inspector.inspector import Caller

        self._check_place(request)
        try:
            found = authenticate(request.scope, self._state.settings)
        except ApiError as error:
            raise InspectProblem(401, "unauthenticated", error.message) from error
        settings = self._state.settings
        return Caller(found.owner, found.namespace, is_alone=not (settings.cache_sharing and settings.api_keys))

    # ---- answers ----------------------------------------------------------------------------------------------------

    def _answering(self, answer: Answer) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            return await self._respond(request, answer)

        return endpoint

    async def _respond(self, request: Request, answer: Answer) -> Response:
        try:
            caller = self._caller(request)
            body = b""
            if request.method == "POST":
                if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
                    raise InspectProblem(415, "unsupported_media_type", "content-type: allowed application/json")
                body = await read_request(request.scope, request.receive, _MOST_BODY_BYTES)
            ask = Asked(self._inspector, caller, dict(request.path_params), dict(request.query_params), body)
            return await self._state.in_thread(lambda: _json(answer(ask)))
        except InspectProblem as problem:
            return _problem(problem)
        except ApiError as error:
            too_large = error.kind.value == "body_too_large"
            loading = error.retry_after_seconds is not None
            status, code = (413, "too_large") if too_large else (503, "not_ready") if loading else (400, "invalid")
            return _problem(InspectProblem(status, code, error.message))
        except ClientGone:
            return Response(status_code=400)

    async def _about(self, request: Request) -> Response:
        """Says without a key that one is needed."""
        try:
            self._check_place(request)
        except InspectProblem as problem:
            return _problem(problem)
        try:
            caller = self._caller(request)
        except InspectProblem as problem:
            shown = any(name in request.headers for name in ("authorization", "x-api-key"))
            return _problem(problem) if shown else _json(self._inspector.about(None))
        return _json(self._inspector.about(caller))

    async def _nothing(self, request: Request) -> Response:
        return _problem(not_found(f"path {request.url.path[:100]}"))

    # ---- the stream of news -----------------------------------------------------------------------------------------

    async def _events(self, request: Request) -> Response:
        try:
            caller = self._caller(request)
            if self._num_streams >= _MOST_STREAMS:
                raise InspectProblem(503, "too_many", f"streams: got one more than {_MOST_STREAMS}")
        except InspectProblem as problem:
            return _problem(problem)
        watches = request.query_params.get("alternatives") == "1"
        self._count_streams(1, watches)
        return _NewsResponse(self._news(request, caller), lambda: self._count_streams(-1, watches))

    def _count_streams(self, more: int, watches: bool) -> None:
        assert self._state.recorder is not None
        self._num_streams += more
        self._state.recorder.num_watchers += more * watches

    async def _news(self, request: Request, caller: Caller) -> AsyncGenerator[bytes]:
        """Looks every fifth of a second whether something changed: nobody who serves is ever asked to tell."""
        recorder = self._state.recorder
        assert recorder is not None
        seen, gauge, ticks = 0, "", 0
        while not self._state.is_closing and not await request.is_disconnected():
            if ticks == 0 or recorder.latest != seen:
                news = await self._state.in_thread(partial(self._inspector.requests, caller, seen))
                seen = news["cursor"]
                if ticks == 0 or news["requests"] or news["gone"]:
                    yield _event("requests", dump(news))
                await self._state.in_thread(partial(self._find_causes, caller))
            if ticks % _GAUGE_TICKS == 0 and (text := await self._state.in_thread(partial(self._gauge, caller))) != gauge:
                gauge = text
                yield _event("cache", text)
            if ticks % _KEEP_ALIVE_TICKS == 0:
                yield b": keep-alive\n\n"
            ticks += 1
            await asyncio.sleep(_NEWS_SECONDS)

    def _find_causes(self, caller: Caller) -> None:
        try:
            self._inspector.find_causes(caller)
        except InspectProblem:
            return  # the model is not there yet: nothing has a cause

    def _gauge(self, caller: Caller) -> str:
        try:
            return dump(self._inspector.gauge(caller))
        except InspectProblem:
            return ""

    # ---- the page ---------------------------------------------------------------------------------------------------

    async def _page(self, request: Request) -> Response:
        return self._file(request, "index.html")

    async def _static(self, request: Request) -> Response:
        return self._file(request, str(request.path_params["name"]))

    def _file(self, request: Request, name: str) -> Response:
        try:
            self._check_place(request)
            found = _static_file(name)
            if found is None:
                raise not_found(f"file {name[:100]}")
        except InspectProblem as problem:
            return _problem(problem)
        data = found.read_bytes()
        tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
        headers = {**_PAGE_HEADERS, "etag": tag}
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        suffix = name[name.rfind(".") :]
        return Response(data, media_type=_TYPES.get(suffix, "application/octet-stream"), headers=headers)


class _NewsResponse(StreamingResponse):
    """Gives its place back however it ends: told to go, left by its client, broken off, or never begun."""

    def __init__(self, news: AsyncGenerator[bytes], release: Callable[[], None]) -> None:
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(news, media_type="text/event-stream", headers=headers)
        self._news = news
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._release()
            await self._news.aclose()


def _static_file(name: str) -> Traversable | None:
    """A file of the flat folder beside the inspector; no other."""
    folder = files("zllm_ref.inspector") / "static"
    if not folder.is_dir():
        return None
    return next((file for file in folder.iterdir() if file.name == name and file.is_file()), None)


def _name_of(host: str) -> str:
    """A `Host` header without its port and brackets."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _event(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: {data}\n\n".encode() if data else b""


def _json(value: dict[str, Any], status: int = 200) -> Response:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Response(text.encode("utf-8", "replace"), status, {"cache-control": "no-store"}, "application/json")


def _problem(problem: InspectProblem) -> Response:
    return _json({"error": {"code": problem.code, "message": problem.message}}, problem.status)
