"""Random tools for the property tests: schemas that jsonschema judges and the fence must hold."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = ("a", "ab", "abc", "loc", "location", "x-y", "größe", "days", "day", "名")
TOOL_NAMES = ("get", "get_weather", "get_weather_now", "list", "t", "set.flag")
TEXTS = ("a", "ab", "b c", "<tag>", "</", "naïve", '"q"', "1", "true", "", "{}", "\\n")

strings = st.one_of(
    st.just({"type": "string"}),
    st.lists(st.sampled_from(TEXTS), min_size=1, max_size=3, unique=True).map(lambda texts: {"type": "string", "enum": texts}),
    st.tuples(st.integers(0, 3), st.integers(3, 9)).map(
        lambda both: {"type": "string", "minLength": both[0], "maxLength": both[1]}
    ),
    st.sampled_from(["^[a-c]+$", "^(ab|cd)", "^[^x]*$", "^[0-9]{2}"]).map(lambda pattern: {"type": "string", "pattern": pattern}),
)
scalars = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.just({"type": "number"}),
    st.tuples(st.integers(-20, 20), st.integers(0, 40)).map(
        lambda both: {"type": "integer", "minimum": both[0], "maximum": both[0] + both[1]}
    ),
    st.lists(st.sampled_from([1, 2.5, "x", None, True, [1], {"k": "v"}]), min_size=1, max_size=3).map(
        lambda some: {"enum": some}
    ),
    st.just({"const": {"deep": [1, "two"]}}),
    st.just({"type": ["integer", "null"]}),
)


def nested(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    arrays = st.tuples(inner, st.integers(0, 2), st.integers(0, 2)).map(
        lambda parts: {"type": "array", "items": parts[0], "minItems": parts[1], "maxItems": parts[1] + parts[2]}
    )
    either = st.lists(inner, min_size=1, max_size=2).map(lambda some: {"anyOf": some})
    return st.one_of(arrays, objects(inner), either)


def objects(inner: st.SearchStrategy[dict[str, Any]], most: int = 4) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(NAMES), inner, max_size=most).flatmap(
        lambda properties: st.sets(
            st.sampled_from(sorted(properties)) if properties else st.nothing(), max_size=len(properties)
        ).map(
            lambda required: {
                "type": "object",
                "properties": properties,
                "required": sorted(required),
                "additionalProperties": False,
            }
        )
    )


values = st.recursive(st.one_of(strings, scalars), nested, max_leaves=4)
references = st.just({"$ref": "#/$defs/node"})
DEFINITIONS = {
    "node": {
        "type": "object",
        "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
        "required": ["v"],
        "additionalProperties": False,
    }
}
parameters = objects(st.one_of(values, strings, references)).map(lambda schema: {**schema, "$defs": DEFINITIONS})
tools = st.dictionaries(st.sampled_from(TOOL_NAMES), parameters, min_size=1, max_size=3)
