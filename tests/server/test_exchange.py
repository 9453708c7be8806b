"""The life of one exchange: silence, a client that leaves, a fault of our own."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable

import anthropic
import httpx
import openai
import pytest
from starlette.types import Message, Receive, Scope, Send

from tests.server.conftest import RunningServer, Serve
from tests.server.fake_engine import PATIENCE, EchoEngine, FakeEngine, Say, unending
from tests.server.test_errors import GENERATING, PATHS, client
from zllm_ref.canonical.event import TextDelta
from zllm_ref.config import ServerSettings
from zllm_ref.protocols.openai_chat.stream import Stream
from zllm_ref.protocols.sse import Frame
from zllm_ref.server.app import create_app, make_server

LONG = (Say("text", "abc" * 2000),)
BILLING = "x-anthropic-billing-header: cc_version=1;"


def eventually(claim: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    deadline = time.monotonic() + seconds
    while not claim():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def is_idle(server: RunningServer) -> bool:
    return "zllm_running_answers 0" in httpx.get(f"{server.url}/metrics", timeout=PATIENCE).text


def post_and_leave(server: RunningServer, path: str, *, stream: bool, read_bytes: int) -> None:
    """Sends a request over a bare socket, reads a little of the answer, and closes."""
    body = json.dumps({**PATHS[path], "stream": stream}).encode()
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        if read_bytes:
            assert connection.recv(read_bytes)
        else:
            assert eventually(lambda: bool(server.engine.generations))


@pytest.mark.parametrize("path", GENERATING)
@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_cancels_its_generation(serve: Serve, path: str, stream: bool) -> None:
    server = serve(unending(pause_seconds=0.01))

    post_and_leave(server, path, stream=stream, read_bytes=100 if stream else 0)

    assert server.engine.generations[0].cancelled.wait(PATIENCE)


def test_one_that_leaves_costs_the_others_nothing(serve: Serve) -> None:
    server = serve(FakeEngine(script=LONG, pause_seconds=0.0005))
    texts: list[str] = []

    def ask() -> None:
        answer = httpx.post(f"{server.url}/v1/chat/completions", json=PATHS["/v1/chat/completions"], timeout=PATIENCE)
        texts.append(answer.json()["choices"][0]["message"]["content"])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    post_and_leave(server, "/v1/chat/completions", stream=True, read_bytes=100)
    for thread in threads:
        thread.join()

    assert texts == ["abc" * 2000] * 4


@pytest.mark.parametrize(
    ("path", "sign"),
    [
        ("/v1/chat/completions", ": keep-alive\n\n"),
        ("/v1/responses", ": keep-alive\n\n"),
        ("/v1/messages", 'event: ping\ndata: {"type":"ping"}\n\n'),
    ],
)
async def test_a_long_prefill_is_bridged_by_signs_of_life(path: str, sign: str) -> None:
    gate, signs = threading.Event(), list[bytes]()
    app = create_app(FakeEngine(gates={0: gate}), ServerSettings(heartbeat_seconds=0.001))

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        """The application, whose engine begins to speak after the third sign of life."""

        async def pass_on(message: Message) -> None:
            if message.get("body") == sign.encode():
                signs.append(message["body"])
            if len(signs) == 3:
                gate.set()
            await send(message)

        await app(scope, receive, pass_on)

    transport = httpx.ASGITransport(app=watched)
    async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=PATIENCE) as http:
        response = await http.post(path, json={**PATHS[path], "stream": True})

    assert len(signs) >= 3
    assert response.text.startswith(3 * sign)
    assert "Hel" in response.text


@pytest.mark.parametrize("path", GENERATING)
async def test_headers_say_what_the_stream_is_and_where_its_state_is_kept(path: str) -> None:
    async with client() as http:
        response = await http.post(path, json={**PATHS[path], "stream": True})
        whole = await http.post(path, json=PATHS[path])

    for answer in (response, whole):
        assert answer.headers["x-zllm-cache-id"].startswith("zc_")
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache"
    assert whole.json()["zllm"]["cache_id"] == whole.headers["x-zllm-cache-id"]
    assert response.headers["x-zllm-cache-id"] in response.text


async def test_the_guard_stops_a_stream_that_breaks_its_protocol(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    honest = Stream.on

    def role_everywhere(self: Stream, event: object) -> list[Frame]:
        frames = honest(self, event)  # type: ignore[arg-type]
        if isinstance(event, TextDelta):
            frames = [Frame(frame.data.replace('"delta":{', '"delta":{"role":"assistant",')) for frame in frames]
        return frames

    monkeypatch.setattr(Stream, "on", role_everywhere)
    engine = FakeEngine(script=LONG, pause_seconds=0.001)
    async with client(engine) as http:
        streamed = await http.post("/v1/chat/completions", json={**PATHS["/v1/chat/completions"], "stream": True})
        whole = await http.post("/v1/chat/completions", json=PATHS["/v1/chat/completions"])

    assert '"error"' in streamed.text.strip().split("\n\n")[-1]
    assert "[DONE]" not in streamed.text
    assert whole.status_code == 500
    assert "CH5" in caplog.text
    assert engine.generations[0].cancelled.is_set()


async def test_too_many_at_once_are_told_when_to_come_back() -> None:
    async with client(max_concurrent_requests=0) as http:
        chat = await http.post("/v1/chat/completions", json=PATHS["/v1/chat/completions"])
        messages = await http.post("/v1/messages", json=PATHS["/v1/messages"])

    assert (chat.status_code, messages.status_code) == (429, 529)
    assert chat.headers["retry-after"] == "1"
    assert messages.json()["error"]["type"] == "overloaded_error"


async def test_unknown_fields_of_agents_are_named_in_a_header() -> None:
    async with client() as http:
        response = await http.post("/v1/messages?beta=true", json={**PATHS["/v1/messages"], "wings\r\nx-evil: 1": 2})

    assert response.status_code == 200
    assert response.headers["x-zllm-ignored-fields"] == "wings__x-evil: 1"
    assert "x-evil" not in response.headers


async def test_keys_are_required_where_there_are_keys_and_separate_the_caches() -> None:
    engine = FakeEngine()
    async with client(engine, api_keys=("one", "two")) as http:
        path, body = "/v1/chat/completions", PATHS["/v1/chat/completions"]
        refused = await http.post(path, json=body)
        wrong = await http.post("/v1/messages", json=PATHS["/v1/messages"], headers={"x-api-key": "three"})
        first = await http.post(path, json=body, headers={"authorization": "Bearer one"})
        second = await http.post(path, json=body, headers={"x-api-key": "two"})

    assert (refused.status_code, wrong.status_code) == (401, 401)
    assert refused.json()["error"]["code"] == "invalid_api_key"
    assert wrong.json()["error"]["type"] == "authentication_error"
    assert (first.status_code, second.status_code) == (200, 200)
    assert len({request.cache.namespace for request in engine.requests}) == 2


def streamed_in_thread(server: RunningServer, path: str) -> tuple[threading.Thread, list[str]]:
    found: list[str] = []

    def ask() -> None:
        with httpx.stream("POST", server.url + path, json={**PATHS[path], "stream": True}, timeout=PATIENCE) as response:
            found.extend(response.iter_text())

    thread = threading.Thread(target=ask)
    thread.start()
    assert eventually(lambda: bool(found))
    return thread, found


@pytest.mark.parametrize(
    ("path", "end"),
    [
        ("/v1/chat/completions", "data: [DONE]"),
        ("/v1/responses", "response.completed"),
        ("/v1/messages", "message_stop"),
    ],
)
def test_a_server_that_ends_lets_streams_finish_and_nothing_new_begin(serve: Serve, path: str, end: str) -> None:
    """The stream goes on when the server has said that it ends: its grace is as long as the test's patience."""
    gate = threading.Event()
    engine = FakeEngine(script=(Say("text", "abc" * 300),), gates={150: gate})
    server = serve(engine, shutdown_grace_seconds=PATIENCE)
    thread, found = streamed_in_thread(server, path)

    engine.script, engine.gates = (Say("text", "x"),), {}
    server.begin_to_stop()
    assert eventually(lambda: httpx.post(server.url + path, json=PATHS[path], timeout=PATIENCE).status_code in (503, 529))
    gate.set()
    server.stop()
    thread.join()

    assert end in "".join(found).strip().split("\n\n")[-1]


@pytest.mark.parametrize("path", GENERATING)
def test_a_stream_that_outlasts_the_grace_is_ended_in_its_own_form(
    serve: Serve, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zllm_ref.server.state._LAST_WORDS_SECONDS", PATIENCE)
    server = serve(unending(), shutdown_grace_seconds=0.1)
    thread, found = streamed_in_thread(server, path)

    server.stop()
    thread.join()

    last = json.loads("".join(found).strip().split("\n\n")[-1].split("data: ")[1])
    assert "shutting down" in json.dumps(last)
    assert server.engine.generations[0].cancelled.is_set()


def test_an_idle_connection_is_given_up_by_its_client_first() -> None:
    """A server that closes one at the moment in which its client speaks again costs that client a request."""
    settings = ServerSettings()
    server = make_server(create_app(FakeEngine(), settings), settings, lambda host, port: None)

    for limits in (httpx.Limits(), openai.DEFAULT_CONNECTION_LIMITS, anthropic.DEFAULT_CONNECTION_LIMITS):
        assert limits.keepalive_expiry is not None
        assert server.config.timeout_keep_alive > 2 * limits.keepalive_expiry


def test_two_hundred_streams_are_neither_lost_nor_mixed_up(serve: Serve) -> None:
    """Each of 200 clients, at once, hears its own prompt's answer and the whole of it."""
    server = serve(EchoEngine(pause_seconds=0.002))
    texts: dict[int, str] = {}

    async def ask(http: httpx.AsyncClient, number: int) -> None:
        body = {"model": "fake", "stream": True, "messages": [{"role": "user", "content": f"<{number}>" * 20}]}
        async with http.stream("POST", f"{server.url}/v1/chat/completions", json=body) as response:
            frames = [line[6:] async for line in response.aiter_lines() if line.startswith("data: ")]
        assert frames[-1] == "[DONE]"
        deltas = [json.loads(frame)["choices"][0]["delta"] for frame in frames[:-1]]
        texts[number] = "".join(delta.get("content", "") for delta in deltas)

    async def ask_all() -> None:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(limits=limits, timeout=PATIENCE) as http:
            await asyncio.gather(*(ask(http, number) for number in range(200)))

    asyncio.run(ask_all())

    assert texts == {number: f"<{number}>" * 20 for number in range(200)}
    assert eventually(lambda: is_idle(server))


def test_a_client_that_does_not_read_stops_nobody(serve: Serve) -> None:
    server = serve(FakeEngine(script=(Say("text", "abc" * 60_000),), events_per_step=500))
    host, port = server.url.removeprefix("http://").split(":")
    body = json.dumps({**PATHS["/v1/chat/completions"], "stream": True}).encode()
    with socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect((host, int(port)))
        lazy.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        assert eventually(lambda: bool(server.engine.generations))
        server.engine.script = (Say("text", "quick"),)
        for _ in range(20):
            answer = httpx.post(f"{server.url}/v1/chat/completions", json=PATHS["/v1/chat/completions"], timeout=PATIENCE)
            assert answer.json()["choices"][0]["message"]["content"] == "quick"
    assert eventually(lambda: is_idle(server))


async def test_only_a_test_instrument_takes_the_size_of_its_steps() -> None:
    engine = FakeEngine()
    path, body = "/v1/chat/completions", PATHS["/v1/chat/completions"]
    async with client(engine) as http:
        refused = await http.post(path, json=body, headers={"x-tokens-per-step": "3"})
        engine.extra_health = {"test_instrument": True}
        taken = await http.post(path, json=body, headers={"x-tokens-per-step": "3"})

    assert "x-tokens-per-step" not in refused.headers
    assert taken.headers["x-tokens-per-step"] == "3"
    assert [request.tokens_per_step for request in engine.requests] == [None, 3]


@pytest.mark.parametrize(("strips", "first"), [(True, "You help."), (False, BILLING)])
def test_a_switch_of_the_server_keeps_the_billing_line(serve: Serve, strips: bool, first: str) -> None:
    server = serve(strip_billing_line=strips)
    system = [{"type": "text", "text": text} for text in (BILLING, "You help.")]

    httpx.post(f"{server.url}/v1/messages", json={**PATHS["/v1/messages"], "system": system}, timeout=PATIENCE).raise_for_status()

    assert server.engine.requests[-1].messages[0].text.startswith(first)
