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
from zllm_ref.fence.factoring import (
    Alternative,
    CountedItems,
    Counting,
    ParameterBits,
    Part,
    Symbol,
    Text,
    is_prefix_free,
    joined,
    shared_beginning,
)
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
from zllm_ref.fence.raw_text import ANY, content_terminals, require_text

JSON_OPTIONS: tuple[tuple[str, JsonValue], ...] = (
    ("item_separator", ", "),
    ("key_separator", ": "),
    ("whitespace_flexible", False),
)
"""Canonical spacing: a model that loves blanks cannot write them for ever."""

_quote = json.JSONEncoder(ensure_ascii=False).encode
_MOST_UNROLLED = 4
"""A Repeat with more places left than this is counted in a parameter instead of written out."""
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


@dataclass(frozen=True, slots=True, eq=False)
class _Again:
    """What follows an item of a Repeat: another one, or what comes after the Repeat.

    Compared by the identity of the node: comparing whole toolsets once a rule would be most of the work.
    """

    repeat: Repeat
    done: int

    def __hash__(self) -> int:
        return hash((id(self.repeat), self.done))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Again) and other.repeat is self.repeat and other.done == self.done


@dataclass(frozen=True, slots=True, eq=False)
class _Whole:
    """A node that has a rule of its own, so that its text stands in the grammar once. Compared by identity, as above."""

    node: Node

    def __hash__(self) -> int:
        return id(self.node)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Whole) and other.node is self.node


_Step: TypeAlias = "Node | _Again | _Whole"
_Rest: TypeAlias = "tuple[_Step, ...]"


@dataclass(slots=True)
class _Writer:
    marker_id: Callable[[str], int | None]
    rules: dict[str, list[str]] = field(default_factory=dict)
    terminals: list[str] = field(default_factory=list)
    nested: dict[str, str] = field(default_factory=dict)
    named: dict[object, str] = field(default_factory=dict)
    heads: dict[int, tuple[Part, ...]] = field(default_factory=dict)
    number: int = -1

    # ---- rules ------------------------------------------------------------------------------------------------------

    def body(self, rest: _Rest) -> list[str]:
        return [self._line(one, None) for one in self._factor(self._expand(rest), None)]

    def _rule(self, rest: _Rest) -> Symbol:
        """The rule for what is still to come; the same rest is the same rule."""
        name = self.named.get(rest)
        if name is None:
            name = self.named[rest] = f"r{self._next_number()}"
            self.rules[name] = []
            self.rules[name] = self.body(rest)
        return Symbol(name)

    def _line(self, one: Alternative, counting: Counting) -> str:
        words = [_quote(part.text) if isinstance(part, Text) else part.text for part in one.parts]
        condition = "" if counting is None else counting.condition(one)
        return (" ".join(words) or '""') + condition

    def _next_number(self) -> int:
        self.number += 1
        return self.number

    # ---- expansion: every alternative begins with text or a symbol ---------------------------------------------------

    def _expand(self, rest: _Rest) -> list[Alternative]:
        if not rest:
            return [Alternative(())]
        step, after = rest[0], rest[1:]
        match step:
            case Literal():
                return self._after_text(step.text, after) if step.text else self._expand(after)
            case Marker():
                token_id = self.marker_id(step.name)
                if token_id is None:
                    return self._after_text(step.name, after)
                marker = Symbol(f"<[{token_id}]>")
                return [Alternative((marker, *one.parts), one.bits, one.closes) for one in self._expand(after)]
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
                return [Alternative((self._json(step.schema), *self._tail(after)))]
            case JsonString():
                return [Alternative((self._json(STRING_SCHEMA), *self._tail(after)))]
            case RawText() | CustomText():
                return [Alternative((self._value(step), *self._tail(after)))]

    def _after_text(self, text: str, after: _Rest) -> list[Alternative]:
        """Text before whatever may come next; seen through, so that the factoring knows all of a shared beginning."""
        before = (Text(text),)
        return [Alternative(joined(before, one.parts), one.bits, one.closes) for one in self._expand(after)]

    def _tail(self, after: _Rest) -> tuple[Part, ...]:
        return (self._rule(after),) if after else ()

    def _expand_again(self, step: _Again, after: _Rest) -> list[Alternative]:
        repeat, done = step.repeat, step.done
        if repeat.maximum is not None and repeat.maximum - done > _MOST_UNROLLED and done >= max(repeat.minimum, 1):
            return [Alternative((self._counted(repeat, done, after),))]
        ways: list[Alternative] = []
        if done >= repeat.minimum:
            ways += self._expand(after)
        if repeat.maximum is None or done < repeat.maximum:
            separator: _Rest = (repeat.separator,) if done and repeat.separator is not None else ()
            bounded = repeat.maximum is not None or done < repeat.minimum
            following = _Again(repeat, done + 1 if bounded or not done else done)
            ways += self._expand((*separator, _Whole(repeat.item), following, *after))
        return ways

    def _counted(self, repeat: Repeat, done: int, after: _Rest) -> Symbol:
        """All further items of a bounded Repeat as one rule that counts them."""
        name = f"n{self._next_number()}"
        separator: _Rest = (repeat.separator,) if repeat.separator is not None else ()
        again = Symbol(f"{name}::incr(_)", uses_bits=True)
        further = [
            Alternative((*one.parts, again), bits=frozenset({0})) for one in self._expand((*separator, _Whole(repeat.item)))
        ]
        closing = [Alternative(one.parts, closes=True) for one in self._expand(after)]
        calls = CountedItems(repeat.maximum or 0)
        self.rules[f"{name}::_"] = [self._line(one, calls) for one in self._factor([*further, *closing], calls)]
        return Symbol(f"{name}::{done}")

    def _expand_whole(self, node: Node, after: _Rest) -> list[Alternative]:
        """The node's own rule, with the text that all its alternatives share pulled out in front (for the factoring)."""
        return [Alternative((*self._head(node), *self._tail(after)))]

    def _head(self, node: Node) -> tuple[Part, ...]:
        """Found again by identity: equality of large trees costs more than what it saves."""
        found = self.heads.get(id(node))
        if found is None:
            alternatives = self._factor(self._expand((node,)), None)
            found = alternatives[0].parts if len(alternatives) == 1 else (self._factored_rule(alternatives, None),)
            self.heads[id(node)] = found
        return found

    # ---- parameters, each once, in any order ----------------------------------------------------------------------

    def _expand_parameters(self, node: UnorderedParameters, after: _Rest) -> list[Alternative]:
        # Sorted, so that parameters that begin alike are neighbours and share one condition over a range of bits.
        bits = ParameterBits(tuple(sorted(node.parameters, key=lambda parameter: parameter.name)))
        ending = [] if bits.order and all(parameter.required for parameter in bits.order) else self._expand(after)
        if not bits.order:
            return ending
        name = f"p{self._next_number()}"
        # Factored once, for the first parameter as for every further one: at the beginning no bit is set.
        further = self._factor(
            [
                Alternative(
                    (*self._head(parameter.node), Symbol(f"{name}::set_bit({index})", uses_bits=True)), frozenset({index})
                )
                for index, parameter in enumerate(bits.order)
            ],
            bits,
        )
        closing = [Alternative(one.parts, closes=True) for one in ending or self._expand(after)]
        separated = [
            Alternative(joined(one.parts, other.parts), other.bits)
            for one in self._expand((node.separator,))
            for other in further
        ]
        self.rules[f"{name}::_"] = [self._line(one, bits) for one in self._factor([*separated, *closing], bits)]
        first = [Alternative(tuple(map(_without_bits, one.parts))) for one in further]
        return first if any(parameter.required for parameter in bits.order) else [*first, *ending]

    # ---- factoring ------------------------------------------------------------------------------------------------

    def _factor(self, alternatives: list[Alternative], counting: Counting) -> list[Alternative]:
        """The same language, no two alternatives beginning with the same text or the same symbol."""
        groups: dict[str, list[Alternative]] = {}
        for one in alternatives:
            first = one.parts[0] if one.parts else None
            key = "" if first is None else "t" + first.text[0] if isinstance(first, Text) else "s" + first.text
            groups.setdefault(key, []).append(one)
        factored: list[Alternative] = []
        for key, group in groups.items():
            if len(group) == 1 or is_prefix_free(group):
                factored += group
                continue
            whole, characters = shared_beginning(group)
            shared = group[0].parts[:whole]
            if characters:
                shared = (*shared, Text(group[0].parts[whole].text[:characters]))
            bits = frozenset[int]().union(*(one.bits for one in group))
            closes = any(one.closes for one in group)
            if key == "":
                factored.append(Alternative((), bits, closes))
                continue
            inner = self._factor([one.after(whole, characters) for one in group], counting)
            if len(inner) == 1 and not inner[0].parts:
                factored.append(Alternative(shared, bits, closes))
                continue
            symbol = self._factored_rule(inner, counting)
            factored.append(Alternative((*shared, symbol), bits, closes))
        return factored

    def _factored_rule(self, inner: list[Alternative], counting: Counting) -> Symbol:
        counts = counting is not None and any(part.uses_bits for one in inner for part in one.parts if isinstance(part, Symbol))
        lines = tuple(self._line(one, counting if counts else None) for one in inner)
        key = ("factored", counts, lines)
        name = self.named.get(key)
        if name is None:
            name = self.named[key] = f"f{self._next_number()}"
            self.rules[f"{name}::_" if counts else name] = list(lines)
        return Symbol(f"{name}::_" if counts else name, uses_bits=counts)

    # ---- values ---------------------------------------------------------------------------------------------------

    def _json(self, schema: JsonObject) -> Symbol:
        name = self.named.get(("schema", schema))
        if name is not None:
            return Symbol(name)
        own = schema.get("x-guidance")  # what `loosened` says of this schema alone
        options = (*JSON_OPTIONS, *(own.pairs if isinstance(own, JsonObject) else ()))
        pairs = tuple(pair for pair in schema.pairs if pair[0] != "x-guidance")
        text = dump_json(JsonObject((*pairs, ("x-guidance", JsonObject(options)))))
        name = self.named["schema", schema] = f"j{self._next_number()}"
        self.rules[name] = [f"%json {text}"]
        return Symbol(name)

    def _value(self, node: RawText | CustomText) -> Symbol:
        # Without its path: each kind of value is one lexeme, however many parameters hold it.
        key = (
            ("raw", node.closer, node.schema, node.excludes)
            if isinstance(node, RawText)
            else ("custom", node.closer, node.syntax, node.definition)
        )
        name = self.named.get(key)
        if name is None:
            name = self.named[key] = f"v{self._next_number()}"
            self._write_value(name, node)
        return Symbol(name)

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
        terminals, end = content_terminals(content, node), content
        if before and marker is None and isinstance(node, RawText):
            closed, again, end = f"W{name.upper()}", f"X{name.upper()}", f"V{name.upper()}"
            terminals += [
                f"{closed} : {content} {_quote(before)}",
                f"{again} : {ANY} {_quote(before)} /(?s:.+)/",
                # A value that may not end yet must not run over its closer either.
                f"{end} : {closed} & ~{again}" if node.schema is not None else f"{end} : {closed}",
            ]
            self.rules[f"l{name}[lazy]"] = [end]
            self.rules[name] = [f"l{name} {tail}"]
        elif before:
            end = f"V{name.upper()}"
            terminals.append(f"{end} : {content} {_quote(before)}")
            self.rules[name] = [f"{end} {symbol}{tail}"]
        else:
            self.rules[name] = [f"{content} {symbol}{tail}"]
        if isinstance(node, RawText) and node.schema is not None:
            require_text(end, terminals)
        self.terminals += terminals


def _without_bits(part: Part) -> Part:
    """A call that hands bits on, as it is where none is set."""
    if not isinstance(part, Symbol) or not part.uses_bits:
        return part
    rule, argument = part.text.split("::")
    return Symbol(f"{rule}::0x{0 if argument == '_' else 1 << int(argument[len('set_bit(') : -1]):x}")


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
