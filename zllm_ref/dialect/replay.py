"""This server's own answers come back as the ids that were generated.

A client sends back what it was shown: text, reasoning, calls. Rendered anew, that can differ from what the model wrote (JSON
spacing, number text, a token border), and the cached prefix would fork there. So each answer is remembered under a digest of
its API-visible form, by value: re-spaced JSON arguments are the same arguments, a changed character is another message.

    answer ──remember──▶ digest → ids        (`GeneratedStore` is a port: memory here, a database in the server)
    history ──find──▶ ids, or None: render it
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Protocol

from zllm_ref.canonical.json_value import JsonNumber, JsonObject, JsonValue, dump_json
from zllm_ref.canonical.message import CustomToolCall, Message, Reasoning, Text, ToolCall
from zllm_ref.canonical.request import ReasoningSettings
from zllm_ref.dialect.call_layout import ProtocolDefinition
from zllm_ref.dialect.render_job import GeneratedTurn
from zllm_ref.tokenizer.vocabulary import Vocabulary

FORMAT = 1

_EXACT = 2**53
"""Up to here every whole number is a double of its own."""


class GeneratedStore(Protocol):
    """Keeps one text per key. The server's is a table; whatever comes back is checked again."""

    def put(self, key: str, value: str) -> None: ...

    def get(self, key: str) -> str | None: ...


class MemoryStore:
    """The latest `capacity` answers, in this process."""

    def __init__(self, capacity: int = 10_000) -> None:
        self._capacity = capacity
        self._values: OrderedDict[str, str] = OrderedDict()

    def put(self, key: str, value: str) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        while len(self._values) > self._capacity:
            self._values.popitem(last=False)

    def get(self, key: str) -> str | None:
        return self._values.get(key)


class Replay:
    """Remembers answers and finds them again, for one dialect on one vocabulary. `identity` separates models."""

    def __init__(self, store: GeneratedStore, definition: ProtocolDefinition, vocabulary: Vocabulary, identity: str = "") -> None:
        self._store = store
        self._definition = definition
        self._vocabulary = vocabulary
        self._identity = f"{identity}\0{definition.name}\0{vocabulary.digest}"

    def remember(self, message: Message, ids: Sequence[int], reasoning: ReasoningSettings, *, starts_in_reasoning: bool) -> None:
        """Keeps the ids of an answer (the id that ended it is left out) under what the client will be shown of it."""
        kept = list(ids)
        stops = {*self._vocabulary.stop_ids, *(self._vocabulary.marker_id(name) for name in self._definition.end_markers)}
        while kept and kept[-1] in stops:
            kept.pop()
        if not kept:
            return
        value = {
            "format": FORMAT,
            "ids": kept,
            "num_reasoning": self._num_reasoning(kept, starts_in_reasoning),
            "enabled": reasoning.enabled,
            "effort": reasoning.effort,
        }
        self._store.put(self._key(message, with_reasoning=True), json.dumps(value))
        # A client may leave the reasoning out (Chat Completions has no field for it).
        self._store.put(self._key(message, with_reasoning=False), json.dumps(value))

    def find(self, message: Message) -> GeneratedTurn | None:
        """The generated form of a message that came back, or None."""
        text = self._store.get(self._key(message, with_reasoning=bool(message.reasoning)))
        if text is None:
            return None
        return self._checked(text)

    def _checked(self, text: str) -> GeneratedTurn | None:
        """What was stored, if it still is what this vocabulary can have generated."""
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            return None
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            return None
        ids, num_reasoning = value.get("ids"), value.get("num_reasoning")
        enabled, effort = value.get("enabled"), value.get("effort")
        if not isinstance(ids, list) or not all(type(item) is int and 0 <= item < self._vocabulary.size for item in ids):
            return None
        if num_reasoning is not None and (type(num_reasoning) is not int or not 0 <= num_reasoning <= len(ids)):
            return None
        if not isinstance(enabled, bool | None) or not isinstance(effort, str | None):
            return None
        return GeneratedTurn(tuple(ids), num_reasoning, enabled, effort)

    def _num_reasoning(self, ids: Sequence[int], starts_in_reasoning: bool) -> int | None:
        """How many ids at the front are reasoning and its framing; None: it ends inside a token."""
        layout = self._definition.reasoning
        if layout is None:
            return 0
        opener, closer = layout.open_marker.name.encode(), layout.close_marker.name.encode()
        framing = b"" if layout.after_close_is_of_content else layout.after_close.encode()
        text, found, is_open = bytearray(), -1, starts_in_reasoning
        for place, token_id in enumerate(ids):
            searched = max(0, len(text) - len(closer))
            text += self._vocabulary.token_bytes(token_id)
            if not is_open:
                beginning = bytes(text.lstrip())
                if not beginning.startswith(opener[: len(beginning)]):
                    return 0
                is_open = len(beginning) >= len(opener)
            found = text.find(closer, searched)
            if found >= 0:
                end = place + 1
                break
        else:
            return len(ids)  # cut off while it thought
        rest = bytes(text[found + len(closer) :])
        if not framing.startswith(rest):
            return None
        framing = framing[len(rest) :]
        while framing and end < len(ids):
            piece = self._vocabulary.token_bytes(ids[end])
            if not framing.startswith(piece):
                break
            framing, end = framing[len(piece) :], end + 1
        return end

    def _key(self, message: Message, *, with_reasoning: bool) -> str:
        return message_digest(message, self._identity, with_reasoning=with_reasoning)


def message_digest(message: Message, identity: str = "", *, with_reasoning: bool = True) -> str:
    """A digest of what a client sees of an assistant message: texts joined, calls by name, value of arguments and order.

    Ids of calls are left out (they are the server's own invention), and so are signatures and how text was cut into parts.
    """
    parts: list[JsonValue] = ["" if not with_reasoning else message.reasoning, message.text]
    for part in message.parts:
        match part:
            case ToolCall():
                parts.append(("call", part.namespace, part.name, _by_value(part.arguments)))
            case CustomToolCall():
                parts.append(("custom", part.namespace, part.name, part.input))
            case Text() | Reasoning():
                continue
            case _:
                parts.append(("other", type(part).__name__))
    state = hashlib.sha256(identity.encode("utf-8", "surrogatepass"))
    state.update(dump_json(tuple(parts), separators=(",", ":")).encode("utf-8", "surrogatepass"))
    return state.hexdigest()


def _by_value(value: JsonValue) -> JsonValue:
    """The value as it survives a client's JSON library: `1.0`, `1e0` and `1` are one number there, and so they are here."""
    match value:
        case JsonNumber():
            return _number_by_value(value)
        case JsonObject():
            return JsonObject(tuple((key, _by_value(item)) for key, item in value.pairs))
        case tuple():
            return tuple(_by_value(item) for item in value)
        case _:
            return value


def _number_by_value(number: JsonNumber) -> JsonNumber:
    if number.text.lstrip("-").isdigit():
        return JsonNumber("0" if number.text == "-0" else number.text)
    value = float(number.text)
    if not math.isfinite(value):
        return number
    return JsonNumber(str(int(value)) if value.is_integer() and abs(value) <= _EXACT else repr(value))
