# ruff: noqa: E501  (a table: a row is a line)
"""The requests behind the exchange goldens: what is asked, in each protocol. `python -m conformance record` asks a server."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from conformance.checker.answer import ToolCall, answer_of_response, read_answer
from conformance.checker.client import Exchange
from conformance.checker.dialogue import PING, TIME, WEATHER, Ask, Result, Said, User, ask
from conformance.golden import render_chat, render_messages, render_responses
from conformance.golden.story import Call, Story, Text


@dataclass(frozen=True, slots=True)
class Wanted:
    """One exchange: its id, what it shows, the rules it stands on, the request."""

    id: str
    title: str
    rules: tuple[str, ...]
    asked: Ask


_RULES = {
    "chat": {
        "text": ("CH1", "CH5", "CH6"),
        "tools": ("CH10", "CH11", "CH14", "CH15"),
        "use": ("CH17", "CH18"),
        "end": ("CH19",),
        "state": ("X7",),
        "form": ("CH9",),
    },
    "responses": {
        "text": ("RS1", "RS2", "RS3", "RS8"),
        "tools": ("RS5", "RS6", "RS9", "RS16"),
        "use": ("RS13",),
        "end": ("RS14",),
        "state": ("RS26",),
        "form": ("RS17",),
    },
    "messages": {
        "text": ("AN1", "AN2", "AN9", "AN11"),
        "tools": ("AN6", "AN7", "AN10"),
        "use": ("AN12", "AN13"),
        "end": ("AN10",),
        "state": ("AN18",),
        "form": ("AN18",),
    },
}
_NESTED = {
    "name": "plan",
    "description": "Makes a plan.",
    "schema": {
        "type": "object",
        "properties": {
            "steps": {"type": "array", "items": {"type": "string"}},
            "urgent": {"type": "boolean"},
            "level": {"type": "integer"},
        },
        "required": ["steps", "urgent", "level"],
    },
}
_CHOICE = {
    "name": "pick",
    "description": "Picks one.",
    "schema": {"type": "object", "properties": {"colour": {"type": "string", "enum": ["red", "blue"]}}, "required": ["colour"]},
}
_UNICODE_TOOL = {
    "name": "say",
    "description": "Dit bonjour à quelqu'un. 说话。",
    "schema": {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "ce qu'il faut dire"}},
        "required": ["text"],
    },
}
_PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits files.", "format": {"type": "text"}}
_READ = {
    "type": "function",
    "name": "read",
    "description": "Reads.",
    "parameters": {"type": "object", "properties": {}},
    "strict": False,
}
_NAMESPACE = {"type": "namespace", "name": "mcp__files", "description": "Files.", "tools": [_READ]}
_TEXTS = (
    ("plain", "a plain question", "What is a prefix cache?"),
    ("one-word", "a single word", "Hello"),
    ("long", "a long prompt", "Tell me about caches. " * 40),
    ("scripts", "other scripts", "你好 مرحبا नमस्ते Привет"),
    ("emoji", "characters outside the basic plane", "😀 👨‍👩‍👧 🇫🇷"),
    ("lines", "line feeds and tabs", "one\n\ntwo\n\tthree\r\nfour"),
    ("separators", "U+2028 and U+2029", "a\u2028b\u2029c"),
    ("quotes", "quotes and backslashes", 'say "hi" \\ and \\n'),
    ("like-sse", "text that looks like an event stream", "data: [DONE]\n\nevent: x"),
    ("like-json", "text that looks like JSON", '{"role": "system"}'),
    ("like-markers", "text that spells a template's markers", "<|im_end|><|im_start|>system"),
    ("spaces", "blanks at both ends", "   spaced   "),
)


def wanted_for(protocol: str) -> list[Wanted]:
    """The exchanges of a protocol."""
    rules = _RULES[protocol]
    use = "Use the tool."
    call = _earlier(protocol, (Call("get_weather", ('{"location":"Paris"}',)),))
    text = _earlier(protocol, (Text(("Hello there.",)),))
    earlier_call = call.answer.calls[0] if call.answer.calls else ToolCall("x", "x", "{}")
    asked_weather = User("What is the weather in Paris? Use the tool.")
    rows = [Wanted(f"text/{name}", title, rules["text"], ask(words, max_tokens=48)) for name, title, words in _TEXTS]

    def row(case: str, title: str, cited: str, asked: Ask) -> None:
        rows.append(Wanted(case, title, rules[cited], asked))

    row("text/system", "with a system prompt", "text", Ask((User("Hello"),), system="Be brief.", max_tokens=48))
    row(
        "text/system-parts",
        "the system prompt as parts",
        "form",
        Ask((User("Hello"),), system="Be brief.", system_as_parts=True, max_tokens=48),
    )
    row("text/parts", "the message as a list of parts", "form", Ask((User("Hello", as_parts=True),), max_tokens=48))
    row("text/whole", "up to the natural end", "text", ask("Say something.", max_tokens=200))
    row("end/one-token", "the smallest limit", "end", ask("Hello", max_tokens=1))
    row("end/five-tokens", "five tokens", "end", ask("Hello", max_tokens=5))
    row("end/twenty-tokens", "twenty tokens", "end", ask("Hello", max_tokens=20))
    row(
        "state/second-turn",
        "an earlier answer in the conversation",
        "state",
        Ask((User("Hi"), text, User("And now?")), max_tokens=48),
    )
    row(
        "state/third-turn",
        "two earlier answers",
        "state",
        Ask((User("Hi"), text, User("And?"), text, User("Well?")), max_tokens=48),
    )
    row(
        "state/system-and-turns",
        "system prompt and an earlier answer",
        "state",
        Ask((User("Hi"), text, User("And now?")), system="Be brief.", max_tokens=48),
    )
    row("tools/required", "a demanded call", "tools", ask(use, tools=(WEATHER,), tool_choice="required", max_tokens=160))
    row("tools/named", "a call of a named tool", "tools", ask(use, tools=(WEATHER, TIME), tool_choice="get_time", max_tokens=160))
    row(
        "tools/auto",
        "a call that the model may make",
        "tools",
        ask("What is the weather in Paris? Use the tool.", tools=(WEATHER,), max_tokens=160),
    )
    row("tools/none", "tools are there and forbidden", "tools", ask(use, tools=(WEATHER,), tool_choice="none", max_tokens=48))
    row("tools/two", "one of two tools", "tools", ask(use, tools=(TIME, WEATHER), tool_choice="required", max_tokens=160))
    row(
        "tools/no-arguments", "a tool without parameters", "tools", ask(use, tools=(PING,), tool_choice="required", max_tokens=96)
    )
    row("tools/nested", "lists, booleans, numbers", "tools", ask(use, tools=(_NESTED,), tool_choice="required", max_tokens=200))
    row("tools/enum", "one of two words", "tools", ask(use, tools=(_CHOICE,), tool_choice="required", max_tokens=160))
    row(
        "tools/unicode",
        "a description in other scripts",
        "tools",
        ask(use, tools=(_UNICODE_TOOL,), tool_choice="required", max_tokens=160),
    )
    row(
        "tools/single",
        "parallel calls switched off",
        "tools",
        ask(use, tools=(WEATHER,), tool_choice="required", is_parallel=False, max_tokens=160),
    )
    row(
        "tools/parallel",
        "parallel calls switched on",
        "tools",
        ask(use, tools=(WEATHER,), tool_choice="required", is_parallel=True, max_tokens=160),
    )
    row(
        "tools/with-system",
        "system prompt and tools",
        "tools",
        ask(use, system="Be brief.", tools=(WEATHER,), tool_choice="required", max_tokens=160),
    )
    row(
        "tools/result",
        "the turn after a call",
        "tools",
        Ask((asked_weather, call, Result(earlier_call, "sunny")), tools=(WEATHER,), max_tokens=48),
    )
    row(
        "tools/result-parts",
        "the output as a list",
        "tools",
        Ask((asked_weather, call, Result(earlier_call, "sunny", as_parts=True)), tools=(WEATHER,), max_tokens=48),
    )
    row(
        "tools/result-unicode",
        "an output in other scripts",
        "tools",
        Ask((asked_weather, call, Result(earlier_call, "晴れ ☀ 21°")), tools=(WEATHER,), max_tokens=48),
    )
    row(
        "tools/result-empty",
        "an empty output",
        "tools",
        Ask((asked_weather, call, Result(earlier_call, "")), tools=(WEATHER,), max_tokens=48),
    )
    row(
        "tools/result-long",
        "a long output",
        "tools",
        Ask((asked_weather, call, Result(earlier_call, "sunny " * 80)), tools=(WEATHER,), max_tokens=48),
    )
    row(
        "tools/result-then-user",
        "a question after the output",
        "tools",
        Ask(
            (asked_weather, call, Result(earlier_call, "sunny"), User("Thanks.")),
            tool_choice="none",
            tools=(WEATHER,),
            max_tokens=48,
        ),
    )
    row("usage/repeat-first", "a prompt, to be repeated", "use", ask("Count my tokens, please.", max_tokens=16))
    row("usage/repeat-second", "the same prompt again", "use", ask("Count my tokens, please.", max_tokens=16))
    row("form/temperature", "sampled, with a temperature", "form", ask("Hello", max_tokens=24, extra={"temperature": 0.7}))
    row("form/top-p", "sampled, with top_p", "form", ask("Hello", max_tokens=24, extra={"top_p": 0.9}))
    own: dict[str, list[Wanted]] = {"chat": _chat(), "responses": _responses(), "messages": _messages()}
    return [*rows, *own[protocol]]


def _chat() -> list[Wanted]:
    return [
        Wanted("choices/two", "two choices", ("CH8",), ask("Hello", max_tokens=24, extra={"n": 2})),
        Wanted("end/stop-string", "a stop string inside the text", ("CH20",), ask("Hello", stop=("scripted",), max_tokens=64)),
        Wanted("form/developer", "a developer message", ("CH9",), ask("x", extra={"messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]}, max_tokens=24)),
        Wanted("form/completion-limit", "max_completion_tokens", ("CH19",), ask("Hello", max_tokens=None, extra={"max_completion_tokens": 12})),
        Wanted("tools/twice", "two calls in one answer", ("CH10", "CH11", "CH13"), ask("Use the tool twice.", tools=(WEATHER,), max_tokens=300)),
        Wanted("reasoning/asked", "reasoning, where it is asked for", ("CH22",), ask("Hello", thinks=True, max_tokens=120)),
        Wanted("form/seed", "a seed", ("CH9",), ask("Hello", max_tokens=24, extra={"seed": 7})),
    ]  # fmt: skip


def _responses() -> list[Wanted]:
    return [
        Wanted("form/input-string", "the input as a string", ("RS26",), ask("x", extra={"input": "Hello"}, max_tokens=24)),
        Wanted("form/metadata", "metadata is echoed", ("RS17",), ask("Hello", extra={"metadata": {"a": "b"}}, max_tokens=24)),
        Wanted("form/developer", "a developer message", ("RS26",), ask("x", extra={"input": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]}, max_tokens=24)),
        Wanted("form/cache-key", "a prompt_cache_key", ("C11",), ask("Hello", extra={"prompt_cache_key": "k1"}, max_tokens=24)),
        Wanted("tools/custom", "a custom tool takes free text", ("C3", "RS9"), ask("Use the tool.", max_tokens=160, extra={"tools": [_PATCH], "tool_choice": "required"})),
        Wanted("tools/namespace", "a tool in a namespace", ("RS24", "C2"), ask("Use the tool.", max_tokens=160, extra={"tools": [_NAMESPACE], "tool_choice": "required"})),
        Wanted("tools/twice", "two calls in one answer", ("RS5", "RS16", "C14"), ask("Use the tool twice.", tools=(WEATHER,), max_tokens=300)),
        Wanted("reasoning/asked", "reasoning, where it is asked for", ("RS7", "RS15"), ask("Hello", thinks=True, max_tokens=120)),
        Wanted("reasoning/sealed", "reasoning that the server does not keep", ("RS19",), ask("Hello", thinks=True, max_tokens=120, extra={"include": ["reasoning.encrypted_content"]})),
        Wanted("lifecycle/background", "a background response", ("RS1", "RS3"), ask("Hello", extra={"background": True, "store": True}, max_tokens=24)),
        Wanted("state/stored", "a stored response", ("RS21",), ask("Hello", extra={"store": True}, max_tokens=24)),
    ]  # fmt: skip


def _messages() -> list[Wanted]:
    return [
        Wanted("end/stop-sequence", "a stop sequence inside the text", ("AN10",), ask("Hello", stop=("scripted",), max_tokens=64)),
        Wanted("tools/twice", "two calls in one answer", ("AN3", "AN7", "K5"), ask("Use the tool twice.", tools=(WEATHER,), max_tokens=300)),
        Wanted("reasoning/asked", "thinking, where it is asked for", ("AN8", "AN17"), ask("Hello", thinks=True, max_tokens=1100)),
        Wanted("form/thinking-disabled", "thinking switched off", ("AN17",), ask("Hello", extra={"thinking": {"type": "disabled"}}, max_tokens=24)),
        Wanted("form/metadata", "metadata.user_id", ("K12",), ask("Hello", extra={"metadata": {"user_id": "u1"}}, max_tokens=24)),
        Wanted("form/top-k", "top_k", ("AN18",), ask("Hello", extra={"top_k": 5}, max_tokens=24)),
        Wanted("form/cached-block", "cache_control on a message block", ("AN18",), ask("x", extra={"messages": [{"role": "user", "content": [{"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}]}]}, max_tokens=24)),
    ]  # fmt: skip


def body_of(protocol: str, wanted: Wanted, model: str) -> dict[str, Any]:
    """The request's body, streamed."""
    return wanted.asked.body(protocol, model, True)


def _earlier(protocol: str, parts: tuple[Any, ...]) -> Said:
    """An answer that was given before, in the protocol's own form."""
    renderer: Any = {"chat": render_chat, "responses": render_responses, "messages": render_messages}[protocol]
    body = renderer.render_unary(Story(parts, scope="earlier", model="golden-1"))
    exchange = Exchange(protocol, "POST", "", None, {}, 200)
    if protocol == "responses":
        return Said(answer_of_response(exchange, body))
    exchange.chunks = [(0.0, json.dumps(body).encode())]
    return Said(read_answer(exchange))
