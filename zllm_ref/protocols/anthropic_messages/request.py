"""A Messages request body, read into the canonical form."""

from __future__ import annotations

from dataclasses import dataclass

from zllm_ref.canonical.json_value import JsonObject
from zllm_ref.canonical.request import (
    CacheSettings,
    FunctionTool,
    JsonSchemaFormat,
    Protocol,
    ReasoningSettings,
    Request,
    ResponseFormat,
    Sampling,
    TextFormat,
    Tool,
    ToolChoice,
    ToolChoiceAuto,
    ToolChoiceNamed,
    ToolChoiceNone,
    ToolChoiceRequired,
)
from zllm_ref.protocols.anthropic_messages.blocks import BlockReader, Breakpoints
from zllm_ref.protocols.anthropic_messages.fields import FIELDS
from zllm_ref.protocols.context import Profile, RequestContext
from zllm_ref.protocols.conversation import require_tool, require_unique_tools, tool_name
from zllm_ref.protocols.reader import Reader, invalid, unsupported
from zllm_ref.protocols.seal import Seal

_MAX_TOKENS = 2**31 - 1
_MIN_BUDGET = 1024
_EFFORTS = ("low", "medium", "high", "xhigh", "max")


@dataclass(frozen=True, slots=True)
class MessagesRequest:
    """The canonical request, and what the answer's form depends on beside it. `write_ttl`: how a cache write is counted."""

    request: Request
    id: str
    stream: bool
    show_thinking: bool
    omit_thinking_text: bool
    write_ttl: str
    seal: Seal
    profile: Profile
    ignored_fields: tuple[str, ...] = ()


def parse_request(body: JsonObject, context: RequestContext) -> MessagesRequest:
    """Raises ApiError with the path of the first field at fault."""
    return _parse(body, context, counting=False)


def parse_count_request(body: JsonObject, context: RequestContext) -> MessagesRequest:
    """As `parse_request` for `count_tokens`, where nothing is generated: `max_tokens` may be absent."""
    return _parse(body, context, counting=True)


def _parse(body: JsonObject, context: RequestContext, *, counting: bool) -> MessagesRequest:
    reader = Reader(body)
    model = context.model(reader.required_string("model"))
    ignored = FIELDS.check(reader, ignore_unknown=True)  # K12: gateways and agents add fields; the answer's header names them
    if not counting:
        reader.require("max_tokens")  # AN21
    max_tokens = reader.integer("max_tokens", low=1, high=_MAX_TOKENS)
    breakpoints = Breakpoints()
    breakpoints.see(reader)
    tools = require_unique_tools((_tool(item, breakpoints) for item in reader.objects("tools")), "tools")
    blocks = BlockReader(tools, breakpoints, context.seal, strip_billing_line=context.strip_billing_line)
    blocks.add_system(reader, "system")
    reader.require("messages")
    count = 0
    for message in reader.objects("messages"):
        blocks.add_message(message)
        count += 1
    if not count:
        raise invalid("messages", (), "at least one message")
    _check_context_management(reader)
    reasoning, display = _thinking(reader, max_tokens)
    choice, parallel = _tool_choice(reader, tools)
    effort, response_format = _output_config(reader)
    request = Request(
        request_id=context.request_id,
        protocol=Protocol.MESSAGES,
        model=model.id,
        messages=tuple(blocks.conversation.messages),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=parallel,
        response_format=response_format,
        sampling=_sampling(reader),
        max_tokens=max_tokens,
        stop=_stop(reader),
        reasoning=ReasoningSettings(reasoning.enabled, effort, reasoning.budget_tokens),
        cache=CacheSettings(
            namespace=context.namespace,
            cache_id=reader.string("cache_id"),
            salt=reader.string("cache_salt"),
            marked=breakpoints.count > 0,
        ),
        ignore_eos=reader.boolean("ignore_eos"),
        tokens_per_step=context.tokens_per_step,
    )
    return MessagesRequest(
        request=request,
        id=f"msg_{context.request_id}",
        stream=reader.boolean("stream"),
        show_thinking=reasoning.enabled is True,
        omit_thinking_text=display == "omitted",
        write_ttl=breakpoints.ttl,
        seal=context.seal,
        profile=context.profile,
        ignored_fields=ignored,
    )


def _tool(item: Reader, breakpoints: Breakpoints) -> Tool:
    kind = item.string("type") or "custom"
    if kind != "custom":
        raise unsupported(
            item.at("type"), f"tool type '{kind[:100]}'", "no tool runs on the server; define one with input_schema"
        )
    breakpoints.see(item)
    deferred = item.boolean("defer_loading")
    if not deferred:
        item.require("input_schema")
    schema = item.object("input_schema")
    return FunctionTool(
        name=tool_name(item.required_string("name"), item.at("name")),
        description=item.string("description"),
        parameters=None if schema is None else schema.value,
        strict=item.boolean("strict"),
        deferred=deferred,
        path=item.at("input_schema"),
    )


def _tool_choice(reader: Reader, tools: tuple[Tool, ...]) -> tuple[ToolChoice, bool]:
    """AN20: the choice, and whether several calls in one answer are allowed."""
    shape = reader.object("tool_choice")
    if shape is None:
        return ToolChoiceAuto(), True
    parallel = not shape.boolean("disable_parallel_tool_use")
    match shape.required_string("type", allowed=("auto", "any", "tool", "none")):
        case "any":
            if not tools:
                raise invalid(shape.at("type"), "any", "any only with tools")
            return ToolChoiceRequired(), parallel
        case "tool":
            return ToolChoiceNamed(require_tool(tools, shape.required_string("name"), shape.at("name"))), parallel
        case "none":
            return ToolChoiceNone(), parallel
        case _:
            return ToolChoiceAuto(), parallel


def _thinking(reader: Reader, max_tokens: int | None) -> tuple[ReasoningSettings, str | None]:
    """AN17: absent means disabled; a budget is at least 1,024 and less than max_tokens."""
    shape = reader.object("thinking")
    if shape is None:
        return ReasoningSettings(enabled=False), None
    display = shape.string("display", allowed=("summarized", "omitted"))
    match shape.required_string("type", allowed=("enabled", "adaptive", "disabled")):
        case "disabled":
            return ReasoningSettings(enabled=False), display
        case "adaptive":
            return ReasoningSettings(enabled=True), display
        case _:
            shape.require("budget_tokens")
            budget = shape.integer("budget_tokens", low=_MIN_BUDGET, high=_MAX_TOKENS)
            if budget is not None and max_tokens is not None and budget >= max_tokens:
                raise invalid(shape.at("budget_tokens"), shape.raw("budget_tokens"), f"less than max_tokens ({max_tokens})")
            return ReasoningSettings(enabled=True, budget_tokens=budget), display


def _output_config(reader: Reader) -> tuple[str | None, ResponseFormat]:
    shape = reader.object("output_config")
    if shape is None:
        return None, TextFormat()
    effort = shape.string("effort", allowed=_EFFORTS)
    form = shape.object("format")
    if form is None:
        return effort, TextFormat()
    form.required_string("type", allowed=("json_schema",))
    schema = Reader(form.require("schema"), form.at("schema"))
    return effort, JsonSchemaFormat("output", schema.value, strict=True)


def _check_context_management(reader: Reader) -> None:
    """Keeping all thinking is what happens anyway; an edit that would take something away is refused, not ignored."""
    shape = reader.object("context_management")
    if shape is None:
        return
    for edit in shape.objects("edits"):
        kind = edit.required_string("type")
        if not (kind.startswith("clear_thinking_") and edit.raw("keep") == "all"):
            raise unsupported(edit.path, f"edit '{kind[:100]}'", "nothing is taken out of a conversation; allowed keep: all")


def _sampling(reader: Reader) -> Sampling:
    return Sampling(
        temperature=_or(reader.number("temperature", low=0, high=1), 1.0),
        top_p=_or(reader.number("top_p", low=0, high=1), 1.0),
        top_k=reader.integer("top_k", low=0, high=_MAX_TOKENS) or 0,
        min_p=_or(reader.number("min_p", low=0, high=1), 0.0),
        seed=reader.integer("seed", low=-(2**63), high=2**63 - 1),
        presence_penalty=_or(reader.number("presence_penalty", low=-2, high=2), 0.0),
        frequency_penalty=_or(reader.number("frequency_penalty", low=-2, high=2), 0.0),
        repetition_penalty=_or(reader.number("repetition_penalty", low=0.01, high=10), 1.0),
    )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _stop(reader: Reader) -> tuple[str, ...]:
    stops = reader.strings("stop_sequences") or ()
    for index, stop in enumerate(stops):
        if not stop:
            raise invalid(f"stop_sequences[{index}]", stop, "non-empty strings")
    return stops
