"""Why a prompt parts from an earlier state: the fork looked at with the eyes of those who cause forks.

    earlier  … system | tools | Mon 12:00 | history … answer
    now      … system | tools | Mon 12:01 | history … answer | new input
                                    ^ fork

Each rule is sure of what it says or says nothing; the first that speaks names the cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from zllm_ref.canonical.json_value import JsonNumber, JsonObject, JsonValue, dump_json
from zllm_ref.canonical.message import CustomToolCall, Message, Role, ToolCall
from zllm_ref.canonical.request import FunctionTool, Tool
from zllm_ref.dialect.segment import Author
from zllm_ref.inspector.prefix_words import Named, Sentence, cause
from zllm_ref.inspector.prompt_view import PromptView

TITLES = {
    "changed_clock": "A clock changed",
    "reordered_tools": "The tools came in another order",
    "changed_tools": "The tools are not the same",
    "tool_call_rerendered": "A tool call was written anew",
    "reasoning_dropped": "Reasoning was left out",
    "billing_line": "A billing line changes with every request",
    "other_dialect_revision": "Another revision of the dialect",
    "other_namespace": "Another namespace of the cache",
    "edited_history": "The history was edited",
    "other_conversation": "Another conversation with the same beginning",
    "evicted": "The state was no longer kept",
    "still_running": "The earlier request had not ended yet",
    "whole_states_only": "States of this model are reused whole or not at all",
    "first_request": "Nothing came before",
    "unknown": "The texts differ, for no reason that is known here",
}


@dataclass(frozen=True)
class Fork:
    """Two prompts and the number of tokens that both begin with. `earlier` has its answer behind it."""

    now: PromptView
    earlier: PromptView
    at: int

    def line(self, view: PromptView, slack: int = 0) -> str:
        """The line of text in which the fork lies."""
        place = int(view.axis.starts[min(self.at, view.axis.num_tokens)])
        data = view.axis.data
        start = data.rfind(b"\n", 0, place) + 1
        end = data.find(b"\n", place)
        return data[start : len(data) if end < 0 else end][:4000].decode("utf-8", "replace")

    def message(self, view: PromptView) -> int | None:
        """The message in which the fork lies; the answer counts as the one behind the last."""
        if self.at >= view.axis.num_prompt:
            return len(view.messages)
        place = view.axis.segment_of(self.at)
        for index in range(place, len(view.segments)):
            owner = view.owners[index]
            if owner is not None or index > place:
                return owner
        return len(view.messages)

    def is_in_tools(self, view: PromptView) -> bool:
        """The fork lies in a tool's schema, or where the schemas begin or end."""
        if self.at >= view.axis.num_prompt:
            return False
        place = view.axis.segment_of(self.at)
        around = view.segments[max(0, place - 3) : place + 4]
        return any(segment.origin.author is Author.TOOL_SCHEMA for segment in around)


def cause_of_fork(fork: Fork) -> Named:
    """The cause of two texts that differ."""
    for rule in _RULES:
        found = rule(fork)
        if found is not None:
            return found
    return cause("unknown", "texts_differ", count=fork.at)


# ---- rules ----------------------------------------------------------------------------------------------------------------

_BILLING = "x-anthropic-billing-header:"


def _dialect(fork: Fork) -> Named | None:
    if fork.now.dialect == fork.earlier.dialect:
        return None
    return cause("other_dialect_revision", "dialects", was=fork.earlier.dialect, now=fork.now.dialect)


def _billing(fork: Fork) -> Named | None:
    now, earlier = fork.line(fork.now), fork.line(fork.earlier)
    if _BILLING not in now or _BILLING not in earlier:
        return None
    return cause("billing_line", "changed", was=_cut(earlier), now=_cut(now))


def _tools(fork: Fork) -> Named | None:
    now, earlier = [_tool_text(tool) for tool in fork.now.tools], [_tool_text(tool) for tool in fork.earlier.tools]
    if now == earlier or not (fork.is_in_tools(fork.now) or fork.is_in_tools(fork.earlier)):
        return None
    names_now, names_earlier = [tool.name for tool in fork.now.tools], [tool.name for tool in fork.earlier.tools]
    if sorted(now) == sorted(earlier):
        first = next(index for index, (a, b) in enumerate(zip(names_now, names_earlier, strict=True)) if a != b)
        was, now_is = names_earlier[first], names_now[first]
        return cause("reordered_tools", "tools_reordered", count=len(now), place=first + 1, was=was, now=now_is)
    added = [name for name in names_now if name not in names_earlier]
    removed = [name for name in names_earlier if name not in names_now]
    changed = [tool.name for tool in fork.now.tools if tool.name in names_earlier and _tool_text(tool) not in earlier]
    said = [
        Sentence(name, (("names", tuple(names[:5])),))
        for name, names in (("tools_added", added), ("tools_removed", removed), ("tools_changed", changed))
        if names
    ]
    return Named("changed_tools", tuple(said) or (Sentence("tools_counted"),))


_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_CLOCKS = re.compile(
    rf"""\d{{4}}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?   # 2026-11-30T12:00:00Z
       |\d\d?[:.]\d\d(?::\d\d)?\s?(?:[ap]\.?m\.?|UTC|GMT|CET|CEST|E[SD]T|P[SD]T)?\b       # 12:00
       |\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*\b
       |\b{_MONTH}\.?\s\d\d?(?:st|nd|rd|th)?(?:,?\s\d{{4}})?                              # November 30, 2026
       |\b\d\d?\.?\s{_MONTH}\.?(?:\s\d{{4}})?                                             # 30 November 2026
       |\b\d\d?[/.]\d\d?[/.]\d{{2,4}}\b                                                   # 30.11.2026
       |\b1[0-9]{{9}}(?:\.\d+|\d{{3}})?\b                                                 # seconds, milliseconds since 1970
       |\d{{4}}年\d\d?月\d\d?日
    """,
    re.VERBOSE | re.IGNORECASE,
)


def _clock(fork: Fork) -> Named | None:
    now, earlier = fork.line(fork.now), fork.line(fork.earlier)
    if now == earlier or _CLOCKS.sub("\0", now) != _CLOCKS.sub("\0", earlier) or not _CLOCKS.search(now):
        return None
    pairs = zip(_CLOCKS.findall(earlier), _CLOCKS.findall(now), strict=False)
    was, now_is = next(((a, b) for a, b in pairs if a != b), (earlier, now))
    return cause("changed_clock", "changed", was=_cut(was), now=_cut(now_is))


def _reasoning(fork: Fork) -> Named | None:
    """The same answer, but without the thoughts that the earlier state has at this place."""
    said, again = _answers(fork)
    if said is None or again is None or not said.reasoning.strip():
        return None
    after = _text_after(fork.earlier, fork.at)
    before = _text_before(fork.earlier, fork.at)
    thought = said.reasoning.strip()
    at_thought = after.lstrip().startswith(("<think>", thought[:40])) or before.rstrip().endswith("<think>")
    if not at_thought and not _overlaps(before, after, thought):
        return None
    if _squeezed(again.text) != _squeezed(said.text) and said.text:
        return None
    whole = _text_of_message(fork.now, fork.message(fork.now))
    if thought[:60] in whole:
        return None
    by = "reasoning_by_client" if not again.reasoning.strip() else "reasoning_by_template"
    return cause("reasoning_dropped", by, count=len(thought))


def _call(fork: Fork) -> Named | None:
    """The same call by value, in other characters."""
    said, again = _answers(fork)
    if said is None or again is None or not said.tool_calls or len(said.tool_calls) != len(again.tool_calls):
        return None
    pairs = list(zip(said.tool_calls, again.tool_calls, strict=True))
    if any(not _is_same_call(one, other) for one, other in pairs):
        return None
    if _squeezed(said.text) != _squeezed(again.text) or not _is_behind_words(fork):
        return None
    was, now_is = _text_after(fork.earlier, fork.at, 16), _text_after(fork.now, fork.at, 16)
    name = said.tool_calls[0].name
    return cause("tool_call_rerendered", "call_rewritten", name=name, was=_cut(was), now=_cut(now_is))


def _history(fork: Fork) -> Named | None:
    """A message that both have was changed, and more of the conversation is the same behind it."""
    now, earlier = fork.message(fork.now), fork.message(fork.earlier)
    if now is None or earlier is None or now >= len(fork.now.messages):
        return None
    past = [*fork.earlier.messages, *([_answer_of(fork.earlier)] if fork.earlier.output_ids else [])]
    if earlier >= len(past):
        return None
    is_same_role = past[earlier].role is fork.now.messages[now].role
    was_answer = past[earlier].role is Role.ASSISTANT
    rest_now, rest_then = fork.now.messages[now + 1 :], past[earlier + 1 :]
    shared = sum(1 for one, other in zip(rest_then, rest_now, strict=False) if _is_same_message(one, other))
    if not (is_same_role and was_answer) and not shared:
        started_alike = any(message.role is Role.ASSISTANT for message in fork.now.messages[:now])
        if not started_alike:
            return cause("other_conversation", "begin_alike", count=fork.at)
    was, is_now = _text_after(fork.earlier, fork.at, 16), _text_after(fork.now, fork.at, 16)
    role = fork.now.messages[now].role.value
    return cause("edited_history", "message_edited", message=now, role=role, was=_cut(was), now=_cut(is_now))


_RULES: tuple[Callable[[Fork], Named | None], ...] = (_dialect, _billing, _tools, _clock, _reasoning, _call, _history)


# ---- reading both sides ---------------------------------------------------------------------------------------------------


def _answers(fork: Fork) -> tuple[Message | None, Message | None]:
    """The assistant's message at the fork: as the earlier side has it, and as it came back."""
    then, now = fork.message(fork.earlier), fork.message(fork.now)
    if then is None or now is None or now >= len(fork.now.messages):
        return None, None
    said = _answer_of(fork.earlier) if then >= len(fork.earlier.messages) else fork.earlier.messages[then]
    again = fork.now.messages[now]
    if said.role is not Role.ASSISTANT or again.role is not Role.ASSISTANT:
        return None, None
    return said, again


def _is_behind_words(fork: Fork) -> bool:
    """The fork lies behind the reasoning and the text of the message: in its calls."""
    index = fork.message(fork.now)
    if index is None or index >= len(fork.now.messages):
        return False
    spans = zip(fork.now.messages[index].parts, fork.now.part_bytes(index), strict=True)
    words = [span[1] for part, span in spans if span is not None and not isinstance(part, ToolCall | CustomToolCall)]
    return int(fork.now.axis.starts[fork.at]) >= max(words, default=0)


def _answer_of(view: PromptView) -> Message:
    answer = getattr(view, "answer", None)
    return answer.message if answer is not None else Message(Role.ASSISTANT, ())


def _text_after(view: PromptView, at: int, num_tokens: int = 64) -> str:
    end = min(view.axis.num_tokens, at + num_tokens)
    return view.axis.text_of((min(at, end), end))


def _text_before(view: PromptView, at: int, num_tokens: int = 64) -> str:
    return view.axis.text_of((max(0, at - num_tokens), min(at, view.axis.num_tokens)))


def _overlaps(before: str, after: str, text: str) -> bool:
    """The place between `before` and `after` lies inside `text`."""
    tail, head = before.strip()[-24:], after.strip()[:24]
    return bool(tail) and bool(head) and tail in text and head in text


def _text_of_message(view: PromptView, index: int | None) -> str:
    if index is None or index >= len(view.messages):
        return ""
    span = view.message_bytes[index]
    return "" if span is None else view.axis.data[span[0] : span[1]].decode("utf-8", "replace")


def _is_same_message(one: Message, other: Message) -> bool:
    return (
        one.role is other.role
        and _squeezed(one.text) == _squeezed(other.text)
        and ([result.text for result in one.tool_results] == [result.text for result in other.tool_results])
        and [call.name for call in one.tool_calls] == [call.name for call in other.tool_calls]
    )


def _is_same_call(one: ToolCall | CustomToolCall, other: ToolCall | CustomToolCall) -> bool:
    if isinstance(one, ToolCall) and isinstance(other, ToolCall):
        return one.name == other.name and _by_value(one.arguments) == _by_value(other.arguments)
    return (
        isinstance(one, CustomToolCall)
        and isinstance(other, CustomToolCall)
        and (one.name, one.input) == (other.name, other.input)
    )


def _by_value(value: JsonValue) -> object:
    """A value that equals another one where their meanings are equal: order of keys and form of numbers do not count."""
    match value:
        case JsonObject():
            return ("object", frozenset((name, _by_value(item)) for name, item in value.pairs))
        case tuple():
            return ("array", tuple(_by_value(item) for item in value))
        case JsonNumber():
            return ("number", float(value.text))
        case _:
            return value


def _tool_text(tool: Tool) -> str:
    parameters = tool.parameters if isinstance(tool, FunctionTool) else None
    schema = dump_json(parameters) if parameters is not None else ""
    return f"{tool.namespace or ''}\0{tool.name}\0{tool.description or ''}\0{schema}"


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _cut(text: str, most: int = 80) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
