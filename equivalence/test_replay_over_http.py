"""Own answers re-enter as the ids that were generated: through every protocol, for every dialect, and after a restart.

A client is what it is over HTTP: it keeps what it was sent, re-spaces arguments as its JSON library does, and sends it back.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.dialect.test_replay import call_text
from tests.engine.conversation import new_engine
from zllm_ref.canonical.message import Role
from zllm_ref.canonical.request import Protocol, Request
from zllm_ref.config import CacheSettings, ServerSettings
from zllm_ref.dialect import ToolDialect
from zllm_ref.dialect.definitions import DEFINITIONS
from zllm_ref.dialect.registry import dialect_names
from zllm_ref.engine import Engine
from zllm_ref.engine.script import TokenScript
from zllm_ref.fence import FenceCompiler
from zllm_ref.server import create_app
from zllm_ref.tokenizer import Vocabulary

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "note": {"type": "string"}}, "required": ["a"]}
CALL = {"name": "add", "arguments": {"a": 1, "note": "Zürich "}}
PLAIN = {
    "answers": [{"segments": [{"text": "Let me look. "}, {"call": CALL}, {"call": CALL}]}, {"segments": [{"text": "Sunny."}]}]
}
THOUGHTFUL = {
    "answers": [
        {"segments": [{"reasoning": "They want a sum."}, {"text": "Let me look. "}, {"call": CALL}]},
        {"segments": [{"text": "Sunny."}]},
        {"segments": [{"text": "Rain."}]},
    ]
}

THINKING: dict[Protocol, dict[str, Any]] = {
    Protocol.CHAT: {"reasoning_effort": "high"},
    Protocol.RESPONSES: {"reasoning": {"effort": "high"}},
    Protocol.MESSAGES: {"thinking": {"type": "enabled", "budget_tokens": 2000}},
}


class Client:
    """One conversation over one protocol; `client_history` is all that it knows."""

    def __init__(self, protocol: Protocol, *, thinks: bool = False) -> None:
        self.protocol = protocol
        self._thinking = THINKING[protocol] if thinks else {}
        self._engine: Engine | None = None
        self._app: Any = None
        self.history: list[dict[str, Any]] = [{"role": "user", "content": "1 and 1?"}]

    async def turn(self, engine: Engine) -> tuple[int, int, int]:
        """One request. → prompt tokens, cached tokens, answer tokens; the history has grown by the answer and its results."""
        if self._engine is not engine:
            self._engine, self._app = engine, create_app(engine, ServerSettings(state_directory=engine.settings.state_directory))
        transport = httpx.ASGITransport(app=self._app)
        path, body = self._request()
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            answer = await client.post(path, json=body, headers={"anthropic-version": "2023-06-01"})
        assert answer.status_code == 200, answer.text
        return self._read(answer.json())

    def ask(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})

    def _request(self) -> tuple[str, dict[str, Any]]:
        match self.protocol:
            case Protocol.CHAT:
                function = {"type": "function", "function": {"name": "add", "parameters": SCHEMA}}
                return "/v1/chat/completions", {
                    "model": "scripted", "messages": self.history, "tools": [function], **self._thinking,
                }  # fmt: skip
            case Protocol.RESPONSES:
                tool = {"type": "function", "name": "add", "parameters": SCHEMA, "strict": False}
                body = {"model": "scripted", "input": self.history, "tools": [tool], "store": False}
                return "/v1/responses", {**body, **self._thinking, "include": ["reasoning.encrypted_content"]}
            case Protocol.MESSAGES:
                body = {"model": "scripted", "messages": self.history, "max_tokens": 4000}
                return "/v1/messages", {**body, **self._thinking, "tools": [{"name": "add", "input_schema": SCHEMA}]}

    def _read(self, answer: dict[str, Any]) -> tuple[int, int, int]:
        usage = answer["usage"]
        match self.protocol:
            case Protocol.CHAT:
                message = answer["choices"][0]["message"]
                calls = message.get("tool_calls") or []
                for call in calls:
                    call["function"]["arguments"] = respaced(call["function"]["arguments"])
                self.history.append({key: value for key, value in message.items() if value is not None})
                self.history += [{"role": "tool", "tool_call_id": call["id"], "content": "18"} for call in calls]
                cached = usage["prompt_tokens_details"]["cached_tokens"]
                return usage["prompt_tokens"], cached, usage["completion_tokens"]
            case Protocol.RESPONSES:
                for item in answer["output"]:
                    if item["type"] == "function_call":
                        item["arguments"] = respaced(item["arguments"])
                calls = [item for item in answer["output"] if item["type"] == "function_call"]
                self.history += answer["output"]
                self.history += [{"type": "function_call_output", "call_id": call["call_id"], "output": "18"} for call in calls]
                return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"], usage["output_tokens"]
            case Protocol.MESSAGES:
                self.history.append({"role": "assistant", "content": answer["content"]})
                calls = [block for block in answer["content"] if block["type"] == "tool_use"]
                results = [{"type": "tool_result", "tool_use_id": call["id"], "content": "18"} for call in calls]
                self.history += [{"role": "user", "content": results}] if results else []
                cached = usage["cache_read_input_tokens"]
                prompt = usage["input_tokens"] + cached + (usage.get("cache_creation_input_tokens") or 0)
                return prompt, cached, usage["output_tokens"]


def respaced(arguments: str) -> str:
    return json.dumps(json.loads(arguments), separators=(",", ":"), ensure_ascii=True)


def speak_freely(
    script: object, asked: Request, dialect: ToolDialect, vocabulary: Vocabulary, fences: FenceCompiler
) -> TokenScript:
    """A first answer in no canonical form (blanks, escapes, numbers), as no renderer would write it."""
    if any(message.role is Role.ASSISTANT for message in asked.messages):
        return TokenScript(tuple(vocabulary.encode_text("Two.")))
    before = ("\n" if dialect.name == "glm-4.5" else "") + "Let me see."
    text = before + call_text(dialect.name, has_content=True)
    return TokenScript((*vocabulary.encode_with_markers(text), dialect.stop_ids[0]))


@pytest.mark.parametrize("restarts", [False, True], ids=["same process", "restarted"])
@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize("dialect", dialect_names())
async def test_turn_two_reuses_all_of_turn_one_its_calls_included(
    dialect: str, protocol: Protocol, restarts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart both the ids of the answer and the state come from disk."""
    monkeypatch.setattr("zllm_ref.engine.bridge.token_script", speak_freely)

    def start() -> Engine:
        cache = CacheSettings(ssd_directory=tmp_path / "ssd", write_behind=False)
        return new_engine(dialect=dialect, cache=cache, state_directory=tmp_path / "state")

    client, engine = Client(protocol), start()
    try:
        prompt, cached, said = await client.turn(engine)
        assert cached == 0
        if restarts:
            engine.close()
            engine = start()
        _, second_cached, _ = await client.turn(engine)
    finally:
        engine.close()

    assert second_cached >= prompt + said


@pytest.mark.parametrize("keeps", [False, True], ids=["template's way", "keep-reasoning"])
@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize("dialect", [name for name in dialect_names() if DEFINITIONS[name].reasoning is not None])
async def test_old_reasoning_ends_the_reuse_where_the_template_drops_it_and_stays_where_it_is_kept(
    dialect: str, protocol: Protocol, keeps: bool, tmp_path: Path
) -> None:
    engine = new_engine(script=THOUGHTFUL, directory=tmp_path, dialect=dialect, keep_reasoning=keeps)
    client = Client(protocol, thinks=True)
    try:
        first_prompt, _, first_said = await client.turn(engine)
        second_prompt, second_cached, second_said = await client.turn(engine)
        client.ask("And 2 and 2?")
        _, third_cached, _ = await client.turn(engine)
    finally:
        engine.close()

    # Within the question's own loop of calls every template keeps the reasoning.
    assert second_cached >= first_prompt + first_said
    is_kept = keeps or dialect in ("dsml-v4", "dsml-v4.1")  # these two keep all reasoning where tools are in the prompt
    if is_kept:
        assert third_cached >= second_prompt + second_said
    else:
        assert first_prompt - 12 <= third_cached < first_prompt + 12  # only framing may lie between the prompt and the fork
