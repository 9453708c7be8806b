"""Responses over WebSocket: one connection, lanes in parallel, responses of a lane in series.

    receive ─▶ Create ─▶ lane's queue ─▶ turn ─▶ events       the connection remembers the last response of each lane (WS8)
            └▶ Steer ──▶ the lane whose turn it steers

A request that fails is told by an error envelope and costs the connection nothing; a client that closes cancels all its lanes.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.event import Started
from zllm_ref.canonical.json_value import JsonValue, dump_json
from zllm_ref.inspector import State
from zllm_ref.protocols import openai_responses
from zllm_ref.protocols.openai_responses import session, stored
from zllm_ref.protocols.openai_responses.compaction import stream_of
from zllm_ref.protocols.openai_responses.error import render_websocket_error
from zllm_ref.protocols.openai_responses.request import ResponsesRequest, input_items_of
from zllm_ref.protocols.openai_responses.response import TERMINAL, response_text
from zllm_ref.protocols.openai_responses.session import Create, Steer
from zllm_ref.protocols.sse import Frame
from zllm_ref.server import recording
from zllm_ref.server.auth import Caller, authenticate, refuse_pages_of_other_sites
from zllm_ref.server.history import LocalResponse, load_history
from zllm_ref.server.http_io import header, send_error
from zllm_ref.server.responses_api import fitted, keep_response
from zllm_ref.server.state import ServerState, new_request_id
from zllm_ref.server.turn import Turn, last_of
from zllm_ref.server.wire import OUR_FAULT, RESPONSES, RESPONSES_ERRORS

_logger = logging.getLogger(__name__)
_MAX_WAITING = 64
_GOING_AWAY = 1001


@dataclass(slots=True)
class Running:
    """The response that a lane is making, and what steers it."""

    call: ResponsesRequest
    create: Create
    turn: Turn
    stream: openai_responses.Stream
    steers: list[tuple[str, tuple[JsonValue, ...]]] = field(default_factory=list)


@dataclass(slots=True)
class Lane:
    """`held_input`: steering that waits for the results of `held_for`'s calls."""

    name: str | None
    waiting: asyncio.Queue[Create] = field(default_factory=lambda: asyncio.Queue(_MAX_WAITING))
    remembered: LocalResponse | None = None
    running: Running | None = None
    held_for: str | None = None
    held_input: list[JsonValue] = field(default_factory=list)


class WebSocketEndpoint:
    """The ASGI application of `GET /v1/responses` with an upgrade."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            caller = authenticate(scope, self._state.settings)
            refuse_pages_of_other_sites(scope, self._state.settings)
        except ApiError as error:
            await receive()
            await send_error(_denial(send), RESPONSES_ERRORS, error, new_request_id())  # WS1: before the upgrade
            return
        await Connection(self._state, caller, scope, receive, send).run()


def _denial(send: Send) -> Send:
    """HTTP messages as the ones that answer an upgrade with a plain response."""

    async def deny(message: Message) -> None:
        await send({**message, "type": message["type"].replace("http.response", "websocket.http.response")})

    return deny


class Connection:
    def __init__(self, state: ServerState, caller: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        self._state = state
        self._caller = caller
        self._scope = scope
        self._originator = header(scope, b"originator")
        self._receive = receive
        self._send = send
        self._sending = asyncio.Lock()
        self._lanes: dict[str | None, Lane] = {}
        self._workers: list[asyncio.Task[None]] = []
        self._num_steer_events = 0
        self._is_open = True

    async def run(self) -> None:
        await self._receive()
        await self._say({"type": "websocket.accept"})
        try:
            async with asyncio.timeout(self._state.settings.websocket_lifetime_seconds):
                await self._listen()
        except TimeoutError:
            await self._say_goodbye()
        finally:
            self._hang_up()
            await asyncio.gather(*self._workers, return_exceptions=True)

    async def _listen(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            try:
                if text is None:
                    raise ApiError(ErrorKind.INVALID_JSON, "message: got binary, allowed text", code="invalid_json")
                await self._on_message(session.read_message(text.encode("utf-8", "surrogatepass")))
            except ApiError as error:
                await self._tell(render_websocket_error(error, stream_id=_lane_of_broken(text)))

    async def _say_goodbye(self) -> None:
        """WS13."""
        limit = self._state.settings.websocket_lifetime_seconds
        message = f"The connection has been open for {limit:g} seconds, which is the limit. Open another."
        error = ApiError(ErrorKind.INVALID_VALUE, message, code="websocket_connection_limit_reached")
        await self._tell(render_websocket_error(error))
        await self._say({"type": "websocket.close", "code": _GOING_AWAY})

    async def _on_message(self, message: Create | Steer) -> None:
        if isinstance(message, Steer):
            await self._steer(message)
            return
        lane = self._lane(message.lane)
        try:
            lane.waiting.put_nowait(message)
        except asyncio.QueueFull:
            text = f"Too many requests wait on this lane: allowed {_MAX_WAITING}."
            raise ApiError(ErrorKind.RATE_LIMITED, text, retry_after_seconds=1) from None

    def _lane(self, name: str | None) -> Lane:
        lane = self._lanes.get(name)
        if lane is not None:
            return lane
        if name is not None and len(self._lanes) - (None in self._lanes) >= session.MAX_LANES:
            text = f"'stream_id': got more than {session.MAX_LANES} lanes, allowed {session.MAX_LANES}"
            raise ApiError(ErrorKind.INVALID_VALUE, text, param="stream_id", code="websocket_stream_limit_reached")
        lane = self._lanes[name] = Lane(name)
        self._workers.append(asyncio.create_task(self._work(lane)))
        return lane

    async def _work(self, lane: Lane) -> None:
        """WS5: one response after another."""
        while True:
            create: Create | None = await lane.waiting.get()
            while create is not None:
                create = await self._respond(lane, create)

    async def _respond(self, lane: Lane, create: Create) -> Create | None:
        """Makes one response. Gives the successor that steering asked for, if any."""
        try:
            return await self._make(lane, create)
        except ApiError as error:
            self._forget(lane, create)
            await self._tell(render_websocket_error(error, stream_id=lane.name))
        except Exception:
            _logger.exception("a response on a WebSocket failed")
            failure = ApiError(ErrorKind.INTERNAL, OUR_FAULT)
            await self._tell(render_websocket_error(failure, stream_id=lane.name))
        return None

    async def _make(self, lane: Lane, create: Create) -> Create | None:
        request_id = new_request_id()
        raw = dump_json(create.body).encode("utf-8", "replace") if self._state.recorder is not None else b""
        record = recording.arrived(self._state.recorder, self._scope, request_id, self._caller.owner, raw)
        end = State.CANCELLED
        try:
            return await self._make_recorded(lane, create, request_id)
        except ApiError as error:
            recording.refused(self._state.recorder, RESPONSES_ERRORS, error, request_id)
            raise
        except Exception:
            end = State.FAILED
            raise
        finally:
            if record is not None:
                record.on_end(end)  # where its turn, or a refusal, has not ended it

    async def _make_recorded(self, lane: Lane, create: Create, request_id: str) -> Create | None:
        body = create.body
        if lane.held_for is not None and body.get("previous_response_id") == lane.held_for:
            body = session.with_input(body, session.after_results(input_items_of(body), lane.held_input))
            lane.held_for, lane.held_input = None, []
        context = self._state.context(request_id, self._caller.namespace, self._originator)
        local = {one.remembered.id: one.remembered for one in self._lanes.values() if one.remembered is not None}
        history = await load_history(self._state, self._caller, body, local)
        call, stream = stream_of(await fitted(self._state, openai_responses.parse_request(body, context, history)))
        if not create.generate:
            await self._warm_up(lane, call, stream, history.items)
            return None
        async with Turn(self._state, RESPONSES, call, stream) as turn:
            lane.running = Running(call, create, turn, stream)
            try:
                terminal = await self._speak(lane, lane.running, history.items)
                return await self._successor(lane, lane.running, terminal)
            finally:
                lane.running = None

    async def _speak(self, lane: Lane, running: Running, past: Sequence[JsonValue]) -> dict[str, Any]:
        """Sends the events of a turn to its end, natural or steered. Gives the final response object."""
        turn, response = running.turn, dict[str, Any]()
        while not turn.is_ended:
            frames = await turn.next()
            if turn.is_abandoned:
                assert turn.started is not None, "only a started response is steered"
                frames = turn.end(running.stream.end_incomplete("steered", turn.usage_so_far))
            terminal = last_of(frames, tuple(TERMINAL))
            if terminal is not None:
                await keep_response(self._state, running.call, self._caller, turn, frames)
                response = terminal.payload["response"]
                self._remember(lane, running.call, past, terminal, turn.started)
                if turn.error is not None:
                    self._forget(lane, running.create)  # WS9
            turn.is_committed = turn.is_committed or bool(frames)
            await self._tell_all(frames, lane.name)
            if running.steers and turn.started is not None:
                turn.abandon()
        return response

    async def _successor(self, lane: Lane, running: Running, response: dict[str, Any]) -> Create | None:
        """WS15: steering makes the next response by itself, unless the client owes the results of calls first."""
        if not running.steers:
            return None
        items = [item for _, given in running.steers for item in given]
        calls = [item for item in response["output"] if item["type"] in ("function_call", "custom_tool_call")]
        if calls:
            lane.held_for, lane.held_input = running.call.id, items
            for identity, _ in running.steers:
                text = session.steer_pending(identity, running.call.id, calls, self._next_steer_number())
                await self._tell(session.on_lane(text, lane.name))
            return None
        return Create(lane.name, True, session.with_input(running.create.body, items, running.call.id))

    async def _warm_up(
        self, lane: Lane, call: ResponsesRequest, stream: openai_responses.Stream, past: Sequence[JsonValue]
    ) -> None:
        """WS10: the prompt is computed, one token of it thrown away, and the response says nothing."""
        warm = replace(call, request=replace(call.request, max_tokens=1))
        async with Turn(self._state, RESPONSES, warm, openai_responses.Stream(warm)) as turn:
            while not turn.is_ended:
                await turn.next()
            if turn.error is not None:
                raise turn.error
        assert turn.started is not None
        frames = [
            *stream.on(turn.started),
            *stream.end_empty(replace(turn.started.usage, completion_tokens=0, reasoning_tokens=0)),
        ]
        await keep_response(self._state, call, self._caller, turn, frames)
        terminal = last_of(frames, tuple(TERMINAL))
        assert terminal is not None
        self._remember(lane, call, past, terminal, turn.started)
        await self._tell_all(frames, lane.name)

    def _remember(
        self, lane: Lane, call: ResponsesRequest, past: Sequence[JsonValue], terminal: Frame, started: Started | None
    ) -> None:
        items = stored.with_ids(call.input_items, call.request.request_id)
        own = stored.items_of(stored.render_items(items), response_text(terminal))
        lane.remembered = LocalResponse(call.id, (*past, *own), None if started is None else started.cache_id)

    def _forget(self, lane: Lane, create: Create) -> None:
        """WS9: a continuation that failed is not tried again from this lane's memory; another lane's parent stays."""
        if lane.remembered is not None and create.body.get("previous_response_id") == lane.remembered.id:
            lane.remembered = None

    async def _steer(self, steer: Steer) -> None:
        lane = next(
            (one for one in self._lanes.values() if one.running and one.running.call.id == steer.previous_response_id), None
        )
        items = session.steer_input(steer)
        if lane is None or lane.running is None:
            is_past = any(one.remembered and one.remembered.id == steer.previous_response_id for one in self._lanes.values())
            code = "response_already_completed" if is_past else "response_not_found"
            failure = session.steer_failed(steer, code, "No such response is being made here.", self._next_steer_number())
            await self._tell(failure)
        elif items is None:
            text = "input: allowed a string, or messages of the user made of input_text"
            failure = session.steer_failed(steer, "invalid_input", text, self._next_steer_number())
            await self._tell(session.on_lane(failure, lane.name))
        else:
            identity = f"steer_{new_request_id()}"
            lane.running.steers.append((identity, items))
            accepted = session.steer_accepted(identity, steer, self._next_steer_number())
            await self._tell(session.on_lane(accepted, lane.name))
            if lane.running.turn.started is not None:
                lane.running.turn.abandon()

    def _next_steer_number(self) -> int:
        self._num_steer_events += 1
        return self._num_steer_events - 1

    async def _tell_all(self, frames: Sequence[Frame], lane: str | None) -> None:
        for frame in frames:
            if not frame.is_done:  # WS2
                await self._tell(session.on_lane(frame.data, lane))

    async def _tell(self, text: str) -> None:
        await self._say({"type": "websocket.send", "text": text})

    async def _say(self, message: Message) -> None:
        """Nothing where nobody hears it: that a client has gone is told by an error here, too, and maybe here first."""
        async with self._sending:
            if not self._is_open:
                return
            try:
                await self._send(message)
            except OSError:
                self._hang_up()
            if message["type"] == "websocket.close":
                self._is_open = False

    def _hang_up(self) -> None:
        """Nothing more is said, and what is still being made is cancelled."""
        self._is_open = False
        for worker in self._workers:
            worker.cancel()


def _lane_of_broken(text: str | None) -> str | None:
    """The lane that a refused message named, so that its sender can tell whose error this is."""
    try:
        value = json.loads(text or "")
    except ValueError:
        return None
    lane = value.get("stream_id") if isinstance(value, dict) else None
    return lane if isinstance(lane, str) and session.is_lane(lane) else None
