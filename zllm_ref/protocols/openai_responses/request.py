"""A Responses request body, read into the canonical form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.json_value import JsonObject, JsonValue, dump_json, from_python
from zllm_ref.canonical.message import Role, Text
from zllm_ref.canonical.request import (
    CacheSettings,
    JsonObjectFormat,
    JsonSchemaFormat,
    Protocol,
    ReasoningSettings,
    Request,
    ResponseFormat,
    Sampling,
    TextFormat,
)
from zllm_ref.protocols.context import Profile, RequestContext
from zllm_ref.protocols.conversation import require_unique_tools
from zllm_ref.protocols.openai_responses.fields import EMPTY_METADATA, FIELDS, INCLUDE, REASONING, STREAM_OPTIONS, TEXT
from zllm_ref.protocols.openai_responses.items import ItemReader
from zllm_ref.protocols.openai_responses.tools import ToolList, echoed_tools, tool_choice
from zllm_ref.protocols.reader import Reader, invalid, wrong_type
from zllm_ref.protocols.seal import Seal
from zllm_ref.protocols.sse import on_one_line

_MAX_TOKENS = 2**31 - 1
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_METADATA_PAIRS, _METADATA_KEY, _METADATA_VALUE = 16, 64, 512


@dataclass(frozen=True, slots=True)
class History:
    """What earlier responses contribute: all items before this request's input, and known items by id."""

    items: tuple[JsonValue, ...] = ()
    known_items: Mapping[str, JsonObject] = field(default_factory=dict)
    cache_id: str | None = None
    """Where the end state of the last of them was kept: a hint, as a client's own would be."""


@dataclass(frozen=True, slots=True)
class ResponsesRequest:
    """The canonical request, and what the answer's form depends on beside it. `echo` is JSON text: the pairs of RS17.

    `compacts`: a `compaction_trigger` asks for a summary of the conversation instead of its next turn.
    """

    request: Request
    id: str
    created: int
    clock: Callable[[], int]
    stream: bool
    store: bool
    background: bool
    previous_response_id: str | None
    truncate: bool
    input_items: tuple[JsonValue, ...]
    echo: str
    include_encrypted: bool
    include_logprobs: bool
    summarise: bool
    compacts: bool
    profile: Profile
    seal: Seal
    ignored_fields: tuple[str, ...] = ()


def input_items_of(body: JsonObject) -> tuple[JsonValue, ...]:
    """The request's own input as a list of items: a string is one message of the user."""
    value = body.get("input")
    if value is None:
        return ()
    if isinstance(value, str):
        message = JsonObject((("type", "message"), ("role", "user"), ("content", value)))
        return (message,)
    if not isinstance(value, tuple):
        raise wrong_type("input", value, "a string or an array of items")
    return value


def parse_request(body: JsonObject, context: RequestContext, history: History | None = None) -> ResponsesRequest:
    """Raises ApiError with the path of the first field at fault."""
    past = history or History()
    reader = Reader(body)
    model = context.model(reader.required_string("model"))
    lenient = context.profile is Profile.CODEX
    ignored = FIELDS.check(reader, ignore_unknown=lenient)
    stream = reader.boolean("stream")
    options = reader.object("stream_options")
    if options is not None:
        STREAM_OPTIONS.check(options, ignore_unknown=False)
    store, background = reader.boolean("store", default=True), reader.boolean("background")
    if background and not store:
        raise invalid("background", reader.raw("background"), "true only with store: true, since the answer is fetched later")
    reader.integer("max_tool_calls", low=1, high=_MAX_TOKENS)
    include = _include(reader)
    top_logprobs = reader.integer("top_logprobs", low=0, high=20) or 0
    reasoning, summarise = _reasoning(reader)

    tool_list = ToolList(skip_hosted=lenient, tools=[], skipped=[])
    for item in reader.objects("tools"):
        tool_list.add(item)
    items = input_items_of(body)
    item_reader = ItemReader(tool_list, context.seal, past.known_items)
    instructions = reader.string("instructions")
    if instructions:
        item_reader.conversation.add(Role.SYSTEM, (Text(instructions),))
    item_reader.add_all(past.items, "input")
    item_reader.wants_compaction = False  # what an earlier request asked for has been answered
    item_reader.add_all(items, "input")
    if not item_reader.conversation.messages:
        if not reader.has("input"):
            reader.require("input")
        raise invalid("input", body.get("input"), "at least one item")
    tools = require_unique_tools(tool_list.tools, "tools")

    wants_logprobs = "message.output_text.logprobs" in include or top_logprobs > 0
    request = Request(
        request_id=context.request_id,
        protocol=Protocol.RESPONSES,
        model=model.id,
        messages=tuple(item_reader.conversation.messages),
        tools=tools,
        tool_choice=tool_choice(reader, tools),
        parallel_tool_calls=reader.boolean("parallel_tool_calls", default=True),
        response_format=_text_format(reader),
        sampling=_sampling(reader),
        max_tokens=reader.integer("max_output_tokens", low=1, high=_MAX_TOKENS),
        logprobs=wants_logprobs,
        top_logprobs=top_logprobs,
        reasoning=reasoning,
        cache=CacheSettings(
            namespace=context.namespace,
            cache_id=reader.string("cache_id") or past.cache_id,
            salt=reader.string("cache_salt"),
            key=reader.string("prompt_cache_key"),
        ),
        ignore_eos=reader.boolean("ignore_eos"),
        tokens_per_step=context.tokens_per_step,
    )
    return ResponsesRequest(
        request=request,
        id=f"resp_{context.request_id}",
        created=context.clock(),
        clock=context.clock,
        stream=stream,
        store=store,
        background=background,
        previous_response_id=reader.string("previous_response_id"),
        truncate=reader.string("truncation", allowed=("auto", "disabled")) == "auto",
        input_items=items,
        echo=_echo(reader, request),
        include_encrypted="reasoning.encrypted_content" in include,
        include_logprobs=wants_logprobs,
        summarise=summarise,
        compacts=item_reader.wants_compaction,
        profile=context.profile,
        seal=context.seal,
        ignored_fields=(*ignored, *tool_list.skipped),
    )


def previous_response_not_found(identity: str) -> ApiError:
    """OpenAI's own answer to an id that is unknown, deleted, or was never stored (RS20)."""
    return ApiError(
        ErrorKind.INVALID_VALUE,
        f"Previous response with id '{identity[:200]}' not found.",
        param="previous_response_id",
        code="previous_response_not_found",
    )


def _include(reader: Reader) -> tuple[str, ...]:
    values = reader.strings("include") or ()
    for index, value in enumerate(values):
        if value not in INCLUDE:
            raise invalid(f"include[{index}]", value, "one of " + ", ".join(INCLUDE))
    return values


def _reasoning(reader: Reader) -> tuple[ReasoningSettings, bool]:
    """The settings, and whether the reasoning is shown as a summary: here its own text, since nothing shortens it."""
    shape = reader.object("reasoning")
    if shape is None:
        return ReasoningSettings(), False
    REASONING.check(shape, ignore_unknown=True)
    effort = shape.string("effort", allowed=_EFFORTS)
    summary = shape.string("summary", allowed=("auto", "concise", "detailed", "none"))
    enabled = None if effort is None else effort != "none"
    return ReasoningSettings(enabled=enabled, effort=None if effort == "none" else effort), summary not in (None, "none")


def _text_format(reader: Reader) -> ResponseFormat:
    text = reader.object("text")
    if text is None:
        return TextFormat()
    TEXT.check(text, ignore_unknown=False)
    shape = text.object("format")
    if shape is None:
        return TextFormat()
    kind = shape.required_string("type", allowed=("text", "json_object", "json_schema"))
    if kind == "text":
        return TextFormat()
    if kind == "json_object":
        return JsonObjectFormat()
    schema = Reader(shape.require("schema"), shape.at("schema"))
    return JsonSchemaFormat(shape.required_string("name"), schema.value, shape.boolean("strict"))


def _sampling(reader: Reader) -> Sampling:
    return Sampling(
        temperature=_or(reader.number("temperature", low=0, high=2), 1.0),
        top_p=_or(reader.number("top_p", low=0, high=1), 1.0),
        top_k=max(0, reader.integer("top_k", low=-1, high=_MAX_TOKENS) or 0),
        min_p=_or(reader.number("min_p", low=0, high=1), 0.0),
        seed=reader.integer("seed", low=-(2**63), high=2**63 - 1),
        presence_penalty=_or(reader.number("presence_penalty", low=-2, high=2), 0.0),
        frequency_penalty=_or(reader.number("frequency_penalty", low=-2, high=2), 0.0),
        repetition_penalty=_or(reader.number("repetition_penalty", low=0.01, high=10), 1.0),
    )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _metadata(reader: Reader) -> JsonObject:
    shape = reader.object("metadata")
    if shape is None:
        return EMPTY_METADATA
    if len(shape.value.pairs) > _METADATA_PAIRS:
        raise invalid("metadata", shape.value, f"at most {_METADATA_PAIRS} pairs")
    for name, value in shape.value.pairs:
        path = f"metadata.{name[:_METADATA_KEY]}"
        if not isinstance(value, str):
            raise wrong_type(path, value, "a string")
        if len(name) > _METADATA_KEY or len(value) > _METADATA_VALUE:
            raise invalid(path, value, f"names to {_METADATA_KEY} and values to {_METADATA_VALUE} characters")
    return shape.value


def _echo(reader: Reader, request: Request) -> str:
    """RS17: the request's settings as the response repeats them, every key present, defaults filled in."""
    sampling = request.sampling
    text = reader.raw("text")
    shape = text.get("format") if isinstance(text, JsonObject) else None
    verbosity = text.get("verbosity") if isinstance(text, JsonObject) else None
    reasoning = reader.raw("reasoning")
    effort, summary = (reasoning.get("effort"), reasoning.get("summary")) if isinstance(reasoning, JsonObject) else (None, None)
    pairs: list[tuple[str, JsonValue]] = [
        ("instructions", reader.raw("instructions")),
        ("max_output_tokens", reader.raw("max_output_tokens")),
        ("max_tool_calls", reader.raw("max_tool_calls")),
        ("previous_response_id", reader.raw("previous_response_id")),
        ("parallel_tool_calls", request.parallel_tool_calls),
        ("temperature", from_python(sampling.temperature)),
        ("top_p", from_python(sampling.top_p)),
        ("presence_penalty", from_python(sampling.presence_penalty)),
        ("frequency_penalty", from_python(sampling.frequency_penalty)),
        ("top_logprobs", from_python(request.top_logprobs)),
        ("tool_choice", "auto" if not reader.has("tool_choice") else reader.raw("tool_choice")),
        ("tools", echoed_tools(reader)),
        ("text", JsonObject((("format", shape or JsonObject((("type", "text"),))), ("verbosity", verbosity or "medium")))),
        ("reasoning", JsonObject((("effort", effort), ("summary", summary)))),
        ("truncation", reader.raw("truncation") or "disabled"),
        ("store", reader.boolean("store", default=True)),
        ("background", reader.boolean("background")),
        ("service_tier", "default"),
        ("prompt_cache_key", reader.raw("prompt_cache_key")),
        ("prompt_cache_retention", reader.raw("prompt_cache_retention")),
        ("safety_identifier", reader.raw("safety_identifier")),
        ("user", reader.raw("user")),
        ("metadata", _metadata(reader)),
    ]
    return on_one_line(dump_json(JsonObject(tuple(pairs)), separators=(",", ":")))[1:-1]
