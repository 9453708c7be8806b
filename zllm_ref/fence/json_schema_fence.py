"""What of a JSON Schema can be held token by token, and what cannot.

llguidance holds most of JSON Schema, refuses the rest, and reads a few things otherwise than the standard does. Here a schema
is brought into the form that is held exactly; whatever had to be dropped on the way is a `SchemaProblem` with its path, and
the policy decides whether that is an error for the client or a later validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from zllm_ref.canonical.json_value import JsonNumber, JsonObject, JsonValue
from zllm_ref.canonical.request import JsonObjectFormat, JsonSchemaFormat
from zllm_ref.fence.grammar import JsonBySchema

HELD = frozenset(
    ("type", "enum", "const", "properties", "required", "additionalProperties", "patternProperties", "minProperties",
     "maxProperties", "items", "prefixItems", "minItems", "maxItems", "minLength", "maxLength", "pattern", "format", "minimum",
     "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "anyOf", "oneOf", "allOf", "$ref", "$defs", "definitions")
)  # fmt: skip
NOT_HELD = frozenset(
    ("not", "if", "then", "else", "uniqueItems", "contains", "minContains", "maxContains", "dependentRequired",
     "dependentSchemas", "dependencies", "propertyNames", "unevaluatedProperties", "unevaluatedItems", "additionalItems",
     "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor")
)  # fmt: skip
"""Assertions of JSON Schema that no mask here expresses. A keyword in neither set says nothing about values."""
FORMATS = frozenset(("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"))

_SCHEMA_MAPS = frozenset(("properties", "patternProperties", "$defs", "definitions"))
_SCHEMA_LISTS = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
_SCHEMAS = frozenset(("items", "additionalProperties"))


@dataclass(frozen=True, slots=True)
class SchemaProblem:
    """Something in the client's request that the fence cannot hold. `path` says where in the request."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True, slots=True)
class HeldSchema:
    """The schema that the fence holds (never looser in type than the original), and what it had to leave out."""

    schema: JsonObject
    problems: tuple[SchemaProblem, ...] = ()


def response_node(response_format: JsonObjectFormat | JsonSchemaFormat) -> JsonBySchema:
    """The grammar of an answer that must be JSON."""
    if isinstance(response_format, JsonObjectFormat):
        return JsonBySchema(JsonObject((("type", "object"),)), "response_format")
    return JsonBySchema(response_format.schema, "response_format.json_schema.schema")


def hold_schema(schema: JsonObject, path: str) -> HeldSchema:
    """The schema as it will be compiled."""
    walk = _Walk(composes="allOf" in set(_keywords(schema)))
    held = walk.schema(schema, path)
    if not _is_finite(held, held, frozenset()):
        walk.problems.append(SchemaProblem(path, "every value of it would be infinitely deep"))
    return HeldSchema(held, tuple(walk.problems))


def loosened(schema: JsonObject) -> JsonObject:
    """The schema with llguidance told to ignore what it cannot do (look for `x-guidance` in its documentation)."""
    return JsonObject((*schema.pairs, ("x-guidance", JsonObject((("lenient", True),)))))


def type_only(schema: JsonObject) -> JsonObject:
    """The last resort: any value of the schema's type."""
    stated = schema.get("type")
    return JsonObject((("type", stated),)) if stated is not None else JsonObject()


@dataclass(slots=True)
class _Walk:
    composes: bool
    """Somewhere schemas are intersected: there an object must not be closed by what one of them names."""
    problems: list[SchemaProblem] = field(default_factory=list)

    def schema(self, schema: JsonObject, path: str) -> JsonObject:
        pairs: list[tuple[str, JsonValue]] = []
        for keyword, value in JsonObject(_last_of_each(schema)).pairs:
            where = f"{path}.{keyword}"
            if keyword in _SCHEMA_MAPS and isinstance(value, JsonObject):
                pairs.append((keyword, JsonObject(tuple((name, self._any(one, f"{where}.{name}")) for name, one in value.pairs))))
            elif keyword in _SCHEMA_LISTS and isinstance(value, tuple):
                pairs.append((keyword, tuple(self._any(one, f"{where}[{index}]") for index, one in enumerate(value))))
            elif keyword in _SCHEMAS:
                self._sub(keyword, value, where, pairs)
            elif keyword == "format":
                self._format(value, where, pairs)
            elif keyword in ("exclusiveMinimum", "exclusiveMaximum") and not isinstance(value, JsonNumber):
                self._problem(where, f"got {value!r}, allowed a number (booleans were draft 4)")
            elif keyword in NOT_HELD:
                if not (keyword == "uniqueItems" and value is False):
                    self._problem(where, f"{keyword!r} cannot be held while generating")
            elif keyword in HELD:
                pairs.append((keyword, value))
            # everything else says nothing about values, and is not shown to llguidance
        return self._closed(JsonObject(tuple(pairs)))

    def _any(self, value: JsonValue, path: str) -> JsonValue:
        return self.schema(value, path) if isinstance(value, JsonObject) else value

    def _sub(self, keyword: str, value: JsonValue, where: str, pairs: list[tuple[str, JsonValue]]) -> None:
        if isinstance(value, tuple):
            self._problem(where, "got a list of schemas (draft 4), allowed one schema; use prefixItems")
        else:
            pairs.append((keyword, self._any(value, where)))

    def _format(self, value: JsonValue, where: str, pairs: list[tuple[str, JsonValue]]) -> None:
        if value in FORMATS:
            pairs.append(("format", value))
        else:
            self._problem(where, f"got {value!r}, allowed {', '.join(sorted(FORMATS))}")

    def _closed(self, schema: JsonObject) -> JsonObject:
        """An object that names its properties gets no others: their keys could repeat, which no mask of llguidance sees."""
        keys = set(schema.keys())
        composed = keys & {"additionalProperties", "patternProperties", "anyOf", "oneOf", "allOf", "$ref"}
        properties = schema.get("properties")
        if self.composes or composed or not isinstance(properties, JsonObject) or not properties.pairs:
            return schema
        required = schema.get("required")
        if isinstance(required, tuple) and not set(required) <= set(properties.keys()):
            return schema
        return JsonObject((*schema.pairs, ("additionalProperties", False)))

    def _problem(self, path: str, reason: str) -> None:
        self.problems.append(SchemaProblem(path, reason))


def _last_of_each(schema: JsonObject) -> tuple[tuple[str, JsonValue], ...]:
    return tuple(dict(schema.pairs).items())


def _keywords(value: JsonValue) -> Iterator[str]:
    if isinstance(value, JsonObject):
        for keyword, inner in value.pairs:
            yield keyword
            yield from _keywords(inner)
    elif isinstance(value, tuple):
        for inner in value:
            yield from _keywords(inner)


def _is_finite(root: JsonObject, schema: JsonValue, opened: frozenset[str]) -> bool:
    """Some value of the schema can be written to its end: no circle of `$ref` that every value must go through."""
    if not isinstance(schema, JsonObject):
        return schema is not False
    reference = schema.get("$ref")
    is_local = isinstance(reference, str) and reference.startswith("#")
    if is_local and (reference in opened or not _is_finite(root, _target(root, str(reference)), opened | {str(reference)})):
        return False
    for keyword in ("anyOf", "oneOf"):
        options = schema.get(keyword)
        if isinstance(options, tuple) and options and not any(_is_finite(root, option, opened) for option in options):
            return False
    every = schema.get("allOf")
    if isinstance(every, tuple) and not all(_is_finite(root, part, opened) for part in every):
        return False
    if schema.get("type") not in (None, "object", "array"):
        return True
    return _members_are_finite(root, schema, opened)


def _members_are_finite(root: JsonObject, schema: JsonObject, opened: frozenset[str]) -> bool:
    properties, required = schema.get("properties"), schema.get("required")
    if isinstance(properties, JsonObject) and isinstance(required, tuple):
        named = dict(properties.pairs)
        if not all(_is_finite(root, named.get(name, True), opened) for name in required if isinstance(name, str)):
            return False
    least = schema.get("minItems")
    if isinstance(least, JsonNumber) and least.text != "0":
        return _is_finite(root, dict(schema.pairs).get("items", True), opened)
    return True


def _target(root: JsonObject, reference: str) -> JsonValue:
    value: JsonValue = root
    for name in reference.removeprefix("#").split("/")[1:]:
        if not isinstance(value, JsonObject):
            return True
        value = value.get(name.replace("~1", "/").replace("~0", "~"))
    return value
