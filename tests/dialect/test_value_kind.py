"""Whether a bare value is a string is the schema's word."""

from __future__ import annotations

import pytest

from zllm_ref.canonical.json_value import parse_json_object
from zllm_ref.dialect.value_kind import ValueKind, parameter_kinds

STRING, OTHER, EITHER = ValueKind.STRING, ValueKind.OTHER, ValueKind.EITHER


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ('{"type": "string"}', STRING),
        ('{"type": "integer"}', OTHER),
        ('{"type": ["string"]}', STRING),
        ('{"type": ["integer", "null"]}', OTHER),
        ('{"type": ["string", "null"]}', EITHER),
        ("{}", EITHER),
        ("true", EITHER),
        ('{"enum": ["a", "b"]}', STRING),
        ('{"enum": [1, 2]}', OTHER),
        ('{"enum": ["a", 1]}', EITHER),
        ('{"const": "x"}', STRING),
        ('{"const": null}', OTHER),
        ('{"anyOf": [{"type": "string"}, {"const": "x"}]}', STRING),
        ('{"anyOf": [{"type": "string"}, {"type": "null"}]}', EITHER),
        ('{"oneOf": [{"type": "number"}, {"type": "array"}]}', OTHER),
        ('{"allOf": [{}, {"type": "string"}]}', STRING),
        ('{"$ref": "#/$defs/name"}', STRING),
        ('{"$ref": "#/$defs/loop"}', EITHER),
        ('{"$ref": "#/$defs/nowhere"}', EITHER),
        ('{"$ref": "https://elsewhere"}', EITHER),
        ('{"type": "string", "enum": [1]}', EITHER),
        ('{"type": "string", "description": "a number like 12"}', STRING),
    ],
)
def test_kind(schema: str, kind: ValueKind) -> None:
    parameters = parse_json_object(
        f'{{"properties": {{"p": {schema}}}, "$defs": {{"name": {{"type": "string"}}, "loop": {{"$ref": "#/$defs/loop"}}}}}}'
    )

    assert parameter_kinds(parameters) == {"p": kind}


def test_no_properties_no_kinds() -> None:
    assert parameter_kinds(parse_json_object('{"type": "object"}')) == {}
    assert parameter_kinds(parse_json_object('{"properties": []}')) == {}
