"""The smallest value that fits a JSON Schema, for a model that dictates instead of thinking.

Follows `const`, `enum`, `default`, combinations, local `$ref`, required properties and lower bounds. What it cannot satisfy by
construction (`pattern`, `format`, `not`) it leaves: whoever needs those writes a script.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MAX_DEPTH = 32


def minimal_value(schema: Any, root: Any = None, depth: int = 0) -> Any:
    """A plain value (as `json.loads` gives it). `root` is the schema in which `$ref` looks."""
    root = schema if root is None else root
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return {} if schema is True and depth == 0 else None
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    if "$ref" in schema:
        return minimal_value(_resolve(str(schema["$ref"]), root), root, depth + 1)
    if schema.get("allOf"):
        merged = dict(schema)
        for part in merged.pop("allOf"):
            found = _resolve(str(part["$ref"]), root) if isinstance(part, Mapping) and "$ref" in part else part
            if isinstance(found, Mapping):
                merged = _merge(merged, found)
        return minimal_value(merged, root, depth + 1)
    for combination in ("anyOf", "oneOf"):
        if schema.get(combination):
            return minimal_value(schema[combination][0], root, depth + 1)
    return _of_type(schema, root, depth)


def _of_type(schema: Mapping[str, Any], root: Any, depth: int) -> Any:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0] if kind else None
    if kind == "object" or (kind is None and ("properties" in schema or "required" in schema)):
        properties = schema.get("properties", {})
        return {name: minimal_value(properties.get(name, {}), root, depth + 1) for name in schema.get("required", ())}
    if kind == "array":
        item = minimal_value(schema.get("items", {}), root, depth + 1)
        return [item] * int(schema.get("minItems", 0))
    if kind == "string":
        return "x" * int(schema.get("minLength", 0))
    if kind in ("integer", "number"):
        return _number(schema)
    if kind == "boolean":
        return False
    if kind is None and depth == 0:
        return {}
    return None if kind in (None, "null") else ""


def _number(schema: Mapping[str, Any]) -> int | float:
    low = schema.get("minimum")
    if low is None and "exclusiveMinimum" in schema and not isinstance(schema["exclusiveMinimum"], bool):
        low = schema["exclusiveMinimum"] + 1
    high = schema.get("maximum")
    if low is None:
        low = min(0, high) if high is not None else 0
    step = schema.get("multipleOf")
    return low if not step else -(-low // step) * step


def _resolve(reference: str, root: Any) -> Any:
    if not reference.startswith("#"):
        return {}
    found = root
    for name in reference[1:].split("/")[1:]:
        found = found.get(name.replace("~1", "/").replace("~0", "~"), {}) if isinstance(found, Mapping) else {}
    return found


def _merge(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**left, **right}
    merged["properties"] = {**left.get("properties", {}), **right.get("properties", {})}
    merged["required"] = [*left.get("required", ()), *right.get("required", ())]
    return {key: value for key, value in merged.items() if value or key not in ("properties", "required")}
