"""What the scripted model says: an answer in segments, and how it comes out.

Without a script: two sentences; where tools are offered and the last word was a user's, a call of the first (or demanded)
tool with the smallest arguments or input that fit (two calls where the user says "twice"); where a format is asked for, the
smallest text in it; before all that one sentence of reasoning, where it is asked for and the dialect has any. Where the last
word of the user is `Fail after 5 tokens.` or `Stall for 1.5 seconds after 3 tokens.`, that happens to the sentences. With one, a
JSON file:

    {"tokens_per_step": 1, "seconds_per_step": 0,
     "answers": [{"segments": [{"reasoning": "…"}, {"text": "…"}, {"call": {"name": "f", "arguments": {…}}}],
                  "when_offered": "f", "fault": {"after_tokens": 5, "stall_seconds": 2}},
                 {"segments": [{"text": "…"}, {"refusal": "…"}]}]}

The answer is chosen by how many times the assistant has already spoken, round and round: the same request always gets the
same answer. One with `when_offered` is there only for requests that offer this tool, so that an agent's main loop and its small
requests without tools may be served from one script. A call has `arguments`, or the `input` of a free-form tool, and may have a
`namespace`. A refusal is text as its protocol tells it, and stands last. A step takes `seconds_per_step`, as if something were
computed. A fault before the first token has `after_tokens` 0; without `stall_seconds` the runtime fails there.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zllm_ref.canonical.json_value import JsonObject, JsonTextError, from_python, parse_json_object, to_python
from zllm_ref.canonical.message import CustomToolCall, Message, Part, Role, Text, ToolCall
from zllm_ref.canonical.request import (
    CustomTool,
    JsonObjectFormat,
    JsonSchemaFormat,
    Request,
    Tool,
    ToolChoiceNamed,
    ToolChoiceNone,
    ToolChoiceRequired,
)
from zllm_ref.dialect import ToolDialect, encode
from zllm_ref.engine.minimal_value import minimal_value
from zllm_ref.fence import FenceCompiler
from zllm_ref.tokenizer.vocabulary import Vocabulary

SCRIPTED_TEXT = "This is the scripted model. It says these two sentences and ends."
SCRIPTED_REASONING = "The request asks for a thought, so here is one."

_LONGEST_STALL_SECONDS = 3600
_FAIL = re.compile(r"Fail after (\d{1,6}) tokens\.")
_STALL = re.compile(r"Stall for (\d{1,4}(?:\.\d+)?) seconds after (\d{1,6}) tokens\.")


class ScriptError(ValueError):
    """The script file does not say what a script says; the text tells where."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong, and after how many tokens."""

    after_tokens: int = 0
    stall_seconds: float | None = None


@dataclass(frozen=True)
class ScriptedAnswer:
    """Reasoning, then text and calls in their order. `refusal_after`: so many characters of the text are none of the refusal."""

    reasoning: str = ""
    parts: tuple[Part, ...] = ()
    fault: Fault | None = None
    when_offered: str | None = None
    refusal_after: int | None = None


@dataclass(frozen=True)
class Script:
    """Empty `answers`: the model decides by the request, as described above."""

    answers: tuple[ScriptedAnswer, ...] = ()
    tokens_per_step: int = 1
    seconds_per_step: float = 0.0

    def answer_to(self, request: Request, fences: FenceCompiler | None = None) -> ScriptedAnswer:
        offered = {tool.name for tool in request.tools}
        fitting = [one for one in self.answers if one.when_offered is None or one.when_offered in offered]
        if not fitting:
            return _unscripted(request, fences)
        spoken = sum(message.role is Role.ASSISTANT for message in request.messages)
        return fitting[spoken % len(fitting)]


@dataclass
class TokenScript:
    """A `ScriptPort`: an answer in ids, played some at a time, with its fault."""

    ids: tuple[int, ...]
    tokens_per_step: int = 1
    fault: Fault | None = None
    seconds_per_step: float = 0.0
    _has_stalled: bool = field(default=False, repr=False)
    _num_paced: int = field(default=-1, repr=False)
    """So many tokens were produced when a step last took its time: a script is asked more than once a step."""

    def next_ids(self, produced: Sequence[int]) -> Sequence[int]:
        start = len(produced)
        if self.seconds_per_step and start > self._num_paced:
            self._num_paced = start
            time.sleep(self.seconds_per_step)
        end = start + self.tokens_per_step
        if self.fault is not None and not self._has_stalled:
            if start >= self.fault.after_tokens:
                if self.fault.stall_seconds is None:
                    raise RuntimeError(f"the script's fault after {self.fault.after_tokens} tokens")
                self._has_stalled = True
                time.sleep(self.fault.stall_seconds)
            else:
                end = min(end, self.fault.after_tokens)
        return self.ids[start:end]


def token_script(
    script: Script, request: Request, dialect: ToolDialect, vocabulary: Vocabulary, fences: FenceCompiler | None = None
) -> TokenScript:
    """The answer to `request` as the ids that a model of this dialect would have generated. `fences` reads custom grammars."""
    answer = script.answer_to(request, fences)
    ids = _reasoning_ids(answer.reasoning, request, dialect, vocabulary)
    ids += vocabulary.encode_text("".join(part.text for part in answer.parts if isinstance(part, Text)))
    calls = tuple(part for part in answer.parts if isinstance(part, ToolCall | CustomToolCall))
    if calls:
        ids += encode(dialect.render_calls(Message(Role.ASSISTANT, calls)), vocabulary)
    ids.append(_end_id(dialect, vocabulary))
    return TokenScript(tuple(ids), request.tokens_per_step or script.tokens_per_step, answer.fault, script.seconds_per_step)


def read_script(path: Path | None) -> Script:
    """The script in a file; None: an empty script. Raises ScriptError, OSError."""
    if path is None:
        return Script()
    try:
        value = json.loads(path.read_text("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ScriptError(f"script {path}: got text that is no JSON ({error}), allowed an object with answers") from None
    if not isinstance(value, dict) or not isinstance(value.get("answers", []), list):
        raise ScriptError(f"script {path}: got {type(value).__name__}, allowed an object with a list of answers")
    answers = tuple(_read_answer(item, f"{path}: answers[{index}]") for index, item in enumerate(value.get("answers", [])))
    step = value.get("tokens_per_step", 1)
    if type(step) is not int or step < 1:
        raise ScriptError(f"script {path}: tokens_per_step: got {step!r:.80}, allowed a whole number from 1 on")
    pace = value.get("seconds_per_step", 0)
    if type(pace) not in (int, float) or not 0 <= pace <= _LONGEST_STALL_SECONDS:
        raise ScriptError(f"script {path}: seconds_per_step: got {pace!r:.80}, allowed 0 to {_LONGEST_STALL_SECONDS}")
    return Script(answers, step, float(pace))


def _read_answer(value: Any, where: str) -> ScriptedAnswer:
    if not isinstance(value, dict) or not isinstance(value.get("segments", []), list):
        raise ScriptError(f"{where}: got {value!r:.80}, allowed an object with a list of segments")
    reasoning = ""
    parts: list[Part] = []
    refusal_after = None
    for index, segment in enumerate(value.get("segments", [])):
        if refusal_after is not None:
            raise ScriptError(f"{where}.segments[{index}]: got {segment!r:.80}, allowed nothing after a refusal")
        match segment:
            case {"reasoning": str(text)}:
                reasoning += text
            case {"text": str(text)}:
                parts.append(Text(text))
            case {"call": {"name": str(name), "arguments": dict(arguments), **more}}:
                parts.append(ToolCall("", name, _object(arguments), _namespace(more, where)))
            case {"call": {"name": str(name), "arguments": str(text), **more}}:
                parts.append(ToolCall("", name, _parse(text, where), _namespace(more, where)))
            case {"call": {"name": str(name), "input": str(text), **more}}:
                parts.append(CustomToolCall("", name, text, _namespace(more, where)))
            case {"refusal": str(text)}:
                refusal_after = sum(len(part.text) for part in parts if isinstance(part, Text))
                parts.append(Text(text))
            case _:
                allowed = "reasoning, text, call or refusal"
                raise ScriptError(f"{where}.segments[{index}]: got {segment!r:.80}, allowed {allowed}")
    fault, offered = value.get("fault"), value.get("when_offered")
    if offered is not None and not isinstance(offered, str):
        raise ScriptError(f"{where}.when_offered: got {offered!r:.80}, allowed the name of a tool")
    return ScriptedAnswer(reasoning, tuple(parts), None if fault is None else _read_fault(fault, where), offered, refusal_after)


def _namespace(call: Mapping[Any, Any], where: str) -> str | None:
    namespace = call.get("namespace")
    if namespace is not None and not isinstance(namespace, str):
        raise ScriptError(f"{where}: namespace: got {namespace!r:.80}, allowed a string")
    return namespace


def _read_fault(value: Any, where: str) -> Fault:
    if not isinstance(value, dict):
        raise ScriptError(f"{where}.fault: got {value!r:.80}, allowed an object with after_tokens and stall_seconds")
    after, stall = value.get("after_tokens", 0), value.get("stall_seconds")
    if type(after) is not int or after < 0:
        raise ScriptError(f"{where}.fault.after_tokens: got {after!r:.80}, allowed a whole number from 0 on")
    if stall is not None and (type(stall) not in (int, float) or not 0 <= stall <= _LONGEST_STALL_SECONDS):
        raise ScriptError(f"{where}.fault.stall_seconds: got {stall!r:.80}, allowed 0 to {_LONGEST_STALL_SECONDS}")
    return Fault(after, stall)


def _unscripted(request: Request, fences: FenceCompiler | None) -> ScriptedAnswer:
    reasoning = SCRIPTED_REASONING if _wants_reasoning(request) else ""
    match request.response_format:
        case JsonObjectFormat():
            return ScriptedAnswer(reasoning, (Text("{}"),))
        case JsonSchemaFormat(schema=schema):
            return ScriptedAnswer(reasoning, (Text(json.dumps(minimal_value(to_python(schema)), ensure_ascii=False)),))
    fault = _demanded_fault(request)
    tool = None if fault is not None else _tool_to_call(request)
    if tool is None and fault is not None:
        return ScriptedAnswer(parts=(Text(SCRIPTED_TEXT),), fault=fault)
    if tool is None:
        return ScriptedAnswer(reasoning, (Text(SCRIPTED_TEXT),))
    if isinstance(tool, CustomTool):
        return ScriptedAnswer(reasoning, (CustomToolCall("", tool.name, _input_of(tool, fences), tool.namespace),))
    value = minimal_value(to_python(tool.parameters) if tool.parameters is not None else {})
    call = ToolCall("", tool.name, _object(value if isinstance(value, dict) else {}), tool.namespace)
    is_twice = request.parallel_tool_calls and "twice" in request.messages[-1].text
    return ScriptedAnswer(reasoning, (call, call) if is_twice else (call,))


def _input_of(tool: CustomTool, fences: FenceCompiler | None) -> str:
    """The two sentences where the tool's grammar takes them, else a short text of the grammar."""
    if tool.grammar is None or fences is None or fences.reads(*tool.grammar, SCRIPTED_TEXT):
        return SCRIPTED_TEXT
    found = fences.shortest_text(*tool.grammar)
    return SCRIPTED_TEXT if found is None else found


def _demanded_fault(request: Request) -> Fault | None:
    last = request.messages[-1].text if request.messages else ""
    if demand := _FAIL.fullmatch(last):
        return Fault(int(demand[1]))
    if demand := _STALL.fullmatch(last):
        return Fault(int(demand[2]), min(float(demand[1]), _LONGEST_STALL_SECONDS))
    return None


def _wants_reasoning(request: Request) -> bool:
    """The client asked for it by whatever name its protocol has; silence is no request."""
    wanted = request.reasoning
    if wanted.enabled is not None:
        return wanted.enabled
    return wanted.budget_tokens is not None or wanted.effort not in (None, "none")


def _tool_to_call(request: Request) -> Tool | None:
    choice = request.tool_choice
    tools = [tool for tool in request.tools if not getattr(tool, "deferred", False)]
    if not tools or isinstance(choice, ToolChoiceNone):
        return None
    if isinstance(choice, ToolChoiceNamed):
        return next((tool for tool in tools if tool.name == choice.name), None)
    if choice.allowed is not None:
        tools = [tool for tool in tools if tool.name in choice.allowed]
    is_users_turn = bool(request.messages) and request.messages[-1].role is Role.USER
    has_results = bool(request.messages) and bool(request.messages[-1].tool_results)
    wants_call = isinstance(choice, ToolChoiceRequired) or (is_users_turn and not has_results)
    return tools[0] if tools and wants_call else None


def _reasoning_ids(text: str, request: Request, dialect: ToolDialect, vocabulary: Vocabulary) -> list[int]:
    layout = dialect.definition.reasoning
    if layout is None:
        return []
    started = dialect.starts_in_reasoning(request.reasoning)
    if not text and not started:
        return []
    opener, closer = vocabulary.marker_id(layout.open_marker.name), vocabulary.marker_id(layout.close_marker.name)
    ids: list[int] = []
    if not started and opener is not None:
        ids += [*vocabulary.encode_text(layout.before_open), opener, *vocabulary.encode_text(layout.after_open)]
    ids += vocabulary.encode_text(text + layout.before_close)
    if closer is not None:
        ids.append(closer)
    return ids + vocabulary.encode_text(layout.after_close)


def _end_id(dialect: ToolDialect, vocabulary: Vocabulary) -> int:
    """The dialect's own end of a turn."""
    for name in dialect.definition.end_markers:
        token_id = vocabulary.marker_id(name)
        if token_id is not None:
            return token_id
    end = vocabulary.marker_id("<|im_end|>")
    return dialect.stop_ids[0] if end is None else end


def _object(value: dict[str, Any]) -> JsonObject:
    found = from_python(value)
    assert isinstance(found, JsonObject)
    return found


def _parse(text: str, where: str) -> JsonObject:
    try:
        return parse_json_object(text)
    except JsonTextError as error:
        raise ScriptError(f"{where}: {error}") from None
