# ruff: noqa: E501  (tables: a row is a line)
"""The stories behind the goldens, by protocol. Each row: case id, what it shows, the rules it stands on, the story.

The source of a case is the source of its rules (`requirements/rules.json`); what a vendor's stream taught is said in the
title. A row that no protocol can tell is not here; `plan` proves that every kind of event has its case.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from conformance.golden.story import Call, Hosted, Part, Reasoning, Refusal, Story, Text


@dataclass(frozen=True, slots=True)
class Scenario:
    id: str
    title: str
    rules: tuple[str, ...]
    story: Story
    profile: str = "default"


def scenarios_for(protocol: str) -> list[Scenario]:
    """All accept cases of a protocol, ids unique, every story with a scope of its own."""
    own = {"chat": _chat, "responses": _responses, "messages": _messages}[protocol]()
    rows = [*_shared(protocol), *own]
    return [replace(row, story=replace(row.story, scope=f"{number:02d}")) for number, row in enumerate(rows)]


def _text(*pieces: str, **more: Any) -> Text:
    return Text(pieces or ("Hel", "lo", " there", "."), **more)


def _call(name: str = "get_weather", *pieces: str, **more: Any) -> Call:
    return Call(name, pieces or ('{"loc', 'ation":', ' "Paris"}'), **more)


def _think(*pieces: str, **more: Any) -> Reasoning:
    return Reasoning(pieces or ("Let me", " think."), **more)


_RULES = {
    "chat": {
        "text": ("CH1", "CH5", "CH6", "T4"),
        "tools": ("CH10", "CH11", "CH12", "CH14", "CH15"),
        "think": ("CH22",),
        "use": ("CH17", "CH18"),
    },
    "responses": {
        "text": ("RS1", "RS2", "RS3", "RS8"),
        "tools": ("RS5", "RS6", "RS9", "RS16"),
        "think": ("RS7", "RS15"),
        "use": ("RS13",),
    },
    "messages": {
        "text": ("AN1", "AN2", "AN9", "AN11"),
        "tools": ("AN6", "AN7", "AN10"),
        "think": ("AN8",),
        "use": ("AN12", "AN13"),
    },
}


def _shared(protocol: str) -> list[Scenario]:
    """What every protocol can tell."""
    rules = _RULES[protocol]
    text, tools, think, use = rules["text"], rules["tools"], rules["think"], rules["use"]
    options: dict[str, Any] = {"usage": True} if protocol == "chat" else {}

    def row(case: str, title: str, cited: tuple[str, ...], *parts: Part, **more: Any) -> Scenario:
        return Scenario(case, title, cited, Story(parts, options={**options, **more.pop("options", {})}, **more))

    long = tuple(f"word{number} " for number in range(60))
    rows = [
        row("text/plain", "a short text in four pieces", text, _text()),
        row("text/one-piece", "the whole text in one delta", text, _text("Hello there.")),
        row("text/one-character", "a text of one character", text, _text("a")),
        row("text/by-character", "one character a delta", text, _text(*"stream")),
        row("text/long", "sixty deltas", text, _text(*long), completion_tokens=60),
        row("text/lines", "line feeds, blank lines and tabs inside the JSON string", (*text, "T2"), _text("a\n", "\n\n", "\tb\r\n", "c")),
        row("text/line-separators", "U+2028, U+2029 and U+0085 are data, not line ends", ("T2", *text), _text("a\u2028b", "\u2029", "\u0085c")),
        row("text/emoji", "characters outside the basic plane, joined ones too", ("T3", *text), _text("😀", "👨‍👩‍👧", "🇫🇷")),
        row("text/scripts", "Chinese, Arabic, Devanagari, combining marks", ("T3", *text), _text("你好", "مرحبا", "नमस्ते", "e\u0301")),
        row("text/quotes", "quotes and backslashes", ("T2", *text), _text('say "hi"', " \\ ", "\\n is no line feed")),
        row("text/like-sse", "text that looks like an event stream", ("T2", *text), _text("data: x\n\nevent: y", ": comment")),
        row("text/like-json", "text that looks like JSON", text, _text('{"a":', " [1, 2]}")),
        row("text/spaces", "pieces of white space alone", text, _text(" ", "  ", "\n", "end")),
        row("text/same-piece-twice", "two equal deltas are two pieces", ("CH9",) if protocol == "chat" else text, _text("ha", "ha", "ha")),
        row("text/null-character", "U+0000 escaped in JSON", ("T2", *text), _text("a\u0000b", "c")),
        row("text/zero-width", "byte order mark and zero width space inside text", ("T3", *text), _text("a\ufeffb", "\u200b")),
        row("end/length", "the token limit ends the text", (*text, "CH19") if protocol == "chat" else text, _text("Once upon"), end="length"),
        row("usage/cached", "part of the prompt came from the cache", use, _text(), cached_tokens=16),
        row("usage/large", "counts beyond 32 bits are not needed, 200,000 are", use, _text(), prompt_tokens=200_000, cached_tokens=199_936),
        row("usage/one-token", "one token in, one out", use, _text("1"), prompt_tokens=1, completion_tokens=1),
        row("tools/one", "one call in three fragments", tools, _call()),
        row("tools/one-fragment", "the whole arguments in one fragment", tools, _call("get_weather", '{"location":"Rome"}')),
        row("tools/by-character", "one character a fragment", tools, _call("f", *'{"a":1}')),
        row("tools/no-arguments", "a call without arguments: {}", tools, _call("now", "{}")),
        row("tools/unicode", "arguments with escapes and other scripts", tools, _call("say", '{"text":"\\u00e9 ', '😀 你好"}')),
        row("tools/nested", "objects and lists inside, spaces between", tools, _call("plan", '{ "steps": [ {"a": [1, 2', ', -3.5e2]} ],', ' "ok": true }')),
        row("tools/escaped-quotes", "a fragment ends inside an escape", tools, _call("run", '{"code":"print(\\', '"x\\\\\\', '")"}')),
        row("tools/parallel", "two calls, one after the other", tools, _call(), _call("get_weather", '{"location":', '"Rome"}')),
        row("tools/three", "three calls of two tools", tools, _call(), _call("now", "{}"), _call("get_weather", '{"location":"Oslo"}')),
        row("tools/same-twice", "the same call twice has two ids", tools, _call("now", "{}"), _call("now", "{}")),
        row("tools/after-text", "text, then a call", tools, _text("I look."), _call()),
        row("tools/long-arguments", "forty fragments", tools, _call("write", '{"text":"', *["abc "] * 40, '"}'), completion_tokens=50),
        row("reasoning/then-text", "reasoning, then text", think, _think(), _text(), reasoning_tokens=4, completion_tokens=12),
        row("reasoning/then-call", "reasoning, then a call", (*think, *tools), _think(), _call(), reasoning_tokens=4, completion_tokens=12),
        row("reasoning/text-call", "reasoning, text, two calls", (*think, *tools), _think(), _text("So:"), _call(), _call("now", "{}"), reasoning_tokens=3, completion_tokens=20),
        row("reasoning/unicode", "reasoning in other scripts", (*think, "T3"), _think("考え", "中…"), _text("はい"), reasoning_tokens=2),
        row("transport/comments", "comments before and between", ("T10",), _text(), options={"comments": True}),
        row("transport/comments-in-call", "comments between the fragments of a call", ("T10",), _call(), options={"comments": True}),
        row("transport/comments-in-reasoning", "comments between pieces of reasoning", ("T10",), _think(), _text(), options={"comments": True}, reasoning_tokens=3),
        row("usage/call", "the tokens of a call are counted, part of the prompt was cached", (*use, *tools), _call(), cached_tokens=12, completion_tokens=24),
        row("usage/reasoning", "reasoning counts within the answer's tokens", (*use, *think), _think(), _text(), completion_tokens=40, reasoning_tokens=31),
        row("error/in-arguments", "a failure inside the arguments of a call", ("T7",), _call(), end="error"),
        row("error/in-reasoning", "a failure while reasoning", ("T7",), _think(), end="error"),
        row("error/mid-stream", "a failure after the first piece", ("T7",), _text("Hel"), end="error"),
    ]  # fmt: skip
    return rows


def _chat() -> list[Scenario]:
    usage = {"usage": True}

    def row(case: str, title: str, cited: tuple[str, ...], *parts: Part, **more: Any) -> Scenario:
        return Scenario(case, title, cited, Story(parts, **more))

    return [
        row("usage/not-asked", "no usage chunk without include_usage", ("CH17",), _text()),
        row("text/empty", "an answer without a token of text", ("CH6",), options=usage, completion_tokens=1),
        row("text/null-content", "OpenAI opens with content null where calls follow", ("CH5",), _call(), options={**usage, "first_content": None}),
        row("text/first-chunk-speaks", "role and first piece in one chunk", ("CH5",), _text(), options={**usage, "first_joined": True}),
        row("text/last-chunk-speaks", "the finish chunk still carries a piece", ("CH6",), _text(), options={**usage, "last_joined": True}),
        row("text/refusal", "a refusal instead of content", ("CH9",), Refusal(("I can", "not.")), options=usage),
        row("text/logprobs", "log probabilities beside each piece", ("CH21",), _text(), options={**usage, "logprobs": True}),
        row("text/structured", "an answer by schema is text", ("CH9",), _text('{"name":', '"Ada"', "}"), options=usage),
        row("end/content-filter", "a filter ends the text", ("CH7",), _text("I"), end="content_filter", options=usage),
        row("end/stop-string", "the text ends before the stop string", ("CH20",), _text("one, two"), end="stop_string", options=usage),
        row("choices/two", "two choices, interleaved", ("CH8",), _text("A", "B"), _text("C", "D", choice=1), options={**usage, "num_choices": 2}),
        row("choices/three", "three choices of different length", ("CH8",), _text("A"), _text("C", "D", choice=1), _text("E", "F", "G", choice=2), options={**usage, "num_choices": 3}),
        row("choices/tools", "a call in each of two choices", ("CH8", "CH10"), _call(), _call(choice=1), options={**usage, "num_choices": 2}),
        row("tools/custom", "a custom tool takes free text, which is no JSON", ("CH11", "CH14"), _call("apply_patch", "*** Begin", " Patch\n", kind="custom"), options=usage),
        row("tools/custom-and-function", "a custom call, then a function's", ("CH10", "CH13"), _call("apply_patch", "*** End", kind="custom"), _call(), options=usage),
        row("tools/whole", "name and all arguments in the opening fragment", ("CH11",), _call("now", "{}"), options={**usage, "whole_calls": True}),
        row("tools/opening-in-first-chunk", "OpenAI opens a single call in the role chunk", ("CH5", "CH11"), _call(), options={**usage, "first_joined": True}),
        row("tools/cut", "the token limit cuts the arguments: no JSON object is owed", ("CH14", "CH19"), _call("f", '{"a": "b', is_cut=True), end="length", options=usage),
        row("reasoning/other-field", "the reasoning field of OpenRouter and newer vLLM", ("CH22",), _think(), _text(), options={**usage, "reasoning_field": "reasoning"}),
        row("reasoning/cut", "the limit is reached while reasoning", ("CH22", "CH19"), _think(), end="length", options=usage, reasoning_tokens=9),
        row("transport/obfuscation", "OpenAI pads chunks, sometimes with nothing", ("CH1",), _text(), options={**usage, "obfuscation": True}),
        row("transport/service-tier", "service_tier on each chunk", ("CH3",), _text(), options={**usage, "service_tier": True}),
        row("transport/moderation", "a moderation chunk may follow the usage chunk", ("CH17",), _text(), options={**usage, "moderation": True}),
        row("error/after-calls", "a failure after a whole call", ("CH25", "T7"), _call(), end="error"),
    ]  # fmt: skip


def _messages() -> list[Scenario]:
    def row(case: str, title: str, cited: tuple[str, ...], *parts: Part, **more: Any) -> Scenario:
        return Scenario(case, title, cited, Story(parts, **more))

    search = Call("web_search", ('{"query":', '"news"}'), kind="server_tool_use")
    found = Hosted("web_search_tool_result", fields=(("tool_use_id", "toolu_0"), ("content", [])))
    compaction = Hosted(
        "compaction",
        events=(("", {"type": "compaction_delta", "content": "so far"}),),
        fields=(("content", None),),
        final=(("content", "so far"),),
    )
    mcp = Call("lookup", ('{"q":1}',), kind="mcp_tool_use")
    mcp_result = Hosted("mcp_tool_result", fields=(("tool_use_id", "toolu_0"), ("is_error", False), ("content", [])))
    return [
        row("text/empty-block", "a text block without a delta", ("AN4",), Text(())),
        row("text/no-block", "no block at all", ("AN9",), completion_tokens=1),
        row("text/two-blocks", "two text blocks", ("AN3",), _text("One."), _text("Two.")),
        row("text/citations", "citations come before the text of their block", ("AN5",), _text("A fact.", citations=2)),
        row("end/stop-sequence", "stop_sequence names the string", ("AN10",), _text("one, two"), end="stop_string"),
        row("end/refusal", "the model refuses", ("AN10",), _text("I can"), end="refusal"),
        row("end/context", "the window is full", ("AN10",), _text("and so"), end="context"),
        row("end/pause", "a server tool pauses the turn", ("AN10",), search, end="pause"),
        row("usage/written", "part of the prompt was written to the cache", ("AN13",), _text(), written_tokens=12),
        row("usage/read-and-written", "read, written and neither add up", ("AN13",), _text(), prompt_tokens=100, cached_tokens=64, written_tokens=16),
        row("usage/short-delta", "older streams tell only output_tokens at the end", ("AN14",), _text(), options={"short_usage": True}),
        row("usage/two-deltas", "two message_deltas, counts grow", ("AN9", "AN12"), _text(), options={"two_message_deltas": True}),
        row("tools/empty-input", "a call whose only delta is empty", ("AN7",), Call("now", ())),
        row("tools/cut", "the limit cuts the input", ("AN7", "AN10"), _call("f", '{"a": "b', is_cut=True), end="length"),
        row("tools/server", "a server tool and its result between texts", ("AN5", "AN7"), _text("I search."), search, found, _text("Found.")),
        row("tools/mcp", "an MCP tool and its result", ("AN5",), mcp, mcp_result, _text("Done.")),
        row("reasoning/redacted", "a redacted block has no delta", ("AN8",), _think(is_redacted=True), _text()),
        row("reasoning/signature-only", "a signature without a thought", ("AN8",), Reasoning(()), _text()),
        row("reasoning/interleaved", "thinking between calls", ("AN8",), _think(), _call(), _think("And", " now"), _call("now", "{}")),
        row("blocks/compaction", "a compaction block", ("AN5",), compaction, _text()),
        row("transport/ping-after-start", "Vertex pings right after message_start", ("T10",), _text(), options={"pings": ("start",)}),
        row("transport/ping-in-block", "a ping after content_block_start", ("T10",), _text(), options={"pings": ("block",)}),
        row("transport/pings-everywhere", "pings between all events", ("T10",), _text(), _call(), options={"pings": ("start", "block", "delta", "end")}),
        row("transport/whole-message", "a programmatic call comes whole in message_start", ("AN1",), _call("f", '{"a":1}'), options={"whole_message": True}),
        row("error/in-call", "a failure inside a call", ("T7",), _call("f", '{"a'), end="error"),
    ]  # fmt: skip


def _responses() -> list[Scenario]:
    def row(case: str, title: str, cited: tuple[str, ...], *parts: Part, profile: str = "default", **more: Any) -> Scenario:
        return Scenario(case, title, cited, Story(parts, **more), profile)

    def hosted(
        kind: str, *events: tuple[str, dict[str, Any]], final: tuple[tuple[str, Any], ...] = (("status", "completed"),)
    ) -> Hosted:
        return Hosted(kind, events, (("status", "in_progress"),), final)

    def steps(kind: str, *names: str) -> tuple[tuple[str, dict[str, Any]], ...]:
        return tuple((f"response.{kind}.{name}", {}) for name in names)

    code = (
        ("response.code_interpreter_call_code.delta", {"delta": "1+1"}),
        ("response.code_interpreter_call_code.done", {"code": "1+1"}),
    )
    patch = (
        ("response.apply_patch_call_operation_diff.delta", {"delta": "+a"}),
        ("response.apply_patch_call_operation_diff.done", {"diff": "+a"}),
    )
    command = {"command_index": 0}
    shell = (
        ("response.shell_call_command.added", {**command, "command": ""}),
        ("response.shell_call_command.delta", {**command, "delta": "ls"}),
        ("response.shell_call_command.done", {**command, "command": "ls"}),
    )
    output = {"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
    shell_output = (
        ("response.shell_call_output_content.delta", {**command, "delta": {"stdout": "a"}}),
        ("response.shell_call_output_content.done", {**command, "output": [output]}),
    )
    mcp_arguments = (
        ("response.mcp_call_arguments.delta", {"delta": "{}"}),
        ("response.mcp_call_arguments.done", {"arguments": "{}"}),
    )
    mcp_call = Hosted(
        "mcp_call",
        (*steps("mcp_call", "in_progress"), *mcp_arguments, *steps("mcp_call", "completed")),
        (("name", "q"), ("arguments", "")),
        (("arguments", "{}"),),
    )
    mcp_failed = Hosted(
        "mcp_call",
        (*steps("mcp_call", "in_progress"), *mcp_arguments, *steps("mcp_call", "failed")),
        (("name", "q"), ("arguments", "")),
        (("arguments", "{}"), ("error", "no")),
    )
    image = (
        *steps("image_generation_call", "in_progress", "generating"),
        ("response.image_generation_call.partial_image", {"partial_image_b64": "aQ==", "partial_image_index": 0}),
        *steps("image_generation_call", "completed"),
    )
    return [
        row("text/empty", "a message with an empty part", ("RS7", "RS10"), Text(())),
        row("text/refusal", "a refusal part", ("RS8",), Refusal(("I can", "not."))),
        row("text/annotations", "two annotations on a text", ("RS8",), _text("See", " here.", citations=2)),
        row("text/two-messages", "commentary, then the final answer", ("RS12", "RS15"), _text("I look.", phase="commentary"), _text("Found.", phase="final_answer")),
        row("end/filter", "a filter makes it incomplete", ("RS14",), _text("I"), end="content_filter"),
        row("end/length-in-call", "an interrupted call still gets its done events", ("RS11", "RS14"), _call("f", '{"a": "b', is_cut=True), end="length"),
        row("end/length-in-reasoning", "reasoning may be the only item of an incomplete response", ("RS14",), Reasoning(()), end="length", reasoning_tokens=9),
        row("end/nothing", "a completed response without an item", ("RS12",), completion_tokens=1),
        row("end/failed", "response.failed alone", ("RS14", "T7"), _text("Hel"), end="failed"),
        row("end/failed-in-call", "a failure inside a call", ("RS14", "T7"), _call("f", '{"a'), end="failed"),
        row("end/done-marker", "the end marker after the terminal event", ("T4",), _text(), options={"done_marker": True}),
        row("end/done-marker-demanded", "profile openresponses wants the end marker", ("T4",), _text(), options={"done_marker": True}, profile="openresponses"),
        row("tools/custom", "free text as input of a custom tool", ("RS9",), Call("apply_patch", ("*** Begin", " Patch\n+a"), kind="custom")),
        row("tools/namespace", "short name and namespace apart", ("RS24",), _call("read", "{}", namespace="mcp__files")),
        row("tools/custom-and-function", "both kinds of call in one answer", ("RS9", "RS16"), Call("run", ("ls",), kind="custom"), _call()),
        row("reasoning/bare", "OpenAI mostly sends added and done alone", ("RS15",), Reasoning(()), _text(), reasoning_tokens=5, completion_tokens=14),
        row("reasoning/encrypted", "encrypted_content differs between its tellings", ("RS19",), Reasoning((), is_encrypted=True), _text()),
        row("reasoning/summary", "one summary part", ("RS7", "RS8"), Reasoning((), summary=(("I ", "plan."),)), _text()),
        row("reasoning/two-summaries", "two summary parts", ("RS7", "RS8"), Reasoning((), summary=(("One.",), ("Two", "."))), _call()),
        row("reasoning/open-responses-names", "raw reasoning as Open Responses names it", ("RS8",), _think(), _text(), options={"open_responses_names": True, "done_marker": True}, profile="openresponses"),
        row("lifecycle/queued", "a background response is queued first", ("RS1",), _text(), options={"queued": True}),
        row("lifecycle/resumed", "a resumed background stream begins at 1 with queued", ("RS1", "RS3"), _text(), options={"queued": True, "resumed": True}),
        row("lifecycle/no-in-progress", "in_progress is not owed", ("RS1",), _text(), options={"no_in_progress": True}),
        row("transport/keepalive", "a keepalive event takes a number", ("T10", "RS3"), _text(), options={"keepalive": True}),
        row("transport/obfuscation", "padding on deltas", ("RS8",), _text(), options={"obfuscation": True}),
        row("transport/vendor-event", "a vendor's event carries its prefix", ("T12",), _text(), options={"vendor_event": True}),
        row("hosted/web-search", "a web search with its steps", ("RS5",), hosted("web_search_call", *steps("web_search_call", "in_progress", "searching", "completed")), _text()),
        row("hosted/file-search", "a file search", ("RS5",), hosted("file_search_call", *steps("file_search_call", "in_progress", "searching", "completed")), _text()),
        row("hosted/code-interpreter", "code, then its run", ("RS5",), hosted("code_interpreter_call", *steps("code_interpreter_call", "in_progress"), *code, *steps("code_interpreter_call", "interpreting", "completed")), _text()),
        row("hosted/image", "an image with one preview", ("RS5",), hosted("image_generation_call", *image), _text()),
        row("hosted/mcp", "list of tools, then a call", ("RS5",), Hosted("mcp_list_tools", steps("mcp_list_tools", "in_progress", "completed"), (("tools", []),)), mcp_call, _text()),
        row("hosted/mcp-failed", "a list that failed, a call that failed", ("RS5",), Hosted("mcp_list_tools", steps("mcp_list_tools", "in_progress", "failed"), (("tools", []),)), mcp_failed, _text()),
        row("hosted/shell", "a shell call and its output", ("RS5",), hosted("shell_call", *shell), hosted("shell_call_output", *shell_output), _text()),
        row("hosted/apply-patch", "a patch", ("RS5",), hosted("apply_patch_call", *patch), _text()),
        row("hosted/compaction", "a compaction item", ("RS5",), hosted("compaction", ("response.compaction.compacting", {})), _text()),
        row("hosted/unknown-item", "an item of a kind that this suite does not know", ("RS5",), hosted("program"), _text()),
        row("hosted/audio", "audio beside a message", ("RS5",), hosted("audio_message", *((f"response.audio.{name}", {"delta": "aQ=="}) for name in ("delta", "done", "transcript.delta", "transcript.done"))), _text()),
    ]  # fmt: skip
