"""What `ToolParser` and the reader of one call share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zllm_ref.dialect.arguments_writer import ArgumentsWriter
from zllm_ref.dialect.call_error import CallError
from zllm_ref.dialect.cursor import Cursor, Found
from zllm_ref.dialect.event import CallStarted, Diagnostic, DiagnosticKind, ParserEvent
from zllm_ref.dialect.known_tool import KnownTool, unknown_tool
from zllm_ref.dialect.markup import Alphabet
from zllm_ref.dialect.parser_tags import TagTable


@dataclass(slots=True)
class CallContext:
    cursor: Cursor
    table: TagTable
    tools: Mapping[str, KnownTool]
    accepts_unknown: bool
    """A history may call tools that this request no longer has; an answer may not."""
    events: list[ParserEvent]
    num_calls: int = 0

    @property
    def alphabet(self) -> Alphabet:
        return self.table.alphabet

    @property
    def repairs(self) -> bool:
        return self.table.repairs

    def start_call(self, wire: str) -> tuple[KnownTool, ArgumentsWriter]:
        """Says that a call began. Raises CallError where no tool has this name."""
        tool = self.tools.get(wire)
        if tool is None:
            if not self.accepts_unknown or not wire:
                known = ", ".join(sorted(self.tools)) or "none"
                raise CallError(f"name of a called tool: got {wire[:80]!r}, allowed {known}", DiagnosticKind.UNKNOWN_TOOL)
            tool = unknown_tool(wire)
        ordinal = self.num_calls
        self.num_calls += 1
        self.events.append(CallStarted(ordinal, tool.name, tool.namespace, tool.custom))
        return tool, ArgumentsWriter(ordinal, tool.custom, self.events)

    def note(self, found: Found) -> Found:
        """Reports a tag that was not spelled right."""
        if self.repairs and found.is_repaired:
            spelling = self.alphabet.spell(found.spelling)
            right = self.alphabet.spell(found.tag.literal)
            if spelling != right:
                self.events.append(Diagnostic(DiagnosticKind.REPAIRED, f"tag: got {spelling!r}, read as {right!r}", spelling))
        return found
