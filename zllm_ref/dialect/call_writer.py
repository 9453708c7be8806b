"""Writes past tool calls in a dialect's layout: the inverse of the parser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from zllm_ref.canonical.json_value import JsonObject, JsonValue, dump_json
from zllm_ref.canonical.message import CustomToolCall, Role, ToolCall
from zllm_ref.dialect.call_layout import CallLayout, JsonLayout, TagLayout
from zllm_ref.dialect.tool_wire import wire_arguments, wire_name
from zllm_ref.dialect.unrenderable import UnrenderableValue
from zllm_ref.dialect.writer import SegmentWriter

PYTHON_SCALARS = {"true": "True", "false": "False", "null": "None"}


def write_calls(
    writer: SegmentWriter, layout: CallLayout, calls: Sequence[ToolCall | CustomToolCall], *, has_content: bool
) -> None:
    """All calls of one turn, with the lead that separates them from the content. No calls: nothing."""
    if not calls:
        return
    if has_content or layout.lead_without_content:
        writer.template(layout.lead, Role.ASSISTANT)
    if isinstance(layout, TagLayout):
        writer.template(layout.block_open, Role.ASSISTANT)
    for index, call in enumerate(calls):
        if index:
            writer.template(layout.between_calls, Role.ASSISTANT)
        _refuse_duplicate_keys(wire_arguments(call), wire_name(call))
        match layout:
            case TagLayout():
                _write_tags(writer, layout, call)
            case JsonLayout():
                _write_json(writer, layout, call)
            case _:
                assert_never(layout)
    if isinstance(layout, TagLayout):
        writer.template(layout.block_close, Role.ASSISTANT)


def _write_json(writer: SegmentWriter, layout: JsonLayout, call: ToolCall | CustomToolCall) -> None:
    writer.template(layout.call_open, Role.ASSISTANT)
    writer.template('{"name": ', Role.ASSISTANT)
    writer.client(dump_json(wire_name(call)), Role.ASSISTANT)
    writer.template(', "arguments": ', Role.ASSISTANT)
    writer.client(dump_json(wire_arguments(call)), Role.ASSISTANT)
    writer.template("}", Role.ASSISTANT)
    writer.template(layout.call_close, Role.ASSISTANT)


def _write_tags(writer: SegmentWriter, layout: TagLayout, call: ToolCall | CustomToolCall) -> None:
    writer.template(layout.call_open, Role.ASSISTANT)
    writer.client(wire_name(call), Role.ASSISTANT)
    writer.template(layout.name_close, Role.ASSISTANT)
    for index, (key, value) in enumerate(wire_arguments(call).pairs):
        if index:
            writer.template(layout.between_parameters, Role.ASSISTANT)
        is_string = isinstance(value, str)
        writer.template(layout.parameter_open, Role.ASSISTANT)
        writer.client(key, Role.ASSISTANT)
        writer.template(layout.string_key_close if is_string else layout.key_close, Role.ASSISTANT)
        writer.client(_bare(value, layout), Role.ASSISTANT)
        writer.template(layout.value_close, Role.ASSISTANT)
    writer.template(layout.call_close, Role.ASSISTANT)


def _bare(value: JsonValue, layout: TagLayout) -> str:
    if isinstance(value, str):
        return value
    text = dump_json(value)
    return PYTHON_SCALARS.get(text, text) if layout.python_scalars else text


def _refuse_duplicate_keys(value: JsonValue, name: str) -> None:
    """A key twice in one object has no meaning that every reader shares: the call cannot be written down."""
    match value:
        case tuple():
            for item in value:
                _refuse_duplicate_keys(item, name)
        case JsonObject():
            seen: set[str] = set()
            for key, item in value.pairs:
                if key in seen:
                    raise UnrenderableValue(f"arguments of the call of {name!r}: got the key {key!r} twice, allowed once")
                seen.add(key)
                _refuse_duplicate_keys(item, name)
