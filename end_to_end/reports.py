"""The smallest request of every report in `tests/protocols/field_reports.json`, in their order, and what its answer must show.

Every request is sent streamed and whole, with one token and with a thousand tokens a step; the checker judges all of it. What
is particular to a report stands beside it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "minLength": 3}}, "required": ["city"]}
LONG = "Words that make a long prompt, one after another. " * 40
CHAT_TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": SCHEMA}}
TOOL = {"type": "function", "name": "get_weather", "parameters": SCHEMA}
USE_TOOL = {"name": "get_weather", "input_schema": SCHEMA}
TALKS = "talk_and_call"
"""A tool of this name makes the scripted model think, speak, and call it twice."""


@dataclass(frozen=True)
class Told:
    """One answer in both forms: the events of the stream, the unary object, and what was asked before (turns)."""

    events: list[dict[str, Any]]
    unary: dict[str, Any]

    def kinds(self) -> list[str]:
        return [event.get("type", "chunk") for event in self.events]

    def deltas(self) -> list[dict[str, Any]]:
        return [choice["delta"] for event in self.events for choice in event.get("choices", ())]

    def fragments(self) -> list[dict[str, Any]]:
        return [call for delta in self.deltas() for call in delta.get("tool_calls", ())]

    def finishes(self) -> list[str]:
        return [
            choice["finish_reason"] for event in self.events for choice in event.get("choices", ()) if choice["finish_reason"]
        ]

    @property
    def last_response(self) -> dict[str, Any]:
        response: dict[str, Any] = self.events[-1]["response"]
        return response


Expectation = Callable[[Told], object]


@dataclass(frozen=True)
class Report:
    """`ends` other than `ok`: `status` is the HTTP error of both forms, `fails` the in-band failure of the stream."""

    path: str
    body: dict[str, Any]
    expect: Expectation = lambda told: True
    ends: str = "ok"
    status: int = 400
    repeat: int = 1
    turns: tuple[Callable[[Told], dict[str, Any]], ...] = field(default=())
    """Bodies of further requests, made from the answer before."""


def _tool(name: str, form: str) -> dict[str, Any]:
    bare = {"name": name, "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}}
    if form == "chat":
        return {"type": "function", "function": bare}
    return {"type": "function", **bare} if form == "responses" else {"name": name, "input_schema": bare["parameters"]}


def chat(text: str = "x", expect: Expectation = lambda told: True, **body: Any) -> Report:
    told = {"messages": [{"role": "user", "content": text}], **body}
    return Report("/v1/chat/completions", told, expect)


def responses(text: Any = "x", expect: Expectation = lambda told: True, **body: Any) -> Report:
    return Report("/v1/responses", {"input": text, **body}, expect)


def messages(text: str = "x", expect: Expectation = lambda told: True, **body: Any) -> Report:
    told = {"messages": [{"role": "user", "content": text}], "max_tokens": 4000, **body}
    return Report("/v1/messages", told, expect)


def failing(report: Report, ends: str, status: int = 400) -> Report:
    return Report(report.path, report.body, report.expect, ends, status)


W: dict[str, Any] = {"tools": [CHAT_TOOL], "tool_choice": "required"}
W2: dict[str, Any] = {"tools": [CHAT_TOOL]}
U: dict[str, Any] = {"stream_options": {"include_usage": True}}
CT: dict[str, Any] = {"tools": [_tool(TALKS, "chat")], "reasoning_effort": "low"}
RT: dict[str, Any] = {"tools": [_tool(TALKS, "responses")], "reasoning": {"effort": "low"}}
MT: dict[str, Any] = {"tools": [_tool(TALKS, "messages")], "thinking": {"type": "adaptive"}}


def _calls(told: Told) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = told.unary["choices"][0]["message"].get("tool_calls", [])
    return calls


def _joined(told: Told) -> list[str]:
    pieces: dict[int, str] = {}
    for call in told.fragments():
        pieces[call["index"]] = pieces.get(call["index"], "") + call["function"].get("arguments", "")
    return [pieces[index] for index in sorted(pieces)]


def _opened(told: Told) -> list[tuple[int, str, str]]:
    return [(call["index"], call["id"], call["function"]["name"]) for call in told.fragments() if "id" in call]


def _text(told: Told) -> str:
    return "".join(delta.get("content") or "" for delta in told.deltas())


def _same_text(told: Told) -> bool:
    return _text(told) == (told.unary["choices"][0]["message"]["content"] or "")


def _count(told: Told, kind: str) -> int:
    return told.kinds().count(kind)


def _ids_are_constant(told: Told) -> bool:
    items = {event["output_index"]: event["item"]["id"] for event in told.events if event["type"].endswith("item.added")}
    done = {event["output_index"]: event["item"]["id"] for event in told.events if event["type"].endswith("item.done")}
    named = all(event["item_id"] == items[event["output_index"]] for event in told.events if "item_id" in event)
    return named and items == done and list(items.values()) == [item["id"] for item in told.last_response["output"]]


def _blocks_are_in_series(told: Told) -> bool:
    order = [
        (event["type"], event["index"]) for event in told.events if event["type"] in ("content_block_start", "content_block_stop")
    ]
    wanted = [(kind, index) for index in range(len(order) // 2) for kind in ("content_block_start", "content_block_stop")]
    return order == wanted


def _usage(told: Told) -> dict[str, Any]:
    start: dict[str, Any] = told.events[0]["message"]["usage"]
    return start


REPORTS: tuple[Report, ...] = (
    chat(
        expect=lambda told: _joined(told) == [call["function"]["arguments"] for call in _calls(told)] == ['{"city": "xxx"}'], **W
    ),
    chat(expect=lambda told: all(identity for _, identity, _ in _opened(told)), **W),
    chat(expect=_same_text, **W),
    chat("twice", lambda told: len(_calls(told)) == 2 and _joined(told) == ['{"city": "xxx"}'] * 2, **W2),
    chat(expect=lambda told: len(told.fragments()) > 1, **W),
    chat(expect=lambda told: told.finishes() == ["tool_calls"], **W),
    failing(chat("Fail after 0 tokens."), "status", 500),
    failing(chat("w " * 70_000), "status", 400),
    chat(
        expect=lambda told: told.events[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0,
        reasoning_effort="low",
        **U,
    ),
    chat(
        "twice",
        lambda told: [index for index, _, _ in _opened(told)] == [0, 1] and len({one[1] for one in _opened(told)}) == 2,
        **W2,
    ),
    chat(expect=lambda told: [index for index, _, _ in _opened(told)] == [0], **W2),
    chat(expect=lambda told: told.finishes() == ["stop", "stop"], n=2),
    chat(expect=lambda told: told.events[-1]["usage"]["total_tokens"] > 0 and told.events[-1]["choices"] == [], **U),
    chat(expect=lambda told: _same_text(told) and _text(told).strip() == "Well then." and len(_calls(told)) == 2, **CT),
    chat(expect=lambda told: all(one["finish_reason"] != "" for event in told.events for one in event.get("choices", ()))),
    chat(expect=lambda told: told.finishes() == ["tool_calls"], **W),
    failing(chat(temperature="hot"), "status", 400),
    chat(expect=lambda told: all(type(call["index"]) is int for call in told.fragments()), **W),
    chat("twice", lambda told: len({event["id"] for event in told.events}) == 1 and told.finishes() == ["tool_calls"], **W2),
    chat(expect=lambda told: told.finishes() == [told.unary["choices"][0]["finish_reason"]], **W),
    chat(expect=lambda told: told.finishes() == ["stop"]),
    chat(expect=lambda told: len(_opened(told)) == len(_calls(told)) == 1, **W),
    chat(expect=lambda told: all(set(call) == {"index", "function"} for call in told.fragments() if "id" not in call), **W),
    chat(expect=lambda told: told.finishes() == ["tool_calls"] and _opened(told)[0][2] == "get_weather", **W),
    chat(expect=_same_text),
    failing(chat("Fail after 5 tokens.", lambda told: "error" in told.events[-1]), "fails"),
    failing(chat("Fail after 5 tokens.", lambda told: not told.finishes()), "fails"),
    chat("twice", lambda told: [json.loads(text) for text in _joined(told)] == [{"city": "xxx"}] * 2, **W2),
    responses(expect=lambda told: [event["sequence_number"] for event in told.events] == list(range(len(told.events)))),
    responses(expect=lambda told: _count(told, "response.content_part.added") == _count(told, "response.output_item.added") == 1),
    responses(expect=_ids_are_constant, **RT),
    responses(expect=lambda told: {event["content_index"] for event in told.events if "content_index" in event} == {0}),
    responses(expect=lambda told: _count(told, "response.output_text.done") == _count(told, "response.output_item.done") == 1),
    responses(expect=_ids_are_constant),
    responses(
        expect=lambda told: "tool_call" not in json.dumps([event for event in told.events if "text" in event["type"]]), **RT
    ),
    Report(
        "/v1/responses",
        {"input": "x", "tools": [TOOL]},
        turns=(
            lambda told: {
                "previous_response_id": told.unary["id"],
                "tools": [TOOL],
                "input": [{"type": "function_call_output", "call_id": told.unary["output"][-1]["call_id"], "output": "fair"}],
            },
        ),
    ),
    Report(
        "/v1/responses",
        {"input": LONG, "reasoning": {"effort": "low"}},
        lambda told: (
            told.unary["usage"]["input_tokens_details"]["cached_tokens"] > 0
            and told.unary["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
        ),
        repeat=2,
    ),
    responses(
        expect=lambda told: (
            [(item["namespace"], item["name"]) for item in told.last_response["output"]] == [("group", "get_weather")]
        ),
        tools=[{"type": "namespace", "name": "group", "description": "x", "tools": [TOOL]}],
    ),
    responses(
        expect=lambda told: _count(told, "response.function_call_arguments.delta") > 0, tools=[TOOL], tool_choice="required"
    ),
    responses(expect=lambda told: _count(told, "response.output_text.done") == 1),
    responses(expect=_ids_are_constant),
    failing(responses(tools=[{"type": "mcp", "server_label": "x", "server_url": "http://x"}]), "status", 400),
    responses(expect=lambda told: told.last_response["output"][0]["type"] == "reasoning", **RT),
    responses(LONG, lambda told: told.kinds()[-1] == "response.completed"),
    Report(
        "/v1/responses",
        {"input": "x", "instructions": "Be a pirate."},
        turns=(lambda told: {"previous_response_id": told.unary["id"], "input": "y"},),
    ),
    Report(
        "/v1/responses",
        {"input": "x"},
        turns=tuple(lambda told: {"previous_response_id": told.last_response["id"], "input": "y"} for _ in range(3)),
    ),
    failing(responses(previous_response_id="resp_never"), "status", 400),
    responses(
        [
            {"type": "message", "role": "user", "content": "x"},
            {"type": "custom_tool_call", "call_id": "c", "name": "exec", "input": "1"},
            {"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "1"}]},
            {"type": "message", "role": "user", "content": "y"},
        ],
        lambda told: told.last_response["output"][0]["type"] == "custom_tool_call",
        tools=[{"type": "custom", "name": "exec"}],
    ),
    responses(expect=lambda told: told.last_response["id"].startswith("resp_") and told.last_response["output"]),
    Report("websocket", {"input": "x"}),
    Report("upgrade", {}),
    responses(
        expect=lambda told: _count(told, "response.output_item.added") == _count(told, "response.output_item.done") == 4, **RT
    ),
    responses(expect=lambda told: all("logprobs" in event for event in told.events if "output_text" in event["type"])),
    responses(
        expect=lambda told: next(event for event in told.events if event["type"].endswith("item.done"))["item"][
            "encrypted_content"
        ],
        reasoning={"effort": "low"},
        include=["reasoning.encrypted_content"],
    ),
    messages(expect=_blocks_are_in_series, **MT),
    messages(
        "twice", lambda told: [block["input"] for block in told.unary["content"]] == [{"city": "xxx"}] * 2, tools=[USE_TOOL]
    ),
    messages(expect=lambda told: told.unary["content"][0]["signature"], thinking={"type": "adaptive"}),
    messages(expect=_blocks_are_in_series, **MT),
    messages(expect=lambda told: [block["type"] for block in told.unary["content"]] == ["text"]),
    Report("/v1/messages?beta=true", messages().body),
    messages(expect=_blocks_are_in_series, thinking={"type": "adaptive"}),
    messages(expect=lambda told: any(event.get("delta", {}).get("type") == "signature_delta" for event in told.events), **MT),
    messages(
        expect=lambda told: told.unary["content"][0]["input"] == {"city": "xxx"}, tools=[USE_TOOL], tool_choice={"type": "any"}
    ),
    Report(
        "/v1/messages",
        messages(LONG).body,
        lambda told: _usage(told)["cache_read_input_tokens"] > _usage(told)["input_tokens"],
        repeat=2,
    ),
    Report("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "x"}]}),
    Report("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "x"}], "system": LONG, "tools": [USE_TOOL]}),
    messages(expect=_blocks_are_in_series, **MT),
    Report(
        "/v1/messages",
        {
            **messages(LONG).body,
            "system": [{"type": "text", "text": "x-anthropic-billing-header: a=1;"}, {"type": "text", "text": "You help."}],
        },
        turns=(
            lambda told: {
                **messages(LONG).body,
                "system": [{"type": "text", "text": "x-anthropic-billing-header: b=2;"}, {"type": "text", "text": "You help."}],
            },
        ),
    ),
    messages(
        expect=lambda told: (
            [block["input"] for block in told.unary["content"] if block["type"] == "tool_use"] == [{"text": "é"}] * 2
        ),
        **MT,
    ),
    messages(expect=_blocks_are_in_series, **MT),
    messages(expect=lambda told: _usage(told)["input_tokens"] + _usage(told)["cache_read_input_tokens"] > 0),
    messages(expect=lambda told: told.unary["stop_reason"] == "tool_use" and len(told.unary["content"]) == 4, **MT),
    messages(expect=_blocks_are_in_series, **MT),
    responses(expect=lambda told: told.last_response["output"] and told.last_response["usage"]["total_tokens"]),
    responses(),
    responses(expect=lambda told: all("type" in event for event in told.events)),
    responses(
        expect=lambda told: (told.kinds()[-1], told.last_response["status"]) == ("response.incomplete", "incomplete"),
        max_output_tokens=5,
    ),
    Report(
        "/v1/responses",
        {"input": "x", "store": False},
        turns=(lambda told: {"previous_response_id": told.unary["id"], "input": "y"},),
        ends="chain",
    ),
)
