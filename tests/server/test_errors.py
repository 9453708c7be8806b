"""What is known before the first token is an HTTP error in the protocol's own shape, the same for stream and unary."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.fake_engine import PATIENCE, FakeEngine
from zllm_ref.config import ServerSettings
from zllm_ref.server.app import create_app

CHAT: dict[str, Any] = {"model": "fake", "messages": [{"role": "user", "content": "hi"}]}
RESPONSES: dict[str, Any] = {"model": "fake", "input": "hi"}
MESSAGES: dict[str, Any] = {"model": "fake", "max_tokens": 16, "messages": [{"role": "user", "content": "hi"}]}
PATHS = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
    "/v1/messages/count_tokens": MESSAGES,
    "/v1/responses/input_tokens": RESPONSES,
}
GENERATING = ("/v1/chat/completions", "/v1/responses", "/v1/messages")


def client(engine: FakeEngine | None = None, **options: Any) -> httpx.AsyncClient:
    app = create_app(engine or FakeEngine(), ServerSettings(**options))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test", timeout=PATIENCE)


def check_shape(path: str, response: httpx.Response) -> dict[str, Any]:
    """E1-E3, E7: the error object of the protocol that the path belongs to."""
    assert response.headers["content-type"].startswith("application/json")
    body = response.json()
    if path.startswith("/v1/messages"):
        assert set(body) == {"type", "error", "request_id"}
        assert set(body["error"]) == {"type", "message"}
        assert response.headers["request-id"] == body["request_id"]
    else:
        assert set(body) == {"error"}
        assert set(body["error"]) == {"message", "type", "param", "code"}
        assert body["error"]["code"] is None or isinstance(body["error"]["code"], str)
        assert response.headers["x-request-id"]
    assert "Traceback" not in response.text
    error: dict[str, Any] = body["error"]
    return error


BROKEN_BODIES = {
    "empty": b"",
    "malformed": b'{"model": ',
    "trailing": b'{"model": "fake"} x',
    "array": b"[]",
    "string": b'"x"',
    "not utf-8": b'{"model": "\xff"}',
    "deep": b'{"model":' + b"[" * 100_000,
    "nested 201": b'{"model":"fake","metadata":' + b'{"a":' * 250 + b"1" + b"}" * 250 + b"}",
    "nan": b'{"model":"fake","temperature":NaN}',
    "lone surrogate": b'{"model":"fake","user":"\\ud800"}',
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", BROKEN_BODIES)
async def test_a_body_that_is_no_json_object_is_refused(path: str, name: str) -> None:
    async with client() as http:
        response = await http.post(path, content=BROKEN_BODIES[name])

    assert response.status_code == 400
    assert check_shape(path, response)["type"] == "invalid_request_error"


WRONG: list[tuple[str, dict[str, Any], str, int]] = [
    # path, what is changed, the path of the field at fault, status
    ("/v1/chat/completions", {"messages": []}, "messages", 400),
    ("/v1/chat/completions", {"messages": None}, "messages", 400),
    ("/v1/chat/completions", {"messages": "hi"}, "messages", 400),
    ("/v1/chat/completions", {"messages": [{"content": "x"}]}, "messages[0].role", 400),
    ("/v1/chat/completions", {"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", 400),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": 5}]}, "messages[0].content", 400),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "messages[0].content[0].type",
        400,
    ),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}}]}]},
        "messages[0].content[0].type",
        400,
    ),
    ("/v1/chat/completions", {"messages": [{"role": "assistant", "audio": {"id": "a"}}]}, "messages[0].audio", 400),
    ("/v1/responses", {"tools": [{"type": "mcp", "server_label": "x"}]}, "tools[0].type", 400),
    ("/v1/responses", {"max_tool_calls": 0}, "max_tool_calls", 400),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]},
        "messages[0].tool_call_id",
        400,
    ),
    ("/v1/chat/completions", {"temperature": "hot"}, "temperature", 400),
    ("/v1/chat/completions", {"temperature": 2.5}, "temperature", 400),
    ("/v1/chat/completions", {"n": 0}, "n", 400),
    ("/v1/chat/completions", {"n": 1.5}, "n", 400),
    ("/v1/chat/completions", {"max_tokens": 10**400}, "max_tokens", 400),
    ("/v1/chat/completions", {"seed": 2**63}, "seed", 400),
    ("/v1/chat/completions", {"logit_bias": {"x": 1}}, "logit_bias.x", 400),
    ("/v1/chat/completions", {"top_logprobs": 3}, "top_logprobs", 400),
    ("/v1/chat/completions", {"stop": ["a"] * 5}, "stop", 400),
    ("/v1/chat/completions", {"stop": ""}, "stop", 400),
    ("/v1/chat/completions", {"wings": 2}, "wings", 400),
    ("/v1/chat/completions", {"audio": {"voice": "x"}}, "audio", 400),
    ("/v1/chat/completions", {"user": 5}, "user", 400),
    ("/v1/chat/completions", {"tool_choice": "required"}, "tool_choice", 400),
    ("/v1/chat/completions", {"tools": [{"type": "web_search"}]}, "tools[0].type", 400),
    ("/v1/chat/completions", {"model": "other"}, "model", 404),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "w " * 9000}]}, "messages", 400),
    ("/v1/responses", {"input": None}, "input", 400),
    ("/v1/responses", {"input": []}, "input", 400),
    ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type", 400),
    ("/v1/responses", {"input": [{"type": "item_reference", "id": "rs_1"}]}, "input[0].id", 400),
    ("/v1/responses", {"input": [{"type": "computer_call"}]}, "input[0].type", 400),
    ("/v1/responses", {"tools": [{"type": "web_search"}]}, "tools[0].type", 400),
    ("/v1/responses", {"include": ["x"]}, "include[0]", 400),
    ("/v1/responses", {"conversation": "c"}, "conversation", 400),
    ("/v1/responses", {"metadata": {"a": 5}}, "metadata.a", 400),
    ("/v1/responses", {"model": "other"}, "model", 404),
    ("/v1/responses", {"input": "w " * 9000}, "input", 400),
    ("/v1/messages", {"messages": []}, "messages", 400),
    ("/v1/messages", {"max_tokens": None}, "max_tokens", 400),
    ("/v1/messages", {"max_tokens": 0}, "max_tokens", 400),
    ("/v1/messages", {"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role", 400),
    ("/v1/messages", {"thinking": {"type": "enabled", "budget_tokens": 1000}}, "thinking.budget_tokens", 400),
    ("/v1/messages", {"thinking": {"type": "enabled", "budget_tokens": 2000}}, "thinking.budget_tokens", 400),
    ("/v1/messages", {"tools": [{"name": "a"}]}, "tools.0.input_schema", 400),
    ("/v1/messages", {"tools": [{"name": "a", "input_schema": {}}] * 2}, "tools", 400),
    ("/v1/messages", {"mcp_servers": [{"url": "x"}]}, "mcp_servers", 400),
    ("/v1/messages", {"system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}] * 5}, "system.4", 400),
    ("/v1/messages", {"model": "other"}, "model", 404),
    ("/v1/messages", {"messages": [{"role": "user", "content": "w " * 9000}]}, "prompt is too long", 400),
]


@pytest.mark.parametrize(("path", "change", "where", "status"), WRONG)
async def test_the_field_at_fault_is_named_in_stream_and_unary_alike(
    path: str, change: dict[str, Any], where: str, status: int
) -> None:
    answers = []
    async with client() as http:
        for stream in (False, True):
            response = await http.post(path, json={**PATHS[path], **change, "stream": stream})
            assert response.status_code == status
            answers.append(check_shape(path, response))

    assert answers[0] == answers[1]
    if path == "/v1/messages":
        assert where in answers[0]["message"]
        assert answers[0]["type"] == ("not_found_error" if status == 404 else "invalid_request_error")
    else:
        assert answers[0]["param"] == where


async def test_an_overflow_has_the_code_that_clients_look_for() -> None:
    async with client() as http:
        response = await http.post("/v1/responses", json={**RESPONSES, "input": "w " * 9000})
        other = await http.post("/v1/messages", json={**MESSAGES, "messages": [{"role": "user", "content": "w " * 9000}]})

    assert response.json()["error"]["code"] == "context_length_exceeded"
    assert other.json()["error"]["message"] == "prompt is too long: 9001 tokens > 8192 maximum"


@pytest.mark.parametrize("path", PATHS)
async def test_half_a_character_is_refused_and_a_whole_one_is_not(path: str) -> None:
    body = json.dumps({**PATHS[path], "user" if "messages" not in path else "seed_name": "X"})
    async with client() as http:
        half = await http.post(path, content=body.replace('"X"', '"\\ud83d"'))
        whole = await http.post(path, content=body.replace('"X"', '"\\ud83d\\ude00"'))

    assert half.status_code == 400
    assert "surrogate" in check_shape(path, half)["message"]
    assert whole.status_code == 200


@pytest.mark.parametrize("path", PATHS)
async def test_a_field_said_twice_is_refused(path: str) -> None:
    body = json.dumps(PATHS[path])[:-1] + ', "model": "other"}'
    async with client() as http:
        response = await http.post(path, content=body)

    assert response.status_code == 400
    assert "model" in check_shape(path, response)["message"]


@pytest.mark.parametrize("path", PATHS)
async def test_a_body_beyond_the_limit_is_refused(path: str) -> None:
    async def endless() -> Any:
        for _ in range(100):
            yield b" " * 1000

    async with client(max_body_bytes=5000) as http:
        whole = await http.post(path, content=b" " * 6000)
        streamed = await http.post(path, content=endless())

    assert whole.status_code == streamed.status_code == 413
    check_shape(path, whole)
    check_shape(path, streamed)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/chat/completions", 405),
        ("PUT", "/v1/messages", 405),
        ("DELETE", "/v1/models", 405),
        ("GET", "/v1/responses", 426),
        ("POST", "/v1/unknown", 404),
        ("GET", "/v1/messages/unknown", 404),
        ("GET", "/nothing/at/all", 404),
        ("POST", "/v1/chat/completions/", 404),
    ],
)
async def test_unknown_paths_and_methods_answer_in_the_shape_of_their_protocol(method: str, path: str, status: int) -> None:
    async with client() as http:
        response = await http.request(method, path)

    assert response.status_code == status
    check_shape(path, response)
    assert (status == 405) == ("allow" in response.headers)


async def test_health_and_root_answer_without_a_model() -> None:
    async with client(FakeEngine(models=())) as http:
        health, root = await http.get("/health"), await http.head("/")
        refused = await http.post("/v1/messages", json=MESSAGES)

    assert health.json() == {"status": "loading"}
    assert health.status_code == 503
    assert root.status_code == 200
    assert refused.status_code == 529
    assert refused.headers["retry-after"] == "1"


@pytest.mark.parametrize("path", GENERATING)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_failure_before_the_first_token_is_an_http_error(path: str, stream: bool) -> None:
    async with client(FakeEngine(fail_after=0)) as http:
        response = await http.post(path, json={**PATHS[path], "stream": stream})

    assert response.status_code == 500
    assert check_shape(path, response)["type"] == ("api_error" if path == "/v1/messages" else "server_error")


@pytest.mark.parametrize("path", GENERATING)
async def test_a_failure_after_tokens_ends_the_stream_in_the_protocols_own_form(path: str) -> None:
    async with client(FakeEngine(fail_after=3)) as http:
        streamed = await http.post(path, json={**PATHS[path], "stream": True})
        whole = await http.post(path, json=PATHS[path])

    last = json.loads(streamed.text.strip().split("\n\n")[-1].split("data: ")[1])
    assert streamed.status_code == 200
    assert whole.status_code == 500
    assert "[DONE]" not in streamed.text
    assert "message_stop" not in streamed.text
    assert "response.completed" not in streamed.text
    assert "fell over" in json.dumps(last)
    assert last.get("type") in (None, "error", "response.failed")


@pytest.mark.parametrize("path", GENERATING)
async def test_an_unexpected_fault_shows_nothing_of_the_inside(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()

    def explode(*_: object) -> None:
        raise KeyError("secret_table")

    monkeypatch.setattr(engine, "submit", explode)
    async with client(engine) as http:
        response = await http.post(path, json=PATHS[path])

    assert response.status_code == 500
    check_shape(path, response)
    assert "secret" not in response.text


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def mutated(body: dict[str, Any], names: list[str]) -> st.SearchStrategy[bytes]:
    """A valid body with one field replaced by something of another kind, or bytes that are no JSON at all."""
    fields = st.tuples(st.sampled_from(sorted({*body, *names})), JSON_VALUES).map(lambda pair: {**body, pair[0]: pair[1]})
    texts = fields.map(lambda value: json.dumps(value).encode())
    cut = st.tuples(texts, st.integers(0, 40)).map(lambda pair: pair[0][: pair[1]])
    return texts | cut | st.binary(max_size=60) | JSON_VALUES.map(lambda value: json.dumps(value).encode())


FIELDS = [
    "messages",
    "input",
    "tools",
    "tool_choice",
    "stop",
    "thinking",
    "system",
    "text",
    "reasoning",
    "n",
    "logit_bias",
    "include",
]


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=max(25, settings.default.max_examples // 4), deadline=None)
@given(data=st.data())
async def test_whatever_comes_in_is_answered_or_refused_never_a_fault_of_ours(path: str, data: st.DataObject) -> None:
    body = data.draw(mutated(PATHS[path], FIELDS))
    engine = FakeEngine()
    async with client(engine) as http:
        response = await http.post(path, content=body, timeout=PATIENCE)

    assert response.status_code == 200 or 400 <= response.status_code < 500
    if response.status_code != 200:
        assert not engine.requests
        check_shape(path, response)


async def test_a_compressed_body_is_named_and_not_misread() -> None:
    async with client() as http:
        response = await http.post("/v1/responses", content=b"\x28\xb5", headers={"content-encoding": "zstd"})

    assert response.status_code == 400
    assert check_shape("/v1/responses", response)["param"] == "content-encoding"


async def test_a_large_body_is_read_like_a_small_one() -> None:
    engine = FakeEngine()
    long = "w" * 200_000
    async with client(engine) as http:
        for path in ("/v1/chat/completions", "/v1/messages"):
            whole = {**PATHS[path], "messages": [{"role": "user", "content": long}]}
            assert (await http.post(path, json=whole)).status_code == 200
            wrong = await http.post(path, json={**whole, "temperature": "hot"})
            assert wrong.status_code == 400
            assert "temperature" in check_shape(path, wrong)["message"]

    assert [request.messages[0].text for request in engine.requests] == [long] * 2


def test_an_unknown_profile_is_refused_at_the_start() -> None:
    with pytest.raises(ValueError, match="wings"):
        create_app(FakeEngine(), ServerSettings(profile="wings"))
