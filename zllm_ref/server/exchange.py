"""One request and its answer over HTTP.

    read body ─ parse ─ submit ─┬─ ApiError ─────────────────▶ error response          (T6: never a 200 before this is known)
                                └─ first event ─┬─ Failed ───▶ error response
                                                └─ Started ──▶ SSE frames | one JSON object, folded from the same frames

A client that goes away cancels its generation within a step, in a stream and while a unary answer is made.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from starlette.datastructures import QueryParams
from starlette.types import Receive, Scope, Send

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.json_value import JsonObject
from zllm_ref.inspector import Record
from zllm_ref.protocols.body import read_body
from zllm_ref.protocols.context import RequestContext
from zllm_ref.protocols.sse import KEEP_ALIVE, Frame
from zllm_ref.server import recording
from zllm_ref.server.auth import Caller, authenticate
from zllm_ref.server.http_io import ClientGone, Headers, header, read_request, safe_header, send_error, send_json
from zllm_ref.server.state import ServerState, new_request_id
from zllm_ref.server.turn import Turn
from zllm_ref.server.wire import OUR_FAULT, AnswerStream, Call, ErrorShape, Wire

_logger = logging.getLogger(__name__)
_INLINE_BYTES = 1 << 16
_TOKENS_PER_STEP = b"x-tokens-per-step"  # taken by models that are test instruments, and echoed to say so
T = TypeVar("T")
BeforeEnd = Callable[[Turn, list[Frame]], Awaitable[list[Frame]]]

STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # T9: a proxy must not gather a stream
]


class Exchange:
    """One request on its way. Endpoints use it as: `body`, then `answer` or a response of their own."""

    def __init__(self, state: ServerState, errors: ErrorShape, scope: Scope, receive: Receive, send: Send) -> None:
        self.state = state
        self.request_id = new_request_id()
        self._errors = errors
        self._scope = scope
        self._receive = receive
        self._send = send
        self._has_started = False
        self._is_large = False
        self._owner = ""
        self.record: Record | None = None

    async def run(self, work: Callable[[Exchange], object]) -> None:
        """Runs an endpoint's work; every error becomes a response of the path's protocol, and none shows its insides."""
        try:
            result = work(self)
            if asyncio.iscoroutine(result):
                await result
        except ClientGone:
            return
        except ApiError as error:
            await self._refuse(error)
        except Exception:
            _logger.exception("request=%s failed", self.request_id)
            await self._refuse(ApiError(ErrorKind.INTERNAL, OUR_FAULT))

    async def _refuse(self, error: ApiError) -> None:
        if not self._has_started:
            recording.refused(self.state.recorder, self._errors, error, self.request_id)
            await send_error(self._send, self._errors, error, self.request_id)

    def authenticate(self) -> Caller:
        """Raises ApiError."""
        caller = authenticate(self._scope, self.state.settings)
        self._owner = caller.owner
        return caller

    async def body(self) -> JsonObject:
        encoding = header(self._scope, b"content-encoding")
        if encoding not in ("", "identity"):
            message = f"content-encoding: got '{encoding[:50]}', allowed an uncompressed body"
            raise ApiError(ErrorKind.UNSUPPORTED, message, param="content-encoding")
        raw = await read_request(self._scope, self._receive, self.state.settings.max_body_bytes)
        self._is_large = len(raw) > _INLINE_BYTES
        self.record = recording.arrived(self.state.recorder, self._scope, self.request_id, self._owner, raw)
        return await self.translated(lambda: read_body(raw))

    async def translated(self, work: Callable[[], T]) -> T:
        """Reads a body: at once, or in a thread where it is so large that other streams would notice."""
        return await self.in_thread(work) if self._is_large else work()

    def context(self, caller: Caller) -> RequestContext:
        context = self.state.context(self.request_id, caller.namespace, header(self._scope, b"originator"))
        size = header(self._scope, _TOKENS_PER_STEP)
        is_taken = self.state.engine.health().get("test_instrument") is True and size.isdecimal() and 0 < len(size) <= 4
        return replace(context, tokens_per_step=max(1, int(size))) if is_taken else context

    def query(self) -> QueryParams:
        return QueryParams(self._scope["query_string"])

    def path_parameter(self, name: str) -> str:
        return str(self._scope["path_params"][name])

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Runs what blocks outside the loop, so that no other stream waits for it."""
        return await self.state.in_thread(work)

    async def respond(self, text: str, status: int = 200, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self._has_started = True
        if self.record is not None and self.record.transport == "unary":
            self.record.on_body(status, text)
        await send_json(self._send, status, text, [self._own_header, *headers])

    async def answer(self, wire: Wire, call: Call, stream: AnswerStream, before_end: BeforeEnd | None = None) -> None:
        """Submits the call and sends its answer, streamed or whole. `before_end` sees the last frames before the client does,
        and says what goes out."""
        if self.record is not None and call.stream:
            self.record.transport = "sse"
        async with Turn(self.state, wire, call, stream) as turn, self.watched(turn.abandon):
            await (self._stream if call.stream else self._whole)(wire, call, turn, before_end or _nothing)

    async def replay(self, batches: AsyncIterator[list[Frame]]) -> None:
        """Sends frames that were made elsewhere (a background response) as a stream."""
        gone = asyncio.Event()
        async with self.watched(gone.set):
            await self._start([*STREAM_HEADERS, self._own_header])
            async for frames in batches:
                if gone.is_set():
                    return
                await self._write(b"".join([frame.encode() for frame in frames]) if frames else KEEP_ALIVE, more=True)
            await self._write(b"", more=False)

    @contextlib.asynccontextmanager
    async def watched(self, on_gone: Callable[[], None]) -> AsyncIterator[None]:
        """The body has been read, so the next message says that the client has gone."""

        async def watch() -> None:
            while (await self._receive())["type"] != "http.disconnect":
                continue
            on_gone()

        watcher = asyncio.create_task(watch())
        try:
            yield
        finally:
            watcher.cancel()

    async def _stream(self, wire: Wire, call: Call, turn: Turn, before_end: BeforeEnd) -> None:
        while True:
            frames = await turn.next()
            if turn.is_abandoned:
                return
            if turn.is_ended:
                frames = await before_end(turn, frames)
            if not turn.is_committed:
                turn.is_committed = True
                await self._start([*STREAM_HEADERS, *self._headers(call, turn)])
            # Every event of a wake-up leaves in one write; none came: a sign of life.
            body = b"".join([frame.encode() for frame in frames]) if frames else wire.heartbeat
            await self._write(body, more=not turn.is_ended)
            if turn.is_ended:
                return

    async def _whole(self, wire: Wire, call: Call, turn: Turn, before_end: BeforeEnd) -> None:
        """X1, by construction: the frames of the stream, folded."""
        accumulator = wire.make_accumulator()
        frames: list[Frame] = []
        while not turn.is_ended:
            frames = await turn.next()
            if turn.is_abandoned:
                return
            for frame in frames:
                accumulator.on(frame)
        if turn.error is not None:
            raise turn.error
        await before_end(turn, frames)
        await self.respond(accumulator.result(), headers=self._headers(call, turn)[1:])

    async def _start(self, headers: Headers) -> None:
        self._has_started = True
        if self.record is not None:
            self.record.status = 200
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _write(self, body: bytes, *, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    @property
    def _own_header(self) -> tuple[bytes, bytes]:
        return (self._errors.request_id_header, b"req_" + self.request_id.encode())

    def _headers(self, call: Call, turn: Turn) -> Headers:
        headers = [self._own_header]
        if turn.started is not None and turn.started.cache_id is not None:
            headers.append((b"x-zllm-cache-id", safe_header(turn.started.cache_id)))
        if call.request.tokens_per_step is not None:
            headers.append((_TOKENS_PER_STEP, str(call.request.tokens_per_step).encode()))
        if call.ignored_fields:
            headers.append((b"x-zllm-ignored-fields", safe_header(", ".join(call.ignored_fields))))
        return headers


async def _nothing(turn: Turn, frames: list[Frame]) -> list[Frame]:
    """What most answers do before their end."""
    return frames
