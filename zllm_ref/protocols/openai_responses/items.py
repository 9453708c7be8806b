"""Input items of a Responses request, read into the messages that they are.

Items of one turn of the assistant (reasoning, message, calls) become one message, as the other protocols send it.
"""

from __future__ import annotations

from collections.abc import Mapping

from zllm_ref.canonical.json_value import JsonObject, JsonValue
from zllm_ref.canonical.message import CustomToolCall, Part, Reasoning, Role, Text, ToolCall
from zllm_ref.protocols.conversation import Conversation, arguments_of, tool_name
from zllm_ref.protocols.openai_responses.fields import HOSTED_ITEMS, MEDIA_PARTS
from zllm_ref.protocols.openai_responses.stored import kind_of
from zllm_ref.protocols.openai_responses.tools import ToolList
from zllm_ref.protocols.reader import Reader, invalid, unsupported, wrong_type
from zllm_ref.protocols.seal import Seal

_ROLES = ("user", "assistant", "system", "developer")
_TEXT_PARTS = ("input_text", "output_text", "text")


class ItemReader:
    """Reads items into a conversation; `known_items` are items of earlier responses, by id, for `item_reference`."""

    def __init__(self, tools: ToolList, seal: Seal, known_items: Mapping[str, JsonObject]) -> None:
        self.conversation = Conversation()
        self.wants_compaction = False
        self._tools = tools
        self._seal = seal
        self._known_items = known_items

    def add_all(self, items: tuple[JsonValue, ...], path: str) -> None:
        for index, value in enumerate(items):
            self.add(Reader(value, f"{path}[{index}]"))

    def add(self, item: Reader) -> None:
        item.string("type")  # nothing else than a string
        match kind := kind_of(item.value):
            case "message":
                self._message(item)
            case "reasoning":
                self._reasoning(item)
            case "function_call" | "custom_tool_call":
                self._call(item, kind)
            case "function_call_output" | "custom_tool_call_output":
                text = _output_text(item)
                self.conversation.add_result(item.required_string("call_id"), text, item.at("call_id"))
            case "item_reference":
                self._reference(item)
            case "additional_tools":
                item.require("tools")
                for tool in item.objects("tools"):
                    self._tools.add(tool)
            case "compaction_trigger":
                self.wants_compaction = True
            case "compaction" | "compaction_summary":
                self._compaction(item)
            case _ if kind in HOSTED_ITEMS and self._tools.skip_hosted:
                self._tools.skipped.append(f"{item.path} ({kind})")
            case _:
                raise unsupported(item.at("type"), f"item type '{kind[:100]}'", "no tool here makes such items")

    def _message(self, item: Reader) -> None:
        role = Role(item.required_string("role", allowed=_ROLES))
        item.string("phase", allowed=("commentary", "final_answer"))
        parts = _message_parts(item)
        if role is Role.ASSISTANT:
            self._continue_turn(parts)
        else:
            self.conversation.add(role, parts)

    def _reasoning(self, item: Reader) -> None:
        text = _reasoning_text(item, self._seal)
        if text:
            self._continue_turn((Reasoning(text),))

    def _call(self, item: Reader, kind: str) -> None:
        identity = item.required_string("call_id")
        if not identity:
            raise invalid(item.at("call_id"), identity, "a non-empty id")
        name, namespace = tool_name(item.required_string("name"), item.at("name")), item.string("namespace")
        call: Part
        if kind == "custom_tool_call":
            item.require("input")
            call = CustomToolCall(identity, name, item.string("input") or "", namespace)
        else:
            item.require("arguments")
            call = ToolCall(identity, name, arguments_of(item.string("arguments") or "", item.at("arguments")), namespace)
        if self.conversation.last_role is Role.ASSISTANT:
            self.conversation.extend_last((call,))
        else:
            self.conversation.add(Role.ASSISTANT, (call,))

    def _continue_turn(self, parts: tuple[Part, ...]) -> None:
        """Reasoning and text follow the reasoning of the same turn; after text or calls they begin another."""
        if self.conversation.last_role is Role.ASSISTANT and not self.conversation.last_has_answer:
            self.conversation.extend_last(parts)
        else:
            self.conversation.add(Role.ASSISTANT, parts)

    def _reference(self, item: Reader) -> None:
        identity = item.required_string("id")
        known = self._known_items.get(identity)
        if known is None:
            raise invalid(
                item.at("id"), identity, "the id of an item of a stored response (with store: false, send the item itself)"
            )
        self.add(Reader(known, item.path))

    def _compaction(self, item: Reader) -> None:
        sealed = item.required_string("encrypted_content")
        text = self._seal.open(sealed)
        if text is None:
            raise invalid(item.at("encrypted_content"), sealed, "the unchanged content that this server gave out")
        self.conversation.add(Role.USER, (Text(text),))


def _message_parts(item: Reader) -> tuple[Part, ...]:
    value = item.require("content")
    if isinstance(value, str):
        return (Text(value),)
    if not isinstance(value, tuple):
        raise wrong_type(item.at("content"), value, "a string or an array of content parts")
    return tuple(_text_part(part) for part in item.objects("content"))


def _text_part(part: Reader) -> Text:
    kind = part.required_string("type")
    if kind in _TEXT_PARTS:
        part.require("text")
        return Text(part.string("text") or "")
    if kind == "refusal":
        return Text(part.required_string("refusal"))
    if kind in MEDIA_PARTS:
        raise unsupported(part.at("type"), kind, "the models here read text")
    raise invalid(part.at("type"), kind, "one of " + ", ".join((*_TEXT_PARTS, "refusal")))


def _output_text(item: Reader) -> str:
    """RS26: a tool's output is a string or a list of content parts."""
    value = item.require("output")
    if isinstance(value, str):
        return value
    if not isinstance(value, tuple):
        raise wrong_type(item.at("output"), value, "a string or an array of content parts")
    return "".join(_text_part(part).text for part in item.objects("output"))


def _reasoning_text(item: Reader, seal: Seal) -> str:
    """RS19: what was sealed is the truth; a reader without it sends back the raw text, or the summary that equals it."""
    sealed = item.string("encrypted_content")
    if sealed:
        text = seal.open(sealed)
        if text is None:
            raise invalid(item.at("encrypted_content"), sealed, "the unchanged content that this server gave out")
        return text
    content = "".join(part.required_string("text") for part in item.objects("content"))
    return content or "".join(part.required_string("text") for part in item.objects("summary"))
