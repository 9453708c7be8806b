"""The three protocols as the exchange sees them: one row each, so that one road serves all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from zllm_ref.canonical.error import ApiError
from zllm_ref.canonical.event import Event
from zllm_ref.canonical.request import Request
from zllm_ref.protocols import anthropic_messages, openai_chat, openai_responses
from zllm_ref.protocols.anthropic_messages import error as messages_error
from zllm_ref.protocols.anthropic_messages.stream import PING
from zllm_ref.protocols.context import Profile
from zllm_ref.protocols.openai_chat import error as chat_error
from zllm_ref.protocols.openai_responses import error as responses_error
from zllm_ref.protocols.sse import KEEP_ALIVE, Frame

OUR_FAULT = "The server failed on this request. The fault is ours."
"""All that a client is told of it: the log has the rest."""


class Call(Protocol):
    """A parsed request of any protocol."""

    @property
    def request(self) -> Request: ...

    @property
    def stream(self) -> bool: ...

    @property
    def profile(self) -> Profile: ...

    @property
    def ignored_fields(self) -> tuple[str, ...]: ...


class AnswerStream(Protocol):
    def on(self, event: Event) -> list[Frame]: ...

    def fail(self, error: ApiError) -> list[Frame]: ...


class Accumulator(Protocol):
    def on(self, frame: Frame) -> None: ...

    def result(self) -> str: ...


@dataclass(frozen=True, slots=True)
class ErrorShape:
    """How an error looks on a path: its status, its body, and the name of the header that carries the request's id."""

    status_of: Callable[[ApiError], int]
    render: Callable[[ApiError, str], str]
    request_id_header: bytes


@dataclass(frozen=True, slots=True)
class Wire:
    """`grammar` names the guard's file, `heartbeat` is what a silent stream says to show that it is alive."""

    grammar: str
    errors: ErrorShape
    make_accumulator: Callable[[], Accumulator]
    heartbeat: bytes


CHAT_ERRORS = ErrorShape(chat_error.status_of, lambda error, _: chat_error.render_error(error), b"x-request-id")
RESPONSES_ERRORS = ErrorShape(responses_error.status_of, lambda error, _: responses_error.render_error(error), b"x-request-id")
MESSAGES_ERRORS = ErrorShape(messages_error.status_of, messages_error.render_error, b"request-id")

CHAT = Wire("chat", CHAT_ERRORS, openai_chat.Accumulator, KEEP_ALIVE)
RESPONSES = Wire("responses", RESPONSES_ERRORS, openai_responses.Accumulator, KEEP_ALIVE)
MESSAGES = Wire("messages", MESSAGES_ERRORS, anthropic_messages.Accumulator, PING.encode())


def errors_for(path: str, *, anthropic: bool) -> ErrorShape:
    """E7: the shape of the protocol that a path belongs to; shared paths answer in the caller's own."""
    if path.startswith("/v1/messages") or (anthropic and not path.startswith(("/v1/chat", "/v1/responses"))):
        return MESSAGES_ERRORS
    return RESPONSES_ERRORS if path.startswith("/v1/responses") else CHAT_ERRORS
