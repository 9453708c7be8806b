"""Qwen3-Coder: ChatML turns, tools described in XML, calls in XML. Source: its chat template (see `tool_instructions`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zllm_ref.canonical.json_value import JsonObject, JsonValue, dump_json
from zllm_ref.canonical.message import Role
from zllm_ref.canonical.request import ReasoningSettings, Tool
from zllm_ref.dialect.call_layout import ProtocolDefinition
from zllm_ref.dialect.call_writer import PYTHON_SCALARS
from zllm_ref.dialect.conversation import AssistantTurn, ResultTurn, SystemTurn, UserTurn
from zllm_ref.dialect.definitions import END_TOOL_RESPONSE, IM_END, IM_START, TOOL_RESPONSE
from zllm_ref.dialect.markup import Framing
from zllm_ref.dialect.render_job import RenderJob, replayed, write_content_and_calls
from zllm_ref.dialect.tool_instructions import QWEN3_CODER_DEFAULT_SYSTEM, QWEN3_CODER_HEAD, QWEN3_CODER_TAIL
from zllm_ref.dialect.tool_wire import wire_name, wire_parameters
from zllm_ref.dialect.writer import SegmentWriter


@dataclass(frozen=True, slots=True)
class CoderRenderer:
    definition: ProtocolDefinition

    def render(self, writer: SegmentWriter, job: RenderJob) -> None:
        self._write_system(writer, job)
        for index, turn in enumerate(job.turns):
            match turn:
                case SystemTurn():
                    if index:
                        self._write_plain(writer, Role.SYSTEM, turn.text)
                case UserTurn():
                    self._write_plain(writer, Role.USER, turn.text)
                case AssistantTurn():
                    self._write_answer(writer, job, turn)
                case ResultTurn():
                    self._write_result(writer, job, index, turn)
        if job.add_generation_prompt:
            writer.template((IM_START, "assistant\n"), Role.ASSISTANT)

    def prompt_tail(self, reasoning: ReasoningSettings) -> Framing:
        return ()

    @staticmethod
    def _write_plain(writer: SegmentWriter, role: Role, text: str) -> None:
        writer.template((IM_START, f"{role.value}\n"), role)
        writer.client(text, role)
        writer.template((IM_END, "\n"), role)

    def _write_answer(self, writer: SegmentWriter, job: RenderJob, turn: AssistantTurn) -> None:
        writer.template((IM_START, "assistant\n"), Role.ASSISTANT)
        generated = replayed(job, turn.message, keeps=True)
        if generated is not None:
            writer.replay(generated.ids)
        else:
            write_content_and_calls(writer, self.definition, turn, turn.text.strip() if turn.calls else turn.text)
        writer.template((IM_END, "\n"), Role.ASSISTANT)

    def _write_result(self, writer: SegmentWriter, job: RenderJob, index: int, turn: ResultTurn) -> None:
        before = job.turns[index - 1] if index else None
        after = job.turns[index + 1] if index + 1 < len(job.turns) else None
        if not isinstance(before, ResultTurn):
            writer.template((IM_START, "user\n"), Role.TOOL)
        writer.template((TOOL_RESPONSE, "\n"), Role.TOOL)
        writer.client(turn.text, Role.TOOL)
        writer.template(("\n", END_TOOL_RESPONSE, "\n"), Role.TOOL)
        if not isinstance(after, ResultTurn):
            writer.template((IM_END, "\n"), Role.TOOL)

    def _write_system(self, writer: SegmentWriter, job: RenderJob) -> None:
        first = job.turns[0] if job.turns else None
        if not isinstance(first, SystemTurn) and not job.tools:
            return
        writer.template((IM_START, "system\n"), Role.SYSTEM)
        if isinstance(first, SystemTurn):
            writer.client(first.text, Role.SYSTEM)
        else:
            writer.template(QWEN3_CODER_DEFAULT_SYSTEM, Role.SYSTEM)
        if job.tools:
            writer.trusted(QWEN3_CODER_HEAD, Role.SYSTEM)
            for tool in job.tools:
                writer.schema(_described(tool))
            writer.trusted("\n</tools>" + QWEN3_CODER_TAIL, Role.SYSTEM)
        writer.template((IM_END, "\n"), Role.SYSTEM)


def _described(tool: Tool) -> str:
    """One tool as the template writes it: known keys as tags, all others as tags named after the key."""
    parameters = wire_parameters(tool)
    parts = [f"\n<function>\n<name>{wire_name(tool)}</name>"]
    if tool.description is not None:
        parts.append(f"\n<description>{tool.description.strip()}</description>")
    parts.append("\n<parameters>")
    properties = parameters.get("properties")
    if isinstance(properties, JsonObject):
        for name, fields in properties.pairs:
            parts.append(f"\n<parameter>\n<name>{name}</name>")
            if isinstance(fields, JsonObject):
                parts.extend(_described_fields(fields))
            parts.append("\n</parameter>")
    parts.extend(_extra_keys(parameters, ("type", "properties")))
    parts.append("\n</parameters>\n</function>")
    return "".join(parts)


def _described_fields(fields: JsonObject) -> list[str]:
    parts = []
    if "type" in fields.keys():  # noqa: SIM118 - JsonObject is no dict
        parts.append(f"\n<type>{_printed(fields.get('type'))}</type>")
    if isinstance(description := fields.get("description"), str):
        parts.append(f"\n<description>{description.strip()}</description>")
    return [*parts, *_extra_keys(fields, ("name", "type", "description"))]


def _extra_keys(value: JsonObject, known: Sequence[str]) -> list[str]:
    """A container as JSON, a scalar as Python prints it (the template's `string` filter)."""
    return [
        f"\n<{key}>{dump_json(item) if isinstance(item, JsonObject | tuple) else _printed(item)}</{key}>"
        for key, item in value.pairs
        if key not in known
    ]


def _printed(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):  # a list of types, printed as Python prints a list
        return "[" + ", ".join(repr(item) if isinstance(item, str) else _printed(item) for item in value) + "]"
    text = dump_json(value)
    return PYTHON_SCALARS.get(text, text)
