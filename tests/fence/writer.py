"""Writes a random text of a grammar the way a dialect's own renderer would: canonical, from the same tree."""

from __future__ import annotations

import json
import random
from typing import Any

from zllm_ref.canonical.json_value import to_python
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
from zllm_ref.tokenizer import Vocabulary

Pieces = list[str | Marker]


def write(node: Node, rng: random.Random) -> Pieces:
    """Text and markers, one after the other."""
    match node:
        case Literal():
            return [node.text]
        case Marker():
            return [node]
        case Sequence():
            return [piece for item in node.items for piece in write(item, rng)]
        case Choice():
            return write(rng.choice(node.options), rng)
        case Repeat():
            times = rng.randint(node.minimum, min(node.maximum or 3, 3))
            parts = [write(node.item, rng) for _ in range(times)]
            return _joined(parts, write(node.separator, rng) if node.separator is not None else [])
        case JsonBySchema():
            schema = to_python(node.schema)
            return [json.dumps(value_of(schema, schema, rng), ensure_ascii=False)]
        case JsonString():
            return [json.dumps(rng.choice(("", 'a "b" \\ c', "ü\n")), ensure_ascii=False)]
        case RawText():
            value = value_of({"type": "string", **(to_python(node.schema) if node.schema is not None else {})}, {}, rng)
            return [value, *(part if isinstance(part, Marker) else part.text for part in node.closer)]
        case CustomText():
            raise AssertionError("the tests write custom text by hand")
        case UnorderedParameters():
            chosen = [one for one in node.parameters if one.required or rng.random() < 0.5]
            rng.shuffle(chosen)
            return _joined([write(one.node, rng) for one in chosen], write(node.separator, rng))


def encoded(pieces: Pieces, vocabulary: Vocabulary) -> list[int]:
    """Canonical ids: text that touches is one text to the tokenizer."""
    ids: list[int] = []
    text = ""
    for piece in pieces:
        token_id = vocabulary.marker_id(piece.name) if isinstance(piece, Marker) else None
        if token_id is None:
            text += piece.name if isinstance(piece, Marker) else piece
        else:
            ids += [*vocabulary.encode_text(text), token_id]
            text = ""
    return ids + vocabulary.encode_text(text)


def value_of(schema: Any, root: Any, rng: random.Random, depth: int = 0) -> Any:
    """A value of the schemas in `schemas`, properties in the schema's order."""
    if "$ref" in schema:
        return value_of(root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root, rng, depth)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if "anyOf" in schema:
        return value_of(schema["anyOf"][-1] if depth > 2 else rng.choice(schema["anyOf"]), root, rng, depth + 1)
    kind = schema["type"]
    if isinstance(kind, list):
        return value_of({**schema, "type": rng.choice(kind)}, root, rng, depth)
    match kind:
        case "string":
            return _string(schema, rng)
        case "integer":
            return rng.randint(schema.get("minimum", -99), schema.get("maximum", 99))
        case "number":
            return rng.choice((0, -1.5, 12.25, 1e-07))
        case "boolean":
            return rng.random() < 0.5
        case "null":
            return None
        case "array":
            items = range(rng.randint(schema.get("minItems", 0), schema.get("maxItems", 2)))
            return [value_of(schema["items"], root, rng, depth + 1) for _ in items]
        case _:
            required = schema.get("required", ())
            return {
                name: value_of(one, root, rng, depth + 1)
                for name, one in schema.get("properties", {}).items()
                if name in required or (rng.random() < 0.5 and depth < 3)
            }


def _string(schema: Any, rng: random.Random) -> str:
    by_pattern = {"^[a-c]+$": ("abc", "c"), "^(ab|cd)": ("ab", "cd x"), "^[^x]*$": ("", "New York"), "^[0-9]{2}": ("12", "123 a")}
    if "pattern" in schema:
        return rng.choice(by_pattern[schema["pattern"]])
    texts = (
        "New York",
        "a < b </p> & c",
        "naïve 東京 🙂",
        "  two  blanks\n\n",
        'say "x" \\ y',
        "12",
        "true",
        "",
        "{}",
        "<tool_call>",
    )
    text = rng.choice(texts)
    low, high = schema.get("minLength", 0), schema.get("maxLength")
    return (text[:high] if high is not None else text).ljust(low, "z")


def _joined(parts: list[Pieces], separator: Pieces) -> Pieces:
    joined: Pieces = []
    for index, part in enumerate(parts):
        joined += [*(separator if index else []), *part]
    return joined
