"""`--reasoning-budget`, `--value-budget` and `--call-budget`, from the command line to what a client receives.

A model of random weights says what it likes for as long as it likes, so it is always a budget that brings something to its end.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import httpx
import pytest

from tests.server.fake_engine import PATIENCE
from zllm_ref.commands.model_arguments import engine_settings
from zllm_ref.commands.serve import add_parser
from zllm_ref.config import ServerSettings
from zllm_ref.engine import Engine
from zllm_ref.server import create_app

MODEL = "tiny-llama"
MOST_TOKENS = 400


def writer(*names: str) -> dict[str, Any]:
    """A tool with a required string for each name."""
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": list(names)}
    return {"type": "function", "function": {"name": "write", "parameters": schema}}


async def answer_of(*arguments: str, **body: Any) -> dict[str, Any]:
    commands = argparse.ArgumentParser()
    add_parser(commands.add_subparsers())
    args = commands.parse_args(["serve", "--model", MODEL, "--threads", "1", "--dialect", "dsml-v4", *arguments])
    engine = Engine(engine_settings(args))
    engine.load()
    try:
        transport = httpx.ASGITransport(app=create_app(engine, ServerSettings()))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            sent = {"model": MODEL, "messages": [{"role": "user", "content": "go"}], "seed": 3, "max_tokens": MOST_TOKENS, **body}
            answer = await client.post("/v1/chat/completions", json=sent, timeout=PATIENCE)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found
    finally:
        engine.close()


def call(answer: dict[str, Any]) -> dict[str, Any]:
    calls = answer["choices"][0]["message"]["tool_calls"]
    assert len(calls) == 1
    found: dict[str, Any] = json.loads(calls[0]["function"]["arguments"])
    return found


@pytest.mark.parametrize("budget", [5, 40])
async def test_a_value_ends_within_its_budget(budget: int) -> None:
    asked = {"tools": [writer("text")], "tool_choice": "required", "parallel_tool_calls": False, "reasoning_effort": "none"}

    free, held = await answer_of(**asked), await answer_of("--value-budget", str(budget), **asked)

    assert free["choices"][0]["finish_reason"] == "length"
    assert held["choices"][0]["finish_reason"] == "tool_calls"
    assert 0 < len(call(held)["text"].encode()) <= budget + 4  # a character that has begun is ended


async def test_a_call_ends_within_its_budget() -> None:
    asked = {
        "tools": [writer("text", "title")],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "reasoning_effort": "none",
    }

    free, held = await answer_of(**asked), await answer_of("--call-budget", "120", **asked)

    assert free["choices"][0]["finish_reason"] == "length"
    assert held["choices"][0]["finish_reason"] == "tool_calls"
    said = call(held)
    assert set(said) == {"text", "title"}
    assert 0 < len("".join(said.values()).encode()) <= 120


@pytest.mark.parametrize("budget", [5, 12])
async def test_a_reasoning_ends_within_its_budget(budget: int) -> None:
    asked = {"reasoning_effort": "high", "max_tokens": 60}

    free, held = await answer_of(**asked), await answer_of("--reasoning-budget", str(budget), **asked)

    def thought(answer: dict[str, Any]) -> int:
        return int(answer["usage"]["completion_tokens_details"]["reasoning_tokens"])

    assert thought(free) > budget + 4
    assert budget - 4 <= thought(held) <= budget + 4
