"""Laws of a Chat Completions stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.checker.joined import JsonScanner
from conformance.checker.laws.law import Laws, Text, at_path


class _Call:
    __slots__ = ("arguments", "is_custom", "name", "scanner")

    def __init__(self, name: object, is_custom: bool) -> None:
        self.name = name
        self.is_custom = is_custom
        self.arguments = Text()
        self.scanner = JsonScanner()


class _Choice:
    __slots__ = (
        "calls",
        "content",
        "finish_reason",
        "ids",
        "is_cumulative",
        "last_content",
        "num_content",
        "open_call",
        "reasoning",
        "refusal",
    )

    def __init__(self) -> None:
        self.content = Text()
        self.reasoning = Text()
        self.refusal = Text()
        self.calls: list[tuple[object, Text]] = []
        self.ids: set[str] = set()
        self.open_call: tuple[int, _Call] | None = None
        self.finish_reason: str | None = None
        self.last_content = ""
        self.num_content = 0
        self.is_cumulative = True


class ChatLaws(Laws):
    def __init__(self, levels: Mapping[str, str], request: Mapping[str, Any] | None = None) -> None:
        super().__init__(levels, request)
        self._choices: dict[int, _Choice] = {}
        self._usage: dict[str, Any] | None = None
        self._has_null_usage = False
        self._has_error = False
        self._model: object = None

    def observe(self, kind: str, payload: dict[str, Any]) -> None:
        if kind != "chunk":
            self._has_error = self._has_error or kind == "error"
            return
        self.constant("CH1", "id", payload.get("id"))
        self.constant("CH2", "created", payload.get("created"))
        self.constant("CH3", "model", payload.get("model"))
        choices = payload.get("choices")
        usage = payload.get("usage")
        if isinstance(usage, dict):
            self._observe_usage(usage, choices)
        elif "usage" in payload:
            self._has_null_usage = True
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and isinstance(choice.get("delta"), dict):
                index = choice.get("index")
                self._observe_choice(index if type(index) is int else 0, choice, choice["delta"])

    def finish(self) -> None:
        if self._has_error:
            return
        wants_usage = at_path(self.request, "stream_options", "include_usage") is True
        if self._usage is None and (wants_usage or (self._has_null_usage and self.request is None)):
            self.report("CH17", "usage chunk", "one chunk with choices [] and usage", "none")
        if (
            wants_usage is False
            and self.request is not None
            and self._usage is not None
            and at_path(self.request, "stream") is True
        ):
            self.report("CH17", "usage", "none, since include_usage was not asked for", "usage", "SHOULD")
        for index, choice in self._choices.items():
            self._finish_choice(index, choice)
        wanted = at_path(self.request, "n")
        if type(wanted) is int and wanted != len(self._choices) and self._choices:
            self.report("CH8", "choices", f"{wanted} as asked for", str(len(self._choices)))

    def outline(self) -> dict[str, Any]:
        values: dict[str, Any] = {"model": self._constants.get("model")}
        for index, choice in self._choices.items():
            at = f"choices[{index}]"
            values[f"{at}.content"] = choice.content
            values[f"{at}.reasoning"] = choice.reasoning
            values[f"{at}.refusal"] = choice.refusal
            values[f"{at}.finish_reason"] = choice.finish_reason
            values[f"{at}.num_calls"] = len(choice.calls)
            for number, (name, arguments) in enumerate(choice.calls):
                values[f"{at}.calls[{number}].name"] = name
                values[f"{at}.calls[{number}].arguments"] = arguments
        if self._usage is not None:
            for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
                values[f"usage.{name}"] = self._usage.get(name)
        return values

    def _observe_usage(self, usage: dict[str, Any], choices: object) -> None:
        if choices:
            self.report("CH17", "usage", "null on a chunk with choices", "usage")  # CH17
        self._usage = usage
        check_chat_usage(self, usage)

    def _observe_choice(self, index: int, choice: dict[str, Any], delta: dict[str, Any]) -> None:
        state = self._choices.get(index)
        if state is None:
            if len(self._choices) >= 1024:
                return
            state = self._choices[index] = _Choice()
        content = delta.get("content")
        if isinstance(content, str) and content:
            self._observe_content(index, state, content)
        for field in ("reasoning_content", "reasoning"):
            text = delta.get(field)
            if isinstance(text, str) and text:
                if field == "reasoning" and delta.get("reasoning_content"):
                    if delta["reasoning_content"] != text:
                        self.report("CH22", f"choices[{index}]", "one reasoning field", "two with different texts")
                    continue
                if (state.content.length and not content) or state.open_call is not None:
                    self.report("CH22", f"choices[{index}].delta.{field}", "reasoning before content and calls", text, "SHOULD")
                state.reasoning.add(text)
                if "\ufffd" in text and not self.may_hold_replacement_character:
                    self.report(
                        "T3", f"choices[{index}].delta.{field}", "whole characters", f"U+FFFD in {text!r}", self.replacement_level
                    )
        refusal = delta.get("refusal")
        if isinstance(refusal, str):
            state.refusal.add(refusal)
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if isinstance(call, dict):
                self._observe_call(index, state, call)
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            self._close_call(index, state, reason)
            if state.finish_reason is None:
                state.finish_reason = reason

    def _observe_content(self, index: int, state: _Choice, content: str) -> None:
        at = f"choices[{index}].delta.content"
        state.content.add(content)
        self.check_text(state.content, content, at)
        state.num_content += 1
        if state.is_cumulative and state.num_content > 1:
            state.is_cumulative = len(content) > len(state.last_content) and content.startswith(state.last_content)
            if state.is_cumulative and state.num_content == 3 and len(content) >= 6:
                self.report("CH9", at, "the new piece alone", f"the whole text so far again: {content!r}"[:160])
        state.last_content = content if state.is_cumulative else ""
        stops = at_path(self.request, "stop")
        for stop in [stops] if isinstance(stops, str) else stops if isinstance(stops, list) else ():
            if isinstance(stop, str) and stop and stop in state.content.window:
                self.report("CH20", at, f"text that ends before the stop string {stop!r}", state.content.window)

    def _observe_call(self, index: int, state: _Choice, call: dict[str, Any]) -> None:
        number = call.get("index")
        if type(number) is not int:
            return
        at = f"choices[{index}].tool_calls[{number}]"
        is_custom = isinstance(call.get("custom"), dict)
        function = call["custom"] if is_custom else call.get("function") if isinstance(call.get("function"), dict) else {}
        is_first = state.open_call is None or state.open_call[0] != number
        if is_first:
            self._close_call(index, state, None)
            state.open_call = (number, _Call(at_path(function, "name"), is_custom))
            self._check_opening(at, state, call, function)
        elif "id" in call and call["id"] is None:
            self.report("CH12", f"{at}.id", "no id on a later fragment", "null")
        elif call.get("id") is None and at_path(function, "name") is None and isinstance(function, dict) and "name" in function:
            self.report("CH12", f"{at}.function.name", "no name on a later fragment", "null")
        piece = at_path(function, "input" if is_custom else "arguments")
        assert state.open_call is not None
        if state.open_call[1].is_custom != is_custom:
            self.report("CH11", at, "one kind of call from its first fragment to its last", "another kind")
        if isinstance(piece, str):
            state.open_call[1].arguments.add(piece)
            if not is_custom:
                state.open_call[1].scanner.feed(piece)

    def _check_opening(self, at: str, state: _Choice, call: dict[str, Any], function: object) -> None:
        identity, name = call.get("id"), at_path(function, "name")
        if not (isinstance(identity, str) and identity):
            self.report("CH11", f"{at}.id", "a non-empty id on the first fragment", call.get("id"))
        elif identity in state.ids:
            self.report("CH11", f"{at}.id", "an id of its own", identity)
        else:
            state.ids.add(identity)
        if not (isinstance(name, str) and name):
            self.report("CH11", f"{at}.function.name", "the tool's name on the first fragment", name)
        kind = "custom" if isinstance(call.get("custom"), dict) else "function"
        if call.get("type") != kind:
            self.report("CH11", f"{at}.type", f"{kind} on the first fragment", call.get("type"))
        tools = at_path(self.request, "tools")
        if isinstance(tools, list) and tools and isinstance(name, str):
            names = {at_path(tool, "function", "name") or at_path(tool, "custom", "name") for tool in tools}
            if None not in names and name not in names:
                self.report("CH11", f"{at}.function.name", f"one of the request's tools {sorted(names)}", name)

    def _close_call(self, index: int, state: _Choice, reason: str | None) -> None:
        if state.open_call is None:
            return
        number, call = state.open_call
        state.open_call = None
        if len(state.calls) < 4096:
            state.calls.append((call.name, call.arguments))
        if call.is_custom or reason in ("length", "content_filter"):
            return
        error = call.scanner.finish()
        if error is None and call.scanner.kind != "{":
            error = "is no object"
        if error is not None:
            at = f"choices[{index}].tool_calls[{number}] arguments"
            self.report("CH14", at, "a JSON object", f"{call.arguments}: {error}")

    def _finish_choice(self, index: int, choice: _Choice) -> None:
        self._close_call(index, choice, choice.finish_reason)
        at = f"choices[{index}].finish_reason"
        if choice.is_cumulative and choice.num_content == 2 and len(choice.last_content) >= 6:
            self.report("CH9", f"choices[{index}].content", "increments", "the second piece repeats the first", "SHOULD")
        if choice.finish_reason == "tool_calls" and not choice.calls:
            self.report("CH15", at, "tool_calls only after a call", "tool_calls without a call")
        named = isinstance(at_path(self.request, "tool_choice"), dict)
        if choice.calls and choice.finish_reason == "stop" and not named:
            self.report("CH15", at, "tool_calls, since calls were streamed", "stop")
        if choice.calls and at_path(self.request, "tool_choice") == "none":
            self.report("CH24", f"choices[{index}]", "no call, tool_choice is none", f"{len(choice.calls)} calls")
        if len(choice.calls) > 1 and at_path(self.request, "parallel_tool_calls") is False:
            self.report("CH24", f"choices[{index}]", "one call at most", f"{len(choice.calls)} calls")


def check_chat_usage(laws: Laws, usage: dict[str, Any]) -> None:
    """CH18, for the stream and for the unary answer."""
    laws.check_counts("CH18", "usage", usage)
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        if type(usage.get(name)) is not int:
            laws.report("CH18", f"usage.{name}", "a whole number", usage.get(name))
    for name in ("prompt_tokens_details", "completion_tokens_details"):
        if not isinstance(usage.get(name), (dict, type(None))):
            laws.report("CH18", f"usage.{name}", "an object or null", usage[name])
    laws.check_sum("CH18", "usage.total_tokens", usage.get("total_tokens"), prompt, completion)
    laws.check_within("CH18", "usage cached_tokens", at_path(usage, "prompt_tokens_details", "cached_tokens"), prompt)
    laws.check_within(
        "CH18", "usage reasoning_tokens", at_path(usage, "completion_tokens_details", "reasoning_tokens"), completion
    )
    if "prompt_cache_hit_tokens" in usage and "prompt_cache_miss_tokens" in usage:
        laws.check_sum("CH18", "usage.prompt_tokens", prompt, usage["prompt_cache_hit_tokens"], usage["prompt_cache_miss_tokens"])
