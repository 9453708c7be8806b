"""The content of an unescaped value: the string rules of a JSON Schema as Lark terminals.

type, enum, const, minLength, maxLength, pattern     one terminal each, joined by &
allOf, a local $ref                                  joined by & as well
anyOf                                                joined by |, branches that hold no string left out
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache

import numpy as np
from llguidance import LLMatcher, LLTokenizer, regex_to_lark

from zllm_ref.canonical.json_value import JsonNumber, JsonObject, JsonValue
from zllm_ref.fence.grammar import CustomText, RawText
from zllm_ref.fence.mask import ids_of

ANY = "/(?s:.*)/"
ASSERTS = frozenset(("not", "if", "then", "else", "oneOf", "format", "$dynamicRef", "$recursiveRef"))
"""Keywords that could refuse a string and that no terminal here holds. What is neither here nor below says nothing of strings."""
_MOST_REFERENCES = 16


class UnfenceableText(ValueError):
    """A rule for an unescaped value that no terminal can hold."""


def content_terminals(name: str, node: RawText | CustomText) -> list[str]:
    """Terminal definitions, the first of which (`name`) is the content without its closer. Raises UnfenceableText."""
    if isinstance(node, CustomText):
        return [f"{name} : /{regex_to_lark(node.definition)}/"]
    factors = [] if node.schema is None else _factors(node.schema, node.schema, 0)
    if factors is None:
        raise UnfenceableText("schema of an unescaped string: got one that no string satisfies, allowed at least one string")
    lines: list[str] = []
    for index, excluded in enumerate(node.excludes):
        lines.append(f"{name}X{index} : {ANY} {json.dumps(excluded, ensure_ascii=False)} {ANY}")
        factors.append(f"~{name}X{index}")
    if not factors or factors[0].startswith("~"):
        factors.insert(0, ANY)  # a negation alone would let broken UTF-8 in
    return [f"{name} : {' & '.join(factors)}", *lines]


def require_text(name: str, terminals: Sequence[str]) -> None:
    """Raises UnfenceableText where no text at all is one of the terminal `name`: behind its opener nothing could come."""
    if not has_text("\n".join([f"start: {name}", *terminals, ""])):
        raise UnfenceableText("schema of an unescaped string: got one that no string satisfies, allowed at least one string")


@lru_cache(maxsize=1024)
def has_text(lark: str) -> bool:
    """Whether some text, even none, is one of the grammar's. True, too, where llguidance cannot read it: it says so elsewhere."""
    single_bytes = _single_bytes()
    matcher = LLMatcher(single_bytes, json.dumps({"grammars": [{"lark_grammar": lark}]}), log_level=0)
    if matcher.is_error() or matcher.is_accepting():
        return True
    return any(
        token_id != single_bytes.eos_token for token_id in ids_of(np.frombuffer(matcher.compute_bitmask(), dtype=np.int32))
    )


@cache
def _single_bytes() -> LLTokenizer:
    return LLTokenizer("byte")


def unfenceable_keywords(schema: JsonObject) -> list[tuple[str, str]]:
    """(place within the schema, why) for every rule that its terminal does not hold."""
    return list(_problems(schema, schema, "", 0))


def holdable(schema: JsonObject) -> JsonObject:
    """The schema without the rules that no terminal can hold."""
    return _held(schema)


def _problems(schema: JsonValue, root: JsonObject, place: str, depth: int) -> Iterator[tuple[str, str]]:
    if not isinstance(schema, JsonObject) or not _may_be_string(schema):
        return
    for keyword, value in schema.pairs:
        where = f"{place}.{keyword}" if place else keyword
        if keyword in ASSERTS:
            yield where, f"{keyword!r} of an unescaped string cannot be fenced"
        elif keyword == "pattern" and isinstance(value, str):
            try:
                _pattern(value)
            except UnfenceableText as error:
                yield where, str(error)
        elif keyword in ("anyOf", "allOf") and isinstance(value, tuple):
            for index, branch in enumerate(value):
                yield from _problems(branch, root, f"{where}[{index}]", depth)
        elif keyword == "$ref":
            target = _target(root, value)
            if target is None or depth >= _MOST_REFERENCES:
                yield where, f"got {value!r}, allowed a reference into the schema that ends"
            else:
                yield from _problems(target, root, where, depth + 1)


def _held(schema: JsonObject) -> JsonObject:
    pairs: list[tuple[str, JsonValue]] = []
    for keyword, value in schema.pairs:
        if keyword in ASSERTS or (keyword == "pattern" and list(_problems(JsonObject(((keyword, value),)), schema, "", 0))):
            continue
        if keyword in ("anyOf", "allOf") and isinstance(value, tuple):
            value = tuple(_held(branch) if isinstance(branch, JsonObject) else branch for branch in value)
        elif keyword in ("$defs", "definitions") and isinstance(value, JsonObject):
            value = JsonObject(tuple((name, _held(one) if isinstance(one, JsonObject) else one) for name, one in value.pairs))
        pairs.append((keyword, value))
    return JsonObject(tuple(pairs))


def _factors(schema: JsonValue, root: JsonObject, depth: int) -> list[str] | None:
    """Terminals that all have to match; None: no string satisfies the schema."""
    if not isinstance(schema, JsonObject):
        return None if schema is False else []
    if not _may_be_string(schema) or depth > _MOST_REFERENCES:
        return None
    factors: list[str] = []
    for keyword, value in schema.pairs:
        found: list[str] | None = []
        match keyword:
            case "enum":
                found = _one_of([text for text in value if isinstance(text, str)] if isinstance(value, tuple) else [])
            case "const":
                found = _one_of([value] if isinstance(value, str) else [])
            case "pattern" if isinstance(value, str):
                found = [f"/{_pattern(value)}/"]
            case "$ref":
                found = _factors(_target(root, value), root, depth + 1)
            case "allOf" if isinstance(value, tuple):
                parts = [_factors(branch, root, depth) for branch in value]
                found = None if None in parts else [factor for part in parts if part is not None for factor in part]
            case "anyOf" if isinstance(value, tuple):
                found = _any_of([_factors(branch, root, depth) for branch in value])
        if found is None:
            return None
        factors += found
    low, high = _length(schema.get("minLength")), _length(schema.get("maxLength"))
    if low or high is not None:
        factors.append(f"/(?s:.){{{low or 0},{'' if high is None else high}}}/")
    return factors


def _one_of(texts: list[str]) -> list[str] | None:
    return ["(" + " | ".join(json.dumps(text, ensure_ascii=False) for text in texts) + ")"] if texts else None


def _any_of(branches: list[list[str] | None]) -> list[str] | None:
    possible = [branch for branch in branches if branch is not None]
    if not possible:
        return None
    if any(not branch for branch in possible):
        return []  # one of them takes every string
    return ["(" + " | ".join("(" + " & ".join(branch) + ")" for branch in possible) + ")"]


def _may_be_string(schema: JsonObject) -> bool:
    stated = schema.get("type")
    return stated is None or stated == "string" or (isinstance(stated, tuple) and "string" in stated)


def _target(root: JsonObject, reference: JsonValue) -> JsonValue:
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    value: JsonValue = root
    for name in reference[2:].split("/"):
        if not isinstance(value, JsonObject):
            return None
        value = value.get(name.replace("~1", "/").replace("~0", "~"))
    return value


def _length(value: JsonValue) -> int | None:
    return int(float(value.text)) if isinstance(value, JsonNumber) else None


def _pattern(pattern: str) -> str:
    """An ECMA pattern, which may match anywhere, as a regex of the whole value."""
    opened, closed, inner = pattern.startswith("^"), pattern.endswith("$") and not pattern.endswith("\\$"), pattern
    inner = inner[1:] if opened else inner
    inner = inner[:-1] if closed else inner
    if "(?=" in inner or "(?!" in inner or "(?<" in inner:
        raise UnfenceableText(f"pattern {pattern!r}: got look-around, allowed a regular expression without it")
    if _has_anchor_or_bar(inner, bar=opened or closed):
        raise UnfenceableText(f"pattern {pattern!r}: got an anchor inside, allowed ^ first and $ last")
    return ("" if opened else "(?s:.*)") + f"(?:{regex_to_lark(inner, 'dw')})" + ("" if closed else "(?s:.*)")


def _has_anchor_or_bar(pattern: str, *, bar: bool) -> bool:
    """An anchor or word border inside, or (with `bar`) an alternation that the anchors outside belong to only in part."""
    depth = index = 0
    in_class = False
    while index < len(pattern):
        character = pattern[index]
        if character == "\\":
            if pattern[index + 1 : index + 2] in ("b", "B"):
                return True
            index += 2
            continue
        if in_class:
            in_class = character != "]"
        elif character == "[":
            in_class = True
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character in "^$" or (character == "|" and bar and depth == 0):
            return True
        index += 1
    return False
