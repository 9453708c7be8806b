"""A grammar tree as the Lark text that llguidance compiles.

llguidance reads text in lexemes and always takes the longest: where `"\\n"` and `"\\n</"` are both allowed and the text goes
on with `<t`, the shorter one is lost. So every set of alternatives is factored here until no two begin alike:

    "\\n<" item | "\\n</" end        becomes        "\\n<" ( item | "/" end )

A tree is walked as a list of nodes still to come ("rest"); what has the same rest is one rule. UnorderedParameters become
rules with a 64-bit parameter, one bit per parameter already written:

    p::_ : separator <parameter 0> p::set_bit(0)   %if bit_clear(0)
         | …
         | <what follows>                          %if and(bit_set(…), …)      # the required ones
"""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Sequence as Sequence_
from dataclasses import dataclass, field
from typing import TypeAlias

from zllm_ref.canonical.json_value import JsonObject, JsonValue, dump_json
from zllm_ref.fence.grammar import (
    Choice,
    CustomText,
    JsonBySchema,
    JsonString,
    Literal,
    Marker,
    Node,
    Parameter,
    RawText,
    Repeat,
    Sequence,
    UnorderedParameters,
)
from zllm_ref.fence.raw_text import content_terminals

JSON_OPTIONS: tuple[tuple[str, JsonValue], ...] = (
    ("item_separator", ", "),
    ("key_separator", ": "),
    ("whitespace_flexible", False),
)
"""Canonical spacing: a model that loves blanks cannot write them for ever."""

_quote = json.JSONEncoder(ensure_ascii=False).encode
STRING_SCHEMA = JsonObject((("type", "string"),))


@dataclass(frozen=True, slots=True)
class LarkGrammar:
    """`text` is the main grammar; `nested` are the client's own grammars that it refers to, as (name, text)."""

    text: str
    nested: tuple[tuple[str, str], ...] = ()

    def source(self) -> str:
        """What llguidance takes."""
        grammars: list[dict[str, str]] = [{"lark_grammar": self.text}]
        grammars += [{"name": name, "lark_grammar": text} for name, text in self.nested]
        return json.dumps({"grammars": grammars})


def write_lark(root: Node, marker_id: Callable[[str], int | None], *, is_forcing: bool = True) -> LarkGrammar:
    """The Lark text of `root`. A marker without an id is spelled. `is_forcing` False: any spelling of a forced text is legal."""
    writer = _Writer(marker_id)
    writer.rules["start"] = writer.body((root,))
    lines = [f"{name} : " + "\n  | ".join(body) for name, body in writer.rules.items()]
    options = [] if is_forcing else ['%llguidance { "no_forcing": true }']
    return LarkGrammar("\n".join([*options, *lines, *writer.terminals]) + "\n", tuple(writer.nested.items()))


# What stands in an alternative: text (to be factored), or anything else (one opaque symbol).
@dataclass(frozen=True, slots=True)
class _Text:
    text: str


@dataclass(frozen=True, slots=True)
class _Symbol:
    """A marker, or a call of a rule. `uses_bits`: the call hands the parameter bits on."""

    text: str
    uses_bits: bool = False


_Part: TypeAlias = "_Text | _Symbol"


@dataclass(frozen=True, slots=True)
class _Alternative:
    """`bits`: legal while one of these parameters is missing; `closes`: legal once the required ones are there.

    Neither: always legal.
    """

    parts: tuple[_Part, ...]
    bits: frozenset[int] = frozenset()
    closes: bool = False


@dataclass(frozen=True, slots=True)
class _Again:
    """What follows an item of a Repeat: another one, or what comes after the Repeat."""

    repeat: Repeat
    done: int


@dataclass(frozen=True, slots=True)
class _Whole:
    """A node that has a rule of its own, so that its text stands in the grammar once."""

    node: Node


_Step: TypeAlias = "Node | _Again | _Whole"
_Rest: TypeAlias = "tuple[_Step, ...]"


@dataclass(slots=True)
class _Bits:
    """The parameters that the rules being written count."""

    order: tuple[Parameter, ...]


@dataclass(slots=True)
class _Writer:
    marker_id: Callable[[str], int | None]
    rules: dict[str, list[str]] = field(default_factory=dict)
    terminals: list[str] = field(default_factory=list)
    nested: dict[str, str] = field(default_factory=dict)
    named: dict[object, str] = field(default_factory=dict)
    heads: dict[int, tuple[_Part, ...]] = field(default_factory=dict)
    number: int = -1

    # ---- rules ------------------------------------------------------------------------------------------------------

    def body(self, rest: _Rest) -> list[str]:
        return [self._line(one, None) for one in self._factor(self._expand(rest), None)]

    def _rule(self, rest: _Rest) -> _Symbol:
        """The rule for what is still to come; the same rest is the same rule."""
        name = self.named.get(rest)
        if name is None:
            name = self.named[rest] = f"r{self._next_number()}"
            self.rules[name] = []
            self.rules[name] = self.body(rest)
        return _Symbol(name)

    def _line(self, one: _Alternative, bits: _Bits | None) -> str:
        words = [_quote(part.text) if isinstance(part, _Text) else part.text for part in one.parts]
        condition = "" if bits is None else self._condition(one, bits)
        return (" ".join(words) or '""') + condition

    def _next_number(self) -> int:
        self.number += 1
        return self.number

    # ---- expansion: every alternative begins with text or a symbol ---------------------------------------------------

    def _expand(self, rest: _Rest) -> list[_Alternative]:
        if not rest:
            return [_Alternative(())]
        step, after = rest[0], rest[1:]
        match step:
            case Literal():
                return self._after_text(step.text, after) if step.text else self._expand(after)
            case Marker():
                token_id = self.marker_id(step.name)
                if token_id is None:
                    return self._after_text(step.name, after)
                marker = _Symbol(f"<[{token_id}]>")
                return [_Alternative((marker, *one.parts), one.bits, one.closes) for one in self._expand(after)]
            case Sequence():
                return self._expand((*step.items, *after))
            case Choice():
                return [one for option in step.options for one in self._expand((option, *after))]
            case Repeat():
                return self._expand((_Again(step, 0), *after))
            case _Again():
                return self._expand_again(step, after)
            case _Whole():
                return self._expand_whole(step.node, after)
            case UnorderedParameters():
                return self._expand_parameters(step, after)
            case JsonBySchema():
                return [_Alternative((self._json(step.schema), *self._tail(after)))]
            case JsonString():
                return [_Alternative((self._json(STRING_SCHEMA), *self._tail(after)))]
            case RawText() | CustomText():
                return [_Alternative((self._value(step), *self._tail(after)))]

    def _after_text(self, text: str, after: _Rest) -> list[_Alternative]:
        """Text before whatever may come next; seen through, so that the factoring knows all of a shared beginning."""
        before = (_Text(text),)
        return [_Alternative(_joined(before, one.parts), one.bits, one.closes) for one in self._expand(after)]

    def _tail(self, after: _Rest) -> tuple[_Part, ...]:
        return (self._rule(after),) if after else ()

    def _expand_again(self, step: _Again, after: _Rest) -> list[_Alternative]:
        repeat, done = step.repeat, step.done
        ways: list[_Alternative] = []
        if done >= repeat.minimum:
            ways += self._expand(after)
        if repeat.maximum is None or done < repeat.maximum:
            separator: _Rest = (repeat.separator,) if done and repeat.separator is not None else ()
            bounded = repeat.maximum is not None or done < repeat.minimum
            following = _Again(repeat, done + 1 if bounded or not done else done)
            ways += self._expand((*separator, _Whole(repeat.item), following, *after))
        return ways

    def _expand_whole(self, node: Node, after: _Rest) -> list[_Alternative]:
        """The node's own rule, with the text that all its alternatives share pulled out in front (for the factoring)."""
        return [_Alternative((*self._head(node), *self._tail(after)))]

    def _head(self, node: Node) -> tuple[_Part, ...]:
        """Found again by identity: equality of large trees costs more than what it saves."""
        found = self.heads.get(id(node))
        if found is None:
            alternatives = self._factor(self._expand((node,)), None)
            found = alternatives[0].parts if len(alternatives) == 1 else (self._factored_rule(alternatives, None),)
            self.heads[id(node)] = found
        return found

    # ---- parameters, each once, in any order ----------------------------------------------------------------------

    def _expand_parameters(self, node: UnorderedParameters, after: _Rest) -> list[_Alternative]:
        # Sorted, so that parameters that begin alike are neighbours and share one condition over a range of bits.
        bits = _Bits(tuple(sorted(node.parameters, key=lambda parameter: parameter.name)))
        ending = [] if bits.order and all(parameter.required for parameter in bits.order) else self._expand(after)
        if not bits.order:
            return ending
        name = f"p{self._next_number()}"
        heads = [self._head(parameter.node) for parameter in bits.order]
        further = [
            _Alternative((*head, _Symbol(f"{name}::set_bit({index})", uses_bits=True)), bits=frozenset({index}))
            for index, head in enumerate(heads)
        ]
        closing = [_Alternative(one.parts, closes=True) for one in ending or self._expand(after)]
        separated = [
            _Alternative(_joined(one.parts, parts), bits=other.bits)
            for one in self._expand((node.separator,))
            for other in further
            for parts in [other.parts]
        ]
        self.rules[f"{name}::_"] = [self._line(one, bits) for one in self._factor([*separated, *closing], bits)]
        first = [_Alternative((*head, _Symbol(f"{name}::0x{1 << index:x}"))) for index, head in enumerate(heads)]
        return first if any(parameter.required for parameter in bits.order) else [*first, *ending]

    def _condition(self, one: _Alternative, bits: _Bits) -> str:
        count = len(bits.order)
        required = [index for index in range(count) if bits.order[index].required]
        conditions: list[str] = []
        if one.bits:
            low, high = min(one.bits), max(one.bits) + 1
            if len(one.bits) == high - low:
                conditions.append(f"not(is_ones([{low}:{high}]))" if high - low > 1 else f"bit_clear({low})")
            else:
                conditions.append(_nested("or", [f"bit_clear({index})" for index in sorted(one.bits)]))
        if one.closes:
            if one.bits and len(one.bits) == count:
                return ""  # all there: it may close; one missing: it may go on
            if not required:
                return ""
            conditions.append(_nested("and", [f"bit_set({index})" for index in required]))
        return f" %if {_nested('or', conditions)}" if conditions else ""

    # ---- factoring ------------------------------------------------------------------------------------------------

    def _factor(self, alternatives: list[_Alternative], bits: _Bits | None) -> list[_Alternative]:
        """The same language, no two alternatives beginning with the same text or the same symbol."""
        groups: dict[str, list[_Alternative]] = {}
        for one in alternatives:
            first = one.parts[0] if one.parts else None
            key = "" if first is None else "t" + first.text[0] if isinstance(first, _Text) else "s" + first.text
            groups.setdefault(key, []).append(one)
        factored: list[_Alternative] = []
        for key, group in groups.items():
            if len(group) == 1:
                factored.append(group[0])
                continue
            shared = _shared_prefix([one.parts for one in group])
            rests = [_Alternative(_without(one.parts, shared), one.bits, one.closes) for one in group]
            merged = _Alternative((), frozenset().union(*(one.bits for one in group)), any(one.closes for one in group))
            if key == "":
                factored.append(merged)
                continue
            inner = self._factor(rests, bits)
            if len(inner) == 1 and not inner[0].parts:
                factored.append(_Alternative(shared, merged.bits, merged.closes))
                continue
            symbol = self._factored_rule(inner, bits)
            factored.append(_Alternative((*shared, symbol), merged.bits, merged.closes))
        return factored

    def _factored_rule(self, inner: list[_Alternative], bits: _Bits | None) -> _Symbol:
        counts = bits is not None and any(part.uses_bits for one in inner for part in one.parts if isinstance(part, _Symbol))
        lines = tuple(self._line(one, bits if counts else None) for one in inner)
        key = ("factored", counts, lines)
        name = self.named.get(key)
        if name is None:
            name = self.named[key] = f"f{self._next_number()}"
            self.rules[f"{name}::_" if counts else name] = list(lines)
        return _Symbol(f"{name}::_" if counts else name, uses_bits=counts)

    # ---- values ---------------------------------------------------------------------------------------------------

    def _json(self, schema: JsonObject) -> _Symbol:
        name = self.named.get(("schema", schema))
        if name is not None:
            return _Symbol(name)
        own = schema.get("x-guidance")  # what `loosened` says of this schema alone
        options = (*JSON_OPTIONS, *(own.pairs if isinstance(own, JsonObject) else ()))
        pairs = tuple(pair for pair in schema.pairs if pair[0] != "x-guidance")
        text = dump_json(JsonObject((*pairs, ("x-guidance", JsonObject(options)))))
        name = self.named["schema", schema] = f"j{self._next_number()}"
        self.rules[name] = [f"%json {text}"]
        return _Symbol(name)

    def _value(self, node: RawText | CustomText) -> _Symbol:
        name = self.named.get(node)
        if name is None:
            name = self.named[node] = f"v{self._next_number()}"
            self._write_value(name, node)
        return _Symbol(name)

    def _write_value(self, name: str, node: RawText | CustomText) -> None:
        """Content and closer. An id ends the content wherever it comes; a closer of text ends it where it first occurs."""
        before, marker, after = split_closer(node.closer, self.marker_id)
        following: _Rest = (*after,)
        symbol = f"<[{marker}]> " if marker is not None else ""
        tail = " ".join(part.text for part in self._tail(following))
        content = f"C{name.upper()}"
        if isinstance(node, CustomText) and node.syntax == "lark":
            self.nested[f"g{name}"] = node.definition
            literal = f"{_quote(before)} " if before else ""
            self.rules[name] = [f"@g{name} {literal}{symbol}{tail}"]
            return
        self.terminals += content_terminals(content, node)
        if before and marker is None and isinstance(node, RawText):
            self.terminals.append(f"V{name.upper()} : {content} {_quote(before)}")
            self.rules[f"l{name}[lazy]"] = [f"V{name.upper()}"]
            self.rules[name] = [f"l{name} {tail}"]
        elif before:
            self.terminals.append(f"V{name.upper()} : {content} {_quote(before)}")
            self.rules[name] = [f"V{name.upper()} {symbol}{tail}"]
        else:
            self.rules[name] = [f"{content} {symbol}{tail}"]


def split_closer(
    closer: Sequence_[Literal | Marker], marker_id: Callable[[str], int | None]
) -> tuple[str, int | None, tuple[Literal | Marker, ...]]:
    """A closer as (text before its first id, that id, what follows); without an id: (all of it, None, nothing)."""
    text = ""
    for index, part in enumerate(closer):
        token_id = marker_id(part.name) if isinstance(part, Marker) else None
        if token_id is not None:
            return text, token_id, tuple(closer[index + 1 :])
        text += part.name if isinstance(part, Marker) else part.text
    return text, None, ()


def _shared_prefix(sequences: list[tuple[_Part, ...]]) -> tuple[_Part, ...]:
    """The longest beginning that all have in common, text compared by characters."""
    shared: list[_Part] = []
    remaining = list(sequences)
    while all(remaining):
        firsts = [parts[0] for parts in remaining]
        if all(isinstance(first, _Text) for first in firsts):
            text = _common([first.text for first in firsts])
            if text:
                shared.append(_Text(text))
            if any(first.text != text for first in firsts):
                return tuple(shared)
        elif any(first != firsts[0] for first in firsts):
            return tuple(shared)
        else:
            shared.append(firsts[0])
        remaining = [parts[1:] for parts in remaining]
    return tuple(shared)


def _joined(before: tuple[_Part, ...], after: tuple[_Part, ...]) -> tuple[_Part, ...]:
    """Both, text that meets text made one."""
    if before and after:
        last, first = before[-1], after[0]
        if isinstance(last, _Text) and isinstance(first, _Text):
            return (*before[:-1], _Text(last.text + first.text), *after[1:])
    return (*before, *after)


def _without(parts: tuple[_Part, ...], prefix: tuple[_Part, ...]) -> tuple[_Part, ...]:
    left = list(parts)
    for part in prefix:
        first = left.pop(0)
        if isinstance(part, _Text) and first.text != part.text:
            left.insert(0, _Text(first.text[len(part.text) :]))
    return tuple(left)


def _common(texts: list[str]) -> str:
    low, high = min(texts), max(texts)
    length = 0
    while length < len(low) and length < len(high) and low[length] == high[length]:
        length += 1
    return low[:length]


def _nested(operator: str, conditions: list[str]) -> str:
    if len(conditions) == 1:
        return conditions[0]
    half = len(conditions) // 2
    return f"{operator}({_nested(operator, conditions[:half])}, {_nested(operator, conditions[half:])})"
