"""What the parser needs to know of the request's tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zllm_ref.canonical.request import CustomTool, Tool
from zllm_ref.dialect.tool_wire import wire_name, wire_parameters
from zllm_ref.dialect.value_kind import ValueKind, parameter_kinds


@dataclass(frozen=True, slots=True)
class KnownTool:
    name: str
    namespace: str | None
    custom: bool
    kinds: Mapping[str, ValueKind]
    """Parameter → kind of its values; an undeclared one may be either."""

    def kind_of(self, parameter: str) -> ValueKind:
        return self.kinds.get(parameter, ValueKind.EITHER)


def known_tools(tools: Sequence[Tool]) -> dict[str, KnownTool]:
    """By the flat name that the model writes."""
    return {
        wire_name(tool): KnownTool(
            tool.name, tool.namespace, isinstance(tool, CustomTool), parameter_kinds(wire_parameters(tool))
        )
        for tool in tools
    }


def unknown_tool(wire: str) -> KnownTool:
    """A tool of an older request, whose schema is gone: every value may be either."""
    namespace, dot, name = wire.rpartition(".")
    return KnownTool(name if dot else wire, namespace or None, False, {})
