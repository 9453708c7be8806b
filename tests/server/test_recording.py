"""How a request is said to have ended: by its own fault, by ours, or by nobody's."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from starlette.types import Message

from tests.server.conftest import RunningServer
from tests.server.fake_engine import PATIENCE, FakeEngine, FakeGeneration, Listener, unending
from tests.server.test_errors import GENERATING, PATHS
from tests.server.test_exchange import eventually, post_and_leave
from tests.server.test_websocket import connection, hear, rest, say
from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.request import Request
from zllm_ref.config import ServerSettings
from zllm_ref.inspector import Record, Recorder, State
from zllm_ref.server import Inspect
from zllm_ref.server.app import create_app

FAULT = RuntimeError("planted fault of ours")


class Raising(FakeEngine):
    """Takes no request."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def submit(self, request: Request, listener: Listener) -> FakeGeneration:
        raise self._error


class Recorded:
    """A server whose requests are recorded, and nobody looks."""

    def __init__(self, engine: FakeEngine, **settings: Any) -> None:
        self.recorder = Recorder()
        nobody: Any = None
        settings = {"shutdown_grace_seconds": 0.1, **settings}
        self.server = RunningServer(engine, ServerSettings(**settings), Inspect(self.recorder, nobody))

    def __enter__(self) -> Recorded:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()

    def post(self, path: str, *, stream: bool = False) -> int:
        return httpx.post(self.server.url + path, json={**PATHS[path], "stream": stream}, timeout=PATIENCE).status_code

    def only(self) -> Record:
        """The one record, when its request has ended."""
        assert eventually(lambda: all(record.state.is_final for record in self.recorder.records("")))
        (record,) = self.recorder.records("")
        return record


@pytest.mark.parametrize("path", GENERATING)
@pytest.mark.parametrize("error", [FAULT, ApiError(ErrorKind.INTERNAL, "planted fault of ours")], ids=["raised", "told"])
def test_an_answer_of_500_is_a_failed_request(path: str, error: Exception) -> None:
    with Recorded(Raising(error)) as recorded:
        assert recorded.post(path) == 500
        record = recorded.only()

    assert (record.state, record.status, record.end_reason) == (State.FAILED, 500, "error")
    assert record.error


@pytest.mark.parametrize("path", GENERATING)
@pytest.mark.parametrize("stream", [True, False])
def test_a_failure_before_the_first_byte_is_a_failed_request(path: str, stream: bool) -> None:
    with Recorded(FakeEngine(fail_after=0)) as recorded:
        assert recorded.post(path, stream=stream) == 500
        record = recorded.only()

    assert (record.state, record.status) == (State.FAILED, 500)


@pytest.mark.parametrize("path", GENERATING)
def test_a_request_that_is_too_much_is_refused(path: str) -> None:
    with Recorded(Raising(ApiError(ErrorKind.CONTEXT_OVERFLOW, "too long"))) as recorded:
        assert recorded.post(path) == 400
        record = recorded.only()

    assert (record.state, record.status, record.error) == (State.REFUSED, 400, "too long")


def test_a_request_that_comes_while_others_fill_the_server_is_refused() -> None:
    with Recorded(FakeEngine(), max_concurrent_requests=0) as recorded:
        assert recorded.post("/v1/messages") == 529
        record = recorded.only()

    assert (record.state, record.status) == (State.REFUSED, 529)


@pytest.mark.parametrize("path", GENERATING)
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_has_cancelled(path: str, stream: bool) -> None:
    with Recorded(unending(pause_seconds=0.01)) as recorded:
        post_and_leave(recorded.server, path, stream=stream, read_bytes=100 if stream else 0)
        record = recorded.only()

    assert (record.state, record.error) == (State.CANCELLED, None)


@pytest.mark.parametrize("stream", [True, False])
def test_a_fault_at_the_end_of_an_answer_is_a_failed_request(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def keep(*_: object, **__: object) -> None:
        raise FAULT

    monkeypatch.setattr("zllm_ref.server.responses_api.keep_response", keep)
    with Recorded(FakeEngine()) as recorded:
        with contextlib.suppress(httpx.RemoteProtocolError):  # of a stream that has begun
            recorded.post("/v1/responses", stream=stream)
        record = recorded.only()

    assert record.state is State.FAILED


def test_a_fault_in_a_turn_of_a_websocket_is_a_failed_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def keep(*_: object, **__: object) -> None:
        raise FAULT

    monkeypatch.setattr("zllm_ref.server.websocket.keep_response", keep)
    with Recorded(FakeEngine()) as recorded, connection(recorded.server) as socket:
        say(socket, input="x")
        assert rest(socket)[-1]["type"] == "error"
        record = recorded.only()

    assert (record.state, record.transport) == (State.FAILED, "websocket")


@pytest.mark.parametrize(
    ("error", "state"),
    [(FAULT, State.FAILED), (ApiError(ErrorKind.CONTEXT_OVERFLOW, "too long"), State.REFUSED)],
    ids=["ours", "theirs"],
)
def test_a_turn_of_a_websocket_that_never_begins_is_told_by_whose_fault(error: Exception, state: State) -> None:
    with Recorded(Raising(error)) as recorded, connection(recorded.server) as socket:
        say(socket, input="x")
        assert rest(socket)[-1]["type"] == "error"
        record = recorded.only()

    assert record.state is state


async def gone_after(num_told: int, message: str, engine: FakeEngine, gone: Callable[[], bool]) -> tuple[list[Record], int]:
    """A client that says this and goes. The server's library tells so by an OSError, and by a message that may come later, as
    here: when `gone`. -> the records, and how often it was spoken to."""
    recorder, told = Recorder(), list[Message]()
    nobody: Any = None
    app = create_app(engine, ServerSettings(), Inspect(recorder, nobody))
    said: list[Message] = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": message}]

    async def receive() -> Message:
        if said:
            return said.pop(0)
        assert await asyncio.to_thread(eventually, gone)
        return {"type": "websocket.disconnect", "code": 1001}

    async def send(message: Message) -> None:
        if message["type"] == "websocket.send":
            told.append(message)
            if len(told) > num_told:
                raise OSError("the client has gone")

    scope = {"type": "websocket", "path": "/v1/responses", "raw_path": b"/v1/responses", "query_string": b"", "root_path": ""}
    await app({**scope, "headers": [], "scheme": "ws", "subprotocols": [], "client": ("127.0.0.1", 1)}, receive, send)
    return recorder.records(""), len(told)


@pytest.mark.parametrize("num_told", [0, 1, 9])
async def test_a_websocket_that_has_gone_while_it_was_told_has_cancelled_its_turn(num_told: int) -> None:
    engine = unending()
    create = json.dumps({"type": "response.create", "model": "fake", "input": "x", "store": False})

    (record,), spoken = await gone_after(
        num_told, create, engine, lambda: any(one.cancelled.is_set() for one in engine.generations)
    )

    assert (record.state, record.error) == (State.CANCELLED, None)
    assert spoken == num_told + 1, "nothing more is said to who has gone"


async def test_who_has_gone_misses_that_his_message_was_none() -> None:
    assert await gone_after(0, "{", FakeEngine(), lambda: True) == ([], 1)


def test_a_websocket_that_is_closed_has_cancelled_its_turn() -> None:
    with Recorded(unending(pause_seconds=0.01)) as recorded:
        with connection(recorded.server) as socket:
            say(socket, input="x")
            hear(socket)
        record = recorded.only()

    assert (record.state, record.error) == (State.CANCELLED, None)
