"""How one family writes tool calls: the one description from which render, parser and fence grammar are made.

Two shapes cover all nine dialects. Quotes are text, bare words are markers.

`TagLayout`: a tag per parameter, values bare.

    DSML V4     "\\n\\n" │ "<" DSML "tool_calls>\\n" │ "<" DSML 'invoke name="' N '">\\n'
                          "<" DSML 'parameter name="' K '" string="true">' V "</" DSML "parameter>"   joined by "\\n"
                          "\\n</" DSML "invoke>"   joined by "\\n" │ "\\n</" DSML "tool_calls>"
    GLM 4.7     tool_call N  arg_key K /arg_key arg_value V /arg_value …  /tool_call
    Qwen3-Coder "\\n\\n" │ tool_call "\\n<function=" N ">\\n"  "<parameter=" K ">\\n" V "\\n</parameter>\\n" …
                       "</function>\\n" /tool_call

`JsonLayout`: one JSON object in a pair of markers.

    ChatML      "\\n" │ tool_call "\\n" '{"name": "' N '", "arguments": ' {…} "}" "\\n" /tool_call
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from zllm_ref.dialect.markup import Framing
from zllm_ref.fence.grammar import Marker


@dataclass(frozen=True, slots=True)
class TagLayout:
    """Calls as nested tags. `block_*` enclose all calls of an answer; empty where each call stands alone."""

    lead: str
    """Text before the first call that belongs to the calls, not to the content, if there is content."""
    lead_without_content: bool
    """The lead stands there even where no content precedes it."""
    call_open: Framing
    name_close: str
    parameter_open: Framing
    key_close: Framing
    string_key_close: Framing
    """As `key_close`, where the value is a string (only DSML tells the two apart)."""
    value_close: Framing
    call_close: Framing
    between_parameters: str = ""
    between_calls: str = ""
    block_open: Framing = ()
    block_close: Framing = ()
    python_scalars: bool = False
    """True, False and None instead of true, false and null where the vendor's template writes history; both are read."""

    @property
    def marks_strings(self) -> bool:
        """The markup itself says which values are strings."""
        return self.key_close != self.string_key_close

    @property
    def framings(self) -> tuple[Framing, ...]:
        return (
            self.block_open,
            self.call_open,
            self.parameter_open,
            self.key_close,
            self.string_key_close,
            self.value_close,
            self.call_close,
            self.block_close,
        )


@dataclass(frozen=True, slots=True)
class JsonLayout:
    """Calls as `{"name": …, "arguments": {…}}` between two markers."""

    lead: str
    lead_without_content: bool
    call_open: Framing
    call_close: Framing
    between_calls: str

    @property
    def framings(self) -> tuple[Framing, ...]:
        return (self.call_open, self.call_close)


CallLayout: TypeAlias = TagLayout | JsonLayout


@dataclass(frozen=True, slots=True)
class ReasoningLayout:
    """How thinking is framed: `open` text `close`.

    `before_close` and `after_close` are framing around the closing marker: "\\n" and "\\n\\n" in Qwen3.
    """

    open_marker: Marker
    close_marker: Marker
    before_open: str = ""
    after_open: str = ""
    before_close: str = ""
    after_close: str = ""
    after_close_is_of_content: bool = False
    """`after_close` stands only where content follows (GLM 4.5); otherwise always."""

    @property
    def open(self) -> Framing:
        return (self.before_open, self.open_marker, self.after_open)

    @property
    def close(self) -> Framing:
        return (self.before_close, self.close_marker, self.after_close)


@dataclass(frozen=True, slots=True)
class ProtocolDefinition:
    """One family in one revision. Everything that render, parse and fence share; the history around it is the renderer's."""

    name: str
    calls: CallLayout
    reasoning: ReasoningLayout | None
    end_markers: tuple[str, ...]
    """Every marker with which the model ends its turn."""
    other_markers: tuple[str, ...] = ()
    """Markers of roles and results: never part of an answer, masked while one is generated."""

    @property
    def markers(self) -> tuple[str, ...]:
        """The spellings of all markers of the dialect, each once."""
        framed = [piece.name for framing in self.calls.framings for piece in framing if isinstance(piece, Marker)]
        thinking = [self.reasoning.open_marker.name, self.reasoning.close_marker.name] if self.reasoning else []
        return tuple(dict.fromkeys([*framed, *thinking, *self.end_markers, *self.other_markers]))
