"""Random toolsets from a number, for the runs that are too long for hypothesis: the kinds of schemas that `schemas` draws."""

from __future__ import annotations

import random
from typing import Any

from tests.fence.schemas import DEFINITIONS, NAMES, TEXTS
from zllm_ref.canonical.json_value import JsonObject, from_python
from zllm_ref.canonical.request import FunctionTool

TOOL_NAMES = ("get", "get_weather", "get_weather_now", "list", "t", "set_flag")
_PATTERNS = ("^[a-c]+$", "^(ab|cd)", "^[^x]*$", "^[0-9]{2}")
_VALUES = (1, 2.5, "x", None, True, [1], {"k": "v"})


def random_tools(rng: random.Random) -> tuple[FunctionTool, ...]:
    """One to three tools."""
    tools = []
    for name in rng.sample(TOOL_NAMES, rng.randint(1, 3)):
        schema = from_python({**_object(rng, 0), "$defs": DEFINITIONS})
        assert isinstance(schema, JsonObject)
        tools.append(FunctionTool(name, parameters=schema))
    return tuple(tools)


def _object(rng: random.Random, depth: int) -> dict[str, Any]:
    names = rng.sample(NAMES, rng.randint(0, 4))
    return {
        "type": "object",
        "properties": {name: _value(rng, depth) for name in names},
        "required": sorted(name for name in names if rng.random() < 0.5),
        "additionalProperties": False,
    }


def _value(rng: random.Random, depth: int) -> dict[str, Any]:
    kinds = ["string", "string", "string", "scalar", "scalar", "reference"]
    if depth < 2:
        kinds += ["array", "object", "either"]
    match rng.choice(kinds):
        case "string":
            return _string(rng)
        case "scalar":
            return _scalar(rng)
        case "reference":
            return {"$ref": "#/$defs/node"}
        case "array":
            least = rng.randint(0, 2)
            return {"type": "array", "items": _value(rng, depth + 1), "minItems": least, "maxItems": least + rng.randint(0, 2)}
        case "object":
            return _object(rng, depth + 1)
        case _:
            return {"anyOf": [_value(rng, depth + 1) for _ in range(rng.randint(1, 2))]}


def _string(rng: random.Random) -> dict[str, Any]:
    match rng.randrange(4):
        case 0:
            return {"type": "string"}
        case 1:
            return {"type": "string", "enum": rng.sample(TEXTS, rng.randint(1, 3))}
        case 2:
            return {"type": "string", "minLength": rng.randint(0, 3), "maxLength": rng.randint(3, 9)}
        case _:
            return {"type": "string", "pattern": rng.choice(_PATTERNS)}


def _scalar(rng: random.Random) -> dict[str, Any]:
    low = rng.randint(-20, 20)
    return rng.choice(
        [
            {"type": "boolean"},
            {"type": "null"},
            {"type": "number"},
            {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 40)},
            {"enum": rng.sample(_VALUES, rng.randint(1, 3))},
            {"const": {"deep": [1, "two"]}},
            {"type": ["integer", "null"]},
        ]
    )
