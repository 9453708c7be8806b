"""A controlled experiment on somebody's prefix cache, over Chat Completions: what is reused, seen from the client's side.

    P+Q   P+Q   P+R   P+S   P'+S       P long and fresh for each run, Q R S short questions, P' = P with one word changed

What the server does not report is unknown (None), and so is everything of an exchange that was interrupted; it is never zero.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

Json = dict[str, Any]

Conversation = Generator[tuple[str, Json], Json | None, None]
"""Yields a step's name and the request's body, and is sent the answer."""

STEPS = ("P+Q", "P+Q again", "P+R", "P+S", "P'+S")
_QUESTIONS = {
    "Q": "Name the first animal in the list above.",
    "R": "How many words does the list above have, roughly?",
    "S": "Which word of the list above is the longest?",
}
_WORDS = (
    *("badger", "falcon", "otter", "salmon", "heron", "lynx", "weasel", "marten", "beaver", "raven", "swift", "plover"),
    *("amber", "basalt", "copper", "flint", "granite", "jasper", "marble", "onyx", "quartz", "slate", "topaz", "zircon"),
    *("anchor", "barrel", "candle", "drawer", "engine", "funnel", "girder", "hammer", "jacket", "kettle", "ladder", "oven"),
)
_TOOL: Json = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks up one word and says where it stands in the list.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}


@dataclass(frozen=True)
class Prices:
    """Per million tokens: prompt tokens from cache, prompt tokens computed, output tokens."""

    hit: float
    miss: float
    output: float


@dataclass(frozen=True)
class Plan:
    """What to send: how long P is, how often, with which pauses."""

    model: str
    prefix_words: int = 2_000
    repeats: int = 1
    wait_seconds: float = 1.0
    max_tokens: int = 32
    seed: int = 0
    changed_at: float = 0.5
    """Where in P the changed word of P' stands, as a share."""
    tool_rounds: int = 0
    """A tool loop of at most so many rounds instead of the five steps; 0: the five steps."""


@dataclass(frozen=True)
class Exchange:
    """One request and what came back; None: unknown."""

    step: str
    repeat: int
    status: str
    """complete, interrupted (the stream broke off), refused (an HTTP error), or unreachable."""
    interval_seconds: float | None
    """From the end of the exchange before to the start of this one."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    first_reasoning_seconds: float | None = None
    first_text_seconds: float | None = None
    first_tool_seconds: float | None = None
    total_seconds: float | None = None
    usage: Json | None = None
    """As it came."""
    detail: str = ""

    @property
    def missed_tokens(self) -> int | None:
        """Prompt tokens that were computed."""
        if self.prompt_tokens is None or self.cached_tokens is None:
            return None
        return self.prompt_tokens - self.cached_tokens

    def cost(self, prices: Prices) -> float | None:
        """In the currency of the prices."""
        if self.missed_tokens is None or self.cached_tokens is None or self.output_tokens is None:
            return None
        return (self.cached_tokens * prices.hit + self.missed_tokens * prices.miss + self.output_tokens * prices.output) / 1e6


def run_experiment(
    client: httpx.Client,
    plan: Plan,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Exchange]:
    """Sends the plan, one request after the other; yields each exchange when it has ended."""
    ended: float | None = None
    for repeat in range(plan.repeats):
        conversation = _tool_loop(plan, repeat) if plan.tool_rounds else _five_steps(plan, repeat)
        answer: Json | None = None
        while True:
            try:
                step, body = conversation.send(answer)
            except StopIteration:
                break
            if ended is not None:
                sleep(plan.wait_seconds)
            exchange, answer = _exchange(client, step, repeat, body, ended, clock)
            ended = clock()
            yield exchange


def cached_tokens(usage: Json) -> int | None:
    """Prompt tokens read from cache, in whichever of the known fields; None: the server does not say."""
    details = usage.get("prompt_tokens_details")
    candidates = [
        details.get("cached_tokens") if isinstance(details, dict) else None,
        usage.get("prompt_cache_hit_tokens"),
        usage.get("cached_tokens"),
    ]
    return next((count for count in map(_count, candidates) if count is not None), None)


def _count(value: object) -> int | None:
    """A number of tokens; whatever else a server writes there says nothing."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _exchange(
    client: httpx.Client, step: str, repeat: int, body: Json, ended: float | None, clock: Callable[[], float]
) -> tuple[Exchange, Json]:
    """One request; also the assistant's message as the next request needs it."""
    started = clock()
    interval = started - ended if ended is not None else None
    message: Json = {"role": "assistant", "content": ""}
    first: dict[str, float] = {}
    usage: Json | None = None
    is_complete = False
    try:
        with client.stream("POST", "chat/completions", json=body) as response:
            if response.status_code != 200:
                detail = response.read().decode("utf-8", "replace")[:300]
                return Exchange(step, repeat, "refused", interval, detail=f"{response.status_code} {detail}"), message
            for line in response.iter_lines():
                if not line.startswith("data:"):
                    continue
                data = line[5:].strip()
                if data == "[DONE]":
                    is_complete = True
                    break
                chunk = json.loads(data)
                if not isinstance(chunk, dict):
                    raise ValueError(f"chunk: got {data[:100]!r}, allowed a JSON object")
                usage = chunk.get("usage") or usage
                for choice in chunk.get("choices") or []:
                    if isinstance(choice, dict) and isinstance(choice.get("delta"), dict):
                        _take_delta(choice["delta"], message, first, clock() - started)
        status, detail = ("complete", "") if is_complete else ("interrupted", "the stream ended without [DONE]")
    except httpx.ConnectError as error:
        status, detail = "unreachable", str(error)
    except (httpx.HTTPError, ValueError) as error:
        status, detail = "interrupted", f"{type(error).__name__}: {error}"
    known = usage if status == "complete" and isinstance(usage, dict) else {}
    exchange = Exchange(
        step=step,
        repeat=repeat,
        status=status,
        interval_seconds=interval,
        prompt_tokens=_count(known.get("prompt_tokens")),
        cached_tokens=cached_tokens(known),
        output_tokens=_count(known.get("completion_tokens")),
        first_reasoning_seconds=first.get("reasoning"),
        first_text_seconds=first.get("text"),
        first_tool_seconds=first.get("tool"),
        total_seconds=clock() - started if status == "complete" else None,
        usage=usage,
        detail=detail,
    )
    return exchange, message


def _take_delta(delta: Json, message: Json, first: dict[str, float], seconds: float) -> None:
    """Adds a chunk's delta to the message, and notes when the first piece of each kind came."""
    reasoning = delta.get("reasoning_content") or delta.get("reasoning")
    if reasoning:
        first.setdefault("reasoning", seconds)
    if delta.get("content"):
        first.setdefault("text", seconds)
        message["content"] += delta["content"]
    for piece in delta.get("tool_calls") or []:
        first.setdefault("tool", seconds)
        calls, index = message.setdefault("tool_calls", []), _count(piece.get("index"))
        if index is None:  # some servers count from -1, or not at all: an id begins a call
            index = len(calls) if piece.get("id") or not calls else len(calls) - 1
        while len(calls) <= index:
            calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        call, function = calls[index], piece.get("function") or {}
        call["id"] = piece.get("id") or call["id"]
        call["function"]["name"] += function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""


def _five_steps(plan: Plan, repeat: int) -> Conversation:
    words = _prefix(plan, repeat)
    changed = list(words)
    changed[int(len(words) * plan.changed_at)] = "CHANGED"
    for step, prefix, question in zip(STEPS, (words, words, words, words, changed), "QQRSS", strict=True):
        messages = [{"role": "system", "content": " ".join(prefix)}, {"role": "user", "content": _QUESTIONS[question]}]
        yield step, _body(plan, messages)


def _tool_loop(plan: Plan, repeat: int) -> Conversation:
    """An agent's loop: each request is the one before, the answer, and a tool's result."""
    messages: list[Json] = [
        {"role": "system", "content": " ".join(_prefix(plan, repeat))},
        {
            "role": "user",
            "content": "Look up three words of the list with the tool, one after the other, then say which came first.",
        },
    ]
    for number in range(plan.tool_rounds):
        answer = yield f"round {number + 1}", {**_body(plan, messages), "tools": [_TOOL]}
        calls = answer.get("tool_calls") if answer else None
        if not answer or not calls:
            return
        messages = [*messages, answer]
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": f"position {number + 3}"} for call in calls]


def _prefix(plan: Plan, repeat: int) -> list[str]:
    """P: fresh from its first word on, so that nothing of an earlier run can be reused."""
    generator = random.Random(f"{plan.seed}/{repeat}")
    return [f"Run {plan.seed}.{repeat}:", *(generator.choice(_WORDS) for _ in range(plan.prefix_words))]


def _body(plan: Plan, messages: list[Json]) -> Json:
    return {
        "model": plan.model,
        "messages": messages,
        "max_tokens": plan.max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
