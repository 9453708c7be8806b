"""gpt-oss: the harmony format, to look at. No model of this family runs here, so there is no parser and no fence for it.

    <|start|>ROLE<|message|>TEXT<|end|>                                     system, developer, user
    <|start|>assistant<|channel|>analysis<|message|>THOUGHT<|end|>          kept only while the answer is not final
    <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>ARGUMENTS<|call|>
    <|start|>functions.NAME to=assistant<|channel|>commentary<|message|>RESULT<|end|>
    <|start|>assistant<|channel|>final<|message|>ANSWER<|end|>

Source: docs/format.md of github.com/openai/harmony. The date is not written: it would change the prefix every day.
"""

from __future__ import annotations

from typing import Any

from zllm_ref.canonical.json_value import dump_json, to_python
from zllm_ref.canonical.message import CustomToolCall, Role, ToolCall
from zllm_ref.canonical.request import FunctionTool, ReasoningSettings, Tool
from zllm_ref.dialect.conversation import AssistantTurn, ResultTurn, SystemTurn, UserTurn, last_user_index
from zllm_ref.dialect.markup import Framing
from zllm_ref.dialect.render_job import RenderJob
from zllm_ref.dialect.writer import SegmentWriter
from zllm_ref.fence.grammar import Marker

START, END, MESSAGE = Marker("<|start|>"), Marker("<|end|>"), Marker("<|message|>")
CHANNEL, CONSTRAIN, CALL = Marker("<|channel|>"), Marker("<|constrain|>"), Marker("<|call|>")
HARMONY_MARKERS = tuple(marker.name for marker in (START, END, MESSAGE, CHANNEL, CONSTRAIN, CALL))
EFFORTS = ("low", "medium", "high")

_IDENTITY = "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n\nReasoning: "
_CHANNELS = "\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message."
_CALLS_GO = "\nCalls to these tools must go to the commentary channel: 'functions'."


class HarmonyRenderer:
    def render(self, writer: SegmentWriter, job: RenderJob) -> None:
        effort = job.reasoning.effort if job.reasoning.effort in EFFORTS else "medium"
        writer.template((START, "system", MESSAGE, f"{_IDENTITY}{effort}{_CHANNELS}"), Role.SYSTEM)
        writer.template((_CALLS_GO if job.tools else "", END), Role.SYSTEM)
        self._write_developer(writer, job)
        last_user = last_user_index(job.turns)
        names: dict[str, str] = {}
        for index, turn in enumerate(job.turns):
            match turn:
                case SystemTurn():
                    if index:
                        writer.template((START, "developer", MESSAGE), Role.SYSTEM)
                        writer.client(turn.text, Role.SYSTEM)
                        writer.template((END,), Role.SYSTEM)
                case UserTurn():
                    writer.template((START, "user", MESSAGE), Role.USER)
                    writer.client(turn.text, Role.USER)
                    writer.template((END,), Role.USER)
                case AssistantTurn():
                    names |= {call.id: call.name for call in turn.calls}
                    self._write_answer(writer, turn, keeps=index > last_user or job.keep_reasoning)
                case ResultTurn():
                    name = names.get(turn.call_id, "unknown")
                    writer.template((START, "functions."), Role.TOOL)
                    writer.client(name, Role.TOOL)
                    writer.template((" to=assistant", CHANNEL, "commentary", MESSAGE), Role.TOOL)
                    writer.client(turn.text, Role.TOOL)
                    writer.template((END,), Role.TOOL)
        if job.add_generation_prompt:
            writer.template((START, "assistant"), Role.ASSISTANT)

    def prompt_tail(self, reasoning: ReasoningSettings) -> Framing:
        return ()

    @staticmethod
    def _write_answer(writer: SegmentWriter, turn: AssistantTurn, *, keeps: bool) -> None:
        def begin(channel: str) -> None:
            writer.template((START, "assistant", CHANNEL, channel), Role.ASSISTANT)

        if keeps and turn.reasoning:
            begin("analysis")
            writer.template((MESSAGE,), Role.ASSISTANT)
            writer.client(turn.reasoning, Role.ASSISTANT)
            writer.template((END,), Role.ASSISTANT)
        if turn.text:
            begin("commentary" if turn.calls else "final")
            writer.template((MESSAGE,), Role.ASSISTANT)
            writer.client(turn.text, Role.ASSISTANT)
            writer.template((END,), Role.ASSISTANT)
        for call in turn.calls:
            begin("commentary to=functions.")
            writer.client(call.name, Role.ASSISTANT)
            writer.template((" ", CONSTRAIN, "json", MESSAGE), Role.ASSISTANT)
            writer.client(_arguments(call), Role.ASSISTANT)
            writer.template((CALL,), Role.ASSISTANT)

    @staticmethod
    def _write_developer(writer: SegmentWriter, job: RenderJob) -> None:
        first = job.turns[0] if job.turns else None
        given = first.text if isinstance(first, SystemTurn) else ""
        if not given and not job.tools:
            return
        writer.template((START, "developer", MESSAGE), Role.SYSTEM)
        if given:
            writer.template("# Instructions\n\n", Role.SYSTEM)
            writer.client(given, Role.SYSTEM)
        if job.tools:
            writer.template(("\n\n" if given else "") + "# Tools\n\n## functions\n\nnamespace functions {\n\n", Role.SYSTEM)
            for tool in job.tools:
                writer.schema(_function(tool))
                writer.template("\n\n", Role.SYSTEM)
            writer.template("} // namespace functions", Role.SYSTEM)
        writer.template((END,), Role.SYSTEM)


def _arguments(call: ToolCall | CustomToolCall) -> str:
    return call.input if isinstance(call, CustomToolCall) else dump_json(call.arguments)


def _function(tool: Tool) -> str:
    """One function in the TypeScript-like form."""
    schema = to_python(tool.parameters) if isinstance(tool, FunctionTool) and tool.parameters is not None else {}
    comment = "".join(f"// {line}\n" for line in (tool.description or "").split("\n") if line)
    if not schema.get("properties"):
        return f"{comment}type {tool.name} = () => any;"
    return f"{comment}type {tool.name} = (_: {_object(schema)}) => any;"


def _object(schema: dict[str, Any]) -> str:
    required = schema.get("required") or []
    lines = ["{"]
    for name, value in schema["properties"].items():
        value = value if isinstance(value, dict) else {}
        if value.get("description"):
            lines += [f"// {line}" for line in str(value["description"]).split("\n")]
        default = value.get("default")
        remark = f" // default: {default}" if default is not None else ""
        lines.append(f"{name}{'' if name in required else '?'}: {_type(value)},{remark}")
    return "\n".join([*lines, "}"])


def _type(value: dict[str, Any]) -> str:
    if "enum" in value:
        return " | ".join(dump_json(one) if isinstance(one, str) else str(one) for one in value["enum"])
    kind = value.get("type")
    if isinstance(kind, list):
        return " | ".join(_type({**value, "type": one}) for one in kind)
    if kind == "array":
        items = value.get("items")
        return f"{_type(items) if isinstance(items, dict) else 'any'}[]"
    if kind == "object" and value.get("properties"):
        return _object(value)
    return {"integer": "number", "number": "number", "string": "string", "boolean": "boolean", "null": "null"}.get(
        str(kind), "object" if kind == "object" else "any"
    )
