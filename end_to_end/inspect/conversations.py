"""What the SDKs say to the server: a conversation of two turns with a tool, on two protocols, and then one with another clock."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from end_to_end.serving import PATIENCE_SECONDS, ServerProcess

WEATHER = "Sunny in Rome, 24 °C. 罗马 🙂"
QUESTION = "How is the weather in Rome?"
ANSWER = "It is sunny in Rome, 罗马 🙂. Take a hat."
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
STORY = {
    "answers": [
        {"segments": [{"text": "Let me look."}, {"call": {"name": "get_weather", "arguments": {"city": "Rome", "days": 2}}}]},
        {"segments": [{"text": ANSWER}]},
    ]
}
"""Turn by turn."""


def system(clock: str) -> str:
    rules = "Answer in one sentence. Name the city. " * 12
    return f"You are a weather service. The time is {clock}. {rules}"


@dataclass(frozen=True)
class Talk:
    """Ids of the recorded requests."""

    chat_call: str
    chat_answer: str
    messages_call: str
    messages_answer: str
    other_clock: str


def story(directory: Path) -> Path:
    path = directory / "story.json"
    path.write_text(json.dumps(STORY), "utf-8")
    return path


def talk(server: ServerProcess) -> Talk:
    chat_turns(server, "2026-11-30 02:05")
    messages_turns(server, "2026-11-30 02:05")
    chat_turns(server, "2026-11-30 02:06", num_turns=1)
    found = httpx.get(f"{server.url}/inspect/api/requests", timeout=PATIENCE_SECONDS).json()["requests"]
    ids = [summary["id"] for summary in sorted(found, key=lambda summary: summary["number"])]
    for request in ids:
        until_kept(server, request)
    return Talk(*ids)


def until_kept(server: ServerProcess, request: str) -> None:
    """An end state is kept behind the answer, a little later than the client has it. Nothing comes after it."""
    url, deadline = f"{server.url}/inspect/api/requests/{request}/context", time.monotonic() + PATIENCE_SECONDS
    while not httpx.get(url, timeout=PATIENCE_SECONDS).json()["cache_id"]:
        assert time.monotonic() < deadline, f"the end state of {request} was not kept"
        time.sleep(0.02)


def chat_turns(server: ServerProcess, clock: str, num_turns: int = 2) -> None:
    """Streams through the OpenAI SDK; the answer goes back into the history as the SDK holds it."""
    client = server.openai()
    tools: Any = [{"type": "function", "function": {"name": "get_weather", "description": "Weather", "parameters": PARAMETERS}}]
    messages: list[Any] = [{"role": "system", "content": system(clock)}, {"role": "user", "content": QUESTION}]
    for _ in range(num_turns):
        with client.chat.completions.stream(
            model="scripted", messages=messages, tools=tools, temperature=0, stream_options={"include_usage": True}
        ) as stream:
            said = stream.get_final_completion().choices[0].message
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": call.function.arguments}}
            for call in said.tool_calls or ()
        ]
        messages.append({"role": "assistant", "content": said.content, **({"tool_calls": calls} if calls else {})})
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": WEATHER} for call in calls]


def messages_turns(server: ServerProcess, clock: str) -> None:
    """The same through the Anthropic SDK."""
    client = server.anthropic()
    tools: Any = [{"name": "get_weather", "description": "Weather", "input_schema": PARAMETERS}]
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    for _ in range(2):
        with client.messages.stream(
            model="scripted", max_tokens=200, system=system(clock), messages=messages, tools=tools
        ) as stream:
            said = stream.get_final_message()
        messages.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in said.content]})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": WEATHER}
            for block in said.content
            if block.type == "tool_use"
        ]
        if results:
            messages.append({"role": "user", "content": results})
