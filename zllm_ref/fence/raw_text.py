"""The content of an unescaped value: the string rules of a JSON Schema as Lark terminals."""

from __future__ import annotations

import json

from llguidance import regex_to_lark

from zllm_ref.canonical.json_value import JsonNumber, JsonObject
from zllm_ref.fence.grammar import CustomText, RawText

ANY = "/(?s:.*)/"
STRING_RULES = frozenset({"type", "enum", "const", "minLength", "maxLength", "pattern"})
"""The keywords that a terminal can hold."""
ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly", "$defs", "definitions",
     "$schema", "$id", "contentMediaType", "contentEncoding", "x-guidance"}
)  # fmt: skip
"""Keywords that constrain nothing."""


class UnfenceableText(ValueError):
    """A rule for an unescaped value that no terminal can hold. `keyword` is the schema's keyword at fault."""

    def __init__(self, keyword: str, message: str) -> None:
        super().__init__(message)
        self.keyword = keyword


def content_terminals(name: str, node: RawText | CustomText) -> list[str]:
    """Terminal definitions, the first of which (`name`) is the content without its closer. Raises UnfenceableText."""
    if isinstance(node, CustomText):
        return [f"{name} : /{regex_to_lark(node.definition)}/"]
    factors = _schema_factors(node.schema)
    lines: list[str] = []
    for index, excluded in enumerate(node.excludes):
        lines.append(f"{name}X{index} : {ANY} {json.dumps(excluded, ensure_ascii=False)} {ANY}")
        factors.append(f"~{name}X{index}")
    if not factors or factors[0].startswith("~"):
        factors.insert(0, ANY)  # a negation alone would let broken UTF-8 in
    return [f"{name} : {' & '.join(factors)}", *lines]


def unfenceable_keywords(schema: JsonObject | None) -> list[tuple[str, str]]:
    """(keyword, why) for every rule of a string's schema that its terminal does not hold."""
    if schema is None:
        return []
    found: list[tuple[str, str]] = []
    for keyword, _ in schema.pairs:
        if keyword not in STRING_RULES and keyword not in ANNOTATIONS:
            found.append((keyword, f"{keyword!r} of an unescaped string cannot be fenced"))
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        try:
            _pattern(pattern)
        except UnfenceableText as error:
            found.append((error.keyword, str(error)))
    return found


def holdable(schema: JsonObject | None) -> JsonObject | None:
    """The schema without the rules that its terminal cannot hold."""
    if schema is None:
        return None
    bad = {keyword for keyword, _ in unfenceable_keywords(schema)}
    return JsonObject(tuple((keyword, value) for keyword, value in schema.pairs if keyword not in bad))


def _schema_factors(schema: JsonObject | None) -> list[str]:
    if schema is None:
        return []
    factors: list[str] = []
    for keyword, value in schema.pairs:
        match keyword:
            case "enum":
                texts = [text for text in value if isinstance(text, str)] if isinstance(value, tuple) else []
                if not texts:
                    raise UnfenceableText("enum", f"enum of an unescaped string: got {value!r}, allowed at least one string")
                factors.append("(" + " | ".join(json.dumps(text, ensure_ascii=False) for text in texts) + ")")
            case "const" if isinstance(value, str):
                factors.append(json.dumps(value, ensure_ascii=False))
            case "pattern" if isinstance(value, str):
                factors.append(f"/{_pattern(value)}/")
    low, high = _length(schema.get("minLength")), _length(schema.get("maxLength"))
    if low or high is not None:
        factors.append(f"/(?s:.){{{low or 0},{'' if high is None else high}}}/")
    return factors


def _length(value: object) -> int | None:
    return int(float(value.text)) if isinstance(value, JsonNumber) else None


def _pattern(pattern: str) -> str:
    """An ECMA pattern, which may match anywhere, as a regex of the whole value."""
    opened, closed, inner = pattern.startswith("^"), pattern.endswith("$") and not pattern.endswith("\\$"), pattern
    inner = inner[1:] if opened else inner
    inner = inner[:-1] if closed else inner
    if "(?=" in inner or "(?!" in inner or "(?<" in inner:
        raise UnfenceableText("pattern", f"pattern {pattern!r}: got look-around, allowed a regular expression without it")
    if _has_anchor_or_bar(inner, bar=opened or closed):
        raise UnfenceableText("pattern", f"pattern {pattern!r}: got an anchor inside, allowed ^ first and $ last")
    return ("" if opened else "(?s:.*)") + f"(?:{regex_to_lark(inner, 'dw')})" + ("" if closed else "(?s:.*)")


def _has_anchor_or_bar(pattern: str, *, bar: bool) -> bool:
    depth = 0
    index = 0
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
