"""The smallest value fits its schema, judged by the `jsonschema` library."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zllm_ref.engine.minimal_value import minimal_value

names = st.sampled_from(["a", "b", "c"])
numbers = st.integers(-20, 20)


def bounded(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    """Bounds that leave room for a multiple."""

    def build(low: int, width: int, keys: tuple[str, str], step: int | None, parts: tuple[bool, bool]) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": kind}
        if parts[0]:
            schema[keys[0]] = low
        if parts[1]:
            schema[keys[1]] = low + width
        if step is not None:
            schema["multipleOf"] = step
        return schema

    return st.builds(
        build,
        numbers,
        st.integers(9, 30),
        st.tuples(st.sampled_from(["minimum", "exclusiveMinimum"]), st.sampled_from(["maximum", "exclusiveMaximum"])),
        st.none() | st.integers(1, 7),
        st.tuples(st.booleans(), st.booleans()),
    )


leaves = st.one_of(
    bounded("integer"),
    bounded("number"),
    st.builds(lambda n: {"type": "string", "minLength": n}, st.integers(0, 5)),
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.just({"type": ["string", "null"]}),
    st.just({}),
    st.just(True),
    st.builds(lambda value: {"const": value}, st.one_of(st.none(), numbers, st.text(max_size=3))),
    st.builds(lambda values: {"enum": values}, st.lists(numbers, min_size=1, max_size=3)),
    st.just({"$ref": "#/$defs/node"}),
)


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    properties = st.dictionaries(names, inner, max_size=3)
    objects = properties.flatmap(
        lambda found: st.builds(
            lambda required: {"type": "object", "properties": found, "required": required, "additionalProperties": False},
            st.lists(st.sampled_from(sorted(found)), unique=True) if found else st.just([]),
        )
    )
    arrays = st.builds(lambda item, count: {"type": "array", "items": item, "minItems": count}, inner, st.integers(0, 3))
    tuples = st.builds(
        lambda first, item: {"type": "array", "prefixItems": first, "items": item, "minItems": 3},
        st.lists(inner, max_size=2),
        inner,
    )
    choices = st.builds(lambda branches: {"anyOf": branches}, st.lists(inner, min_size=1, max_size=2))
    beside = st.builds(
        lambda own, chosen: {
            "type": "object",
            "properties": {"a": own},
            "required": ["a"],
            "anyOf": [{"properties": {"d": chosen}, "required": ["d"]}, {}],
        },
        inner,
        inner,
    )
    return st.one_of(objects, arrays, tuples, choices, beside)


schemas = st.recursive(leaves, larger, max_leaves=8)


@settings(max_examples=60)
@given(schemas)
def test_the_smallest_value_fits_its_schema(schema: Any) -> None:
    root = {"$defs": {"node": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer", "minimum": 1}}}}}
    whole = {**root, "type": "object", "properties": {"value": schema}, "required": ["value"]}

    value = minimal_value(whole)

    jsonschema.Draft202012Validator(whole).validate(value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({}, {}),
        (True, {}),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, {}),
        ({"type": "integer", "exclusiveMinimum": 0}, 1),
        ({"type": "integer", "minimum": 0.5}, 1),
        ({"type": "integer", "maximum": -3, "multipleOf": 5}, -5),
        ({"type": "number", "exclusiveMaximum": 0}, -1),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5),
        ({"allOf": [{"type": "object", "required": ["a"]}, {"properties": {"a": {"const": 3}}}]}, {"a": 3}),
        ({"oneOf": [{"required": ["a"]}], "type": "object", "properties": {"a": {"const": 1}}}, {"a": 1}),
    ],
    ids=str,
)
def test_the_smallest_value_of_a_schema_is_known(schema: Any, value: Any) -> None:
    assert minimal_value(schema) == value


def test_a_schema_that_needs_itself_ends() -> None:
    minimal_value(
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"]}}}
    )
