"""A request body out of a file, in whichever of the three protocols it was written."""

from __future__ import annotations

import time

from zllm_ref.canonical.json_value import JsonObject, JsonValue
from zllm_ref.canonical.model_card import ModelCard
from zllm_ref.canonical.request import Protocol, Request
from zllm_ref.protocols import anthropic_messages, openai_chat, openai_responses
from zllm_ref.protocols.body import read_body
from zllm_ref.protocols.context import Profile, RequestContext
from zllm_ref.protocols.seal import Seal

_MESSAGES_PARTS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document")


def read_request_body(data: bytes, protocol: Protocol | None, *, strip_billing_line: bool = True) -> Request:
    """The request; its protocol is found out where none is named. Raises ApiError with the field at fault."""
    body = read_body(data)
    found = protocol or detect(body)
    model = body.get("model")
    name = model if isinstance(model, str) and model else "any"
    if not isinstance(model, str) or not model:
        body = JsonObject((*((key, value) for key, value in body.pairs if key != "model"), ("model", name)))
    context = RequestContext(
        "0" * 24,
        lambda: int(time.time()),
        (ModelCard(name, 0, 0),),
        Seal(b"0" * 32),
        profile=Profile.CODEX,  # a recorded body may hold fields that only its own client knows
        strip_billing_line=strip_billing_line,
    )
    match found:
        case Protocol.CHAT:
            return openai_chat.parse_request(body, context).request
        case Protocol.RESPONSES:
            return openai_responses.parse_request(_without_past(body), context).request
        case Protocol.MESSAGES:
            return anthropic_messages.parse_count_request(body, context).request


def detect(body: JsonObject) -> Protocol:
    """Whose body this is, by the fields that only one of them has."""
    if body.get("messages") is None and (body.get("input") is not None or body.get("instructions") is not None):
        return Protocol.RESPONSES
    tools = body.get("tools")
    has_schema = isinstance(tools, tuple) and any(isinstance(one, JsonObject) and one.get("input_schema") for one in tools)
    if body.get("system") is not None or has_schema or body.get("thinking") is not None or _has_blocks(body.get("messages")):
        return Protocol.MESSAGES
    return Protocol.CHAT


def _has_blocks(messages: JsonValue) -> bool:
    """A part that only Anthropic's messages have."""
    for message in messages if isinstance(messages, tuple) else ():
        content = message.get("content") if isinstance(message, JsonObject) else None
        for part in content if isinstance(content, tuple) else ():
            if isinstance(part, JsonObject) and part.get("type") in _MESSAGES_PARTS:
                return True
    return False


def _without_past(body: JsonObject) -> JsonObject:
    """A file has no server that remembers: what stands in it is looked at."""
    return JsonObject(tuple(pair for pair in body.pairs if pair[0] not in ("previous_response_id", "conversation")))
