"""X7: an answer that comes back makes the same prompt ids by every path, and they begin with those that were generated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conversation import Answer, new_engine
from tests.protocols.wires import SEAL
from zllm_ref.canonical.model_card import ModelCard
from zllm_ref.canonical.request import Request
from zllm_ref.dialect.registry import dialect_names
from zllm_ref.engine import Engine
from zllm_ref.protocols import anthropic_messages, openai_chat, openai_responses
from zllm_ref.protocols.body import read_body
from zllm_ref.protocols.context import RequestContext
from zllm_ref.protocols.openai_responses import History, stored

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
FUNCTION = {"name": "get_weather", "description": "The weather in a city.", "parameters": SCHEMA}
SEGMENTS = [
    {"reasoning": "Which city, I wonder? Zürich."},
    {"text": "Let me look 🙂."},
    {"call": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}}},
    {"call": {"name": "get_weather", "arguments": '{"city": "Bern", "days": 1e0}'}},
]
SYSTEM, ASKED, RESULTS = "Be brief.", "And the weather?", ("fair", "rain")


class Paths:
    """The same two turns through every protocol."""

    def __init__(self, engine: Engine, step: int) -> None:
        self._engine = engine
        self._step = step
        self._count = 0

    def context(self) -> RequestContext:
        self._count += 1
        return RequestContext(
            request_id=f"{self._count:024x}",
            clock=lambda: 1,
            models=(ModelCard("scripted", 1, 8192),),
            seal=SEAL,
            tokens_per_step=self._step,
        )

    def folded(self, request: Request, stream: Any, accumulator: Any) -> dict[str, Any]:
        answer = Answer()
        self._engine.submit(request, answer)
        assert answer.done.wait(120)
        for event in answer.events:
            for frame in stream.on(event):
                accumulator.on(frame)
        body: dict[str, Any] = json.loads(accumulator.result())
        return body

    def ids(self, request: Request) -> tuple[int, ...]:
        return self._engine.prompt(request).ids

    def chat(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        body: dict[str, Any] = {
            "model": "scripted",
            "tools": [{"type": "function", "function": FUNCTION}],
            "reasoning_effort": "low",
        }
        said: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": ASKED}]
        first = openai_chat.parse_request(_body(body, messages=said), self.context())
        stream = openai_chat.Stream(first, include_usage=True)
        message = self.folded(first.request, stream, openai_chat.Accumulator())["choices"][0]["message"]
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": result}
            for call, result in zip(message["tool_calls"], RESULTS, strict=True)
        ]
        second = openai_chat.parse_request(_body(body, messages=[*said, message, *results]), self.context())
        return self.ids(first.request), self.ids(second.request)

    def responses(self, *, sealed: bool = False, chained: bool = False) -> tuple[tuple[int, ...], tuple[int, ...]]:
        include = ["reasoning.encrypted_content"] if sealed else []
        reasoning = {"effort": "low", "summary": "auto" if sealed else None}
        body: dict[str, Any] = {"model": "scripted", "tools": [{"type": "function", **FUNCTION}]}
        body |= {"include": include, "reasoning": reasoning}
        said: list[Any] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": ASKED}]
        first = openai_responses.parse_request(_body(body, input=said), self.context())
        output = self.folded(first.request, openai_responses.Stream(first), openai_responses.Accumulator())["output"]
        calls = [item["call_id"] for item in output if item["type"] == "function_call"]
        results = [
            {"type": "function_call_output", "call_id": call, "output": result}
            for call, result in zip(calls, RESULTS, strict=True)
        ]
        history = History()
        if chained:
            kept = stored.render_items(stored.with_ids(first.input_items, first.request.request_id))
            history = History(stored.items_of(kept, json.dumps({"output": output})))
        given = results if chained else [*said, *output, *results]
        second = openai_responses.parse_request(_body(body, input=given), self.context(), history)
        return self.ids(first.request), self.ids(second.request)

    def messages(self, display: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        tool = {"name": FUNCTION["name"], "description": FUNCTION["description"], "input_schema": SCHEMA}
        thinking = {"type": "adaptive", "display": display}
        body: dict[str, Any] = {"model": "scripted", "max_tokens": 4000, "tools": [tool], "system": SYSTEM}
        body |= {"thinking": thinking, "output_config": {"effort": "low"}}
        said: list[Any] = [{"role": "user", "content": ASKED}]
        first = anthropic_messages.parse_request(_body(body, messages=said), self.context())
        answer = self.folded(first.request, anthropic_messages.Stream(first), anthropic_messages.Accumulator())
        calls = [block["id"] for block in answer["content"] if block["type"] == "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": call, "content": result} for call, result in zip(calls, RESULTS, strict=True)
        ]
        said += [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": results}]
        second = anthropic_messages.parse_request(_body(body, messages=said), self.context())
        return self.ids(first.request), self.ids(second.request)


def _body(body: dict[str, Any], **more: Any) -> Any:
    return read_body(json.dumps({**body, **more}).encode())


@pytest.mark.parametrize("dialect", dialect_names())
def test_an_answer_fed_back_by_every_path_gives_the_same_prompt_ids(dialect: str, tmp_path: Path) -> None:
    engine = new_engine(script={"answers": [{"segments": SEGMENTS}]}, directory=tmp_path, dialect=dialect)
    try:
        found = {}
        for step in (1, 1000):
            paths = Paths(engine, step)
            found |= {
                ("chat", step): paths.chat(),
                ("items", step): paths.responses(),
                ("sealed items", step): paths.responses(sealed=True),
                ("a chain", step): paths.responses(chained=True),
                ("blocks", step): paths.messages("summarized"),
                ("hidden blocks", step): paths.messages("omitted"),
            }
    finally:
        engine.close()

    first, second = found["chat", 1]
    assert {name: ids == (first, second) for name, ids in found.items()} == dict.fromkeys(found, True)
    assert second[: len(first)] == first
