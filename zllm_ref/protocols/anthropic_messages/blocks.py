"""Content blocks of a Messages request, read into the messages that they are."""

from __future__ import annotations

from zllm_ref.canonical.json_value import JsonObject, dump_json
from zllm_ref.canonical.message import Part, Reasoning, Role, Text, ToolCall
from zllm_ref.canonical.request import FunctionTool, Tool
from zllm_ref.protocols.anthropic_messages.fields import MEDIA_BLOCKS
from zllm_ref.protocols.conversation import Conversation, tool_name
from zllm_ref.protocols.reader import Reader, invalid, unsupported, wrong_type
from zllm_ref.protocols.seal import Seal

_OURS, _THEIRS = "call_", "toolu_"
_BILLING_LINE = "x-anthropic-billing-header:"
_MAX_BREAKPOINTS = 4


def shown_id(call_id: str) -> str:
    """AN7: the id of a call in this protocol's spelling."""
    return _THEIRS + call_id[len(_OURS) :] if call_id.startswith(_OURS) else call_id


def own_id(tool_use_id: str) -> str:
    """The inverse: a call has one id, in whichever protocol it comes back."""
    return _OURS + tool_use_id[len(_THEIRS) :] if tool_use_id.startswith(_THEIRS) else tool_use_id


class Breakpoints:
    """Counts `cache_control` marks. They steer nothing (the cache finds prefixes by itself) but decide how writes are told."""

    def __init__(self) -> None:
        self.count = 0
        self.ttl = "5m"

    def see(self, holder: Reader) -> None:
        mark = holder.object("cache_control")
        if mark is None:
            return
        mark.required_string("type", allowed=("ephemeral",))
        self.ttl = mark.string("ttl", allowed=("5m", "1h")) or self.ttl
        self.count += 1
        if self.count > _MAX_BREAKPOINTS:
            raise invalid(mark.path, mark.value, f"at most {_MAX_BREAKPOINTS} blocks with cache_control")


class BlockReader:
    def __init__(self, tools: tuple[Tool, ...], breakpoints: Breakpoints, seal: Seal, *, strip_billing_line: bool) -> None:
        self.conversation = Conversation()
        self._tools = {tool.name: tool for tool in tools if isinstance(tool, FunctionTool)}
        self._breakpoints = breakpoints
        self._seal = seal
        self._strip_billing_line = strip_billing_line

    def add_system(self, reader: Reader, name: str) -> None:
        """AN18: a string or text blocks. A billing line that changes with every request is not part of what is said (K9)."""
        texts = [text for text in self._texts(reader, name) if not self._is_billing_line(text.text)]
        if any(text.text for text in texts):
            self.conversation.add(Role.SYSTEM, texts)

    def add_message(self, message: Reader) -> None:
        self._breakpoints.see(message)
        match message.required_string("role", allowed=("user", "assistant", "system")):
            case "system":
                message.require("content")
                self.add_system(message, "content")
            case "assistant":
                self.conversation.add(Role.ASSISTANT, self._assistant_parts(message))
            case _:
                self._add_user(message)

    def _is_billing_line(self, text: str) -> bool:
        return self._strip_billing_line and text.startswith(_BILLING_LINE)

    def _texts(self, reader: Reader, name: str) -> list[Text]:
        value = reader.raw(name)
        if value is None:
            return []
        if isinstance(value, str):
            return [Text(value)]
        if not isinstance(value, tuple):
            raise wrong_type(reader.at(name), value, "a string or an array of blocks")
        return [self._text(block, block.required_string("type")) for block in reader.objects(name)]

    def _text(self, block: Reader, kind: str) -> Text:
        if kind in MEDIA_BLOCKS:
            raise unsupported(block.at("type"), kind, "the models here read text")
        if kind != "text":
            raise unsupported(block.at("type"), f"block type '{kind[:100]}'", "no tool here makes such blocks")
        self._breakpoints.see(block)
        block.require("text")
        return Text(block.string("text") or "")

    def _add_user(self, message: Reader) -> None:
        value = message.require("content")
        if isinstance(value, str):
            self.conversation.add(Role.USER, (Text(value),))
            return
        texts: list[Text] = []
        blocks = 0
        self._require_blocks(message)
        for block in message.objects("content"):
            blocks += 1
            kind = block.required_string("type")
            if kind != "tool_result":
                texts.append(self._text(block, kind))
                continue
            if texts:
                self.conversation.add(Role.USER, texts)
                texts = []
            self._breakpoints.see(block)
            identity = own_id(block.required_string("tool_use_id"))
            is_error = block.boolean("is_error")
            self.conversation.add_result(identity, self._result_text(block), block.at("tool_use_id"), is_error=is_error)
        if texts or not blocks:
            self.conversation.add(Role.USER, texts)

    def _assistant_parts(self, message: Reader) -> list[Part]:
        value = message.require("content")
        if isinstance(value, str):
            return [Text(value)]
        self._require_blocks(message)
        parts: list[Part] = []
        for block in message.objects("content"):
            match block.required_string("type"):
                case "thinking":
                    parts.extend(self._thinking(block))
                case "redacted_thinking":
                    parts.append(Reasoning(self._opened(block, "data")))
                case "tool_use":
                    parts.append(self._tool_use(block))
                case kind:
                    parts.append(self._text(block, kind))
        return parts

    def _require_blocks(self, message: Reader) -> None:
        value = message.raw("content")
        if not isinstance(value, tuple):
            raise wrong_type(message.at("content"), value, "a string or an array of blocks")

    def _thinking(self, block: Reader) -> list[Part]:
        """AN8: what comes back signed must be what was signed. Unsigned thinking comes from clients that were sent none."""
        block.require("thinking")
        text, signature = block.string("thinking") or "", block.string("signature") or ""
        if signature and text:
            if not self._seal.verify(text, signature):
                raise invalid(block.at("signature"), signature, "the unchanged `signature` of this `thinking` block")
        elif signature:
            text = self._opened(block, "signature")
        return [Reasoning(text, signature or None)] if text else []

    def _opened(self, block: Reader, name: str) -> str:
        sealed = block.required_string(name)
        text = self._seal.open(sealed)
        if text is None:
            raise invalid(block.at(name), sealed, "the unchanged content that this server gave out")
        return text

    def _tool_use(self, block: Reader) -> ToolCall:
        self._breakpoints.see(block)
        identity = block.required_string("id")
        if not identity:
            raise invalid(block.at("id"), identity, "a non-empty id")
        arguments = Reader(block.require("input"), block.at("input")).value
        return ToolCall(own_id(identity), tool_name(block.required_string("name"), block.at("name")), arguments)

    def _result_text(self, block: Reader) -> str:
        """A string, text blocks, references to deferred tools, or nothing at all."""
        value = block.raw("content")
        if value is None or isinstance(value, str):
            return value or ""
        if not isinstance(value, tuple):
            raise wrong_type(block.at("content"), value, "a string or an array of blocks")
        texts = []
        for inner in block.objects("content"):
            kind = inner.required_string("type")
            texts.append(self._tool_reference(inner) if kind == "tool_reference" else self._text(inner, kind).text)
        return "".join(texts)

    def _tool_reference(self, block: Reader) -> str:
        """A deferred tool is shown where it was found, not at the front: the prompt before this place stays as it was."""
        name = block.required_string("tool_name")
        tool = self._tools.get(name)
        if tool is None:
            raise invalid(block.at("tool_name"), name, "the name of one of the tools")
        shown = JsonObject(
            (
                ("name", tool.name),
                ("description", tool.description or ""),
                ("parameters", tool.parameters or JsonObject()),
            )
        )
        return dump_json(shown)
