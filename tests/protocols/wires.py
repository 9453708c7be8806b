"""What the tests of all three protocols share: a context, and a parser per protocol."""

from __future__ import annotations

import json
from typing import Any

from zllm_ref.canonical.model_card import ModelCard
from zllm_ref.canonical.request import Request
from zllm_ref.protocols import anthropic_messages, openai_chat, openai_responses
from zllm_ref.protocols.body import read_body
from zllm_ref.protocols.context import Profile, RequestContext
from zllm_ref.protocols.openai_responses import History
from zllm_ref.protocols.seal import Seal

SEAL = Seal(bytes(range(32)))


def context(profile: Profile = Profile.OPENAI, **changes: Any) -> RequestContext:
    fields: dict[str, Any] = {"request_id": "ab" * 12, "clock": lambda: 1_700_000_000, "seal": SEAL, "profile": profile}
    return RequestContext(models=(ModelCard("fake", 1, 8192),), **{**fields, **changes})


def chat(profile: Profile = Profile.OPENAI, **body: Any) -> openai_chat.ChatRequest:
    return openai_chat.parse_request(read_body(json.dumps({"model": "fake", **body}).encode()), context(profile))


def responses(
    profile: Profile = Profile.OPENAI, history: History | None = None, **body: Any
) -> openai_responses.ResponsesRequest:
    return openai_responses.parse_request(read_body(json.dumps({"model": "fake", **body}).encode()), context(profile), history)


def messages(**body: Any) -> anthropic_messages.MessagesRequest:
    full = {"model": "fake", "max_tokens": 4096, **body}
    return anthropic_messages.parse_request(read_body(json.dumps(full).encode()), context())


def said(request: Request) -> list[tuple[str, tuple[object, ...]]]:
    """The conversation without signatures, for comparison across protocols."""
    return [(message.role.value, message.parts) for message in request.messages]
