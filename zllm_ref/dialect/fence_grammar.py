"""A dialect's layout as the fence's grammar: what a fenced model writes is what the parser reads and the renderer writes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import assert_never

from zllm_ref.canonical.json_value import JsonObject, JsonValue, dump_json
from zllm_ref.canonical.request import CustomTool, Tool
from zllm_ref.dialect.call_layout import JsonLayout, ProtocolDefinition, TagLayout
from zllm_ref.dialect.markup import Framing
from zllm_ref.dialect.tool_wire import wire_name, wire_parameters
from zllm_ref.dialect.value_kind import ValueKind, value_kind
from zllm_ref.fence import grammar
from zllm_ref.fence.grammar import CallGrammar, Literal, Marker, Node, Parameter, ReasoningGrammar, ToolGrammar

_NO_RULES = frozenset({"type", "description", "title", "default", "examples", "$defs", "definitions"})
"""Keywords of a string's schema that say nothing about its text."""


def fence_grammar(definition: ProtocolDefinition, tools: Sequence[Tool], digest: str = "") -> ToolGrammar:
    """The grammar of all tools; which of them may be called, and how often, is the fence's business."""
    layout = definition.calls
    lead = layout.lead if layout.lead_without_content else ""
    opener, needs = layout.call_open[0], ""
    head: Framing = ()
    closing: Framing = ()
    between: Framing = (layout.between_calls, layout.call_open[0])
    match layout:
        case JsonLayout():
            calls = [_json_call(layout, index, tool) for index, tool in enumerate(tools)]
        case TagLayout():
            calls = [_tag_call(layout, index, tool) for index, tool in enumerate(tools)]
            if layout.block_open:
                before, opener, *rest = layout.block_open
                head, between, closing = tuple(rest), (layout.between_calls,), layout.block_close
                lead, needs = layout.lead + str(before), str(before)
        case _:
            assert_never(layout)
    assert isinstance(opener, Marker)
    return ToolGrammar(
        revision=definition.name,
        trigger=opener,
        calls=tuple(CallGrammar(wire_name(tool), call) for tool, call in zip(tools, calls, strict=True)),
        lead=lead,
        trigger_needs=needs,
        head=_nodes(head),
        between=_nodes(between),
        closing=_nodes(closing),
        stop_markers=definition.end_markers,
        reasoning=_reasoning(definition),
        digest=digest,
    )


def tools_digest(definition: ProtocolDefinition, tools: Sequence[Tool]) -> str:
    """Of everything that the grammar of these tools follows from, and of which of them are strict."""
    state = hashlib.sha256(definition.name.encode())
    for tool in tools:
        if isinstance(tool, CustomTool):
            parts = ("custom", wire_name(tool), tool.path, *(tool.grammar or ()))
        else:
            parts = ("strict" if tool.strict else "function", wire_name(tool), tool.path, dump_json(wire_parameters(tool)))
        state.update("\x1f".join(parts).encode("utf-8", "surrogatepass") + b"\x1e")
    return state.hexdigest()


def _reasoning(definition: ProtocolDefinition) -> ReasoningGrammar | None:
    layout = definition.reasoning
    if layout is None:
        return None
    opens_with = tuple(_leaf(piece) for piece in layout.open if piece)
    return ReasoningGrammar(layout.close_marker, "" if layout.after_close_is_of_content else layout.after_close, opens_with)


def _json_call(layout: JsonLayout, index: int, tool: Tool) -> Node:
    name = dump_json(wire_name(tool))
    parameters = wire_parameters(tool)
    path = _path_of(tool, index)
    items = []
    for key, schema, is_required, place in _parameters(parameters, path):
        opener = Literal(f"{dump_json(key)}: ")
        items.append(Parameter(key, grammar.Sequence((opener, _json_value(tool, schema, place))), is_required))
    after_open = layout.call_open[1:]
    return grammar.Sequence(
        (
            *(_leaf(piece) for piece in after_open),
            Literal(f'{{"name": {name}, "arguments": {{'),
            grammar.UnorderedParameters(tuple(items), Literal(", "), path),
            Literal("}}"),
            *(_leaf(piece) for piece in layout.call_close),
        )
    )


def _json_value(tool: Tool, schema: JsonObject, path: str) -> Node:
    if not isinstance(tool, CustomTool):
        return grammar.JsonBySchema(schema, path)
    if tool.grammar is None:
        return grammar.JsonString()
    syntax, definition = tool.grammar
    path = tool.path or path
    if syntax == "regex":  # a JSON string is held by what it says, however it is escaped
        return grammar.JsonBySchema(JsonObject((("type", "string"), ("pattern", f"^(?:{definition})$"))), path)
    return grammar.JsonString(f"a {syntax} grammar cannot be held inside a JSON string", path)


def _path_of(tool: Tool, index: int) -> str:
    """Where the arguments' schema stands in the request, as far as it is known."""
    return f"tools[{index}].parameters" if isinstance(tool, CustomTool) else tool.path or f"tools[{index}].parameters"


def _tag_call(layout: TagLayout, index: int, tool: Tool) -> Node:
    parameters = wire_parameters(tool)
    path = _path_of(tool, index)
    items = []
    for key, schema, is_required, place in _parameters(parameters, path):
        items.append(Parameter(key, _tag_parameter(layout, tool, key, schema, parameters, place), is_required))
    opening = layout.call_open if layout.block_open else layout.call_open[1:]
    return grammar.Sequence(
        (
            *(_leaf(piece) for piece in opening),
            Literal(wire_name(tool) + layout.name_close),
            grammar.UnorderedParameters(tuple(items), Literal(layout.between_parameters), path),
            *(_leaf(piece) for piece in layout.call_close),
        )
    )


def _tag_parameter(layout: TagLayout, tool: Tool, key: str, schema: JsonObject, root: JsonObject, path: str) -> Node:
    closer = tuple(_leaf(piece) for piece in layout.value_close)
    opening = (*(_leaf(piece) for piece in layout.parameter_open), Literal(key))
    string: tuple[Node, ...] = (*(_leaf(piece) for piece in layout.string_key_close), _raw(tool, schema, closer, path))
    other: tuple[Node, ...] = (*(_leaf(piece) for piece in layout.key_close), grammar.JsonBySchema(schema, path), *closer)
    kind = ValueKind.STRING if isinstance(tool, CustomTool) else value_kind(schema, root)
    match kind:
        case ValueKind.STRING:
            return grammar.Sequence((*opening, *string))
        case ValueKind.OTHER:
            return grammar.Sequence((*opening, *other))
        case ValueKind.EITHER:
            # Where the markup does not mark strings, text that reads as JSON would be taken for JSON: only JSON is fenced.
            if not layout.marks_strings:
                return grammar.Sequence((*opening, *other))
            return grammar.Choice((grammar.Sequence((*opening, *string)), grammar.Sequence((*opening, *other))))


def _raw(tool: Tool, schema: JsonObject, closer: tuple[Literal | Marker, ...], path: str) -> Node:
    if isinstance(tool, CustomTool) and tool.grammar is not None:
        syntax, definition = tool.grammar
        return grammar.CustomText(syntax, definition, closer, tool.path or path)
    rules = _string_rules(schema, schema)
    if _refers(JsonObject(rules)):
        rules += tuple((key, value) for key, value in schema.pairs if key in ("$defs", "definitions"))
    return grammar.RawText(closer, JsonObject(rules) if rules else None, _bare_closer(closer), path=path)


def _bare_closer(closer: tuple[Literal | Marker, ...]) -> tuple[str, ...]:
    """A closing tag on a line of its own closes behind the opening tag's line break, too: no value may begin with it."""
    if any(isinstance(part, Marker) for part in closer):
        return ()
    text = "".join(part.text for part in closer if isinstance(part, Literal))
    return (text.strip("\n"),) if text != text.strip("\n") else ()


def _string_rules(schema: JsonObject, root: JsonObject) -> tuple[tuple[str, JsonValue], ...]:
    """What the schema asks of a value that is a string: branches and values of other types fall away. `root`: for references."""
    rules: list[tuple[str, JsonValue]] = []
    for key, value in schema.pairs:
        if key in _NO_RULES:
            continue
        if key == "enum" and isinstance(value, tuple):
            value = tuple(item for item in value if isinstance(item, str))
        elif key in ("anyOf", "oneOf") and isinstance(value, tuple):
            branches = [branch for branch in value if value_kind(branch, root) is not ValueKind.OTHER]
            if len(branches) == 1 and isinstance(branches[0], JsonObject):
                rules += _string_rules(branches[0], root)
                continue
            value = tuple(
                JsonObject(_string_rules(branch, root)) if isinstance(branch, JsonObject) else branch for branch in branches
            )
        rules.append((key, value))
    return tuple(rules)


def _refers(value: JsonValue) -> bool:
    if isinstance(value, JsonObject):
        return any(key == "$ref" or _refers(item) for key, item in value.pairs)
    return isinstance(value, tuple) and any(map(_refers, value))


def _parameters(parameters: JsonObject, path: str) -> list[tuple[str, JsonObject, bool, str]]:
    """Name, schema that stands alone, required, and place of every declared property, in the schema's order."""
    properties = parameters.get("properties")
    if not isinstance(properties, JsonObject):
        return []
    required = parameters.get("required")
    names = required if isinstance(required, tuple) else ()
    definitions = tuple((key, parameters.get(key)) for key in ("$defs", "definitions") if parameters.get(key) is not None)
    return [
        (name, _standing_alone(schema, definitions), name in names, f"{path}.properties.{name}")
        for name, schema in properties.pairs
    ]


def _standing_alone(schema: JsonValue, definitions: tuple[tuple[str, JsonValue], ...]) -> JsonObject:
    """The property's schema with the definitions of its root, so that `$ref` finds them inside it."""
    if not isinstance(schema, JsonObject):
        return JsonObject()
    if not definitions:
        return schema
    given = schema.keys()
    return JsonObject((*schema.pairs, *((key, value) for key, value in definitions if key not in given)))


def _leaf(piece: str | Marker) -> Literal | Marker:
    return Literal(piece) if isinstance(piece, str) else piece


def _nodes(framing: Framing) -> Node:
    return grammar.Sequence(tuple(_leaf(piece) for piece in framing if piece))
