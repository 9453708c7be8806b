"""A Chat Completions request body, read into the canonical form."""

from __future__ import annotations

import re
from dataclasses import dataclass

from zllm_ref.canonical.json_value import JsonObject, JsonValue
from zllm_ref.canonical.message import CustomToolCall, Message, Part, Reasoning, Role, Text, ToolCall
from zllm_ref.canonical.request import (
    CacheSettings,
    CustomTool,
    FunctionTool,
    JsonObjectFormat,
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
from zllm_ref.protocols.context import Profile, RequestContext
from zllm_ref.protocols.conversation import Conversation, arguments_of, require_tool, require_unique_tools, tool_name
from zllm_ref.protocols.openai_chat.fields import FIELDS, MEDIA_PARTS, REASONING, STREAM_OPTIONS
from zllm_ref.protocols.reader import Reader, invalid, number_of, unsupported, wrong_type

_MAX_CHOICES = 128
_MAX_STOPS = 4
_MAX_TOKENS = 2**31 - 1
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_ROLES = ("system", "developer", "user", "assistant", "tool")
_TOOL_KINDS = ("function", "custom")
_TOKEN_ID = re.compile(r"[0-9]{1,9}\Z")


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """The canonical request, and what the answer's form depends on beside it."""

    request: Request
    id: str
    created: int
    stream: bool
    include_usage: bool
    profile: Profile
    ignored_fields: tuple[str, ...] = ()


def parse_request(body: JsonObject, context: RequestContext) -> ChatRequest:
    """Raises ApiError with the path of the first field at fault."""
    reader = Reader(body)
    model = context.model(reader.required_string("model"))
    ignored = FIELDS.check(reader, ignore_unknown=context.profile in (Profile.CODEX, Profile.DEEPSEEK))
    stream = reader.boolean("stream")
    options = reader.object("stream_options")
    if options is not None:
        STREAM_OPTIONS.check(options, ignore_unknown=False)
        if not stream:
            raise invalid("stream_options", options.value, "this field only with stream: true")
    logprobs = reader.boolean("logprobs")
    top_logprobs = reader.integer("top_logprobs", low=0, high=20)
    if top_logprobs and not logprobs:
        raise invalid("top_logprobs", reader.raw("top_logprobs"), "this field only with logprobs: true")
    tools = require_unique_tools((_tool(item) for item in reader.objects("tools")), "tools")
    messages = _messages(reader)
    request = Request(
        request_id=context.request_id,
        protocol=Protocol.CHAT,
        model=model.id,
        messages=messages,
        tools=tools,
        tool_choice=_tool_choice(reader, tools),
        parallel_tool_calls=reader.boolean("parallel_tool_calls", default=True),
        response_format=_response_format(reader),
        sampling=_sampling(reader),
        max_tokens=_max_tokens(reader),
        stop=_stop(reader),
        num_choices=reader.integer("n", low=1, high=_MAX_CHOICES) or 1,
        logprobs=logprobs,
        top_logprobs=top_logprobs or 0,
        reasoning=_reasoning(reader),
        cache=CacheSettings(
            namespace=context.namespace,
            cache_id=reader.string("cache_id"),
            salt=reader.string("cache_salt"),
            key=reader.string("prompt_cache_key"),
        ),
        ignore_eos=reader.boolean("ignore_eos"),
        tokens_per_step=context.tokens_per_step,
    )
    return ChatRequest(
        request=request,
        id=f"chatcmpl-{context.request_id}",
        created=context.clock(),
        stream=stream,
        include_usage=options is not None and options.boolean("include_usage"),
        profile=context.profile,
        ignored_fields=ignored,
    )


def _messages(reader: Reader) -> tuple[Message, ...]:
    reader.require("messages")
    conversation = Conversation()
    for message in reader.objects("messages"):
        role = Role(message.required_string("role", allowed=_ROLES))
        message.string("name")
        if role is Role.ASSISTANT:
            conversation.add(role, _assistant_parts(message))
        elif role is Role.TOOL:
            text = "".join(part.text for part in _content(message, "text"))
            conversation.add_result(message.required_string("tool_call_id"), text, message.at("tool_call_id"))
        else:
            conversation.add(role, _content(message, "text"))
    if not conversation.messages:
        raise invalid("messages", (), "at least one message")
    return tuple(conversation.messages)


def _assistant_parts(message: Reader) -> list[Part]:
    parts: list[Part] = []
    # Clients send the reasoning back under the name that it came in (clients.md 3).
    reasoning = message.string("reasoning_content") or message.string("reasoning")
    if reasoning:
        parts.append(Reasoning(reasoning))
    if message.has("content"):
        parts.extend(_content(message, "text", "refusal"))
    refusal = message.string("refusal")
    if refusal:
        parts.append(Text(refusal))
    if message.has("audio"):
        raise unsupported(message.at("audio"), "audio", "the models here read text")
    if message.has("function_call"):
        raise unsupported(message.at("function_call"), "function_call", "deprecated: use `tool_calls`")
    for call in message.objects("tool_calls"):
        parts.append(_tool_call(call))
    if not message.has("content") and not parts:
        message.require("content")
    return parts


def _tool_call(call: Reader) -> Part:
    identity = call.required_string("id")
    if not identity:
        raise invalid(call.at("id"), identity, "a non-empty id")
    kind = call.string("type", allowed=_TOOL_KINDS) or "function"
    body = Reader(call.require(kind), call.at(kind))
    name = tool_name(body.required_string("name"), body.at("name"))
    if kind == "custom":
        body.require("input")
        return CustomToolCall(identity, name, body.string("input") or "")
    body.require("arguments")
    return ToolCall(identity, name, arguments_of(body.string("arguments") or "", body.at("arguments")))


def _content(message: Reader, *allowed: str) -> list[Text]:
    value = message.require("content")
    if isinstance(value, str):
        return [Text(value)]
    if not isinstance(value, tuple):
        raise wrong_type(message.at("content"), value, "a string or an array of content parts")
    parts: list[Text] = []
    for part in message.objects("content"):
        kind = part.required_string("type")
        if kind in MEDIA_PARTS:
            raise unsupported(part.at("type"), kind, "the models here read text")
        if kind not in allowed:
            raise invalid(part.at("type"), kind, "one of " + ", ".join(allowed))
        parts.append(Text(part.required_string(kind)))
    return parts


def _tool(item: Reader) -> Tool:
    kind = item.required_string("type")
    if kind not in _TOOL_KINDS:
        raise unsupported(item.at("type"), f"tool type '{kind[:100]}'", "tools here are function and custom")
    body = Reader(item.require(kind), item.at(kind))
    name, description = tool_name(body.required_string("name"), body.at("name")), body.string("description")
    if kind == "custom":
        return CustomTool(name, description, _grammar(body), path=body.at("format.grammar.definition"))
    parameters = body.object("parameters")
    return FunctionTool(
        name=name,
        description=description,
        parameters=None if parameters is None else parameters.value,
        strict=body.boolean("strict"),
        path=body.at("parameters"),
    )


def _grammar(tool: Reader) -> tuple[str, str] | None:
    """What the input of a free-form tool must match; None: any text."""
    shape = tool.object("format")
    if shape is None or shape.required_string("type", allowed=("text", "grammar")) == "text":
        return None
    grammar = Reader(shape.require("grammar"), shape.at("grammar"))
    return grammar.required_string("syntax", allowed=("lark", "regex")), grammar.required_string("definition")


def _tool_choice(reader: Reader, tools: tuple[Tool, ...]) -> ToolChoice:
    value = reader.raw("tool_choice")
    if value is None:
        return ToolChoiceAuto()
    if isinstance(value, str):
        choices: dict[str, ToolChoice] = {"auto": ToolChoiceAuto(), "none": ToolChoiceNone(), "required": ToolChoiceRequired()}
        choice = choices.get(value)
        if choice is None:
            raise invalid("tool_choice", value, "one of auto, none, required, or an object")
        if isinstance(choice, ToolChoiceRequired) and not tools:
            raise invalid("tool_choice", value, "required only with tools")
        return choice
    chosen = Reader(value, "tool_choice")
    kind = chosen.required_string("type", allowed=(*_TOOL_KINDS, "allowed_tools"))
    body = Reader(chosen.require(kind), chosen.at(kind))
    if kind != "allowed_tools":
        return ToolChoiceNamed(require_tool(tools, body.required_string("name"), body.at("name")))
    mode = body.required_string("mode", allowed=("auto", "required"))
    body.require("tools")
    names = []
    for item in body.objects("tools"):
        what = item.required_string("type", allowed=_TOOL_KINDS)
        named = Reader(item.require(what), item.at(what))
        names.append(require_tool(tools, named.required_string("name"), named.at("name")))
    if not names:
        raise invalid(body.at("tools"), (), "at least one tool")
    return ToolChoiceAuto(tuple(names)) if mode == "auto" else ToolChoiceRequired(tuple(names))


def _response_format(reader: Reader) -> ResponseFormat:
    shape = reader.object("response_format")
    if shape is None:
        return TextFormat()
    kind = shape.required_string("type", allowed=("text", "json_object", "json_schema"))
    if kind == "text":
        return TextFormat()
    if kind == "json_object":
        return JsonObjectFormat()
    body = Reader(shape.require("json_schema"), shape.at("json_schema"))
    schema = Reader(body.require("schema"), body.at("schema"))
    return JsonSchemaFormat(body.required_string("name"), schema.value, body.boolean("strict"))


def _sampling(reader: Reader) -> Sampling:
    bias: list[tuple[int, float]] = []
    table = reader.object("logit_bias")
    for name, value in table.value.pairs if table is not None else ():
        path = f"logit_bias.{name[:60]}"
        if not _TOKEN_ID.match(name):
            raise invalid(path, name, "token ids as keys")
        bias.append((int(name), number_of(value, path, low=-100, high=100)))
    return Sampling(
        temperature=_or(reader.number("temperature", low=0, high=2), 1.0),
        top_p=_or(reader.number("top_p", low=0, high=1), 1.0),
        top_k=max(0, reader.integer("top_k", low=-1, high=_MAX_TOKENS) or 0),
        min_p=_or(reader.number("min_p", low=0, high=1), 0.0),
        seed=reader.integer("seed", low=-(2**63), high=2**63 - 1),
        presence_penalty=_or(reader.number("presence_penalty", low=-2, high=2), 0.0),
        frequency_penalty=_or(reader.number("frequency_penalty", low=-2, high=2), 0.0),
        repetition_penalty=_or(reader.number("repetition_penalty", low=0.01, high=10), 1.0),
        logit_bias=tuple(bias),
    )


def _max_tokens(reader: Reader) -> int | None:
    new = reader.integer("max_completion_tokens", low=1, high=_MAX_TOKENS)
    old = reader.integer("max_tokens", low=1, high=_MAX_TOKENS)
    if new is not None and old is not None and new != old:
        raise invalid("max_tokens", reader.raw("max_tokens"), "max_tokens or max_completion_tokens, not two different values")
    return old if new is None else new


def _stop(reader: Reader) -> tuple[str, ...]:
    value: JsonValue = reader.raw("stop")
    if value is None:
        return ()
    stops = (value,) if isinstance(value, str) else reader.strings("stop") or ()
    if len(stops) > _MAX_STOPS:
        raise invalid("stop", value, f"at most {_MAX_STOPS} strings")
    if "" in stops:
        raise invalid("stop", "", "non-empty strings")
    return stops


def _reasoning(reader: Reader) -> ReasoningSettings:
    effort = reader.string("reasoning_effort", allowed=_EFFORTS)
    shape, thinking = reader.object("reasoning"), reader.object("thinking")
    budget: int | None = None
    if shape is not None:
        REASONING.check(shape, ignore_unknown=False)
        effort = effort or shape.string("effort", allowed=_EFFORTS)
        budget = shape.integer("max_tokens", low=1, high=_MAX_TOKENS)
    enabled = None if effort is None else effort != "none"
    if shape is not None and shape.has("enabled"):
        enabled = shape.boolean("enabled")
    if thinking is not None:
        enabled = thinking.required_string("type", allowed=("enabled", "disabled")) == "enabled"
    return ReasoningSettings(enabled=enabled, effort=None if effort == "none" else effort, budget_tokens=budget)


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
