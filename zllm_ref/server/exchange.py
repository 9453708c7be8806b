"""One request and its answer over HTTP.

    read body ─ parse ─ submit ─┬─ ApiError ─────────────────▶ error response          (T6: never a 200 before this is known)
                                └─ first event ─┬─ Failed ───▶ error response
                                                └─ Started ──▶ SSE frames | one JSON object, folded from the same frames

A client that goes away cancels its generation within a step, in a stream and while a unary answer is made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from starlette.types import Receive, Scope, Send

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.event import Event, Failed, Finished, Started
from zllm_ref.canonical.json_value import JsonObject
from zllm_ref.protocols.body import read_body
from zllm_ref.protocols.context import Profile, RequestContext
from zllm_ref.server.answer import Answer
from zllm_ref.server.auth import authenticate
from zllm_ref.server.engine_port import Generation
from zllm_ref.server.event_queue import EventQueue
from zllm_ref.server.guard import Guard
from zllm_ref.server.http_io import ClientGone, Headers, header, read_request, safe_header, send_error, send_json
from zllm_ref.server.state import ServerState, new_request_id
from zllm_ref.server.wire import AnswerStream, Call, ErrorShape, Wire

_logger = logging.getLogger(__name__)
_INLINE_BYTES = 1 << 16
T = TypeVar("T")

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
            await self._refuse(ApiError(ErrorKind.INTERNAL, "The server failed on this request. The fault is ours."))

    async def _refuse(self, error: ApiError) -> None:
        if not self._has_started:
            await send_error(self._send, self._errors, error, self.request_id)

    def authenticate(self) -> str:
        """The caller's namespace. Raises ApiError."""
        return authenticate(self._scope, self.state.settings)

    async def body(self) -> JsonObject:
        raw = await read_request(self._scope, self._receive, self.state.settings.max_body_bytes)
        return read_body(raw) if len(raw) <= _INLINE_BYTES else await self.in_thread(lambda: read_body(raw))

    def context(self, namespace: str) -> RequestContext:
        return self.state.context(self.request_id, namespace, header(self._scope, b"originator"))

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Runs what blocks outside the loop, so that no other stream waits for it."""
        return await asyncio.get_running_loop().run_in_executor(self.state.workers, work)

    async def respond(self, text: str, status: int = 200, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self._has_started = True
        own = (self._errors.request_id_header, b"req_" + self.request_id.encode())
        await send_json(self._send, status, text, [own, *headers])

    async def answer(self, wire: Wire, call: Call, make_stream: Callable[[], AnswerStream]) -> None:
        """Submits the call and sends its answer, streamed or whole."""
        self.state.admit()
        queue = EventQueue(asyncio.get_running_loop(), self.state.settings.heartbeat_seconds)
        watcher = asyncio.create_task(self._watch(queue))
        generation: Generation | None = None
        end = "cancelled"
        try:
            generation = await self.in_thread(lambda: self.state.engine.submit(call.request, queue.put))
            profile = getattr(call, "profile", None)
            guard = Guard(wire.grammar, self.request_id, is_openresponses=profile is Profile.OPENRESPONSES)
            answer = Answer(make_stream(), guard, call.request.num_choices)
            road = self._stream if call.stream else self._whole
            await road(wire, call, queue, answer)
            end = "cancelled" if queue.is_abandoned else "ok" if answer.error is None else "error"
        except ApiError:
            end = "error"
            raise
        finally:
            self.state.release()
            self.state.metrics.answers[(wire.grammar, end)] += 1
            watcher.cancel()
            if generation is not None and end != "ok":
                generation.cancel()

    async def _watch(self, queue: EventQueue) -> None:
        """The body has been read, so the next message says that the client has gone."""
        while (await self._receive())["type"] != "http.disconnect":
            continue
        queue.abandon()

    async def _stream(self, wire: Wire, call: Call, queue: EventQueue, answer: Answer) -> None:
        events = await queue.next()
        if events and isinstance(events[0], Failed):
            raise events[0].error
        if queue.is_abandoned:
            return
        self._has_started = True
        headers = [*STREAM_HEADERS, *self._headers(call, events)]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        while True:
            frames = answer.on(events)
            self._count(events)
            # Every event of a wake-up leaves in one write; none came: a sign of life.
            body = b"".join([frame.encode() for frame in frames]) if events else wire.heartbeat
            await self._send({"type": "http.response.body", "body": body, "more_body": not answer.is_ended})
            if answer.is_ended:
                return
            events = await queue.next()
            if queue.is_abandoned:
                return

    async def _whole(self, wire: Wire, call: Call, queue: EventQueue, answer: Answer) -> None:
        """X1, by construction: the frames of the stream, folded."""
        accumulator = wire.make_accumulator()
        first: list[Event] = []
        while not answer.is_ended:
            events = await queue.next()
            if queue.is_abandoned:
                return
            first = first or events[:1]
            for frame in answer.on(events):
                accumulator.on(frame)
            self._count(events)
        if answer.error is not None:
            raise answer.error
        await self.respond(accumulator.result(), headers=self._headers(call, first)[1:])

    def _headers(self, call: Call, events: Sequence[Event]) -> Headers:
        headers: Headers = [(self._errors.request_id_header, b"req_" + self.request_id.encode())]
        for event in events:
            if isinstance(event, Started) and event.cache_id is not None:
                headers.append((b"x-zllm-cache-id", safe_header(event.cache_id)))
        if call.ignored_fields:
            headers.append((b"x-zllm-ignored-fields", safe_header(", ".join(call.ignored_fields))))
        return headers

    def _count(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Finished):
                self.state.metrics.count_usage(event.usage)
