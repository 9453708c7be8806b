"""The application: which path leads where, and how the process listens."""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine

import uvicorn
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.config import ServerSettings
from zllm_ref.protocols import models as model_shapes
from zllm_ref.protocols.context import Profile
from zllm_ref.protocols.seal import Seal
from zllm_ref.protocols.sse import dump
from zllm_ref.server import endpoints, responses_api
from zllm_ref.server.auth import authenticate
from zllm_ref.server.background import fail_left_behind
from zllm_ref.server.engine_port import Engine
from zllm_ref.server.exchange import Exchange
from zllm_ref.server.http_io import header
from zllm_ref.server.inspect_api import Inspect, InspectRoutes
from zllm_ref.server.response_store import ResponseStore
from zllm_ref.server.state import ServerState, new_request_id
from zllm_ref.server.websocket import WebSocketEndpoint
from zllm_ref.server.wire import ErrorShape, errors_for

_KEEP_ALIVE_SECONDS = 75  # longer than clients keep theirs: whoever closes first must not be the one who does not speak next
Work = Callable[[Exchange], Coroutine[object, object, None]]

_ENDPOINTS: tuple[tuple[str, str, Work], ...] = (
    ("POST", "/v1/chat/completions", endpoints.chat_completions),
    ("POST", "/v1/messages", endpoints.messages),
    ("POST", "/v1/messages/count_tokens", endpoints.count_tokens),
    ("POST", "/v1/responses", responses_api.create),
    ("GET", "/v1/responses", endpoints.upgrade_required),
    ("POST", "/v1/responses/input_tokens", responses_api.input_tokens),
    ("POST", "/v1/responses/compact", responses_api.compact),
    ("GET", "/v1/responses/{response_id}", responses_api.retrieve),
    ("DELETE", "/v1/responses/{response_id}", responses_api.delete),
    ("POST", "/v1/responses/{response_id}/cancel", responses_api.cancel),
    ("GET", "/v1/responses/{response_id}/input_items", responses_api.input_items),
)


def create_app(engine: Engine, settings: ServerSettings, inspect: Inspect | None = None) -> FastAPI:
    """The ASGI application that serves this engine. Raises ValueError for an unknown profile. `inspect` None: no inspector."""
    Profile(settings.profile)
    store = ResponseStore(
        settings.state_directory,
        ttl_seconds=settings.response_ttl_seconds,
        max_bytes=settings.max_stored_bytes,
        clock=time.time,
    )
    seal = Seal(store.secret(lambda: secrets.token_bytes(32)))
    recorder = inspect.recorder if inspect is not None else None
    state = ServerState(engine=engine, settings=settings, seal=seal, store=store, recorder=recorder)
    fail_left_behind(state)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        for run_ in list(state.background.values()):
            run_.cancel()
            await run_.ended()
        state.workers.shutdown(wait=False)
        store.close()

    routes = [Route(path, _Endpoint(state, work), methods=[method]) for method, path, work in _ENDPOINTS]
    routes += [
        Route("/v1/models", _models(state), methods=["GET"]),
        Route("/v1/models/{name:path}", _model(state), methods=["GET"]),
        Route("/health", _health(state), methods=["GET"]),
        Route("/metrics", _metrics(state), methods=["GET"]),
        Route("/", _root, methods=["GET"]),
    ]
    if inspect is not None:
        routes += InspectRoutes(state, inspect.inspector).routes()
    socket_route = WebSocketRoute("/v1/responses", WebSocketEndpoint(state))
    handlers = {HTTPException: _http_error, ApiError: _api_error}
    app = FastAPI(
        routes=[*_by_path(routes), socket_route],
        lifespan=lifespan,
        exception_handlers=handlers,  # type: ignore[arg-type]
        openapi_url=None,  # the three APIs are described by their vendors
    )
    app.router.redirect_slashes = False
    app.state.server = state
    return app


class _Endpoint:
    """An ASGI application around one endpoint's work."""

    def __init__(self, state: ServerState, work: Work) -> None:
        self._state = state
        self._work = work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Exchange(self._state, _errors(scope), scope, receive, send).run(self._work)


class _Methods:
    """One path, several methods: Starlette matches the first route of a path, and would answer 405 for the others."""

    def __init__(self, by_method: dict[str, ASGIApp]) -> None:
        self._by_method = by_method

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._by_method.get(scope["method"])
        if app is None:
            raise HTTPException(405, headers={"Allow": ", ".join(sorted(self._by_method))})
        await app(scope, receive, send)


def _by_path(routes: list[Route]) -> list[Route]:
    paths: dict[str, dict[str, ASGIApp]] = {}
    for route in routes:
        for method in route.methods or ():
            paths.setdefault(route.path, {})[method] = route.app
    return [Route(path, _Methods(by_method)) for path, by_method in paths.items()]


def _models(state: ServerState) -> Callable[[Request], Coroutine[object, object, Response]]:
    async def models(request: Request) -> Response:
        authenticate(request.scope, state.settings)
        cards = state.engine.models
        if "client_version" in request.query_params:
            return _json(model_shapes.codex_list(cards))
        return _json(model_shapes.anthropic_list(cards) if _is_anthropic(request.scope) else model_shapes.openai_list(cards))

    return models


def _model(state: ServerState) -> Callable[[Request], Coroutine[object, object, Response]]:
    async def model(request: Request) -> Response:
        authenticate(request.scope, state.settings)
        card = model_shapes.find_model(state.engine.models, request.path_params["name"])
        return _json(model_shapes.anthropic_model(card) if _is_anthropic(request.scope) else model_shapes.openai_model(card))

    return model


def _health(state: ServerState) -> Callable[[Request], Coroutine[object, object, Response]]:
    async def health(_: Request) -> Response:
        found = state.engine.health()
        return _json(dump(dict(found)), 200 if found.get("status") == "ready" else 503)

    return health


def _metrics(state: ServerState) -> Callable[[Request], Coroutine[object, object, Response]]:
    async def metrics(_: Request) -> Response:
        return PlainTextResponse(state.metrics.render(state.num_running, state.engine.figures()))

    return metrics


async def _root(_: Request) -> Response:
    return PlainTextResponse("zllm_ref\n")


async def _http_error(request: Request, error: HTTPException) -> Response:
    """E6: unknown paths and wrong methods, in the shape of the protocol that the path belongs to."""
    where = f"{request.method} {request.url.path[:200]}"
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        kind, text = ErrorKind.METHOD_NOT_ALLOWED, f"method: got {where}, allowed {allowed}"
    else:
        kind, text = ErrorKind.NOT_FOUND, f"path: got {where}, which is not served here"
    return _error(request.scope, ApiError(kind, text), dict(error.headers or {}))


async def _api_error(request: Request, error: ApiError) -> Response:
    return _error(request.scope, error, {})


def _error(scope: Scope, error: ApiError, headers: dict[str, str]) -> Response:
    errors, request_id = _errors(scope), new_request_id()
    headers[errors.request_id_header.decode()] = f"req_{request_id}"
    return Response(errors.render(error, request_id), errors.status_of(error), headers, "application/json")


def _json(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="application/json")


def _errors(scope: Scope) -> ErrorShape:
    return errors_for(scope["path"], anthropic=_is_anthropic(scope))


def _is_anthropic(scope: Scope) -> bool:
    """Both vendors list their models on the same path; their clients' headers tell them apart (protocols.md 1.6)."""
    return bool(header(scope, b"anthropic-version") or (header(scope, b"x-api-key") and not header(scope, b"authorization")))


class _Server(uvicorn.Server):
    """uvicorn, with two words more: when it is ready, and how it ends."""

    def __init__(self, config: uvicorn.Config, state: ServerState, on_ready: Callable[[str, int], None]) -> None:
        super().__init__(config)
        self._state = state
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            self._on_ready(host, port)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._state.end_gracefully()
        await super().shutdown(sockets)


def make_server(app: FastAPI, settings: ServerSettings, on_ready: Callable[[str, int], None]) -> uvicorn.Server:
    """A uvicorn server for this application; `serve(sockets=[...])` starts it on sockets that are bound already."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=1,
        ws_max_size=settings.max_body_bytes,
    )
    return _Server(config, app.state.server, on_ready)


def bind(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 picks a free one. Raises OSError where the address is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    return bound


def run(app: FastAPI, host: str, port: int, on_ready: Callable[[str, int], None], settings: ServerSettings | None = None) -> None:
    """Listens until the process is told to end. `on_ready(host, port)` is called once connections are accepted."""
    server = make_server(app, settings or ServerSettings(host=host, port=port), on_ready)
    server.run(sockets=[bind(host, port)])
