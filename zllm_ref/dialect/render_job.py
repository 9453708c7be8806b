"""Everything that a renderer needs to write one prompt, and the shape that all renderers share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from zllm_ref.canonical.message import Message, Role
from zllm_ref.canonical.request import ReasoningSettings, Tool
from zllm_ref.dialect.call_layout import ProtocolDefinition
from zllm_ref.dialect.call_writer import write_calls
from zllm_ref.dialect.conversation import AssistantTurn, Turn
from zllm_ref.dialect.markup import Framing
from zllm_ref.dialect.writer import SegmentWriter


@dataclass(frozen=True, slots=True)
class GeneratedTurn:
    """An answer of this server as it was generated: `ids` without the id that ended it.

    The first `num_reasoning` ids are reasoning with its framing; None: reasoning ends inside a token (text mode), so the rest
    cannot stand alone. `reasoning_enabled` and `effort` are what the request asked
    for, from which follows what stood between the assistant's header and the first id.
    """

    ids: tuple[int, ...]
    num_reasoning: int | None = 0
    reasoning_enabled: bool | None = None
    effort: str | None = None


GeneratedTurns = Callable[[Message], "GeneratedTurn | None"]
"""Finds the generated form of a message that the client sent back; None: not this server's, or edited."""


def no_generated_turns(message: Message) -> GeneratedTurn | None:
    """Every message is written anew."""
    return None


@dataclass(frozen=True, slots=True)
class RenderJob:
    messages: tuple[Message, ...]
    turns: tuple[Turn, ...]
    """The same conversation, one turn a tool result."""
    tools: tuple[Tool, ...]
    """As the front of the prompt shows them (deferred ones left out)."""
    reasoning: ReasoningSettings
    keep_reasoning: bool = False
    """Old reasoning stays, whatever the vendor's template says: the prefix then never forks."""
    add_generation_prompt: bool = True
    generated: GeneratedTurns = no_generated_turns


class Renderer(Protocol):
    """One family's way to write a conversation. Stateless."""

    def render(self, writer: SegmentWriter, job: RenderJob) -> None:
        """The whole prompt, generation prompt included if the job wants it."""

    def prompt_tail(self, reasoning: ReasoningSettings) -> Framing:
        """What stands between the assistant's header and the first generated id."""


def write_content_and_calls(writer: SegmentWriter, definition: ProtocolDefinition, turn: AssistantTurn, content: str) -> None:
    """Content as the client said it, then the calls: the part of an answer that no template ever drops."""
    writer.client(content, Role.ASSISTANT)
    write_calls(writer, definition.calls, turn.calls, has_content=bool(content))


def replayed(job: RenderJob, message: Message, *, keeps: bool) -> GeneratedTurn | None:
    """The generated form of a message, cut down to what stays of it: all, or what follows the reasoning. None: write it anew."""
    generated = job.generated(message)
    if generated is None or keeps:
        return generated
    if generated.num_reasoning is None:
        return None
    return replace(generated, ids=generated.ids[generated.num_reasoning :])


def settings_of(generated: GeneratedTurn) -> ReasoningSettings:
    """The settings with which the turn was generated."""
    return ReasoningSettings(enabled=generated.reasoning_enabled, effort=generated.effort)
