"""The slow judge: walks a grammar tree byte by byte in plain Python, and knows nothing of how masks are computed.

A state is the set of all ways in which the tokens so far can be read; a way is the tuple of nodes still to come. One byte (or
one marker's id) turns each way into its continuations:

    ("ab" c) --a--> ("b" c)        (a | b c) --b--> (c)        (x* c) --x--> (x* c)

What is finished early (JSON values, unescaped strings) is judged by `jsonschema` on the finished value; before that only the
form is. So the oracle is never stricter than the definition, and a mask must stay within it at every token.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from jsonschema import Draft202012Validator

from zllm_ref.canonical.json_value import JsonObject, to_python
from zllm_ref.fence.grammar import (
    Choice,
    CustomText,
    JsonBySchema,
    JsonString,
    Literal,
    Marker,
    Node,
    RawText,
    Repeat,
    Sequence,
    UnorderedParameters,
)
from zllm_ref.fence.json_prefix import JsonPrefix

Symbol: TypeAlias = "int | str"
"""A byte, or the name of a marker that came as its id."""


@dataclass(frozen=True, slots=True)
class _Bytes:
    rest: bytes


@dataclass(frozen=True, slots=True)
class _Repeating:
    node: Repeat
    done: int


@dataclass(frozen=True, slots=True)
class _Parameters:
    node: UnorderedParameters
    used: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Json:
    schema: JsonObject
    prefix: JsonPrefix


@dataclass(frozen=True, slots=True)
class _Value:
    """An unescaped value, and its closer once it was cut off."""

    node: RawText | CustomText
    text: bytes


_Step: TypeAlias = "Node | _Bytes | _Repeating | _Parameters | _Json | _Value"
_Way: TypeAlias = "tuple[_Step, ...]"


class Oracle:
    """Immutable: `after` gives another one. `marker_id` is the vocabulary's (a marker without an id is spelled)."""

    def __init__(self, root: Node, marker_id: Callable[[str], int | None]) -> None:
        self._marker_id = marker_id
        self._ways: frozenset[_Way] = frozenset({(root,)})

    def after(self, symbols: bytes | str) -> Oracle | None:
        """After text bytes, or after one marker (its name). None: no reading of the grammar goes on so."""
        ways = self._ways
        for symbol in symbols if isinstance(symbols, bytes) else (symbols,):
            ways = frozenset(following for way in ways for following in self._step(way, symbol))
            if not ways:
                return None
        following = object.__new__(Oracle)
        following._marker_id, following._ways = self._marker_id, ways
        return following

    @property
    def may_end(self) -> bool:
        """A stop id is legal here."""
        return any(self._is_empty(way) for way in self._ways)

    def expected(self) -> list[str]:
        """What may come next, in words, for explanations."""
        return sorted({words for way in self._ways for words in self._words(way)})

    # ---- one symbol ------------------------------------------------------------------------------------------------

    def _step(self, way: _Way, symbol: Symbol) -> Iterator[_Way]:
        for head, rest in self._heads(way):
            match head:
                case _Bytes():
                    if symbol == head.rest[0]:
                        yield (_Bytes(head.rest[1:]), *rest) if len(head.rest) > 1 else rest
                case Marker():
                    if symbol == head.name:
                        yield rest
                case _Json():
                    following = head.prefix.after(symbol) if isinstance(symbol, int) else None
                    if following is not None and (not following.is_complete or self._is_open(following, head.schema)):
                        yield (_Json(head.schema, following), *rest)
                case _Value():
                    for closed in self._value_after(head, symbol):
                        yield (*closed, *rest)

    def _is_open(self, prefix: JsonPrefix, schema: JsonObject) -> bool:
        return prefix.may_go_on or _is_valid(schema, prefix.text)

    def _heads(self, way: _Way) -> Iterator[tuple[_Bytes | Marker | _Json | _Value, _Way]]:
        """Every way to begin `way`, as (something that reads a symbol, what comes then)."""
        if not way:
            return
        step, rest = way[0], way[1:]
        match step:
            case Literal():
                if step.text:
                    yield _Bytes(step.text.encode("utf-8")), rest
                else:
                    yield from self._heads(rest)
            case Marker():
                if self._marker_id(step.name) is None:
                    yield _Bytes(step.name.encode("utf-8")), rest
                else:
                    yield step, rest
            case JsonBySchema():
                yield _Json(step.schema, JsonPrefix()), rest
            case JsonString():
                yield _Json(JsonObject((("type", "string"),)), JsonPrefix()), rest
            case RawText() | CustomText():
                yield _Value(step, b""), rest
            case _Json():
                yield step, rest
                if step.prefix.is_complete and _is_valid(step.schema, step.prefix.text):
                    yield from self._heads(rest)
            case _Bytes() | _Value():
                yield step, rest
            case Sequence() | Choice() | Repeat() | _Repeating() | UnorderedParameters() | _Parameters():
                for opened in _opened(step):
                    yield from self._heads((*opened, *rest))

    def _is_empty(self, way: _Way) -> bool:
        if not way:
            return True
        step, rest = way[0], way[1:]
        match step:
            case Literal():
                return not step.text and self._is_empty(rest)
            case _Json():
                return step.prefix.is_complete and _is_valid(step.schema, step.prefix.text) and self._is_empty(rest)
            case Sequence() | Choice() | Repeat() | _Repeating() | UnorderedParameters() | _Parameters():
                return any(self._is_empty((*opened, *rest)) for opened in _opened(step))
            case _:
                return False

    # ---- unescaped values --------------------------------------------------------------------------------------------

    def _value_after(self, value: _Value, symbol: Symbol) -> Iterator[_Way]:
        before, marker, after = self._closer(value.node)
        if isinstance(symbol, str):
            if (
                symbol == marker
                and value.text.endswith(before)
                and _holds(value.node, value.text[: len(value.text) - len(before)])
            ):
                yield after
            return
        text = value.text + bytes([symbol])
        if not _is_utf8_prefix(text):
            return
        ends = marker is None and text.endswith(before)
        if ends and _holds(value.node, text[: len(text) - len(before)]):
            yield after
        if ends and isinstance(value.node, RawText):
            return  # the first closer of text is the closer
        excluded = value.node.excludes if isinstance(value.node, RawText) else ()
        if not any(part.encode("utf-8") in _content_so_far(text, before, marker) for part in excluded):
            yield (_Value(value.node, text),)

    def _closer(self, node: RawText | CustomText) -> tuple[bytes, str | None, _Way]:
        text = ""
        for index, part in enumerate(node.closer):
            if isinstance(part, Marker) and self._marker_id(part.name) is not None:
                return text.encode("utf-8"), part.name, tuple(node.closer[index + 1 :])
            text += part.name if isinstance(part, Marker) else part.text
        return text.encode("utf-8"), None, ()

    # ---- words -----------------------------------------------------------------------------------------------------

    def _words(self, way: _Way) -> Iterator[str]:
        if self._is_empty(way):
            yield "the end of the turn"
        for head, _ in self._heads(way):
            match head:
                case _Bytes():
                    yield f"the text {head.rest.decode('utf-8', 'replace')!r}"
                case Marker():
                    yield f"the marker {head.name}"
                case _Json():
                    begun = f", {head.prefix.text!r} so far" if head.prefix.text else ""
                    yield f"JSON of schema {json.dumps(to_python(head.schema), ensure_ascii=False)}{begun}"
                case _Value():
                    closer = "".join(part.name if isinstance(part, Marker) else part.text for part in head.node.closer)
                    yield f"text up to {closer!r}"


def _opened(step: Sequence | Choice | Repeat | _Repeating | UnorderedParameters | _Parameters) -> Iterator[_Way]:
    """The nodes of which this one may consist."""
    match step:
        case Sequence():
            yield step.items
        case Choice():
            for option in step.options:
                yield (option,)
        case Repeat():
            yield (_Repeating(step, 0),)
        case _Repeating():
            node, done = step.node, step.done
            if done >= node.minimum:
                yield ()
            if node.maximum is None or done < node.maximum:
                # Past the minimum of an unbounded repeat the count says nothing: one state instead of endlessly many.
                following = done + 1 if node.maximum is not None or done < node.minimum or not done else done
                separator: _Way = (node.separator,) if done and node.separator is not None else ()
                yield (*separator, node.item, _Repeating(node, following))
        case UnorderedParameters():
            yield (_Parameters(step, frozenset()),)
        case _Parameters():
            if all(parameter.name in step.used for parameter in step.node.parameters if parameter.required):
                yield ()
            for parameter in step.node.parameters:
                if parameter.name not in step.used:
                    before: _Way = (step.node.separator,) if step.used else ()
                    yield (*before, parameter.node, _Parameters(step.node, step.used | {parameter.name}))


def _content_so_far(text: bytes, before: bytes, marker: str | None) -> bytes:
    """What of `text` is surely content: where text closes, its end may still become the closer."""
    if marker is not None:
        return text
    for length in range(min(len(before), len(text)), 0, -1):
        if text.endswith(before[:length]):
            return text[: len(text) - length]
    return text


def _holds(node: RawText | CustomText, content: bytes) -> bool:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    if isinstance(node, CustomText):
        return node.syntax != "regex" or re.fullmatch(node.definition, text) is not None
    if any(part in text for part in node.excludes):
        return False
    return node.schema is None or _validator(node.schema).is_valid(text)


def _is_utf8_prefix(text: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(text)
    except UnicodeDecodeError:
        return False
    return True


def _is_valid(schema: JsonObject, text: bytes) -> bool:
    try:
        value = json.loads(text)
    except (UnicodeDecodeError, json.JSONDecodeError):
        return False
    return _validator(schema).is_valid(value)


@cache
def _validator(schema: JsonObject) -> Draft202012Validator:
    return Draft202012Validator(to_python(schema))
