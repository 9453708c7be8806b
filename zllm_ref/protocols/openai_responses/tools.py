"""The tools of a Responses request: functions, free-form tools, namespaces of both, and the choice among them."""

from __future__ import annotations

from dataclasses import dataclass

from zllm_ref.canonical.json_value import JsonObject, JsonValue, from_python
from zllm_ref.canonical.request import (
    CustomTool,
    FunctionTool,
    Tool,
    ToolChoice,
    ToolChoiceAuto,
    ToolChoiceNamed,
    ToolChoiceNone,
    ToolChoiceRequired,
)
from zllm_ref.protocols.conversation import require_tool, tool_name
from zllm_ref.protocols.openai_responses.fields import HOSTED_TOOLS
from zllm_ref.protocols.reader import Reader, invalid, unsupported


@dataclass(slots=True)
class ToolList:
    """Tools in order of mention, and the paths of the hosted ones that were skipped."""

    skip_hosted: bool
    tools: list[Tool]
    skipped: list[str]

    def add(self, item: Reader, *, namespace: str | None = None) -> None:
        kind = item.required_string("type")
        if kind == "function":
            self.tools.append(_function(item, namespace))
        elif kind == "custom":
            self.tools.append(_custom(item, namespace))
        elif kind == "namespace" and namespace is None:
            name = tool_name(item.required_string("name"), item.at("name"))
            item.require("tools")
            for inner in item.objects("tools"):
                self.add(inner, namespace=name)
        elif kind in HOSTED_TOOLS and self.skip_hosted:
            self.skipped.append(f"{item.path} ({kind})")
        else:
            raise unsupported(item.at("type"), f"tool type '{kind[:100]}'", "tools here are function, custom and namespace")


def _function(item: Reader, namespace: str | None) -> FunctionTool:
    parameters = item.object("parameters")
    return FunctionTool(
        name=tool_name(item.required_string("name"), item.at("name")),
        description=item.string("description"),
        parameters=None if parameters is None else parameters.value,
        strict=item.boolean("strict"),
        namespace=namespace,
        deferred=item.boolean("defer_loading"),
        path=item.at("parameters"),
    )


def _custom(item: Reader, namespace: str | None) -> CustomTool:
    shape = item.object("format")
    grammar: tuple[str, str] | None = None
    if shape is not None and shape.required_string("type", allowed=("text", "grammar")) == "grammar":
        grammar = (shape.required_string("syntax", allowed=("lark", "regex")), shape.required_string("definition"))
    return CustomTool(
        name=tool_name(item.required_string("name"), item.at("name")),
        description=item.string("description"),
        grammar=grammar,
        namespace=namespace,
        path="" if shape is None else shape.at("definition"),
    )


def tool_choice(reader: Reader, tools: tuple[Tool, ...]) -> ToolChoice:
    value = reader.raw("tool_choice")
    if value is None:
        return ToolChoiceAuto()
    if isinstance(value, str):
        choices: dict[str, ToolChoice] = {"auto": ToolChoiceAuto(), "none": ToolChoiceNone(), "required": ToolChoiceRequired()}
        choice = choices.get(value)
        if choice is None:
            raise invalid("tool_choice", value, "one of auto, none, required, or an object")
        if isinstance(choice, ToolChoiceRequired) and not tools:
            raise invalid("tool_choice", value, "required only with tools")
        return choice
    chosen = Reader(value, "tool_choice")
    kind = chosen.required_string("type")
    if kind in ("function", "custom"):
        return ToolChoiceNamed(require_tool(tools, chosen.required_string("name"), chosen.at("name")))
    if kind != "allowed_tools":
        raise unsupported(chosen.at("type"), f"tool type '{kind[:100]}'", "choices here are function, custom and allowed_tools")
    mode = chosen.required_string("mode", allowed=("auto", "required"))
    chosen.require("tools")
    names = tuple(
        require_tool(tools, item.required_string("name"), item.at("name"))
        for item in chosen.objects("tools")
        if item.required_string("type", allowed=("function", "custom"))
    )
    if not names:
        raise invalid(chosen.at("tools"), (), "at least one tool")
    return ToolChoiceAuto(names) if mode == "auto" else ToolChoiceRequired(names)


def echoed_tools(reader: Reader) -> JsonValue:
    """RS17: the tools as they were sent, with the keys that readers require of a function tool filled in."""
    return tuple(_echoed(item) for item in reader.array("tools") or ())


def _echoed(item: JsonValue) -> JsonValue:
    if not isinstance(item, JsonObject) or item.get("type") != "function":
        return item
    present = item.keys()
    defaults = {"description": None, "parameters": None, "strict": False}
    missing = tuple((name, from_python(value)) for name, value in defaults.items() if name not in present)
    return JsonObject(item.pairs + missing)
