"""An engine of sixty lines: it says what it was told to say, a given number of events a step, from a thread of its own."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from zllm_ref.canonical.error import ApiError, ErrorKind
from zllm_ref.canonical.event import (
    Event,
    Failed,
    Finished,
    FinishReason,
    ReasoningDelta,
    RefusalDelta,
    Started,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallFinished,
    ToolCallStarted,
)
from zllm_ref.canonical.figure import Figure
from zllm_ref.canonical.model_card import ModelCard
from zllm_ref.canonical.request import Request
from zllm_ref.canonical.usage import Usage

PATIENCE = 120.0
"""Seconds after which a test gives up. Only a test that fails waits so long, so that no busy machine turns a verdict."""
CARD = ModelCard("fake", 1_700_000_000, 8192, ("alias",))
Listener = Callable[[Sequence[Event]], None]


@dataclass(frozen=True)
class Say:
    """One segment of an answer: text, reasoning, a refusal, or a call, also a free-form one (name, arguments or input)."""

    kind: str
    text: str
    arguments: str = ""


@dataclass
class FakeGeneration:
    cancelled: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        self.cancelled.set()


@dataclass
class FakeEngine:
    """`submit_gate` holds `submit`, `pause_seconds` each step, `gates` an answer before its events of these numbers, until they
    are opened: one that never is stands for an answer that is still going on when it is cancelled, however slow the machine.

    An answer is what the engine was told when it was submitted; what it is told later is for later ones.
    """

    script: tuple[Say, ...] = (Say("text", "Hello, wörld!"),)
    reason: FinishReason | None = None
    stop_string: str | None = None
    events_per_step: int = 1
    pause_seconds: float = 0.0
    fail_after: int | None = None
    extra: tuple[Event, ...] = ()
    cached_tokens: int = 0
    written_tokens: int = 0
    gates: Mapping[int, threading.Event] = field(default_factory=dict)
    submit_gate: threading.Event | None = None
    models: tuple[ModelCard, ...] = (CARD,)
    extra_health: dict[str, object] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    generations: list[FakeGeneration] = field(default_factory=list)

    def health(self) -> dict[str, object]:
        return {"status": "ready" if self.models else "loading", **self.extra_health}

    def figures(self) -> tuple[Figure, ...]:
        return (Figure("cache_misses", "Prompts computed from their start", 3, True),)

    def count_tokens(self, request: Request) -> int:
        texts = [message.text + "".join(result.text for result in message.tool_results) for message in request.messages]
        tokens = sum(len(text.split()) + 1 for text in texts) + 5 * len(request.tools)
        if tokens > CARD.context_length:
            raise ApiError(ErrorKind.CONTEXT_OVERFLOW, f"prompt: got {tokens} tokens, allowed {CARD.context_length}")
        return tokens

    def submit(self, request: Request, listener: Listener) -> FakeGeneration:
        tokens = self.count_tokens(request)
        self.requests.append(request)
        events = self.events(request, tokens)
        if self.submit_gate is not None:
            assert self.submit_gate.wait(PATIENCE)
        generation = FakeGeneration()
        told = (events, dict(self.gates), listener, generation)
        self.generations.append(generation)
        threading.Thread(target=self._speak, args=told, daemon=True).start()
        return generation

    def _speak(
        self, events: list[Event], gates: Mapping[int, threading.Event], listener: Listener, generation: FakeGeneration
    ) -> None:
        for start in range(0, len(events), self.events_per_step):
            if start in gates and not gates[start].wait(PATIENCE):
                return
            if generation.cancelled.wait(self.pause_seconds) if self.pause_seconds else generation.cancelled.is_set():
                return
            listener(events[start : start + self.events_per_step])

    def events(self, request: Request, tokens: int) -> list[Event]:
        usage = Usage(tokens, min(self.cached_tokens, tokens), self.written_tokens, 1)
        events: list[Event] = [Started(usage, f"zc_{request.request_id}")]
        for choice in range(request.num_choices):
            events += self._choice(request, choice)
        events += self.extra
        if self.fail_after is not None:
            return [*events[: self.fail_after], Failed(ApiError(ErrorKind.INTERNAL, "the device fell over"))]
        kinds = {say.kind for say in self.script}
        own = FinishReason.TOOL_CALLS if kinds & {"call", "custom"} else FinishReason.END
        reason = self.reason or (FinishReason.REFUSAL if "refusal" in kinds else own)
        final = replace(usage, completion_tokens=max(1, sum(isinstance(event, TextDelta) for event in events)))
        events += [Finished(reason, final, self.stop_string, choice) for choice in range(request.num_choices)]
        return events

    def _choice(self, request: Request, choice: int) -> list[Event]:
        events: list[Event] = []
        calls = 0
        for say in self.script:
            if say.kind == "text":
                events += [TextDelta(piece, choice) for piece in _pieces(say.text)]
            elif say.kind == "reasoning":
                events += [ReasoningDelta(piece, choice) for piece in _pieces(say.text)]
            elif say.kind == "refusal":
                events += [RefusalDelta(piece, choice) for piece in _pieces(say.text)]
            else:
                digest = hashlib.sha256(f"{request.request_id}/{choice}/{calls}/{say.text}".encode()).hexdigest()[:24]
                events.append(ToolCallStarted(calls, f"call_{digest}", say.text, custom=say.kind == "custom", choice=choice))
                events += [ToolArgumentsDelta(calls, piece, choice) for piece in _pieces(say.arguments)]
                events.append(ToolCallFinished(calls, say.arguments, choice))
                calls += 1
        return events


def unending(num_events: int = 50, *, script: tuple[Say, ...] = (Say("text", "abc" * 1000),), **told: Any) -> FakeEngine:
    """Says the beginning of each answer, and then nothing: on no machine has one ended before it is cancelled."""
    return FakeEngine(script=script, gates={num_events: threading.Event()}, **told)


class EchoEngine(FakeEngine):
    """Answers every request with the text of its last message."""

    def _choice(self, request: Request, choice: int) -> list[Event]:
        return [TextDelta(piece, choice) for piece in _pieces(request.messages[-1].text)]


def _pieces(text: str, size: int = 3) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]
