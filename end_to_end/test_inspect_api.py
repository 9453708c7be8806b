"""The inspector of a real server: two turns with a tool through each SDK, then every endpoint is asked what it saw."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from end_to_end.serving import PATIENCE_SECONDS, ServerProcess, started

WEATHER_SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
WEATHER = {"name": "get_weather", "description": "The weather of a city."}
OPENAI_TOOLS: Any = [{"type": "function", "function": {**WEATHER, "parameters": WEATHER_SCHEMA}}]
ANTHROPIC_TOOLS: Any = [{**WEATHER, "input_schema": WEATHER_SCHEMA}]
WORKSPACE = "<env>\ncwd: /tmp\n</env>"
QUESTION = "Weather in Paris? 🌧"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    directory = tmp_path_factory.mktemp("inspect")
    script = directory / "script.json"
    call = {"call": {"name": "get_weather", "arguments": {"city": "Paris", "days": 1}}}
    answers = [{"segments": [{"text": "I look."}, call]}, {"segments": [{"text": "It is mild in Paris."}]}]
    script.write_text(json.dumps({"answers": answers, "tokens_per_step": 2}))
    found = started("--model", "scripted", "--script", str(script), directory=directory)
    yield found
    assert found.stop() in (0, -15, 130)


class Seen:
    """What the inspector of a server says."""

    def __init__(self, server: ServerProcess, headers: dict[str, str] | None = None) -> None:
        self._client = httpx.Client(base_url=f"{server.url}/inspect/api/", headers=headers, timeout=PATIENCE_SECONDS)

    def get(self, path: str) -> Any:
        answer = self._client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def newest(self, count: int) -> list[Any]:
        """The newest requests, oldest of them first, once all have ended."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            listed: list[Any] = self.get("requests")["requests"][:count]
            if len(listed) == count and all(one["state"] in ("ended", "failed", "refused") for one in listed):
                return listed[::-1]
            assert time.monotonic() < deadline, listed
            time.sleep(0.02)

    def newest_kept(self, count: int) -> list[Any]:
        """The same, once their end states are kept as well: behind the answer, and a little later than the client has it."""
        found, deadline = self.newest(count), time.monotonic() + PATIENCE_SECONDS
        while not all(self.get(f"requests/{one['id']}/context")["cache_id"] for one in found):
            assert time.monotonic() < deadline, found
            time.sleep(0.02)
        return found


def openai_turns(server: ServerProcess, system: str, *, stream: bool) -> None:
    client = server.openai()
    messages: list[Any] = [{"role": "system", "content": system}, {"role": "user", "content": QUESTION}]
    asked: Any = {"model": "scripted", "tools": OPENAI_TOOLS}
    if stream:
        with client.chat.completions.stream(messages=messages, **asked) as events:
            for _ in events:
                pass
            said = events.get_final_completion().choices[0].message
    else:
        said = client.chat.completions.create(messages=messages, **asked).choices[0].message
    assert said.tool_calls
    messages.append(said.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
    for call in messages[-1]["tool_calls"]:
        call["function"].pop("parsed_arguments", None)
    messages.append({"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "18 degrees"})
    answer = client.chat.completions.create(messages=messages, **asked)
    assert answer.choices[0].message.content == "It is mild in Paris."


def anthropic_turns(server: ServerProcess, system: str, *, stream: bool) -> None:
    client = server.anthropic()
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    asked: Any = {"model": "scripted", "max_tokens": 200, "system": system, "tools": ANTHROPIC_TOOLS}
    if stream:
        with client.messages.stream(messages=messages, **asked) as events:
            said = events.get_final_message()
    else:
        said = client.messages.create(messages=messages, **asked)
    use = next(block for block in said.content if block.type == "tool_use")
    kept = {"type", "text", "id", "name", "input"}
    messages.append(
        {"role": "assistant", "content": [block.model_dump(include=kept, exclude_none=True) for block in said.content]}
    )
    messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "18 degrees"}]})
    answer = client.messages.create(messages=messages, **asked)
    assert answer.content[0].text == "It is mild in Paris."


@pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
@pytest.mark.parametrize(
    ("turns", "protocol", "client"), [(openai_turns, "chat", "OpenAI/Python"), (anthropic_turns, "messages", "Anthropic/Python")]
)
def test_two_turns_through_an_sdk_are_seen_whole(
    server: ServerProcess, turns: Any, protocol: str, client: str, stream: bool
) -> None:
    system = f"You answer in one sentence, for {protocol}, stream {stream}.\n{WORKSPACE}"
    turns(server, system, stream=stream)

    seen = Seen(server)
    first, second = seen.newest_kept(2)

    # the list
    for summary in (first, second):
        assert summary["protocol"] == protocol
        assert summary["client"].startswith(client)
        assert summary["cached_resident"] + summary["cached_ssd"] + summary["computed_tokens"] == summary["prompt_tokens"]
        assert summary["ttft_ms"] >= summary["queue_ms"] + summary["restore_ms"] + summary["prefill_ms"]
    assert first["transport"] == ("sse" if stream else "unary")
    assert first["end_reason"] == "tool_calls"
    assert second["end_reason"] == "end"
    assert second["cached_resident"] > first["prompt_tokens"]

    # the wire
    wire = seen.get(f"requests/{first['id']}/wire")
    body = json.loads(wire["request"]["body"])
    assert body["tools"]
    assert wire["response"]["status"] == 200
    assert (len(wire["response"]["frames"]) > 5) is stream
    assert any(part["path"] == "tools[0]" and part["tokens"] for part in wire["parts"])
    whole = "".join(frame["data"] for frame in wire["response"]["frames"])
    assert "get_weather" in whole

    # the conversation
    told = seen.get(f"requests/{second['id']}/conversation")
    assert [message["role"] for message in told["messages"]] == ["system", "user", "assistant", "tool"]
    assert told["messages"][2]["parts"][1]["name"] == "get_weather"
    assert json.loads(told["messages"][2]["parts"][1]["text"]) == {"city": "Paris", "days": 1}
    assert all(part["replayed"] for part in told["messages"][2]["parts"])
    assert told["messages"][3]["parts"][0]["text"] == "18 degrees"
    assert told["output"]["parts"][0]["text"] == "It is mild in Paris."
    assert told["tools"][0]["name"] == "get_weather"

    # segments and tokens, on the same text
    segments = seen.get(f"requests/{second['id']}/segments")
    tokens = seen.get(f"requests/{second['id']}/tokens?end=10000")
    assert {segment["origin"] for segment in segments["segments"]} == {"client", "template", "tool_schema", "model"}
    assert segments["text"].endswith("It is mild in Paris.<|im_end|>")
    data = bytes.fromhex("".join(tokens["bytes"]))
    assert data.decode() == segments["text"]
    for segment in segments["segments"]:
        start, end = segment["bytes"]
        first_token, last_token = segment["tokens"]
        assert bytes.fromhex("".join(tokens["bytes"][first_token:last_token])) == data[start:end]
    units = segments["text"].encode("utf-16-le")
    question = next(part for part in told["messages"][1]["parts"] if part["kind"] == "text")
    start, end = tokens["utf16"][question["tokens"][0]][0], tokens["utf16"][question["tokens"][1] - 1][1]
    assert units[2 * start : 2 * end].decode("utf-16-le") == QUESTION

    # context, prefix, decode
    context = seen.get(f"requests/{second['id']}/context")
    assert [span["kind"] for span in context["spans"]] == ["hit_resident", "recomputed", "output"]
    assert context["spans"][0]["tokens"][1] == second["cached_resident"]
    assert context["cuttable"] is True
    prefix = seen.get(f"requests/{second['id']}/prefix")
    assert prefix["cause"] is None
    assert prefix["nearest"]["fork"] == prefix["nearest"]["length"]
    counted = {part["kind"]: part["tokens"] for part in prefix["composition"]}
    assert sum(counted.values()) == second["prompt_tokens"]
    assert counted["tool_results"] == len("18 degrees")
    assert counted["workspace"] == len(WORKSPACE)
    assert counted["tools"] > 300
    decode = seen.get(f"requests/{second['id']}/decode")
    assert "".join(token["text"] for token in decode["tokens"]) == "It is mild in Paris.<|im_end|>"
    assert all(len(range(*step["tokens"])) <= 2 for step in decode["rounds"])

    # the cache
    cache = seen.get("cache")
    states = [state for state in _states(cache["roots"]) if state["request"] in (first["id"], second["id"])]
    assert {state["request"] for state in states} == {first["id"], second["id"]}
    assert cache["gauge"]["num_states"] >= 2


def _states(nodes: list[Any]) -> Iterator[Any]:
    for node in nodes:
        if node["state"] is not None:
            yield node["state"]
        yield from _states(node["children"])


def test_a_clock_in_the_system_prompt_is_found_by_an_ordinary_client(server: ServerProcess) -> None:
    for minute in ("12:00", "12:07"):
        client = server.openai()
        system: Any = {"role": "system", "content": f"A clock stands here: {minute}. " + "word " * 300}
        client.chat.completions.create(model="scripted", messages=[system, {"role": "user", "content": "Hi"}])

    seen = Seen(server)
    _, second = seen.newest_kept(2)
    prefix = seen.get(f"requests/{second['id']}/prefix")

    assert prefix["cause"]["name"] == "changed_clock"
    assert prefix["cause"]["detail"] == "It said '12:00' and says '12:07'."
    assert prefix["cause"]["said"] == [{"name": "changed", "values": {"was": "12:00", "now": "12:07"}}]
    assert prefix["nearest"]["lost_tokens"] > 1500


CUT_BYTE = 195
"""Half of a character, as a token of the small models' byte vocabulary."""


def test_a_token_that_the_guard_excluded_is_named_at_its_place(tmp_path: Path) -> None:
    """One token is always the likeliest: it repeats as often as the guard lets it, and is forbidden for one token then."""
    found = started("--model", "tiny-llama", "--quiet", directory=tmp_path)
    bias: Any = {"model": "tiny-llama", "logit_bias": {str(CUT_BYTE): 100}, "reasoning_effort": "none", "temperature": 0}
    try:
        for free in (False, True):
            said: Any = [{"role": "user", "content": "Hi"}]
            found.openai().chat.completions.create(
                messages=said, max_completion_tokens=60, extra_body={"ignore_eos": free}, **bias
            )
        seen = Seen(found)
        guarded, unguarded = (seen.get(f"requests/{one['id']}/decode")["tokens"] for one in seen.newest_kept(2))
    finally:
        found.stop()

    places = [token["index"] for token in guarded if token["excluded"]]
    assert len(places) == 1
    before, at = guarded[: places[0]], guarded[places[0]]
    assert {token["id"] for token in before} == {CUT_BYTE}
    assert at["excluded"] == [{"id": CUT_BYTE, "text": None}]
    assert at["id"] != CUT_BYTE
    assert at["how"] == "sampled"
    assert {token["id"] for token in unguarded} == {CUT_BYTE}  # what the model would have said
    assert not any(token["excluded"] for token in unguarded)


def test_responses_over_a_websocket_and_in_the_background_are_seen(server: ServerProcess) -> None:
    with server.websocket() as socket:
        socket.send(json.dumps({"type": "response.create", "model": "scripted", "input": "Hello there"}))
        while json.loads(socket.recv(PATIENCE_SECONDS))["type"] != "response.completed":
            pass
    seen = Seen(server)
    (live,) = seen.newest(1)
    wire = seen.get(f"requests/{live['id']}/wire")
    assert (live["transport"], live["protocol"], live["state"]) == ("websocket", "responses", "ended")
    assert json.loads(wire["request"]["body"])["input"] == "Hello there"
    assert json.loads(wire["response"]["frames"][-1]["data"])["type"] == "response.completed"
    assert any(part["path"] == "input" and part["tokens"] for part in wire["parts"])

    response = server.openai().responses.create(model="scripted", input="Hello behind", background=True)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while response.status not in ("completed", "failed"):
        assert time.monotonic() < deadline, response
        time.sleep(0.02)
        response = server.openai().responses.retrieve(response.id)
    (behind,) = seen.newest(1)
    assert (behind["transport"], behind["state"]) == ("background", "ended")
    assert "Hello behind" in seen.get(f"requests/{behind['id']}/segments")["text"]


def test_the_stream_of_news_tells_of_a_request_while_it_runs(server: ServerProcess) -> None:
    states: list[str] = []
    with httpx.stream("GET", f"{server.url}/inspect/api/events", timeout=PATIENCE_SECONDS) as news:
        lines = news.iter_lines()
        assert next(lines) == "event: requests"
        known = {one["id"] for one in json.loads(next(lines).removeprefix("data: "))["requests"]}
        server.openai().chat.completions.create(model="scripted", messages=[{"role": "user", "content": "Hi"}])
        deadline = time.monotonic() + PATIENCE_SECONDS
        for line in lines:
            assert time.monotonic() < deadline, states  # signs of life come whatever happens
            if line.startswith("data: ") and '"requests"' in line:
                changed = json.loads(line.removeprefix("data: "))["requests"]
                states += [one["state"] for one in changed if one["id"] not in known]
                if "ended" in states:
                    break

    assert states[-1] == "ended"


def test_keys_are_asked_for_and_separate_what_is_seen(tmp_path: Path) -> None:
    found = started("--model", "scripted", "--api-key", "sk-test", "--api-key", "sk-other", directory=tmp_path)
    try:
        found.openai().chat.completions.create(model="scripted", messages=[{"role": "user", "content": "A plum."}])
        assert httpx.get(f"{found.url}/inspect/api/requests", timeout=PATIENCE_SECONDS).status_code == 401
        own = Seen(found, {"authorization": "Bearer sk-test"})
        other = Seen(found, {"x-api-key": "sk-other"})
        (summary,) = own.newest_kept(1)
        assert other.get("requests")["requests"] == []
        assert other.get("cache")["roots"] == []
        assert len(own.get("cache")["roots"]) == 1
        path, headers = f"/inspect/api/requests/{summary['id']}/segments", {"x-api-key": "sk-other"}
        assert httpx.get(found.url + path, headers=headers, timeout=PATIENCE_SECONDS).status_code == 404
    finally:
        found.stop()


def test_no_inspect_leaves_nothing(tmp_path: Path) -> None:
    found = started("--model", "scripted", "--no-inspect", directory=tmp_path)
    try:
        for path in ("/inspect", "/inspect/api/about"):
            assert httpx.get(found.url + path, timeout=PATIENCE_SECONDS).status_code == 404
        answer = found.openai().chat.completions.create(model="scripted", messages=[{"role": "user", "content": "Hi"}])
        assert answer.choices[0].message.content
    finally:
        found.stop()
