"""One generation as it happens, in no protocol's words: what the renderers tell three times."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Text:
    pieces: tuple[str, ...]
    choice: int = 0
    phase: str | None = None
    """`commentary` or `final_answer` (Responses)."""
    citations: int = 0

    @property
    def whole(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True, slots=True)
class Reasoning:
    pieces: tuple[str, ...]
    summary: tuple[tuple[str, ...], ...] = ()
    """Summary parts (Responses); raw text goes into `pieces`."""
    signature: str = "c2lnbmF0dXJlLW9mLXRoZS10aGlua2luZw=="
    is_encrypted: bool = False
    is_redacted: bool = False
    choice: int = 0

    @property
    def whole(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True, slots=True)
class Refusal:
    pieces: tuple[str, ...]
    choice: int = 0

    @property
    def whole(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True, slots=True)
class Call:
    """`kind` is function, custom, or a hosted tool of the protocol (web_search_call, server_tool_use …)."""

    name: str
    pieces: tuple[str, ...]
    kind: str = "function"
    namespace: str | None = None
    is_cut: bool = False
    choice: int = 0

    @property
    def whole(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True, slots=True)
class Hosted:
    """A tool that runs at the server: its item, the events it goes through, what the result block holds."""

    kind: str
    events: tuple[tuple[str, dict[str, Any]], ...] = ()
    fields: tuple[tuple[str, Any], ...] = ()
    final: tuple[tuple[str, Any], ...] = ()
    is_left_open: bool = False


Part: TypeAlias = Text | Reasoning | Refusal | Call | Hosted


@dataclass(frozen=True, slots=True)
class Story:
    """`end`: stop, stop_string, length, context, content_filter, refusal, pause, failed, error, cut_by_filter."""

    parts: tuple[Part, ...]
    end: str = "stop"
    prompt_tokens: int = 21
    cached_tokens: int = 0
    written_tokens: int = 0
    completion_tokens: int = 9
    reasoning_tokens: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    """Switches of single renderers: num_choices, usage, logprobs, comments, pings, queued, keepalive, obfuscation …"""
    model: str = "golden-1"
    scope: str = "a1"
    """Goes into every id, so that two stories have none in common."""

    def option(self, name: str, default: Any = None) -> Any:
        return self.options.get(name, default)


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a rendered stream: an event line and data, or a comment."""

    event: str | None
    data: dict[str, Any] | str
    is_comment: bool = False

    def encode(self) -> bytes:
        if self.is_comment:
            return f": {self.data}\n\n".encode()
        line = f"event: {self.event}\n" if self.event is not None else ""
        data = self.data if isinstance(self.data, str) else json.dumps(self.data, ensure_ascii=False, separators=(",", ":"))
        return f"{line}data: {data}\n\n".encode(errors="surrogatepass")


def encode(frames: list[Frame]) -> bytes:
    """The body of the stream."""
    return b"".join(frame.encode() for frame in frames)


def comment(text: str) -> Frame:
    return Frame(None, text, is_comment=True)
