"""What real clients were seen to send is sent again, field by field, turn after turn: it is answered, and the prefix is kept.

The captures are not part of this repository: `ZLLM_CLIENT_REQUESTS` names their folder. Without it this says so: unproven.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from conformance.checker import StreamCheck
from conformance.checker.unary_check import check_unary
from conformance.checker.websocket_check import WebSocketCheck
from end_to_end.captured import Known, Scenario, filled, headers_of, model_names, scenarios, signed
from end_to_end.serving import PATIENCE_SECONDS, ServerProcess, started
from zllm_ref.protocols.seal import Seal
from zllm_ref.server.response_store import ResponseStore

FOLDER = Path(os.environ["ZLLM_CLIENT_REQUESTS"]) if os.environ.get("ZLLM_CLIENT_REQUESTS") else None
FOUND = list(scenarios(FOLDER)) if FOLDER is not None else []
GRAMMARS = {"/v1/chat/completions": "chat", "/v1/responses": "responses", "/v1/messages": "messages"}
MAY_BE_IGNORED = {
    # hosted tools that Codex cannot leave out, and what it counts on being ignored
    "codex": ("web_search", "tool_search", "client_metadata", "access_programs"),
}
CALLS = {
    "Bash": {"command": "echo hi", "description": "Print hi"},
    "bash": {"command": "echo hi"},
    "exec_command": {"cmd": "echo hi"},
    "get_weather": {"city": "Paris"},
}
SCRIPT = [
    *(
        {"when_offered": name, "segments": [{"reasoning": "Let me see."}, {"call": {"name": name, "arguments": arguments}}]}
        for name, arguments in CALLS.items()
        for _ in range(2)  # the first two turns of whoever offers such a tool
    ),
    {"segments": [{"text": "That is all."}]},
]
OPENING_TOKENS = 16
"""A prompt ends with the opening of the answer, perhaps of a thought that the captured answer did not have."""
TERMINAL = ("response.completed", "response.incomplete", "response.failed", "error")


@dataclass
class Target:
    server: ServerProcess
    seal: Seal
    http: httpx.Client


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    if not FOUND:
        pytest.skip("unproven: no captured requests here (ZLLM_CLIENT_REQUESTS)")
    folder = tmp_path_factory.mktemp("clients")
    names = [part for name in model_names(FOUND) for part in ("--served-model-name", name)]
    (folder / "script.json").write_text(json.dumps({"answers": SCRIPT}), "utf-8")
    files = ["--state-dir", str(folder / "state"), "--script", str(folder / "script.json")]
    server = started("--model", "scripted", *names, *files, "--keep-reasoning", "--quiet", directory=folder)
    try:
        store = ResponseStore(folder / "state", ttl_seconds=1e9, max_bytes=1 << 30, clock=time.time)
        seal = Seal(store.secret(lambda: bytes(32)))
        store.close()
        with httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as http:
            yield Target(server, seal, http)
    finally:
        server.stop()


def post(target: Target, request: dict[str, Any], known: Known) -> dict[str, Any]:
    """Sends one request; its answer keeps grammar and laws. Gives the answer's usage and, for Responses, the object."""
    body = signed(known.referred(filled(request["body"])), target.seal)
    path = request["path"] + (f"?{request['query']}" if request.get("query") else "")
    answer = target.http.post(path, json=body, headers=headers_of(request))
    assert answer.status_code == 200, answer.text
    ignored = answer.headers.get("x-zllm-ignored-fields", "")
    allowed = MAY_BE_IGNORED["codex"] if "codex" in str(request["headers"].get("originator", "")) else ()
    assert all(any(name in one for name in allowed) for one in ignored.split(", ") if one), ignored
    grammar = GRAMMARS.get(request["path"])
    if grammar is None:
        assert answer.json().keys() == {"input_tokens"}
        return answer.json()  # type: ignore[no-any-return]
    if not body.get("stream"):
        assert check_unary(grammar, answer.json()) == []
        return answer.json()  # type: ignore[no-any-return]
    check = StreamCheck(grammar, request=body)
    check.feed(answer.content)
    assert check.finish() == []
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    if grammar == "responses":
        known.responses.append(events[-1]["response"])
        return events[-1]["response"]  # type: ignore[no-any-return]
    if grammar == "messages":
        return next(event for event in events if event["type"] == "message_start")["message"]  # type: ignore[no-any-return]
    return events[-1]  # type: ignore[no-any-return]


def prompt_and_cached(answer: dict[str, Any]) -> tuple[int, int] | None:
    """Tokens of the prompt, and how many of them the cache spared; None where the client did not ask for usage."""
    usage = answer.get("usage")
    if usage is None:
        return None
    if "prompt_tokens" in usage:
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
    if "cache_read_input_tokens" in usage:
        read = usage["cache_read_input_tokens"]
        return usage["input_tokens"] + read + usage["cache_creation_input_tokens"], read
    return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize("scenario", [one for one in FOUND if one.requests[0]["kind"] == "http"] or [None], ids=str)
def test_requests_over_http_are_accepted_field_by_field(target: Target, scenario: Scenario) -> None:
    known = Known()
    before: list[tuple[list[Any], list[tuple[str, str]], int]] = []
    for request in scenario.requests:
        if request["method"] == "HEAD":
            assert target.http.head(request["path"]).status_code in (200, 405)
            continue
        answer = post(target, request, known)
        counts = prompt_and_cached(answer)
        if counts is None or request["path"].endswith("count_tokens"):
            continue
        tools, said = outline_of(filled(request["body"]))
        begun = [tokens for other, begin, tokens in before if other == tools and begin == said[: len(begin)] != said]
        assert not begun or counts[1] >= max(begun) - OPENING_TOKENS, (str(scenario), counts, begun)
        before.append((tools, said, counts[0]))


def outline_of(body: dict[str, Any]) -> tuple[list[Any], list[tuple[str, str]]]:
    """A request's tools, without those that come later, and what is said in it, whatever shape it has."""
    tools = [tool for tool in body.get("tools", ()) if not tool.get("defer_loading")]
    said = body.get("messages") or body["input"]
    if isinstance(said, str):
        return tools, [("user", said)]
    lines = []
    for item in said:
        content = item.get("content") or item.get("output") or ""
        words = content if isinstance(content, str) else "".join(str(part.get("text", part)) for part in content)
        lines.append((item.get("role") or item["type"], words))
    return tools, lines


@pytest.mark.parametrize("scenario", [one for one in FOUND if one.requests[0]["kind"] == "ws_open"] or [None], ids=str)
def test_requests_over_websocket_are_accepted_field_by_field(target: Target, scenario: Scenario) -> None:
    known = Known()
    socket = None
    check = WebSocketCheck()
    try:
        for request in scenario.requests:
            if request["kind"] == "ws_open":
                check = WebSocketCheck()
                headers = {name: value for name, value in headers_of(request).items() if "websocket-" not in name}
                headers = {name: value for name, value in headers.items() if name.lower() not in ("upgrade", "user-agent")}
                socket = target.server.websocket(headers)
            elif request["kind"] == "ws_close":
                assert socket is not None
                socket.close()
                assert check.finish() == []
            else:
                assert socket is not None
                body = signed(known.referred(filled(request["body"])), target.seal)
                check.observe_text(json.dumps(body))
                socket.send(json.dumps(body))
                event: dict[str, Any] = {"type": ""}
                while event["type"] not in TERMINAL:
                    text = str(socket.recv(PATIENCE_SECONDS))
                    check.observe_text(text)
                    event = json.loads(text)
                assert event["type"] == "response.completed", event
                known.responses.append(event["response"])
    finally:
        if socket is not None:
            socket.close()
