"""The smallest value that fits a JSON Schema, for a model that dictates instead of thinking.

Follows `const`, `enum`, combinations, local `$ref`, required properties and bounds. What it cannot satisfy by construction
(`pattern`, `format`, `not`, `uniqueItems`, `oneOf` whose branches overlap) it leaves: whoever needs those writes a script.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
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
            rest = {key: value for key, value in schema.items() if key != combination}
            branch = schema[combination][0]
            return minimal_value(_merge(rest, branch) if isinstance(branch, Mapping) else rest, root, depth + 1)
    return _of_type(schema, root, depth)


def _of_type(schema: Mapping[str, Any], root: Any, depth: int) -> Any:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0] if kind else None
    if kind == "object" or (kind is None and ("properties" in schema or "required" in schema)):
        properties = schema.get("properties", {})
        return {name: minimal_value(properties.get(name, {}), root, depth + 1) for name in schema.get("required", ())}
    if kind == "array":
        first = [minimal_value(item, root, depth + 1) for item in schema.get("prefixItems", ())]
        missing = max(0, int(schema.get("minItems", 0)) - len(first))
        return first + [minimal_value(schema.get("items", {}), root, depth + 1)] * missing
    if kind == "string":
        return "x" * int(schema.get("minLength", 0))
    if kind in ("integer", "number"):
        return _number(schema, 1 if kind == "integer" else None)
    if kind == "boolean":
        return False
    if kind is None and depth == 0:
        return {}
    return None if kind in (None, "null") else ""


def _number(schema: Mapping[str, Any], step: int | None) -> int | float:
    """0 where it is allowed, else the number nearest to it. `step` 1: an integer."""
    low, high = _bound(schema, "minimum", "exclusiveMinimum", 1), _bound(schema, "maximum", "exclusiveMaximum", -1)
    multiple = Fraction(str(schema["multipleOf"])) if schema.get("multipleOf") else None
    if low is not None and (low[0] > 0 or (low[0] == 0 and low[1])):
        value = _above(low, None if high is None else high[0], multiple or step)
    elif high is not None and (high[0] < 0 or (high[0] == 0 and high[1])):
        value = -_above((-high[0], high[1]), None if low is None else -low[0], multiple or step)
    else:
        value = Fraction(0)
    return int(value) if value.denominator == 1 else float(value)


def _bound(schema: Mapping[str, Any], closed: str, opened: str, sign: int) -> tuple[Fraction, bool] | None:
    """The tighter of two bounds, and whether it is itself outside."""
    values = [(sign * Fraction(str(schema[closed])), False)] if closed in schema else []
    if opened in schema and not isinstance(schema[opened], bool):
        values.append((sign * Fraction(str(schema[opened])), True))
    if not values:
        return None
    value, is_open = max(values)
    return sign * value, is_open


def _above(low: tuple[Fraction, bool], high: Fraction | None, step: Fraction | int | None) -> Fraction:
    """The least number from `low` on (beyond it, where it is open) that is a whole number of steps."""
    value, is_open = low
    if step is not None:
        return (value // step + 1 if is_open else -(-value // step)) * Fraction(step)
    if not is_open:
        return value
    return value + 1 if high is None else (value + high) / 2


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
