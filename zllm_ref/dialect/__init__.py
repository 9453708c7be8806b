"""Between a conversation and the text that one family of models reads and writes.

Knows: roles, tools, templates, the tags in which a family writes calls, and which pieces of a prompt are markers.
Must never know: an API's field names, a stream's frames, a tensor, a cache.

    messages, tools ──ToolDialect.render──▶ segments ──encode──▶ ids
    pieces of text and markers ──ToolParser──▶ deltas of reasoning, text and calls

Render and parse come from one definition for each family and revision, so that each undoes the other: in value for every legal
history, in bytes for every canonical text. What cannot be undone is refused (`UnrenderableValue`), never changed.
"""

from zllm_ref.dialect.registry import UnknownDialect, dialect_for, dialect_names
from zllm_ref.dialect.replay import GeneratedStore, MemoryStore, Replay
from zllm_ref.dialect.segment import MarkerSegment, ReplaySegment, Segment, TextSegment, encode, text_of
from zllm_ref.dialect.tool_dialect import ToolDialect
from zllm_ref.dialect.tool_parser import ParseMode, ToolParser
from zllm_ref.dialect.unrenderable import UnrenderableValue

__all__ = [
    "GeneratedStore",
    "MarkerSegment",
    "MemoryStore",
    "ParseMode",
    "Replay",
    "ReplaySegment",
    "Segment",
    "TextSegment",
    "ToolDialect",
    "ToolParser",
    "UnknownDialect",
    "UnrenderableValue",
    "dialect_for",
    "dialect_names",
    "encode",
    "text_of",
]
