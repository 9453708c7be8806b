"""What `ToolParser` and the reader of one call share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from zllm_ref.dialect.arguments_writer import ArgumentsWriter
from zllm_ref.dialect.call_error import CallError
from zllm_ref.dialect.cursor import Cursor, Found, Tag
from zllm_ref.dialect.event import CallStarted, Diagnostic, DiagnosticKind, ParserEvent
from zllm_ref.dialect.known_tool import KnownTool, unknown_tool
from zllm_ref.dialect.markup import Alphabet, Framing


@dataclass(slots=True)
class CallContext:
    cursor: Cursor
    alphabet: Alphabet
    tools: Mapping[str, KnownTool]
    accepts_unknown: bool
    """A history may call tools that this request no longer has; an answer may not."""
    make_tag: Callable[[Framing], Tag]
    events: list[ParserEvent]
    repairs: bool
    num_calls: int = 0

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
            spelling = self.alphabet.expand(found.spelling)
            right = self.alphabet.expand(found.tag.literal)
            if spelling != right:
                self.events.append(Diagnostic(DiagnosticKind.REPAIRED, f"tag: got {spelling!r}, read as {right!r}", spelling))
        return found

    def tags_on_lines(self, framing: Framing) -> tuple[Tag, ...]:
        """The tags of a framing that stand on lines of their own: white space between tags is never data."""
        lines: list[list[object]] = [[]]
        for piece in framing:
            if not isinstance(piece, str):
                if lines[-1] and not isinstance(lines[-1][-1], str):
                    lines.append([])  # two markers in a row are two tags
                lines[-1].append(piece)
                continue
            first, *others = piece.split("\n")
            if first:
                lines[-1].append(first)
            lines += [[other] if other else [] for other in others]
        return tuple(self.make_tag(tuple(line)) for line in lines if line)  # type: ignore[arg-type]

    def first_tag(self, framing: Framing) -> Tag:
        return self.tags_on_lines(framing)[0]

    def tags_of(self, *framings: Framing) -> Sequence[Tag]:
        return [self.first_tag(framing) for framing in framings if framing]
