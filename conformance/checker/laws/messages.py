"""Laws of an Anthropic Messages stream."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from conformance.checker.joined import JsonScanner
from conformance.checker.laws.law import UNTOLD, Laws, Text, at_path

_MAX_KEPT_INPUT = 4_000_000
_CUTTING = ("max_tokens", "model_context_window_exceeded", "refusal")
_INPUTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class _Block:
    __slots__ = ("has_delta", "input", "kind", "kind_of_caller", "name", "scanner", "start_input", "text")

    def __init__(self, kind: str, start: dict[str, Any]) -> None:
        self.kind = kind
        self.name = start.get("name")
        self.text = Text()
        self.start_input = start.get("input")
        self.kind_of_caller = at_path(start, "caller", "type")
        self.scanner = JsonScanner()
        self.input: list[str] | None = []
        self.has_delta = False


class MessagesLaws(Laws):
    def __init__(self, levels: Mapping[str, str], request: Mapping[str, Any] | None = None) -> None:
        super().__init__(levels, request)
        self.keeps_input = False
        """Set where a unary answer is there to compare with: only then the input text is kept, up to a bound."""
        self._open: tuple[int, _Block] | None = None
        self._blocks: list[_Block] = []
        self._ids: set[str] = set()
        self._num_blocks = 0
        self._num_client_calls = 0
        self._has_server_tools = False
        self._is_whole = False
        self._has_error = False
        self._stop_reason: object = None
        self._stop_sequence: object = None
        self._has_message_delta = False
        self._output_tokens = -1
        self._start_usage: dict[str, Any] = {}
        self._model: object = None
        self._cut_input: tuple[str, str] | None = None

    def observe(self, kind: str, payload: dict[str, Any]) -> None:
        if kind == "content_block_delta":
            delta = payload.get("delta")
            if self._open is not None and isinstance(delta, dict):
                self._observe_delta(self._open[1], delta)
        elif kind == "content_block_start":
            self._observe_block(payload)
        elif kind == "content_block_stop":
            self._close_block()
        elif kind == "message_start":
            self._observe_start(payload)
        elif kind == "message_delta":
            self._close_block()
            self._observe_message_delta(payload)
        elif kind == "error":
            self._has_error = True

    def finish(self) -> None:
        self._close_block()
        self._judge_cut_input(self._has_error or self._stop_reason in _CUTTING)
        if self._has_error or self._is_whole or not self._has_message_delta:
            return
        if self._stop_reason is None:
            self.report("AN9", "last message_delta stop_reason", "a stop reason", "null")
        self._check_stop_sequence(self._stop_reason, self._stop_sequence)
        if self._stop_reason == "tool_use" and not self._num_client_calls:
            self.report("AN10", "stop_reason", "tool_use only after a tool_use block", "tool_use without a block")
        if self._stop_reason in ("end_turn", "stop_sequence") and self._num_client_calls:
            self.report("AN10", "stop_reason", "tool_use, since a call was made", self._stop_reason)

    def _check_stop_sequence(self, reason: object, sequence: object) -> None:
        if (reason == "stop_sequence") != (sequence is not None):
            got = f"{reason}, {sequence!r}"
            self.report("AN10", "stop_sequence", "set exactly for stop_reason stop_sequence", got)

    def outline(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "model": self._model,
            "stop_reason": self._stop_reason,
            "stop_sequence": self._stop_sequence,
            "num_blocks": self._num_blocks,
            "usage.prompt": prompt_total(self._start_usage),
            "usage.output_tokens": self._output_tokens,
        }
        for index, block in enumerate(self._blocks):
            at = f"content[{index}]"
            values[f"{at}.type"] = block.kind
            if block.kind in ("text", "thinking"):
                values[f"{at}.{block.kind}"] = block.text
            elif block.kind == "tool_use":
                values[f"{at}.name"] = block.name
                values[f"{at}.input"] = _input_of(block, self._has_error or self._stop_reason in _CUTTING)
        return values

    def _observe_start(self, payload: dict[str, Any]) -> None:
        message = payload.get("message")
        if not isinstance(message, dict):
            return
        self._is_whole = message.get("stop_reason") is not None
        self._model = message.get("model")
        if self._is_whole:
            check_blocks(self, message.get("content"))
            if isinstance(message.get("usage"), dict):
                self.check_counts("AN12", "message.usage", message["usage"])
            self._check_stop_sequence(message.get("stop_reason"), message.get("stop_sequence"))
            return
        if message.get("content"):
            self.report("AN1", "message.content", "[]", message["content"])
        if message.get("stop_sequence") is not None:
            self.report("AN1", "message.stop_sequence", "null", message["stop_sequence"])
        usage = message.get("usage")
        if isinstance(usage, dict):
            self._start_usage = usage
            self.check_counts("AN12", "message.usage", usage)
            if type(usage.get("input_tokens")) is int and prompt_total(usage) == 0:
                self.report("AN12", "message.usage.input_tokens", "the prompt's tokens (with the cached ones, more than 0)", 0)
            self._observe_output_tokens(usage.get("output_tokens"), "message.usage.output_tokens")
            check_cache_split(self, usage)

    def _observe_block(self, payload: dict[str, Any]) -> None:
        self._close_block()
        self._judge_cut_input(may_be_cut=False)
        start, index = payload.get("content_block"), payload.get("index")
        if not isinstance(start, dict) or not isinstance(start.get("type"), str):
            return
        kind = start["type"]
        block = _Block(kind, start)
        self._open = (index if type(index) is int else self._num_blocks, block)
        at = f"content_block[{index}]"
        if kind in ("text", "thinking"):
            for field in (kind, "signature"):
                if start.get(field):
                    self.report("AN6", f"{at}.{field}", "empty at the start", start[field])
        elif kind.endswith("tool_use"):
            self._has_server_tools = self._has_server_tools or kind != "tool_use"
            self._num_client_calls += kind == "tool_use"
            identity = start.get("id")
            if isinstance(identity, str) and identity:
                if identity in self._ids:
                    self.report("AN7", f"{at}.id", "an id of its own", identity)
                self._ids.add(identity)
            self._check_tool_name(at, kind, start.get("name"))

    def _check_tool_name(self, at: str, kind: str, name: object) -> None:
        tools = at_path(self.request, "tools")
        if kind == "tool_use" and isinstance(tools, list) and tools and isinstance(name, str):
            names = {at_path(tool, "name") for tool in tools}
            if None not in names and name not in names:
                self.report("AN7", f"{at}.name", f"one of the request's tools {sorted(map(str, names))}", name)

    def _observe_delta(self, block: _Block, delta: dict[str, Any]) -> None:
        block.has_delta = True
        kind = delta.get("type")
        if kind == "text_delta" or kind == "thinking_delta":
            text = delta.get("text" if kind == "text_delta" else "thinking")
            if isinstance(text, str):
                block.text.add(text)
                self.check_text(block.text, text, f"{kind}")
        elif kind == "input_json_delta" and isinstance(delta.get("partial_json"), str):
            piece = delta["partial_json"]
            block.scanner.feed(piece)
            block.text.add(piece)
            if self.keeps_input and block.input is not None:
                block.input.append(piece)
                if block.text.length > _MAX_KEPT_INPUT:
                    block.input = None

    def _close_block(self) -> None:
        if self._open is None:
            return
        index, block = self._open
        self._open = None
        self._num_blocks += 1
        if self.keeps_input or len(self._blocks) < 64:
            self._blocks.append(block)
        if not block.kind.endswith("tool_use"):
            return
        at = f"content_block[{index}] input"
        has_text = block.text.length > 0
        if block.start_input and (has_text or block.kind_of_caller in (None, "direct")):
            self.report("AN6", at, "{} at the start, the input as deltas", block.start_input)
        if has_text and not block.scanner.is_blank:
            error = block.scanner.finish()
            if error is None and block.scanner.kind != "{":
                error = "is no object"
            if error is not None:
                self._cut_input = (at, f"{block.text}: {error}")

    def _judge_cut_input(self, may_be_cut: bool) -> None:
        """Input that is no JSON object is a fault, unless the answer was cut in its last block."""
        if self._cut_input is not None and not may_be_cut:
            at, got = self._cut_input
            self.report("AN7", at, "nothing or a JSON object", got)
        self._cut_input = None

    def _observe_message_delta(self, payload: dict[str, Any]) -> None:
        self._has_message_delta = True
        delta, usage = payload.get("delta"), payload.get("usage")
        if isinstance(delta, dict):
            if self._stop_reason is not None:
                self.report("AN9", "message_delta", "nothing but message_stop after the stop reason", "message_delta")
            reason = delta.get("stop_reason")
            if reason is None and delta.get("stop_sequence") is not None:
                self._check_stop_sequence(reason, delta.get("stop_sequence"))
            if reason is not None or self._stop_reason is None:
                self._stop_reason = reason
                self._stop_sequence = delta.get("stop_sequence")
        if isinstance(usage, dict):
            self.check_counts("AN12", "usage", usage)
            self._observe_output_tokens(usage.get("output_tokens"), "usage.output_tokens")
            if not self._has_server_tools and self._start_usage:
                for name in _INPUTS:
                    now, before = usage.get(name), self._start_usage.get(name)
                    if type(now) is int and type(before) is int and now < before:
                        self.report("AN12", f"usage.{name}", f"at least the {before} of message_start", now)

    def _observe_output_tokens(self, count: object, at: str) -> None:
        if type(count) is int:
            if count < self._output_tokens:
                self.report("AN12", at, f"at least {self._output_tokens}, the count before", count)
            self._output_tokens = count


def prompt_total(usage: Mapping[str, Any]) -> int:
    """AN13: the whole prompt is the sum of the three."""
    return sum(value for name in _INPUTS if type(value := usage.get(name)) is int)


_BLOCK_FIELDS: dict[str, tuple[tuple[str, type], ...]] = {
    "text": (("text", str),),
    "thinking": (("thinking", str), ("signature", str)),
    "tool_use": (("id", str), ("name", str), ("input", dict)),
}


def check_blocks(laws: Laws, content: object) -> None:
    """AN15: whole blocks carry the fields of their kind."""
    for index, block in enumerate(content if isinstance(content, list) else ()):
        kind = at_path(block, "type")
        if not isinstance(kind, str):
            laws.report("AN15", f"content[{index}].type", "the kind of the block", kind)
            continue
        for name, wanted in _BLOCK_FIELDS.get(kind, ()):
            if not isinstance(block.get(name), wanted):
                laws.report("AN15", f"content[{index}].{name}", wanted.__name__, block.get(name))


def check_cache_split(laws: Laws, usage: Mapping[str, Any]) -> None:
    """What was written to the cache is the sum of its two lifetimes, where both are told."""
    split = usage.get("cache_creation")
    if isinstance(split, dict):
        laws.check_sum(
            "AN12",
            "usage.cache_creation_input_tokens",
            usage.get("cache_creation_input_tokens"),
            split.get("ephemeral_5m_input_tokens"),
            split.get("ephemeral_1h_input_tokens"),
        )


def _input_of(block: _Block, may_be_cut: bool) -> object:
    """What the unary message must hold. Input that the token limit cut is no JSON, and a unary message holds JSON only: what
    becomes of it there (nothing, `{}`, the members that were whole) no vendor says, so nothing is compared."""
    if block.input is None or not block.text.length:
        return block.start_input
    try:
        return json.loads("".join(block.input))
    except ValueError:
        return UNTOLD if may_be_cut else "".join(block.input)
